//! The cheapest clock there is, for loops that time themselves.

/// A count that grows by some two to four a nanosecond on this thread. Threads may disagree, and what a tick is worth
/// differs from machine to machine: good for telling a microsecond from a millisecond, and for nothing else. In a simulation the seed decides.
#[inline]
pub fn ticks() -> u64 {
    if let Some(ticks) = crate::sim::ticks() {
        return ticks;
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: every x86-64 processor has the instruction, and it changes nothing.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        2 * START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}
