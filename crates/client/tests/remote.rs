//! The remote lane through a real daemon.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod house;

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use house::{FAR, House};
use jobtree_client::protocol::SubmitRequest;
use jobtree_client::protocol::{JobQuery, JobState};
use jobtree_client::remote::{DaemonTransport, serve};
use jobtree_client::{Client, Run, Worker, on_lane};
use jobtree_lanes::remote::{RemoteError, RemoteRequest, RemoteService, RemoteTransport};
use jobtree_lanes::{JobManager, LaneJob};
use jobtree_runtime::{Runtime, nursery, sleep};

fn runtime() -> Runtime {
    Runtime::builder().workers(2).build().unwrap()
}

fn transport(client: Client) -> DaemonTransport {
    DaemonTransport::builder(client, "game", "asset")
        .id("editor")
        .build()
}

/// A worker that serves; it goes when it is dropped.
fn serving(house: &House, runtime: &Runtime, service: &RemoteService) -> jobtree_worker::Worker {
    let worker = Worker::new(house.client()).addon("game").on(runtime);
    serve(worker, "asset", service).start().unwrap()
}

#[test]
fn a_request_is_a_job_and_its_result_the_answer() {
    let house = House::new("the remote lane through a daemon");
    let (runtime, service) = (runtime(), RemoteService::new("assets"));
    service
        .handle("shout", |request| Ok(request.payload.to_ascii_uppercase()))
        .handle("fail", |_| Err("no such file".into()));
    let worker = serving(&house, &runtime, &service);
    let transport = transport(house.client());
    let ask = |request: RemoteRequest| runtime.block_on(transport.send(request)).unwrap();

    let answer = ask(RemoteRequest::new("shout").payload("hello").id(7)).unwrap();
    assert_eq!(
        (answer.id, answer.sender.as_str(), answer.target.as_str()),
        (7, "assets", "editor")
    );
    assert_eq!(answer.into_payload().unwrap(), b"HELLO");
    let named = ask(RemoteRequest::new("shout").sender("a job of the editor")).unwrap();
    assert_eq!(named.target, "a job of the editor");
    let failed = ask(RemoteRequest::new("fail")).unwrap();
    assert_eq!(failed.target, "editor");
    assert_eq!(
        failed.error,
        Some(RemoteError::Remote("no such file".to_owned()))
    );
    let unknown = ask(RemoteRequest::new("whisper")).unwrap().error;
    assert_eq!(
        unknown,
        Some(RemoteError::UnknownOperation("whisper".to_owned()))
    );
    let wrong = ask(RemoteRequest::new("shout").target("other"))
        .unwrap()
        .error;
    assert_eq!(wrong, Some(RemoteError::WrongTarget("other".to_owned())));

    let jobs = house.client().jobs(&JobQuery::default()).unwrap().jobs;
    let states: Vec<_> = jobs
        .iter()
        .map(|job| (job.job_type.as_str(), job.state))
        .collect();
    let expected = [
        JobState::Done,
        JobState::Done,
        JobState::Failed,
        JobState::Failed,
        JobState::Failed,
    ];
    assert_eq!(states, expected.map(|state| ("asset", state)));
    worker.drain(FAR).unwrap();
}

#[test]
fn whoever_stops_waiting_cancels_the_job() {
    let house = House::new("a remote request that is cancelled");
    let (runtime, service) = (runtime(), RemoteService::new("assets"));
    let (told, tells) = mpsc::channel();
    let told = Mutex::new(told);
    service.handle("sleep", move |_| {
        let told = told.lock().unwrap().clone();
        told.send("begun")?;
        let slept = sleep(FAR);
        told.send(if slept.is_err() { "cancelled" } else { "slept" })?;
        Ok(slept.map(|()| Vec::new())?)
    });
    let worker = serving(&house, &runtime, &service);
    let transport = transport(house.client());
    let answer = transport.send(RemoteRequest::new("sleep").id(9));
    assert_eq!(tells.recv().unwrap(), "begun");
    let again = runtime.block_on(transport.send(RemoteRequest::new("sleep").id(9)));
    assert_eq!(again.unwrap(), Err(RemoteError::DuplicateId(9)));
    drop(answer);
    assert_eq!(tells.recv().unwrap(), "cancelled");

    let timed = RemoteRequest::new("sleep").timeout(Duration::from_millis(300));
    let timed = runtime.block_on(transport.send(timed)).unwrap();
    assert_eq!(timed, Err(RemoteError::TimedOut));

    let closing = transport.send(RemoteRequest::new("sleep"));
    transport.close();
    assert_eq!(
        runtime.block_on(closing).unwrap(),
        Err(RemoteError::Cancelled)
    );
    assert!(!transport.is_connected());
    let late = runtime.block_on(transport.send(RemoteRequest::new("sleep")));
    assert_eq!(late.unwrap(), Err(RemoteError::Cancelled));
    worker.drain(Duration::ZERO).unwrap();
}

#[test]
fn a_request_whose_worker_was_lost_is_not_carried_out_again() {
    let house = House::with("a remote request whose worker is lost", |policy| {
        policy.dispatch.lease_ttl = Duration::from_secs(1);
    });
    let client = house.client();
    let (runtime, service) = (runtime(), RemoteService::new("assets"));
    let transport = transport(client.clone());
    let answer = transport.send(RemoteRequest::new("count"));
    // A worker takes it, and is never heard of again.
    let claim = serde_json::from_value(serde_json::json!({
        "addon_id": "game", "wait_sec": 60, "instance_id": "a9c8a2a0-0000-4000-8000-000000000002",
    }));
    let lease = client.claim(&claim.unwrap()).unwrap().remove(0);
    assert_eq!(lease.jobs.len(), 1);
    let (ran, runs) = mpsc::channel();
    let ran = Mutex::new(ran);
    service.handle("count", move |_| {
        ran.lock().unwrap().send(())?;
        Ok(Vec::new())
    });
    let worker = serving(&house, &runtime, &service);
    let answer = runtime.block_on(answer).unwrap().unwrap();
    assert!(
        matches!(answer.error, Some(RemoteError::ConnectionLost(_))),
        "{answer:?}"
    );
    assert!(runs.try_recv().is_err());
    worker.drain(FAR).unwrap();
}

#[test]
fn a_cancel_reaches_what_a_handler_does_on_a_lane() {
    let house = House::new("a durable job on a lane");
    let (client, runtime) = (house.client(), runtime());
    let manager = JobManager::builder().runtime(&runtime).build().unwrap();
    let (told, tells) = mpsc::channel();
    let told = Mutex::new(told);
    let worker = Worker::new(client.clone()).addon("game").on(&runtime);
    let worker = worker.handle("render", move |wait: bool, _: &Run| {
        let told = told.lock().unwrap().clone();
        let render = LaneJob::task(move |_| {
            if !wait {
                return Ok(42);
            }
            Ok(nursery(|n| {
                n.launch(move || {
                    told.send("begun")?;
                    let slept = sleep(FAR);
                    told.send(if slept.is_err() { "cancelled" } else { "slept" })?;
                    Ok(slept?)
                });
                Ok(0)
            })?)
        });
        on_lane(&manager, render)
    });
    let worker = worker.start().unwrap();
    let submit = |wait: &str| {
        let payload = jobtree_client::protocol::Json::from_text(wait.to_owned()).ok();
        let request = SubmitRequest {
            payload,
            ..SubmitRequest::new("game", "render", 1)
        };
        client.submit(request).unwrap().job_id
    };
    let done = client.wait_for(submit("false"), FAR).unwrap();
    assert_eq!(done.result.unwrap().text(), "42");
    let id = submit("true");
    assert_eq!(tells.recv().unwrap(), "begun");
    client.cancel(id, None).unwrap();
    assert_eq!(tells.recv().unwrap(), "cancelled");
    let ended = client.wait_for(id, FAR).unwrap();
    assert_eq!(ended.state, JobState::Canceled);
    worker.drain(FAR).unwrap();
}
