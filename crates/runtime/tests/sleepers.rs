//! A job that sleeps goes on while others compute for long, as long as some worker was idle when they began.

mod support;

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jobtree_runtime::{Runtime, pool_stats, sleep};
use support::{end, rounds, runtime, until, until_it_waits, watch};

const WORKERS: usize = 4;

const NAP: Duration = Duration::from_millis(20);

/// What has not happened by then never will.
const NEVER: Duration = Duration::from_secs(30);

fn all_workers_sleep(runtime: &Runtime) -> bool {
    let stats = runtime.block_on(async { pool_stats() }).unwrap();
    stats
        .workers
        .iter()
        .all(|worker| worker.sleeps > worker.wakes)
}

/// Has a job sleep beside jobs that compute, without a fork, a tick or a wait, until it has gone on: one on each other worker. Returns
/// how late it went on; `None` if it did not, since one of them had its worker.
fn nap_beside_long_jobs(runtime: &Runtime) -> Option<Duration> {
    until(|| all_workers_sleep(runtime));
    let went_on = Arc::new(AtomicBool::new(false));
    let sleeper = runtime.spawn({
        let went_on = Arc::clone(&went_on);
        move || {
            let began = Instant::now();
            sleep(NAP)?;
            let late = began.elapsed().saturating_sub(NAP);
            went_on.store(true, Ordering::Release);
            Ok(late)
        }
    });
    until_it_waits(sleeper.job());
    until(|| all_workers_sleep(runtime));
    let long_jobs: Vec<_> = (1..WORKERS)
        .map(|_| {
            let (went_on, begun) = (Arc::clone(&went_on), Arc::new(AtomicBool::new(false)));
            let begins = Arc::clone(&begun);
            let job = runtime.spawn(move || {
                let began = Instant::now();
                begins.store(true, Ordering::Release);
                // Never so short that it would be kept on the worker on which the other one waits.
                while !went_on.load(Ordering::Acquire) || began.elapsed() < Duration::from_millis(1)
                {
                    if began.elapsed() > NEVER {
                        return Ok(false);
                    }
                    spin_loop();
                    std::thread::yield_now();
                }
                Ok(true)
            });
            until(|| begun.load(Ordering::Acquire));
            job
        })
        .collect();
    let mut in_time = true;
    for job in long_jobs {
        in_time &= job.join().unwrap();
    }
    let late = sleeper.join().unwrap();
    in_time.then_some(late)
}

#[test]
fn a_sleeper_goes_on_beside_long_jobs_that_began_when_a_worker_was_idle() {
    let _watchdog = watch();
    let runtime = runtime(WORKERS);
    for round in 0..rounds(20) {
        let late = nap_beside_long_jobs(&runtime);
        assert!(late.is_some(), "round {round} of {}", rounds(20));
    }
    end(&runtime);
}

/// The same with a bound in time, which holds on a machine with nothing else to do.
#[test]
#[ignore = "a figure of a quiet machine with four processors; takes 25 s"]
fn of_a_thousand_sleepers_beside_long_jobs_99_of_100_take_at_most_25_ms() {
    let runtime = runtime(WORKERS);
    let mut late: Vec<Duration> = (0..1000)
        .map(|_| nap_beside_long_jobs(&runtime).expect("goes on"))
        .collect();
    late.sort();
    let (half, most) = (late[499], late[989]);
    println!(
        "late by {half:?} (median), {most:?} (99 of 100), {:?} (all)",
        late[999]
    );
    assert!(NAP + most <= Duration::from_millis(25), "{most:?}");
    end(&runtime);
}
