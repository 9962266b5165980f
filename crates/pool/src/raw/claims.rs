//! Several workers write to places of one slice that are known only at run time.
//!
//! A place has to be claimed before it is written, and can be claimed only once: a bit per place, set
//! atomically, says whether it has been. So no two workers ever hold the same place, whatever indices they
//! come up with.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A slice whose places can be claimed by index, each once.
pub struct Claims<'a, T> {
    places: &'a [UnsafeCell<T>],
    taken: Vec<AtomicUsize>,
}

// SAFETY: a place is touched only by the thread that has set its bit, and only one can. What then goes from worker to
// worker is a `T` by value or exclusive reference, for which `Send` is enough.
unsafe impl<T: Send> Sync for Claims<'_, T> {}

impl<T> fmt::Debug for Claims<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("places", &self.places.len())
            .finish_non_exhaustive()
    }
}

/// The reason why a place could not be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// There is no such place.
    OutOfBounds,
    /// The place has been claimed before.
    Taken,
}

impl<'a, T> Claims<'a, T> {
    /// All places of `slice`, none of them claimed.
    pub fn new(slice: &'a mut [T]) -> Claims<'a, T> {
        let words = slice.len().div_ceil(usize::BITS as usize);
        let places: *const [UnsafeCell<T>] = slice as *mut [T] as *const [UnsafeCell<T>];
        Claims {
            // SAFETY: `UnsafeCell<T>` has the layout of `T`; the slice is borrowed exclusively for `'a`.
            places: unsafe { &*places },
            taken: (0..words).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Claims the place `index` for as long as the slice is borrowed.
    ///
    /// # Errors
    /// If there is no such place or if another claim has it already.
    #[inline]
    #[allow(
        clippy::mut_from_ref,
        reason = "the bit makes sure that a place is given out once"
    )]
    pub fn claim(&self, index: usize) -> Result<&'a mut T, ClaimError> {
        let place = self.places.get(index).ok_or(ClaimError::OutOfBounds)?;
        let bit = 1 << (index % usize::BITS as usize);
        // Relaxed: the bit only decides who is the one. The slice was exclusively ours before, and the thread that looks
        // at it afterwards waits for all workers by other means.
        let word = self.taken[index / usize::BITS as usize].fetch_or(bit, Ordering::Relaxed);
        if word & bit != 0 {
            return Err(ClaimError::Taken);
        }
        // SAFETY: no thread has claimed this place before us, none will, and without a claim it is not touched.
        Ok(unsafe { &mut *place.get() })
    }
}
