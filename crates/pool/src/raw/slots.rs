//! Several workers fill one vector, or take one apart.
//!
//! [`Slots`] is the right to write to a range of uninitialised places; [`Filled`] owns a range of
//! initialised values in another owner's memory. Both can be cut in two and sent to other workers. What
//! has been filled is glued together again where it touches, so that at the end one `Filled` covers the
//! whole vector, or else something is missing and the vector is not made.
//!
//! # Invariants
//!
//! - A range of places belongs to exactly one `Slots` or `Filled`, or to none (then it is uninitialised
//!   or leaked). Cutting, filling and glueing consume their operands, so ranges never overlap.
//! - All places of a `Filled` are initialised; dropping it drops them.
//! - The memory outlives `'a`: it is only handed out under a lifetime that the borrower cannot name.

use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use jobtree_base::user_code::{Place, call_user};

/// The right to initialise a range of places in another owner's memory.
#[derive(Debug)]
pub struct Slots<'a, T> {
    // A raw pointer, not a slice: ranges that are glued together again must go back to one borrow of the whole.
    first: NonNull<T>,
    len: usize,
    memory: PhantomData<&'a mut [MaybeUninit<T>]>,
}

// SAFETY: it gives nothing but the right to put values there.
unsafe impl<T: Send> Send for Slots<'_, T> {}
// SAFETY: a shared reference gives nothing but the length.
unsafe impl<T> Sync for Slots<'_, T> {}

impl<'a, T> Slots<'a, T> {
    /// Returns the number of places.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there is no place.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first `index` places, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn split_at(self, index: usize) -> (Slots<'a, T>, Slots<'a, T>) {
        assert!(index <= self.len, "cannot split after the end");
        let left = Slots { len: index, ..self };
        let right = Slots {
            // SAFETY: `index` is at most the number of places.
            first: unsafe { self.first.add(index) },
            len: self.len - index,
            memory: PhantomData,
        };
        (left, right)
    }

    /// Writes the items to the places in order, until one of the two ends. What is left of `items` is not
    /// asked for; places that are left stay as they are.
    ///
    /// # Panics
    /// If `items` panics; what was written until then is dropped.
    #[inline]
    pub fn fill(self, items: impl Iterator<Item = T>) -> Filled<'a, T> {
        // SAFETY: the places are ours alone for `'a`, and uninitialised is a valid state for `MaybeUninit`.
        let places = unsafe {
            slice::from_raw_parts_mut(self.first.cast::<MaybeUninit<T>>().as_ptr(), self.len)
        };
        let mut filled = Filled {
            first: self.first,
            len: 0,
            memory: PhantomData,
        };
        // Counting in the guard itself costs nothing: where `items` cannot panic it is a register.
        places.iter_mut().zip(items).for_each(|(place, item)| {
            place.write(item);
            filled.len += 1;
        });
        filled
    }
}

/// Owns initialised values in another owner's memory.
#[derive(Debug)]
pub struct Filled<'a, T> {
    first: NonNull<T>,
    len: usize,
    memory: PhantomData<(&'a mut [MaybeUninit<T>], T)>,
}

// SAFETY: it owns its values and nothing else; sending it sends them.
unsafe impl<T: Send> Send for Filled<'_, T> {}
// SAFETY: a shared reference gives nothing but the length.
unsafe impl<T> Sync for Filled<'_, T> {}

impl<'a, T> Filled<'a, T> {
    /// No values at all, to begin with.
    pub fn nothing() -> Filled<'a, T> {
        Filled {
            first: NonNull::dangling(),
            len: 0,
            memory: PhantomData,
        }
    }

    /// All values of `vec`, which is empty afterwards and keeps its memory.
    pub fn drain(vec: &'a mut Vec<T>) -> Filled<'a, T> {
        let (pointer, len) = (vec.as_mut_ptr(), vec.len());
        // SAFETY: no longer than it was. From here on the values belong to the `Filled`; should that be leaked, so are
        // they. The memory is borrowed for `'a`, so `vec` can be neither filled nor freed before.
        unsafe { vec.set_len(0) };
        Filled {
            first: NonNull::new(pointer).expect("a vector's pointer is never null"),
            len,
            memory: PhantomData,
        }
    }

    /// Returns the number of values that it owns.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if it owns no value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Glues `next` to the end.
    ///
    /// # Panics
    /// If there is a gap between the two: then some place in between was not filled.
    #[inline]
    pub fn append(self, next: Filled<'a, T>) -> Filled<'a, T> {
        if self.is_empty() {
            return next;
        }
        if next.is_empty() {
            return self;
        }
        // SAFETY: one past the last value, so within or at the end of the memory.
        let end = unsafe { self.first.add(self.len) };
        assert!(
            end == next.first,
            "a source gave fewer items than it said it had"
        );
        let whole = Filled {
            first: self.first,
            len: self.len + next.len,
            memory: PhantomData,
        };
        // The values now belong to `whole`.
        mem::forget((self, next));
        whole
    }

    /// The first `index` values, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn split_at(self, index: usize) -> (Filled<'a, T>, Filled<'a, T>) {
        assert!(index <= self.len, "cannot split after the end");
        let (first, len) = (self.first, self.len);
        mem::forget(self);
        let left = Filled {
            first,
            len: index,
            memory: PhantomData,
        };
        let right = Filled {
            // SAFETY: `index` is at most the number of values.
            first: unsafe { first.add(index) },
            len: len - index,
            memory: PhantomData,
        };
        (left, right)
    }
}

impl<T> Drop for Filled<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if mem::needs_drop::<T>() {
            let rest = Rest {
                first: self.first,
                len: self.len,
            };
            rest.drop_each();
        }
    }
}

/// Values that are to be dropped. The panic of the first destructor that panics goes on when all others have run, whose
/// panics are recorded; if the thread panics already, all are.
struct Rest<T> {
    first: NonNull<T>,
    len: usize,
}

impl<T> Rest<T> {
    fn pop(&mut self) -> Option<NonNull<T>> {
        self.len = self.len.checked_sub(1)?;
        let value = self.first;
        // SAFETY: there was a value, so this is within or at the end of the memory.
        self.first = unsafe { value.add(1) };
        Some(value)
    }

    fn drop_each(mut self) {
        if std::thread::panicking() {
            return;
        }
        while let Some(value) = self.pop() {
            // SAFETY: a value of ours, which is no longer in the rest.
            unsafe { value.drop_in_place() };
        }
    }
}

impl<T> Drop for Rest<T> {
    fn drop(&mut self) {
        while let Some(value) = self.pop() {
            // SAFETY: as above.
            call_user(Place::Value, || unsafe { value.drop_in_place() });
        }
    }
}

impl<'a, T> IntoIterator for Filled<'a, T> {
    type Item = T;
    type IntoIter = FilledItems<'a, T>;

    #[inline]
    fn into_iter(self) -> FilledItems<'a, T> {
        FilledItems { left: self }
    }
}

/// The values of a [`Filled`], one by one. Those that are not asked for are dropped with it.
#[derive(Debug)]
pub struct FilledItems<'a, T> {
    left: Filled<'a, T>,
}

impl<T> Iterator for FilledItems<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.left.len == 0 {
            return None;
        }
        let first = self.left.first;
        // SAFETY: there is at least one value, so the next address is within or at the end.
        self.left.first = unsafe { first.add(1) };
        self.left.len -= 1;
        // SAFETY: it was ours, and no longer belongs to `left`.
        Some(unsafe { first.read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.len, Some(self.left.len))
    }
}

impl<T> DoubleEndedIterator for FilledItems<'_, T> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        self.left.len = self.left.len.checked_sub(1)?;
        // SAFETY: the last value was ours, and no longer belongs to `left`.
        Some(unsafe { self.left.first.add(self.left.len).read() })
    }
}

impl<T> ExactSizeIterator for FilledItems<'_, T> {}

/// Values out of a vector, and its memory: several workers take them apart, and the last part frees the memory.
#[derive(Debug)]
pub struct OwnedItems<T> {
    first: NonNull<T>,
    len: usize,
    /// Has the values' places in it.
    memory: Arc<OwnedMemory<T>>,
    values: PhantomData<T>,
}

// SAFETY: it owns its values; the memory is not looked at.
unsafe impl<T: Send> Send for OwnedItems<T> {}
// SAFETY: a shared reference gives nothing but the length.
unsafe impl<T> Sync for OwnedItems<T> {}

/// The memory of a vector whose values belong to others.
#[derive(Debug)]
struct OwnedMemory<T> {
    first: NonNull<T>,
    capacity: usize,
}

// SAFETY: it gives access to no value, and frees memory, which any thread may do.
unsafe impl<T> Send for OwnedMemory<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for OwnedMemory<T> {}

impl<T> Drop for OwnedMemory<T> {
    fn drop(&mut self) {
        // SAFETY: the parts of a vector, whose values belong to others; those have ended, since each of them keeps the memory.
        drop(unsafe { Vec::from_raw_parts(self.first.as_ptr(), 0, self.capacity) });
    }
}

impl<T> OwnedItems<T> {
    /// Takes the values of `vec`, and its memory.
    pub fn new(vec: Vec<T>) -> OwnedItems<T> {
        let mut vec = mem::ManuallyDrop::new(vec);
        let first = NonNull::new(vec.as_mut_ptr()).expect("a vector's pointer is never null");
        let memory = OwnedMemory {
            first,
            capacity: vec.capacity(),
        };
        OwnedItems {
            first,
            len: vec.len(),
            memory: Arc::new(memory),
            values: PhantomData,
        }
    }

    /// The first `index` values, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn split_at(mut self, index: usize) -> (OwnedItems<T>, OwnedItems<T>) {
        assert!(index <= self.len, "cannot split after the end");
        let right = OwnedItems {
            // SAFETY: `index` is at most the number of values.
            first: unsafe { self.first.add(index) },
            len: self.len - index,
            memory: self.memory.clone(),
            values: PhantomData,
        };
        self.len = index;
        (self, right)
    }
}

impl<T> Drop for OwnedItems<T> {
    #[inline]
    fn drop(&mut self) {
        if mem::needs_drop::<T>() {
            let rest = Rest {
                first: self.first,
                len: self.len,
            };
            rest.drop_each();
        }
    }
}

impl<T> Iterator for OwnedItems<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        let first = self.first;
        // SAFETY: there was a value, so the next address is within or at the end.
        self.first = unsafe { first.add(1) };
        // SAFETY: it was ours, and is no longer among those that are left.
        Some(unsafe { first.read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl<T> DoubleEndedIterator for OwnedItems<T> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the last value was ours, and is no longer among those that are left.
        Some(unsafe { self.first.add(self.len).read() })
    }
}

impl<T> ExactSizeIterator for OwnedItems<T> {}

/// Appends `len` values to `vec`; `fill` gets the places and gives back all of them filled.
///
/// # Panics
/// If `fill` panics, or if what it gives back is not the whole. Then `vec` is as it was.
pub fn fill_vec<T, F>(vec: &mut Vec<T>, len: usize, fill: F)
where
    F: for<'a> FnOnce(Slots<'a, T>) -> Filled<'a, T>,
{
    vec.reserve_exact(len);
    let first: NonNull<T> = NonNull::from(&mut vec.spare_capacity_mut()[..len]).cast();
    let filled = fill(Slots {
        first,
        len,
        memory: PhantomData,
    });
    // A `Filled` that begins here and has all the values is made of our places: nothing else can own them.
    // (Of a type without size any values are as good as ours.)
    assert!(
        filled.len == len && (len == 0 || filled.first == first),
        "a source gave fewer items than it said it had"
    );
    mem::forget(filled);
    let filled_len = vec.len() + len;
    // SAFETY: the capacity was reserved, and the `len` places after the old end are initialised and belonged
    // to `filled`, which has been forgotten.
    unsafe { vec.set_len(filled_len) };
}
