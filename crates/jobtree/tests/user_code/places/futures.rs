//! Futures: where they are polled, and where they are dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use jobtree::{BoxError, block_on, future, nursery, select, sleep};

use crate::place::{Place, SHIELDED};
use crate::stage::{OnDrop, Stage};

pub const PLACES: &[Place] = &[
    Place::new("future/poll-of-runtime-spawn", poll_of_runtime_spawn),
    Place::new("future/second-poll", second_poll),
    Place::new("future/poll-of-nursery-spawn", poll_of_nursery_spawn),
    Place::new(
        "future/poll-of-async-nursery-spawn",
        poll_of_async_nursery_spawn,
    ),
    Place::new("future/async-nursery-body", async_nursery_body),
    Place::new("future/poll-of-block-on", poll_of_block_on),
    Place::new("future/poll-of-runtime-block-on", poll_of_runtime_block_on),
    Place::new("future/poll-of-select", poll_of_select),
    Place::new("future/async-timeout-body", async_timeout_body),
    Place::new("future/async-shield-body", async_shield_body).with(&[SHIELDED]),
    Place::new("future/dropped-finished", dropped_finished),
    Place::new(
        "future/dropped-finished-detached",
        dropped_finished_detached,
    ),
    Place::new("future/dropped-cancelled", dropped_cancelled),
    Place::new(
        "future/dropped-cancelled-in-nursery",
        dropped_cancelled_in_nursery,
    ),
    Place::new("future/dropped-never-polled", dropped_never_polled),
    Place::new("future/dropped-by-timeout", dropped_by_timeout),
    Place::new("future/dropped-by-shutdown", dropped_by_shutdown),
    Place::new("future/dropped-by-select", dropped_by_select),
    Place::new("future/dropped-async-scope", dropped_async_scope),
    Place::new("future/dropped-kept-scope", dropped_kept_scope),
];

/// A future that is ready with its first poll, which is user code.
struct Polled(Arc<Stage>);

impl Future for Polled {
    type Output = Result<(), BoxError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.act();
        Poll::Ready(Ok(()))
    }
}

fn polled(stage: &Arc<Stage>) -> Polled {
    Polled(stage.clone())
}

fn spawn_future(
    stage: &Arc<Stage>,
    future: impl Future<Output = Result<(), BoxError>> + Send + 'static,
) {
    let runtime = stage.runtime();
    let handle = runtime.spawn_future(future);
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    stage.check_body(handle.join());
}

fn poll_of_runtime_spawn(stage: &Arc<Stage>) {
    spawn_future(stage, polled(stage));
}

fn second_poll(stage: &Arc<Stage>) {
    let polled = polled(stage);
    spawn_future(stage, async {
        future::sleep(Duration::from_millis(1)).await?;
        polled.await
    });
}

fn in_job(
    stage: &Arc<Stage>,
    body: impl FnOnce(&Arc<Stage>) -> Result<(), BoxError> + Send + 'static,
) {
    let user = stage.clone();
    let handle = stage.in_job(move || body(&user));
    stage.check_body(handle.join());
}

fn poll_of_nursery_spawn(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| Ok(n.spawn_future(polled(stage)).join()?))?;
        Ok(())
    });
}

fn poll_of_async_nursery_spawn(stage: &Arc<Stage>) {
    let user = stage.clone();
    spawn_future(stage, async move {
        future::nursery(async |n| Ok(n.spawn_future(polled(&user)).await?)).await?;
        Ok(())
    });
}

fn async_nursery_body(stage: &Arc<Stage>) {
    let user = stage.clone();
    spawn_future(stage, async move {
        future::nursery(async |n| {
            let inner = n.clone();
            user.on_reenter(move || drop(inner.spawn(|| Ok(()))));
            let child = n.spawn(|| Ok(()));
            polled(&user).await?;
            let _ = child.await;
            Ok(())
        })
        .await?;
        Ok(())
    });
}

fn poll_of_block_on(stage: &Arc<Stage>) {
    in_job(stage, |stage| block_on(polled(stage))?);
}

fn poll_of_runtime_block_on(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    stage.is_alone();
    let outcome = stage.contain(|| runtime.block_on(polled(stage)));
    if let Some(Err(error)) = outcome {
        stage.check_body::<()>(Err(error));
    }
}

fn poll_of_select(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        select! {
            future(polled(stage)) -> polled => polled,
            after(Duration::from_secs(60)) => Ok(()),
        }?
    });
}

fn async_timeout_body(stage: &Arc<Stage>) {
    let polled = polled(stage);
    spawn_future(stage, async {
        Ok(future::with_timeout(Duration::from_secs(60), polled).await?)
    });
}

fn async_shield_body(stage: &Arc<Stage>) {
    let polled = polled(stage);
    spawn_future(stage, async {
        Ok(future::shield(Duration::from_secs(60), polled).await?)
    });
}

/// A future that owns a value whose destructor is user code.
struct Owning {
    is_endless: bool,
    _value: OnDrop,
}

impl Future for Owning {
    type Output = Result<(), BoxError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.is_endless {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }
}

fn owning(stage: &Arc<Stage>, is_endless: bool) -> Owning {
    Owning {
        is_endless,
        _value: stage.on_drop(),
    }
}

fn dropped_finished(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    let handle = runtime.spawn_future(owning(stage, false));
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    // A destructor that panics may fail the job or not; but the job ends.
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn dropped_finished_detached(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    let handle = runtime.spawn_future(owning(stage, false));
    stage.keep_job(handle.job());
    drop(runtime);
    stage.contain(|| drop(handle));
    stage.is_alone();
    stage.until_acted();
}

/// Starts a future that never ends, and returns its job's handle when it has been polled.
fn endless(stage: &Arc<Stage>) -> jobtree::JobHandle<()> {
    let runtime = stage.runtime();
    let handle = runtime.spawn_future(owning(stage, true));
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    std::thread::sleep(Duration::from_millis(2));
    handle
}

fn dropped_cancelled(stage: &Arc<Stage>) {
    let handle = endless(stage);
    handle.cancel("the program");
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn dropped_cancelled_in_nursery(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let outcome = nursery(|n| {
            drop(n.spawn_future(owning(&user, true)));
            n.launch(|| Err("cancels the others".into()));
            Ok(sleep(Duration::MAX)?)
        });
        assert!(outcome.is_err());
        std::mem::forget(outcome);
        Ok(())
    });
    stage.check_bystander(handle.join());
}

fn dropped_never_polled(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let outcome = nursery(|n| {
            n.cancel("before anything is spawned");
            drop(n.spawn_future(owning(&user, true)));
            Ok(())
        });
        std::mem::forget(outcome);
        Ok(())
    });
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn dropped_by_timeout(stage: &Arc<Stage>) {
    let value = owning(stage, true);
    let runtime = stage.runtime();
    let handle = runtime.spawn_future(async {
        let limit = Duration::from_millis(1);
        let outcome = future::with_timeout(limit, value).await;
        Ok(outcome.is_err())
    });
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn dropped_by_shutdown(stage: &Arc<Stage>) {
    let handle = endless(stage);
    let runtime = stage.some_runtime();
    let limit = Duration::from_secs(if stage.behaviour == crate::behaviour::Behaviour::Hold {
        0
    } else {
        3
    });
    stage.contain(|| drop(runtime.shutdown(limit)));
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn dropped_by_select(stage: &Arc<Stage>) {
    in_job_contained(stage, |stage| {
        select! {
            future(owning(stage, true)) -> _ended => (),
            after(Duration::from_millis(1)) => (),
        }?;
        Ok(())
    });
}

fn in_job_contained(
    stage: &Arc<Stage>,
    body: impl FnOnce(&Arc<Stage>) -> Result<(), BoxError> + Send + 'static,
) {
    let user = stage.clone();
    let handle = stage.in_job(move || body(&user));
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn dropped_async_scope(stage: &Arc<Stage>) {
    // A scope of async code that is dropped with a child inside.
    let user = stage.clone();
    in_job_contained(stage, move |_| {
        select! {
            future(Box::pin(future::nursery(async |n| {
                let child = n.spawn_future(owning(&user, true));
                Ok(child.await?)
            }))) -> ended => drop(ended),
            after(Duration::from_millis(1)) => (),
        }?;
        Ok(())
    });
}

fn dropped_kept_scope(stage: &Arc<Stage>) {
    // A job polls the scope, and ends; its body is dropped by a later poll.
    let value = stage.on_drop();
    let scope = future::with_timeout(Duration::from_secs(3600), async move {
        let _value = value;
        std::future::pending::<()>().await;
        Ok(())
    });
    let kept = Arc::new(std::sync::Mutex::new(Box::pin(scope)));
    let lent = kept.clone();
    let runtime = stage.runtime();
    let handle = runtime.spawn_future(async move {
        let once = std::future::poll_fn(|context| {
            let mut scope = lent.lock().unwrap();
            Poll::Ready(scope.as_mut().poll(context).is_pending())
        });
        Ok(assert!(once.await))
    });
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    handle.join().unwrap();
    let mut context = Context::from_waker(std::task::Waker::noop());
    let polled = kept.lock().unwrap().as_mut().poll(&mut context);
    assert!(matches!(polled, Poll::Ready(Err(_))));
    stage.until_acted();
}
