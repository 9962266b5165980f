//! Handlers that decide about budgets.

use std::sync::Arc;

use jobtree::budget::{Budget, Decision};
use jobtree::{Profile, Runtime, nursery, tick};

use crate::behaviour::Behaviour;
use crate::place::{Outcome, Place, Rule};
use crate::stage::Stage;

/// A handler of a nursery has the limits of the job that set it, and its profile refuses tasks that belong to no job.
const HAS_LIMITS: Rule = (
    &[Behaviour::Spawn, Behaviour::SpawnMany],
    Outcome::EndsOrRefused("a task that belongs to no job has no supervisor"),
);

pub const PLACES: &[Place] = &[
    Place::new("budget/handler-of-runtime", handler_of_runtime),
    Place::new("budget/handler-of-nursery", handler_of_nursery).with(&[HAS_LIMITS]),
    Place::new("budget/captured-by-handler", captured_by_handler),
];

/// More than a job has, and less than it has with one recharge.
const TICKS: usize = 12_000;

fn recharge() -> Decision {
    Decision::Recharge(Budget {
        ops: 5_000,
        ..Budget::NONE
    })
}

fn ticks() {
    (0..TICKS).for_each(|_| tick());
}

fn handler_of_runtime(stage: &Arc<Stage>) {
    let user = stage.clone();
    let builder = Runtime::builder()
        .workers(stage.workers)
        .profile(Profile::Cluster)
        .root_budget(Budget {
            ops: TICKS as u64 - 2_000,
            ..Budget::CLUSTER
        });
    let runtime = stage.runtime_of(builder.supervise_budgets(move |_| {
        user.act();
        recharge()
    }));
    stage.has_limits();
    let handle = runtime.spawn(|| Ok(ticks()));
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    // A handler that panics does not decide; the job may end cancelled, or by the panic, but it ends.
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn handler_of_nursery(stage: &Arc<Stage>) {
    let user = stage.clone();
    let builder = Runtime::builder()
        .workers(stage.workers)
        .profile(Profile::Cluster);
    let runtime = stage.runtime_of(builder);
    stage.has_limits();
    let handle = runtime.spawn(move || {
        nursery(|n| {
            n.supervise_budgets(move |_| {
                user.act();
                recharge()
            });
            Ok(n.spawn(|| Ok(ticks())).join()?)
        })?;
        Ok(())
    });
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn captured_by_handler(stage: &Arc<Stage>) {
    let value = stage.on_drop();
    let builder = Runtime::builder()
        .workers(stage.workers)
        .profile(Profile::Cluster);
    let runtime = builder.supervise_budgets(move |_| {
        let _ = &value;
        recharge()
    });
    let runtime = runtime.build().unwrap();
    runtime.spawn(|| Ok(())).join().unwrap();
    stage.contain(|| drop(runtime));
    stage.until_acted();
}
