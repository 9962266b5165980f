//! Numbers that look random, drawn from a seed: what is drawn in a run can be drawn again.

use std::time::Duration;

use jobtree_protocol::{JobId, LeaseId};

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Returns the stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(mixed(seed ^ 0x6A09_E667_F3BC_C908))
    }

    /// Draws the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.0)
    }

    /// Draws a number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias is below 2^-32 for every bound that is used here.
        self.draw() % bound
    }

    /// Returns `true` so often in 1000.
    pub fn chance(&mut self, in_1000: u64) -> bool {
        self.below(1000) < in_1000
    }

    /// Draws an id for a lease or a reservation.
    pub fn lease_id(&mut self) -> LeaseId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.draw().to_le_bytes());
        bytes[8..].copy_from_slice(&self.draw().to_le_bytes());
        LeaseId::from_random(bytes)
    }

    /// Draws an id for a job that is submitted at `wall`.
    pub fn job_id(&mut self, wall: jiff::Timestamp) -> JobId {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.draw().to_le_bytes());
        random[8..].copy_from_slice(&self.draw().to_le_bytes()[..2]);
        JobId::from_parts(wall, random)
    }

    /// Draws a duration from three quarters of `whole` to all of it: timers of many schedulers must not go off together.
    pub fn jittered(&mut self, whole: Duration) -> Duration {
        whole.mul_f64(0.75 + 0.25 * self.fraction())
    }

    /// Draws a number from 0 to 1.
    pub fn fraction(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }
}

/// Spreads a number's bits (the finaliser of SplitMix64).
pub fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
