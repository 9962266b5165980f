//! A channel whose values go to every receiver.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jobtree_base::user_owned::UserOwned;
use jobtree_tree::Cancelled;

use crate::budget::ChannelPermit;
use crate::channel::permitted;
use crate::cost::charge_channel_operation;
use crate::current::checkpoint;
use crate::sync::Notify;

/// Makes a channel of which every receiver gets every value that is sent while it exists. Senders never wait: `capacity` values are
/// kept for receivers that are behind, and one that is further behind misses the oldest, and is told how many.
///
/// ```
/// use jobtree_runtime::{channel, nursery};
///
/// let (news, first) = channel::broadcast(16);
/// let second = news.subscribe();
/// let heard = nursery(|n| {
///     let listeners: Vec<_> = [first, second]
///         .into_iter()
///         .map(|mut listener| {
///             n.spawn(move || {
///                 let mut heard = Vec::new();
///                 while let Ok(text) = listener.recv() {
///                     heard.push(*text);
///                 }
///                 Ok(heard)
///             })
///         })
///         .collect();
///     news.send("rain");
///     news.send("sun");
///     drop(news);
///     let mut heard = Vec::new();
///     for listener in listeners {
///         heard.push(listener.join()?);
///     }
///     Ok(heard)
/// })?;
/// assert_eq!(heard, [["rain", "sun"], ["rain", "sun"]]);
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
///
/// # Panics
/// If `capacity` is zero. If the current job may not have it: see [`try_new`](crate::channel::try_new).
#[track_caller]
pub fn broadcast<T>(capacity: usize) -> (BroadcastSender<T>, BroadcastReceiver<T>) {
    assert!(capacity > 0, "a broadcast channel keeps at least one value");
    let permit = permitted(Some(capacity));
    let shared = Arc::new(Broadcast {
        capacity,
        _permit: permit,
        state: Mutex::new(State {
            kept: VecDeque::new(),
            first: 0,
            senders: 1,
            receivers: 0,
        }),
        sent: Notify::new(),
    });
    let sender = BroadcastSender { shared };
    let receiver = sender.subscribe();
    (sender, receiver)
}

struct Broadcast<T> {
    capacity: usize,
    _permit: ChannelPermit,
    state: Mutex<State<T>>,
    sent: Notify,
}

/// A value that was sent. It may be dropped where the program unwinds, or by a receiver that goes: whoever sent it knows nothing of that.
type Sent<T> = UserOwned<Arc<T>>;

struct State<T> {
    /// The newest values, oldest first.
    kept: VecDeque<Sent<T>>,
    /// The number of values that were sent before the oldest one that is kept.
    first: u64,
    senders: usize,
    receivers: usize,
}

impl<T> Broadcast<T> {
    /// Calls `body`, which calls no code of the program's, with the state.
    fn with<R>(&self, body: impl FnOnce(&mut State<T>) -> R) -> R {
        body(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An end of a [`broadcast`] channel that sends. When the last one is dropped, the channel is closed.
pub struct BroadcastSender<T> {
    shared: Arc<Broadcast<T>>,
}

impl<T> BroadcastSender<T> {
    /// Sends `value` to all receivers, and returns how many there are. It never waits, and does not look whether the current job is
    /// cancelled. Without receivers the value is dropped.
    pub fn send(&self, value: T) -> usize {
        let value = UserOwned::value(Arc::new(value));
        charge_channel_operation();
        let (receivers, dropped) = self.shared.with(|state| {
            if state.receivers == 0 {
                return (0, Some(value));
            }
            let is_full = state.kept.len() == self.shared.capacity;
            let oldest = if is_full {
                state.kept.pop_front()
            } else {
                None
            };
            state.first += u64::from(is_full);
            state.kept.push_back(value);
            (state.receivers, oldest)
        });
        self.shared.sent.notify_all();
        // Without the lock: its destructor is the program's.
        drop(dropped);
        receivers
    }

    /// Makes another receiver, which gets what is sent from now on.
    pub fn subscribe(&self) -> BroadcastReceiver<T> {
        let next = self.shared.with(|state| {
            state.receivers += 1;
            state.first + state.kept.len() as u64
        });
        BroadcastReceiver {
            shared: self.shared.clone(),
            next,
        }
    }
}

impl<T> Clone for BroadcastSender<T> {
    fn clone(&self) -> BroadcastSender<T> {
        self.shared.with(|state| state.senders += 1);
        BroadcastSender {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for BroadcastSender<T> {
    fn drop(&mut self) {
        self.shared.with(|state| state.senders -= 1);
        self.shared.sent.notify_all();
    }
}

impl<T> fmt::Debug for BroadcastSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastSender").finish_non_exhaustive()
    }
}

/// An end of a [`broadcast`] channel that receives every value.
pub struct BroadcastReceiver<T> {
    shared: Arc<Broadcast<T>>,
    /// The number of the value that is received next.
    next: u64,
}

/// The reason why [`BroadcastReceiver::recv`] received nothing.
#[derive(Clone, Debug)]
pub enum BroadcastRecvError {
    /// The receiver was so far behind that this many values are gone. The next receive goes on with the oldest one that is left.
    Lagged(u64),
    /// All senders are gone, and everything that was kept was received.
    Closed,
    /// The current job was cancelled.
    Cancelled(Cancelled),
}

impl<T> BroadcastReceiver<T> {
    /// Returns the next value if it is there; `None` if it may come yet. It does not look whether the current job is cancelled.
    ///
    /// ```
    /// use jobtree_runtime::channel::{self, BroadcastRecvError};
    ///
    /// let (sender, mut receiver) = channel::broadcast(2);
    /// assert!(receiver.try_recv().is_none());
    /// for number in 1..=3 {
    ///     sender.send(number);
    /// }
    /// assert!(matches!(receiver.try_recv(), Some(Err(BroadcastRecvError::Lagged(1)))));
    /// assert_eq!(*receiver.try_recv().unwrap()?, 2);
    /// # Ok::<(), BroadcastRecvError>(())
    /// ```
    pub fn try_recv(&mut self) -> Option<Result<Arc<T>, BroadcastRecvError>> {
        charge_channel_operation();
        self.take_next()
    }

    /// Does what `try_recv` does, without the charge.
    fn take_next(&mut self) -> Option<Result<Arc<T>, BroadcastRecvError>> {
        let next = self.next;
        let result = self.shared.with(|state| {
            if next < state.first {
                return Some(Err(BroadcastRecvError::Lagged(state.first - next)));
            }
            let place = usize::try_from(next - state.first).unwrap_or(usize::MAX);
            match state.kept.get(place) {
                Some(value) => Some(Ok(Arc::clone(value))),
                None => (state.senders == 0).then_some(Err(BroadcastRecvError::Closed)),
            }
        });
        match &result {
            Some(Ok(_)) => self.next += 1,
            Some(Err(BroadcastRecvError::Lagged(missed))) => self.next += missed,
            _ => {}
        }
        result
    }

    /// Waits for the next value. The stack of a job is parked meanwhile.
    ///
    /// # Errors
    /// If values were missed, all senders are gone, or the current job is cancelled. A cancelled job receives nothing, even if
    /// something is there.
    pub fn recv(&mut self) -> Result<Arc<T>, BroadcastRecvError> {
        charge_channel_operation();
        checkpoint().map_err(BroadcastRecvError::Cancelled)?;
        loop {
            let shared = self.shared.clone();
            // Before the look, so that no value after it is missed.
            let more = shared.sent.notified();
            if let Some(result) = self.take_next() {
                return result;
            }
            more.wait().map_err(BroadcastRecvError::Cancelled)?;
        }
    }

    /// Waits for the next value as a future does it.
    ///
    /// # Errors
    /// As [`recv`](BroadcastReceiver::recv).
    pub async fn recv_async(&mut self) -> Result<Arc<T>, BroadcastRecvError> {
        charge_channel_operation();
        checkpoint().map_err(BroadcastRecvError::Cancelled)?;
        loop {
            let shared = self.shared.clone();
            let more = shared.sent.notified();
            if let Some(result) = self.take_next() {
                return result;
            }
            more.await.map_err(BroadcastRecvError::Cancelled)?;
        }
    }
}

impl<T> Drop for BroadcastReceiver<T> {
    fn drop(&mut self) {
        let unwanted = self.shared.with(|state| {
            state.receivers -= 1;
            match state.receivers {
                0 => {
                    state.first += state.kept.len() as u64;
                    std::mem::take(&mut state.kept)
                }
                _ => VecDeque::new(),
            }
        });
        // Without the lock: their destructors are the program's.
        drop(unwanted);
    }
}

impl<T> fmt::Debug for BroadcastReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastReceiver").finish_non_exhaustive()
    }
}

impl fmt::Display for BroadcastRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BroadcastRecvError::Lagged(missed) => write!(
                f,
                "{missed} values were dropped before they were received; receive sooner, or give the channel more room"
            ),
            BroadcastRecvError::Closed => {
                f.write_str("all senders are gone and everything was received; stop receiving")
            }
            BroadcastRecvError::Cancelled(cancelled) => cancelled.fmt(f),
        }
    }
}

impl Error for BroadcastRecvError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BroadcastRecvError::Cancelled(cancelled) => Some(cancelled),
            _ => None,
        }
    }
}
