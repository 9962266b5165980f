//! Tasks in other people's allocations.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jobtree_pool::raw::PoolRef;
use jobtree_pool::raw::task::{RawContext, RawTask, RawTaskKind, wait_helping};
use jobtree_pool::{
    OnceLatch, Pool, UserContext, Worker, current_worker_index, user_context, with_user_context,
};

/// What the tasks of a test tell.
struct Report {
    left: AtomicUsize,
    on_caller: AtomicUsize,
    context: AtomicUsize,
    ended: OnceLatch,
}

impl Report {
    fn of(tasks: usize) -> Arc<Report> {
        Arc::new(Report {
            left: AtomicUsize::new(tasks),
            on_caller: AtomicUsize::new(0),
            context: AtomicUsize::new(0),
            ended: OnceLatch::new(),
        })
    }
}

/// An allocation with a task in the middle of its life.
#[repr(C)]
struct Node {
    task: RawTask,
    report: Arc<Report>,
    caller: std::thread::ThreadId,
}

static KIND: RawTaskKind = RawTaskKind::new(run, || "a node of the test");

unsafe fn run(task: NonNull<RawTask>, worker: &Worker) {
    assert_eq!(current_worker_index(), Some(worker.index()));
    // SAFETY: each task of this kind is the first field of a boxed `Node`, and is run once.
    let node = unsafe { Box::from_raw(task.cast::<Node>().as_ptr()) };
    let report = &node.report;
    if node.caller == std::thread::current().id() {
        report.on_caller.fetch_add(1, Ordering::Relaxed);
    }
    report
        .context
        .fetch_add(user_context().addr(), Ordering::Relaxed);
    if report.left.fetch_sub(1, Ordering::AcqRel) == 1 {
        report.ended.set();
    }
}

fn node(report: &Arc<Report>, owner: *const ()) -> NonNull<RawTask> {
    let node = Box::new(Node {
        task: RawTask::new(&KIND, owner),
        report: report.clone(),
        caller: std::thread::current().id(),
    });
    NonNull::from(Box::leak(node)).cast()
}

const TASKS: usize = if cfg!(miri) { 5 } else { 1000 };

fn submit_all(pool: &Pool, report: &Arc<Report>, owner: *const (), context: RawContext) {
    for _ in 0..TASKS {
        // SAFETY: a fresh node that `run` frees; the callers give a context that they keep until then.
        unsafe { pool.submit_raw(node(report, owner), context) };
    }
}

#[test]
fn tasks_from_outside_and_inside_run_once_each() {
    for workers in [1, 2, 4] {
        let pool = Pool::builder().workers(workers).build().unwrap();
        let report = Report::of(2 * TASKS);
        submit_all(&pool, &report, std::ptr::null(), RawContext::outermost());
        pool.install(|| {
            submit_all(&pool, &report, std::ptr::null(), RawContext::outermost());
            report.ended.wait();
        });
        report.ended.wait();
        assert_eq!(report.left.load(Ordering::Relaxed), 0);
        assert_eq!(report.context.load(Ordering::Relaxed), 0);
        // Each task has given back its reference: none is left, and none ran twice.
        drop(pool);
    }
}

#[test]
fn who_waits_helping_runs_its_own_tasks_on_its_own_stack() {
    let pool = Pool::builder().workers(1).build().unwrap();
    let report = Report::of(TASKS);
    pool.install(|| {
        let owner: *const () = Arc::as_ptr(&report).cast();
        submit_all(&pool, &report, owner, RawContext::outermost());
        wait_helping(&report.ended, owner);
    });
    assert_eq!(report.on_caller.load(Ordering::Relaxed), TASKS);
    assert_eq!(
        pool.stats().total().parks,
        0,
        "no stack was parked for that"
    );
}

#[test]
fn who_waits_helping_leaves_other_peoples_tasks_until_it_is_parked() {
    let pool = Pool::builder().workers(1).build().unwrap();
    let (own, other) = (Report::of(TASKS), Report::of(TASKS));
    pool.install(|| {
        let owner: *const () = Arc::as_ptr(&own).cast();
        submit_all(&pool, &own, owner, RawContext::outermost());
        // On top of the queue, so the own ones are out of reach for helping.
        let stranger: *const () = Arc::as_ptr(&other).cast();
        submit_all(&pool, &other, stranger, RawContext::outermost());
        wait_helping(&own.ended, owner);
        assert_eq!(own.left.load(Ordering::Relaxed), 0);
    });
    other.ended.wait();
}

#[test]
fn an_outside_thread_can_wait_helping_too() {
    let pool = Pool::builder().workers(2).build().unwrap();
    let report = Report::of(TASKS);
    let owner: *const () = Arc::as_ptr(&report).cast();
    submit_all(&pool, &report, owner, RawContext::outermost());
    wait_helping(&report.ended, owner);
    assert_eq!(report.on_caller.load(Ordering::Relaxed), 0);
}

#[test]
fn a_task_runs_in_the_context_that_it_was_given() {
    let pool = Pool::builder().workers(2).build().unwrap();
    let context = || UserContext {
        user: std::ptr::without_provenance(64),
        stop: None,
    };
    let in_context = || {
        let inherited = Report::of(TASKS);
        submit_all(&pool, &inherited, std::ptr::null(), RawContext::current());
        let outermost = Report::of(TASKS);
        submit_all(&pool, &outermost, std::ptr::null(), RawContext::outermost());
        // Both have ended before the context's frame does.
        inherited.ended.wait();
        outermost.ended.wait();
        assert_eq!(inherited.context.load(Ordering::Relaxed), 64 * TASKS);
        assert_eq!(outermost.context.load(Ordering::Relaxed), 0);
    };
    // SAFETY: nobody follows the pointer.
    unsafe { with_user_context(context(), in_context) };
    // SAFETY: as above.
    pool.install(|| unsafe { with_user_context(context(), in_context) });
}

#[test]
fn a_pool_is_known_to_its_workers() {
    assert_eq!(PoolRef::current(), None);
    let pool = Pool::builder().workers(2).build().unwrap();
    let known = PoolRef::of(&pool);
    let inside = pool.install(PoolRef::current).unwrap();
    assert_eq!(inside, known);
    assert_eq!(pool.install(PoolRef::current_or_global), known);
    assert_eq!(known.workers(), 2);
    let report = Report::of(1);
    // SAFETY: a fresh node that `run` frees, in nobody's context.
    unsafe { known.submit_raw(node(&report, std::ptr::null()), RawContext::outermost()) };
    report.ended.wait();
    known.interrupt_forks();
    // A reference keeps neither the threads nor the shutdown.
    pool.shutdown(std::time::Duration::from_secs(60)).unwrap();
    drop((known, inside));
}
