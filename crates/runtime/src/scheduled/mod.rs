//! Jobs whose turns you schedule yourself: for layers that have queues of their own.
//!
//! A job that is spawned goes to the pool, which runs it when a worker has time. A layer that knows better which job is
//! next, or on which thread it has to run, [prepares](prepare()) its jobs instead. Such a job is a future in the tree like
//! any other: it has a parent, is cancelled with it, and its value is had through a [`JobHandle`]. But whenever a poll of
//! it is due, the layer is given a [`Turn`] ([`Schedule::due`]), to be put wherever it likes, and [run](Turn::run)
//! on any thread, be it a worker or not.
//!
//! Job, future, value and what the layer itself wants to remember of the job ([`Header`]) are one allocation.
//!
//! ```
//! use std::sync::Mutex;
//! use jobtree_runtime::scheduled::{Description, Ran, Schedule, Turn, prepare};
//! use jobtree_runtime::{Runtime, binding};
//!
//! static QUEUE: Mutex<Vec<Turn<Urgency>>> = Mutex::new(Vec::new());
//!
//! struct Urgency(u32);
//!
//! impl Schedule for Urgency {
//!     fn due(turn: Turn<Urgency>) {
//!         QUEUE.lock().unwrap().push(turn);
//!     }
//! }
//!
//! let root = binding::root_nursery(Runtime::global());
//! let handles = [1, 3, 2].map(|urgency| {
//!     let job = async move { Ok(urgency * 10) };
//!     let prepared = prepare(&root, Description::default(), Urgency(urgency), |_| job);
//!     Urgency::due(prepared.turn.expect("the runtime was not shut down"));
//!     prepared.handle
//! });
//! // The most urgent one first, on this very thread.
//! QUEUE.lock().unwrap().sort_by_key(|turn| turn.0);
//! while let Some(turn) = QUEUE.lock().unwrap().pop() {
//!     if let Ran::Again(turn) = turn.run() {
//!         Urgency::due(turn);
//!     }
//! }
//! assert_eq!(handles.map(|handle| handle.join().unwrap()), [10, 30, 20]);
//! ```
//!
//! [`Tickets`] bring such a layer to the workers: each is one visit of a worker. [`with_park_hook`] tells it that one of
//! its jobs waits in the midst of a poll.
//!
//! # Who keeps what
//!
//! A job that waits keeps the runtime's threads, as every future of the runtime does. One whose turn lies in a queue does
//! not: whoever has the queue sees to it that somebody comes to run it.

mod end;
mod task;
#[cfg(all(test, not(loom)))]
mod tests;
mod ticket;

#[doc(hidden)]
pub use jobtree_tree::raw::is_part_of_end;

use std::borrow::Cow;
use std::future::ready;

use jobtree_tree::{BoxError, JobOptions};

use crate::budget::Executor;
use crate::future::Nursery;
use crate::handle::JobHandle;

pub use jobtree_pool::raw::{ParkHook, with_park_hook};
pub use task::{Header, Ran, Turn};
pub use ticket::{Ticket, Tickets};

/// What a layer remembers of a job, and how it is told that a poll of it is due; see the [module](self).
///
/// None of the functions may wait or unwind; all are called on any thread.
pub trait Schedule: Send + Sync + Sized + 'static {
    /// A poll is due: the job was woken, or cancelled while it waited. For a job that wakes itself while it is polled see
    /// [`Ran::Again`].
    fn due(turn: Turn<Self>);

    /// The job is about to end, and nobody has seen it yet; `completed` if it ends with a value. Only if jobs below it
    /// outlast its future, this is called when they have ended, and others may have seen that first.
    fn ending(&self, completed: bool) {
        let _ = completed;
    }

    /// The job has ended. Called once.
    fn ended(header: &Header<Self>) {
        let _ = header;
    }
}

/// What is said about a job.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// What reports and dumps call it.
    pub label: Option<Cow<'static, str>>,
    /// Whether whoever prepares it waits for it and sees its error, so that its scope is not told of a failure.
    pub contained: bool,
}

/// A job that was made, and what is needed to run it.
pub struct Prepared<S: Schedule, T> {
    /// Its first turn; `None` if the job was born cancelled, and so has ended.
    pub turn: Option<Turn<S>>,
    /// What the layer remembers of it.
    pub header: Header<S>,
    /// The right to its value.
    pub handle: JobHandle<T>,
}

impl<S: Schedule, T> std::fmt::Debug for Prepared<S, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("job", self.handle.job())
            .field("is_due", &self.turn.is_some())
            .finish()
    }
}

/// Makes a job in `nursery` whose body is the future that `make` returns. Nobody polls it before the turn is run.
///
/// In a scope that is cancelled or has ended, the job is born cancelled, and `make` is dropped. If the profile of the
/// runtime does not allow it, the job fails with the [`Refusal`](crate::budget::Refusal).
pub fn prepare<S, F, T>(
    nursery: &Nursery,
    description: Description,
    header: S,
    make: impl FnOnce(&Header<S>) -> F,
) -> Prepared<S, T>
where
    S: Schedule,
    F: Future<Output = Result<T, BoxError>> + Send + 'static,
    T: Send + 'static,
{
    let mut options = JobOptions::new();
    if let Some(label) = description.label {
        options = options.label(label);
    }
    if description.contained {
        options = options.contained();
    }
    match nursery.admit(Executor::Cooperative) {
        Ok(None) => task::attach(nursery, options, header, make),
        Ok(Some(lease)) => task::attach(nursery, lease.install(options), header, |header| {
            lease.around_future(make(header))
        }),
        // As a job that fails, so that nobody misses it.
        Err(refusal) => task::attach(nursery, options, header, |_| ready(Err(refusal.into()))),
    }
}
