//! The clauses that enter channels.

use std::pin::Pin;
use std::task::{Context, Waker};

use jobtree_tree::raw::SpinLock;

use crate::atomics::model_has_failed;
use crate::channel::core::{After, Nothing, Refused, Side, State, remove};
use crate::channel::shared::Shared;
use crate::channel::{RecvError, SendError, Unsent};
use crate::claim::Claim;
use crate::select::clause::{Clause, Kind};
use crate::waiters::Waiter;

/// An entry in a channel that is made and taken back together with others.
struct Entrance<'a, T> {
    shared: &'a Shared<T>,
    side: Side,
    waiter: Waiter<T>,
    has_entered: bool,
    after: After<T>,
}

impl<'a, T> Entrance<'a, T> {
    fn new(shared: &'a Shared<T>, side: Side, slot: Option<T>) -> Entrance<'a, T> {
        Entrance {
            shared,
            side,
            waiter: Waiter::new(slot),
            has_entered: false,
            after: After::NOTHING,
        }
    }

    /// The place for the value. Only while it has not entered.
    fn slot(&mut self) -> &mut Option<T> {
        debug_assert!(!self.has_entered);
        // SAFETY: it is in no list, so it is ours alone.
        unsafe { self.waiter.slot() }
    }

    /// # Safety
    /// The caller holds the lock, uses the reference only as long, and has no other.
    unsafe fn state(&self) -> &'a mut State<T> {
        // SAFETY: by contract.
        unsafe { self.shared.state.state_while_held() }
    }

    /// # Safety
    /// The caller holds the lock; the waiter is pinned, and leaves before it goes; `claim` stays as long.
    unsafe fn enter(&mut self, waker: Waker, claim: &Claim, clause: u32) {
        self.has_entered = true;
        // SAFETY: by contract.
        unsafe {
            let list = self.side.list(self.state());
            list.enter(&self.waiter, waker, claim, clause);
        }
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.has_entered) {
            let mut state = self.shared.lock();
            // SAFETY: it is in this list or in none.
            unsafe { remove(&mut state, self.side, &self.waiter) };
            drop(state);
            // SAFETY: it is in no list any more, so it is ours alone.
            unsafe { self.waiter.drop_waker() };
        }
    }

    fn settle(&self) {
        drop(self.shared.lock());
    }

    fn after_unlock(&mut self) {
        std::mem::replace(&mut self.after, After::NOTHING).happen();
    }
}

/// `recv(receiver)`.
pub struct RecvClause<'a, T> {
    entrance: Entrance<'a, T>,
    output: Option<Result<T, RecvError>>,
}

impl<'a, T> RecvClause<'a, T> {
    pub(crate) fn new(shared: &'a Shared<T>) -> RecvClause<'a, T> {
        RecvClause {
            entrance: Entrance::new(shared, Side::Receiving, None),
            output: None,
        }
    }

    /// What it has received, if it has won.
    pub fn take_output(self: Pin<&mut Self>) -> Option<Result<T, RecvError>> {
        self.this().output.take()
    }

    fn this(self: Pin<&mut Self>) -> &mut Self {
        // SAFETY: the callers move nothing that is pinned.
        unsafe { self.get_unchecked_mut() }
    }

    fn try_on(&mut self, state: &mut State<T>) -> bool {
        match state.take() {
            Ok((value, after)) => {
                self.entrance.after = after;
                self.output = Some(Ok(value));
            }
            Err(Nothing::Closed) => self.output = Some(Err(RecvError::Closed)),
            Err(Nothing::Empty) => return false,
        }
        true
    }
}

impl<T> Clause for RecvClause<'_, T> {
    fn kind(&self) -> Kind {
        Kind::Channel
    }

    fn attempt(self: Pin<&mut Self>, _: &mut Context<'_>) -> bool {
        let this = self.this();
        let shared = this.entrance.shared;
        let has_won = this.try_on(&mut shared.lock());
        this.entrance.after_unlock();
        has_won
    }

    fn lock_word(&self) -> Option<&SpinLock> {
        Some(self.entrance.shared.state.lock_word())
    }

    unsafe fn attempt_locked(self: Pin<&mut Self>) -> bool {
        let this = self.this();
        // SAFETY: the lock is held by contract.
        let state = unsafe { this.entrance.state() };
        this.try_on(state)
    }

    fn after_unlock(self: Pin<&mut Self>) {
        self.this().entrance.after_unlock();
    }

    unsafe fn enter_locked(self: Pin<&mut Self>, waker: Waker, claim: &Claim, clause: u32) {
        // SAFETY: by contract, and `drop` leaves.
        unsafe { self.this().entrance.enter(waker, claim, clause) };
    }

    fn leave(self: Pin<&mut Self>) {
        self.this().entrance.leave();
    }

    fn settle(&self) {
        self.entrance.settle();
    }

    fn collect(self: Pin<&mut Self>) {
        let this = self.this();
        this.entrance.has_entered = false;
        this.output = Some(this.entrance.slot().take().ok_or(RecvError::Closed));
    }
}

impl<T> Drop for RecvClause<'_, T> {
    fn drop(&mut self) {
        if model_has_failed() {
            return;
        }
        self.entrance.leave();
        if let Some(Ok(value)) = self.output.take() {
            // It was given up between winning and being asked.
            self.entrance.shared.give_back(value);
        }
    }
}

/// `send(sender, value)` and `send_from(sender, slot)`.
pub struct SendClause<'a, T> {
    entrance: Entrance<'a, T>,
    /// Where a value goes that was not sent.
    home: Option<&'a mut Option<T>>,
    is_off: bool,
    output: Option<Result<(), SendError<T>>>,
}

impl<'a, T> SendClause<'a, T> {
    /// It is off if there is no value.
    pub(crate) fn new(
        shared: &'a Shared<T>,
        value: Option<T>,
        home: Option<&'a mut Option<T>>,
    ) -> SendClause<'a, T> {
        SendClause {
            is_off: value.is_none(),
            entrance: Entrance::new(shared, Side::Sending, value),
            home,
            output: None,
        }
    }

    /// What came of it, if it has won.
    pub fn take_output(self: Pin<&mut Self>) -> Option<Result<(), SendError<T>>> {
        self.this().output.take()
    }

    fn this(self: Pin<&mut Self>) -> &mut Self {
        // SAFETY: the callers move nothing that is pinned.
        unsafe { self.get_unchecked_mut() }
    }

    fn try_on(&mut self, state: &mut State<T>) -> bool {
        let Some(value) = self.entrance.slot().take() else {
            return false;
        };
        match state.offer(value) {
            Ok(after) => {
                self.entrance.after = after;
                self.output = Some(Ok(()));
            }
            Err(Refused::Closed(value)) => self.output = Some(closed(value)),
            Err(Refused::Full(value)) => {
                *self.entrance.slot() = Some(value);
                return false;
            }
        }
        true
    }
}

fn closed<T>(value: T) -> Result<(), SendError<T>> {
    Err(SendError::Closed(Unsent::new(value)))
}

impl<T> Clause for SendClause<'_, T> {
    fn kind(&self) -> Kind {
        match self.is_off {
            true => Kind::Off,
            false => Kind::Channel,
        }
    }

    fn attempt(self: Pin<&mut Self>, _: &mut Context<'_>) -> bool {
        let this = self.this();
        let shared = this.entrance.shared;
        let has_won = this.try_on(&mut shared.lock());
        this.entrance.after_unlock();
        has_won
    }

    fn lock_word(&self) -> Option<&SpinLock> {
        (!self.is_off).then(|| self.entrance.shared.state.lock_word())
    }

    unsafe fn attempt_locked(self: Pin<&mut Self>) -> bool {
        let this = self.this();
        // SAFETY: the lock is held by contract.
        let state = unsafe { this.entrance.state() };
        this.try_on(state)
    }

    fn after_unlock(self: Pin<&mut Self>) {
        self.this().entrance.after_unlock();
    }

    unsafe fn enter_locked(self: Pin<&mut Self>, waker: Waker, claim: &Claim, clause: u32) {
        // SAFETY: by contract, and `drop` leaves.
        unsafe { self.this().entrance.enter(waker, claim, clause) };
    }

    fn leave(self: Pin<&mut Self>) {
        self.this().entrance.leave();
    }

    fn settle(&self) {
        self.entrance.settle();
    }

    fn collect(self: Pin<&mut Self>) {
        let this = self.this();
        this.entrance.has_entered = false;
        this.output = Some(match this.entrance.slot().take() {
            None => Ok(()),
            Some(value) => closed(value),
        });
    }
}

impl<T> Drop for SendClause<'_, T> {
    fn drop(&mut self) {
        if model_has_failed() {
            return;
        }
        self.entrance.leave();
        if let Some(home) = self.home.take()
            && let Some(value) = self.entrance.slot().take()
        {
            *home = Some(value);
        }
    }
}
