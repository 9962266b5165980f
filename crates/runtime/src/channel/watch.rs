//! A value that changes, and those who want to know its newest state: settings, a status, a position.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jobtree_base::user_owned::UserOwned;

use crate::budget::ChannelPermit;
use crate::channel::{RecvError, permitted};
use crate::cost::charge_channel_operation;
use crate::current::checkpoint;
use crate::sync::Notify;

/// Makes a value that one end changes and the other ends watch. Receivers see the newest value, not every one.
///
/// ```
/// use jobtree_runtime::{channel, nursery};
///
/// let (settings, mut watched) = channel::watch("low");
/// let seen = nursery(|n| {
///     n.launch(move || {
///         settings.send("high");
///         settings.send("highest");
///         Ok(())
///     });
///     let mut seen = Vec::new();
///     // Until the sender is gone.
///     while let Ok(setting) = watched.changed() {
///         seen.push(*setting);
///     }
///     Ok(seen)
/// })?;
/// assert_eq!(seen.last(), Some(&"highest"));
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
///
/// # Panics
/// If the current job may not have a channel with room for one value: see [`try_new`](crate::channel::try_new).
#[track_caller]
pub fn watch<T>(value: T) -> (WatchSender<T>, WatchReceiver<T>) {
    let value = UserOwned::value(Arc::new(value));
    let permit = permitted(Some(1));
    let shared = Arc::new(Watched {
        state: Mutex::new(State {
            value,
            version: 0,
            is_closed: false,
        }),
        changed: Notify::new(),
        _permit: permit,
    });
    let receiver = WatchReceiver {
        shared: shared.clone(),
        seen: 0,
    };
    (WatchSender { shared }, receiver)
}

struct Watched<T> {
    state: Mutex<State<T>>,
    changed: Notify,
    _permit: ChannelPermit,
}

struct State<T> {
    /// The last end to go drops it, which may happen while the program unwinds.
    value: UserOwned<Arc<T>>,
    /// The number of values that were sent.
    version: u64,
    is_closed: bool,
}

impl<T> Watched<T> {
    /// Calls `body`, which calls no code of the program's, with the state.
    fn with<R>(&self, body: impl FnOnce(&mut State<T>) -> R) -> R {
        body(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The end of a [`watch`] channel that changes the value. When it is dropped, the channel is closed.
pub struct WatchSender<T> {
    shared: Arc<Watched<T>>,
}

impl<T> WatchSender<T> {
    /// Changes the value. It never waits, and does not look whether the current job is cancelled.
    pub fn send(&self, value: T) {
        let value = UserOwned::value(Arc::new(value));
        charge_channel_operation();
        let old = self.shared.with(|state| {
            state.version += 1;
            std::mem::replace(&mut state.value, value)
        });
        self.shared.changed.notify_all();
        // Without the lock: its destructor is the program's.
        drop(old);
    }

    /// Returns the value.
    pub fn get(&self) -> Arc<T> {
        charge_channel_operation();
        self.shared.with(|state| Arc::clone(&state.value))
    }

    /// Makes another receiver, which has seen the present value.
    pub fn subscribe(&self) -> WatchReceiver<T> {
        WatchReceiver {
            seen: self.shared.with(|state| state.version),
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for WatchSender<T> {
    fn drop(&mut self) {
        self.shared.with(|state| state.is_closed = true);
        self.shared.changed.notify_all();
    }
}

impl<T> fmt::Debug for WatchSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchSender").finish_non_exhaustive()
    }
}

/// An end of a [`watch`] channel that watches the value.
pub struct WatchReceiver<T> {
    shared: Arc<Watched<T>>,
    /// The version that was seen last.
    seen: u64,
}

impl<T> WatchReceiver<T> {
    /// Returns the newest value, which then counts as seen.
    ///
    /// ```
    /// let (sender, mut receiver) = jobtree_runtime::channel::watch(1);
    /// sender.send(2);
    /// assert_eq!(*receiver.get(), 2);
    /// assert!(!receiver.has_changed());
    /// ```
    pub fn get(&mut self) -> Arc<T> {
        charge_channel_operation();
        let (version, value) = self
            .shared
            .with(|state| (state.version, Arc::clone(&state.value)));
        self.seen = version;
        value
    }

    /// Returns `true` if there is a value that this receiver has not seen.
    pub fn has_changed(&self) -> bool {
        self.shared.with(|state| state.version != self.seen)
    }

    /// Returns an unseen value, or why there is none; `None` if it may come yet.
    fn unseen(&mut self) -> Option<Result<Arc<T>, RecvError>> {
        let (version, value, is_closed) = self
            .shared
            .with(|state| (state.version, Arc::clone(&state.value), state.is_closed));
        if version != self.seen {
            self.seen = version;
            return Some(Ok(value));
        }
        is_closed.then_some(Err(RecvError::Closed))
    }

    /// Waits for a value that was not seen yet, and returns the newest. The stack of a job is parked meanwhile.
    ///
    /// # Errors
    /// If the sender is gone and its last value was seen, or the current job is cancelled. A cancelled job receives nothing, even
    /// if something is there.
    pub fn changed(&mut self) -> Result<Arc<T>, RecvError> {
        charge_channel_operation();
        checkpoint().map_err(RecvError::Cancelled)?;
        loop {
            let shared = self.shared.clone();
            // Before the look, so that no change after it is missed.
            let change = shared.changed.notified();
            if let Some(result) = self.unseen() {
                return result;
            }
            change.wait().map_err(RecvError::Cancelled)?;
        }
    }

    /// Waits for a value that was not seen yet as a future does it.
    ///
    /// ```
    /// use jobtree_runtime::{block_on, channel};
    ///
    /// let (sender, mut receiver) = channel::watch(1);
    /// sender.send(2);
    /// assert_eq!(*block_on(receiver.changed_async())?.unwrap(), 2);
    /// drop(sender);
    /// assert!(block_on(receiver.changed_async())?.is_err());
    /// # Ok::<(), jobtree_runtime::Cancelled>(())
    /// ```
    ///
    /// # Errors
    /// As [`changed`](WatchReceiver::changed).
    pub async fn changed_async(&mut self) -> Result<Arc<T>, RecvError> {
        charge_channel_operation();
        checkpoint().map_err(RecvError::Cancelled)?;
        loop {
            let shared = self.shared.clone();
            let change = shared.changed.notified();
            if let Some(result) = self.unseen() {
                return result;
            }
            change.await.map_err(RecvError::Cancelled)?;
        }
    }
}

impl<T> Clone for WatchReceiver<T> {
    /// Makes a receiver that has seen what this one has.
    fn clone(&self) -> WatchReceiver<T> {
        WatchReceiver {
            shared: self.shared.clone(),
            seen: self.seen,
        }
    }
}

impl<T> fmt::Debug for WatchReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchReceiver")
            .field("has_changed", &self.has_changed())
            .finish_non_exhaustive()
    }
}
