//! What the suites about jobs and tasks share: a row whose sides keep their own input, the runtimes, and the way onto one
//! of their workers.

use std::time::{Duration, Instant};

use jobtree_runtime::Runtime;

use super::Options;
use crate::alone::{Probe, Quantity, each};
use crate::harness::{Contender, Contest, Fact, Goal, Plan, Report};

/// A row whose sides keep what they work on themselves.
pub struct Spec {
    pub name: String,
    pub workers: usize,
    pub unit: &'static str,
    pub units: u64,
    pub goal: Option<Goal>,
}

impl Spec {
    pub fn on_one_thread(name: impl Into<String>, unit: &'static str, units: u64) -> Self {
        Self {
            name: name.into(),
            workers: 1,
            unit,
            units,
            goal: None,
        }
    }

    pub fn goal(mut self, goal: Option<Goal>) -> Self {
        self.goal = goal;
        self
    }

    pub fn run(self, plan: &Plan, contenders: Vec<Contender<'_, ()>>, report: &mut Report) {
        let contest = Contest {
            name: self.name,
            workers: self.workers,
            unit: self.unit,
            units: self.units as f64,
            goal: self.goal,
            input: (),
            digest: |(), result| result,
            contenders,
        };
        report.rows.push(contest.run(plan));
    }
}

/// A figure to be had from a process that does one thing alone.
pub struct Question {
    pub name: &'static str,
    pub quantity: Quantity,
    pub probe: &'static Probe,
    /// Over how many.
    pub count: u64,
    pub at_most: Option<f64>,
}

impl Question {
    /// Adds a fact, if it was asked for and can be found out here.
    pub fn answer(&self, options: &Options, report: &mut Report) {
        if !options.wants(self.name) {
            return;
        }
        eprintln!("  {}", self.name);
        match each(self.quantity, self.probe, self.count) {
            Ok(value) => report.facts.push(Fact {
                name: self.name.into(),
                value,
                unit: match self.quantity {
                    Quantity::Instructions => "instructions",
                    Quantity::HeapBytes | Quantity::ResidentBytes => "bytes",
                },
                at_most: self.at_most,
            }),
            Err(error) => eprintln!("  {}: not measured: {error}", self.name),
        }
    }
}

/// For rows that prepare much longer than they measure: a tenth of the time on the clock, so that the rest is bearable.
/// Their iterations are long enough for the clock.
pub fn with_less_time(plan: &Plan) -> Plan {
    Plan {
        side_time: plan.side_time / 10,
        ..plan.clone()
    }
}

/// tokio's usual runtime.
///
/// # Panics
///
/// If the system does not give us the threads.
pub fn tokio_runtime(workers: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_time()
        .build()
        .expect("tokio's runtime starts")
}

/// Our runtime.
///
/// # Panics
///
/// If the system does not give us the threads.
pub fn our_runtime(workers: usize) -> Runtime {
    Runtime::builder()
        .workers(workers)
        .build()
        .expect("our runtime starts")
}

/// Our runtime for very many tasks.
///
/// # Panics
///
/// If the system does not give us the threads.
pub fn our_runtime_on_small_stacks(workers: usize) -> Runtime {
    Runtime::builder()
        .workers(workers)
        .small_stacks()
        .build()
        .expect("our runtime starts")
}

/// Ends a runtime before the next one starts, so that no row runs beside the threads of another.
pub fn end(runtime: &Runtime) {
    if let Err(error) = runtime.shutdown(Duration::from_secs(10)) {
        eprintln!("  warning: {error}");
    }
}

/// Runs `measurement` as a task of ours, on a worker.
///
/// # Panics
///
/// If it panics.
pub fn in_our_task<T: Send + 'static>(
    runtime: &Runtime,
    measurement: impl FnOnce() -> T + Send + 'static,
) -> T {
    let task = runtime.spawn(move || Ok(measurement()));
    task.join().expect("the measurement ends with its value")
}

/// Runs `measurement` as a future of ours, on a worker.
///
/// # Panics
///
/// If it panics.
pub fn in_our_future<T: Send + 'static>(
    runtime: &Runtime,
    measurement: impl Future<Output = T> + Send + 'static,
) -> T {
    let future = runtime.spawn_future(async move { Ok(measurement.await) });
    future.join().expect("the measurement ends with its value")
}

/// Runs `measurement` as a task of tokio's, on a worker; the thread that calls `block_on` would work beside them.
///
/// # Panics
///
/// If it panics.
pub fn in_tokio<T: Send + 'static>(
    runtime: &tokio::runtime::Runtime,
    measurement: impl Future<Output = T> + Send + 'static,
) -> T {
    let on_a_worker = runtime.spawn(measurement);
    runtime
        .block_on(on_a_worker)
        .expect("the measurement ends with its value")
}

/// [`timed`](crate::harness::timed) for async code.
pub async fn repeat<F: Future<Output = u64>>(
    iterations: u64,
    body: impl Fn() -> F,
) -> (Duration, u64) {
    let mut result = 0;
    let start = Instant::now();
    for _ in 0..iterations {
        result = body().await;
    }
    (start.elapsed(), result)
}

/// As short as a row can be: each side runs, and disagreement panics.
#[cfg(test)]
pub fn shortest(filter: &str) -> Options {
    Options {
        plan: Plan {
            rounds: 1,
            side_time: Duration::from_micros(1),
            ..Plan::quick()
        },
        quick: true,
        workers: None,
        filter: Some(filter.into()),
        on_postgres: false,
    }
}
