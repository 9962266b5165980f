//! One send or one receive that may have to wait, without regard to jobs: the part that a model can run.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use jobtree_base::user_code::{Place, drop_user};

use crate::atomics::model_has_failed;
use crate::budget::later::waker_for_later;
use crate::channel::core::{Nothing, Refused, Side, remove};
use crate::channel::shared::Shared;
use crate::claim::{Claim, Standing};
use crate::cost::charge_channel_operation;
use crate::step::{Step, left_out};
use crate::waiters::Waiter;
use crate::withdraw::Operation;

/// How far an operation has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not begun.
    New,
    /// Begun, and could not be done without waiting.
    Tried,
    /// It has an entry.
    Waiting,
    /// Over, in one way or the other.
    Over,
}

/// Drops a waker that was cloned for a wait which was not needed: its destructor must not cost the caller the outcome.
#[inline]
fn drop_unused(waker: Option<Waker>) {
    if let Some(waker) = waker {
        drop_user(Place::Waker, waker);
    }
}

/// What a send and a receive have in common.
struct Single<'a, T> {
    shared: &'a Shared<T>,
    side: Side,
    stage: Stage,
    waiter: Waiter<T>,
    claim: Claim,
}

impl<'a, T> Single<'a, T> {
    fn new(shared: &'a Shared<T>, side: Side, slot: Option<T>, stage: Stage) -> Single<'a, T> {
        Single {
            shared,
            side,
            stage,
            waiter: Waiter::new(slot),
            claim: Claim::new(),
        }
    }

    /// The place for the value. Only while there is no entry.
    fn slot(&mut self) -> &mut Option<T> {
        debug_assert_ne!(self.stage, Stage::Waiting);
        // SAFETY: it is in no list, so it is ours alone.
        unsafe { self.waiter.slot() }
    }

    /// Whether a counterpart, or closing, has ended the wait; else `context` will hear of it.
    fn poll_waiting(&mut self, context: &Context<'_>) -> bool {
        if self.is_settled() {
            self.stage = Stage::Over;
            return true;
        }
        let waker = waker_for_later(context.waker());
        let state = self.shared.lock();
        // SAFETY: the lock is held.
        let unused = unsafe {
            if self.waiter.is_linked() {
                self.waiter.replace_waker(waker)
            } else {
                self.stage = Stage::Over;
                Some(waker)
            }
        };
        drop(state);
        drop_user(Place::Waker, unused);
        self.stage == Stage::Over
    }

    fn is_settled(&self) -> bool {
        match self.claim.standing() {
            Standing::Done(_) => true,
            Standing::Taken(_) => {
                // Whoever took it is about to finish under this lock.
                drop(self.shared.lock());
                true
            }
            Standing::Open => false,
        }
    }

    /// Takes the entry out; `false` if it was told before.
    fn leave(&mut self) -> bool {
        debug_assert_eq!(self.stage, Stage::Waiting);
        self.stage = Stage::Over;
        let mut state = self.shared.lock();
        // SAFETY: it is in this list or in none.
        unsafe { remove(&mut state, self.side, &self.waiter) }
    }
}

/// A send; ready with `Err` if the channel is closed. Its value stays with it until it is sent.
pub(crate) struct SendOperation<'a, T>(Single<'a, T>);

/// The channel was closed.
#[derive(Debug)]
pub(crate) struct IsClosed;

impl<'a, T> SendOperation<'a, T> {
    pub(crate) fn new(shared: &'a Shared<T>, value: T) -> SendOperation<'a, T> {
        SendOperation(Single::new(shared, Side::Sending, Some(value), Stage::New))
    }

    /// One that was charged, and tried without success.
    pub(crate) fn tried(shared: &'a Shared<T>, value: T) -> SendOperation<'a, T> {
        SendOperation(Single::new(
            shared,
            Side::Sending,
            Some(value),
            Stage::Tried,
        ))
    }

    /// The value, if it was not sent. Only before it has begun, or after it is over.
    pub(crate) fn take_value(self: Pin<&mut Self>) -> Option<T> {
        // SAFETY: nothing pinned is moved; the value is not pinned.
        unsafe { self.get_unchecked_mut() }.0.slot().take()
    }

    /// Sends, if it can be done without waiting; else enters with `waker`.
    fn attempt(&mut self, waker: Option<Waker>) -> Poll<Result<(), IsClosed>> {
        let single = &mut self.0;
        let Some(value) = single.slot().take() else {
            unreachable!("a send is not polled after it was ready");
        };
        let mut state = single.shared.lock();
        let offered = if left_out(Step::LooksBeforeEntering) && waker.is_some() {
            Err(Refused::Full(value))
        } else {
            state.offer(value)
        };
        match offered {
            Ok(after) => {
                drop(state);
                single.stage = Stage::Over;
                after.happen();
                drop_unused(waker);
                Poll::Ready(Ok(()))
            }
            Err(Refused::Closed(value)) => {
                drop(state);
                single.stage = Stage::Over;
                *single.slot() = Some(value);
                drop_unused(waker);
                Poll::Ready(Err(IsClosed))
            }
            Err(Refused::Full(value)) => {
                *single.slot() = Some(value);
                match waker {
                    Some(waker) => {
                        single.stage = Stage::Waiting;
                        let list = state.senders();
                        // SAFETY: both are pinned with the operation, which leaves the list before it goes (`drop`).
                        unsafe { list.enter(&single.waiter, waker, &single.claim, 0) };
                    }
                    None => single.stage = Stage::Tried,
                }
                Poll::Pending
            }
        }
    }

    /// What came of a wait that is over.
    fn result(&mut self) -> Result<(), IsClosed> {
        match self.0.slot() {
            None => Ok(()),
            Some(_) => Err(IsClosed),
        }
    }
}

impl<T> Future for SendOperation<'_, T> {
    type Output = Result<(), IsClosed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing pinned is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if this.0.stage == Stage::New {
            charge_channel_operation();
            if let Poll::Ready(result) = this.attempt(None) {
                return Poll::Ready(result);
            }
        }
        if this.0.stage != Stage::Waiting {
            return this.attempt(Some(waker_for_later(context.waker())));
        }
        match this.0.poll_waiting(context) {
            true => Poll::Ready(this.result()),
            false => Poll::Pending,
        }
    }
}

impl<T> Operation for SendOperation<'_, T> {
    fn withdraw(self: Pin<&mut Self>) -> Option<Self::Output> {
        // SAFETY: nothing pinned is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if this.0.stage != Stage::Waiting || this.0.leave() {
            return None;
        }
        Some(this.result())
    }
}

impl<T> Drop for SendOperation<'_, T> {
    fn drop(&mut self) {
        if self.0.stage == Stage::Waiting && !model_has_failed() {
            self.0.leave();
        }
    }
}

/// A receive; ready with `Err` if the channel is closed and empty.
pub(crate) struct RecvOperation<'a, T>(Single<'a, T>);

impl<'a, T> RecvOperation<'a, T> {
    pub(crate) fn new(shared: &'a Shared<T>) -> RecvOperation<'a, T> {
        RecvOperation(Single::new(shared, Side::Receiving, None, Stage::New))
    }

    /// One that was charged, and tried without success.
    pub(crate) fn tried(shared: &'a Shared<T>) -> RecvOperation<'a, T> {
        RecvOperation(Single::new(shared, Side::Receiving, None, Stage::Tried))
    }

    /// Receives, if it can be done without waiting; else enters with `waker`.
    fn attempt(&mut self, waker: Option<Waker>) -> Poll<Result<T, IsClosed>> {
        let single = &mut self.0;
        debug_assert_ne!(single.stage, Stage::Over, "polled after it was ready");
        let mut state = single.shared.lock();
        let taken = if left_out(Step::LooksBeforeEntering) && waker.is_some() {
            Err(Nothing::Empty)
        } else {
            state.take()
        };
        match taken {
            Ok((value, after)) => {
                drop(state);
                single.stage = Stage::Over;
                after.happen();
                drop_unused(waker);
                Poll::Ready(Ok(value))
            }
            Err(Nothing::Closed) => {
                drop(state);
                single.stage = Stage::Over;
                drop_unused(waker);
                Poll::Ready(Err(IsClosed))
            }
            Err(Nothing::Empty) => {
                match waker {
                    Some(waker) => {
                        single.stage = Stage::Waiting;
                        let list = state.receivers();
                        // SAFETY: both are pinned with the operation, which leaves the list before it goes (`drop`).
                        unsafe { list.enter(&single.waiter, waker, &single.claim, 0) };
                    }
                    None => single.stage = Stage::Tried,
                }
                Poll::Pending
            }
        }
    }

    /// What came of a wait that is over.
    fn result(&mut self) -> Result<T, IsClosed> {
        self.0.slot().take().ok_or(IsClosed)
    }
}

impl<T> Future for RecvOperation<'_, T> {
    type Output = Result<T, IsClosed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing pinned is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if this.0.stage == Stage::New {
            charge_channel_operation();
            if let Poll::Ready(result) = this.attempt(None) {
                return Poll::Ready(result);
            }
        }
        if this.0.stage != Stage::Waiting {
            return this.attempt(Some(waker_for_later(context.waker())));
        }
        match this.0.poll_waiting(context) {
            true => Poll::Ready(this.result()),
            false => Poll::Pending,
        }
    }
}

impl<T> Operation for RecvOperation<'_, T> {
    fn withdraw(self: Pin<&mut Self>) -> Option<Self::Output> {
        // SAFETY: nothing pinned is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if this.0.stage != Stage::Waiting || this.0.leave() {
            return None;
        }
        Some(this.result())
    }
}

impl<T> Drop for RecvOperation<'_, T> {
    fn drop(&mut self) {
        if self.0.stage == Stage::Waiting
            && !model_has_failed()
            && !self.0.leave()
            && let Some(value) = self.0.slot().take()
        {
            // It was handed to us, and we never took it.
            self.0.shared.give_back(value);
        }
    }
}
