//! A job with 32 who wait for its end: what it costs the one who ends it to wake each of them.
//!
//! tokio's `TaskTracker` has the same: those who wait for its last task. Wakers that count stand for the tasks, so that
//! each must be woken exactly once; that is looked at after each iteration.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};

use jobtree_tree::{Body, BodyResult, Tree};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::create::attach;
use super::{Options, PEER, Spec, with_less_time};
use crate::harness::{Contender, Report, Role, timed_between};

const NAME: &str = "32 waiters woken";

const WAITERS: u64 = 32;
/// How many jobs one iteration ends: a single one is too short for the clock.
const JOBS: u64 = 32;

/// Adds the row.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let tree = Tree::new();
    let ours = |(): &mut (), iterations| {
        let prepare = || Scene::new(|| our_job(&tree));
        let end = |body: Body| body.end(BodyResult::Value);
        timed_between(
            iterations,
            prepare,
            move |scene| scene.end_all(end),
            Scene::settle,
        )
    };
    let tokio = |(): &mut (), iterations| {
        let prepare = || Scene::new(tracked_task);
        timed_between(
            iterations,
            prepare,
            |scene| scene.end_all(drop::<TaskTrackerToken>),
            Scene::settle,
        )
    };
    Spec::on_one_thread(NAME, "waiter", JOBS * WAITERS).run(
        &with_less_time(&options.plan),
        vec![
            Contender::new("ours", Role::Ours, ours),
            Contender::new("ours again", Role::Control, ours),
            Contender::new(PEER, Role::Peer, tokio),
        ],
        report,
    );
}

type Waiting = Pin<Box<dyn Future<Output = ()>>>;

/// A job that runs, and those who wait for its end.
fn our_job(tree: &Tree) -> (Body, Vec<Waiting>) {
    let (job, body) = attach(tree.root());
    let waiting = (0..WAITERS).map(|_| Box::pin(job.ended()) as Waiting);
    (body, waiting.collect())
}

/// The only task of a tracker, and those who wait for the tracker to be empty.
fn tracked_task() -> (TaskTrackerToken, Vec<Waiting>) {
    let tracker = TaskTracker::new();
    let task = tracker.token();
    tracker.close();
    let wait = |tracker: TaskTracker| async move { tracker.wait().await };
    let waiting = (0..WAITERS).map(|_| Box::pin(wait(tracker.clone())) as Waiting);
    (task, waiting.collect())
}

/// Things that can be ended, with their waiters.
struct Scene<E> {
    to_end: Vec<E>,
    waiters: Vec<Waiter>,
}

impl<E> Scene<E> {
    fn new(mut make: impl FnMut() -> (E, Vec<Waiting>)) -> Self {
        let mut scene = Self {
            to_end: Vec::new(),
            waiters: Vec::new(),
        };
        for _ in 0..JOBS {
            let (to_end, waiting) = make();
            scene.to_end.push(to_end);
            scene.waiters.extend(waiting.into_iter().map(Waiter::enter));
        }
        scene
    }

    fn end_all(&mut self, end: impl Fn(E)) {
        self.to_end.drain(..).for_each(end);
    }

    /// How many were woken: each once, or there is nothing to compare.
    fn settle(self) -> u64 {
        for waiter in self.waiters {
            waiter.assert_woken_once();
        }
        JOBS * WAITERS
    }
}

/// Somebody who waits.
struct Waiter {
    future: Waiting,
    wakes: Arc<Wakes>,
}

impl Waiter {
    fn enter(mut future: Waiting) -> Self {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll.is_pending(), "ready before the end");
        Self { future, wakes }
    }

    fn assert_woken_once(mut self) {
        let times = self.wakes.0.load(Ordering::Relaxed);
        assert_eq!(times, 1, "a waiter was woken {times} times");
        let mut context = Context::from_waker(Waker::noop());
        assert!(
            self.future.as_mut().poll(&mut context).is_ready(),
            "woken for nothing"
        );
    }
}

/// How often somebody was woken.
#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::shared::shortest;

    #[test]
    fn every_waiter_of_both_sides_is_woken_once() {
        let mut report = Report::default();
        run(&shortest(NAME), &mut report);
        assert_eq!(report.rows.len(), 1);
    }

    #[test]
    #[should_panic(expected = "a waiter was woken 0 times")]
    fn a_waiter_that_was_forgotten_is_found() {
        let tree = Tree::new();
        let mut scene = Scene::new(|| our_job(&tree));
        // The last one of them is never ended.
        let last = scene.to_end.pop();
        scene.end_all(|body| body.end(BodyResult::Value));
        scene.settle();
        drop(last);
    }

    #[test]
    #[should_panic(expected = "a waiter was woken 2 times")]
    fn a_waiter_that_is_woken_twice_is_found() {
        let tree = Tree::new();
        let mut scene = Scene::new(|| our_job(&tree));
        scene.end_all(|body| body.end(BodyResult::Value));
        scene.waiters[0].wakes.wake_by_ref();
        scene.settle();
    }
}
