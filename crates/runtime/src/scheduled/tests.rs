//! A queue that a test looks at between any two steps.

use std::collections::VecDeque;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_tree::{BoxError, Cause, Job, JobError, JobState};

use super::{
    Description, Header, ParkHook, Prepared, Ran, Schedule, Tickets, Turn, prepare, with_park_hook,
};
use crate::future::Nursery;
use crate::owned::OwnedNursery;
use crate::runtime::Runtime;
use crate::{binding, checkpoint, future, sim};

type Queue = Arc<Mutex<VecDeque<Turn<InTest>>>>;

/// What the tests remember of a job.
struct InTest {
    queue: Queue,
    ending: AtomicUsize,
    ended: AtomicUsize,
}

impl InTest {
    fn new(queue: &Queue) -> InTest {
        InTest {
            queue: Arc::clone(queue),
            ending: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
        }
    }

    /// How often it was told of the end, before and after.
    fn told(&self) -> (usize, usize) {
        (
            self.ending.load(Ordering::Relaxed),
            self.ended.load(Ordering::Relaxed),
        )
    }
}

impl Schedule for InTest {
    fn due(turn: Turn<InTest>) {
        let queue = Arc::clone(&turn.queue);
        queue.lock().unwrap().push_back(turn);
    }

    fn ending(&self, _: bool) {
        self.ending.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(header: &Header<InTest>) {
        assert!(header.job().is_ended());
        header.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// A runtime, a queue, and a scope for jobs.
struct World {
    runtime: Runtime,
    scope: OwnedNursery,
    queue: Queue,
}

impl World {
    fn new() -> World {
        let runtime = Runtime::builder().workers(1).build().unwrap();
        World {
            scope: runtime.owned_nursery(true).unwrap(),
            queue: Queue::default(),
            runtime,
        }
    }

    fn nursery(&self) -> &Nursery {
        self.scope.nursery()
    }

    fn prepare<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, BoxError>> + Send + 'static,
    ) -> Prepared<InTest, T> {
        prepare(
            self.nursery(),
            described(),
            InTest::new(&self.queue),
            |_| future,
        )
    }

    fn next(&self) -> Option<Turn<InTest>> {
        self.queue.lock().unwrap().pop_front()
    }

    fn end(self) {
        let World { runtime, scope, .. } = self;
        scope.close();
        runtime.shutdown(Duration::from_secs(60)).unwrap();
    }
}

/// Is ready when it was told so; gives its waker to the test.
#[derive(Clone, Default)]
struct Signal(Arc<Mutex<(bool, Option<Waker>)>>);

impl Signal {
    fn set(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Future for Signal {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

fn described() -> Description {
    Description {
        label: Some("in a test".into()),
        contained: false,
    }
}

fn first<T>(prepared: &mut Prepared<InTest, T>) -> Turn<InTest> {
    prepared.turn.take().expect("it was not born cancelled")
}

fn assert_cancelled<T: std::fmt::Debug>(prepared: Prepared<InTest, T>) {
    assert_eq!(prepared.header.told(), (1, 1));
    assert!(matches!(
        prepared.handle.join(),
        Err(JobError::Cancelled(_))
    ));
}

#[test]
fn a_job_is_polled_in_itself_and_leaves_its_value() {
    let world = World::new();
    let mut prepared = world.prepare(async {
        assert_eq!(Job::current().unwrap().label(), "in a test");
        checkpoint()?;
        Ok(jobtree_pool::join(|| 40, || 2))
    });
    assert_eq!(prepared.handle.job().state(), JobState::Pending);
    assert!(matches!(first(&mut prepared).run(), Ran::Ended));
    assert_eq!(prepared.header.told(), (1, 1));
    assert_eq!(prepared.handle.join().unwrap(), (40, 2));
    world.end();
}

#[test]
fn a_wake_while_it_waits_makes_one_turn() {
    let world = World::new();
    let signal = Signal::default();
    let waits_for = signal.clone();
    let mut prepared = world.prepare(async {
        waits_for.await;
        Ok(7)
    });
    assert!(matches!(first(&mut prepared).run(), Ran::Waits));
    assert!(world.next().is_none());
    let waker = signal.0.lock().unwrap().1.clone().unwrap();
    signal.set();
    // Once more while it is queued: no second turn.
    waker.wake();
    let turn = world.next().unwrap();
    assert!(world.next().is_none());
    assert!(matches!(turn.run(), Ran::Ended));
    assert_eq!(prepared.handle.join().unwrap(), 7);
    world.end();
}

#[test]
fn a_wake_before_the_first_poll_is_part_of_the_first_turn() {
    let world = World::new();
    let mut prepared = world.prepare(pending::<Result<(), BoxError>>());
    let turn = first(&mut prepared);
    // A cancellation is a wake.
    prepared.handle.cancel("before it began");
    assert!(world.next().is_none());
    assert!(matches!(turn.run(), Ran::Ended));
    assert_cancelled(prepared);
    world.end();
}

#[test]
fn a_wake_during_a_poll_gives_the_turn_back() {
    let world = World::new();
    let mut polls = 0;
    let mut prepared = world.prepare(poll_fn(move |context| {
        polls += 1;
        if polls == 3 {
            return Poll::Ready(Ok(polls));
        }
        if polls == 1 {
            context.waker().wake_by_ref();
        } else {
            let waker = context.waker().clone();
            std::thread::spawn(move || waker.wake()).join().unwrap();
        }
        Poll::Pending
    }));
    let Ran::Again(turn) = first(&mut prepared).run() else {
        panic!("it woke itself");
    };
    let Ran::Again(turn) = turn.run() else {
        panic!("somebody woke it");
    };
    assert!(world.next().is_none());
    assert!(matches!(turn.run(), Ran::Ended));
    assert_eq!(prepared.handle.join().unwrap(), 3);
    world.end();
}

#[test]
fn a_wake_after_the_end_does_nothing() {
    let world = World::new();
    let signal = Signal::default();
    let mut waits_for = signal.clone();
    let mut prepared = world.prepare(async move {
        let _ = poll_fn(|context| Poll::Ready(Pin::new(&mut waits_for).poll(context))).await;
        Ok(())
    });
    assert!(matches!(first(&mut prepared).run(), Ran::Ended));
    prepared.handle.join().unwrap();
    drop(prepared.header);
    // The waker keeps the memory.
    signal.set();
    assert!(world.next().is_none());
    world.end();
}

#[test]
fn a_cancellation_is_a_wake_of_one_that_waits() {
    let world = World::new();
    let mut prepared = world.prepare(pending::<Result<(), BoxError>>());
    assert!(matches!(first(&mut prepared).run(), Ran::Waits));
    prepared.handle.cancel("enough");
    let turn = world.next().unwrap();
    assert!(matches!(turn.run(), Ran::Ended));
    assert_cancelled(prepared);
    world.end();
}

#[test]
fn a_cancellation_during_a_poll_is_seen_by_the_next() {
    let world = World::new();
    let mut prepared = world.prepare(async {
        Job::current().unwrap().cancel("by itself");
        future::sleep(Duration::from_secs(3600)).await?;
        Ok(())
    });
    let mut ran = first(&mut prepared).run();
    while let Ran::Again(turn) = ran {
        ran = turn.run();
    }
    assert!(matches!(ran, Ran::Ended));
    assert_cancelled(prepared);
    world.end();
}

#[test]
fn a_turn_that_is_dropped_cancels_its_job_and_drops_its_future() {
    let world = World::new();
    let (sender, receiver) = mpsc::channel::<()>();
    let mut prepared = world.prepare(async move {
        let _dropped_with_it = sender;
        pending::<()>().await;
        Ok(())
    });
    drop(first(&mut prepared));
    assert!(receiver.recv().is_err());
    let cancelled = prepared.handle.job().cancellation().unwrap();
    assert_eq!(cancelled.reason().cause(), Cause::Abandoned);
    assert_cancelled(prepared);
    world.end();
}

#[test]
fn a_panic_in_a_poll_ends_the_job() {
    let world = World::new();
    let mut prepared = world.prepare(async {
        if Job::current().is_some() {
            std::panic::resume_unwind(Box::new("with intent"));
        }
        Ok(())
    });
    assert!(matches!(first(&mut prepared).run(), Ran::Ended));
    assert_eq!(prepared.header.told(), (1, 1));
    assert!(matches!(prepared.handle.join(), Err(JobError::Panicked(_))));
    world.end();
}

#[test]
fn in_an_ended_scope_a_job_is_born_cancelled() {
    let world = World::new();
    world.scope.wait().unwrap();
    let prepared = world.prepare(async { Ok(()) });
    assert!(prepared.turn.is_none());
    assert_cancelled(prepared);
    world.end();
}

#[test]
fn the_layer_is_told_of_the_end_when_the_last_job_below_has_ended() {
    let world = World::new();
    let gate = Arc::new(OnceLatch::new());
    let opened = Arc::clone(&gate);
    let mut prepared = world.prepare(async move {
        let own = Job::current().unwrap();
        let below = binding::nursery_of(&own).unwrap();
        below.launch(move || {
            opened.wait();
            Ok(())
        });
        Ok(())
    });
    assert!(matches!(first(&mut prepared).run(), Ran::Ended));
    assert_eq!(prepared.header.told(), (0, 0));
    gate.set();
    crate::block_on(prepared.handle.job().ended()).unwrap();
    // The worker that ended it tells right afterwards.
    while prepared.header.told() != (1, 1) {
        std::thread::yield_now();
    }
    world.end();
}

#[test]
fn a_job_that_waits_keeps_the_pool() {
    let world = World::new();
    let signal = Signal::default();
    let waits_for = signal.clone();
    let (sender, receiver) = mpsc::channel();
    let mut prepared = world.prepare(async move {
        let shielded = future::shield(Duration::from_secs(3600), async {
            waits_for.await;
            let below = binding::current_nursery().unwrap();
            Ok(below.spawn(|| Ok(11)).await?)
        });
        sender.send(shielded.await?)?;
        Ok(())
    });
    assert!(matches!(first(&mut prepared).run(), Ran::Waits));
    let World {
        runtime,
        scope,
        queue,
    } = world;
    // The pool is told to end, and all jobs are cancelled; inside of the shield this one goes on.
    scope.abandon();
    drop((scope, runtime));
    let run_next = || {
        let turn = queue.lock().unwrap().pop_front();
        turn.map(Turn::run)
    };
    assert!(matches!(run_next(), Some(Ran::Waits)));
    signal.set();
    while !prepared.handle.is_finished() {
        match run_next() {
            Some(Ran::Again(turn)) => InTest::due(turn),
            Some(_) => {}
            None => std::thread::yield_now(),
        }
    }
    assert_eq!(receiver.recv().unwrap(), 11);
}

/// Counts how many stacks wait.
#[derive(Default)]
struct Away {
    leaves: AtomicUsize,
    returns: AtomicUsize,
}

impl ParkHook for Away {
    fn leaves(&self) {
        self.leaves.fetch_add(1, Ordering::SeqCst);
    }

    fn returns(&self) {
        self.returns.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_ticket_brings_a_worker_and_comes_back() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let (visits, visited) = mpsc::channel();
    let tickets = Tickets::new(&runtime, move |ticket| {
        let on_worker = jobtree_pool::current_worker_index().is_some();
        visits.send((ticket, on_worker, Job::current())).unwrap();
        1
    });
    let mut ticket = tickets.issue();
    for _ in 0..3 {
        tickets.post(ticket);
        let (came_back, on_worker, job) = visited.recv().unwrap();
        assert!(on_worker && job.is_none());
        ticket = came_back;
    }
    runtime.shutdown(Duration::from_secs(60)).unwrap();
}

#[test]
fn a_hook_hears_of_waits_until_its_call_is_over() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let (away, latch) = (Arc::new(Away::default()), Arc::new(OnceLatch::new()));
    let (told, opened) = (Arc::clone(&away), Arc::clone(&latch));
    let handle = runtime.spawn(move || {
        with_park_hook(&*told, || opened.wait());
        // This one is not heard of.
        crate::sleep(Duration::from_millis(1))?;
        Ok(())
    });
    let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
    while count(&away.leaves) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(count(&away.returns), 0);
    latch.set();
    handle.join().unwrap();
    assert_eq!((count(&away.leaves), count(&away.returns)), (1, 1));
    runtime.shutdown(Duration::from_secs(60)).unwrap();
}

/// A lane with a share of one: whoever waits gives it back.
struct OneAtATime {
    queue: Queue,
    tickets: Tickets,
}

impl ParkHook for OneAtATime {
    fn leaves(&self) {
        self.tickets.post(self.tickets.issue());
    }

    fn returns(&self) {}
}

#[test]
#[cfg_attr(miri, ignore = "simulations switch stacks")]
fn in_a_simulation_jobs_of_one_queue_wait_for_each_other() {
    sim::check(0..200, |runtime| {
        let queue = Queue::default();
        let lane = Arc::new_cyclic(|lane: &std::sync::Weak<OneAtATime>| {
            let lane = lane.clone();
            OneAtATime {
                queue: Arc::clone(&queue),
                tickets: Tickets::new(runtime, move |ticket| {
                    let Some(lane) = lane.upgrade() else { return 0 };
                    for ran in 0.. {
                        let Some(turn) = lane.queue.lock().unwrap().pop_front() else {
                            return ran;
                        };
                        if let Ran::Again(turn) = with_park_hook(&*lane, || turn.run()) {
                            lane.queue.lock().unwrap().push_back(turn);
                        }
                        let _ = &ticket;
                    }
                    unreachable!("it ends when nothing is queued")
                }),
            }
        });
        let scope = runtime.owned_nursery(true)?;
        let add = |future: Pin<Box<dyn Future<Output = Result<u32, BoxError>> + Send>>| {
            let mut prepared = prepare(scope.nursery(), described(), InTest::new(&queue), |_| {
                future
            });
            let turn = prepared.turn.take().unwrap();
            queue.lock().unwrap().push_back(turn);
            prepared.handle
        };
        let (sender, receiver) = crate::channel::rendezvous::<u32>();
        let blocks = add(Box::pin(async move { Ok(receiver.recv()? + 1) }));
        let helps = add(Box::pin(async move {
            sender.send(41)?;
            Ok(0)
        }));
        lane.tickets.post(lane.tickets.issue());
        assert_eq!(blocks.join()?, 42);
        assert_eq!(helps.join()?, 0);
        scope.close();
        Ok(())
    });
}
