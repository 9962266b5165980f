//! What the tests of the manager share.

#![allow(dead_code, reason = "each test program uses its own part of this")]

#[path = "../../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_lanes::{JobManager, JobManagerBuilder, LaneJob};
use jobtree_runtime::{BoxError, JobHandle, Runtime, checkpoint};
pub use watchdog::Watchdog;

/// A moment that does not come while a test runs.
pub const FAR: Duration = Duration::from_secs(3600);

/// Watches the calling test, which the thread is named after.
pub fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

/// A manager of the test's own, with its runtime.
pub struct World {
    pub manager: JobManager,
    pub runtime: Runtime,
}

impl World {
    /// As many workers, all of them the manager's.
    pub fn new(workers: usize) -> World {
        World::with(workers, |builder| builder.workers(workers))
    }

    pub fn with(
        workers: usize,
        describe: impl FnOnce(JobManagerBuilder) -> JobManagerBuilder,
    ) -> World {
        let runtime = Runtime::builder().workers(workers).build().unwrap();
        let builder = JobManager::builder().runtime(&runtime);
        let manager = describe(builder).build().unwrap();
        World { manager, runtime }
    }

    /// Ends both, with nothing left.
    pub fn end(self) {
        self.manager.shutdown(Duration::from_secs(60)).unwrap();
        self.runtime.shutdown(Duration::from_secs(60)).unwrap();
    }
}

/// A manager on whose lanes nothing runs but by `process` and `pump`, since the only worker is kept busy.
pub struct ByHand {
    pub manager: JobManager,
    runtime: Runtime,
    busy: Option<(Sender<()>, JobHandle<()>)>,
}

impl ByHand {
    pub fn new(describe: impl FnOnce(JobManagerBuilder) -> JobManagerBuilder) -> ByHand {
        let World { manager, runtime } = World::with(1, describe);
        let (release, released) = mpsc::channel::<()>();
        let (began, has_begun) = mpsc::channel();
        let keeper = runtime.spawn(move || {
            began.send(())?;
            let _ = released.recv();
            Ok(())
        });
        has_begun.recv().unwrap();
        ByHand {
            manager,
            runtime,
            busy: Some((release, keeper)),
        }
    }

    pub fn end(mut self) {
        self.busy.take();
        self.manager.shutdown(Duration::from_secs(60)).unwrap();
        self.runtime.shutdown(Duration::from_secs(60)).unwrap();
    }
}

/// What happened, in order.
#[derive(Clone, Debug, Default)]
pub struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone> Log<T> {
    pub fn new() -> Log<T> {
        Log(Arc::default())
    }

    pub fn note(&self, what: T) {
        self.0.lock().unwrap().push(what);
    }

    pub fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

/// A gate that jobs wait at by blocking their thread.
pub fn gate() -> (Sender<()>, Arc<Mutex<Receiver<()>>>) {
    let (open, wait) = mpsc::channel();
    (open, Arc::new(Mutex::new(wait)))
}

/// Computes until it is cancelled.
pub fn for_ever<T>() -> Result<T, BoxError> {
    loop {
        checkpoint()?;
        std::thread::yield_now();
    }
}

/// A job that notes its name.
pub fn note<T: Clone + Send + 'static>(
    log: &Log<T>,
    what: T,
) -> LaneJob<(), impl jobtree_lanes::JobBody<()>> {
    let log = log.clone();
    LaneJob::action(move || {
        log.note(what);
        Ok(())
    })
}

/// Returns when `condition` holds.
pub fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Numbers by a seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % bound
    }
}
