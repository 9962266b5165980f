//! The wait list of a job: its entries lie in the waiters' own memory, so that waiting allocates nothing
//! and giving up takes the same few steps wherever the entry is.
//!
//! An entry belongs to one list, and everything in it is guarded by the lock of the job that has the
//! list. The owner of an entry may free it only while it is in no list; so the owner takes the lock, and takes the
//! entry out if it is still there. The [`Wake`] is moved out of the entry when the waiter is taken to be woken:
//! from then on the list does not need the entry.
//!
//! A `Wake` holds user code (a foreign waker, a callback with what it captured). The list only moves it: every function
//! hands the `Wake` that it takes out of an entry to its caller, which calls or drops it when the lock is free.

use std::marker::PhantomPinned;
use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::error::CancelReason;
use crate::job::Job;
use crate::step::{Step, left_out};
use crate::sync::UnsafeCell;

/// A function that is called when a job is cancelled.
pub(crate) type CancelFn = Box<dyn FnOnce(&CancelReason) + Send>;

/// The way in which a waiter is notified.
pub(crate) enum Wake {
    /// A task, or a thread behind a waker.
    Task(Waker),
    /// The same, by a waker of the runner's own that the waiter keeps until its entry is in no list.
    Lent(NonNull<Waker>),
    /// A waker of the runner's own, which runs no user code: a copy of one that was lent, on its way out of the list.
    Own(Waker),
    /// A function that is called with the reason: waiters for cancellation only.
    Call(CancelFn),
    /// A function of the runner's own, which runs no user code: waiters for cancellation only.
    OwnCall(Box<dyn FnOnce() + Send>),
    /// A job that is cancelled for the same reason: waiters for cancellation only.
    Cancel(Job),
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

/// The result of [`WaitList::enter`].
#[must_use = "the old wake is to be dropped when the lock is free"]
pub(crate) enum Entered {
    /// The entry is new in the list.
    New,
    /// The entry was in the list; this was its old `Wake`.
    Renewed(Option<Wake>),
}

/// The most waiters that are taken out under one hold of the lock. In a model one, so that others come between.
pub(crate) const BATCH: usize = if cfg!(loom) { 1 } else { 8 };

/// The waiters of a job, newest first. Used under the job's lock.
pub(crate) struct WaitList {
    first: *const WaitNode,
}

impl WaitList {
    pub(crate) fn new() -> WaitList {
        WaitList { first: ptr::null() }
    }

    /// Enters `node`, or replaces its `Wake` if it is in the list already.
    ///
    /// # Safety
    /// `node` is in no other list, and stays where it is until it is in none.
    pub(crate) unsafe fn enter(&mut self, node: &WaitNode, wake: Wake) -> Entered {
        // SAFETY: the lock is held by contract of this type; nodes in the list are alive.
        unsafe {
            let entry = node.entry();
            let replaced = entry.wake.replace(wake);
            if entry.is_linked {
                return Entered::Renewed(replaced);
            }
            debug_assert!(
                replaced.is_none(),
                "an entry that is in no list has no wake"
            );
            entry.is_linked = true;
            entry.previous = ptr::null();
            entry.next = self.first;
            if let Some(first) = self.first.as_ref() {
                first.entry().previous = node;
            }
        }
        self.first = node;
        Entered::New
    }

    /// Takes `node` out, and returns its `Wake`; `None` if it was not in the list any more.
    ///
    /// # Safety
    /// `node` is in this list or in none.
    pub(crate) unsafe fn remove(&mut self, node: &WaitNode) -> Option<Wake> {
        // SAFETY: the lock is held; neighbours of a node in the list are in the list, so alive.
        unsafe {
            if !node.entry().is_linked && !left_out(Step::RemovalLooks) {
                return None;
            }
            let entry = node.entry();
            let (previous, next) = (entry.previous, entry.next);
            entry.is_linked = false;
            let wake = entry.wake.take();
            match previous.as_ref() {
                Some(previous) => previous.entry().next = next,
                None => self.first = next,
            }
            if let Some(next) = next.as_ref() {
                next.entry().previous = previous;
            }
            wake
        }
    }

    /// Returns `true` if the list has no waiter.
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
                // From here on the entry may go, and the waker with it. To clone it runs no user code, by the contract of
                // `CancelWatch::enter`.
                Some(Wake::Lent(waker)) => Some(Wake::Own(waker.as_ref().clone())),
                wake => wake,
            }
        }
    }
}
