//! What a queued job takes, and whether it matters to the next one how many wait: instructions and bytes.
//!
//! The instructions are those of a job's whole life: scheduled into the main lane, and run by the next pump, while
//! so many others wait that are less urgent. With aging put off they have no turns; with all of them aged at once
//! every second turn is theirs, by age.

use std::mem;
use std::time::Duration;

use jobtree_lanes::{JobBody, JobManager, Lane, LaneJob, Priority, PumpLimit};

use super::Options;
use crate::alone::{Probe, Quantity, each};
use crate::harness::{Fact, Report};
use crate::suites::jobs::alone::TOKIO_NOT_BEGUN;
use crate::suites::shared::{Question, our_runtime};

/// What the program can be told to do alone.
pub const PROBES: &[Probe] = &[
    AMONG_FEW,
    AMONG_MANY,
    AGED_AMONG_FEW,
    AGED_AMONG_MANY,
    WAITING,
];

const FEW: u64 = 1000;
const MANY: u64 = 1_000_000;

/// Later than any probe ends, even in valgrind.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// How many jobs a pump finds.
const AT_ONCE: u64 = 100;

const AMONG_FEW: Probe = Probe {
    name: "lane-jobs-among-few",
    run: |count| run_among(FEW, NEVER, count),
};

const AMONG_MANY: Probe = Probe {
    name: "lane-jobs-among-many",
    run: |count| run_among(MANY, NEVER, count),
};

const AGED_AMONG_FEW: Probe = Probe {
    name: "aged-lane-jobs-among-few",
    run: |count| run_among(FEW, Duration::ZERO, count),
};

const AGED_AMONG_MANY: Probe = Probe {
    name: "aged-lane-jobs-among-many",
    run: |count| run_among(MANY, Duration::ZERO, count),
};

const WAITING: Probe = Probe {
    name: "lane-jobs-waiting",
    run: |count| {
        let manager = manager(NEVER);
        for _ in 0..count {
            mem::forget(manager.schedule(job(Priority::Normal)));
        }
        mem::forget(manager);
    },
};

fn manager(aging: Duration) -> JobManager {
    let runtime = our_runtime(1);
    let manager = JobManager::builder()
        .runtime(&runtime)
        .queue_limit(0)
        .queue_warning(0)
        .aging(aging)
        .build()
        .expect("a manager is made");
    mem::forget(runtime);
    manager
}

fn job(priority: Priority) -> LaneJob<(), impl JobBody<()>> {
    LaneJob::action(|| Ok(()))
        .lane(Lane::Main)
        .priority(priority)
}

/// Has `waiting` jobs wait, and then `count` be scheduled and as many run.
fn run_among(waiting: u64, aging: Duration, count: u64) {
    let manager = manager(aging);
    for _ in 0..waiting {
        drop(manager.schedule(job(Priority::Low)));
    }
    let mut left = count;
    while left > 0 {
        let now = left.min(AT_ONCE);
        for _ in 0..now {
            drop(manager.schedule(job(Priority::High)));
        }
        let report = manager
            .pump(&Lane::Main, PumpLimit::jobs(now as usize))
            .expect("this thread was the first to pump");
        assert_eq!(report.ended as u64, now);
        left -= now;
    }
    mem::forget(manager);
}

const BYTES: &[Question] = &[
    Question {
        name: "bytes a job, queued in a lane: ours",
        quantity: Quantity::HeapBytes,
        probe: &WAITING,
        count: 100_000,
        at_most: None,
    },
    Question {
        name: "bytes a job, spawned and not begun: tokio's, tracked, with token",
        quantity: Quantity::HeapBytes,
        probe: &TOKIO_NOT_BEGUN,
        count: 100_000,
        at_most: None,
    },
];

/// Over how many jobs instructions are counted.
const COUNTED: u64 = 20_000;

/// Adds what there is to know.
pub fn run(options: &Options, report: &mut Report) {
    for question in BYTES {
        question.answer(options, report);
    }
    for (which, few, many) in [
        ("none aged", &AMONG_FEW, &AMONG_MANY),
        ("all aged", &AGED_AMONG_FEW, &AGED_AMONG_MANY),
    ] {
        let name = format!("instructions a job, scheduled and pumped, {which}");
        if !options.wants(&name) {
            continue;
        }
        eprintln!("  {name}");
        let count = |probe| each(Quantity::Instructions, probe, COUNTED);
        match count(few).and_then(|few| Ok((few, count(many)?))) {
            Ok((among_few, among_many)) => {
                let mut add = |what: String, value, unit, at_most| {
                    report.facts.push(Fact {
                        name: what,
                        value,
                        unit,
                        at_most,
                    });
                };
                add(
                    format!("{name}, {FEW} wait"),
                    among_few,
                    "instructions",
                    None,
                );
                add(
                    format!("{name}, {MANY} wait"),
                    among_many,
                    "instructions",
                    None,
                );
                let ratio = among_many / among_few;
                add(
                    format!("{name}, {MANY} to {FEW}"),
                    ratio,
                    "times",
                    Some(1.05),
                );
            }
            Err(error) => eprintln!("  {name}: not measured: {error}"),
        }
    }
}
