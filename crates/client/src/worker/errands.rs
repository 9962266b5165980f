//! Threads that make blocking calls for those who must not block.
//!
//! They begin when they are needed, up to a number, and end with their owner: what is queued then is not made any more.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use jobtree_protocol::{ApiError, ErrorCode};
use jobtree_worker::Reply;
use jobtree_worker::reply::{Promised, Result, promise};

type Errand = Box<dyn FnOnce() + Send>;

pub(crate) struct Errands {
    name: &'static str,
    most: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Errand>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(errand) = state.queue.pop_front() {
                drop(state);
                errand();
                state = self.lock();
            } else if state.closed {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = self
                    .bell
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl Errands {
    pub(crate) fn new(name: &'static str, most: usize) -> Self {
        Errands {
            name,
            most,
            shared: Arc::default(),
        }
    }

    /// Makes a call, and gives what it says.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Reply<T> {
        let (answer, answered) = promise();
        let errand = move || {
            // Nobody may wait for it any more.
            let _ = answer.keep(call());
        };
        match self.send(Box::new(errand)) {
            Ok(()) => Reply::new(answered),
            Err(error) => Reply::ready(Err(error)),
        }
    }

    /// As [`ask`](Self::ask); and when whoever asked goes away before the answer is there, `leave` is called, and the
    /// answer, if one comes, goes to `untaken`. Neither may block.
    pub(crate) fn ask_unless_left<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
        leave: impl FnOnce() + Send + 'static,
        untaken: impl Fn(T) + Send + Sync + 'static,
    ) -> Reply<T> {
        let (answer, answered) = promise();
        let untaken: Arc<dyn Fn(T) + Send + Sync> = Arc::new(untaken);
        let left = Arc::clone(&untaken);
        let errand = move || {
            if let Err(Ok(value)) = answer.keep(call()) {
                left(value);
            }
        };
        let asked = Asked {
            answered,
            untaken,
            leave: Some(Box::new(leave)),
        };
        match self.send(Box::new(errand)) {
            Ok(()) => Reply::new(asked),
            Err(error) => Reply::ready(Err(error)),
        }
    }

    fn send(&self, errand: Errand) -> Result<()> {
        let mut state = self.shared.lock();
        // Those who were rung and have not woken yet count as idle still: what waits is theirs.
        let more = state.idle <= state.queue.len() && state.threads < self.most;
        state.queue.push_back(errand);
        if !more {
            drop(state);
            self.shared.bell.notify_one();
            return Ok(());
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        if let Err(error) = thread.spawn(move || shared.work()) {
            let mut state = self.shared.lock();
            state.threads -= 1;
            if state.threads == 0 {
                state.queue.pop_back();
                let message = format!("no thread for calls to the daemon: {error}");
                return Err(ApiError::new(ErrorCode::Unavailable, message));
            }
        }
        Ok(())
    }
}

/// An answer that somebody waits for; see [`Errands::ask_unless_left`].
struct Asked<T> {
    answered: Promised<T>,
    untaken: Arc<dyn Fn(T) + Send + Sync>,
    /// None once the answer is there.
    leave: Option<Box<dyn FnOnce() + Send>>,
}

impl<T> Future for Asked<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let answer = Pin::new(&mut self.answered).poll(context);
        if answer.is_ready() {
            self.leave = None;
        }
        answer
    }
}

impl<T> Drop for Asked<T> {
    fn drop(&mut self) {
        if let Some(leave) = self.leave.take() {
            if let Some(Ok(value)) = self.answered.leave() {
                (self.untaken)(value);
            }
            leave();
        }
    }
}

impl Drop for Errands {
    fn drop(&mut self) {
        let left = {
            let mut state = self.shared.lock();
            state.closed = true;
            std::mem::take(&mut state.queue)
        };
        self.shared.bell.notify_all();
        // Whoever waits for one of them is told that nobody will answer.
        drop(left);
    }
}

impl fmt::Debug for Errands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Errands")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, mpsc};

    use super::*;

    #[test]
    fn as_many_at_a_time_as_there_may_be_threads() {
        let errands = Errands::new("errands", 3);
        let together = Arc::new(Barrier::new(3));
        let replies: Vec<_> = (0..3)
            .map(|number| {
                let together = Arc::clone(&together);
                errands.ask(move || {
                    together.wait();
                    Ok(number)
                })
            })
            .collect();
        let answers: Vec<u32> = replies
            .into_iter()
            .map(|reply| reply.wait().unwrap())
            .collect();
        assert_eq!(answers, [0, 1, 2]);
        let more: Vec<_> = (0..20).map(|_| errands.ask(|| Ok(1))).collect();
        let sum: u32 = more.into_iter().map(|reply| reply.wait().unwrap()).sum();
        assert_eq!(sum, 20);
        assert!(errands.shared.lock().threads <= 3);
    }

    #[test]
    fn what_nobody_waits_for_goes_elsewhere_and_what_is_left_is_refused() {
        let errands = Errands::new("errands", 1);
        let (go, goes) = mpsc::channel::<()>();
        let (told, tells) = mpsc::channel();
        let (left, leaves) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let first = errands.ask_unless_left(
            move || {
                begun.send(()).unwrap();
                goes.recv().unwrap();
                Ok(7)
            },
            move || left.send(()).unwrap(),
            move |value| told.send(value).unwrap(),
        );
        begins.recv().unwrap();
        let queued = errands.ask(|| Ok(()));
        drop(first);
        leaves.recv().unwrap();
        drop(errands);
        assert_eq!(queued.wait().unwrap_err().code, ErrorCode::Unavailable);
        go.send(()).unwrap();
        assert_eq!(tells.recv().unwrap(), 7);
    }

    #[test]
    fn an_answer_that_was_taken_is_nobody_elses() {
        let errands = Errands::new("errands", 1);
        let (told, tells) = mpsc::channel();
        let left = told.clone();
        let reply = errands.ask_unless_left(
            || Ok(7),
            move || left.send(0).unwrap(),
            move |value| told.send(value).unwrap(),
        );
        assert_eq!(reply.wait().unwrap(), 7);
        assert!(tells.recv().is_err(), "neither was called");
    }
}
