//! A hint to the processor.

/// `true` if [`prefetch`] does anything: the cost of finding an address is saved where it does not. In a model every read of an
/// atomic is a case of its own.
pub(crate) const PREFETCHES: bool = cfg!(target_arch = "x86_64") && !cfg!(loom);

/// Has the processor fetch the line at `address`, which will be needed soon. Any address will do.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
