//! A job that does nothing, once a millisecond: each time a worker wakes, runs it, looks around and falls asleep.
//!
//! What counts is the CPU time of the pool's threads. A thread that waits on a bare futex and goes straight back to it
//! is the least that such a cycle can cost.

use std::thread;
use std::time::Duration;

use super::pinged::Pinged;
use super::{Options, workers};
use crate::harness::{Goal, Plan, Report, Role, Rounds, Row, Tolerance};
use crate::threads::ThreadSet;

const NAME: &str = "a no-op spawn each ms, CPU time";
const FUTEX: &str = "bare futex";

const SIDES: [(&str, Role); 4] = [
    ("ours", Role::Ours),
    ("ours again", Role::Control),
    (FUTEX, Role::Limit),
    ("rayon", Role::Peer),
];

/// Adds the row.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let workers = workers(options);
    eprintln!("  {NAME}");
    let start_ours = || {
        jobtree_pool::Pool::builder()
            .workers(workers)
            .build()
            .expect("our pool starts")
    };
    let start_rayon = || {
        rayon::ThreadPoolBuilder::new()
            .num_threads(workers)
            .build()
            .expect("rayon's pool starts")
    };
    let started = ThreadSet::started_by(workers, start_ours).and_then(|ours| {
        let rayon = ThreadSet::started_by(workers, start_rayon)?;
        Ok((ours, rayon, ThreadSet::started_by(1, Pinged::start)?))
    });
    let ((ours, our_threads), (rayon, rayon_threads), (pinged, pinged_thread)) = match started {
        Ok(started) => started,
        Err(error) => return eprintln!("  {NAME}: not measured: {error}"),
    };
    if let Err(error) = our_threads.cpu_time() {
        return eprintln!(
            "  {NAME}: not measured, this system does not tell the CPU time of a thread: {error}"
        );
    }

    let (rounds, pings) = if options.quick { (5, 100) } else { (15, 250) };
    let plan = Plan {
        rounds,
        ..options.plan.clone()
    };
    let rounds = Rounds::take(&plan, SIDES.len(), |side| match SIDES[side].0 {
        "rayon" => cpu_time_a_ping(&rayon_threads, pings, || rayon.spawn(|| ())),
        FUTEX => cpu_time_a_ping(&pinged_thread, pings, || pinged.ping()),
        _ => cpu_time_a_ping(&our_threads, pings, || ours.spawn(|| ())),
    });
    let goal = Goal::side(FUTEX, 2.0);
    report.rows.push(Row::new(
        NAME.into(),
        workers,
        "spawn",
        goal,
        &SIDES,
        &rounds,
        Tolerance::ShownOnly,
    ));
}

/// Pings once a millisecond; gives the nanoseconds of CPU time that the threads used for each.
///
/// # Panics
///
/// If the system does not tell the CPU time of these threads; so ask it once before.
pub fn cpu_time_a_ping(threads: &ThreadSet, pings: u32, mut ping: impl FnMut()) -> f64 {
    // One ping more first: the pool's threads fell asleep long ago, and their code has left the caches.
    ping();
    thread::sleep(Duration::from_millis(5));
    let before = threads
        .cpu_time()
        .expect("the CPU time could be read a moment ago");
    for _ in 0..pings {
        ping();
        thread::sleep(Duration::from_millis(1));
    }
    let after = threads
        .cpu_time()
        .expect("the CPU time could be read a moment ago");
    (after - before).as_nanos() as f64 / f64::from(pings)
}
