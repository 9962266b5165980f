//! Beside tokio: futures that are polled and dropped inside a runtime of tokio's, and jobs that its tasks await.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use jobtree::future;
use jobtree::tokio::{block_on, compute, inside};

use crate::behaviour::Behaviour;
use crate::place::{Outcome, Place, Rule};
use crate::stage::{OnDrop, Stage};

/// Nothing else has the thread during a poll.
const NEVER_BLOCKS: Rule = (
    &[Behaviour::PanicWait, Behaviour::JoinSame],
    Outcome::NotApplicable(
        "what is polled inside never blocks on a job that only its own thread could run",
    ),
);

/// The global runtime is not for cells to cancel.
const IN_GLOBAL_RUNTIME: Rule = (
    &[Behaviour::CancelParent],
    Outcome::NotApplicable("the job's parent is the root of the global runtime"),
);

pub const PLACES: &[Place] = &[
    Place::new("tokio/block-on", of_block_on).with(&[NEVER_BLOCKS]),
    Place::new("tokio/block-on-outside", of_block_on_outside),
    Place::new("tokio/inside", of_inside).with(&[NEVER_BLOCKS]),
    Place::new("tokio/inside-task", of_inside_task),
    Place::new("tokio/dropped-inside", dropped_inside),
    Place::new("tokio/compute", of_compute).with(&[IN_GLOBAL_RUNTIME]),
    Place::new("tokio/dropped-compute", dropped_compute),
];

static TOKIO: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_time().build().unwrap()
});

fn of_block_on(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || Ok(block_on(TOKIO.handle(), async { user.act() })?));
    stage.check_body(handle.join());
}

fn of_block_on_outside(stage: &Arc<Stage>) {
    stage.propagates(|| drop(block_on(TOKIO.handle(), async { stage.act() })));
}

fn of_inside(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    let user = stage.clone();
    let future = inside(TOKIO.handle(), async move {
        future::yield_now().await;
        Ok(user.act())
    });
    let handle = runtime.spawn_future(future);
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    stage.check_body(handle.join());
}

/// The other way round: a task of tokio's polls it.
fn of_inside_task(stage: &Arc<Stage>) {
    let user = stage.clone();
    stage.is_alone();
    let task = TOKIO.spawn(inside(TOKIO.handle(), async move { user.act() }));
    let ended = TOKIO.block_on(task);
    assert_eq!(ended.is_err(), stage.behaviour.panics());
    std::mem::forget(ended);
}

/// A future that is never ready, and whose destructor is user code.
struct Pending(#[expect(dead_code, reason = "it is dropped")] OnDrop);

impl Future for Pending {
    type Output = Result<(), jobtree::BoxError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Pending
    }
}

fn dropped_inside(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    let handle = runtime.spawn_future(inside(TOKIO.handle(), Pending(stage.on_drop())));
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    handle.cancel("the program");
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn of_compute(stage: &Arc<Stage>) {
    // In the global runtime; so what is dropped and shut down is not what it runs on.
    let user = stage.clone();
    stage.is_alone();
    let computed = TOKIO.block_on(async { compute(move || Ok(user.act())).await });
    stage.check_body(computed);
}

fn dropped_compute(stage: &Arc<Stage>) {
    let value = stage.on_drop();
    stage.is_alone();
    TOKIO.block_on(async {
        let computing = compute(move || Ok(value));
        stage.contain(|| drop(computing));
    });
    stage.until_acted();
}
