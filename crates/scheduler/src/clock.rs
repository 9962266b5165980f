//! The clock of a running engine.
//!
//! Within a process, time is that of CLOCK_BOOTTIME: nobody sets it back, and it counts while the machine sleeps, so that
//! a lease does not last longer because somebody closed a lid. Where there is no such clock, the system's monotonic one
//! is used, which may stand still during sleep: leases then last longer, which is safe.

use std::time::Duration;

use jiff::Timestamp;
use jobtree_queue::Now;

/// This machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    #[cfg(not(target_os = "linux"))]
    start: std::time::Instant,
}

impl Clock {
    /// The clocks of this machine.
    pub fn system() -> Self {
        Self {
            #[cfg(not(target_os = "linux"))]
            start: std::time::Instant::now(),
        }
    }

    /// The moment.
    pub fn now(&self) -> Now {
        Now {
            wall: Timestamp::now() + advanced(),
            mono: self.mono(),
        }
    }

    /// The monotonic part alone.
    pub fn mono(&self) -> Duration {
        self.running() + advanced()
    }

    #[cfg(target_os = "linux")]
    fn running(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or(0),
            u32::try_from(time.tv_nsec).unwrap_or(0),
        )
    }

    #[cfg(not(target_os = "linux"))]
    fn running(&self) -> Duration {
        self.start.elapsed()
    }
}

/// By how many nanoseconds tests have moved the clocks of this process.
#[cfg(feature = "sim")]
static ADVANCED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

#[cfg(feature = "sim")]
fn advanced() -> Duration {
    Duration::from_nanos(ADVANCED.load(std::sync::atomic::Ordering::Relaxed))
}

#[cfg(not(feature = "sim"))]
fn advanced() -> Duration {
    Duration::ZERO
}

/// Moves the clocks of all schedulers of this process forward, for tests of programs that wait for minutes. A running
/// scheduler looks at its clock with the next call that reaches it; a step longer than a few seconds looks to it like a
/// machine that slept.
#[cfg(feature = "sim")]
pub fn advance(by: Duration) {
    let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    ADVANCED.fetch_add(nanos, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_not_run_backwards() {
        let clock = Clock::system();
        let before = clock.now();
        let after = clock.now();
        assert!(before.mono <= after.mono);
        assert!(after.mono > Duration::ZERO || cfg!(not(target_os = "linux")));
    }
}
