//! Waiting for the first of several clauses, of which exactly one takes effect.
//!
//! # Protocol
//!
//! A select is either at work or waiting, never both. At work it has no entry anywhere, so nobody can take effect on it,
//! and the first clause that it finds ready has won. It waits with an entry in each of its channels, all of which point to
//! its one [`Claim`]; whoever gets the claim has won that clause for it, and no other entry can be won any more.
//!
//! * From work to waiting: it takes the locks of all its channels, in the order of their addresses, looks once more at
//!   each, and enters all before it releases one. So no counterpart comes between its look and its entry, and of two
//!   selects that could meet, the second finds the first. None ever holds another's claim while its own can be taken,
//!   which is why there is no cycle to break.
//! * From waiting to work (it was woken, and nobody has its claim: a future is ready, or the wake-up was for nothing): it
//!   withdraws the claim, leaves all channels, and begins anew. If the withdrawal comes too late, it has been won.
//!
//! Futures are polled at work only: one that is ready has then won at once, and its output is not lost to a channel that
//! was faster. The price is that a select which is woken for nothing goes to the end of the queues.

use std::marker::PhantomPinned;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use jobtree_base::user_code::{Place, drop_user};

use jobtree_tree::raw::SpinLock;
use jobtree_tree::{Cancelled, WaitingFor};

use crate::atomics::model_has_failed;
use crate::budget::later::waker_for_later;
use crate::claim::{Claim, Standing};
use crate::cost::charge_channel_operation;
use crate::current::checkpoint;
use crate::select::clause::{ClauseSet, Kind};
use crate::select::random::random_start;
use crate::step::{Step, left_out};
use crate::withdraw::{Operation, OrCancelled, wait_for};

/// The most clauses that a select can have.
pub(crate) const MOST_CLAUSES: usize = 10;

/// A select as a future; ready with the number of the clause that has won.
pub(crate) struct Selecting<S: ClauseSet> {
    set: S,
    claim: Claim,
    is_waiting: bool,
    has_futures: bool,
    /// The clause that is looked at first.
    start: usize,
    /// Entries point to the claim.
    _pinned: PhantomPinned,
}

impl<S: ClauseSet> Selecting<S> {
    pub(crate) fn new(mut set: S, start: usize) -> Selecting<S> {
        let has_futures = (0..S::COUNT).any(|index| set.get(index).kind() == Kind::Future);
        Selecting {
            set,
            claim: Claim::new(),
            is_waiting: false,
            has_futures,
            start,
            _pinned: PhantomPinned,
        }
    }

    /// The clauses in the order in which they are looked at.
    fn order(&self) -> impl Iterator<Item = usize> + use<S> {
        let start = self.start;
        (0..S::COUNT).map(move |turn| (start + turn) % S::COUNT)
    }

    /// At work: the first clause that is ready.
    fn attempt(&mut self, context: &mut Context<'_>) -> Option<usize> {
        self.order()
            .find(|index| self.set.get(*index).attempt(context))
    }

    /// From work to waiting; or else the clause that has won meanwhile.
    ///
    /// # Safety
    /// This is pinned.
    unsafe fn enter(&mut self, waker: &Waker) -> Option<usize> {
        let mut wakers: [Option<Waker>; MOST_CLAUSES] = Default::default();
        for (index, place) in wakers.iter_mut().enumerate().take(S::COUNT) {
            if self.set.get(index).kind() == Kind::Channel {
                *place = Some(waker_for_later(waker));
            }
        }
        let mut locks = Locks::acquire(&mut self.set);
        let mut winner = None;
        for index in self.order() {
            // SAFETY: all locks are held.
            if unsafe { self.set.get(index).attempt_locked() } {
                winner = Some(index);
                break;
            }
        }
        if left_out(Step::OneHold) {
            drop(locks);
            locks = Locks::acquire(&mut self.set);
        }
        if winner.is_none() {
            self.is_waiting = true;
            for (index, waker) in wakers.iter_mut().enumerate() {
                if let Some(waker) = waker.take() {
                    // SAFETY: all locks are held. The claim is pinned with this, and `drop` has all clauses leave.
                    unsafe {
                        let clause = self.set.get(index);
                        clause.enter_locked(waker, &self.claim, index as u32);
                    }
                }
            }
        }
        drop(locks);
        for unused in wakers {
            drop_user(Place::Waker, unused);
        }
        if let Some(index) = winner {
            self.set.get(index).after_unlock();
        }
        winner
    }

    fn leave_all_but(&mut self, winner: usize) {
        for index in 0..S::COUNT {
            if index != winner {
                self.set.get(index).leave();
            }
        }
    }

    /// From waiting to work; or else the clause that has won meanwhile.
    fn give_up(&mut self) -> Option<usize> {
        if !std::mem::take(&mut self.is_waiting) {
            return None;
        }
        if self.claim.withdraw() {
            self.leave_all_but(S::COUNT);
            self.claim.reopen();
            return None;
        }
        let winner = self.winner();
        self.leave_all_but(winner);
        self.set.get(winner).collect();
        Some(winner)
    }

    /// Who has the claim that could not be withdrawn.
    fn winner(&mut self) -> usize {
        match self.claim.standing() {
            Standing::Done(clause) => clause as usize,
            Standing::Taken(clause) => {
                self.set.get(clause as usize).settle();
                clause as usize
            }
            Standing::Open => unreachable!("a claim that is taken stays so"),
        }
    }
}

impl<S: ClauseSet> Future for Selecting<S> {
    type Output = usize;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<usize> {
        // SAFETY: nothing pinned is moved.
        let this = unsafe { self.get_unchecked_mut() };
        let mut winner = this.give_up();
        if winner.is_none() && this.has_futures {
            winner = this.attempt(context);
        }
        if winner.is_none() {
            // SAFETY: pinned by the caller.
            winner = unsafe { this.enter(context.waker()) };
        }
        match winner {
            Some(winner) => Poll::Ready(winner),
            None => Poll::Pending,
        }
    }
}

impl<S: ClauseSet> Operation for Selecting<S> {
    fn withdraw(self: Pin<&mut Self>) -> Option<usize> {
        // SAFETY: nothing pinned is moved.
        unsafe { self.get_unchecked_mut() }.give_up()
    }
}

impl<S: ClauseSet> Drop for Selecting<S> {
    fn drop(&mut self) {
        if !model_has_failed() {
            // A clause that has won meanwhile keeps its output, and knows what to do with it when it is dropped.
            self.give_up();
        }
    }
}

/// The locks of all channels of a select, each once, taken in the order in which everybody takes them; held until this
/// is dropped.
struct Locks {
    locks: [*const SpinLock; MOST_CLAUSES],
    count: usize,
}

impl Locks {
    /// The caller keeps the channels alive as long as this.
    fn acquire<S: ClauseSet>(set: &mut S) -> Locks {
        let mut locks = [std::ptr::null(); MOST_CLAUSES];
        let mut count = 0;
        for index in 0..S::COUNT {
            if let Some(lock) = set.get(index).lock_word() {
                let lock: *const SpinLock = lock;
                let place = locks[..count].partition_point(|other| *other < lock);
                if locks[..count].get(place) != Some(&lock) {
                    locks.copy_within(place..count, place + 1);
                    locks[place] = lock;
                    count += 1;
                }
            }
        }
        for lock in &locks[..count] {
            // SAFETY: the clauses borrow their channels, which are alive.
            unsafe { (**lock).acquire() };
        }
        Locks { locks, count }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        for lock in &self.locks[..self.count] {
            // SAFETY: alive as above, and held since `acquire`.
            unsafe { (**lock).release() };
        }
    }
}

fn start_of<S: ClauseSet>(is_fair: bool) -> usize {
    match is_fair {
        true => random_start(S::COUNT),
        false => 0,
    }
}

/// Waits for the first clause to win, and says which.
pub fn block<S: ClauseSet>(set: S, is_fair: bool) -> Result<usize, Cancelled> {
    charge_channel_operation();
    checkpoint()?;
    let mut selecting = Selecting::new(set, start_of::<S>(is_fair));
    if !selecting.has_futures
        && let Some(winner) = selecting.attempt(&mut Context::from_waker(Waker::noop()))
    {
        return Ok(winner);
    }
    wait_for(selecting, WaitingFor::Select)
}

/// Says which clause can win at once; the count of clauses if none can.
pub fn look<S: ClauseSet>(set: S, is_fair: bool) -> Result<usize, Cancelled> {
    charge_channel_operation();
    checkpoint()?;
    let mut selecting = Selecting::new(set, start_of::<S>(is_fair));
    let winner = selecting.attempt(&mut Context::from_waker(Waker::noop()));
    Ok(winner.unwrap_or(S::COUNT))
}

/// As [`block`], as a future.
pub async fn wait<S: ClauseSet>(set: S, is_fair: bool) -> Result<usize, Cancelled> {
    charge_channel_operation();
    OrCancelled::new(Selecting::new(set, start_of::<S>(is_fair))).await
}
