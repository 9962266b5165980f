//! Who waits for a job: a list whose entries lie in the waiters' own memory, so that waiting allocates
//! nothing and giving up takes the same few steps wherever the entry is.
//!
//! An entry belongs to one list, and everything in it is guarded by the lock of the job that has the
//! list. Its owner may free it only while it is in no list; so it takes the lock, and takes the entry out
//! if it is still there. What wakes the waiter is moved out of the entry when it is taken to be woken:
//! from then on nobody needs the entry.

use std::marker::PhantomPinned;
use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::error::CancelReason;
use crate::step::{Step, left_out};
use crate::sync::UnsafeCell;

/// How a waiter is told.
pub(crate) enum Wake {
    /// A task, or a thread behind a waker.
    Task(Waker),
    /// The same, by a waker that the one who waits keeps until its entry is in no list.
    Lent(NonNull<Waker>),
    /// A function that is called with the reason: waiters for cancellation only.
    Call(Box<dyn FnOnce(&CancelReason) + Send>),
}

/// One who waits.
pub(crate) struct WaitNode {
    entry: UnsafeCell<Entry>,
    /// Lists point here.
    _pinned: PhantomPinned,
}

struct Entry {
    previous: *const WaitNode,
    next: *const WaitNode,
    wake: Option<Wake>,
    is_linked: bool,
}

// SAFETY: the entry is touched only under the lock of its list's job; wakes are `Send`.
unsafe impl Send for WaitNode {}
// SAFETY: as above.
unsafe impl Sync for WaitNode {}

impl WaitNode {
    pub(crate) fn new() -> WaitNode {
        WaitNode {
            entry: UnsafeCell::new(Entry {
                previous: ptr::null(),
                next: ptr::null(),
                wake: None,
                is_linked: false,
            }),
            _pinned: PhantomPinned,
        }
    }

    /// # Safety
    /// The caller holds the lock of the list's job, and uses the reference only as long.
    #[expect(clippy::mut_from_ref, reason = "the lock makes it unique")]
    unsafe fn entry(&self) -> &mut Entry {
        // SAFETY: the lock is held, and every other access is made under it.
        unsafe { &mut *self.entry.get() }
    }
}

/// How many waiters are taken out under one hold of the lock. In a model one, so that others come between.
pub(crate) const BATCH: usize = if cfg!(loom) { 1 } else { 8 };

/// The waiters of a job, newest first. Used under the job's lock.
pub(crate) struct WaitList {
    first: *const WaitNode,
}

impl WaitList {
    pub(crate) fn new() -> WaitList {
        WaitList { first: ptr::null() }
    }

    /// Enters `node`, or replaces its way of being told if it is in the list already; `true` if it is new.
    ///
    /// # Safety
    /// `node` is in no other list, and stays where it is until it is in none.
    pub(crate) unsafe fn enter(&mut self, node: &WaitNode, wake: Wake) -> bool {
        // SAFETY: the lock is held by contract of this type; nodes in the list are alive.
        unsafe {
            let entry = node.entry();
            entry.wake = Some(wake);
            if entry.is_linked {
                return false;
            }
            entry.is_linked = true;
            entry.previous = ptr::null();
            entry.next = self.first;
            if let Some(first) = self.first.as_ref() {
                first.entry().previous = node;
            }
        }
        self.first = node;
        true
    }

    /// Takes `node` out; `false` if it was not in the list any more.
    ///
    /// # Safety
    /// `node` is in this list or in none.
    pub(crate) unsafe fn remove(&mut self, node: &WaitNode) -> bool {
        // SAFETY: the lock is held; neighbours of a node in the list are in the list, so alive.
        unsafe {
            if !node.entry().is_linked && !left_out(Step::RemovalLooks) {
                return false;
            }
            let entry = node.entry();
            let (previous, next) = (entry.previous, entry.next);
            entry.is_linked = false;
            entry.wake = None;
            match previous.as_ref() {
                Some(previous) => previous.entry().next = next,
                None => self.first = next,
            }
            if let Some(next) = next.as_ref() {
                next.entry().previous = previous;
            }
        }
        true
    }

    /// Whether nobody is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Takes out up to [`BATCH`] waiters to be woken; after the last one, none.
    pub(crate) fn take_batch(&mut self) -> [Option<Wake>; BATCH] {
        std::array::from_fn(|_| self.take_first())
    }

    /// Takes out one waiter to be woken.
    #[inline]
    pub(crate) fn take_first(&mut self) -> Option<Wake> {
        // SAFETY: the lock is held; nodes in the list are alive.
        unsafe {
            let entry = self.first.as_ref()?.entry();
            self.first = entry.next;
            if let Some(next) = self.first.as_ref() {
                next.entry().previous = ptr::null();
            }
            entry.is_linked = false;
            match entry.wake.take() {
                // From here on the entry may go, and the waker with it.
                Some(Wake::Lent(waker)) => Some(Wake::Task(waker.as_ref().clone())),
                wake => wake,
            }
        }
    }
}
