//! Runs many programs on a few runtimes at once, and tells what failed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jobtree_runtime::Runtime;

use crate::conductor::{MOST_EVENTS, Mismatch, conduct};
use crate::program::Step;
use crate::script::Script;
use crate::told::PANIC_TEXT;

/// The workers of the runtimes; a seed always goes to the same one.
const WORKERS: [usize; 3] = [1, 2, 3];

/// How long a step may take, on a machine that is busy with something else. Only failures wait so long.
const PATIENCE_SECONDS: u64 = 20;

/// Runs a program that is given so often that its races come out in different ways.
///
/// # Panics
/// If it failed.
pub fn run_given(program: &[Step]) {
    const TIMES: u64 = 200;
    keep_planned_panics_quiet();
    let patience = Duration::from_secs(PATIENCE_SECONDS);
    for workers in WORKERS {
        let runtime = Runtime::builder().workers(workers).build();
        let runtime = ManuallyDrop::new(runtime.expect("a small runtime can be made"));
        runtime.record_events(MOST_EVENTS);
        for seed in 0..TIMES {
            let script = Script::given(program.to_vec(), seed);
            if let Err(mismatch) = conduct(&runtime, workers, patience, script, &|| {}) {
                panic!("{}", differences(workers, &mismatch));
            }
        }
        let runtime = ManuallyDrop::into_inner(runtime);
        runtime.shutdown(patience).expect("all jobs have ended");
    }
}

/// What the environment asks for.
fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} must be a number, but is '{text}'")),
        Err(_) => otherwise,
    }
}

/// See the module's head.
///
/// # Panics
/// If a program failed.
pub fn run() {
    #[cfg(feature = "planted-bugs")]
    crate::planted::plant_as_asked();
    keep_planned_panics_quiet();
    let first_seed = number("JOBTREE_PROPERTY_SEED", 1);
    let trees = number("JOBTREE_PROPERTY_TREES", 1_000);
    let patience = Duration::from_secs(number("JOBTREE_PROPERTY_PATIENCE", PATIENCE_SECONDS));
    let began = Instant::now();
    let stop = AtomicBool::new(false);
    let steps = AtomicU64::new(0);
    let failures: Mutex<Vec<u64>> = Mutex::default();
    thread::scope(|scope| {
        for (index, workers) in WORKERS.into_iter().enumerate() {
            let (stop, failures, steps) = (&stop, &failures, &steps);
            scope.spawn(move || {
                let runtime = Runtime::builder().workers(workers).build();
                // Not dropped after a failure: its bodies may wait for ever.
                let runtime = ManuallyDrop::new(runtime.expect("a small runtime can be made"));
                runtime.record_events(MOST_EVENTS);
                let watchdog = Watchdog::start(&runtime, patience * 3);
                let seeds = first_seed..first_seed + trees;
                for seed in seeds.filter(|seed| seed % WORKERS.len() as u64 == index as u64) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    watchdog.seed.store(seed, Ordering::Relaxed);
                    match conduct(&runtime, workers, patience, Script::new(seed), &|| {
                        watchdog.feed();
                    }) {
                        Ok(done) => {
                            steps.fetch_add(done as u64, Ordering::Relaxed);
                        }
                        Err(mismatch) => {
                            stop.store(true, Ordering::Relaxed);
                            say(&report(seed, workers, &mismatch));
                            failures
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push(seed);
                            return;
                        }
                    }
                }
                let runtime = ManuallyDrop::into_inner(runtime);
                if let Err(error) = runtime.shutdown(patience) {
                    say(&format!("{error}\n"));
                    failures
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(0);
                }
            });
        }
    });
    let failures = failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    assert!(
        failures.is_empty(),
        "trees differ from the model, or jobs were left: see above; seeds {failures:?}"
    );
    println!(
        "{trees} trees, {} steps, {:?}",
        steps.into_inner(),
        began.elapsed()
    );
}

fn report(seed: u64, workers: usize, mismatch: &Mismatch) -> String {
    let mut text = format!("seed {seed}: {}", differences(workers, mismatch));
    let _ = writeln!(
        text,
        "again with: JOBTREE_PROPERTY_SEED={seed} JOBTREE_PROPERTY_TREES=1 cargo test -p jobtree-runtime --test property \
         (races may need some runs)"
    );
    text
}

fn differences(workers: usize, mismatch: &Mismatch) -> String {
    let mut text = format!("a program on {workers} workers differs from the model\n");
    for (number, step) in mismatch.program.iter().enumerate() {
        let _ = writeln!(text, "  {number:3} {step:?}");
    }
    let _ = writeln!(text, "  after the last step: {}", mismatch.difference);
    let _ = writeln!(text, "{}", mismatch.dump);
    text
}

/// Writes past the test harness, which keeps output until the test has ended: this one may never.
fn say(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn keep_planned_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_planned = info
                .payload_as_str()
                .is_some_and(|text| text.starts_with(PANIC_TEXT));
            if !is_planned {
                hook(info);
            }
        }));
    });
}

/// Ends the process when nothing moves any more, not even the one who compares.
struct Watchdog {
    seed: Arc<AtomicU64>,
    fed: Arc<AtomicU64>,
}

impl Watchdog {
    fn start(runtime: &Runtime, limit: Duration) -> Watchdog {
        let watchdog = Watchdog {
            seed: Arc::default(),
            fed: Arc::default(),
        };
        let (seed, fed) = (Arc::clone(&watchdog.seed), Arc::downgrade(&watchdog.fed));
        let runtime = runtime.clone();
        thread::spawn(move || {
            let mut last = (0, Instant::now());
            while let Some(fed) = fed.upgrade() {
                let now = fed.load(Ordering::Relaxed);
                drop(fed);
                if now != last.0 {
                    last = (now, Instant::now());
                } else if last.1.elapsed() > limit {
                    let seed = seed.load(Ordering::Relaxed);
                    say(&format!("nothing has moved for {limit:?}: seed {seed}\n"));
                    say(&runtime.dump_tree().to_string());
                    std::process::abort();
                }
                thread::sleep(Duration::from_millis(200));
            }
        });
        watchdog
    }

    fn feed(&self) {
        self.fed.fetch_add(1, Ordering::Relaxed);
    }
}
