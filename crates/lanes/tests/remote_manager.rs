//! The remote lane of a manager: what carries requests, in which order, and how they end.
#![cfg(not(miri))]

mod remote_support;

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_lanes::remote::{
    Fate, MemoryTransport, RemoteError, RemoteRequest, RemoteService, RemoteTransport, Way,
};
use jobtree_lanes::{JobManager, Lane, LaneJob, Notice, Priority, WhyRefused};
use jobtree_runtime::{
    BoxError, CancelToken, Job, JobError, JobState, Runtime, block_on, channel, sim, sleep,
};
use remote_support::*;

const SECOND: Duration = Duration::from_secs(1);

fn simulate(program: impl Fn(&Runtime) -> Result<(), BoxError> + Send + Sync) {
    sim::check(0..30, |runtime| program(runtime));
}

fn managed(runtime: &Runtime, transport: impl RemoteTransport + 'static) -> JobManager {
    let builder = JobManager::builder().runtime(runtime).workers(2);
    builder.remote(transport).build().unwrap()
}

/// A service whose operations end when they are told to, or cancelled.
fn waiting_service() -> (RemoteService, channel::Receiver<Job>) {
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

/// Why a job failed, as an error of the remote lane.
#[track_caller]
fn remote_error(error: &JobError) -> RemoteError {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<RemoteError>() {
            return error.clone();
        }
        source = error.source();
    }
    panic!("{error:?}")
}

#[test]
fn a_request_that_is_scheduled_is_answered() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, _) = waiting_service();
        let manager = managed(runtime, MemoryTransport::new(runtime, "me", &service));
        let request = RemoteRequest::new("echo")
            .payload("hello")
            .priority(Priority::High);
        let handle = manager.schedule_remote(request);
        assert_eq!(handle.lane(), Lane::Remote);
        assert_eq!(handle.priority(), Priority::High);
        assert_eq!((&*handle.label(), handle.kind()), ("remote echo", "remote"));
        assert_eq!(handle.join()?.into_payload()?, b"hello");
        assert_eq!(manager.slots().in_use, 0);
        // An answer that tells of a failure is an answer.
        let unknown = manager
            .schedule_remote(RemoteRequest::new("no.such"))
            .join()?;
        let expected = RemoteError::UnknownOperation("no.such".to_owned());
        assert_eq!(unknown.error, Some(expected));
        Ok(())
    });
}

#[test]
fn without_a_transport_scheduling_is_an_error() {
    let _watch = watch();
    let runtime = runtime();
    let manager = JobManager::builder().runtime(&runtime).build().unwrap();
    let handle = manager.schedule_remote(RemoteRequest::new("echo"));
    assert!(handle.is_faulted(), "at once");
    let error = handle.join().unwrap_err();
    assert!(error.report().to_string().contains("transport"), "{error}");
    let refused = manager
        .try_schedule(LaneJob::remote(RemoteRequest::new("echo")))
        .unwrap_err();
    assert_eq!(refused.why(), WhyRefused::NoTransport);
    assert_eq!(manager.slots().in_use, 0);
    // One that is put on another lane finds out when it runs.
    let elsewhere = LaneJob::remote(RemoteRequest::new("echo")).lane(Lane::Any);
    let error = manager.schedule(elsewhere).join().unwrap_err();
    assert_eq!(remote_error(&error), RemoteError::NoTransport);
}

#[test]
fn a_transport_can_be_set_and_replaced_while_a_request_is_under_way() {
    let _watch = watch();
    simulate(|runtime| {
        let manager = JobManager::builder().runtime(runtime).workers(2).build()?;
        let (first, begun) = waiting_service();
        let second = RemoteService::new("second");
        second.handle("echo", |request| Ok(request.payload));
        let early = manager.schedule_remote(RemoteRequest::new("echo"));
        assert!(early.join().is_err(), "there is none");

        manager.set_remote(MemoryTransport::new(runtime, "me", &first));
        let waits = manager.schedule_remote(RemoteRequest::new("wait"));
        let operation = begun.recv()?;
        manager.set_remote(MemoryTransport::new(runtime, "me", &second));
        let answer = manager.schedule_remote(RemoteRequest::new("echo").payload("text"));
        let answer = answer.join()?;
        assert_eq!(
            (answer.sender.as_str(), &*answer.payload),
            ("second", &b"text"[..])
        );
        // The first one still carries what it was given.
        assert!(!operation.is_cancelled() && !waits.is_finished());
        waits.cancel("enough");
        assert!(waits.join().unwrap_err().is_cancelled());
        block_on(operation.ended())?;
        assert!(operation.is_cancelled());
        Ok(manager.shutdown(SECOND)?)
    });
}

#[test]
fn requests_go_by_priority_and_no_more_at_a_time_than_may() {
    let _watch = watch();
    simulate(|runtime| {
        let service = RemoteService::new("server");
        let order = Arc::new(Mutex::new(Vec::new()));
        let orders = Arc::clone(&order);
        service.handle("note", move |request| {
            orders.lock().unwrap().push(request.priority);
            sleep(Duration::from_millis(10))?;
            Ok(Vec::new())
        });
        let transport = MemoryTransport::new(runtime, "me", &service);
        let builder = JobManager::builder().runtime(runtime).workers(2);
        let manager = builder.remote(transport).remote_requests(1).build()?;
        let note =
            |priority| manager.schedule_remote(RemoteRequest::new("note").priority(priority));
        // While the first is under way, the others queue up.
        let mut handles = vec![note(Priority::Normal)];
        sleep(Duration::from_millis(1))?;
        for priority in [
            Priority::Low,
            Priority::Highest,
            Priority::Lowest,
            Priority::High,
        ] {
            handles.push(note(priority));
        }
        sleep(Duration::from_millis(1))?;
        assert_eq!(manager.queued(&Lane::Remote), 4);
        assert_eq!(manager.queued_at(&Lane::Remote, Priority::High), 1);
        let stats = manager.stats();
        let remote = stats.lanes.iter().find(|it| it.lane == Lane::Remote);
        assert_eq!(remote.unwrap().priorities[Priority::High.index()].queued, 1);
        for handle in handles {
            handle.join()?;
        }
        assert_eq!(
            *order.lock().unwrap(),
            [
                Priority::Normal,
                Priority::Highest,
                Priority::High,
                Priority::Low,
                Priority::Lowest
            ]
        );
        assert_eq!(manager.queued(&Lane::Remote), 0);
        Ok(())
    });
}

#[test]
fn a_request_that_waits_too_long_is_sent_before_more_urgent_ones() {
    let _watch = watch();
    simulate(|runtime| {
        let service = RemoteService::new("server");
        let order = Arc::new(Mutex::new(Vec::new()));
        let orders = Arc::clone(&order);
        service.handle("note", move |request| {
            orders.lock().unwrap().push(request.priority);
            sleep(SECOND)?;
            Ok(Vec::new())
        });
        let transport = MemoryTransport::new(runtime, "me", &service);
        let builder = JobManager::builder().runtime(runtime).workers(2);
        let starved = Arc::new(Mutex::new(Vec::new()));
        let notices = Arc::clone(&starved);
        let builder = builder.on_notice(move |notice| {
            if let Notice::Starved { label, lane, .. } = notice {
                assert_eq!(*lane, Lane::Remote);
                notices.lock().unwrap().push(label.clone());
            }
        });
        let manager = builder.remote(transport).remote_requests(1).build()?;
        let note =
            |priority| manager.schedule_remote(RemoteRequest::new("note").priority(priority));
        let mut flood = vec![note(Priority::Highest)];
        sleep(SECOND / 10)?;
        let old = note(Priority::Lowest);
        // Twice as many urgent ones come as can be served.
        for _ in 0..20 {
            flood.push(note(Priority::Highest));
            flood.push(note(Priority::Highest));
            sleep(SECOND)?;
        }
        old.join()?;
        for handle in flood {
            handle.join()?;
        }
        assert_eq!(
            starved.lock().unwrap().first().map(String::as_str),
            Some("remote note")
        );
        let order = order.lock().unwrap();
        let place = order.iter().position(|it| *it == Priority::Lowest);
        // After 2 s, in which three are served, it is the oldest, together with two that came just after it; and every
        // second turn is one by age. By priority alone it would be the last of 42.
        assert!(place.unwrap() <= 3 + 2 * 3, "{place:?}");
        Ok(())
    });
}

#[test]
fn the_timeout_counts_from_scheduling_on() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, begun) = waiting_service();
        let transport = MemoryTransport::new(runtime, "me", &service);
        let builder = JobManager::builder().runtime(runtime).workers(2);
        let manager = builder.remote(transport).remote_requests(1).build()?;
        let request = |seconds: u32| RemoteRequest::new("wait").timeout(seconds * SECOND);
        let first = manager.schedule_remote(request(3));
        let job = begun.recv()?;
        // It is sent after 3 s, and has 2 s left.
        let second = manager.schedule_remote(request(5));
        // It is never sent.
        let third = manager.schedule_remote(request(4));
        let error = first.join().unwrap_err();
        assert_eq!(remote_error(&error), RemoteError::TimedOut);
        assert_eq!(sim::elapsed(), Some(3 * SECOND));
        block_on(job.ended())?;
        assert_eq!(job.state(), JobState::Cancelled);
        let error = remote_error(&third.join().unwrap_err());
        assert!(matches!(error, RemoteError::NotConnected(_)), "{error:?}");
        assert_eq!(sim::elapsed(), Some(4 * SECOND));
        let error = second.join().unwrap_err();
        assert_eq!(remote_error(&error), RemoteError::TimedOut);
        assert_eq!(sim::elapsed(), Some(5 * SECOND));
        assert_eq!(manager.slots().in_use, 0);
        Ok(())
    });
}

#[test]
fn a_token_and_a_handle_cancel_what_the_peer_does_and_what_waits() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, begun) = waiting_service();
        let transport = MemoryTransport::new(runtime, "me", &service);
        let builder = JobManager::builder().runtime(runtime).workers(2);
        let manager = builder.remote(transport).remote_requests(1).build()?;
        let token = CancelToken::new();
        let under_way = LaneJob::remote(RemoteRequest::new("wait")).token(token.clone());
        let under_way = manager.schedule(under_way);
        let job = begun.recv()?;
        let waiting = manager.schedule_remote(RemoteRequest::new("wait"));
        sleep(SECOND)?;
        waiting.cancel("not wanted any more");
        assert!(waiting.wait().is_err() && waiting.is_canceled());
        assert_eq!(manager.queued(&Lane::Remote), 0);
        token.cancel("enough");
        assert!(under_way.wait().is_err() && under_way.is_canceled());
        block_on(job.ended())?;
        assert_eq!(job.state(), JobState::Cancelled);
        assert_eq!(manager.slots().in_use, 0);
        let after = manager.schedule_remote(RemoteRequest::new("echo"));
        assert!(after.join()?.is_success(), "the place is free again");
        Ok(())
    });
}

#[test]
fn thousands_that_are_cancelled_while_they_wait_do_not_stay() {
    let _watch = watch();
    let runtime = runtime();
    let (service, begun) = waiting_service();
    let transport = MemoryTransport::new(&runtime, "me", &service);
    let builder = JobManager::builder().runtime(&runtime).workers(2);
    let manager = builder
        .remote(transport)
        .remote_requests(1)
        .build()
        .unwrap();
    let first = manager.schedule_remote(RemoteRequest::new("wait"));
    begun.recv().unwrap();
    let kept = manager.schedule_remote(RemoteRequest::new("echo"));
    for _ in 0..3 {
        let many: Vec<_> = (0..1000)
            .map(|_| manager.schedule_remote(RemoteRequest::new("echo").priority(Priority::Low)))
            .collect();
        until(|| manager.queued(&Lane::Remote) == 1001);
        for handle in &many {
            handle.cancel("enough");
        }
        until(|| manager.queued(&Lane::Remote) == 1);
    }
    first.cancel("enough");
    assert!(kept.join().unwrap().is_success(), "none is lost by that");
}

#[test]
fn a_transport_that_is_closed_cancels_and_one_that_is_lost_fails() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, begun) = waiting_service();
        let transport = MemoryTransport::new(runtime, "me", &service);
        let manager = managed(runtime, transport.clone());
        let handle = manager.schedule_remote(RemoteRequest::new("wait"));
        begun.recv()?;
        transport.close();
        assert!(handle.wait().is_err() && handle.is_canceled());
        let transport = MemoryTransport::new(runtime, "me", &service);
        let manager = managed(runtime, transport.clone());
        let handle = manager.schedule_remote(RemoteRequest::new("wait"));
        begun.recv()?;
        transport.cut();
        let error = remote_error(&handle.join().unwrap_err());
        assert!(matches!(error, RemoteError::ConnectionLost(_)), "{error:?}");
        Ok(())
    });
}

#[test]
fn a_duplicate_id_is_refused_through_the_manager_too() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, begun) = waiting_service();
        let manager = managed(runtime, MemoryTransport::new(runtime, "me", &service));
        let first = manager.schedule_remote(RemoteRequest::new("wait").id(7));
        begun.recv()?;
        let second = manager.schedule_remote(RemoteRequest::new("echo").id(7));
        let error = second.join().unwrap_err();
        assert_eq!(remote_error(&error), RemoteError::DuplicateId(7));
        assert!(!first.is_finished());
        Ok(())
    });
}

#[test]
fn the_loop_is_there_only_while_there_is_remote_work_and_30_seconds_more() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, _) = waiting_service();
        let late = |way, _| match way {
            Way::There => Fate::Late(SECOND),
            Way::Back => Fate::Arrives,
        };
        let transport = MemoryTransport::with_faults(runtime, "me", &service, late);
        let manager = managed(runtime, transport);
        assert!(!manager.is_remote_lane_running());
        manager.schedule(LaneJob::action(|| Ok(()))).join()?;
        assert!(
            !manager.is_remote_lane_running(),
            "nothing remote was scheduled"
        );
        manager.schedule_remote(RemoteRequest::new("echo")).join()?;
        assert!(manager.is_remote_lane_running());
        sleep(29 * SECOND)?;
        assert!(manager.is_remote_lane_running());
        sleep(2 * SECOND)?;
        assert!(!manager.is_remote_lane_running());
        manager.schedule_remote(RemoteRequest::new("echo")).join()?;
        assert!(manager.is_remote_lane_running());
        Ok(())
    });
}

#[test]
fn a_shutdown_cancels_remote_jobs_under_way_and_waiting_ones() {
    let _watch = watch();
    simulate(|runtime| {
        let (service, begun) = waiting_service();
        let transport = MemoryTransport::new(runtime, "me", &service);
        let builder = JobManager::builder().runtime(runtime).workers(2);
        let manager = builder
            .remote(transport.clone())
            .remote_requests(1)
            .build()?;
        let handles = [(); 3].map(|()| manager.schedule_remote(RemoteRequest::new("wait")));
        let job = begun.recv()?;
        manager.shutdown(SECOND)?;
        assert!(handles.iter().all(|handle| handle.is_canceled()));
        block_on(job.ended())?;
        assert!(!manager.is_remote_lane_running());
        assert!(
            manager
                .schedule_remote(RemoteRequest::new("echo"))
                .is_canceled()
        );
        assert!(transport.is_connected(), "the transport is its owner's");
        Ok(())
    });
}

#[test]
fn remote_jobs_over_a_real_socket_hold_no_worker_while_they_wait() {
    let _watch = watch();
    let serving = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&serving, &service, patient());
    let asking = Runtime::builder().workers(1).build().unwrap();
    let client = client_of(&asking, &server, patient());
    let manager = JobManager::builder()
        .runtime(&asking)
        .remote(client.clone());
    let manager = manager.build().unwrap();
    let waiting: Vec<_> = (0..10)
        .map(|_| manager.schedule_remote(RemoteRequest::new("wait")))
        .collect();
    let jobs: Vec<Job> = waiting.iter().map(|_| begun.recv().unwrap()).collect();
    // The only worker is free for others.
    assert_eq!(
        manager.schedule(LaneJob::action(|| Ok(1))).join().unwrap(),
        1
    );
    let echoed = manager.schedule_remote(RemoteRequest::new("echo").payload("hello"));
    assert_eq!(echoed.join().unwrap().into_payload().unwrap(), b"hello");
    manager.shutdown(LONG).unwrap();
    for job in jobs {
        until(|| job.state() == JobState::Cancelled);
    }
    assert!(waiting.iter().all(|handle| handle.is_canceled()));
    drop((manager, client));
    end(&asking);
}

#[test]
fn an_arc_of_a_transport_is_a_transport() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let transport: Arc<dyn RemoteTransport> =
        Arc::new(MemoryTransport::new(&runtime, "me", &service));
    let manager = managed(&runtime, Arc::clone(&transport));
    assert!(
        manager
            .schedule_remote(RemoteRequest::new("echo"))
            .join()
            .is_ok()
    );
    transport.close();
    assert!(
        manager
            .schedule_remote(RemoteRequest::new("echo"))
            .join()
            .is_err()
    );
}
