//! Tasks and futures that wait once: each for a one-shot channel that their parent sends into when all of them wait.
//!
//! The channel is tokio's, whose receiver is a future for any executor: all sides wait for the very same thing, and
//! differ only in what waiting means. A task of ours parks its stack until the receiver is ready; ours with our
//! own latch is shown beside it. may cannot wait for futures; it has a flag of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::{BoxError, JobHandle, Runtime, block_on, future, nursery};
use may::sync::SyncFlag;
use tokio::sync::oneshot;

use super::may::{May, in_may};
use super::{Options, TOKIO, workers};
use crate::harness::{Contender, Goal, Report, Role, timed};
use crate::servant::Service;
use crate::suites::shared::{
    Spec, end, in_our_future, in_our_task, in_tokio, our_runtime, our_runtime_on_small_stacks,
    repeat, tokio_runtime,
};

const TASK: &str = "task that parks once: spawn and join, 1000 at a time";
const FUTURE: &str = "future that is pending once: spawn and await, 1000 at a time";

/// How many wait at once.
const TASKS: u64 = 1000;
/// Every one of them gives its number doubled.
#[cfg(test)]
const SUM: u64 = TASKS * (TASKS - 1);

pub const MAY: &[Service] = &[Service {
    name: "park",
    run: |iterations| in_may(move || timed(&mut (), iterations, |()| in_may_scope())),
}];

/// Adds a row for tasks and one for futures.
pub fn run(options: &Options, report: &mut Report) {
    tasks(options, report);
    futures(options, report);
}

fn spec(options: &Options, name: &str) -> Spec {
    Spec {
        name: name.into(),
        workers: workers(options),
        unit: "task",
        units: TASKS,
        goal: Goal::side(TOKIO, 0.6),
    }
}

fn tasks(options: &Options, report: &mut Report) {
    if !options.wants(TASK) {
        return;
    }
    let ours = our_runtime(workers(options));
    let on_small_stacks = our_runtime_on_small_stacks(workers(options));
    let tokio = tokio_runtime(workers(options));
    let may = May::start(workers(options));
    let side = |scope: fn() -> u64| {
        let ours = &ours;
        move |(): &mut (), iterations| scopes_in(ours, iterations, scope)
    };
    let mut contenders = vec![
        Contender::new("ours", Role::Ours, side(our_tasks)),
        Contender::new("ours again", Role::Control, side(our_tasks)),
        Contender::new("own latch", Role::Variant, side(our_tasks_with_latches)),
        Contender::new("small stacks", Role::Variant, |(), iterations| {
            scopes_in(&on_small_stacks, iterations, our_tasks)
        }),
        Contender::new(TOKIO, Role::Peer, |(), iterations| {
            in_tokio(&tokio, repeat(iterations, tokio_tasks))
        }),
    ];
    contenders.extend(may.contender(MAY[0].name));
    spec(options, TASK).run(&options.plan, contenders, report);
    end(&ours);
    end(&on_small_stacks);
}

fn scopes_in(runtime: &Runtime, iterations: u64, scope: fn() -> u64) -> (Duration, u64) {
    in_our_task(runtime, move || timed(&mut (), iterations, |()| scope()))
}

fn futures(options: &Options, report: &mut Report) {
    if !options.wants(FUTURE) {
        return;
    }
    let ours = our_runtime(workers(options));
    let tokio = tokio_runtime(workers(options));
    let in_our_scopes =
        |(): &mut (), iterations| in_our_future(&ours, repeat(iterations, our_futures));
    let contenders = vec![
        Contender::new("ours", Role::Ours, in_our_scopes),
        Contender::new("ours again", Role::Control, in_our_scopes),
        Contender::new(TOKIO, Role::Peer, |(), iterations| {
            in_tokio(&tokio, repeat(iterations, tokio_tasks))
        }),
    ];
    spec(options, FUTURE).run(&options.plan, contenders, report);
    end(&ours);
}

/// Counts those who are about to wait, and says whether the caller is the last one.
#[derive(Default)]
struct Arrivals(AtomicU64);

impl Arrivals {
    fn is_last(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) + 1 == TASKS
    }
}

/// [`Arrivals`] whose last one tells a parent that waits for a channel.
struct Gathering {
    arrivals: Arrivals,
    complete: Mutex<Option<oneshot::Sender<()>>>,
}

impl Gathering {
    fn new() -> (Arc<Self>, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let gathering = Self {
            arrivals: Arrivals::default(),
            complete: Mutex::new(Some(sender)),
        };
        (Arc::new(gathering), receiver)
    }

    fn arrive(&self) {
        if self.arrivals.is_last() {
            let sender = self.complete.lock().expect("nobody panics").take();
            let sender = sender.expect("only one is the last");
            sender.send(()).expect("the parent waits");
        }
    }
}

/// What all sides that wait for channels do to end the wait: every task gets its number once more.
fn send_all(senders: Vec<oneshot::Sender<u64>>) {
    for (number, sender) in (0..).zip(senders) {
        sender.send(number).expect("the task waits");
    }
}

fn our_tasks() -> u64 {
    let (gathering, waiting) = Gathering::new();
    let gathering = &gathering;
    let sum = nursery(|scope| {
        let (senders, handles) = spawn_each(|number, receiver| {
            scope.spawn(move || {
                gathering.arrive();
                Ok(number + block_on(receiver)??)
            })
        });
        block_on(waiting)??;
        send_all(senders);
        join_all(handles)
    });
    sum.expect("no job fails")
}

/// Makes a channel for each number, and starts who waits for it.
fn spawn_each<H>(
    mut spawn: impl FnMut(u64, oneshot::Receiver<u64>) -> H,
) -> (Vec<oneshot::Sender<u64>>, Vec<H>) {
    let spawned = (0..TASKS).map(|number| {
        let (sender, receiver) = oneshot::channel();
        (sender, spawn(number, receiver))
    });
    spawned.unzip()
}

fn join_all(handles: Vec<JobHandle<u64>>) -> Result<u64, BoxError> {
    let mut sum = 0;
    for handle in handles {
        sum += handle.join()?;
    }
    Ok(sum)
}

fn our_tasks_with_latches() -> u64 {
    let (arrivals, all_wait) = &(Arrivals::default(), OnceLatch::new());
    let latches: Vec<OnceLatch> = (0..TASKS).map(|_| OnceLatch::new()).collect();
    let sum = nursery(|scope| {
        let handles = (0..).zip(&latches).map(|(number, latch)| {
            scope.spawn(move || {
                if arrivals.is_last() {
                    all_wait.set();
                }
                latch.wait();
                Ok(2 * number)
            })
        });
        let handles = handles.collect();
        all_wait.wait();
        latches.iter().for_each(OnceLatch::set);
        join_all(handles)
    });
    sum.expect("no job fails")
}

async fn our_futures() -> u64 {
    let (gathering, waiting) = Gathering::new();
    let sum = future::nursery(async move |scope| {
        let (senders, handles) = spawn_each(|number, receiver| {
            let gathering = Arc::clone(&gathering);
            scope.spawn_future(async move {
                gathering.arrive();
                Ok(number + receiver.await?)
            })
        });
        waiting.await?;
        send_all(senders);
        let mut sum = 0;
        for handle in handles {
            sum += handle.await?;
        }
        Ok(sum)
    });
    sum.await.expect("no job fails")
}

async fn tokio_tasks() -> u64 {
    let (gathering, waiting) = Gathering::new();
    let (senders, handles) = spawn_each(|number, receiver| {
        let gathering = Arc::clone(&gathering);
        tokio::spawn(async move {
            gathering.arrive();
            number + receiver.await.expect("the parent sends")
        })
    });
    waiting.await.expect("the last one says so");
    send_all(senders);
    let mut sum = 0;
    for handle in handles {
        sum += handle.await.expect("no task fails");
    }
    sum
}

fn in_may_scope() -> u64 {
    let all = Arc::new((Arrivals::default(), SyncFlag::new()));
    let tasks = (0..TASKS).map(|number| {
        let flag = Arc::new(SyncFlag::new());
        let (all, waits_for) = (Arc::clone(&all), Arc::clone(&flag));
        let handle = may::go!(move || {
            let (arrivals, all_wait) = &*all;
            if arrivals.is_last() {
                all_wait.fire();
            }
            waits_for.wait();
            2 * number
        });
        (flag, handle)
    });
    let (flags, handles): (Vec<_>, Vec<_>) = tasks.unzip();
    all.1.wait();
    flags.iter().for_each(|flag| flag.fire());
    let values = handles
        .into_iter()
        .map(|handle| handle.join().expect("no task fails"));
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_gets_every_value() {
        let ours = our_runtime(2);
        assert_eq!(in_our_task(&ours, our_tasks), SUM);
        assert_eq!(in_our_task(&ours, our_tasks_with_latches), SUM);
        assert_eq!(in_our_future(&ours, our_futures()), SUM);
        end(&ours);
        assert_eq!(in_tokio(&tokio_runtime(2), tokio_tasks()), SUM);
        assert_eq!(in_may(in_may_scope), SUM);
    }
}
