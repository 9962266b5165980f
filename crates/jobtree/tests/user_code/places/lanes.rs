//! Job managers: bodies of jobs, callbacks, listeners and payloads.

use std::sync::Arc;
use std::time::Duration;

use jobtree::JobManager;
use jobtree::lanes::{
    Callbacks, JobManagerBuilder, Lane, LaneHandle, LaneJob, Next, Progress, PumpLimit, Step,
};

use crate::place::Place;
use crate::stage::{Stage, until};

pub const PLACES: &[Place] = &[
    Place::new("lane/action", action),
    Place::new("lane/task", task),
    Place::new("lane/future", eventual),
    Place::new("lane/coroutine", coroutine),
    Place::new("lane/steps", steps),
    Place::new("lane/step-action", step_action),
    Place::new("lane/step-future", step_future),
    Place::new("lane/pumped-action", pumped_action),
    Place::new("lane/run-on-worker", run_on_worker),
    Place::new("lane/run-on-main", run_on_main),
    Place::new("lane/on-completed", on_completed),
    Place::new("lane/on-cancelled", on_cancelled),
    Place::new("lane/on-cancelled-before-run", on_cancelled_before_run),
    Place::new("lane/on-faulted", on_faulted),
    Place::new("lane/on-progress", on_progress),
    Place::new("lane/on-completed-on-main", on_completed_on_main),
    Place::new("lane/on-progress-on-main", on_progress_on_main),
    Place::new("lane/executor", executor),
    Place::new("lane/uncalled-callback", uncalled_callback),
    Place::new("lane/uncalled-on-progress", uncalled_on_progress),
    Place::new("lane/callback-of-unscheduled-job", unscheduled),
    Place::new("lane/on-notice", on_notice),
    Place::new("lane/dropped-payload", dropped_payload),
    Place::new("lane/dropped-value", dropped_value),
    Place::new("lane/dropped-closure-of-cancelled", dropped_closure),
    Place::new("lane/dropped-steps", dropped_steps),
    Place::new("lane/dependent-callback", dependent_callback),
    Place::new("lane/callback-at-shutdown", callback_at_shutdown),
    Place::new("lane/late-on-completed", late_on_completed),
    Place::new("lane/late-on-completed-after-end", late_after_end),
    Place::new("lane/late-on-cancelled", late_on_cancelled),
    Place::new("lane/late-on-faulted", late_on_faulted),
    Place::new("lane/late-on-completed-on-main", late_on_main),
    Place::new("lane/uncalled-late-callbacks", uncalled_late_callbacks),
    Place::new("lane/refused-late-callback", refused_late_callback),
];

/// Makes the cell's manager, on the cell's runtime.
fn manager_of(stage: &Arc<Stage>, builder: JobManagerBuilder) -> JobManager {
    let runtime = stage.runtime();
    let manager = builder
        .runtime(&runtime)
        .workers(stage.workers)
        .build()
        .unwrap();
    stage.keep_manager(&manager);
    manager
}

fn manager(stage: &Arc<Stage>) -> JobManager {
    manager_of(stage, JobManager::builder())
}

/// Gives up the program's own handle of the manager.
fn leave(stage: &Arc<Stage>, manager: JobManager, handle: &LaneHandle<()>) {
    stage.keep_job(handle.job());
    drop(manager);
    stage.is_alone();
}

/// Schedules a job whose body is the user code.
macro_rules! body {
    ($name:ident, $stage:ident, $job:expr) => {
        fn $name(stage: &Arc<Stage>) {
            let manager = manager(stage);
            let $stage = stage.clone();
            let handle = manager.schedule($job);
            leave(stage, manager, &handle);
            stage.check_body(handle.join());
        }
    };
}

body!(action, user, LaneJob::action(move || Ok(user.act())));
body!(
    task,
    user,
    LaneJob::task(move |context| {
        let _ = context.progress(0.5).wait();
        Ok(user.act())
    })
);
body!(
    eventual,
    user,
    LaneJob::future(async move |context| {
        context.next_dispatch().await?;
        Ok(user.act())
    })
);
body!(coroutine, user, {
    let mut step = 0;
    LaneJob::coroutine(move |_| {
        step += 1;
        if step == 1 {
            return Ok(Next::Again);
        }
        user.act();
        Ok(Next::Done(()))
    })
});
body!(
    steps,
    user,
    LaneJob::steps_with(move || {
        user.act();
        [Step::progress(0.5)]
    })
);
body!(
    step_action,
    user,
    LaneJob::steps([Step::action(move || Ok(user.act()))])
);
body!(
    step_future,
    user,
    LaneJob::steps([Step::wait(async move { Ok(user.act()) })])
);
body!(
    run_on_worker,
    user,
    LaneJob::future(async move |context| {
        Ok(context.run_on(Lane::Any, move || user.act()).await?)
    })
);

/// Pumps the main lane by the calling thread until the condition holds.
fn pump_until(manager: &JobManager, mut condition: impl FnMut() -> bool) {
    until(|| {
        let _ = manager.pump(&Lane::Main, PumpLimit::default());
        condition()
    });
}

fn pumped_action(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let handle = manager.schedule(LaneJob::action(move || Ok(user.act())).lane(Lane::Main));
    stage.keep_job(handle.job());
    stage.is_alone();
    pump_until(&manager, || handle.is_finished());
    stage.check_body(handle.join());
}

fn run_on_main(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let handle = manager.schedule(LaneJob::future(async move |context| {
        Ok(context.run_on(Lane::Main, move || user.act()).await?)
    }));
    stage.keep_job(handle.job());
    stage.is_alone();
    pump_until(&manager, || handle.is_finished());
    stage.check_body(handle.join());
}

fn on_completed(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let handle = manager.schedule(LaneJob::action(|| Ok(())).on_completed(move || user.act()));
    leave(stage, manager, &handle);
    stage.check_bystander(handle.join());
    stage.until_acted();
}

fn on_cancelled(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let job = LaneJob::action(|| Ok(jobtree::sleep(Duration::MAX)?));
    let handle = manager.schedule(job.on_canceled(move || user.act()));
    leave(stage, manager, &handle);
    until(|| handle.job().waiting_for().is_some());
    handle.cancel("the program");
    assert!(handle.join().unwrap_err().is_cancelled());
    stage.until_acted();
}

fn on_cancelled_before_run(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let mut job = LaneJob::action(|| Ok(())).on_canceled(move || user.act());
    job.cancel_token().cancel("before it is scheduled");
    let handle = manager.schedule(job);
    leave(stage, manager, &handle);
    assert!(handle.join().unwrap_err().is_cancelled());
    stage.until_acted();
}

fn on_faulted(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let job = LaneJob::action(|| Err("fails".into())).on_faulted(move |_| user.act());
    let handle: LaneHandle<()> = manager.schedule(job);
    leave(stage, manager, &handle);
    assert!(handle.join().is_err());
    stage.until_acted();
}

fn on_progress(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let job = LaneJob::steps([Step::progress(0.3), Step::progress(0.6)]);
    let handle = manager.schedule(job.on_progress(move |_| user.act()));
    leave(stage, manager, &handle);
    stage.check_bystander(handle.join());
    stage.until_acted();
}

fn on_completed_on_main(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let job = LaneJob::action(|| Ok(())).on_completed(move || user.act());
    let handle = manager.schedule(job.callbacks_on(Callbacks::Lane(Lane::Main)));
    stage.keep_job(handle.job());
    stage.is_alone();
    pump_until(&manager, || stage.runs() > 0);
    stage.check_bystander(handle.join());
}

fn on_progress_on_main(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let job = LaneJob::steps([Step::progress(0.3)]).on_progress(move |_| user.act());
    let handle = manager.schedule(job.callbacks_on(Callbacks::Lane(Lane::Main)));
    stage.keep_job(handle.job());
    stage.is_alone();
    pump_until(&manager, || stage.runs() > 0);
    stage.check_bystander(handle.join());
}

fn executor(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let job = LaneJob::action(|| Ok(())).on_completed(|| ());
    let handle = manager.schedule(job.callbacks_on(Callbacks::Executor(Arc::new(move |call| {
        user.act();
        call();
    }))));
    leave(stage, manager, &handle);
    stage.check_bystander(handle.join());
    stage.until_acted();
}

fn uncalled_callback(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let value = stage.on_drop();
    let handle = manager.schedule(LaneJob::action(|| Ok(())).on_canceled(move || drop(value)));
    leave(stage, manager, &handle);
    let outcome = stage.contain(|| handle.join());
    outcome.and_then(|outcome| stage.check_bystander(outcome));
    stage.contain(|| stage.forget_job());
    stage.until_acted();
}

fn uncalled_on_progress(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let value = stage.on_drop();
    let handle = manager.schedule(
        LaneJob::action(|| Err("fails".into())).on_progress(move |_| {
            let _ = &value;
        }),
    );
    leave(stage, manager, &handle);
    stage.contain(|| drop(handle.join()));
    stage.contain(|| stage.forget_job());
    stage.until_acted();
}

fn unscheduled(stage: &Arc<Stage>) {
    let value = stage.on_drop();
    let job = LaneJob::action(|| Ok(())).on_completed(move || drop(value));
    stage.contain(|| drop(job));
    stage.until_acted();
}

fn on_notice(stage: &Arc<Stage>) {
    let user = stage.clone();
    let builder = JobManager::builder()
        .queue_warning(1)
        .on_notice(move |_| user.act());
    let manager = manager_of(stage, builder);
    let jobs: Vec<LaneHandle<()>> = (0..50)
        .map(|_| manager.schedule(LaneJob::action(|| Ok(())).lane(Lane::Main)))
        .collect();
    stage.is_alone();
    pump_until(&manager, || jobs.iter().all(LaneHandle::is_finished));
    stage.until_acted();
}

fn dropped_payload(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let first = Progress::new(0.2).with_payload(stage.on_drop());
    let second = Progress::new(0.4).with_payload(1);
    let handle = manager.schedule(LaneJob::steps([first.into(), second.into()]));
    leave(stage, manager, &handle);
    // The second payload replaces the first, inside the job.
    stage.contain(|| drop(handle.join()));
    stage.contain(|| stage.forget_job());
    stage.until_acted();
}

fn dropped_value(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let handle = manager.schedule(LaneJob::action(move || Ok(user.on_drop())));
    stage.keep_job(handle.job());
    drop(manager);
    stage.contain(|| drop(handle));
    stage.is_alone();
    stage.until_acted();
}

fn dropped_closure(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let value = stage.on_drop();
    let handle = manager.schedule(LaneJob::action(move || Ok(drop(value))).lane(Lane::Main));
    stage.keep_job(handle.job());
    stage.is_alone();
    stage.contain(|| handle.cancel("before it runs"));
    pump_until(&manager, || handle.is_finished());
    stage.contain(|| drop(handle));
    stage.contain(|| stage.forget_job());
    pump_until(&manager, || stage.runs() > 0);
}

fn dropped_steps(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let value = stage.on_drop();
    let endless = std::iter::from_fn(move || {
        let _ = &value;
        Some(Step::progress(0.1))
    });
    let handle = manager.schedule(LaneJob::steps(endless));
    leave(stage, manager, &handle);
    std::thread::sleep(Duration::from_millis(1));
    handle.cancel("the program");
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn dependent_callback(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let first = manager.schedule(LaneJob::action(|| {
        Ok(jobtree::sleep(Duration::from_millis(1))?)
    }));
    let user = stage.clone();
    let second = LaneJob::action(|| Ok(())).after([&first.dependency()]);
    let second = manager.schedule(second.on_completed(move || user.act()));
    leave(stage, manager, &second);
    stage.check_bystander(second.join());
    stage.until_acted();
}

fn callback_at_shutdown(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let job = LaneJob::action(|| Ok(jobtree::sleep(Duration::MAX)?));
    let handle = manager.schedule(job.on_canceled(move || user.act()));
    stage.keep_job(handle.job());
    stage.is_alone();
    until(|| handle.job().waiting_for().is_some());
    let is_held = stage.behaviour == crate::behaviour::Behaviour::Hold;
    let limit = Duration::from_millis(if is_held { 10 } else { 3000 });
    let _ = manager.shutdown(limit);
    assert!(handle.join().unwrap_err().is_cancelled());
    stage.until_acted();
}

/// Schedules a job that waits until the function that is returned is called, and then ends so.
fn waiting(
    manager: &JobManager,
    outcome: Result<(), &'static str>,
) -> (LaneHandle<()>, impl FnOnce() + Send + 'static) {
    let (sender, receiver) = jobtree::channel::bounded::<()>(1);
    let handle = manager.schedule(LaneJob::action(move || {
        receiver.recv().unwrap_or(());
        Ok(outcome?)
    }));
    (handle, move || drop(sender.send(())))
}

fn late_on_completed(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let (handle, end) = waiting(&manager, Ok(()));
    handle.on_completed(move || user.act());
    leave(stage, manager, &handle);
    end();
    stage.check_bystander(handle.join());
    stage.until_acted();
}

fn late_after_end(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let handle = manager.schedule(LaneJob::action(|| Ok(())));
    until(|| handle.is_finished());
    stage.keep_job(handle.job());
    // A callback's panic is not that of the one who registers it.
    handle.on_completed(move || user.act());
    drop(manager);
    stage.is_alone();
    stage.check_bystander(handle.join());
    stage.until_acted();
}

fn late_on_cancelled(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let (handle, end) = waiting(&manager, Ok(()));
    handle.on_canceled(move || user.act());
    leave(stage, manager, &handle);
    handle.cancel("the program");
    end();
    assert!(handle.join().unwrap_err().is_cancelled());
    stage.until_acted();
}

fn late_on_faulted(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let (handle, end) = waiting(&manager, Err("fails"));
    handle.on_faulted(move |_| user.act());
    leave(stage, manager, &handle);
    end();
    assert!(handle.join().is_err());
    stage.until_acted();
}

fn late_on_main(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let user = stage.clone();
    let job = LaneJob::action(|| Ok(()));
    let handle = manager.schedule(job.callbacks_on(Callbacks::Lane(Lane::Main)));
    handle.on_completed(move || user.act());
    stage.keep_job(handle.job());
    stage.is_alone();
    pump_until(&manager, || stage.runs() > 0);
    stage.check_bystander(handle.join());
}

fn uncalled_late_callbacks(stage: &Arc<Stage>) {
    if stage.behaviour != crate::behaviour::Behaviour::Hold {
        stage.act_often(3);
    }
    let manager = manager(stage);
    let (handle, end) = waiting(&manager, Ok(()));
    let (first, second, third) = (
        stage.on_guarded_drop(),
        stage.on_guarded_drop(),
        stage.on_guarded_drop(),
    );
    handle.on_canceled(move || drop(first));
    handle.on_canceled(move || drop(second));
    handle.on_faulted(move |_| drop(third));
    leave(stage, manager, &handle);
    end();
    stage.check_bystander(handle.join());
    stage.contain(|| stage.forget_job());
    stage.until_acted();
}

fn refused_late_callback(stage: &Arc<Stage>) {
    let manager = manager(stage);
    let value = stage.on_guarded_drop();
    let handle = manager.schedule(LaneJob::action(|| Ok(())));
    until(|| handle.is_finished());
    stage.keep_job(handle.job());
    // It has completed, so this is never called.
    handle.on_canceled(move || drop(value));
    drop(manager);
    stage.is_alone();
    stage.check_bystander(handle.join());
    stage.contain(|| stage.forget_job());
    stage.until_acted();
}
