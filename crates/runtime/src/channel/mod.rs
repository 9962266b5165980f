//! Channels: values go from any number of senders to any number of receivers, each value to one of them.
//!
//! What happens when a channel is full is chosen when it is made:
//!
//! | made by | holds | a sender that finds no room |
//! | --- | --- | --- |
//! | [`rendezvous`] | nothing | waits until somebody receives the value |
//! | [`bounded`] | `n` values | waits |
//! | [`unbounded`] | any number | there is always room |
//! | [`conflated`] | the newest value | replaces the one that is there |
//! | [`dropping_oldest`] | the newest `n` values | drops the oldest one |
//! | [`dropping_newest`] | the first `n` values | drops what it sends |
//!
//! [`oneshot()`] has room for one value, and ends that are used up with it: for an answer. Of a [`broadcast()`] channel every receiver
//! gets every value, and a [`watch()`] channel shows the newest state of one. [`recv_any`] receives from whichever of several
//! channels has something.
//!
//! Both ends work everywhere: in a job, whose stack is parked while it waits; on any other thread, which sleeps; and in
//! futures on any executor, by the `_async` forms. Waiting in a job, in either form, ends when the job is cancelled. A value
//! is never lost by that: a sender gets it back, and what was meant for a receiver goes to the next one.
//!
//! A channel is closed by [`Sender::close`] or [`Receiver::close`], or when all ends of one kind are gone. Then sending
//! fails at once, and receivers get what is left; unless it was the receivers that went, who leave it to be dropped.
//!
//! ```
//! use jobtree_runtime::{channel, nursery};
//!
//! let (sender, receiver) = channel::bounded(16);
//! let sum = nursery(|n| {
//!     for part in 0..4_u64 {
//!         let sender = sender.clone();
//!         n.launch(move || {
//!             for number in 0..100 {
//!                 sender.send(part * 100 + number)?;
//!             }
//!             Ok(())
//!         });
//!     }
//!     drop(sender);
//!     Ok(receiver.iter().sum::<u64>())
//! })?;
//! assert_eq!(sum, 399 * 400 / 2);
//! # Ok::<(), jobtree_runtime::JobError>(())
//! ```

mod any;
mod broadcast;
pub(crate) mod core;
mod errors;
#[cfg(all(test, loom))]
mod models;
mod oneshot;
pub(crate) mod operation;
mod receiver;
mod sender;
pub(crate) mod shared;
mod stats;
#[cfg(feature = "stream")]
mod stream;
mod watch;

pub use any::{recv_any, recv_any_async};
pub use broadcast::{BroadcastReceiver, BroadcastRecvError, BroadcastSender, broadcast};
pub use errors::{
    RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError, Unsent,
};
pub use oneshot::{OneshotReceiver, OneshotSender, oneshot};
pub use receiver::{IntoIter, Iter, Receiver, Receiving};
pub use sender::{Sender, Sending};
pub use stats::ChannelStats;
#[cfg(feature = "stream")]
pub use stream::ReceiverStream;
pub use watch::{WatchReceiver, WatchSender, watch};

use self::core::Overflow;
use crate::budget::{ChannelPermit, ChannelRefused, may_create_channel};
use shared::Shared;

/// What a channel holds, and what becomes of a value for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// [`rendezvous`].
    Rendezvous,
    /// [`bounded`].
    Bounded(usize),
    /// [`unbounded`].
    Unbounded,
    /// [`conflated`].
    Conflated,
    /// [`dropping_oldest`].
    DroppingOldest(usize),
    /// [`dropping_newest`].
    DroppingNewest(usize),
}

impl Kind {
    fn room(self) -> (usize, Overflow) {
        match self {
            Kind::Rendezvous => (0, Overflow::Wait),
            Kind::Bounded(capacity) => (capacity, Overflow::Wait),
            Kind::Unbounded => (usize::MAX, Overflow::Wait),
            Kind::Conflated => (1, Overflow::DropOldest),
            Kind::DroppingOldest(capacity) => (capacity, Overflow::DropOldest),
            Kind::DroppingNewest(capacity) => (capacity, Overflow::DropNewest),
        }
    }

    /// Returns the number of values that it holds at most; `None` if there is no bound.
    ///
    /// # Panics
    /// If a capacity of 0 was asked for.
    #[track_caller]
    fn limited_room(self) -> Option<usize> {
        let (room, _) = self.room();
        assert!(
            room > 0 || self == Kind::Rendezvous,
            "a channel {self:?} could hold nothing: use channel::rendezvous(), whose senders wait for a receiver"
        );
        (room != usize::MAX).then_some(room)
    }
}

/// A channel of any kind, unless the current job may not have it.
///
/// ```
/// use jobtree_runtime::budget::ChannelRefused;
/// use jobtree_runtime::channel::{self, Kind};
/// use jobtree_runtime::{Profile, Runtime};
///
/// let runtime = Runtime::builder().workers(1).profile(Profile::Service).build()?;
/// runtime.nursery(|_| {
///     let refused = channel::try_new::<u8>(Kind::Unbounded).unwrap_err();
///     assert!(matches!(refused, ChannelRefused::BufferTooLarge { limit: 10_000, .. }));
///     let (sender, receiver) = channel::try_new(Kind::Bounded(1))?;
///     sender.send(1)?;
///     assert_eq!(receiver.recv()?, 1);
///     Ok(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If its [`CapChannel`](crate::budget::CapChannel) is missing or does not allow it.
///
/// # Panics
/// If a capacity of 0 was asked for: that is [`Kind::Rendezvous`].
#[track_caller]
pub fn try_new<T>(kind: Kind) -> Result<(Sender<T>, Receiver<T>), ChannelRefused> {
    let permit = may_create_channel(kind.limited_room())?;
    Ok(ends(kind, permit))
}

fn ends<T>(kind: Kind, permit: ChannelPermit) -> (Sender<T>, Receiver<T>) {
    let (room, overflow) = kind.room();
    let shared = Shared::new(room, overflow, permit);
    let sender = Sender::new(std::sync::Arc::clone(&shared));
    (sender, Receiver::new(shared))
}

/// A channel of any kind. A destructor that runs because of a panic gets one that counts for no job where its own may not
/// have it: a second panic would end the process.
///
/// # Panics
/// If the current job may not have it.
#[track_caller]
pub(crate) fn new<T>(kind: Kind) -> (Sender<T>, Receiver<T>) {
    let permit = permitted(kind.limited_room());
    ends(kind, permit)
}

/// The permit for a channel with room for `room` values, as [`new`] gets it.
///
/// # Panics
/// If the current job may not have it.
#[track_caller]
fn permitted(room: Option<usize>) -> ChannelPermit {
    match may_create_channel(room) {
        Ok(permit) => permit,
        Err(_) if jobtree_pool::raw::is_unwinding() => ChannelPermit::unlimited(),
        Err(refused) => panic!(
            "{refused}; channel::try_new and budget::may_create_channel return this as an error"
        ),
    }
}

/// A channel that is not the current job's, and counts for none.
pub(crate) fn uncounted<T>(kind: Kind) -> (Sender<T>, Receiver<T>) {
    ends(kind, ChannelPermit::unlimited())
}

/// A channel that holds nothing: a send ends when its value was received.
///
/// ```
/// use jobtree_runtime::channel;
///
/// let (sender, receiver) = channel::rendezvous();
/// assert!(sender.try_send(1).unwrap_err().is_full(), "nobody waits for it");
/// std::thread::scope(|s| {
///     s.spawn(|| sender.send(2).unwrap());
///     assert_eq!(receiver.recv().unwrap(), 2);
/// });
/// ```
#[track_caller]
pub fn rendezvous<T>() -> (Sender<T>, Receiver<T>) {
    new(Kind::Rendezvous)
}

/// A channel that holds up to `capacity` values; a sender waits for room.
///
/// ```
/// let (sender, receiver) = jobtree_runtime::channel::bounded(2);
/// sender.send(1).unwrap();
/// sender.send(2).unwrap();
/// assert!(sender.try_send(3).is_err());
/// assert_eq!((receiver.recv().unwrap(), receiver.recv().unwrap()), (1, 2));
/// ```
///
/// # Panics
/// If `capacity` is 0: that is [`rendezvous`]. If the current job may not have it: see [`try_new`].
#[track_caller]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    new(Kind::Bounded(capacity))
}

/// A channel without a bound: sending never waits. What nobody receives stays in memory.
///
/// ```
/// let (sender, receiver) = jobtree_runtime::channel::unbounded();
/// for number in 0..1000 {
///     sender.send(number).unwrap();
/// }
/// assert_eq!(receiver.len(), 1000);
/// assert_eq!(receiver.capacity(), None);
/// ```
#[track_caller]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    new(Kind::Unbounded)
}

/// A channel that holds only the newest value, as one wants it of a state that is shown. Sending never waits.
///
/// ```
/// let (sender, receiver) = jobtree_runtime::channel::conflated();
/// sender.send("10 %").unwrap();
/// sender.send("20 %").unwrap();
/// assert_eq!(receiver.recv().unwrap(), "20 %");
/// assert!(receiver.try_recv().is_err());
/// ```
#[track_caller]
pub fn conflated<T>() -> (Sender<T>, Receiver<T>) {
    new(Kind::Conflated)
}

/// A channel that holds the newest `capacity` values: without room, sending drops the oldest one. It never waits.
///
/// ```
/// let (sender, receiver) = jobtree_runtime::channel::dropping_oldest(2);
/// for number in 1..=5 {
///     sender.send(number).unwrap();
/// }
/// drop(sender);
/// assert_eq!(receiver.stats().dropped, 3);
/// assert_eq!(receiver.iter().collect::<Vec<_>>(), [4, 5]);
/// ```
///
/// # Panics
/// If `capacity` is 0.
#[track_caller]
pub fn dropping_oldest<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    new(Kind::DroppingOldest(capacity))
}

/// A channel that holds the first `capacity` values: without room, sending drops the new one, and counts it as sent and
/// dropped. It never waits.
///
/// ```
/// let (sender, receiver) = jobtree_runtime::channel::dropping_newest(2);
/// for number in 1..=5 {
///     sender.send(number).unwrap();
/// }
/// drop(sender);
/// assert_eq!(receiver.stats().dropped, 3);
/// assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2]);
/// ```
///
/// # Panics
/// If `capacity` is 0.
#[track_caller]
pub fn dropping_newest<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    new(Kind::DroppingNewest(capacity))
}
