//! The whole of it in process: a queue in a file, its engine, and a worker with handlers that do nothing.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use jobtree_scheduler::durable::{NewJob, Queue};

use super::{BATCH, BULK};

/// How many leases at once.
const LEASES: usize = 2;

pub struct Workers {
    queue: Queue,
}

impl Workers {
    /// # Panics
    ///
    /// If the file cannot be made.
    pub fn open(path: &Path) -> Self {
        Self {
            queue: Queue::open(path).expect("a new file"),
        }
    }

    /// How long a job takes that waits, from the start of the worker until all are completed on disk.
    ///
    /// # Panics
    ///
    /// If a job is refused, or lost.
    pub fn micros_each(&mut self, count: usize) -> f64 {
        for begin in (0..count).step_by(BULK) {
            let jobs = (begin..count.min(begin + BULK))
                .map(|_| NewJob::new("indexing", "/some/folder/with/a/file.jpg"));
            let answer = self.queue.submit_many(jobs).wait().expect("taken");
            assert!(!answer.jobs.is_empty());
        }
        let left = Arc::new(AtomicUsize::new(count));
        let (told, all_ran) = mpsc::channel();
        let start = Instant::now();
        let worker = self
            .queue
            .worker()
            .concurrency(LEASES)
            .batch(BATCH as u32)
            .handle("indexing", move |_: String, _| {
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    told.send(())?;
                }
                Ok(())
            })
            .start()
            .expect("a worker");
        all_ran
            .recv_timeout(Duration::from_secs(120))
            .expect("all of them run");
        worker
            .drain(Duration::from_secs(60))
            .expect("the completions");
        start.elapsed().as_secs_f64() * 1e6 / count as f64
    }
}
