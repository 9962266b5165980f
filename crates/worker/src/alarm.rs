//! What the heartbeats sleep on between two rounds: until there is something to send, or a time is over.
//!
//! Their OS thread sleeps on a condition variable: it depends on no other thread to keep the time. In a simulation, whose
//! jobs share one thread, they wait by the runtime's clock.

use std::future::poll_fn;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jobtree_base::user_code::wake_user;
use jobtree_runtime::{Clock, sim};

#[derive(Default)]
pub(crate) struct Alarm {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Default)]
struct State {
    is_rung: bool,
    /// Of the job that waits in a simulation.
    waiting: Option<Waker>,
}

impl Alarm {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the wait that is on, or the next.
    pub(crate) fn ring(&self) {
        let waiting = {
            let mut state = self.lock();
            state.is_rung = true;
            state.waiting.take()
        };
        self.rung.notify_all();
        if let Some(waiting) = waiting {
            wake_user(waiting);
        }
    }

    /// What was rung for is looked at now.
    pub(crate) fn silence(&self) {
        self.lock().is_rung = false;
    }

    /// Waits until it is rung, at most for `limit` and even if the current job is cancelled.
    pub(crate) fn wait(&self, limit: Duration, clock: &Clock) {
        if sim::elapsed().is_some() {
            clock.wait_regardless(limit, poll_fn(|context| self.poll(context)));
            return;
        }
        let state = self.lock();
        if !state.is_rung {
            drop(self.rung.wait_timeout(state, limit));
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        // Cloning and dropping a waker runs its owner's code: not under the lock.
        let waker = context.waker().clone();
        let before = {
            let mut state = self.lock();
            if state.is_rung {
                return Poll::Ready(());
            }
            state.waiting.replace(waker)
        };
        drop(before);
        Poll::Pending
    }
}
