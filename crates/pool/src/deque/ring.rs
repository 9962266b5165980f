//! The part of a deque that thieves share: indices, and slots that grow. The protocol is in the head of `deque.rs`.

use std::cell::UnsafeCell;

use super::Entry;
use crate::context::{Context, ContextRef};
use crate::job::Job;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering};

pub(super) struct Slot {
    job: AtomicPtr<Job>,
    context: AtomicPtr<Context>,
}

impl Slot {
    #[inline(always)]
    pub(super) fn write(&self, entry: Entry) {
        self.job.store(entry.job.as_ptr(), Ordering::Relaxed);
        self.context
            .store(entry.context.into_word(), Ordering::Relaxed);
    }

    /// Reads a slot that may never have been written at this index; only the thread that wins the index may
    /// use the result.
    #[inline(always)]
    pub(super) fn read(&self) -> (*mut Job, ContextRef) {
        (
            self.job.load(Ordering::Relaxed),
            ContextRef::from_word(self.context.load(Ordering::Relaxed)),
        )
    }
}

pub(super) struct Buffer {
    pub(super) slots: Box<[Slot]>,
    /// Shows the models a read that meets the buffer's end.
    #[cfg(loom)]
    pub(super) is_alive: loom::cell::UnsafeCell<bool>,
}

impl Buffer {
    pub(super) fn allocate(capacity: usize) -> *mut Buffer {
        debug_assert!(capacity.is_power_of_two());
        let slots = (0..capacity)
            .map(|_| Slot {
                job: AtomicPtr::new(std::ptr::null_mut()),
                context: AtomicPtr::new(std::ptr::null_mut()),
            })
            .collect();
        Box::into_raw(Box::new(Buffer {
            slots,
            #[cfg(loom)]
            is_alive: loom::cell::UnsafeCell::new(true),
        }))
    }

    #[inline]
    fn slot(&self, index: usize) -> &Slot {
        let position = index & (self.slots.len() - 1);
        // SAFETY: the length is a power of two, so the masked index is below it.
        unsafe { self.slots.get_unchecked(position) }
    }

    pub(super) fn write(&self, index: usize, entry: Entry) {
        self.slot(index).write(entry);
    }

    /// [`Slot::read`] for a thief.
    #[inline]
    pub(super) fn read(&self, index: usize) -> (*mut Job, ContextRef) {
        #[cfg(loom)]
        // SAFETY: loom itself checks that no other thread writes meanwhile.
        self.is_alive
            .with(|alive| unsafe { assert!(*alive, "a freed buffer is read") });
        self.slot(index).read()
    }
}

/// The words that thieves read and write, alone on their cache lines.
#[repr(align(128))]
pub(super) struct Ring {
    pub(super) top: AtomicUsize,
    pub(super) public_end: AtomicUsize,
    /// The buffer in use. Written by the owner only.
    pub(super) buffer: AtomicPtr<Buffer>,
    pub(super) readers: AtomicUsize,
    /// Replaced buffers that a thief may still be reading. Owner only.
    pub(super) retired: UnsafeCell<Vec<*mut Buffer>>,
    /// In a model freed buffers are only marked, so that a thief that reads one can be told.
    #[cfg(loom)]
    pub(super) freed: UnsafeCell<Vec<*mut Buffer>>,
    /// Shows the models a look at a ring whose making is not visible yet.
    #[cfg(loom)]
    pub(super) is_made: loom::cell::UnsafeCell<bool>,
}

impl Ring {
    pub(super) fn allocate(buffer: *mut Buffer) -> *mut Ring {
        let ring = Box::new(Ring {
            top: AtomicUsize::new(0),
            public_end: AtomicUsize::new(0),
            buffer: AtomicPtr::new(buffer),
            readers: AtomicUsize::new(0),
            retired: UnsafeCell::new(Vec::new()),
            #[cfg(loom)]
            freed: UnsafeCell::new(Vec::new()),
            #[cfg(loom)]
            is_made: loom::cell::UnsafeCell::new(false),
        });
        #[cfg(loom)]
        // SAFETY: loom itself checks that no other thread looks.
        ring.is_made.with_mut(|made| unsafe { *made = true });
        Box::into_raw(ring)
    }

    /// A glance without any promise.
    #[inline(always)]
    pub(super) fn looks_empty(&self) -> bool {
        self.public_ends_at().is_none()
    }

    /// The index of the oldest public entry and that of the first private one, if they seem to differ.
    #[inline(always)]
    pub(super) fn public_ends_at(&self) -> Option<(usize, usize)> {
        let top = self.top.load(Ordering::Relaxed);
        let end = self.public_end.load(Ordering::Relaxed);
        ((top.wrapping_sub(end) as isize) < 0).then_some((top, end))
    }

    /// Tries to win the oldest public entry for the owner, against thieves.
    #[inline]
    pub(super) fn win(&self, index: usize) -> bool {
        self.top
            .compare_exchange(
                index,
                index.wrapping_add(1),
                Ordering::SeqCst,
                Ordering::Acquire,
            )
            .is_ok()
    }
}
