//! The requests that wait for their answers.
//!
//! # Protocol
//!
//! Each is a call with a number of its own, by which its answer is known; an answer to an earlier call with the same id is
//! one that nobody waits for.
//!
//! An entry is made when a request is handed to the transport, and goes when its [`Pending`] is dropped: so an id is refused
//! exactly while somebody waits for its answer. Before a request is handed to a connection, it is marked with the number of
//! that connection; when a connection ends, all that are marked with its number fail. What was not handed over is unmarked
//! again, and may go to the next connection. Nothing else ever sends a request a second time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use jobtree_base::user_code::{Place, drop_user, wake_user};

use super::{RemoteError, RemoteResponse};

type Answered = Result<RemoteResponse, RemoteError>;

/// See the module's head.
#[derive(Default)]
pub(super) struct PendingTable {
    state: Mutex<State>,
    calls: AtomicU64,
    ignored: AtomicU64,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<u64, Entry>,
    is_closed: bool,
}

struct Entry {
    call: u64,
    /// For whom the answer must be.
    sender: String,
    /// The connection that has it.
    sent_on: Option<u64>,
    answer: Option<Answered>,
    waker: Option<Waker>,
}

/// One that waits for its answer.
pub(super) struct Pending {
    table: Arc<PendingTable>,
    id: u64,
    call: u64,
}

impl PendingTable {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an entry for a request of `sender`.
    pub(super) fn enter(self: &Arc<Self>, id: u64, sender: &str) -> Result<Pending, RemoteError> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(RemoteError::Cancelled);
        }
        match state.entries.entry(id) {
            MapEntry::Occupied(_) => Err(RemoteError::DuplicateId(id)),
            MapEntry::Vacant(vacant) => {
                let call = self.calls.fetch_add(1, Ordering::Relaxed);
                vacant.insert(Entry {
                    call,
                    sender: sender.to_owned(),
                    sent_on: None,
                    answer: None,
                    waker: None,
                });
                Ok(Pending {
                    table: Arc::clone(self),
                    id,
                    call,
                })
            }
        }
    }

    /// An answer has come; one that nobody waits for, or that is for somebody else, is ignored.
    pub(super) fn answer(&self, call: u64, response: RemoteResponse) {
        let mut state = self.lock();
        let waker = match state.entries.get_mut(&response.id) {
            Some(entry)
                if entry.call == call
                    && entry.sender == response.target
                    && entry.sent_on.is_some()
                    && entry.answer.is_none() =>
            {
                entry.answer = Some(Ok(response));
                entry.waker.take()
            }
            _ => {
                self.ignored.fetch_add(1, Ordering::Relaxed);
                None
            }
        };
        drop(state);
        if let Some(waker) = waker {
            wake_user(waker);
        }
    }

    /// A connection has ended: what it had has no answer.
    pub(super) fn fail_sent_on(&self, connection: u64, error: &RemoteError) {
        self.fail(error, |entry| entry.sent_on == Some(connection));
    }

    /// Nothing is waited for any more, and nothing new is taken.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.fail(&RemoteError::Cancelled, |_| true);
    }

    fn fail(&self, error: &RemoteError, which: impl Fn(&Entry) -> bool) {
        let mut wakers = Vec::new();
        for entry in self.lock().entries.values_mut() {
            if entry.answer.is_none() && which(entry) {
                entry.answer = Some(Err(error.clone()));
                wakers.extend(entry.waker.take());
            }
        }
        wakers.into_iter().for_each(wake_user);
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// How many answers were ignored.
    pub(super) fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }
}

impl Pending {
    /// The number of the call.
    pub(super) fn call(&self) -> u64 {
        self.call
    }

    /// It is about to be handed to this connection.
    pub(super) fn mark_sent(&self, connection: u64) {
        if let Some(entry) = self.table.lock().entries.get_mut(&self.id) {
            entry.sent_on = Some(connection);
        }
    }

    /// It was not handed over after all. `false` if the transport is closed.
    pub(super) fn unmark(&self) -> bool {
        let mut state = self.table.lock();
        let is_open = !state.is_closed;
        if is_open && let Some(entry) = state.entries.get_mut(&self.id) {
            entry.sent_on = None;
            entry.answer = None;
        }
        is_open
    }

    /// Waits for the answer.
    pub(super) async fn answer(&self) -> Answered {
        poll_fn(|context| {
            // Cloned, and the one before dropped, without the lock: a waker may be the program's.
            let mut waker = Some(context.waker().clone());
            let mut state = self.table.lock();
            let Some(entry) = state.entries.get_mut(&self.id) else {
                return Poll::Ready(Err(RemoteError::Cancelled));
            };
            match entry.answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => {
                    std::mem::swap(&mut entry.waker, &mut waker);
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let entry = self.table.lock().entries.remove(&self.id);
        // Not under the lock: it may have a waker, which is others' code.
        drop_user(Place::Waker, entry);
    }
}
