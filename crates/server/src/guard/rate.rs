//! How many requests one token may make: a bucket that fills steadily, kept as the one moment at which it will be full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::options::Rate;

/// One token's bucket.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// When it will be full again, in nanoseconds since the start.
    full_at: AtomicU64,
}

impl Bucket {
    /// Takes one out, or says how long to wait for one.
    pub(crate) fn take(&self, rate: Rate, now: Duration) -> Result<(), Duration> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let each = 1_000_000_000 / u64::from(rate.per_second.max(1));
        let whole = each.saturating_mul(u64::from(rate.burst.max(1)));
        let mut known = self.full_at.load(Ordering::Relaxed);
        loop {
            let next = known.max(now) + each;
            if next > now + whole {
                return Err(Duration::from_nanos(next - now - whole));
            }
            match self.full_at.compare_exchange_weak(
                known,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(other) => known = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let rate = Rate {
            per_second: 10,
            burst: 5,
        };
        let bucket = Bucket::default();
        let start = Duration::from_secs(1000);
        for _ in 0..5 {
            bucket.take(rate, start).unwrap();
        }
        let wait = bucket.take(rate, start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        bucket.take(rate, start + wait).unwrap();
        bucket.take(rate, start + wait).unwrap_err();
        let later = start + Duration::from_secs(60);
        let taken = (0..10).filter(|_| bucket.take(rate, later).is_ok());
        assert_eq!(taken.count(), 5);
    }
}
