//! What the tests of the runtime share: runtimes, waiting for something to become true, and values that count.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use jobtree_pool::{Yield, yield_now};
use jobtree_runtime::{BoxError, Job, Runtime, sleep};

/// A moment that does not come while a test runs.
pub const FAR: Duration = Duration::from_secs(3600);

/// Ends the process if a test does not end. Only a hang comes that far, so it may be generous.
pub struct Watchdog {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Watches the calling test, which the thread is named after.
pub fn watch() -> Watchdog {
    let (ended, watched) = channel();
    let test = std::thread::current().name().unwrap_or("main").to_owned();
    let watch = move || {
        if watched.recv_timeout(Duration::from_secs(120)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{test} does not end");
            std::process::abort();
        }
    };
    Watchdog {
        ended: Some(ended),
        thread: Some(std::thread::spawn(watch)),
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a watchdog does not panic");
        }
    }
}

/// A runtime of the test's own.
pub fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

/// Ends a runtime on which nothing may be left that does not end by itself.
pub fn end(runtime: &Runtime) {
    runtime.shutdown(Duration::from_secs(60)).unwrap();
}

/// How often to do what shows a race only now and then.
pub fn rounds(count: usize) -> usize {
    let factor = std::env::var("JOBTREE_STRESS").map_or(1, |factor| factor.parse().unwrap());
    count * factor
}

/// Returns when `condition` holds. A worker does other work meanwhile.
pub fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        if yield_now() != Some(Yield::Executed) {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// A body that ends by cancellation only.
pub fn for_ever<T>() -> Result<T, BoxError> {
    loop {
        sleep(Duration::MAX)?;
    }
}

/// Returns when the body of `job` waits for something, as a dump shows it.
pub fn until_it_waits(job: &Job) {
    until(|| job.waiting_for().is_some());
}

/// Makes values and knows how many of them there are.
#[derive(Clone, Debug, Default)]
pub struct Census(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    made: AtomicUsize,
    dropped: AtomicUsize,
}

impl Census {
    pub fn value(&self) -> Counted {
        self.0.made.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    pub fn made(&self) -> usize {
        self.0.made.load(Ordering::Relaxed)
    }

    pub fn dropped(&self) -> usize {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Panics unless all that were made, and so many, are gone.
    #[track_caller]
    pub fn assert_all_gone(&self, made: usize) {
        assert_eq!((self.made(), self.dropped()), (made, made));
    }
}

/// A value whose end is counted.
#[derive(Debug)]
pub struct Counted(Census);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// A waker that counts how often it is called.
#[derive(Default)]
pub struct Bell(AtomicUsize);

impl Bell {
    pub fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
