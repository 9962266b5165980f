//! What the tests of the runtime share: runtimes, waiting for something to become true, and values that count.

#![allow(dead_code, reason = "each test program uses its own part of this")]

pub mod child;
#[path = "../../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use jobtree_pool::{Yield, yield_now};
pub use watchdog::Watchdog;

use jobtree_runtime::budget::{self, Budget, JobBudget};
use jobtree_runtime::{BoxError, Job, Profile, Runtime, sleep, tick};

/// A moment that does not come while a test runs.
pub const FAR: Duration = Duration::from_secs(3600);

/// Watches the calling test, which the thread is named after.
pub fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

/// A runtime of the test's own.
pub fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

/// A runtime of the test's own, in a profile.
pub fn runtime_of(profile: Profile, workers: usize) -> Runtime {
    let builder = Runtime::builder().workers(workers).profile(profile);
    builder.build().unwrap()
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

/// Returns the processor time that the threads of this process have had, where the system tells; elsewhere any time.
pub fn time_on_processors() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let threads = std::fs::read_dir("/proc/self/task").ok();
    let time_of = |thread: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    match threads {
        Some(threads) => Duration::from_nanos(threads.filter_map(time_of).sum()),
        None => START.get_or_init(Instant::now).elapsed(),
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

/// What happened, in order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// The budget of a job that has one.
pub fn budget_of(job: &Job) -> JobBudget {
    budget::of(job).expect("the job has a budget")
}

/// A budget of operations and nothing else.
pub fn ops(ops: u64) -> Budget {
    Budget {
        ops,
        ..Budget::NONE
    }
}

/// Ticks as often.
pub fn ticks(count: usize) {
    for _ in 0..count {
        tick();
    }
}

/// [`ticks`], as a body.
pub fn ticking(count: usize) -> Result<(), BoxError> {
    ticks(count);
    Ok(())
}
