//! Runs loom models: each must hold, and must fail without any of the steps that it is there to defend.
//!
//! A model that passes may be one that checks nothing. So a model names the fences, orders and checks that it needs
//! ([`Step`]); it is run once with all of them and once without each. The latter run must end with the kind of
//! [`Failure`] named beside the step. Any other end is an error of the model: in particular a limit of loom
//! (branches, threads, the history of an atomic), which says nothing about the code.
//!
//! loom bounds the number of times that a running thread is preempted. Each model names the bound with which it takes
//! seconds. `LOOM_MAX_PREEMPTIONS` can raise it for a longer run, by one and no more: one preemption more takes about
//! ten times as long.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Instant;

/// A fence, order, check or call without which a protocol is wrong, and which a model can leave out.
pub trait Step: Copy + fmt::Debug + PartialEq + 'static {
    /// Leaves out `step`, and nothing else, from now on, in all code that the calling thread runs. loom runs all
    /// threads of a model on the thread that checks it.
    fn leave_out(step: Option<Self>);
}

/// The ways in which a model can fail that say something about the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// All threads that are left wait for each other.
    Deadlock,
    /// Two threads access the same memory, and nothing orders the accesses.
    Race,
    /// loom's memory or reference count was not given back at the end.
    Leak,
    /// An assertion of the model does not hold.
    Assertion,
    /// An assertion inside the code under test does not hold.
    Invariant,
}

/// The first panic of a run.
#[derive(Clone, Debug)]
pub struct Panicked {
    /// The panic's message.
    pub message: String,
    /// The source file of the panic.
    pub file: String,
    /// The line of the panic in that file.
    pub line: u32,
}

impl Panicked {
    /// Returns the kind of failure, or `None` if the panic says nothing about the code: a limit of loom or an error
    /// inside of it.
    pub fn failure(&self) -> Option<Failure> {
        if self.is_in_model() {
            return Some(Failure::Assertion);
        }
        if self.file.starts_with("crates/") {
            return Some(Failure::Invariant);
        }
        if self.message.starts_with("deadlock;") {
            Some(Failure::Deadlock)
        } else if self.message.contains("Causality violation") {
            Some(Failure::Race)
        } else if self.message.contains("leaked.") {
            Some(Failure::Leak)
        } else {
            None
        }
    }

    fn is_in_model(&self) -> bool {
        self.file.starts_with("crates/")
            && (self.file.ends_with("models.rs") || self.file.ends_with("modelling.rs"))
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Asserts what a model claims.
#[track_caller]
pub fn claim(holds: bool, what: &str) {
    assert!(holds, "the model's claim is wrong: {what}");
}

/// A small program, and what it shows.
pub struct Model<S: 'static> {
    /// The name to print.
    pub name: &'static str,
    /// The number of times that a running thread is preempted in a quick run; `None` is without a bound.
    pub preemptions: Option<usize>,
    /// The steps that the model does not hold without, and how it fails then.
    pub needs: &'static [(S, Failure)],
    /// The program. loom runs it once for each order of events.
    pub body: fn(),
}

/// More than any run of ours takes: a model that reaches it spins.
const MAX_BRANCHES: usize = 20_000;

impl<S: Step> Model<S> {
    /// Checks that the model holds, and that it fails as stated without each of its steps.
    pub fn check(&self) {
        let (runs, seconds) = self.measure(self.bound());
        eprintln!("{}: holds ({runs} runs, {seconds:.2} s)", self.name);
        let mut others = Vec::new();
        for (step, expected) in self.needs {
            let (panicked, runs, seconds) = self.fail_without(*step);
            let name = self.name;
            let seen = panicked.failure();
            if seen == Some(*expected) {
                eprintln!("{name} without {step:?}: {expected:?} ({runs} runs, {seconds:.2} s)");
            } else {
                others.push(format!(
                    "without {step:?} it should end in {expected:?}, but ended in {seen:?}: {panicked}"
                ));
            }
        }
        assert!(others.is_empty(), "{}: {}", self.name, others.join("\n"));
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
        let runs = Arc::new(AtomicUsize::new(0));
        self.explore(bound, &runs);
        (runs.load(Ordering::Relaxed), began.elapsed().as_secs_f64())
    }

    fn explore(&self, bound: Option<usize>, runs: &Arc<AtomicUsize>) {
        let (body, runs) = (self.body, Arc::clone(runs));
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = bound;
        builder.max_branches = MAX_BRANCHES;
        builder.check(move || {
            runs.fetch_add(1, Ordering::Relaxed);
            FIRST_PANIC.set(None);
            body();
        });
    }

    /// Searches for a failure with ever more preemptions, as most are found with few.
    fn fail_without(&self, step: S) -> (Panicked, usize, f64) {
        let began = Instant::now();
        let runs = Arc::new(AtomicUsize::new(0));
        let last = self.bound();
        let quick = (0..last.unwrap_or(4)).map(Some);
        for bound in quick.chain([last]) {
            S::leave_out(Some(step));
            let panicked = first_panic_of(|| self.explore(bound, &runs));
            S::leave_out(None);
            if let Some(panicked) = panicked {
                let runs = runs.load(Ordering::Relaxed);
                return (panicked, runs, began.elapsed().as_secs_f64());
            }
        }
        panic!("{} does not notice that {step:?} is missing", self.name);
    }
}

/// Checks a model that is written where it is tested, and named after its test.
pub fn check<S: Step>(preemptions: usize, needs: &'static [(S, Failure)], body: fn()) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a model").to_owned();
    Model {
        // A few words for each test of a process that ends soon.
        name: Box::leak(name.into_boxed_str()),
        preemptions: Some(preemptions),
        needs,
        body,
    }
    .check();
}

/// The threads of a model beside the one that it begins on.
///
/// Not loom's join handles: those print a line whenever they are used (0.7.2), which fills the memory of a test in a long
/// run, and fail if the thread that joins is unparked meanwhile.
pub struct Crew {
    at_work: Arc<loom::sync::atomic::AtomicUsize>,
    main: loom::thread::Thread,
}

impl Crew {
    /// For the calling thread.
    #[expect(
        clippy::new_without_default,
        reason = "loom's words cannot be made anywhere"
    )]
    pub fn new() -> Crew {
        Crew {
            at_work: Arc::new(loom::sync::atomic::AtomicUsize::new(0)),
            main: loom::thread::current(),
        }
    }

    /// Has `body` run by another thread.
    pub fn spawn(&self, body: impl FnOnce() + 'static) {
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
    pub fn wait(self) {
        // A read that writes sees the newest value: nothing for loom to try out.
        while self.at_work.fetch_add(0, Ordering::AcqRel) != 0 {
            loom::thread::park();
        }
    }
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    /// The first panic in the current order of events.
    static FIRST_PANIC: RefCell<Option<Panicked>> = const { RefCell::new(None) };
}

/// Runs `model`, prints none of its panics, and returns the first one of the run that failed: later ones come from
/// destructors that run because of it.
fn first_panic_of(model: impl FnOnce()) -> Option<Panicked> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud: Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync> = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                return loud(info);
            }
            // loom's threads that are not run to their end unwind without a message; that is no failure.
            let Some(message) = info.payload_as_str() else {
                return;
            };
            let location = info.location();
            FIRST_PANIC.with_borrow_mut(|first| {
                first.get_or_insert_with(|| Panicked {
                    message: message.to_owned(),
                    file: location.map_or(String::new(), |at| at.file().to_owned()),
                    line: location.map_or(0, panic::Location::line),
                });
            });
        }));
    });
    IS_QUIET.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(model));
    IS_QUIET.set(false);
    let first = FIRST_PANIC.take();
    result.is_err().then(|| {
        first.unwrap_or_else(|| Panicked {
            message: "unwound without a panic".to_owned(),
            file: String::new(),
            line: 0,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    /// The steps of a model without any step to leave out.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Nothing {}

    impl Step for Nothing {
        fn leave_out(_: Option<Nothing>) {}
    }

    fn failure_of(body: fn()) -> (Option<Failure>, Panicked) {
        let model = Model::<Nothing> {
            name: "one that fails",
            preemptions: Some(2),
            needs: &[],
            body,
        };
        let runs = Arc::new(AtomicUsize::new(0));
        let panicked = first_panic_of(|| model.explore(model.preemptions, &runs));
        let panicked = panicked.expect("it fails");
        (panicked.failure(), panicked)
    }

    #[test]
    fn loom_failures_are_told_apart() {
        let (deadlock, _) = failure_of(loom::thread::park);
        assert_eq!(deadlock, Some(Failure::Deadlock));
        let (race, _) = failure_of(|| {
            let cell = Arc::new(loom::cell::UnsafeCell::new(0));
            let other = Arc::clone(&cell);
            thread::spawn(move || other.with_mut(|_| ()));
            cell.with_mut(|_| ());
        });
        assert_eq!(race, Some(Failure::Race));
        let (leak, _) = failure_of(|| std::mem::forget(loom::sync::Arc::new(0)));
        assert_eq!(leak, Some(Failure::Leak));
        let (assertion, _) = failure_of(|| claim(false, "this one"));
        assert_eq!(assertion, Some(Failure::Assertion));
    }

    #[test]
    fn loom_limits_of_loom_are_no_failure_of_the_code() {
        let (none, panicked) = failure_of(|| {
            let never = AtomicBool::new(false);
            while !never.load(loom::sync::atomic::Ordering::Relaxed) {
                thread::yield_now();
            }
        });
        assert_eq!(none, None, "{panicked}");
        assert!(panicked.message.contains("number of branches"));
        let (none, panicked) = failure_of(|| {
            for _ in 0..8 {
                thread::spawn(|| ());
            }
        });
        assert_eq!(none, None, "{panicked}");
    }
}
