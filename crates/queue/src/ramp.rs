//! The ramp: what was granted since the last sample is not in that sample.
//!
//! After a sample the units in use may grow by `units_per_sample` until the next one; a single job of any cost may
//! always start when nothing else was added, or large ones never would. It is the net growth that counts: a job that
//! takes the place of one that ended adds no load.

use std::time::Duration;

use crate::policy::RampPolicy;

/// Units in use when the machine was last measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ramp {
    at_sample: u32,
    sampled: Duration,
}

impl Ramp {
    /// A sample was taken with `used` units in use.
    pub fn sample(&mut self, used: u32, mono: Duration) {
        *self = Ramp {
            at_sample: used,
            sampled: mono,
        };
    }

    /// Units added since the last sample.
    pub fn added(&self, used: u32) -> u32 {
        used.saturating_sub(self.at_sample)
    }

    /// Units that may still be added; none when any one job may.
    pub fn left(&self, policy: &RampPolicy, used: u32) -> Option<u32> {
        let added = self.added(used);
        if policy.units_per_sample == 0 || added == 0 {
            return None;
        }
        Some(policy.units_per_sample.saturating_sub(added))
    }

    /// When the machine was last measured.
    pub fn sampled(&self) -> Duration {
        self.sampled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_so_much_a_sample() {
        let policy = RampPolicy {
            units_per_sample: 25,
        };
        let mut ramp = Ramp::default();
        ramp.sample(40, Duration::ZERO);
        assert_eq!(ramp.left(&policy, 40), None, "the first may be of any cost");
        assert_eq!(ramp.left(&policy, 50), Some(15));
        assert_eq!(ramp.left(&policy, 80), Some(0));
        assert_eq!(
            ramp.left(&policy, 30),
            None,
            "a place that was freed is taken without growth"
        );
        ramp.sample(80, Duration::from_secs(2));
        assert_eq!(ramp.left(&policy, 80), None);
        assert_eq!(
            ramp.left(
                &RampPolicy {
                    units_per_sample: 0
                },
                99
            ),
            None
        );
    }
}
