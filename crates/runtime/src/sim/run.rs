//! One run: a program, a seed, and the clock between them.

use std::any::Any;
use std::time::Duration;

use jobtree_base::user_code::{self, CaughtPanic};
use jobtree_pool::raw::sim::{
    Pause, SimulatedPool, SimulationError, SimulationOptions, World, is_simulated, note,
};
use jobtree_pool::raw::task::RawContext;
use jobtree_tree::{BoxError, Job, JobOptions};

use super::SIMULATED;
use super::course::Course;
use super::error::SimError;
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
    pub(super) options: SimulationOptions,
    pub(super) max_steps: u64,
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

    /// Runs `program` with a new, simulated runtime, and returns when everything that it started has ended. What it leaves
    /// running is cancelled, and unwound if that is not enough.
    ///
    /// The program is a job itself, but none of the runtime that it is given, which it can shut down.
    ///
    /// The program runs on a thread of its own, so that it finds all thread locals as new.
    ///
    /// The program may borrow from the caller, and return what it has borrowed:
    ///
    /// ```
    /// use jobtree_runtime::{nursery, sim};
    ///
    /// let words = vec!["one".to_owned(), "two".to_owned()];
    /// let report = sim::Runtime::new(1).run(|_| {
    ///     let longest = nursery(|n| Ok(n.spawn(|| Ok(words.iter().max_by_key(|word| word.len()))).join()?))?;
    ///     Ok(longest)
    /// });
    /// assert_eq!(report.outcome.unwrap(), Some(&words[1]));
    /// ```
    ///
    /// What may live longer than the run cannot borrow, such as a job that belongs to no scope, or a task of another pool:
    ///
    /// ```compile_fail,E0373
    /// use jobtree_runtime::sim;
    ///
    /// let words = vec!["one".to_owned()];
    /// sim::Runtime::new(1).run(|rt| {
    ///     rt.spawn(|| Ok(words.len()));
    ///     Ok(())
    /// });
    /// ```
    ///
    /// ```compile_fail,E0373
    /// use jobtree_pool::Pool;
    /// use jobtree_runtime::sim;
    ///
    /// let words = vec!["one".to_owned()];
    /// sim::Runtime::new(1).run(|_| {
    ///     Pool::global().spawn(|| assert_eq!(words.len(), 1));
    ///     Ok(())
    /// });
    /// ```
    ///
    /// Nor can the program return what is only lent to it, or is its own:
    ///
    /// ```compile_fail
    /// use jobtree_runtime::sim;
    ///
    /// let runtime = sim::Runtime::new(1).run(|rt| Ok(rt)).outcome.unwrap();
    /// ```
    ///
    /// ```compile_fail,E0515
    /// use jobtree_runtime::sim;
    ///
    /// let report = sim::Runtime::new(1).run(|_| {
    ///     let words = vec!["one".to_owned()];
    ///     Ok(&words[0])
    /// });
    /// ```
    ///
    /// And it runs on another thread, so what it borrows can be shared with one:
    ///
    /// ```compile_fail,E0277
    /// use jobtree_runtime::sim;
    ///
    /// let count = std::cell::Cell::new(0);
    /// sim::Runtime::new(1).run(|_| Ok(count.set(1)));
    /// ```
    ///
    /// # Aborts
    /// If something in the simulation can neither be cancelled nor unwound, since it may use what it borrows: see the
    /// [module](super#borrowing).
    ///
    /// # Panics
    /// If the destructor of a value that the program returned panics, when another failure takes its place; or if the
    /// system has no room for the simulation's thread. Nothing of the simulation is left then.
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
        let pool = match SimulatedPool::new(self.options) {
            Ok(pool) => pool,
            Err(error) => return self.failed(SimError::Unavailable(error)),
        };
        user_code::collect_panics_of_thread();
        let timers = Timers::virtual_ones();
        let numbers = Numbers::default();
        let new_tree =
            || crate::Runtime::simulated(pool.pool_ref(), timers.clone(), numbers.watcher());
        // The program is in a tree of its own, so that it can shut the runtime down that it is given.
        let trees = [new_tree(), new_tree()];
        let _known = Known::new(&trees[1]);
        // Roots have their numbers before what is under them.
        numbers.of(trees[0].root().id());
        // Before the program starts: whatever happens, it has ended when this is dropped.
        let mut course = Course {
            pool: Some(pool),
            clock: Clock {
                until: Vec::new(),
                timers: timers.clone(),
                time_per_step: self.time_per_step,
                last_steps: 0,
            },
            trees,
            numbers,
            simulation: self,
        };
        let [around, runtime] = &course.trees;
        let main = start(around, runtime.clone(), program);
        course.numbers.of(runtime.root().id());
        let pause = course.run_until(vec![main.job().clone()]);
        let outcome = match pause {
            Pause::Over => main.join().map_err(SimError::Failed),
            Pause::Stuck => Err(SimError::Stuck {
                jobs: course.alive(),
            }),
            Pause::Limit => Err(SimError::NoEnd {
                steps: course.pool().steps(),
                jobs: course.alive(),
            }),
        };
        // What is left, if only for its destructors, gets as much again, or more.
        course.close_trees();
        course.clean_up_until(course.roots().to_vec());
        let pool = course.pool();
        let mut report = Report {
            outcome,
            seed: self.options.seed,
            trace_hash: pool.hash(),
            steps: pool.steps(),
            elapsed: timers.virtual_time().unwrap_or_default(),
            trace: pool.take_trace().unwrap_or_default(),
        };
        let task_panic = first_message(pool.take_panics());
        let callback_panic = first_message(pool.take_callback_panics());
        let jobs = course.alive();
        let ended = course.end();
        let collected = user_code::take_collected_panics().into_iter();
        let callback_panic = callback_panic.or_else(|| first_of_callbacks(collected));
        let failure = match (ended, callback_panic, task_panic) {
            (Err(tasks), ..) => Some(SimError::LeftOver { jobs, tasks }),
            (Ok(()), Some(message), _) => Some(SimError::CallbackPanicked(message)),
            (Ok(()), None, message) => message.map(SimError::TaskPanicked),
        };
        if let (Ok(_), Some(failure)) = (&report.outcome, failure) {
            report.outcome = Err(failure);
        }
        report
    }
}

/// The message of the first of `panics`, which end here.
fn first_message(panics: Vec<Box<dyn Any + Send>>) -> Option<String> {
    let message = panics.first().map(|payload| message_of(&**payload));
    panics.into_iter().for_each(user_code::discard_payload);
    message
}

/// The message of the first panic of a callback that was caught where it was called. Destructors of values that the
/// program did not want are none.
fn first_of_callbacks(caught: impl Iterator<Item = CaughtPanic>) -> Option<String> {
    let mut callbacks = caught.filter(|panic| {
        use user_code::Place::{Callback, CancelCallback, Handler, Waker};
        matches!(panic.place, Waker | CancelCallback | Callback | Handler)
    });
    let first = callbacks.next()?;
    Some(first.message.unwrap_or_else(|| NO_MESSAGE.to_owned()))
}

const NO_MESSAGE: &str = "(no message)";

fn message_of(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| NO_MESSAGE.to_owned())
}

/// Starts the program as a job under the root of `around`; it is given `runtime`.
fn start<F, T>(around: &crate::Runtime, runtime: crate::Runtime, program: F) -> JobHandle<T>
where
    F: FnOnce(&crate::Runtime) -> Result<T, BoxError> + Send,
    T: Send,
{
    // SAFETY: what the program borrows is there until `Runtime::run` returns or unwinds. `Course` lets neither happen
    // before all stacks have ended, this job's among them; its value was taken or dropped by then, or is dropped with the
    // handle, before `simulate` returns. The outermost context is always there.
    let spawned = unsafe {
        task::spawn(
            around.root(),
            JobOptions::new().label("main"),
            around.inner().pool(),
            RawContext::outermost(),
            crate::task::TaskStack::Default,
            |_| None,
            move || program(&runtime),
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
pub(super) struct Clock {
    /// The jobs with whose end it is.
    pub(super) until: Vec<Job>,
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
        self.until.iter().all(Job::is_ended)
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

    /// After how many steps the program counts as one that does not end ([`SimError::NoEnd`]): 10 million without it. Ending
    /// what the program has left takes further steps, at most as many again or as the number of its tasks calls for.
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
