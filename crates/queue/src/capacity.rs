//! How much may run: a curve over busy.
//!
//! Usable percent at busy 0..=10 (defaults): 100, 100, 100, 80, 65, 50, 35, 25, 15, 10, 0. Between two whole numbers the
//! curve is straight, and what comes out is rounded down to whole units, less the reserve (none by default). The busy
//! that goes in is the larger of busy and the CPU of others alone: capacity is headroom, and idle signals beside a
//! full CPU are none.

use crate::policy::CapacityPolicy;

/// Usable units at a busy of 0..=10.
///
/// ```
/// use jobtree_queue::capacity::capacity;
/// use jobtree_queue::policy::CapacityPolicy;
///
/// let policy = CapacityPolicy::default();
/// assert_eq!(capacity(&policy, 2.0), 100);
/// assert_eq!(capacity(&policy, 2.5), 90);
/// assert_eq!(capacity(&policy, 10.0), 0);
/// ```
pub fn capacity(policy: &CapacityPolicy, busy: f64) -> u32 {
    let busy = busy.clamp(0.0, 10.0);
    let below = busy.floor() as usize;
    let above = (below + 1).min(10);
    let part = busy - below as f64;
    let percent = policy.curve[below] * (1.0 - part) + policy.curve[above] * part;
    // A hair below a whole number is that number: the parts above are not exact.
    let units = (f64::from(policy.units) * percent / 100.0 + 1e-9).floor() as u32;
    units.saturating_sub(policy.reserve)
}

/// The largest busy, in hundredths, at which `units` are still usable; none when they never are.
pub fn busy_for(policy: &CapacityPolicy, units: u32) -> Option<f64> {
    let fits = |hundredths: u32| capacity(policy, f64::from(hundredths) / 100.0) >= units;
    if !fits(0) {
        return None;
    }
    let (mut fit, mut beyond) = (0, 1001);
    while beyond - fit > 1 {
        let middle = (fit + beyond) / 2;
        if fits(middle) {
            fit = middle
        } else {
            beyond = middle
        }
    }
    Some(f64::from(fit) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_at_whole_numbers_and_between() {
        let policy = CapacityPolicy::default();
        let at: Vec<u32> = (0..=10)
            .map(|busy| capacity(&policy, f64::from(busy)))
            .collect();
        assert_eq!(at, [100, 100, 100, 80, 65, 50, 35, 25, 15, 10, 0]);
        assert_eq!(capacity(&policy, 3.5), 72, "72.5 rounded down");
        for hundredths in 0..1000 {
            let busy = f64::from(hundredths) / 100.0;
            assert!(
                capacity(&policy, busy) >= capacity(&policy, busy + 0.01),
                "falls at {busy}"
            );
        }
    }

    #[test]
    fn a_reserve_and_smaller_machines() {
        let policy = CapacityPolicy {
            units: 40,
            reserve: 5,
            ..CapacityPolicy::default()
        };
        assert_eq!(capacity(&policy, 0.0), 35);
        assert_eq!(capacity(&policy, 5.0), 15);
        assert_eq!(capacity(&policy, 10.0), 0);
    }

    #[test]
    fn the_busy_at_which_something_fits() {
        let policy = CapacityPolicy::default();
        for units in 0..=100 {
            let busy = busy_for(&policy, units).unwrap();
            assert!(capacity(&policy, busy) >= units);
            assert!(
                busy >= 10.0 || capacity(&policy, busy + 0.01) < units,
                "{units} at {busy}"
            );
        }
        assert_eq!(busy_for(&policy, 101), None);
    }
}
