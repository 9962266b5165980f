//! Errors and panic payloads: their destructors, and the methods of errors.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::panic::panic_any;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use jobtree::{JobError, channel, future, nursery, scope, sleep, supervisor};

use crate::place::Place;
use crate::stage::{OnDrop, Stage, until};

pub const PLACES: &[Place] = &[
    Place::new("error/dropped-with-outcome", dropped_with_outcome),
    Place::new("error/dropped-with-handle", dropped_with_handle),
    Place::new("error/dropped-with-nursery", dropped_with_nursery),
    Place::new("error/dropped-second", dropped_second),
    Place::new("error/dropped-by-supervisor", dropped_by_supervisor),
    Place::new("error/dropped-of-cancelled-job", dropped_of_cancelled_job),
    Place::new("error/dropped-of-future", dropped_of_future),
    Place::new("error/left-to-timer", left_to_timer),
    Place::new("error/display", display),
    Place::new("error/debug", debug),
    Place::new("error/source", source),
    Place::new("payload/dropped-with-outcome", payload_of_outcome),
    Place::new("payload/dropped-with-handle", payload_of_handle),
    Place::new("payload/dropped-with-nursery", payload_of_nursery),
    Place::new("payload/dropped-second", second_payload),
    Place::new("payload/dropped-second-of-scope", second_payload_of_scope),
    Place::new("payload/dropped-second-of-join", second_payload_of_join),
    Place::new("payload/dropped-by-supervisor", payload_of_supervised),
    Place::new("payload/dropped-of-future", payload_of_future),
    Place::new("payload/resumed", resumed),
];

/// An error whose destructor, or one of whose methods, is user code.
struct Acting {
    method: Method,
    stage: Arc<Stage>,
    value: Option<OnDrop>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Drop,
    Display,
    Debug,
    Source,
}

impl Acting {
    fn new(stage: &Arc<Stage>, method: Method) -> Acting {
        Acting {
            method,
            stage: stage.clone(),
            value: (method == Method::Drop).then(|| stage.on_drop()),
        }
    }

    fn called(&self, method: Method) {
        if self.method == method {
            self.stage.act();
        }
    }
}

impl fmt::Display for Acting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.called(Method::Display);
        f.write_str("an error")
    }
}

impl fmt::Debug for Acting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.called(Method::Debug);
        write!(f, "Acting({})", self.value.is_some())
    }
}

impl Error for Acting {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.called(Method::Source);
        None
    }
}

fn error(stage: &Arc<Stage>) -> Acting {
    Acting::new(stage, Method::Drop)
}

/// A job that fails.
fn failing(stage: &Arc<Stage>, method: Method) -> jobtree::JobHandle<()> {
    let error = Acting::new(stage, method);
    stage.in_job(move || {
        sleep(Duration::from_millis(1))?;
        Err(error.into())
    })
}

/// Drops the outcome of a job and everything that may own its error: a destructor's panic may come out of that.
fn discard<T>(stage: &Arc<Stage>, outcome: Result<T, JobError>) {
    stage.contain(|| drop(outcome));
    stage.contain(|| stage.forget_job());
    stage.until_acted();
}

fn dropped_with_outcome(stage: &Arc<Stage>) {
    let outcome = failing(stage, Method::Drop).join();
    discard(stage, outcome);
}

fn dropped_with_handle(stage: &Arc<Stage>) {
    let handle = failing(stage, Method::Drop);
    stage.contain(|| stage.forget_job());
    stage.contain(|| drop(handle));
    stage.until_acted();
}

/// Runs `body` in a job, whose own outcome is not about user code.
fn in_job(stage: &Arc<Stage>, body: impl FnOnce(&Arc<Stage>) + Send + 'static) {
    let user = stage.clone();
    let handle = stage.in_job(move || Ok(body(&user)));
    stage.contain(|| drop(handle.join()));
    stage.contain(|| stage.forget_job());
    stage.until_acted();
}

fn dropped_with_nursery(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        drop(nursery(|n| Ok(n.launch(|| Err(error(stage).into())))));
    });
}

fn dropped_second(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let outcome = nursery(|n| {
            let (begun, is_begun) = channel::bounded(1);
            n.launch(move || {
                is_begun.recv()?;
                Err("first".into())
            });
            n.launch(move || {
                begun.send(())?;
                let _ = sleep(Duration::from_secs(60));
                Err(error(stage).into())
            });
            Ok(())
        });
        drop(outcome);
    });
}

fn dropped_by_supervisor(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        drop(supervisor(|n| Ok(n.launch(|| Err(error(stage).into())))));
    });
}

fn dropped_of_cancelled_job(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let _ = sleep(Duration::MAX);
        Err::<(), _>(error(&user).into())
    });
    until(|| handle.job().waiting_for().is_some());
    handle.cancel("the program");
    let outcome = handle.join();
    discard(stage, outcome);
}

fn dropped_of_future(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    let user = stage.clone();
    let handle = runtime.spawn_future(async move {
        future::sleep(Duration::from_millis(1)).await?;
        Err::<(), _>(error(&user).into())
    });
    drop(runtime);
    stage.contain(|| drop(handle));
    stage.is_alone();
    stage.until_acted();
}

/// The timer that the future leaves behind has the last reference to the job.
fn left_to_timer(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    let user = stage.clone();
    let handle = runtime.spawn_future(async move {
        let mut left_behind = Box::pin(future::sleep(Duration::from_millis(10)));
        poll_fn(|context| match left_behind.as_mut().poll(context) {
            Poll::Ready(slept) => Poll::Ready(slept),
            Poll::Pending => Poll::Ready(Ok(())),
        })
        .await?;
        std::mem::forget(left_behind);
        Err::<(), _>(error(&user).into())
    });
    drop(runtime);
    stage.contain(|| drop(handle));
    stage.is_alone();
    stage.until_acted();
}

/// Has the library print an error in every way that it has.
fn printed(stage: &Arc<Stage>, method: Method) {
    let outcome = failing(stage, method).join();
    let Err(error) = outcome else {
        panic!("a job completed that returns an error");
    };
    stage.contain(|| error.to_string());
    stage.contain(|| error.report().to_string());
    stage.contain(|| format!("{error:?}"));
    stage.contain(|| format!("{:?}", error.source()));
    stage.contain(|| error.source().map(|source| source.source().is_some()));
    // What the library prints for itself.
    let runtime = stage.some_runtime();
    let _ = (
        runtime.dump_tree().to_string(),
        runtime.dump_tree().to_json(),
    );
    drop(error);
}

fn display(stage: &Arc<Stage>) {
    printed(stage, Method::Display);
}

fn debug(stage: &Arc<Stage>) {
    printed(stage, Method::Debug);
}

fn source(stage: &Arc<Stage>) {
    printed(stage, Method::Source);
}

/// Panics with a value whose destructor is user code.
fn throw<T>(stage: &Arc<Stage>) -> T {
    panic_any(stage.on_drop())
}

fn throwing(stage: &Arc<Stage>) -> jobtree::JobHandle<()> {
    let user = stage.clone();
    stage.in_job(move || {
        sleep(Duration::from_millis(1))?;
        throw(&user)
    })
}

fn payload_of_outcome(stage: &Arc<Stage>) {
    let outcome = throwing(stage).join();
    discard(stage, outcome);
}

fn payload_of_handle(stage: &Arc<Stage>) {
    let handle = throwing(stage);
    stage.contain(|| stage.forget_job());
    stage.contain(|| drop(handle));
    stage.until_acted();
}

fn payload_of_nursery(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        drop(nursery(|n| Ok(n.launch(|| throw(stage)))));
    });
}

fn second_payload(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let outcome = nursery(|n| {
            let (begun, is_begun) = channel::bounded(1);
            n.launch(move || {
                is_begun.recv()?;
                Err("first".into())
            });
            n.launch(move || {
                begun.send(())?;
                let _ = sleep(Duration::from_secs(60));
                throw(stage)
            });
            Ok(())
        });
        drop(outcome);
    });
}

fn second_payload_of_scope(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scope(|s| (0..3).for_each(|_| s.spawn(|_| throw(stage))));
        }));
        drop(caught);
    });
}

fn second_payload_of_join(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            jobtree::join(|| throw::<()>(stage), || throw::<()>(stage));
        }));
        drop(caught);
    });
}

fn payload_of_supervised(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        drop(supervisor(|n| Ok(n.launch(|| throw(stage)))));
    });
}

fn payload_of_future(stage: &Arc<Stage>) {
    let runtime = stage.runtime();
    let user = stage.clone();
    let handle = runtime.spawn_future(async move {
        future::sleep(Duration::from_millis(1)).await?;
        throw::<Result<(), jobtree::BoxError>>(&user)
    });
    drop(runtime);
    stage.contain(|| drop(handle));
    stage.is_alone();
    stage.until_acted();
}

fn resumed(stage: &Arc<Stage>) {
    let Err(JobError::Panicked(panic)) = throwing(stage).join() else {
        panic!("a job that panics ends so");
    };
    let same = panic.clone();
    let first = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panic.resume()));
    stage.contain(|| drop(first));
    // The payload is gone; the message is not.
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| same.resume())).is_err());
    stage.until_acted();
}
