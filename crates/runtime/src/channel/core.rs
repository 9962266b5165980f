//! What senders and receivers share, and every change of it.
//!
//! # Protocol
//!
//! One lock guards the queue and two lists of waiters. Values are handed over, never announced: who finds a counterpart
//! waiting puts the value into its entry, or takes it from there, and only then has it woken, outside of the lock. So one
//! value wakes one waiter, a woken waiter never finds that somebody was faster, and those who wait are served in the order
//! in which they came. Between two holds of the lock:
//!
//! * if a receiver waits, the queue is empty and no sender waits;
//! * if a sender waits, the queue has no room (a rendezvous has none at all);
//! * if the channel is closed, nobody waits.
//!
//! ("Waits" is: has an entry whose [`Claim`](crate::claim::Claim) is open. Entries of a `select!` that was won elsewhere
//! may lie about; they are passed over.)
//!
//! Somebody who was handed a value and then gives up before taking it hands it back: it goes to the next receiver that
//! waits, or to the *front* of the queue, from where it came. That may bring the queue above its capacity by the number of
//! those who gave up. A sender whose value was taken has sent, whether it still hears of it or not.
//!
//! Values and wakers leave the lock in an [`After`]: dropping a value or waking somebody runs other people's code.

use std::collections::VecDeque;
use std::task::Waker;

use jobtree_base::user_code::{Place, drop_user, wake_user};

use crate::channel::stats::ChannelStats;
use crate::step::{Step, left_out};
use crate::waiters::{WaitList, Waiter};

/// What happens to a value for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// Its sender waits.
    Wait,
    /// The oldest one in the queue goes.
    DropOldest,
    /// It goes itself.
    DropNewest,
}

/// What is guarded by the lock of a channel.
pub(crate) struct State<T> {
    queue: VecDeque<T>,
    /// How many values the queue may hold; `usize::MAX` is any number.
    room: usize,
    overflow: Overflow,
    is_closed: bool,
    /// Nobody will ever receive: what comes back is dropped.
    is_abandoned: bool,
    senders: WaitList<T>,
    receivers: WaitList<T>,
    sent: u64,
    received: u64,
    dropped: u64,
}

/// What is to be done when the lock is released.
#[must_use = "somebody must be woken"]
pub(crate) struct After<T> {
    wake: Option<Waker>,
    dropped: Option<T>,
}

impl<T> After<T> {
    pub(crate) const NOTHING: After<T> = After {
        wake: None,
        dropped: None,
    };

    fn wake(wake: Option<Waker>) -> After<T> {
        After {
            wake,
            dropped: None,
        }
    }

    /// Call it without the lock.
    #[inline]
    pub(crate) fn happen(self) {
        if let Some(waker) = self.wake {
            wake_user(waker);
        }
        drop_user(Place::Value, self.dropped);
    }
}

/// Why a value was not sent; it comes back.
pub(crate) enum Refused<T> {
    Full(T),
    Closed(T),
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {
    Empty,
    Closed,
}

/// How many are woken after one hold of the lock. In a model one, so that others come between.
const BATCH: usize = if cfg!(loom) { 1 } else { 16 };

impl<T> State<T> {
    pub(crate) fn new(room: usize, overflow: Overflow) -> State<T> {
        State {
            queue: VecDeque::new(),
            room,
            overflow,
            is_closed: false,
            is_abandoned: false,
            senders: WaitList::new(),
            receivers: WaitList::new(),
            sent: 0,
            received: 0,
            dropped: 0,
        }
    }

    /// Sends `value` if that can be done without waiting.
    #[inline]
    pub(crate) fn offer(&mut self, value: T) -> Result<After<T>, Refused<T>> {
        if self.is_closed {
            return Err(Refused::Closed(value));
        }
        if let Some(receiver) = self.receivers.claim_first() {
            let wake = receiver.give(value);
            self.sent += 1;
            self.received += 1;
            return Ok(After::wake(wake));
        }
        if self.queue.len() < self.room {
            self.queue.push_back(value);
            self.sent += 1;
            return Ok(After::NOTHING);
        }
        let dropped = match self.overflow {
            Overflow::Wait => return Err(Refused::Full(value)),
            Overflow::DropNewest => Some(value),
            Overflow::DropOldest => {
                let oldest = self.queue.pop_front();
                self.queue.push_back(value);
                oldest
            }
        };
        self.sent += 1;
        self.dropped += 1;
        Ok(After {
            wake: None,
            dropped,
        })
    }

    /// Receives a value if there is one.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<(T, After<T>), Nothing> {
        if let Some(value) = self.queue.pop_front() {
            self.received += 1;
            let mut wake = None;
            if self.queue.len() < self.room
                && let Some(sender) = self.senders.claim_first()
            {
                // Its value keeps its place behind those that are there.
                let (next, waker) = sender.take();
                self.queue.push_back(next);
                self.sent += 1;
                wake = waker;
            }
            return Ok((value, After::wake(wake)));
        }
        if let Some(sender) = self.senders.claim_first() {
            let (value, wake) = sender.take();
            self.sent += 1;
            self.received += 1;
            return Ok((value, After::wake(wake)));
        }
        Err(match self.is_closed {
            true => Nothing::Closed,
            false => Nothing::Empty,
        })
    }

    /// Takes back a value that was handed to a receiver which has given up.
    pub(crate) fn give_back(&mut self, value: T) -> After<T> {
        self.received -= 1;
        if self.is_abandoned || left_out(Step::HandedBack) {
            return After {
                wake: None,
                dropped: Some(value),
            };
        }
        if let Some(receiver) = self.receivers.claim_first() {
            self.received += 1;
            return After::wake(receiver.give(value));
        }
        self.queue.push_front(value);
        After::NOTHING
    }

    /// Nothing can be sent any more; `false` if it was so before. Those who wait are told by
    /// [`next_told`](State::next_told).
    pub(crate) fn close(&mut self) -> bool {
        !std::mem::replace(&mut self.is_closed, true)
    }

    /// Some of those who waited when the channel was closed, to be woken; after the last one, none.
    pub(crate) fn next_told(&mut self) -> [Option<Waker>; BATCH] {
        std::array::from_fn(|_| {
            if left_out(Step::CloseTells) {
                return None;
            }
            if let Some(sender) = self.senders.claim_first() {
                return sender.tell();
            }
            self.receivers.claim_first()?.tell()
        })
    }

    /// Nobody will receive any more: what is left, to be dropped without the lock.
    pub(crate) fn abandon(&mut self) -> VecDeque<T> {
        self.is_abandoned = true;
        std::mem::take(&mut self.queue)
    }

    pub(crate) fn senders(&mut self) -> &mut WaitList<T> {
        &mut self.senders
    }

    pub(crate) fn receivers(&mut self) -> &mut WaitList<T> {
        &mut self.receivers
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn stats(&self) -> ChannelStats {
        ChannelStats {
            sent: self.sent,
            received: self.received,
            dropped: self.dropped,
            senders_waiting: self.senders.len(),
            receivers_waiting: self.receivers.len(),
        }
    }
}

/// Which of the two lists a waiter enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Sending,
    Receiving,
}

impl Side {
    pub(crate) fn list<T>(self, state: &mut State<T>) -> &mut WaitList<T> {
        match self {
            Side::Sending => &mut state.senders,
            Side::Receiving => &mut state.receivers,
        }
    }
}

/// Takes a waiter out of its list, if it is still there.
///
/// # Safety
/// `waiter` is in the list of that side of this channel, or in none.
pub(crate) unsafe fn remove<T>(state: &mut State<T>, side: Side, waiter: &Waiter<T>) -> bool {
    // SAFETY: by contract.
    unsafe { side.list(state).remove(waiter) }
}
