//! An idle pool does nothing at all: no timer, no poll, no wake-up.

use std::io;
use std::thread;
use std::time::Duration;

use super::{Options, workers};
use crate::harness::{Fact, Report};
use crate::threads::ThreadSet;

const NAME: &str = "context switches of an idle pool";

/// Adds a fact for our pool, which must be zero, and one for rayon's.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let workers = workers(options);
    eprintln!("  {NAME}");
    let time = Duration::from_secs(if options.quick { 1 } else { 2 });
    let ours = || {
        jobtree_pool::Pool::builder()
            .workers(workers)
            .build()
            .expect("our pool starts")
    };
    let rayon = || {
        rayon::ThreadPoolBuilder::new()
            .num_threads(workers)
            .build()
            .expect("rayon's pool starts")
    };
    let figures = [
        (
            "ours",
            Some(0.0),
            switches_while_idle(workers, time, ours, |pool| pool.install(|| ())),
        ),
        (
            "rayon",
            None,
            switches_while_idle(workers, time, rayon, |pool| pool.install(|| ())),
        ),
    ];
    for (side, at_most, switches) in figures {
        match switches {
            Ok(switches) => report.facts.push(Fact {
                name: format!("{NAME} of {workers} over {} s, {side}", time.as_secs()),
                value: switches as f64,
                unit: "switches",
                at_most,
            }),
            Err(error) => eprintln!("  {NAME}: not measured: {error}"),
        }
    }
}

/// Starts a pool, uses it once, lets it fall asleep, and counts what its threads do from then on.
fn switches_while_idle<P>(
    workers: usize,
    time: Duration,
    start: impl FnOnce() -> P,
    use_once: impl FnOnce(&P),
) -> io::Result<u64> {
    let (pool, threads) = ThreadSet::started_by(workers, start)?;
    use_once(&pool);
    // Each worker looks around for a while before it sleeps. That is not yet idling; a second is more than plenty.
    thread::sleep(Duration::from_secs(1));
    let before = threads.context_switches()?;
    thread::sleep(time);
    let after = threads.context_switches()?;
    drop(pool);
    Ok(after - before)
}
