//! One run: a program, a seed, and the clock between them.

use std::time::Duration;

use jobtree_pool::raw::sim::{
    Pause, SimulatedPool, SimulationError, SimulationOptions, World, is_simulated, note,
};
use jobtree_pool::raw::task::RawContext;
use jobtree_tree::{BoxError, Job, JobOptions};

use super::SIMULATED;
use super::error::{SimError, WaitingJob};
use super::events::Numbers;
use super::report::Report;
use crate::handle::JobHandle;
use crate::task;
use crate::timers::{Expiry, Timers};

/// A simulation of a runtime: runs a program by one seed.
///
/// ```
/// use jobtree_runtime::{nursery, sim};
///
/// let run = |seed| {
///     sim::Runtime::new(seed).run(|_| {
///         let (sender, receiver) = std::sync::mpsc::channel();
///         nursery(|n| {
///             for number in 0..5 {
///                 let sender = sender.clone();
///                 n.launch(move || Ok(sender.send(number)?));
///             }
///             Ok(())
///         })?;
///         Ok(receiver.try_iter().collect::<Vec<u32>>())
///     })
/// };
/// // A seed decides who comes first, and all that follows.
/// let (first, again) = (run(7), run(7));
/// assert_eq!(first.trace_hash, again.trace_hash);
/// assert_eq!(first.outcome.unwrap(), again.outcome.unwrap());
/// ```
#[derive(Clone, Debug)]
pub struct Runtime {
    options: SimulationOptions,
    max_steps: u64,
    time_per_step: Duration,
}

/// Describes a simulation.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    runtime: Runtime,
}

impl Runtime {
    /// A simulation of four workers.
    pub fn new(seed: u64) -> Runtime {
        Runtime::builder(seed).build()
    }

    /// Starts to describe a simulation.
    pub fn builder(seed: u64) -> Builder {
        Builder {
            runtime: Runtime {
                options: SimulationOptions::new(seed),
                max_steps: 10_000_000,
                time_per_step: Duration::ZERO,
            },
        }
    }

    /// Runs `program` as a job of a new, simulated runtime, and returns when it has ended. What it leaves running is
    /// cancelled, and waited for.
    ///
    /// The program runs on a thread of its own, so that it finds all thread locals as new.
    ///
    /// # Panics
    /// If something panics that is part of no job and no task, such as a callback.
    pub fn run<F, T>(&self, program: F) -> Report<T>
    where
        F: FnOnce(&crate::Runtime) -> Result<T, BoxError> + Send,
        T: Send,
    {
        if is_simulated() {
            return self.failed(SimError::Unavailable(SimulationError::Nested));
        }
        if jobtree_pool::current_worker_index().is_some() {
            return self.failed(SimError::Unavailable(SimulationError::OnWorker));
        }
        let ran = std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name(format!("jobtree-sim-{}", self.options.seed))
                .spawn_scoped(scope, || self.simulate(program))
                .expect("the system has room for the thread of a simulation")
                .join()
        });
        ran.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }

    fn failed<T>(&self, error: SimError) -> Report<T> {
        Report {
            outcome: Err(error),
            seed: self.options.seed,
            trace_hash: 0,
            steps: 0,
            elapsed: Duration::ZERO,
            trace: String::new(),
        }
    }

    fn simulate<F, T>(&self, program: F) -> Report<T>
    where
        F: FnOnce(&crate::Runtime) -> Result<T, BoxError> + Send,
        T: Send,
    {
        let mut pool = match SimulatedPool::new(self.options) {
            Ok(pool) => pool,
            Err(error) => return self.failed(SimError::Unavailable(error)),
        };
        let timers = Timers::virtual_ones();
        let numbers = Numbers::default();
        let runtime = crate::Runtime::simulated(pool.pool_ref(), timers.clone(), numbers.watcher());
        // The root comes first, as in the tree.
        numbers.of(runtime.root().id());
        let _known = Known::new(&runtime);
        let main = start(&runtime, program);
        let mut clock = Clock {
            until: main.job().clone(),
            timers: timers.clone(),
            time_per_step: self.time_per_step,
            last_steps: 0,
        };
        let pause = pool.run(&mut clock, self.max_steps);
        let alive = |root: &Job| WaitingJob::all_of(&root.dump_tree(), &numbers);
        let outcome = match pause {
            Pause::Over => main.join().map_err(SimError::Failed),
            Pause::Stuck => Err(SimError::Stuck {
                jobs: alive(runtime.root()),
            }),
            Pause::Limit => Err(SimError::NoEnd {
                steps: pool.steps(),
                jobs: alive(runtime.root()),
            }),
        };
        // What is left, if only for its destructors, gets as much again.
        runtime.close_tree();
        clock.until = runtime.root().clone();
        let limit = pool.steps().saturating_add(self.max_steps);
        pool.run(&mut clock, limit);
        let report = |outcome, pool: &mut SimulatedPool| Report {
            outcome,
            seed: self.options.seed,
            trace_hash: pool.hash(),
            steps: pool.steps(),
            elapsed: timers.virtual_time().unwrap_or_default(),
            trace: pool.take_trace().unwrap_or_default(),
        };
        let panics = pool.take_panics();
        let mut report = report(outcome, &mut pool);
        let jobs = alive(runtime.root());
        let ended = pool.end(self.max_steps);
        if let (Ok(_), Err(tasks)) = (&report.outcome, ended) {
            report.outcome = Err(SimError::LeftOver { jobs, tasks });
        }
        if let (Ok(_), Some(payload)) = (&report.outcome, panics.first()) {
            report.outcome = Err(SimError::TaskPanicked(message_of(&**payload)));
        }
        report
    }
}

fn message_of(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "(no message)".to_owned())
}

/// Starts the program as a job under the root.
fn start<F, T>(runtime: &crate::Runtime, program: F) -> JobHandle<T>
where
    F: FnOnce(&crate::Runtime) -> Result<T, BoxError> + Send,
    T: Send,
{
    let own = runtime.clone();
    // SAFETY: whatever the program borrows is there until `Runtime::run` returns. By then the job has ended and its
    // value was taken, or everything of it is leaked: its closure, its stack and its job stay where they are and are
    // never touched again, since nobody resumes that stack. The outermost context is always there.
    let spawned = unsafe {
        task::spawn(
            runtime.root(),
            JobOptions::new().label("main"),
            runtime.inner().pool(),
            RawContext::outermost(),
            crate::task::TaskStack::Default,
            |_| None,
            move || program(&own),
        )
    };
    match spawned {
        Ok(spawned) => JobHandle::new(spawned),
        Err(ended) => unreachable!("the root of a new tree: {ended}"),
    }
}

/// Makes a runtime the one that free functions find on this thread.
struct Known;

impl Known {
    fn new(runtime: &crate::Runtime) -> Known {
        SIMULATED.set(Some(runtime.clone()));
        Known
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        SIMULATED.set(None);
    }
}

/// The clock of a simulation, which also sees when it is over.
struct Clock {
    /// The job with whose end it is.
    until: Job,
    timers: Timers,
    time_per_step: Duration,
    last_steps: u64,
}

impl Clock {
    fn let_happen(&self, expiry: Expiry) {
        let now = self.timers.virtual_time().unwrap_or_default();
        note(&format!("a timer at {now:?}"));
        expiry.happen();
    }
}

impl World for Clock {
    fn is_over(&mut self) -> bool {
        self.until.is_ended()
    }

    fn is_due(&mut self, steps: u64) -> bool {
        let passed = steps.saturating_sub(self.last_steps);
        self.last_steps = steps;
        if !self.time_per_step.is_zero() {
            let passed = u32::try_from(passed).unwrap_or(u32::MAX);
            self.timers
                .pass_time(self.time_per_step.saturating_mul(passed));
        }
        self.timers.seems_due()
    }

    fn happen(&mut self) {
        if let Some(expiry) = self.timers.take_due() {
            self.let_happen(expiry);
        }
    }

    fn advance(&mut self) -> bool {
        let next = self.timers.take_due().or_else(|| self.timers.jump());
        next.map(|expiry| self.let_happen(expiry)).is_some()
    }
}

impl Builder {
    /// How many logical workers: 4 without it. With one, only waiting and yielding change the order.
    pub fn workers(mut self, workers: usize) -> Builder {
        self.runtime.options.workers = workers;
        self
    }

    /// After how many steps the program counts as one that does not end: 10 million without it.
    pub fn max_steps(mut self, steps: u64) -> Builder {
        self.runtime.max_steps = steps;
        self
    }

    /// How much time a step takes: none without it. With it, deadlines also come while there is something to do.
    pub fn time_per_step(mut self, time: Duration) -> Builder {
        self.runtime.time_per_step = time;
        self
    }

    /// Bytes of each stack: 2 MiB without it.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.runtime.options.stack_size = bytes;
        self
    }

    /// Writes down what happens: [`Report::trace`].
    pub fn record_trace(mut self) -> Builder {
        self.runtime.options.keeps_trace = true;
        self
    }

    /// The simulation. Whether it can be run, [`Runtime::run`] tells.
    pub fn build(self) -> Runtime {
        self.runtime
    }
}
