//! The time at which a job was made, to the nearest few milliseconds: all that a report of its age needs, at a fraction of the
//! price of an exact clock.

use std::time::Duration;

/// Milliseconds of a clock that never goes back; wraps after 49 days.
#[cfg(all(target_os = "linux", not(loom)))]
#[inline]
pub(crate) fn coarse_millis() -> u32 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one `timespec` into `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    // Truncation is the wrap.
    (now.tv_sec as u32)
        .wrapping_mul(1000)
        .wrapping_add((now.tv_nsec / 1_000_000) as u32)
}

/// Milliseconds of a clock that never goes back; wraps after 49 days.
#[cfg(not(all(target_os = "linux", not(loom))))]
pub(crate) fn coarse_millis() -> u32 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u32
}

/// Returns the time since `millis`; a job older than 49 days looks younger than it is.
pub(crate) fn since(millis: u32) -> Duration {
    Duration::from_millis(coarse_millis().wrapping_sub(millis).into())
}
