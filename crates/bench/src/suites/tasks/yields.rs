//! Giving way: a few or many tasks on one worker, each of which lets the others run again and again.
//!
//! The clock runs from the moment when all of them have begun until the last one has had its turns, so that spawning is
//! not in it, whatever that costs a side.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jobtree_pool::Yield;
use jobtree_runtime::{Runtime, future, nursery};

use super::may::{May, in_may};
use super::{Options, TOKIO};
use crate::harness::{Contender, Goal, Report, Role};
use crate::servant::Service;
use crate::suites::shared::{
    Spec, end, in_our_future, in_our_task, in_tokio, our_runtime, tokio_runtime,
};

/// How often all tasks together give way in one iteration.
const YIELDS: u64 = 10_000;

/// How many tasks there are.
const CROWDS: [u64; 2] = [2, 1000];

/// In the order of [`CROWDS`].
pub const MAY: &[Service] = &[
    Service {
        name: "yield-2",
        run: |iterations| in_may(move || in_may_scope(CROWDS[0], iterations)),
    },
    Service {
        name: "yield-1000",
        run: |iterations| in_may(move || in_may_scope(CROWDS[1], iterations)),
    },
];

/// Adds a row for tasks and one for futures, for each number of them.
pub fn run(options: &Options, report: &mut Report) {
    for (tasks, service) in CROWDS.into_iter().zip(MAY) {
        of_tasks(options, report, tasks, service);
    }
    for tasks in CROWDS {
        of_futures(options, report, tasks);
    }
}

fn spec(name: String, nanoseconds: f64) -> Spec {
    Spec::on_one_thread(name, "yield", YIELDS).goal(Goal::nanoseconds(nanoseconds))
}

fn of_tasks(options: &Options, report: &mut Report, tasks: u64, service: &'static Service) {
    let name = format!("yield of a task, {tasks} on 1 worker");
    if !options.wants(&name) {
        return;
    }
    let (ours, tokio, may) = (our_runtime(1), tokio_runtime(1), May::start(1));
    let our_side = |(): &mut (), iterations| our_tasks(&ours, tasks, iterations);
    let mut contenders = vec![
        Contender::new("ours", Role::Ours, our_side),
        Contender::new("ours again", Role::Control, our_side),
        Contender::new(TOKIO, Role::Peer, |(), iterations| {
            in_tokio(&tokio, tokio_tasks(tasks, iterations))
        }),
    ];
    contenders.extend(may.contender(service.name));
    spec(name, 30.0).run(&options.plan, contenders, report);
    end(&ours);
}

fn of_futures(options: &Options, report: &mut Report, tasks: u64) {
    let name = format!("yield of a future, {tasks} on 1 worker");
    if !options.wants(&name) {
        return;
    }
    let (ours, tokio) = (our_runtime(1), tokio_runtime(1));
    let our_side = |(): &mut (), iterations| in_our_future(&ours, our_futures(tasks, iterations));
    let contenders = vec![
        Contender::new("ours", Role::Ours, our_side),
        Contender::new("ours again", Role::Control, our_side),
        Contender::new(TOKIO, Role::Peer, |(), iterations| {
            in_tokio(&tokio, tokio_tasks(tasks, iterations))
        }),
    ];
    spec(name, 60.0).run(&options.plan, contenders, report);
    end(&ours);
}

/// Who is there, and the time while all are.
struct Crowd {
    tasks: u64,
    /// How often each of them gives way.
    turns: u64,
    begun: AtomicU64,
    ended: AtomicU64,
    start: OnceLock<Instant>,
    end: OnceLock<Instant>,
}

impl Crowd {
    fn new(tasks: u64, iterations: u64) -> Arc<Self> {
        Arc::new(Self {
            tasks,
            turns: iterations * YIELDS / tasks,
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            start: OnceLock::new(),
            end: OnceLock::new(),
        })
    }

    fn begin(&self) {
        if self.begun.fetch_add(1, Ordering::AcqRel) + 1 == self.tasks {
            self.start.get_or_init(Instant::now);
        }
    }

    fn is_complete(&self) -> bool {
        self.begun.load(Ordering::Acquire) == self.tasks
    }

    fn end(&self) {
        if self.ended.fetch_add(1, Ordering::AcqRel) + 1 == self.tasks {
            self.end.get_or_init(Instant::now);
        }
    }

    /// The time, and how often all of them together have given way.
    fn result(&self) -> (Duration, u64) {
        let (Some(start), Some(end)) = (self.start.get(), self.end.get()) else {
            unreachable!("all tasks have begun and ended");
        };
        (end.duration_since(*start), self.tasks * self.turns)
    }
}

fn our_tasks(runtime: &Runtime, tasks: u64, iterations: u64) -> (Duration, u64) {
    in_our_task(runtime, move || {
        let crowd = &*Crowd::new(tasks, iterations);
        let executed: Result<u64, _> = nursery(|scope| {
            let spawn = |_| scope.spawn(move || Ok(our_task(crowd)));
            let handles: Vec<_> = (0..tasks).map(spawn).collect();
            let mut executed = 0;
            for handle in handles {
                executed += handle.join()?;
            }
            Ok(executed)
        });
        let (time, yields) = crowd.result();
        // When the others have had all their turns, there is nobody left to give way to.
        let alone = yields - executed.expect("no job fails").min(yields);
        assert!(alone <= tasks, "{alone} of {yields} yields found nobody");
        (time, yields)
    })
}

/// Gives how often something else has run.
fn our_task(crowd: &Crowd) -> u64 {
    let has_run = || u64::from(jobtree_pool::yield_now() == Some(Yield::Executed));
    crowd.begin();
    while !crowd.is_complete() {
        has_run();
    }
    let executed = (0..crowd.turns).map(|_| has_run()).sum();
    crowd.end();
    executed
}

async fn our_futures(tasks: u64, iterations: u64) -> (Duration, u64) {
    let crowd = Crowd::new(tasks, iterations);
    let shared = Arc::clone(&crowd);
    let all = future::nursery(async move |scope| {
        for _ in 0..tasks {
            let crowd = Arc::clone(&shared);
            // The scope waits for it, and fails with it.
            drop(scope.spawn_future(async move {
                crowd.begin();
                while !crowd.is_complete() {
                    future::yield_now().await;
                }
                for _ in 0..crowd.turns {
                    future::yield_now().await;
                }
                crowd.end();
                Ok(())
            }));
        }
        Ok(())
    });
    all.await.expect("no job fails");
    crowd.result()
}

async fn tokio_tasks(tasks: u64, iterations: u64) -> (Duration, u64) {
    let crowd = Crowd::new(tasks, iterations);
    let spawn = |_| {
        let crowd = Arc::clone(&crowd);
        tokio::spawn(async move {
            crowd.begin();
            while !crowd.is_complete() {
                tokio::task::yield_now().await;
            }
            for _ in 0..crowd.turns {
                tokio::task::yield_now().await;
            }
            crowd.end();
        })
    };
    let handles: Vec<_> = (0..tasks).map(spawn).collect();
    for handle in handles {
        handle.await.expect("no task fails");
    }
    crowd.result()
}

/// These wait at a barrier until all are there: a worker of may's does not look for new tasks as long as there is one that
/// gives way to itself.
fn in_may_scope(tasks: u64, iterations: u64) -> (Duration, u64) {
    let crowd = Crowd::new(tasks, iterations);
    let barrier = Arc::new(may::sync::Barrier::new(tasks as usize));
    let spawn = |_| {
        let (crowd, barrier) = (Arc::clone(&crowd), Arc::clone(&barrier));
        may::go!(move || {
            crowd.begin();
            barrier.wait();
            for _ in 0..crowd.turns {
                may::coroutine::yield_now();
            }
            crowd.end();
        })
    };
    let handles: Vec<_> = (0..tasks).map(spawn).collect();
    for handle in handles {
        handle.join().expect("no task fails");
    }
    crowd.result()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_gives_way_as_often_as_asked() {
        let (ours, tokio) = (our_runtime(1), tokio_runtime(1));
        for tasks in CROWDS {
            assert_eq!(our_tasks(&ours, tasks, 2).1, 2 * YIELDS);
            assert_eq!(in_our_future(&ours, our_futures(tasks, 2)).1, 2 * YIELDS);
            assert_eq!(in_tokio(&tokio, tokio_tasks(tasks, 2)).1, 2 * YIELDS);
            assert_eq!(in_may(move || in_may_scope(tasks, 2)).1, 2 * YIELDS);
        }
        end(&ours);
    }

    #[test]
    fn the_clock_runs_only_while_all_are_there() {
        let crowd = Crowd::new(2, 1);
        crowd.begin();
        assert!(!crowd.is_complete() && crowd.start.get().is_none());
        crowd.begin();
        assert!(crowd.is_complete() && crowd.start.get().is_some());
        crowd.end();
        assert!(crowd.end.get().is_none());
        crowd.end();
        assert_eq!(crowd.result().1, YIELDS);
    }
}
