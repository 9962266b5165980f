//! How long a failed job waits before its next attempt.

use std::time::Duration;

use jobtree_protocol::{Backoff, JobId};

/// The wait after the failure of attempt number `attempt` (the first is 1): `initial × factor^(attempt - 1)`, at most
/// `max`, less a drawn part of the share that is jitter.
///
/// Jitter only shortens: `max` is what the submitter was promised. Jobs that failed together draw apart, since the job's
/// id takes part in the draw.
pub fn delay(backoff: &Backoff, attempt: u32, job: JobId, roll: u64) -> Duration {
    let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
    // Infinite for large exponents, and then `max`.
    let full = (backoff.initial_sec * backoff.factor.powi(exponent)).min(backoff.max_sec);
    let seconds = full * (1.0 - backoff.jitter * draw(job, attempt, roll));
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

/// A number from 0 to below 1, of the given ones alone.
fn draw(job: JobId, attempt: u32, roll: u64) -> f64 {
    let (high, low) = job.0.as_u64_pair();
    let mixed = [high, low, u64::from(attempt)]
        .into_iter()
        .fold(roll, |state, value| scramble(state ^ value));
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// Spreads every bit over all others (the finish of SplitMix64).
fn scramble(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: u8) -> JobId {
        JobId::from_random([number; 16])
    }

    #[test]
    fn without_jitter_it_doubles_up_to_the_cap() {
        let backoff = Backoff {
            initial_sec: 1.0,
            factor: 2.0,
            max_sec: 10.0,
            jitter: 0.0,
        };
        let waits: Vec<u64> = (1..=6)
            .map(|attempt| delay(&backoff, attempt, job(1), 7).as_secs())
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn huge_attempts_and_zero_waits_are_finite() {
        let backoff = Backoff {
            factor: 10.0,
            jitter: 0.0,
            ..Backoff::default()
        };
        assert_eq!(
            delay(&backoff, u32::MAX, job(1), 0),
            Duration::from_secs(3600)
        );
        let none = Backoff {
            initial_sec: 0.0,
            max_sec: 0.0,
            ..backoff
        };
        assert_eq!(delay(&none, u32::MAX, job(1), 0), Duration::ZERO);
    }

    #[test]
    fn jitter_stays_within_its_share_and_uses_all_of_it() {
        let backoff = Backoff {
            initial_sec: 100.0,
            factor: 1.0,
            max_sec: 100.0,
            jitter: 0.25,
        };
        let waits: Vec<f64> = (0..1000)
            .map(|roll| delay(&backoff, 1, job(1), roll).as_secs_f64())
            .collect();
        assert!(waits.iter().all(|wait| (75.0..=100.0).contains(wait)));
        assert!(waits.iter().any(|wait| *wait < 76.0) && waits.iter().any(|wait| *wait > 99.0));
    }

    #[test]
    fn jobs_that_fail_together_do_not_come_back_together() {
        let backoff = Backoff {
            jitter: 1.0,
            ..Backoff::default()
        };
        let mut waits: Vec<Duration> = (0..100)
            .map(|number| delay(&backoff, 1, job(number), 42))
            .collect();
        waits.sort_unstable();
        waits.dedup();
        assert_eq!(waits.len(), 100);
    }
}
