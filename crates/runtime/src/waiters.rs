//! Who waits for a channel, a lock or a permit: a list in the order of arrival, whose entries lie in the waiting
//! operations themselves, so that waiting allocates nothing and giving up takes the same few steps wherever the entry is.
//!
//! An entry has a slot for a value: a sender's holds what it wants to send, a receiver's what it was given. Everything in
//! an entry is guarded by the lock of the list's owner (the channel) as long as the entry is in the list. When the entry
//! is in no list, it is its own operation's alone; the operation learns that from its [`Claim`], or by looking under
//! the lock. It may free the entry only then.

use std::marker::PhantomPinned;
use std::task::Waker;
use std::{mem, ptr};

use jobtree_base::user_code::{Place, drop_user};

use crate::atomics::{UnsafeCell, model_has_failed};
use crate::claim::Claim;
use crate::step::{Step, left_out};

/// One who waits.
pub(crate) struct Waiter<T> {
    entry: UnsafeCell<Entry<T>>,
    /// Lists point here.
    _pinned: PhantomPinned,
}

struct Entry<T> {
    previous: *const Waiter<T>,
    next: *const Waiter<T>,
    is_linked: bool,
    waker: Option<Waker>,
    slot: Option<T>,
    /// The claim of the operation, and which of its clauses this is.
    claim: *const Claim,
    clause: u32,
}

// SAFETY: the entry is touched only under the lock of its list, or by its owner alone; wakers are `Send`.
unsafe impl<T: Send> Send for Waiter<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Waiter<T> {}

impl<T> Waiter<T> {
    pub(crate) fn new(slot: Option<T>) -> Waiter<T> {
        Waiter {
            entry: UnsafeCell::new(Entry {
                previous: ptr::null(),
                next: ptr::null(),
                is_linked: false,
                waker: None,
                slot,
                claim: ptr::null(),
                clause: 0,
            }),
            _pinned: PhantomPinned,
        }
    }

    /// # Safety
    /// The caller holds the lock of the entry's list, or owns an entry that is in none; and uses the reference only as
    /// long, with no other beside it.
    #[expect(clippy::mut_from_ref, reason = "the lock makes it unique")]
    unsafe fn entry(&self) -> &mut Entry<T> {
        // SAFETY: by contract.
        unsafe { &mut *self.entry.get() }
    }

    /// The place for the value.
    ///
    /// # Safety
    /// As above.
    #[expect(clippy::mut_from_ref, reason = "the lock makes it unique")]
    pub(crate) unsafe fn slot(&self) -> &mut Option<T> {
        // SAFETY: by contract.
        unsafe { &mut self.entry().slot }
    }

    /// Whether it is in a list.
    ///
    /// # Safety
    /// The caller holds the lock of the list.
    pub(crate) unsafe fn is_linked(&self) -> bool {
        // SAFETY: by contract.
        unsafe { self.entry().is_linked }
    }

    /// Forgets the way in which it is told.
    ///
    /// # Safety
    /// The caller owns an entry that is in no list.
    pub(crate) unsafe fn drop_waker(&self) {
        // SAFETY: by contract.
        drop_user(Place::Waker, unsafe { self.entry().waker.take() });
    }

    /// Replaces the way in which it is told; the old one is to be dropped without the lock.
    ///
    /// # Safety
    /// The caller holds the lock of the list.
    pub(crate) unsafe fn replace_waker(&self, waker: Waker) -> Option<Waker> {
        // SAFETY: by contract.
        unsafe { self.entry().waker.replace(waker) }
    }
}

/// An operation is often dropped because its thread unwinds, and what is left in its entry is the program's.
impl<T> Drop for Waiter<T> {
    #[inline]
    fn drop(&mut self) {
        if model_has_failed() {
            return;
        }
        // SAFETY: the operation that owns it has taken it out of every list.
        let entry = unsafe { self.entry() };
        if entry.waker.is_some() {
            drop_user(Place::Waker, entry.waker.take());
        }
        if mem::needs_drop::<T>() && entry.slot.is_some() {
            drop_user(Place::Value, entry.slot.take());
        }
    }
}

/// The waiters, oldest first. Used under the lock of whatever they wait for.
pub(crate) struct WaitList<T> {
    first: *const Waiter<T>,
    last: *const Waiter<T>,
    length: usize,
}

// SAFETY: it points to entries that may be reached from any thread that holds the lock.
unsafe impl<T: Send> Send for WaitList<T> {}

impl<T> WaitList<T> {
    pub(crate) fn new() -> WaitList<T> {
        WaitList {
            first: ptr::null(),
            last: ptr::null(),
            length: 0,
        }
    }

    /// How many are in it, those counted that have been told by another list.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Enters `waiter` behind all others.
    ///
    /// # Safety
    /// `waiter` is in no list, and stays where it is until it is in none; so does `claim`, which is open or somebody
    /// else's already.
    pub(crate) unsafe fn enter(
        &mut self,
        waiter: &Waiter<T>,
        waker: Waker,
        claim: &Claim,
        clause: u32,
    ) {
        // SAFETY: the lock is held by contract of this type; entries in the list are alive.
        unsafe {
            let entry = waiter.entry();
            debug_assert!(!entry.is_linked && entry.waker.is_none());
            entry.waker = Some(waker);
            entry.claim = claim;
            entry.clause = clause;
            entry.is_linked = true;
            entry.previous = self.last;
            entry.next = ptr::null();
            match self.last.as_ref() {
                Some(last) => last.entry().next = waiter,
                None => self.first = waiter,
            }
        }
        self.last = waiter;
        self.length += 1;
    }

    /// Takes `waiter` out; `false` if it was not in the list any more. Its waker stays with it.
    ///
    /// # Safety
    /// `waiter` is in this list or in none.
    pub(crate) unsafe fn remove(&mut self, waiter: &Waiter<T>) -> bool {
        // SAFETY: the lock is held; neighbours of an entry in the list are in the list, so alive.
        unsafe {
            let entry = waiter.entry();
            if !entry.is_linked && !left_out(Step::WithdrawalLooks) {
                return false;
            }
            entry.is_linked = false;
            let (previous, next) = (entry.previous, entry.next);
            match previous.as_ref() {
                Some(previous) => previous.entry().next = next,
                None => self.first = next,
            }
            match next.as_ref() {
                Some(next) => next.entry().previous = previous,
                None => self.last = previous,
            }
        }
        self.length = self.length.wrapping_sub(1);
        true
    }

    /// The oldest one, without taking it.
    pub(crate) fn peek(&self) -> Option<&T> {
        // SAFETY: the lock is held; entries in the list are alive, and so is this one as long as it is held.
        unsafe { self.first.as_ref()?.entry().slot.as_ref() }
    }

    /// Takes the oldest one whose operation nobody else has won: it is the caller's to finish, under the same lock.
    #[inline]
    pub(crate) fn claim_first(&mut self) -> Option<Claimed<'_, T>> {
        loop {
            // SAFETY: the lock is held; entries in the list are alive, and their owners have to take the lock to
            // take them out, unless their claim says that it is done.
            let waiter = unsafe { self.first.as_ref()? };
            // SAFETY: it is the first of this list.
            unsafe { self.remove(waiter) };
            // SAFETY: the claim outlives the entry's being in the list, and with it this hold of the lock: its owner
            // has to look under the lock whether the entry is still there.
            let is_ours = unsafe {
                let entry = waiter.entry();
                (*entry.claim).try_take(entry.clause)
            };
            if is_ours {
                return Some(Claimed { waiter });
            }
        }
    }
}

/// An entry that was taken out to be told.
#[must_use = "whoever waits must be told"]
pub(crate) struct Claimed<'a, T> {
    waiter: &'a Waiter<T>,
}

impl<T> Claimed<'_, T> {
    /// Puts a value into the entry; what wakes the waiter comes back.
    #[inline]
    pub(crate) fn give(self, value: T) -> Option<Waker> {
        // SAFETY: the lock is held.
        unsafe { *self.waiter.slot() = Some(value) };
        self.tell()
    }

    /// Takes the value out of the entry.
    #[inline]
    pub(crate) fn take(self) -> (T, Option<Waker>) {
        // SAFETY: the lock is held.
        let value = unsafe { self.waiter.slot().take() };
        match value {
            Some(value) => (value, self.tell()),
            None => unreachable!("a sender that waits has a value"),
        }
    }

    /// Leaves the value as it is: there is nothing to wait for any more.
    #[inline]
    pub(crate) fn tell(self) -> Option<Waker> {
        // SAFETY: the lock is held. The claim is alive until it is done, which is the last access.
        unsafe {
            let entry = self.waiter.entry();
            let (claim, clause) = (entry.claim, entry.clause);
            let waker = entry.waker.take();
            (*claim).finish(clause);
            waker
        }
    }
}
