//! Counts what the queue does, in tests only: that is how they see that its work does not grow with its length.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// One element was looked at, compared or moved.
#[inline(always)]
pub(super) fn step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

/// How many steps this thread has counted.
#[cfg(test)]
pub(super) fn taken() -> u64 {
    STEPS.get()
}
