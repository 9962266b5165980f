//! Callbacks of a cancellation: run, taken back, and dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree::{CancelCallback, CancelToken, Job, channel, nursery, sleep, with_timeout};

use crate::behaviour::Behaviour;
use crate::place::Place;
use crate::stage::{Stage, until};

pub const PLACES: &[Place] = &[
    Place::new("cancel/callback-by-caller", by_caller),
    Place::new("cancel/callback-by-worker", by_worker),
    Place::new("cancel/callback-by-itself", by_itself),
    Place::new("cancel/callback-by-deadline", by_deadline),
    Place::new("cancel/callback-by-sibling", by_sibling),
    Place::new("cancel/callback-by-shutdown", by_shutdown),
    Place::new("cancel/callback-by-last-handle", by_last_handle),
    Place::new("cancel/callback-of-descendant", of_descendant),
    Place::new("cancel/callback-of-cancelled-job", of_cancelled_job),
    Place::new("cancel/batch-of-callbacks", batch),
    Place::new("cancel/token-callback", token_callback),
    Place::new("cancel/child-token-callback", child_token_callback),
    Place::new("cancel/any-of-callback", any_of_callback),
    Place::new("cancel/token-of-job-callback", token_of_job_callback),
    Place::new("cancel/drop-guard-callback", drop_guard_callback),
    Place::new("cancel/cancel-on-drop-callback", cancel_on_drop_callback),
    Place::new("cancel/taken-back", taken_back),
    Place::new("cancel/taken-back-by-token", taken_back_by_token),
    Place::new("cancel/left-when-job-ends", left_when_job_ends),
    Place::new("cancel/left-when-token-goes", left_when_token_goes),
    Place::new("cancel/captured-after-run", captured_after_run),
    Place::new("cancel/too-late-for-job", too_late_for_job),
];

/// A callback that is the user code.
fn acting(stage: &Arc<Stage>) -> impl FnOnce(&jobtree::CancelReason) + Send + 'static {
    let user = stage.clone();
    move |_| user.act()
}

/// A job that waits until it is cancelled.
fn waiting(stage: &Arc<Stage>) -> jobtree::JobHandle<()> {
    let handle = stage.in_job(|| Ok(sleep(Duration::MAX)?));
    // Re-entry of what calls back: the job itself.
    let job = handle.job().clone();
    stage.on_reenter(move || {
        job.cancel("again");
        drop(job.on_cancel(|_| ()));
        let _ = (job.children(), CancelToken::of_job(&job).child());
    });
    handle
}

/// Checks that a job ended by its cancellation, although a callback did as it did.
fn check_cancelled<T>(outcome: Result<T, jobtree::JobError>) {
    match outcome {
        Err(error) if error.is_cancelled() || error.is_timed_out() => (),
        Err(error) => panic!("ended by: {}", error.report()),
        Ok(_) => panic!("a cancelled job completed"),
    }
}

fn by_caller(stage: &Arc<Stage>) {
    let handle = waiting(stage);
    let callback = handle.job().on_cancel(acting(stage));
    handle.cancel("the program");
    check_cancelled(handle.join());
    stage.until_called();
    drop(callback);
}

fn by_worker(stage: &Arc<Stage>) {
    let handle = waiting(stage);
    let callback = handle.job().on_cancel(acting(stage));
    let job = handle.job().clone();
    let canceller = jobtree::Runtime::global().spawn(move || Ok(job.cancel("a job")));
    let _ = canceller.join();
    check_cancelled(handle.join());
    stage.until_called();
    drop(callback);
}

fn by_itself(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let job = Job::current().unwrap();
        let callback = job.on_cancel(acting(&user));
        job.cancel("itself");
        sleep(Duration::MAX)?;
        drop(callback);
        Ok(())
    });
    check_cancelled(handle.join());
}

fn by_deadline(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        // On a busy machine the time may be over before the body begins.
        while user.runs() == 0 && !Job::current().unwrap().is_cancelled() {
            let limited = with_timeout(Duration::from_millis(10), || {
                let callback = Job::current().unwrap().on_cancel(acting(&user));
                let slept = sleep(Duration::MAX);
                user.until_called();
                drop(callback);
                Ok(slept?)
            });
            check_cancelled(limited);
        }
        Ok(())
    });
    stage.check_bystander(handle.join());
}

fn by_sibling(stage: &Arc<Stage>) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        let outcome = nursery(|n| {
            let callback = n.job().on_cancel(acting(&user));
            n.launch(|| Err("cancels the others".into()));
            let slept = sleep(Duration::MAX);
            user.until_called();
            drop(callback);
            Ok(slept?)
        });
        assert!(outcome.is_err());
        Ok(())
    });
    stage.check_bystander(handle.join());
}

fn by_shutdown(stage: &Arc<Stage>) {
    let handle = waiting(stage);
    let callback = handle.job().on_cancel(acting(stage));
    let runtime = stage.some_runtime();
    let is_held = stage.behaviour == Behaviour::Hold;
    let limit = Duration::from_millis(if is_held { 10 } else { 3000 });
    let _ = runtime.shutdown(limit);
    check_cancelled(handle.join());
    stage.until_called();
    drop(callback);
}

fn by_last_handle(stage: &Arc<Stage>) {
    let handle = waiting(stage);
    let callback = handle.job().on_cancel(acting(stage));
    stage.drop_handles();
    check_cancelled(handle.join());
    stage.until_called();
    drop(callback);
}

fn of_descendant(stage: &Arc<Stage>) {
    let user = stage.clone();
    let (ready, is_ready) = channel::bounded(1);
    let handle = stage.in_job(move || {
        nursery(|n| {
            let child = n.spawn(|| {
                nursery(|n| {
                    let callback = n.job().on_cancel(acting(&user));
                    n.launch(|| Ok(sleep(Duration::MAX)?));
                    ready.send(())?;
                    let slept = sleep(Duration::MAX);
                    user.until_called();
                    drop(callback);
                    Ok(slept?)
                })?;
                Ok(())
            });
            Ok(child.join()?)
        })?;
        Ok(())
    });
    is_ready.recv().unwrap();
    handle.cancel("the program");
    check_cancelled(handle.join());
}

fn of_cancelled_job(stage: &Arc<Stage>) {
    let handle = waiting(stage);
    handle.cancel("the program");
    // Called at once, by the caller: its panic is the caller's, or recorded.
    let user = acting(stage);
    stage.contain(|| drop(handle.job().on_cancel(user)));
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn batch(stage: &Arc<Stage>) {
    if stage.behaviour != Behaviour::Hold {
        stage.act_often(3);
    }
    let handle = waiting(stage);
    let told = Arc::new(AtomicUsize::new(0));
    let callbacks: Vec<CancelCallback> = (0..6)
        .map(|index| {
            let (user, told) = (stage.clone(), told.clone());
            handle.job().on_cancel(move |_| {
                told.fetch_add(1, Ordering::SeqCst);
                if index % 2 == 0 {
                    user.act();
                }
            })
        })
        .collect();
    let tokens: Vec<CancelToken> = (0..3)
        .map(|_| CancelToken::of_job(handle.job()).child())
        .collect();
    handle.cancel("the program");
    check_cancelled(handle.join());
    until(|| told.load(Ordering::SeqCst) == 6);
    until(|| tokens.iter().all(CancelToken::is_cancelled));
    drop(callbacks);
}

/// A token whose re-entry is everything that can be done with it.
fn token(stage: &Arc<Stage>) -> CancelToken {
    let token = CancelToken::new();
    let same = token.clone();
    stage.on_reenter(move || {
        same.cancel("again");
        drop(same.on_cancel(|_| ()));
        let _ = (same.child(), same.reason(), same.check().is_err());
    });
    token
}

fn token_callback(stage: &Arc<Stage>) {
    let token = token(stage);
    let callback = token.on_cancel(acting(stage));
    token.cancel("the program");
    drop(callback);
}

fn child_token_callback(stage: &Arc<Stage>) {
    let token = token(stage);
    let second = token.child();
    let first = second.child();
    let callback = first.on_cancel(acting(stage));
    token.cancel("the program");
    assert!(first.is_cancelled() && second.is_cancelled());
    drop(callback);
}

fn any_of_callback(stage: &Arc<Stage>) {
    let (one, other) = (token(stage), token(stage));
    let any = CancelToken::any_of([&one, &other]);
    let callback = any.on_cancel(acting(stage));
    other.cancel("the program");
    assert!(any.is_cancelled() && !one.is_cancelled() || stage.behaviour == Behaviour::Reenter);
    drop(callback);
}

fn token_of_job_callback(stage: &Arc<Stage>) {
    let handle = waiting(stage);
    let token = CancelToken::of_job(handle.job()).child();
    let callback = token.on_cancel(acting(stage));
    handle.cancel("the program");
    check_cancelled(handle.join());
    stage.until_called();
    drop(callback);
}

fn drop_guard_callback(stage: &Arc<Stage>) {
    let token = token(stage);
    let callback = token.on_cancel(acting(stage));
    drop(token.drop_guard());
    drop(callback);
}

fn cancel_on_drop_callback(stage: &Arc<Stage>) {
    let handle = waiting(stage);
    let job = handle.job().clone();
    let callback = job.on_cancel(acting(stage));
    drop(handle.cancel_on_drop());
    until(|| job.is_ended());
    stage.until_called();
    drop(callback);
}

/// A callback that is never called, and whose captured value's destructor is the user code.
fn capturing(stage: &Arc<Stage>) -> impl FnOnce(&jobtree::CancelReason) + Send + 'static {
    let value = stage.on_drop();
    move |_| {
        let _value = &value;
    }
}

fn taken_back(stage: &Arc<Stage>) {
    let handle = waiting(stage);
    let job = handle.job().clone();
    let callback = job.on_cancel(capturing(stage));
    stage.contain(|| drop(callback));
    stage.until_acted();
    // The list is whole: others can be added, and are told.
    let told = Arc::new(AtomicUsize::new(0));
    let counted = told.clone();
    let later = job.on_cancel(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    handle.cancel("the program");
    check_cancelled(handle.join());
    assert!(
        told.load(Ordering::SeqCst) == 1
            || stage.behaviour.cancels()
            || stage.behaviour == Behaviour::Reenter
    );
    drop(later);
}

fn taken_back_by_token(stage: &Arc<Stage>) {
    let token = token(stage);
    let child = token.child();
    let value = stage.on_drop();
    // The closure owns a child of the token that it is registered with.
    let callback = token.on_cancel(move |_| drop((child, value)));
    stage.contain(|| drop(callback));
    stage.until_acted();
    token.cancel("the program");
}

fn left_when_job_ends(stage: &Arc<Stage>) {
    let (sender, receiver) = channel::bounded::<()>(1);
    let handle = stage.in_job(move || Ok(receiver.recv().unwrap_or(())));
    let callback = handle.job().on_cancel(capturing(stage));
    let _ = sender.send(());
    stage.check_bystander(handle.join());
    stage.contain(|| drop(callback));
    stage.until_acted();
}

fn left_when_token_goes(stage: &Arc<Stage>) {
    let token = token(stage);
    let callback = token.on_cancel(capturing(stage));
    stage.contain(|| drop(token));
    stage.contain(|| drop(callback));
    stage.until_acted();
}

fn captured_after_run(stage: &Arc<Stage>) {
    let handle = waiting(stage);
    let value = stage.on_drop();
    let callback = handle.job().on_cancel(move |_| drop(value));
    handle.cancel("the program");
    check_cancelled(handle.join());
    stage.until_called();
    drop(callback);
}

fn too_late_for_job(stage: &Arc<Stage>) {
    // The job has ended, and never was cancelled: the callback is dropped at once.
    let handle = stage.in_job(|| Ok(()));
    let job = handle.job().clone();
    handle.join().unwrap();
    let callback = capturing(stage);
    stage.contain(|| drop(job.on_cancel(callback)));
    stage.until_acted();
}
