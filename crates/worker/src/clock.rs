//! The clock that leases are kept by.

use std::time::Duration;

/// The time since this machine started, which nobody sets, and which counts while the machine sleeps: a worker that slept
/// beyond its leases must know. Where there is no such clock, it is the process's own, which may stand still meanwhile.
#[cfg(target_os = "linux")]
pub fn mono() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// The time since this was first asked for, by a clock that nobody sets.
#[cfg(not(target_os = "linux"))]
pub fn mono() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
