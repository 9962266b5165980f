//! Closures of tasks and forks, and the handlers of pools.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use jobtree::{
    OnceLatch, Pool, broadcast, in_place_scope, join, join_each, par, scope, scope_fifo,
    spawn_broadcast,
};

use crate::behaviour::Behaviour;
use crate::place::{Outcome, Place, Rule};
use crate::stage::{Guard, OnDrop, Stage, until};

use Behaviour::*;

/// A thread of the program is never parked: it runs the job that it then waits for on top of its own wait.
const IN_PLACE: Rule = (
    &[PanicWait],
    Outcome::NotApplicable(
        "a thread that helps in place cannot go on below a job that waits for it",
    ),
);

pub const PLACES: &[Place] = &[
    Place::new("pool/spawn", pool_spawn),
    Place::new("pool/spawn-with-panic-handler", spawn_with_handler),
    Place::new("pool/spawn-fifo", spawn_fifo),
    Place::new("pool/spawn-broadcast", pool_spawn_broadcast),
    Place::new("pool/install", install),
    Place::new("pool/join-left", join_left),
    Place::new("pool/join-right", join_right),
    Place::new("pool/join-each", each),
    Place::new("pool/try-join", try_join),
    Place::new("pool/scope-body", scope_body),
    Place::new("pool/scope-spawn", scope_spawn),
    Place::new("pool/scope-spawn-many", scope_spawn_many),
    Place::new("pool/scope-fifo-spawn", scope_fifo_spawn),
    Place::new("pool/scope-spawn-broadcast", scope_spawn_broadcast),
    Place::new("pool/in-place-scope-spawn", in_place_scope_spawn),
    Place::new("pool/broadcast", pool_broadcast),
    Place::new("pool/current-thread-join-left", current_thread_join_left),
    Place::new("pool/current-thread-join-right", current_thread_join_right),
    Place::new("pool/current-thread-scope", current_thread_scope),
    Place::new(
        "pool/current-thread-runtime-job",
        current_thread_runtime_job,
    )
    .with(&[IN_PLACE]),
    Place::new("pool/on-start", on_start),
    Place::new("pool/on-exit", on_exit),
    Place::new("pool/on-panic", on_panic),
    Place::new("pool/worker-name", worker_name),
    Place::new("pool/spawn-with", spawn_with),
    Place::new("pool/captured-by-handlers", captured_by_handlers),
    Place::new("pool/captured-by-task", captured_by_task),
    Place::new("pool/captured-by-join", captured_by_join),
    Place::new("pool/captured-by-scope-task", captured_by_scope_task),
    Place::new(
        "pool/captured-by-fork-not-begun",
        captured_by_fork_not_begun,
    ),
    Place::new("pool/result-of-join", result_of_join),
    Place::new("pool/result-of-plain-join", result_of_plain_join),
    Place::new("pool/result-of-join-each", result_of_join_each),
    Place::new("pool/result-of-broadcast", result_of_broadcast),
    Place::new("pool/nested-waits-install", nested_install),
    Place::new("pool/nested-waits-join-left", nested_join_left),
    Place::new("pool/nested-waits-join-right", nested_join_right),
    Place::new("pool/nested-waits-scope-spawn", nested_scope_spawn),
    Place::new("pool/nested-waits-result-of-join", nested_result_of_join),
];

/// Starts `body` on the cell's pool, to which only the stage has a handle then; returns what the body says.
fn on_pool<R: Send + 'static>(
    stage: &Arc<Stage>,
    body: impl FnOnce(&Arc<Stage>) -> R + Send + 'static,
) -> R {
    let pool = stage.pool();
    let (sender, receiver) = mpsc::channel();
    let user = stage.clone();
    pool.spawn(move || drop(sender.send(body(&user))));
    drop(pool);
    stage.is_alone();
    receiver.recv().expect("the task ends well")
}

fn pool_spawn(stage: &Arc<Stage>) {
    let pool = stage.pool();
    let done = Arc::new(OnceLatch::new());
    let (user, latch) = (stage.clone(), done.clone());
    let caught = jobtree::user_code::caught_panics;
    let before = caught();
    pool.spawn(move || {
        let _set = Guard::new(move || latch.set());
        user.act();
    });
    drop(pool);
    stage.is_alone();
    done.wait();
    // Without a handler the panic is recorded.
    until(|| !stage.behaviour.panics() || caught() > before);
}

/// A pool whose panic handler counts.
fn handled(stage: &Arc<Stage>) -> (Arc<Pool>, Arc<AtomicUsize>) {
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = panics.clone();
    let builder = Pool::builder()
        .workers(stage.workers)
        .on_panic(move |payload| {
            std::mem::forget(payload);
            counted.fetch_add(1, Ordering::SeqCst);
        });
    (stage.keep_pool(builder.build().unwrap()), panics)
}

fn detached(stage: &Arc<Stage>, start: impl FnOnce(&Pool, Arc<dyn Fn() + Send + Sync>)) {
    let (pool, panics) = handled(stage);
    let done = Arc::new(AtomicUsize::new(0));
    let (user, counted) = (stage.clone(), done.clone());
    let body = move || {
        let _done = Guard::new(|| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        user.act();
    };
    start(&pool, Arc::new(body));
    drop(pool);
    stage.is_alone();
    until(|| done.load(Ordering::SeqCst) > 0);
    let planned = usize::from(stage.behaviour.panics());
    until(|| panics.load(Ordering::SeqCst) == planned);
}

fn spawn_with_handler(stage: &Arc<Stage>) {
    detached(stage, |pool, body| pool.spawn(move || body()));
}

fn spawn_fifo(stage: &Arc<Stage>) {
    detached(stage, |pool, body| pool.spawn_fifo(move || body()));
}

fn pool_spawn_broadcast(stage: &Arc<Stage>) {
    detached(stage, |pool, body| pool.spawn_broadcast(move |_| body()));
}

fn install(stage: &Arc<Stage>) {
    let pool = Pool::builder().workers(stage.workers).build().unwrap();
    let result = stage.propagates(|| pool.install(|| stage.act()));
    assert_eq!(result.is_none(), stage.behaviour.panics());
}

fn join_left(stage: &Arc<Stage>) {
    let result = on_pool(stage, |stage| {
        stage.propagates(|| join(|| stage.act(), || 2))
    });
    assert!(result.is_none_or(|((), two)| two == 2));
}

fn join_right(stage: &Arc<Stage>) {
    let result = on_pool(stage, |stage| {
        stage.propagates(|| join(|| 1, || stage.act()))
    });
    assert!(result.is_none_or(|(one, ())| one == 1));
}

fn each(stage: &Arc<Stage>) {
    on_pool(stage, |stage| {
        stage.propagates(|| join_each([0, 1, 2].map(|_| || stage.act())))
    });
}

fn try_join(stage: &Arc<Stage>) {
    on_pool(stage, |stage| {
        stage.propagates(|| par::try_join(|| Ok::<_, ()>(stage.act()), || Ok(())))
    });
}

fn scope_body(stage: &Arc<Stage>) {
    on_pool(stage, |stage| {
        stage.propagates(|| {
            scope(|s| {
                s.spawn(|_| ());
                stage.act();
            })
        })
    });
}

fn scope_spawn(stage: &Arc<Stage>) {
    on_pool(stage, |stage| {
        stage.propagates(|| {
            scope(|s| {
                s.spawn(|s| {
                    // Re-enters its own scope, whatever the cell is about.
                    s.spawn(|_| ());
                    stage.act();
                });
            });
        })
    });
}

fn scope_spawn_many(stage: &Arc<Stage>) {
    // Several panics: the scope hands on the first payload and must end the others.
    if stage.behaviour != Hold {
        stage.act_often(3);
    }
    on_pool(stage, |stage| {
        stage.propagates(|| scope(|s| (0..3).for_each(|_| s.spawn(|_| stage.act()))))
    });
}

fn scope_fifo_spawn(stage: &Arc<Stage>) {
    on_pool(stage, |stage| {
        stage.propagates(|| scope_fifo(|s| s.spawn_fifo(|_| stage.act())))
    });
}

fn scope_spawn_broadcast(stage: &Arc<Stage>) {
    on_pool(stage, |stage| {
        stage.propagates(|| scope(|s| s.spawn_broadcast(|_, _| stage.act())))
    });
}

fn in_place_scope_spawn(stage: &Arc<Stage>) {
    stage.propagates(|| in_place_scope(|s| s.spawn(|_| stage.act())));
}

fn pool_broadcast(stage: &Arc<Stage>) {
    on_pool(stage, |stage| {
        stage.propagates(|| broadcast(|_| stage.act()).len())
    });
    // Of the global pool, for the free function that starts one without waiting.
    let done = Arc::new(AtomicUsize::new(0));
    let counted = done.clone();
    spawn_broadcast(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    until(|| done.load(Ordering::SeqCst) >= 1);
}

/// Makes the calling thread worker 0 of a pool to which only the stage has a handle.
fn become_worker(stage: &Arc<Stage>) {
    let builder = Pool::builder().workers(stage.workers).use_current_thread();
    drop(stage.keep_pool(builder.build().unwrap()));
    stage.is_alone();
}

/// The pool must be dropped by the thread that made it.
fn stop_being_worker(stage: &Arc<Stage>) {
    stage.drop_handles();
}

fn current_thread_join_left(stage: &Arc<Stage>) {
    become_worker(stage);
    stage.propagates(|| join(|| stage.act(), || ()));
    stop_being_worker(stage);
}

fn current_thread_join_right(stage: &Arc<Stage>) {
    become_worker(stage);
    stage.propagates(|| join(|| (), || stage.act()));
    stop_being_worker(stage);
}

fn current_thread_scope(stage: &Arc<Stage>) {
    become_worker(stage);
    stage.propagates(|| scope(|s| s.spawn(|_| stage.act())));
    stop_being_worker(stage);
}

fn current_thread_runtime_job(stage: &Arc<Stage>) {
    let pool = Pool::builder().workers(stage.workers).use_current_thread();
    let runtime = stage.runtime_of(jobtree::Runtime::builder().pool(pool));
    let user = stage.clone();
    let handle = runtime.spawn(move || Ok(user.act()));
    stage.keep_job(handle.job());
    drop(runtime);
    stage.is_alone();
    stage.check_body(handle.join());
    stop_being_worker(stage);
}

fn on_start(stage: &Arc<Stage>) {
    let user = stage.clone();
    let builder = Pool::builder().workers(stage.workers);
    let pool = builder.on_start(move |_| user.act()).build().unwrap();
    drop(stage.keep_pool(pool));
    stage.is_alone();
    stage.until_acted();
}

fn on_exit(stage: &Arc<Stage>) {
    let user = stage.clone();
    let builder = Pool::builder().workers(stage.workers);
    let pool = builder.on_exit(move |_| user.act()).build().unwrap();
    pool.install(|| ());
    // The pool is a handle of this thread; the cells about dropping or shutting down do so while it ends.
    drop(pool);
    stage.until_acted();
}

fn on_panic(stage: &Arc<Stage>) {
    let user = stage.clone();
    let builder = Pool::builder()
        .workers(stage.workers)
        .on_panic(move |_| user.act());
    let pool = stage.keep_pool(builder.build().unwrap());
    pool.spawn(|| panic!("of a task"));
    drop(pool);
    stage.is_alone();
    stage.until_acted();
}

fn worker_name(stage: &Arc<Stage>) {
    let user = stage.clone();
    let builder = Pool::builder()
        .workers(stage.workers)
        .worker_name(move |index| {
            user.act();
            index.to_string()
        });
    if let Some(pool) = stage.propagates(|| builder.build()) {
        drop(stage.keep_pool(pool.unwrap()));
    }
}

fn spawn_with(stage: &Arc<Stage>) {
    let user = stage.clone();
    let builder = Pool::builder()
        .workers(stage.workers)
        .spawn_with(move |start| {
            user.act();
            std::thread::Builder::new().spawn(|| start.run()).map(drop)
        });
    if let Some(pool) = stage.propagates(|| builder.build()) {
        drop(stage.keep_pool(pool.unwrap()));
    }
}

fn captured_by_handlers(stage: &Arc<Stage>) {
    let value = stage.on_drop();
    let builder = Pool::builder().workers(stage.workers).on_exit(move |_| {
        let _ = &value;
    });
    let pool = builder.build().unwrap();
    pool.install(|| ());
    drop(pool);
    stage.until_acted();
}

fn captured_by_task(stage: &Arc<Stage>) {
    let (pool, panics) = handled(stage);
    let value = stage.on_drop();
    pool.spawn(move || drop(value));
    drop(pool);
    stage.is_alone();
    stage.until_acted();
    let planned = usize::from(stage.behaviour.panics());
    until(|| panics.load(Ordering::SeqCst) == planned);
}

fn captured_by_join(stage: &Arc<Stage>) {
    on_pool(stage, |stage| {
        let (left, right) = (stage.on_drop(), stage.on_drop());
        stage.propagates(|| join(move || drop(left), move || drop(right)))
    });
}

fn captured_by_scope_task(stage: &Arc<Stage>) {
    on_pool(stage, |stage| {
        let value = stage.on_drop();
        stage.propagates(|| scope(|s| s.spawn(move |_| drop(value))))
    });
}

/// Runs forks one side of which panics: that panic comes out, and no caller gets the value of the other side.
fn other_side_panics(stage: &Arc<Stage>, forks: impl FnOnce(OnDrop) + Send + 'static) {
    on_pool(stage, |stage| {
        let value = stage.on_guarded_drop();
        let joined = catch_unwind(AssertUnwindSafe(|| forks(value)));
        let payload = joined.expect_err("one side panics");
        // A job that is cancelled unwinds at its forks by itself.
        let is_planned = payload.downcast_ref() == Some(&"the other side");
        assert!(
            is_planned || stage.behaviour.cancels(),
            "another panic came out"
        );
    });
    stage.until_acted();
}

fn captured_by_fork_not_begun(stage: &Arc<Stage>) {
    other_side_panics(stage, |value| {
        join(|| panic!("the other side"), move || drop(value));
    });
}

fn result_of_join(stage: &Arc<Stage>) {
    other_side_panics(stage, |value| {
        join(move || value, || panic!("the other side"));
    });
}

fn result_of_plain_join(stage: &Arc<Stage>) {
    fn nested(depth: usize, value: OnDrop) {
        match depth {
            0 => join(move || value, || -> () { panic!("the other side") }).1,
            _ => join(move || nested(depth - 1, value), || ()).1,
        }
    }
    // Deep inside of forks, one more is no more than two calls.
    other_side_panics(stage, |value| nested(32, value));
}

fn result_of_join_each(stage: &Arc<Stage>) {
    other_side_panics(stage, |value| {
        let mut value = Some(value);
        let bodies = [0, 1, 2, 3].map(|number| {
            let value = value.take();
            move || match number {
                2 => panic!("the other side"),
                _ => value,
            }
        });
        join_each(bodies);
    });
}

fn result_of_broadcast(stage: &Arc<Stage>) {
    on_pool(stage, |stage| {
        let made = broadcast(|_| stage.on_drop());
        stage.propagates(|| drop(made))
    });
}

/// A pool on which waits nest as rayon's do.
fn nested(stage: &Arc<Stage>) -> Arc<Pool> {
    let builder = Pool::builder().workers(stage.workers).nested_waits();
    stage.keep_pool(builder.build().unwrap())
}

/// Runs `body` on such a pool, to which only the stage has a handle then; a panic of user code comes out of it.
fn on_nested(stage: &Arc<Stage>, body: impl FnOnce(&Arc<Stage>) + Send + 'static) {
    let pool = nested(stage);
    let (sender, receiver) = mpsc::channel();
    let user = stage.clone();
    pool.spawn(move || {
        let ended = catch_unwind(AssertUnwindSafe(|| body(&user)));
        drop(sender.send(ended));
    });
    drop(pool);
    stage.is_alone();
    let ended = receiver.recv().expect("the task ends well");
    stage.propagates(|| ended.unwrap_or_else(|payload| resume_unwind(payload)));
}

fn nested_install(stage: &Arc<Stage>) {
    let pool = nested(stage);
    // The handle is lent for the call, so the stage's is not the last one.
    stage.is_alone();
    stage.propagates(|| pool.install(|| stage.act()));
}

fn nested_join_left(stage: &Arc<Stage>) {
    on_nested(stage, |stage| assert_eq!(join(|| stage.act(), || 1).1, 1));
}

fn nested_join_right(stage: &Arc<Stage>) {
    on_nested(stage, |stage| assert_eq!(join(|| 1, || stage.act()).0, 1));
}

fn nested_scope_spawn(stage: &Arc<Stage>) {
    on_nested(stage, |stage| {
        scope(|s| {
            s.spawn(|_| stage.act());
            s.spawn(|_| ());
        });
    });
}

fn nested_result_of_join(stage: &Arc<Stage>) {
    let pool = nested(stage);
    let value = stage.on_guarded_drop();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        pool.install(|| join(move || value, || panic!("the other side")).1)
    }));
    let payload: Box<dyn std::any::Any + Send> = ended.unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"the other side"));
    drop(pool);
    stage.is_alone();
    stage.until_acted();
}
