//! Ten thousand tasks that each sleep for one to five milliseconds and then count.
//!
//! README tells jobtree's users to take futures where very many jobs wait. Alone, one sleeps from each moment to the next; the
//! time for that can be shared with nobody, so the limit says nothing here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jobtree::future;

use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    tasks: u64,
}

pub fn program(scale: Scale) -> Program<Input> {
    let tasks = scale.pick(10_000, 100);
    Program::new("task", tasks as usize, Input { tasks })
        .sequential(sequential)
        .our_jobs(ours)
        .tokio(by_tokio)
}

fn how_long(task: u64) -> Duration {
    Duration::from_millis(1 + task % 5)
}

fn sequential(input: &mut Input) -> u64 {
    let start = Instant::now();
    let mut sleeps: Vec<Duration> = (0..input.tasks).map(how_long).collect();
    sleeps.sort_unstable();
    let mut counted = 0;
    for sleep in sleeps {
        thread::sleep(sleep.saturating_sub(start.elapsed()));
        counted += 1;
    }
    counted
}

fn ours(runtime: &jobtree::Runtime, input: &mut Input) -> u64 {
    let counted = AtomicU64::new(0);
    let all = runtime.nursery(|n| {
        for task in 0..input.tasks {
            let counted = &counted;
            drop(n.spawn_future(async move {
                future::sleep(how_long(task)).await?;
                counted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }));
        }
        Ok(())
    });
    all.expect("no job fails");
    counted.into_inner()
}

fn by_tokio(runtime: &tokio::runtime::Runtime, input: &mut Input) -> u64 {
    let counted = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..input.tasks)
            .map(|task| {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    tokio::time::sleep(how_long(task)).await;
                    counted.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no task fails");
        }
    });
    counted.load(Ordering::Relaxed)
}
