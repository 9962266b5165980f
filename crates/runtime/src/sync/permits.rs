//! Permits that are taken and given back: what a lock and a semaphore are made of.
//!
//! # Protocol
//!
//! Who cannot have what it wants enters a list, and nobody passes it: permits that come back are handed to the first in the
//! list as soon as there are enough for it, and it is woken only then. So a woken waiter has its permits, and those who
//! wait are served in the order in which they came, the ones who want many included. A waiter that was handed permits and
//! gives up before it took them gives them back; one that gives up while it waits lets the next one look, since that may
//! want less.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use jobtree_base::user_code::{Place, drop_user, wake_user};

use crate::atomics::{Guarded, model_has_failed};
use crate::budget::later::waker_for_later;
use crate::claim::{Claim, Standing};
use crate::step::{Step, left_out};
use crate::waiters::{WaitList, Waiter};
use crate::withdraw::Operation;

/// How many are woken after one hold of the lock.
const BATCH: usize = 8;

/// See the module's head.
pub(crate) struct Permits {
    state: Guarded<State>,
}

struct State {
    free: usize,
    /// Those that are free, and those that are to come back.
    total: usize,
    is_closed: bool,
    /// Each has in its slot how many it wants, until it has them.
    waiters: WaitList<usize>,
}

/// Why there are no permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPermits {
    /// Not now.
    Taken,
    /// Not ever.
    Closed,
}

impl State {
    fn take(&mut self, wanted: usize) -> Result<(), NoPermits> {
        if self.is_closed {
            return Err(NoPermits::Closed);
        }
        if self.waiters.len() > 0 || self.free < wanted {
            return Err(NoPermits::Taken);
        }
        self.free -= wanted;
        Ok(())
    }

    /// Hands out what there is to those who wait; some of them, to be woken, and none after the last.
    fn grant(&mut self) -> [Option<Waker>; BATCH] {
        std::array::from_fn(|_| {
            if self.is_closed {
                return self.waiters.claim_first()?.tell();
            }
            let wanted = *self.waiters.peek()?;
            self.free = self.free.checked_sub(wanted)?;
            self.waiters.claim_first()?.take().1
        })
    }
}

impl Permits {
    pub(crate) fn new(free: usize) -> Permits {
        Permits {
            state: Guarded::new(State {
                free,
                total: free,
                is_closed: false,
                waiters: WaitList::new(),
            }),
        }
    }

    /// Takes permits if that needs no waiting.
    #[inline]
    pub(crate) fn try_take(&self, wanted: usize) -> Result<(), NoPermits> {
        self.state.lock().take(wanted)
    }

    /// Gives back permits that were taken.
    #[inline]
    pub(crate) fn give(&self, permits: usize) {
        let mut state = self.state.lock();
        // At most `total`, which is a number.
        state.free += permits;
        let somebody_waits = state.waiters.len() > 0;
        drop(state);
        if somebody_waits {
            self.grant();
        }
    }

    /// Makes new permits.
    ///
    /// # Panics
    /// If there would be more than `usize::MAX`, with those that were taken and are to come back: a permit that comes back in
    /// a destructor must find room.
    pub(crate) fn add(&self, permits: usize) {
        let mut state = self.state.lock();
        let total = state.total.checked_add(permits);
        state.total = total.unwrap_or(state.total);
        drop(state);
        assert!(total.is_some(), "more permits than can be counted");
        self.give(permits);
    }

    /// Counts permits that were taken as gone for ever.
    pub(crate) fn forget(&self, permits: usize) {
        self.state.lock().total -= permits;
    }

    #[cold]
    fn grant(&self) {
        loop {
            let told = self.state.lock().grant();
            let is_last = told.iter().any(Option::is_none);
            told.into_iter().flatten().for_each(wake_user);
            if is_last {
                return;
            }
        }
    }

    /// Nobody gets permits any more.
    pub(crate) fn close(&self) -> bool {
        let is_first = !std::mem::replace(&mut self.state.lock().is_closed, true);
        self.grant();
        is_first
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    pub(crate) fn free(&self) -> usize {
        self.state.lock().free
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiters.len()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Waiting,
    Over,
}

/// Waiting for permits; ready with `false` if there will be none.
pub(crate) struct Taking<'a> {
    permits: &'a Permits,
    wanted: usize,
    stage: Stage,
    waiter: Waiter<usize>,
    claim: Claim,
}

impl<'a> Taking<'a> {
    pub(crate) fn new(permits: &'a Permits, wanted: usize) -> Taking<'a> {
        Taking {
            permits,
            wanted,
            stage: Stage::New,
            waiter: Waiter::new(Some(wanted)),
            claim: Claim::new(),
        }
    }

    /// Takes the permits, or enters.
    fn attempt(&mut self, context: &Context<'_>) -> Poll<bool> {
        let waker = waker_for_later(context.waker());
        let mut state = self.permits.state.lock();
        let taken = state.take(self.wanted);
        if taken == Err(NoPermits::Taken) {
            self.stage = Stage::Waiting;
            // SAFETY: both are pinned with the operation, which leaves the list before it goes (`drop`).
            unsafe { state.waiters.enter(&self.waiter, waker, &self.claim, 0) };
            return Poll::Pending;
        }
        drop(state);
        self.stage = Stage::Over;
        drop_user(Place::Waker, waker);
        Poll::Ready(taken.is_ok())
    }

    fn poll_waiting(&mut self, context: &Context<'_>) -> Poll<bool> {
        if matches!(self.claim.standing(), Standing::Done(_)) {
            return Poll::Ready(self.has_permits());
        }
        let waker = waker_for_later(context.waker());
        let state = self.permits.state.lock();
        // SAFETY: the lock is held.
        let (is_waiting, unused) = unsafe {
            match self.waiter.is_linked() {
                true => (true, self.waiter.replace_waker(waker)),
                false => (false, Some(waker)),
            }
        };
        drop(state);
        drop_user(Place::Waker, unused);
        match is_waiting {
            true => Poll::Pending,
            false => Poll::Ready(self.has_permits()),
        }
    }

    /// Whether the wait that is over ended with the permits.
    fn has_permits(&mut self) -> bool {
        self.stage = Stage::Over;
        // SAFETY: the entry is in no list any more, so it is ours alone.
        unsafe { self.waiter.slot().is_none() }
    }

    /// Takes the entry out; `false` if it was told before.
    fn leave(&mut self) -> bool {
        let mut state = self.permits.state.lock();
        // SAFETY: it is in this list or in none.
        let has_left = unsafe { state.waiters.remove(&self.waiter) };
        drop(state);
        if has_left {
            self.stage = Stage::Over;
            if left_out(Step::NextLooks) {
                return true;
            }
            // There may be enough for the next one.
            self.permits.grant();
        }
        has_left
    }
}

impl Future for Taking<'_> {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        // SAFETY: nothing pinned is moved.
        let this = unsafe { self.get_unchecked_mut() };
        match this.stage {
            Stage::New => this.attempt(context),
            Stage::Waiting => this.poll_waiting(context),
            Stage::Over => unreachable!("polled after it was ready"),
        }
    }
}

impl Operation for Taking<'_> {
    fn withdraw(self: Pin<&mut Self>) -> Option<bool> {
        // SAFETY: nothing pinned is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if this.stage != Stage::Waiting || this.leave() {
            return None;
        }
        Some(this.has_permits())
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        if self.stage == Stage::Waiting
            && !model_has_failed()
            && !self.leave()
            && self.has_permits()
            && !left_out(Step::PermitsReturned)
        {
            self.permits.give(self.wanted);
        }
    }
}
