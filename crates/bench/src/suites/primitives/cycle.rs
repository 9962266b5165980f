//! A full sleep cycle of one worker: it sleeps, is woken, runs a job that does nothing, looks around and sleeps again.
//!
//! Two figures: how long the cycle takes, from the spawn until the worker's thread has blocked, and how much CPU time
//! that thread uses for it. The end of a cycle is seen from outside and in the same way on every side: the system
//! counts how often a thread blocked. A look at that count takes some microseconds, which every side's time includes,
//! and it disturbs the thread; so the CPU time is taken in cycles of their own, which nobody looks at.

use std::io;
use std::time::Instant;

use super::Options;
use super::ping::cpu_time_a_ping;
use super::pinged::{Pinged, current_thread_id};
use crate::harness::{Plan, Report, Role, Rounds, Row, Tolerance, quantile};
use crate::threads::{BlockedCount, ThreadSet};

const TIME: &str = "full sleep cycle, until asleep again";
const CPU_TIME: &str = "full sleep cycle, CPU time";
const FUTEX: &str = "bare futex";

const SIDES: [(&str, Role); 4] = [
    ("ours", Role::Ours),
    ("ours again", Role::Control),
    (FUTEX, Role::Limit),
    ("rayon", Role::Peer),
];

/// Adds both rows.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(TIME) && !options.wants(CPU_TIME) {
        return;
    }
    eprintln!("  {TIME}");
    match measure(options) {
        Ok(rows) => {
            let wanted = rows.into_iter().filter(|row| options.wants(&row.name));
            report.rows.extend(wanted);
        }
        Err(error) => eprintln!("  {TIME}: not measured: {error}"),
    }
}

fn measure(options: &Options) -> io::Result<[Row; 2]> {
    let ours = jobtree_pool::Pool::builder()
        .workers(1)
        .build()
        .expect("our pool starts");
    let our_thread = ours.install(current_thread_id);
    let rayon = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .expect("rayon's pool starts");
    let rayon_thread = rayon.install(current_thread_id);
    let pinged = Pinged::start();
    let pinged_thread = pinged.thread_id();

    // What cannot be read at all fails here, not in the middle of a round.
    BlockedCount::of(our_thread)?.get()?;
    ThreadSet::one(our_thread).cpu_time()?;

    let (rounds, cycles) = if options.quick { (5, 100) } else { (15, 250) };
    let plan = Plan {
        rounds,
        ..options.plan.clone()
    };
    let mut cpu_times = vec![Vec::new(); SIDES.len()];
    let times = Rounds::take(&plan, SIDES.len(), |side| {
        let (time, cpu_time) = match SIDES[side].0 {
            "rayon" => cycles_of(rayon_thread, cycles, || rayon.spawn(|| ())),
            FUTEX => cycles_of(pinged_thread, cycles, || pinged.ping()),
            _ => cycles_of(our_thread, cycles, || ours.spawn(|| ())),
        };
        cpu_times[side].push(cpu_time);
        time
    });
    let row = |name: &str, rounds: &Rounds| {
        let name = name.to_string();
        let tolerance = Tolerance::ShownOnly;
        Row::new(name, 1, "cycle", None, &SIDES, rounds, tolerance)
    };
    Ok([
        row(TIME, &times),
        row(CPU_TIME, &Rounds::from_figures(cpu_times)),
    ])
}

/// Asks a sleeping thread so many times, each time until it sleeps again; gives the median of these cycles'
/// nanoseconds and the mean CPU time of as many others.
fn cycles_of(thread: u32, cycles: u32, ask: impl Fn()) -> (f64, f64) {
    let blocked = BlockedCount::of(thread).expect("the thread is still there");
    let times_blocked = || blocked.get().expect("the count could be read before");
    let cycle = || {
        let before = times_blocked();
        let start = Instant::now();
        ask();
        while times_blocked() == before {}
        start.elapsed().as_nanos() as f64
    };
    // The thread slept while the others were measured, and its code has left the caches.
    for _ in 0..cycles / 10 {
        cycle();
    }
    let times: Vec<f64> = (0..cycles).map(|_| cycle()).collect();
    let cpu_time = cpu_time_a_ping(&ThreadSet::one(thread), cycles, &ask);
    (quantile(&times, 0.5), cpu_time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn each_cycle_runs_one_job_and_ends() {
        let pool = jobtree_pool::Pool::builder().workers(1).build().unwrap();
        let ran = Arc::new(AtomicU32::new(0));
        let ask = || {
            let ran = Arc::clone(&ran);
            pool.spawn(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        };
        let (time, cpu_time) = cycles_of(pool.install(current_thread_id), 10, ask);
        // One worker takes what comes from outside in its order.
        // Ten and one to warm up, watched; ten and one more for the CPU time.
        assert_eq!(pool.install(|| ran.load(Ordering::Relaxed)), 22);
        assert!(time > 0.0 && cpu_time > 0.0);
    }
}
