//! Asking for a value that is there already: the price of a handle, without any waiting.
//!
//! The jobs run on the very worker that joins them, and there are few enough of them for its nearest cache. Otherwise
//! it would be the memory's price: a value that another core has just written is a cache miss, whoever hands it over.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use jobtree_runtime::{Job, JobHandle, Runtime, block_on};

use super::{Options, PEER, Spec, end, our_runtime, tokio_runtime, with_less_time};
use crate::harness::{Contender, Goal, Report, Role, timed_between};
use crate::suites::shared::{in_our_task, in_tokio};

const NAME: &str = "join of a finished value";

/// How many handles one iteration joins: enough to drown the clock, and few enough for 32 KiB.
const HANDLES: u64 = 100;

/// Adds the row. Joining uses the handle up, so both sides free the job with it, as almost every program does.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let ours = our_runtime(1);
    let tokio = tokio_runtime(1);
    let side = |keeps_jobs, ask: Ask| {
        let ours = &ours;
        move |(): &mut (), iterations| ours_finished(ours, iterations, keeps_jobs, ask)
    };
    Spec::on_one_thread(NAME, "join", HANDLES)
        .goal(Goal::nanoseconds(10.0))
        .run(
            &with_less_time(&options.plan),
            vec![
                Contender::new("ours", Role::Ours, side(false, join_all)),
                Contender::new("ours again", Role::Control, side(false, join_all)),
                // Somebody else has a handle, too, so that nothing is freed.
                Contender::new("not freed", Role::Variant, side(true, join_all)),
                Contender::new("polled", Role::Variant, side(false, poll_all)),
                Contender::new("Ended polled", Role::Variant, side(false, poll_ends)),
                Contender::new(PEER, Role::Peer, |(), iterations| {
                    tokio_finished(&tokio, iterations)
                }),
            ],
            report,
        );
    end(&ours);
}

/// A batch of jobs that have ended, and what their values came to.
struct Finished {
    handles: Vec<JobHandle<u64>>,
    _kept: Vec<Job>,
    sum: u64,
}

/// One way to ask all of them.
type Ask = fn(&mut Finished);

fn ours_finished(
    runtime: &Runtime,
    iterations: u64,
    keeps_jobs: bool,
    ask: Ask,
) -> (Duration, u64) {
    let jobs_of = runtime.clone();
    let measurement = move || {
        let prepare = || finished(&jobs_of, keeps_jobs);
        timed_between(iterations, prepare, ask, |left| left.sum)
    };
    in_our_task(runtime, measurement)
}

fn finished(runtime: &Runtime, keeps_jobs: bool) -> Finished {
    let handles: Vec<_> = (0..HANDLES)
        .map(|value| runtime.spawn(move || Ok(value)))
        .collect();
    for handle in &handles {
        block_on(handle.job().ended()).expect("nobody cancels the measurement");
    }
    let kept = handles.iter().filter(|_| keeps_jobs);
    Finished {
        _kept: kept.map(|handle| handle.job().clone()).collect(),
        handles,
        sum: 0,
    }
}

fn join_all(finished: &mut Finished) {
    for handle in finished.handles.drain(..) {
        finished.sum += handle.join().expect("no job fails");
    }
}

/// As an executor of futures would ask.
fn poll_all(finished: &mut Finished) {
    let mut context = Context::from_waker(Waker::noop());
    for mut handle in finished.handles.drain(..) {
        match Pin::new(&mut handle).poll(&mut context) {
            Poll::Ready(value) => finished.sum += value.expect("no job fails"),
            Poll::Pending => unreachable!("the job has ended"),
        }
    }
}

/// Only whether they have ended: the values stay where they are, so they are made up.
fn poll_ends(finished: &mut Finished) {
    let mut context = Context::from_waker(Waker::noop());
    for (value, handle) in (0..).zip(&finished.handles) {
        if pin!(handle.job().ended()).poll(&mut context).is_ready() {
            finished.sum += value;
        }
    }
}

fn tokio_finished(runtime: &tokio::runtime::Runtime, iterations: u64) -> (Duration, u64) {
    let measurement = async move {
        let mut total = Duration::ZERO;
        let mut sum = 0;
        for _ in 0..iterations {
            let handles: Vec<_> = (0..HANDLES)
                .map(|value| tokio::spawn(async move { value }))
                .collect();
            while handles.iter().any(|handle| !handle.is_finished()) {
                tokio::task::yield_now().await;
            }
            let mut context = Context::from_waker(Waker::noop());
            sum = 0;
            let start = Instant::now();
            for mut handle in handles {
                match Pin::new(&mut handle).poll(&mut context) {
                    Poll::Ready(value) => sum += value.expect("no task fails"),
                    Poll::Pending => unreachable!("the task has ended"),
                }
            }
            total += start.elapsed();
        }
        (total, sum)
    };
    // A task that asks this often would be told to wait for its next turn, though nothing is to wait for.
    in_tokio(runtime, tokio::task::unconstrained(measurement))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::shared::shortest;

    #[test]
    fn every_way_to_ask_finds_every_value() {
        let expected = HANDLES * (HANDLES - 1) / 2;
        let ours = our_runtime(1);
        for ask in [join_all as Ask, poll_all, poll_ends] {
            assert_eq!(ours_finished(&ours, 2, true, ask).1, expected);
        }
        end(&ours);
        assert_eq!(tokio_finished(&tokio_runtime(1), 2).1, expected);
    }

    #[test]
    fn the_row_is_judged_by_the_clock() {
        let mut report = Report::default();
        run(&shortest(NAME), &mut report);
        assert_eq!(report.rows[0].goal, Goal::nanoseconds(10.0));
    }
}
