//! Destructors of thread locals, and the panic hook.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use jobtree::{Dispatcher, OnceLatch, Pool, Runtime, nursery};

use crate::behaviour::Behaviour;
use crate::place::{Outcome, Place, Rule};
use crate::stage::{Guard, OnDrop, Stage};

/// A panic in the destructor of a thread local ends the process, by the standard library.
const IN_DESTRUCTOR: Rule = (
    Behaviour::PANICS,
    Outcome::AbortedByStd("thread local panicked on drop"),
);

/// So does a panic in a panic hook.
const IN_HOOK: Rule = (
    Behaviour::PANICS,
    Outcome::AbortedByStd("thread panicked while processing panic. aborting."),
);

pub const PLACES: &[Place] = &[
    Place::new("thread-local/of-worker", of_worker).with(&[IN_DESTRUCTOR]),
    Place::new("thread-local/of-pool-worker", of_pool_worker).with(&[IN_DESTRUCTOR]),
    Place::new("thread-local/of-blocking-thread", of_blocking_thread).with(&[IN_DESTRUCTOR]),
    Place::new(
        "thread-local/of-thread-with-nursery",
        of_thread_with_nursery,
    )
    .with(&[IN_DESTRUCTOR]),
    Place::new("thread-local/of-simulation", of_simulation).with(&[IN_DESTRUCTOR]),
    Place::new("thread-local/initialiser", initialiser),
    Place::new("panic-hook/of-job", hook_of_job).with(&[IN_HOOK]),
    Place::new("panic-hook/of-future", hook_of_future).with(&[IN_HOOK]),
    Place::new("panic-hook/of-fork", hook_of_fork).with(&[IN_HOOK]),
    Place::new("panic-hook/of-outside-thread", hook_of_outside_thread).with(&[IN_HOOK]),
    Place::new("panic-hook/of-dispatched-job", hook_of_dispatched_job).with(&[IN_HOOK]),
    Place::new(
        "panic-hook/job-beside-waiting-hook",
        job_beside_waiting_hook,
    )
    .with(&[IN_HOOK]),
    Place::new("panic-hook/set-before-first-use", hook_before_first_use).with(&[IN_HOOK]),
];

thread_local! {
    /// Its destructor runs when the thread ends.
    static KEPT: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
}

fn keep(stage: &Arc<Stage>) {
    let value = stage.on_drop();
    KEPT.with(|kept| *kept.borrow_mut() = Some(value));
}

fn of_worker(stage: &Arc<Stage>) {
    let runtime = Runtime::builder().workers(stage.workers).build().unwrap();
    let user = stage.clone();
    runtime.spawn(move || Ok(keep(&user))).join().unwrap();
    let _ = runtime.shutdown(limit(stage));
    stage.until_acted();
}

fn limit(stage: &Arc<Stage>) -> Duration {
    match stage.behaviour {
        Behaviour::Hold => Duration::from_millis(10),
        _ => Duration::from_secs(3),
    }
}

fn of_pool_worker(stage: &Arc<Stage>) {
    let pool = Pool::builder().workers(stage.workers).build().unwrap();
    pool.install(|| {
        // Used before, so that locals of the library are older than this one; and after.
        jobtree::join(|| (), || ());
        keep(stage);
        jobtree::join(|| (), || ());
    });
    let _ = pool.shutdown(limit(stage));
    stage.until_acted();
}

fn of_blocking_thread(stage: &Arc<Stage>) {
    let runtime = Runtime::builder().workers(stage.workers).build().unwrap();
    let user = stage.clone();
    let handle = runtime.spawn(move || {
        let dispatcher = Dispatcher::new(1)?;
        let same = user.clone();
        dispatcher.run(move || Ok(keep(&same)))?;
        drop(dispatcher);
        Dispatcher::io().run(move || Ok(keep(&user)))?;
        Ok(())
    });
    handle.join().unwrap();
    let _ = runtime.shutdown(limit(stage));
    stage.until_acted();
}

fn of_thread_with_nursery(stage: &Arc<Stage>) {
    let user = stage.clone();
    let thread = std::thread::spawn(move || {
        nursery(|n| Ok(n.spawn(|| Ok(())).join()?)).unwrap();
        keep(&user);
        nursery(|n| Ok(n.spawn(|| Ok(())).join()?)).unwrap();
    });
    thread.join().unwrap();
    stage.until_acted();
}

fn of_simulation(stage: &Arc<Stage>) {
    let simulation = jobtree::sim::Runtime::new(7);
    let report = simulation.run(|_| Ok(keep(stage)));
    assert!(report.outcome.is_ok());
    stage.until_acted();
}

fn initialiser(stage: &Arc<Stage>) {
    thread_local! {
        static MADE: u32 = {
            let user = MAKER.with(|maker| maker.borrow().clone());
            user.map_or(0, |user| {
                user.act();
                1
            })
        };
        static MAKER: RefCell<Option<Arc<Stage>>> = const { RefCell::new(None) };
    }
    let user = stage.clone();
    let handle = stage.in_job(move || {
        MAKER.with(|maker| *maker.borrow_mut() = Some(user));
        let made = MADE.with(|made| *made);
        MAKER.with(|maker| maker.borrow_mut().take());
        Ok(assert_eq!(made, 1))
    });
    stage.check_body(handle.join());
}

/// Sets a panic hook that is user code, once.
fn set_hook(stage: &Arc<Stage>) {
    let user = stage.clone();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        user.act();
    }));
}

fn hook_of_job(stage: &Arc<Stage>) {
    set_hook(stage);
    let handle = stage.in_job(|| -> Result<(), _> { panic!("a job") });
    assert!(handle.join().is_err());
}

fn hook_of_future(stage: &Arc<Stage>) {
    set_hook(stage);
    let runtime = stage.runtime();
    let handle = runtime.spawn_future(async { panic!("a future") });
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    let outcome: Result<(), _> = handle.join();
    assert!(outcome.is_err());
}

fn hook_of_fork(stage: &Arc<Stage>) {
    set_hook(stage);
    let handle = stage.in_job(|| {
        jobtree::join(|| (), || panic!("a fork"));
        Ok(())
    });
    assert!(handle.join().is_err());
}

fn hook_of_outside_thread(stage: &Arc<Stage>) {
    set_hook(stage);
    stage.is_alone();
    let thread = std::thread::spawn(|| panic!("a thread of the program"));
    assert!(thread.join().is_err());
}

fn hook_of_dispatched_job(stage: &Arc<Stage>) {
    set_hook(stage);
    let handle = stage.in_job(|| {
        let outcome = Dispatcher::io().run(|| -> Result<(), _> { panic!("a dispatched job") });
        Ok(assert!(outcome.is_err()))
    });
    stage.check_bystander(handle.join());
}

fn hook_before_first_use(stage: &Arc<Stage>) {
    // The library has not been used in this process; the hook does so first, while a thread panics.
    set_hook(stage);
    let thread = std::thread::spawn(|| panic!("a thread of the program"));
    assert!(thread.join().is_err());
    stage.until_acted();
}

/// The user code is a job that the only worker runs while the panic hook of another job waits.
fn job_beside_waiting_hook(stage: &Arc<Stage>) {
    let has_acted = Arc::new(OnceLatch::new());
    let (before, acted) = (std::panic::take_hook(), has_acted.clone());
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        if info.payload_as_str() == Some("a job") {
            acted.wait();
        }
    }));
    let runtime = stage.runtime_of(Runtime::builder().workers(1));
    let panics = runtime.spawn(|| -> Result<(), _> { panic!("a job") });
    let user = stage.clone();
    let beside = runtime.spawn(move || {
        let _acted = Guard::new(|| has_acted.set());
        Ok(user.act())
    });
    stage.keep_job(beside.job());
    drop(runtime);
    stage.is_alone();
    let outcome = panics.join();
    assert!(outcome.is_err());
    stage.check_bystander(beside.join());
    stage.until_acted();
}
