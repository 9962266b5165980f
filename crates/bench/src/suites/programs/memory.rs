//! The memory of a task that has begun and waits for a permit, when there are very many of them.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::alone::{Probe, Quantity, each};
use crate::harness::{Fact, Report};
use crate::suites::Options;
use crate::suites::shared::{our_runtime, tokio_runtime};

/// The facts' names begin with this.
const NAME: &str = "memory of a waiting future";
const TASKS: u64 = 100_000;
/// The memory that ours may take, compared with tokio's.
const AT_MOST: f64 = 1.0;

pub const PROBES: &[Probe] = &[OURS, TOKIO];

const OURS: Probe = Probe {
    name: "programs-waiting-futures",
    run: |count| {
        let runtime = our_runtime(2);
        let permits = Arc::new(jobtree::sync::Semaphore::new(0));
        let begun = Arc::new(AtomicU64::new(0));
        for _ in 0..count {
            let (permits, begun) = (Arc::clone(&permits), Arc::clone(&begun));
            drop(runtime.spawn_future(async move {
                begun.fetch_add(1, Ordering::Relaxed);
                let _permit = permits.acquire_async(1).await?;
                Ok(())
            }));
        }
        until_all_have(&begun, count);
        mem::forget((runtime, permits));
    },
};

const TOKIO: Probe = Probe {
    name: "programs-waiting-tokio-tasks",
    run: |count| {
        let runtime = tokio_runtime(2);
        let permits = Arc::new(tokio::sync::Semaphore::new(0));
        let begun = Arc::new(AtomicU64::new(0));
        for _ in 0..count {
            let (permits, begun) = (Arc::clone(&permits), Arc::clone(&begun));
            drop(runtime.spawn(async move {
                begun.fetch_add(1, Ordering::Relaxed);
                let _permit = permits.acquire().await;
            }));
        }
        until_all_have(&begun, count);
        mem::forget((runtime, permits));
    },
};

fn until_all_have(begun: &AtomicU64, count: u64) {
    while begun.load(Ordering::Relaxed) < count {
        thread::yield_now();
    }
}

/// Adds the facts, if they can be found out here.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    eprintln!("  {NAME}");
    let measured = [&OURS, &TOKIO].map(|probe| each(Quantity::ResidentBytes, probe, TASKS));
    let [Ok(ours), Ok(tokio)] = measured else {
        let errors = measured.into_iter().filter_map(Result::err);
        errors.for_each(|error| eprintln!("  {NAME}: not measured: {error}"));
        return;
    };
    let facts = [
        ("ours", ours, "bytes", None),
        ("tokio's", tokio, "bytes", None),
        ("ours / tokio's", ours / tokio, "times", Some(AT_MOST)),
    ];
    report
        .facts
        .extend(facts.map(|(whose, value, unit, at_most)| Fact {
            name: format!("{NAME}: {whose}"),
            value,
            unit,
            at_most,
        }));
}
