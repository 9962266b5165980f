//! The system's clock as one number.

/// Nanoseconds of a clock that never goes back, since some moment in the past. An `Instant` is the same clock, but takes
/// twice the room, and the difference of two of them some fifty instructions.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline]
pub fn monotonic_nanos() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one `timespec` into `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds of a clock that never goes back, since some moment in the past.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn monotonic_nanos() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
