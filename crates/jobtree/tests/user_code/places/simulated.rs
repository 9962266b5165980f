//! Simulations: the program, its jobs, and what the simulated clock calls.

use std::sync::Arc;
use std::time::Duration;

use jobtree::sim::{self, Report};
use jobtree::{BoxError, Job, Runtime, checkpoint, future, nursery, sleep, with_timeout};

use crate::behaviour::Behaviour;
use crate::place::{Outcome, Place, Rule};
use crate::stage::Stage;

use Behaviour::*;

/// What a simulation cannot do: it has one thread, and a clock that only goes on when all wait.
const OF_OTHERS: Rule = (
    &[Receive, Latch, JoinOther, Dispatch, Hold],
    Outcome::NotApplicable("waits for another thread, which a simulation reports as a deadlock"),
);

/// The thread of the simulation calls these, and it cannot wait.
const BY_CLOCK: Rule = (
    Behaviour::WAITS,
    Outcome::EndsOrRefused("can neither fork nor wait"),
);

/// A refusal is a panic, and one that leaves a destructor while its thread unwinds ends the process.
const BY_CLOCK_UNWINDING: Rule = (
    &[PanicFork],
    Outcome::AbortedByStd("can neither fork nor wait"),
);

pub const PLACES: &[Place] = &[
    Place::new("sim/program", program).with(&[OF_OTHERS]),
    Place::new("sim/job", job).with(&[OF_OTHERS]),
    Place::new("sim/future", eventual).with(&[OF_OTHERS]),
    Place::new("sim/cancel-callback-by-clock", callback_by_clock).with(&[
        OF_OTHERS,
        BY_CLOCK_UNWINDING,
        BY_CLOCK,
    ]),
    Place::new("sim/cancel-callback-at-end", callback_at_end).with(&[
        OF_OTHERS,
        BY_CLOCK_UNWINDING,
        BY_CLOCK,
    ]),
    Place::new("sim/waker-by-clock", waker_by_clock).with(&[
        OF_OTHERS,
        BY_CLOCK_UNWINDING,
        BY_CLOCK,
    ]),
    Place::new("sim/dropped-value", dropped_value).with(&[OF_OTHERS]),
    Place::new("sim/dropped-at-deadlock", dropped_at_deadlock).with(&[OF_OTHERS]),
    Place::new("sim/dropped-at-limit", dropped_at_limit).with(&[OF_OTHERS]),
    Place::new("sim/check-program", check_program).with(&[OF_OTHERS]),
];

/// Runs a program in a simulation; a panic of user code is a failed report, or comes out of the run.
fn simulate<T: Send>(
    stage: &Arc<Stage>,
    program: impl FnOnce(&Runtime) -> Result<T, BoxError> + Send,
) {
    let simulation = sim::Runtime::builder(7).workers(stage.workers).build();
    let report: Option<Report<T>> = stage.contain(|| {
        simulation.run(|runtime| {
            stage.simulate_with(runtime);
            program(runtime)
        })
    });
    stage.end_simulation();
    if let Some(report) = report
        && let Err(error) = &report.outcome
    {
        let is_expected = stage.behaviour.panics() || stage.behaviour.cancels();
        assert!(
            is_expected || stage.behaviour == Leak,
            "the simulation failed: {error}"
        );
    }
    stage.until_acted();
}

fn program(stage: &Arc<Stage>) {
    simulate(stage, |_| Ok(stage.act()));
}

fn job(stage: &Arc<Stage>) {
    simulate(stage, |runtime| {
        let user = stage.clone();
        Ok(drop(runtime.spawn(move || Ok(user.act())).join()))
    });
}

fn eventual(stage: &Arc<Stage>) {
    simulate(stage, |runtime| {
        let user = stage.clone();
        let handle = runtime.spawn_future(async move {
            future::sleep(Duration::from_secs(3600)).await?;
            Ok(user.act())
        });
        Ok(drop(handle.join()))
    });
}

fn callback_by_clock(stage: &Arc<Stage>) {
    simulate(stage, |_| {
        let limited = with_timeout(Duration::from_secs(3600), || {
            let user = stage.clone();
            let callback = Job::current().unwrap().on_cancel(move |_| user.act());
            let slept = sleep(Duration::MAX);
            std::mem::forget(callback);
            Ok(slept?)
        });
        Ok(assert!(limited.is_err()))
    });
}

fn callback_at_end(stage: &Arc<Stage>) {
    simulate(stage, |runtime| {
        let user = stage.clone();
        drop(runtime.spawn(move || {
            let callback = Job::current().unwrap().on_cancel(move |_| user.act());
            let slept = sleep(Duration::MAX);
            std::mem::forget(callback);
            Ok(slept?)
        }));
        Ok(sleep(Duration::from_secs(1))?)
    });
}

struct Waking(Arc<Stage>);

impl std::task::Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.0.act();
    }
}

fn waker_by_clock(stage: &Arc<Stage>) {
    simulate(stage, |_| {
        let waker = std::task::Waker::from(Arc::new(Waking(stage.clone())));
        let mut sleeping = Box::pin(future::sleep(Duration::from_secs(5)));
        let mut context = std::task::Context::from_waker(&waker);
        assert!(sleeping.as_mut().poll(&mut context).is_pending());
        let slept = sleep(Duration::from_secs(10));
        drop(sleeping);
        Ok(slept?)
    });
}

fn dropped_value(stage: &Arc<Stage>) {
    simulate(stage, |_| {
        let outcome = nursery(|n| {
            drop(n.spawn(|| {
                sleep(Duration::from_secs(1))?;
                Ok(stage.on_drop())
            }));
            Ok(())
        });
        Ok(drop(outcome))
    });
}

fn dropped_at_deadlock(stage: &Arc<Stage>) {
    let simulation = sim::Runtime::builder(7).workers(stage.workers).build();
    let report = stage.contain(|| {
        simulation.run(|runtime| {
            stage.simulate_with(runtime);
            let _value = stage.on_drop();
            Ok(sleep(Duration::MAX)?)
        })
    });
    stage.end_simulation();
    assert!(report.is_none_or(|report| report.outcome.is_err()));
    stage.until_acted();
}

fn dropped_at_limit(stage: &Arc<Stage>) {
    let simulation = sim::Runtime::builder(7).workers(stage.workers);
    // Fewer steps than the destructor may need.
    let simulation = simulation.max_steps(20).build();
    let report = stage.contain(|| {
        simulation.run(|runtime| -> Result<(), _> {
            stage.simulate_with(runtime);
            let _value = stage.on_drop();
            loop {
                checkpoint()?;
            }
        })
    });
    stage.end_simulation();
    assert!(report.is_none_or(|report| report.outcome.is_err()));
    stage.until_acted();
}

fn check_program(stage: &Arc<Stage>) {
    let user = stage.clone();
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        sim::check(0..3, |runtime| {
            user.simulate_with(runtime);
            Ok(user.act())
        });
    }));
    stage.end_simulation();
    let may_fail = stage.behaviour.panics() || stage.behaviour.cancels() || stage.behaviour == Leak;
    assert!(checked.is_ok() || may_fail, "the check failed");
    std::mem::forget(checked);
    stage.until_acted();
}
