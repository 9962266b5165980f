//! Numbers that look random, from a seed: what is drawn in a run can be drawn again.

use jobtree_protocol::LeaseId;

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(mixed(seed ^ 0x6A09_E667_F3BC_C908))
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.0)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias is below 2^-32 for every bound that is used here.
        self.roll() % bound
    }

    /// Whether something happens that happens so often in 1000.
    pub fn chance(&mut self, in_1000: u64) -> bool {
        self.below(1000) < in_1000
    }

    /// A new id for a lease or a reservation.
    pub fn lease_id(&mut self) -> LeaseId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.roll().to_le_bytes());
        bytes[8..].copy_from_slice(&self.roll().to_le_bytes());
        LeaseId::from_random(bytes)
    }

    /// A duration from `three quarters` of it to all of it: timers of many must not go off together.
    pub fn jittered(&mut self, whole: std::time::Duration) -> std::time::Duration {
        whole.mul_f64(0.75 + 0.25 * (self.below(1 << 20) as f64) / f64::from(1 << 20))
    }
}

/// Spreads a number's bits (the finaliser of SplitMix64).
pub fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
