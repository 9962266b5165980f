//! Heartbeats, from a thread of their own: a handler that computes for an hour keeps no lease from being renewed.
//!
//! The thread never waits for an answer: it sends what is due, looks at what was answered, stops jobs whose fence has
//! come, and sleeps until the next of these or until the bell is rung. It looks at its clock at least each second, since
//! a machine that slept wakes to timers that know nothing of it.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use jobtree_protocol::{ErrorCode, HeartbeatAnswer, LeaseId};

use super::grantor::Grantor;
use super::held::Held;
use crate::reply::Reply;

const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The leases that are to be renewed.
#[derive(Default)]
pub(super) struct Board {
    state: Mutex<BoardState>,
    bell: Condvar,
}

#[derive(Default)]
struct BoardState {
    leases: HashMap<LeaseId, Arc<Held>>,
    closed: bool,
    rung: bool,
}

struct Sent {
    held: Arc<Held>,
    at: Duration,
    reply: Reply<HeartbeatAnswer>,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ring(&self) {
        self.lock().rung = true;
        self.bell.notify_all();
    }

    /// A lease to renew. The thread is not woken for one that it will see early enough: there may be thousands a second,
    /// and most end before they are renewed.
    pub(super) fn add(&self, held: &Arc<Held>, now: Duration) {
        self.lock().leases.insert(held.lease, Arc::clone(held));
        if held.next().is_some_and(|next| next < now + LONGEST_SLEEP) {
            self.ring();
        }
    }

    pub(super) fn remove(&self, lease: LeaseId) {
        self.lock().leases.remove(&lease);
    }

    pub(super) fn poke(&self, lease: LeaseId) {
        let held = self.lock().leases.get(&lease).cloned();
        if let Some(held) = held {
            held.hurry();
        }
        self.ring();
    }

    /// No lease comes any more: the thread ends with the last.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.ring();
    }

    /// Renews, until the board is closed and empty.
    pub(super) fn keep(self: &Arc<Self>, grantor: &dyn Grantor) {
        let waker = Waker::from(Arc::new(Rung(Arc::clone(self))));
        let mut sent: Vec<Sent> = Vec::new();
        loop {
            let (leases, closed) = {
                let mut state = self.lock();
                state.rung = false;
                let leases: Vec<_> = state.leases.values().cloned().collect();
                (leases, state.closed)
            };
            if closed && leases.is_empty() {
                return;
            }
            for held in &leases {
                let at = grantor.mono();
                held.watch(at);
                if let Some(heartbeat) = held.due(at) {
                    let held = Arc::clone(held);
                    let reply = grantor.heartbeat(heartbeat);
                    sent.push(Sent { held, at, reply });
                }
            }
            sent.retain_mut(|sent| sent.is_pending(&waker, grantor));
            let next = leases.iter().filter_map(|held| held.next()).min();
            let sleep = next.map_or(LONGEST_SLEEP, |next| {
                next.saturating_sub(grantor.mono()).min(LONGEST_SLEEP)
            });
            let state = self.lock();
            if !state.rung && !sleep.is_zero() {
                drop(self.bell.wait_timeout(state, sleep));
            }
        }
    }
}

impl Sent {
    fn is_pending(&mut self, waker: &Waker, grantor: &dyn Grantor) -> bool {
        let answer = Pin::new(&mut self.reply).poll(&mut Context::from_waker(waker));
        match answer {
            Poll::Pending => return true,
            Poll::Ready(Ok(answer)) => self.held.renewed(self.at, &answer),
            Poll::Ready(Err(error)) => match error.code {
                ErrorCode::LeaseLost | ErrorCode::NotFound | ErrorCode::WrongState => {
                    self.held.lose(&error.message);
                }
                _ => self.held.unanswered(grantor.mono()),
            },
        }
        false
    }
}

struct Rung(Arc<Board>);

impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }
}
