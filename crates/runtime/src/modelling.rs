//! How the loom models of this crate are run: each must hold, and must fail without any of the steps that it names. A
//! model that passes without them looks at nothing.
//!
//! Models use the parts of channels and `select!` that know nothing of jobs and pools, with wakers made by hand.

use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::step::{Step, leave_out};

/// Models share what is left out, so they run one after the other.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Checks that `model` holds, and that it does not without each of `steps`.
pub(crate) fn check(preemptions: usize, steps: &[Step], model: fn()) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let explore = || {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 20_000;
        builder.check(model);
    };
    explore();
    for step in steps {
        leave_out(Some(*step));
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| {}));
        let result = panic::catch_unwind(AssertUnwindSafe(explore));
        panic::set_hook(hook);
        leave_out(None);
        assert!(
            result.is_err(),
            "the model does not notice that {step:?} is missing"
        );
    }
}

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
