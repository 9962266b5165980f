//! What the loom models of this crate are made of. How a model is run, and how its failures are told apart:
//! `jobtree_base::modelling`.
//!
//! Models use the parts of channels and `select!` that know nothing of jobs and pools, with wakers made by hand.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

pub(crate) use jobtree_base::modelling::{Crew, Failure, check, claim};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// Counts, and wakes the thread that waits.
pub(crate) struct Parked {
    thread: Option<thread::Thread>,
    rings: AtomicUsize,
}

impl Parked {
    /// For the calling thread, which sleeps.
    fn new() -> Arc<Parked> {
        Arc::new(Parked {
            thread: Some(thread::current()),
            rings: AtomicUsize::new(0),
        })
    }

    /// For somebody who looks by itself.
    pub(crate) fn silent() -> Arc<Parked> {
        Arc::new(Parked {
            thread: None,
            rings: AtomicUsize::new(0),
        })
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.rings.fetch_add(1, Ordering::AcqRel);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

/// Polls once.
pub(crate) fn poll_once<F: Future>(future: Pin<&mut F>, parked: &Arc<Parked>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(parked));
    future.poll(&mut Context::from_waker(&waker))
}

/// Waits for a future. With `restless` it looks once more before it sleeps, though nobody has called it.
pub(crate) fn block<F: Future>(mut future: Pin<&mut F>, restless: bool) -> F::Output {
    let parked = Parked::new();
    let mut heard = 0;
    if restless && let Poll::Ready(output) = poll_once(future.as_mut(), &parked) {
        return output;
    }
    loop {
        if let Poll::Ready(output) = poll_once(future.as_mut(), &parked) {
            return output;
        }
        while parked.rings.load(Ordering::Acquire) == heard {
            thread::park();
        }
        heard += 1;
    }
}
