//! The transport within a process, mostly in simulations: what is lost, late or misdirected, by a virtual clock.
#![cfg(not(miri))]

mod remote_support;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_lanes::remote::{
    Fate, MemoryTransport, RemoteError, RemoteLane, RemoteQueue, RemoteRequest, RemoteService,
    RemoteTransport, RemoteWork, Way,
};
use jobtree_runtime::{BoxError, Job, JobState, Runtime, block_on, channel, sim, sleep};
use remote_support::*;

const SECOND: Duration = Duration::from_secs(1);

/// A service whose `wait` tells of its job through a channel of ours, since it is simulated.
fn simulated_echo() -> (RemoteService, channel::Receiver<Job>) {
    let service = RemoteService::new("server");
    let (begins, begun) = channel::unbounded();
    service
        .handle("echo", |request| Ok(request.payload))
        .handle("wait", move |_| {
            begins.send(Job::current().expect("an operation is a job"))?;
            for_ever()
        });
    (service, begun)
}

fn simulate(program: impl Fn(&Runtime) -> Result<(), BoxError> + Send + Sync) {
    sim::check(0..50, |runtime| program(runtime));
}

#[test]
fn a_request_is_answered_in_memory() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, _) = simulated_echo();
        let transport = MemoryTransport::new(runtime, "client", &service);
        let answer = transport.send(RemoteRequest::new("echo").payload("hello"));
        assert_eq!(block_on(answer)??.into_payload()?, b"hello");
        let unknown = block_on(transport.send(RemoteRequest::new("no.such")))??;
        let expected = RemoteError::UnknownOperation("no.such".to_owned());
        assert_eq!(unknown.error, Some(expected));
        let wrong = block_on(transport.send(RemoteRequest::new("echo").target("somebody")))??;
        let expected = RemoteError::WrongTarget("somebody".to_owned());
        assert_eq!(wrong.error, Some(expected));
        Ok(())
    });
}

#[test]
fn a_lost_request_or_answer_times_out_by_the_runtimes_clock() {
    let _watch = watch();
    for lost in [Way::There, Way::Back] {
        simulate(|runtime| {
            let (service, _) = simulated_echo();
            let faults = move |way, number| match (way, number) {
                (way, 0) if way == lost => Fate::Lost,
                _ => Fate::Arrives,
            };
            let transport = MemoryTransport::with_faults(runtime, "client", &service, faults);
            let hour = RemoteRequest::new("echo").timeout(3600 * SECOND);
            let answer = block_on(transport.send(hour))?;
            assert_eq!(answer, Err(RemoteError::TimedOut));
            assert_eq!(sim::elapsed(), Some(3600 * SECOND));
            assert_eq!(transport.pending(), 0);
            assert!(block_on(transport.send(RemoteRequest::new("echo")))?.is_ok());
            Ok(())
        });
    }
}

#[test]
fn late_answers_come_in_time_or_are_ignored() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, _) = simulated_echo();
        let faults = |way, _| match way {
            Way::There => Fate::Late(2 * SECOND),
            Way::Back => Fate::Late(3 * SECOND),
        };
        let transport = MemoryTransport::with_faults(runtime, "client", &service, faults);
        let patient = block_on(transport.send(RemoteRequest::new("echo").timeout(6 * SECOND)))?;
        assert!(patient.is_ok());
        assert_eq!(sim::elapsed(), Some(5 * SECOND));
        let hasty = block_on(transport.send(RemoteRequest::new("echo").timeout(4 * SECOND)))?;
        assert_eq!(hasty, Err(RemoteError::TimedOut));
        assert_eq!(transport.ignored(), 0);
        sleep(2 * SECOND)?;
        assert_eq!(transport.ignored(), 1);
        Ok(())
    });
}

#[test]
fn answers_for_another_target_are_ignored() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, _) = simulated_echo();
        let faults = |way, number| match (way, number) {
            (Way::Back, 0) => Fate::Misdirected,
            _ => Fate::Arrives,
        };
        let transport = MemoryTransport::with_faults(runtime, "client", &service, faults);
        let answer = block_on(transport.send(RemoteRequest::new("echo").timeout(SECOND)))?;
        assert_eq!(answer, Err(RemoteError::TimedOut));
        assert_eq!(transport.ignored(), 1);
        Ok(())
    });
}

#[test]
fn duplicate_ids_are_refused_in_memory() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, begun) = simulated_echo();
        let transport = MemoryTransport::new(runtime, "client", &service);
        let first = transport.send(RemoteRequest::new("wait").id(7));
        let first = runtime.spawn_future(async move { Ok(first.await) });
        begun.recv()?;
        let second = block_on(transport.send(RemoteRequest::new("echo").id(7)))?;
        assert_eq!(second, Err(RemoteError::DuplicateId(7)));
        transport.close();
        assert_eq!(first.join()?, Err(RemoteError::Cancelled));
        Ok(())
    });
}

#[test]
fn cancelling_and_cutting_end_the_job_at_the_other_side() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, begun) = simulated_echo();
        let transport = MemoryTransport::new(runtime, "client", &service);
        let asked = transport.send(RemoteRequest::new("wait"));
        let asked = runtime.spawn_future(async move { Ok(asked.await) });
        let job = begun.recv()?;
        asked.cancel("enough");
        block_on(job.ended())?;
        assert_eq!(job.state(), JobState::Cancelled);
        let asked = transport.send(RemoteRequest::new("wait"));
        let asked = runtime.spawn_future(async move { Ok(asked.await) });
        let job = begun.recv()?;
        transport.cut();
        assert!(matches!(asked.join()?, Err(RemoteError::ConnectionLost(_))));
        block_on(job.ended())?;
        assert_eq!(job.state(), JobState::Cancelled);
        assert!(!transport.is_connected());
        let later = block_on(transport.send(RemoteRequest::new("echo")))?;
        assert!(matches!(later, Err(RemoteError::NotConnected(_))));
        Ok(())
    });
}

// The loop.

#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<RemoteWork>>,
    /// How many are in the midst of it, and how many were at most.
    inside: Arc<(AtomicUsize, AtomicUsize)>,
    done: Arc<AtomicUsize>,
}

impl RemoteQueue for Queue {
    fn take(&self) -> Option<RemoteWork> {
        self.waiting.lock().unwrap().pop_front()
    }
}

impl Queue {
    fn add(&self, transport: &MemoryTransport, request: RemoteRequest) {
        let answer = transport.send(request);
        let (inside, done) = (Arc::clone(&self.inside), Arc::clone(&self.done));
        let work = Box::pin(async move {
            let now = inside.0.fetch_add(1, Ordering::SeqCst) + 1;
            inside.1.fetch_max(now, Ordering::SeqCst);
            assert!(answer.await.is_ok());
            inside.0.fetch_sub(1, Ordering::SeqCst);
            done.fetch_add(1, Ordering::SeqCst);
        });
        self.waiting.lock().unwrap().push_back(work);
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }
}

fn slow_transport(runtime: &Runtime) -> MemoryTransport {
    let (service, _) = simulated_echo();
    let faults = |way, _| match way {
        Way::There => Fate::Late(SECOND),
        Way::Back => Fate::Arrives,
    };
    MemoryTransport::with_faults(runtime, "client", &service, faults)
}

#[test]
fn the_loop_exists_only_while_there_is_work_and_ends_after_30_seconds_without() {
    let _watch = watch();
    simulate(|runtime| {
        let transport = slow_transport(runtime);
        let lane = RemoteLane::new(runtime, Queue::default());
        assert!(!lane.is_running(), "nothing was queued yet");
        lane.queue().add(&transport, RemoteRequest::new("echo"));
        lane.wake();
        assert!(lane.is_running());
        sleep(2 * SECOND)?;
        assert_eq!((lane.queue().done(), lane.under_way()), (1, 0));
        // 29 s after the first one's end there is more: for the same loop.
        sleep(28 * SECOND)?;
        assert!(lane.is_running());
        lane.queue().add(&transport, RemoteRequest::new("echo"));
        lane.wake();
        sleep(30 * SECOND)?;
        assert!(lane.is_running(), "29 s after the last end");
        sleep(2 * SECOND)?;
        assert!(!lane.is_running(), "31 s after the last end");
        assert_eq!((lane.queue().done(), lane.loops()), (2, 1));
        // The next work starts another.
        lane.queue().add(&transport, RemoteRequest::new("echo"));
        lane.wake();
        sleep(2 * SECOND)?;
        assert_eq!((lane.queue().done(), lane.loops()), (3, 2));
        Ok(())
    });
}

#[test]
fn no_more_is_under_way_than_may_be_and_all_is_done() {
    let _watch = watch();
    simulate(|runtime| {
        let transport = slow_transport(runtime);
        let lane = RemoteLane::with_limits(runtime, Queue::default(), 3, SECOND);
        for _ in 0..10 {
            lane.queue().add(&transport, RemoteRequest::new("echo"));
            lane.wake();
        }
        sleep(60 * SECOND)?;
        let queue = lane.queue();
        assert_eq!(queue.done(), 10);
        assert_eq!(queue.inside.1.load(Ordering::SeqCst), 3);
        assert_eq!((lane.is_running(), lane.loops()), (false, 1));
        Ok(())
    });
}

#[test]
fn no_wake_is_lost_when_work_comes_just_as_the_loop_ends() {
    let _watch = watch();
    sim::check(0..300, |runtime| {
        let (service, _) = simulated_echo();
        let transport = MemoryTransport::new(runtime, "client", &service);
        let lane = RemoteLane::with_limits(runtime, Queue::default(), 2, SECOND);
        for round in 1..=5 {
            lane.queue().add(&transport, RemoteRequest::new("echo"));
            lane.wake();
            // The very moment in which the loop's patience is over.
            sleep(SECOND)?;
            assert_eq!(lane.queue().done(), round);
        }
        Ok(())
    });
}

#[test]
fn a_loop_that_is_cancelled_with_its_runtime_is_not_running() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let transport = MemoryTransport::new(&runtime, "client", &service);
    let lane = RemoteLane::new(&runtime, Queue::default());
    lane.queue().add(&transport, RemoteRequest::new("wait"));
    lane.wake();
    begun.recv().unwrap();
    end(&runtime);
    assert!(!lane.is_running());
    assert_eq!(lane.under_way(), 0);
    lane.wake();
    assert!(
        !lane.is_running(),
        "a runtime that has ended starts nothing"
    );
}
