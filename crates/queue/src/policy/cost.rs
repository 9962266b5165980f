//! Whether admission charges what jobs declare, or what was measured of their type.

use serde::{Deserialize, Serialize};

/// `[cost]`: what a job is charged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostPolicy {
    /// Admission charges the measured cost of a job's type, once there are enough runs: at least half and at most twice of
    /// what the job declares, and never more than could ever start.
    pub learn: bool,
}

impl CostPolicy {
    /// The least that is charged for a declared unit.
    pub const LEAST: f64 = 0.5;
    /// The most that is charged for a declared unit.
    pub const MOST: f64 = 2.0;

    /// Returns a learnt factor within its bounds.
    pub fn bounded(factor: f64) -> f64 {
        factor.clamp(Self::LEAST, Self::MOST)
    }

    /// Returns what a job is charged that declares so much, by what was learnt of its type. `most` is what can ever start: a
    /// job must not become impossible by what was learnt.
    ///
    /// ```
    /// use jobtree_queue::policy::CostPolicy;
    ///
    /// let on = CostPolicy { learn: true };
    /// assert_eq!(on.charge(10, Some(1.5), 100), 15);
    /// assert_eq!(on.charge(10, Some(40.0), 100), 20);
    /// assert_eq!(on.charge(10, Some(0.0), 100), 5);
    /// assert_eq!(on.charge(80, Some(2.0), 100), 100);
    /// assert_eq!(on.charge(1, Some(0.5), 100), 1);
    /// assert_eq!(CostPolicy::default().charge(10, Some(1.5), 100), 10);
    /// ```
    pub fn charge(&self, declared: u32, factor: Option<f64>, most: u32) -> u32 {
        let Some(factor) = factor.filter(|_| self.learn) else {
            return declared;
        };
        let charged = (f64::from(declared) * Self::bounded(factor)).round() as u32;
        charged.clamp(1, most.max(declared).max(1))
    }
}
