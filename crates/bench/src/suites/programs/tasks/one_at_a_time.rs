//! One small job after the other, started and waited for by a thread that is no worker.
//!
//! Whoever has only threads and channels keeps a thread that does the jobs.

use std::thread;

use crate::suites::programs::inputs::{SMALL_JOB, work};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    jobs: u64,
}

pub fn program(scale: Scale) -> Program<Input> {
    let jobs = scale.pick(200, 20);
    Program::new("job", jobs as usize, Input { jobs })
        .sequential(sequential)
        .our_jobs(ours)
        .tokio(by_tokio)
        .rayon_pool(by_rayon)
        .crossbeam(by_crossbeam)
}

fn sequential(input: &mut Input) -> u64 {
    (0..input.jobs).fold(0, |sum, job| work(sum ^ job, SMALL_JOB))
}

fn ours(runtime: &jobtree::Runtime, input: &mut Input) -> u64 {
    let last = runtime.nursery(|n| {
        let mut sum = 0;
        for job in 0..input.jobs {
            sum = n.spawn(move || Ok(work(sum ^ job, SMALL_JOB))).join()?;
        }
        Ok(sum)
    });
    last.expect("no job fails")
}

fn by_tokio(runtime: &tokio::runtime::Runtime, input: &mut Input) -> u64 {
    runtime.block_on(async {
        let mut sum = 0;
        for job in 0..input.jobs {
            let task = tokio::spawn(async move { work(sum ^ job, SMALL_JOB) });
            sum = task.await.expect("no task fails");
        }
        sum
    })
}

fn by_rayon(pool: &rayon::ThreadPool, input: &mut Input) -> u64 {
    (0..input.jobs).fold(0, |sum, job| pool.install(|| work(sum ^ job, SMALL_JOB)))
}

fn by_crossbeam(input: &mut Input) -> u64 {
    let (to_worker, jobs) = crossbeam_channel::bounded::<u64>(1);
    let (to_caller, values) = crossbeam_channel::bounded(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            for job in jobs {
                to_caller
                    .send(work(job, SMALL_JOB))
                    .expect("it is waited for");
            }
        });
        let mut sum = 0;
        for job in 0..input.jobs {
            to_worker.send(sum ^ job).expect("the worker receives");
            sum = values.recv().expect("the worker answers");
        }
        drop(to_worker);
        sum
    })
}
