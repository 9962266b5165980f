//! How the loom models of this crate are run: each must hold, and must fail without any of the steps
//! that it is there to defend.
//!
//! A model that passes may be one that looks at nothing. So a model names the fences, orders and checks
//! that it needs ([`Step`]); it is run once with all of them and once without each, and the latter run
//! must end with the kind of failure named beside the step. A test below sees to it that every step has
//! a model.
//!
//! loom bounds the number of times that a running thread is interrupted. Each model names the bound with
//! which it takes seconds. `LOOM_MAX_PREEMPTIONS` can raise it for a longer run, by one and no more: that
//! takes ten times as long, and one more a hundred times.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Instant;

use crate::pool::shared::{Handlers, Shared};
use crate::sleep::{Sleep, SpinMemory};
use crate::strand::Strand;
use crate::sync::Futex;
use crate::sync::step::{self, Step};

/// What a model must come to when one of its steps is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Threads sleep that nobody will wake.
    Deadlock,
    /// Two threads touch the same memory with nothing that orders them.
    Race,
    /// The model's own assertion does not hold.
    Assertion,
}

impl Failure {
    fn of(message: &str) -> Option<Failure> {
        if message.starts_with("deadlock;") {
            Some(Failure::Deadlock)
        } else if message.contains("Causality violation") {
            Some(Failure::Race)
        } else if message.starts_with(CLAIM) {
            Some(Failure::Assertion)
        } else {
            None
        }
    }
}

const CLAIM: &str = "the model's claim is wrong: ";

/// Asserts what a model claims; loom's own assertions (of its limits, say) are told apart from these.
#[track_caller]
pub(crate) fn claim(holds: bool, what: &str) {
    assert!(holds, "{CLAIM}{what}");
}

/// A small program, and what it shows.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    /// Interruptions of a running thread in a quick run; `None` is all of them.
    pub(crate) preemptions: Option<usize>,
    /// The steps that it does not hold without, and how it fails then.
    pub(crate) needs: &'static [(Step, Failure)],
    pub(crate) body: fn(),
}

impl Model {
    /// Checks that the model holds, and that it does not without each of its steps.
    pub(crate) fn check(&self) {
        let (runs, seconds) = self.measure(self.bound());
        eprintln!("{}: holds ({runs} runs, {seconds:.2} s)", self.name);
        for (step, expected) in self.needs {
            let (message, runs, seconds) = self.fail_without(*step);
            let name = self.name;
            assert!(
                Failure::of(&message) == Some(*expected),
                "{name} without {step:?} should end in {expected:?}, but: {message}"
            );
            eprintln!("{name} without {step:?}: {expected:?} ({runs} runs, {seconds:.2} s)");
        }
    }

    fn bound(&self) -> Option<usize> {
        let asked = std::env::var("LOOM_MAX_PREEMPTIONS").ok();
        let asked = asked.map(|asked| {
            asked
                .parse::<usize>()
                .expect("LOOM_MAX_PREEMPTIONS must be a number")
        });
        self.preemptions
            .map(|own| asked.unwrap_or(own).clamp(own, own + 1))
    }

    fn measure(&self, bound: Option<usize>) -> (usize, f64) {
        let began = Instant::now();
        let runs = &*Box::leak(Box::new(AtomicUsize::new(0)));
        let body = self.body;
        self.explore(bound, move || {
            runs.fetch_add(1, Ordering::Relaxed);
            body();
        });
        (runs.load(Ordering::Relaxed), began.elapsed().as_secs_f64())
    }

    fn explore(&self, bound: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = bound;
        builder.check(body);
    }

    /// Looks for a failure with ever more interruptions, as most are found with few.
    fn fail_without(&self, step: Step) -> (String, usize, f64) {
        let began = Instant::now();
        let runs = &*Box::leak(Box::new(AtomicUsize::new(0)));
        let last = self.bound();
        let quick = (0..last.unwrap_or(4)).map(Some);
        for bound in quick.chain([last]) {
            let body = self.body;
            let result = quietly(|| {
                step::without(step, || {
                    self.explore(bound, move || {
                        runs.fetch_add(1, Ordering::Relaxed);
                        body();
                    })
                })
            });
            if let Err(message) = result {
                let runs = runs.load(Ordering::Relaxed);
                return (message, runs, began.elapsed().as_secs_f64());
            }
        }
        panic!("{} does not notice that {step:?} is missing", self.name);
    }
}

/// Runs `model`, and returns the message of its panic instead of printing it.
fn quietly(model: impl FnOnce()) -> Result<(), String> {
    thread_local! {
        static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud: Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync> = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // loom runs all threads of a model on the one that checks it.
            if !IS_QUIET.get() {
                loud(info);
            }
        }));
    });
    IS_QUIET.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(model));
    IS_QUIET.set(false);
    result.map_err(|payload| {
        if let Some(message) = payload.downcast_ref::<String>() {
            message.clone()
        } else if let Some(message) = payload.downcast_ref::<&str>() {
            (*message).to_owned()
        } else {
            "a panic without a message".to_owned()
        }
    })
}

/// The threads of a model beside the one that it begins on.
///
/// Not loom's join handles: those print a line whenever they are used (0.7.2), which fills the memory of
/// a test in a long run.
pub(crate) struct Crew {
    at_work: Arc<loom::sync::atomic::AtomicUsize>,
    main: loom::thread::Thread,
}

impl Crew {
    pub(crate) fn new() -> Crew {
        Crew {
            at_work: Arc::new(loom::sync::atomic::AtomicUsize::new(0)),
            main: loom::thread::current(),
        }
    }

    /// Has `body` run by another thread.
    pub(crate) fn spawn(&self, body: impl FnOnce() + 'static) {
        self.at_work.fetch_add(1, Ordering::Relaxed);
        let (at_work, main) = (self.at_work.clone(), self.main.clone());
        loom::thread::spawn(move || {
            body();
            if at_work.fetch_sub(1, Ordering::AcqRel) == 1 {
                main.unpark();
            }
        });
    }

    /// Waits until all have ended.
    pub(crate) fn wait(self) {
        // A read that writes sees the newest value: nothing for loom to try out.
        while self.at_work.fetch_add(0, Ordering::AcqRel) != 0 {
            loom::thread::park();
        }
    }
}

/// What the threads of a pool with this many workers share, when it has been at work: the event counter
/// says that nobody is sleepy. (In the state it is made in, a post changes the counter anyway.)
pub(crate) fn pool(workers: usize) -> Arc<Shared> {
    let shared = Shared::new(workers, 1, 0, Handlers::default());
    shared.sleep.new_work();
    Arc::new(shared)
}

/// A strand of a worker of `pool`, to be dropped before it.
pub(crate) fn strand(pool: &Arc<Shared>, worker: usize) -> Box<Strand> {
    // SAFETY: freshly made by `Box::into_raw`, and not given to the pool to keep.
    unsafe { Box::from_raw(Strand::allocate(pool, worker, 1).cast::<Strand>()) }
}

/// Finds work as a worker does: looks, announces itself, looks, sleeps; at last leaves the search and
/// wakes another if it is the last to search and `sees_more`.
pub(crate) fn find_work<T>(
    sleep: &Sleep,
    worker: usize,
    mut look: impl FnMut() -> Option<T>,
    sees_more: impl FnOnce() -> bool,
) -> T {
    let memory = SpinMemory::new();
    let mut searching = sleep.start_searching(worker, &memory);
    let found = loop {
        if let Some(found) = look() {
            break found;
        }
        sleep.no_work_found(&mut searching, None);
    };
    if sleep.work_found(searching, &memory) && sees_more() {
        sleep.wake_one_sleeper();
    }
    found
}

/// Lets two threads go on when both have come.
pub(crate) struct Meeting(Futex);

impl Meeting {
    pub(crate) fn new() -> Meeting {
        Meeting(Futex::new(0))
    }

    /// Returns when the other one has come too.
    pub(crate) fn arrive(&self) {
        if self.0.word().fetch_add(1, Ordering::AcqRel) == 1 {
            Futex::wake_one(&self.0);
        } else {
            // The futex returns early only in other places than a model.
            self.0.wait(1);
        }
    }
}

/// A value that is handed from one thread to another: loom sees to it that they do not meet.
pub(crate) struct Parcel(loom::cell::UnsafeCell<u32>);

const EMPTY: u32 = 0;
const FILLED: u32 = 1;
const OPENED: u32 = 2;

// SAFETY: loom's cell tells of every access that is not ordered with the others.
unsafe impl Sync for Parcel {}

impl Parcel {
    pub(crate) fn new() -> Parcel {
        Parcel(loom::cell::UnsafeCell::new(EMPTY))
    }

    /// Done by the sender, before the parcel goes out.
    pub(crate) fn fill(&self) {
        self.replace(EMPTY, FILLED, "a parcel is sent once");
    }

    /// Done by whoever gets it.
    pub(crate) fn open(&self) {
        self.replace(FILLED, OPENED, "a parcel comes filled, and is opened once");
    }

    /// Whether it has been opened, by somebody who is done with it.
    pub(crate) fn is_opened(&self) -> bool {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.0.with(|state| unsafe { *state == OPENED })
    }

    #[track_caller]
    fn replace(&self, expected: u32, state: u32, why: &str) {
        // SAFETY: loom checks that nobody else is there.
        let before = self
            .0
            .with_mut(|cell| unsafe { std::mem::replace(&mut *cell, state) });
        claim(before == expected, why);
    }
}

#[test]
fn loom_every_step_has_a_model() {
    let models = [
        crate::deque::models::MODELS,
        crate::latch::models::MODELS,
        crate::sleep::models::MODELS,
        crate::handoff_models::MODELS,
        crate::stop::models::MODELS,
        crate::requeued::models::MODELS,
        crate::strand_models::MODELS,
    ];
    for step in Step::ALL {
        let mut needs = models
            .iter()
            .copied()
            .flatten()
            .flat_map(|model| model.needs);
        assert!(
            needs.any(|(needed, _)| needed == step),
            "no model needs {step:?}"
        );
    }
}
