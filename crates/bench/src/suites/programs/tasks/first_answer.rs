//! Many jobs look for the one number with a given hash, each in a range of its own; the first hit ends the others.
//!
//! A job of jobtree looks now and then whether it was cancelled; a task of tokio has to let others run for that.

use jobtree::{BoxError, channel, checkpoint};
use tokio::task::JoinSet;

use crate::suites::programs::inputs::work;
use crate::suites::programs::program::{Program, Scale};

const JOBS: u64 = 32;
/// The number of candidates that are tried between two checks.
const SLICE: u64 = 100;
/// About 50 ns.
const STEPS: u32 = 35;

#[derive(Clone, Copy)]
pub struct Input {
    /// The number of candidates that each job tries.
    range: u64,
    hash: u64,
}

pub fn program(scale: Scale) -> Program<Input> {
    let range = scale.pick(5000, 300);
    // In the range of the thirteenth job, after two thirds.
    let hidden = 12 * range + 2 * range / 3;
    let hash = work(2 * hidden, STEPS);
    Program::new("search", 1, Input { range, hash })
        .sequential(|input| sequential(*input))
        .our_jobs(|runtime, input| ours(runtime, *input))
        .tokio(|runtime, input| by_tokio(runtime, *input))
}

/// The beginnings of the slices of a job.
fn slices(input: Input, job: u64) -> impl Iterator<Item = u64> {
    (job * input.range..(job + 1) * input.range).step_by(SLICE as usize)
}

fn hit_in(input: Input, slice: u64) -> Option<u64> {
    (slice..slice + SLICE).find(|number| work(2 * number, STEPS) == input.hash)
}

fn sequential(input: Input) -> u64 {
    let mut slices = (0..JOBS).flat_map(|job| slices(input, job));
    let hit = slices.find_map(|slice| hit_in(input, slice));
    hit.expect("the number is there")
}

fn ours(runtime: &jobtree::Runtime, input: Input) -> u64 {
    let mut hit = None;
    let outcome = runtime.nursery(|n| {
        let (found, hits) = channel::unbounded();
        for job in 0..JOBS {
            let found = found.clone();
            n.launch(move || {
                for slice in slices(input, job) {
                    if let Some(number) = hit_in(input, slice) {
                        found.send(number)?;
                        return Ok(());
                    }
                    checkpoint()?;
                }
                Ok::<(), BoxError>(())
            });
        }
        hit = Some(hits.recv()?);
        n.cancel("found");
        Ok(())
    });
    assert!(outcome.is_err_and(|error| error.is_cancelled()));
    hit.expect("the number is there")
}

fn by_tokio(runtime: &tokio::runtime::Runtime, input: Input) -> u64 {
    runtime.block_on(async move {
        let mut jobs = JoinSet::new();
        for job in 0..JOBS {
            jobs.spawn(async move {
                for slice in slices(input, job) {
                    if let Some(number) = hit_in(input, slice) {
                        return Some(number);
                    }
                    tokio::task::yield_now().await;
                }
                None
            });
        }
        let mut hit = None;
        while hit.is_none() {
            let job = jobs.join_next().await.expect("the number is there");
            hit = job.expect("no task fails");
        }
        jobs.shutdown().await;
        hit.expect("the number is there")
    })
}
