//! The channel itself, as both ends hold it: the guarded state, and how many ends there are.

use std::sync::Arc;

use jobtree_base::user_code::{Place, drop_user, wake_user};

use crate::atomics::{AtomicUsize, Guarded, Held, Ordering, model_has_failed};
use crate::budget::ChannelPermit;
use crate::channel::core::{Nothing, Overflow, Refused, State};
use crate::channel::stats::ChannelStats;

/// See the module's head.
pub(crate) struct Shared<T> {
    pub(crate) state: Guarded<State<T>>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    /// How many values may lie in it; `usize::MAX` is any number.
    room: usize,
    /// Where channels are limited, the right to this one.
    _permit: ChannelPermit,
}

impl<T> Shared<T> {
    /// A channel with one end of each kind.
    pub(crate) fn new(room: usize, overflow: Overflow, permit: ChannelPermit) -> Arc<Shared<T>> {
        Arc::new(Shared {
            state: Guarded::new(State::new(room, overflow)),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            room,
            _permit: permit,
        })
    }

    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, State<T>> {
        self.state.lock()
    }

    /// Sends without waiting.
    #[inline]
    pub(crate) fn try_send(&self, value: T) -> Result<(), Refused<T>> {
        let mut state = self.lock();
        let after = state.offer(value)?;
        drop(state);
        after.happen();
        Ok(())
    }

    /// Receives without waiting.
    #[inline]
    pub(crate) fn try_recv(&self) -> Result<T, Nothing> {
        let mut state = self.lock();
        let (value, after) = state.take()?;
        drop(state);
        after.happen();
        Ok(value)
    }

    /// Takes back a value whose receiver gave up before it took it.
    pub(crate) fn give_back(&self, value: T) {
        let after = self.lock().give_back(value);
        after.happen();
    }

    /// Closes it; `false` if it was closed.
    pub(crate) fn close(&self) -> bool {
        let is_first = self.lock().close();
        loop {
            let told = self.lock().next_told();
            let is_last = told.iter().any(Option::is_none);
            told.into_iter().flatten().for_each(wake_user);
            if is_last {
                return is_first;
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn capacity(&self) -> Option<usize> {
        (self.room != usize::MAX).then_some(self.room)
    }

    pub(crate) fn stats(&self) -> ChannelStats {
        self.lock().stats()
    }

    pub(crate) fn add_sender(&self) {
        self.senders.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_receiver(&self) {
        self.receivers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drop_sender(&self) {
        if !model_has_failed() && self.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
        }
    }

    pub(crate) fn drop_receiver(&self) {
        if !model_has_failed() && self.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
            let left = self.lock().abandon();
            // Each for itself: a destructor that panics does not concern the others.
            for value in left {
                drop_user(Place::Value, value);
            }
        }
    }
}
