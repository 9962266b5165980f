//! effectum on a file, asked for one measurement after another: a line with the name of a kind of work and a number of
//! jobs comes in, a line with the nanoseconds and the number of jobs that were done goes out. `jobtree-bench queue`
//! builds and starts this, since both cannot be one program.
//!
//! Everything is as effectum comes: its own settings of SQLite, and tokio with as many workers as there are cores. The
//! jobs are like those of the other sides.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use effectum::{Error, Job, JobRunner, Queue, RunningJob, Worker};
use tokio::sync::Notify;

/// In one call.
const BULK: usize = 1000;
/// How many a worker has at a time: as many as the others have under one lease.
const AT_ONCE: u16 = 500;

/// What handlers tell: how many have run, and that another one has.
#[derive(Debug, Default)]
struct Count {
    ran: AtomicUsize,
    more: Notify,
}

fn job() -> Job {
    Job::builder("indexing")
        .json_payload("/some/folder/with/a/file.jpg")
        .expect("JSON")
        .build()
}

async fn submit(queue: &Arc<Queue>, count: usize, callers: usize) {
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let queue = Arc::clone(queue);
            tokio::spawn(async move {
                for _ in 0..count / callers {
                    queue.add_job(job()).await.expect("taken");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("it ends");
    }
}

async fn submit_in_bulk(queue: &Arc<Queue>, count: usize) {
    for begin in (0..count).step_by(BULK) {
        let jobs = (begin..count.min(begin + BULK)).map(|_| job()).collect();
        queue.add_jobs(jobs).await.expect("taken");
    }
}

/// A worker takes and completes so many that wait.
async fn process(queue: &Arc<Queue>, count: usize) {
    let ran = Arc::new(Count::default());
    let handler = JobRunner::builder("indexing", |_: RunningJob, count: Arc<Count>| async move {
        count.ran.fetch_add(1, Ordering::Relaxed);
        count.more.notify_one();
        Ok::<(), Error>(())
    })
    .build();
    let worker = Worker::builder(queue, Arc::clone(&ran))
        .max_concurrency(AT_ONCE)
        .jobs([handler])
        .build()
        .await
        .expect("a worker");
    while ran.ran.load(Ordering::Relaxed) < count {
        ran.more.notified().await;
    }
    // Ends when all that run are written as completed.
    worker.unregister(None).await.expect("it ends");
}

async fn measure(queue: &Arc<Queue>, work: &str, count: usize) -> Option<Duration> {
    if work == "process" {
        submit_in_bulk(queue, count).await;
    }
    let start = Instant::now();
    match work.split_once('-') {
        Some(("submit", callers)) => submit(queue, count, callers.parse().ok()?).await,
        None if work == "bulk" => submit_in_bulk(queue, count).await,
        None if work == "process" => process(queue, count).await,
        _ => return None,
    }
    let time = start.elapsed();
    if work != "process" {
        // Those that wait would make the next measurement another one.
        process(queue, count).await;
    }
    Some(time)
}

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("error: which file? Started by `jobtree-bench queue`.");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("threads");
    let queue = runtime.block_on(Queue::new(Path::new(&path)));
    let queue = Arc::new(queue.expect("a new file"));
    for order in io::stdin().lines() {
        let order = order.unwrap_or_default();
        let (work, count) = order.trim().split_once(' ').unwrap_or_default();
        let count = count.parse().unwrap_or(0);
        let Some(time) = runtime.block_on(measure(&queue, work, count)) else {
            eprintln!("error: an order is a kind of work and a number of jobs, not {order:?}");
            return ExitCode::from(2);
        };
        println!("{} {count}", time.as_nanos());
        let _ = io::stdout().flush();
    }
    // Its connections are closed on the runtime's threads, so it has to be dropped among them.
    runtime.block_on(async move {
        let _ = queue.close(Duration::from_secs(5)).await;
        drop(queue);
    });
    ExitCode::SUCCESS
}
