//! A hundred small jobs at once, and the sum of what they return.
//!
//! A rayon user has no values of spawned tasks, and adds to a counter.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::suites::programs::inputs::{SMALL_JOB, work};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    jobs: u64,
}

pub fn program(_: Scale) -> Program<Input> {
    Program::new("job", 100, Input { jobs: 100 })
        .sequential(sequential)
        .our_jobs(ours)
        .tokio(by_tokio)
        .rayon(by_rayon)
}

fn sequential(input: &mut Input) -> u64 {
    let values = (0..input.jobs).map(|job| work(job, SMALL_JOB));
    values.fold(0, u64::wrapping_add)
}

fn ours(runtime: &jobtree::Runtime, input: &mut Input) -> u64 {
    let sum = runtime.nursery(|n| {
        let handles: Vec<_> = (0..input.jobs)
            .map(|job| n.spawn(move || Ok(work(job, SMALL_JOB))))
            .collect();
        let mut sum = 0_u64;
        for handle in handles {
            sum = sum.wrapping_add(handle.join()?);
        }
        Ok(sum)
    });
    sum.expect("no job fails")
}

fn by_tokio(runtime: &tokio::runtime::Runtime, input: &mut Input) -> u64 {
    runtime.block_on(async {
        let handles: Vec<_> = (0..input.jobs)
            .map(|job| tokio::spawn(async move { work(job, SMALL_JOB) }))
            .collect();
        let mut sum = 0_u64;
        for handle in handles {
            sum = sum.wrapping_add(handle.await.expect("no task fails"));
        }
        sum
    })
}

fn by_rayon(input: &mut Input) -> u64 {
    let sum = AtomicU64::new(0);
    rayon::scope(|scope| {
        for job in 0..input.jobs {
            let sum = &sum;
            scope.spawn(move |_| {
                sum.fetch_add(work(job, SMALL_JOB), Ordering::Relaxed);
            });
        }
    });
    sum.into_inner()
}
