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

pub(crate) mod core;
mod errors;
pub(crate) mod operation;
mod receiver;
mod sender;
pub(crate) mod shared;
mod stats;

pub use errors::{
    RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError, Unsent,
};
pub use receiver::{IntoIter, Iter, Receiver, Receiving};
pub use sender::{Sender, Sending};
pub use stats::ChannelStats;

use self::core::Overflow;
use shared::Shared;

fn new<T>(room: usize, overflow: Overflow) -> (Sender<T>, Receiver<T>) {
    let shared = Shared::new(room, overflow);
    (
        Sender::new(std::sync::Arc::clone(&shared)),
        Receiver::new(shared),
    )
}

#[track_caller]
fn at_least_one(capacity: usize, maker: &str) -> usize {
    assert!(
        capacity > 0,
        "channel::{maker}(0) could hold nothing: use channel::rendezvous(), whose senders wait for a receiver"
    );
    capacity
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
pub fn rendezvous<T>() -> (Sender<T>, Receiver<T>) {
    new(0, Overflow::Wait)
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
/// If `capacity` is 0: that is [`rendezvous`].
#[track_caller]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    new(at_least_one(capacity, "bounded"), Overflow::Wait)
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
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    new(usize::MAX, Overflow::Wait)
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
pub fn conflated<T>() -> (Sender<T>, Receiver<T>) {
    new(1, Overflow::DropOldest)
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
    new(
        at_least_one(capacity, "dropping_oldest"),
        Overflow::DropOldest,
    )
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
    new(
        at_least_one(capacity, "dropping_newest"),
        Overflow::DropNewest,
    )
}
