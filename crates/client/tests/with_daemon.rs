//! Client and workers with a real daemon, over a real socket.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod house;

use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use house::{FAR, House};
use jobtree_client::events::{Filter, What};
use jobtree_client::protocol::{
    AddonId, ErrorCode, EventKind, JobQuery, JobState, Json, PauseRequest, Scope,
    SubmitManyRequest, SubmitRequest, TokenRequest, WebhookRequest,
};
use jobtree_client::{Client, LoadQuery, Probe, Run, Worker};
use jobtree_runtime::{BoxError, Runtime, nursery, sleep};

fn job(job_type: &str) -> SubmitRequest {
    SubmitRequest::new("photos", job_type, 1)
}

fn runtime() -> Runtime {
    Runtime::builder().workers(2).build().unwrap()
}

#[test]
fn everything_that_can_be_asked_is_answered() {
    let house = House::new("a client with a daemon");
    let client = house.client();
    assert_eq!(client.health().unwrap(), Probe::Well);
    assert_eq!(client.ready().unwrap(), Probe::Well);
    let first = client.submit(job("thumbnail")).unwrap();
    let many = SubmitManyRequest {
        jobs: vec![job("thumbnail"), job("index"), job("")],
    };
    assert_eq!(client.submit_many(many).unwrap().jobs.len(), 3);
    let query = JobQuery {
        state: vec![JobState::Queued, JobState::Running],
        limit: Some(2),
        ..JobQuery::default()
    };
    let all: Result<Vec<_>, _> = client.all_jobs(query).collect();
    assert_eq!(all.unwrap().len(), 3, "in two pages");
    assert_eq!(client.job(first.job_id).unwrap().state, JobState::Queued);
    assert_eq!(client.explain(first.job_id).unwrap().job_id, first.job_id);
    assert!(
        !client
            .job_events(first.job_id, None)
            .unwrap()
            .events
            .is_empty()
    );
    assert_eq!(
        client.cancel(first.job_id, Some("enough")).unwrap(),
        JobState::Canceled
    );
    let ended = client.wait_for(first.job_id, FAR).unwrap();
    assert_eq!(ended.state, JobState::Canceled);
    assert!(
        client
            .log(first.job_id, None, Duration::ZERO)
            .unwrap()
            .ended
    );
    let refused = client.retry(first.job_id, None).map(drop);
    assert!(refused.is_ok() || refused.unwrap_err().code() == Some(ErrorCode::WrongState));
    assert_eq!(
        client.tree(first.job_id).unwrap_err().code(),
        Some(ErrorCode::NotFound)
    );

    let pause = PauseRequest {
        addon_id: AddonId::new("photos").unwrap(),
        job_type: None,
        reason: None,
    };
    client.pause(&pause).unwrap();
    assert_eq!(client.pauses().unwrap().len(), 1);
    assert!(client.resume(&pause).unwrap());
    client.kick().unwrap();
    client.drain(false).unwrap();
    client.status().unwrap();
    let stats = client.stats().unwrap();
    assert_eq!(stats.events[EventKind::Submitted.as_str()], 3);
    assert!(!stats.waited.up_to.is_empty() && stats.ran.count == 0);
    client.history().unwrap();
    client.decisions(Some(3)).unwrap();
    client.load(&LoadQuery::default()).unwrap();
    assert!(client.workers().unwrap().is_empty());
    assert!(client.leases(None).unwrap().leases.is_empty());
    assert!(client.metrics().unwrap().contains("jobtree_"));
    let policy = client.policy().unwrap();
    client.validate_policy(&policy).unwrap();
    client.put_policy(&policy).unwrap();
    let wrong = client
        // Wrong, and so never in force.
        .validate_policy("[quiet]\nquiet_max = 12.0\n")
        .unwrap_err();
    assert_eq!(wrong.code(), Some(ErrorCode::Invalid));

    let spec = serde_json::from_str(
        r#"{"name": "nightly", "cron": "0 3 * * *", "job": {"addon_id": "photos", "job_type": "x", "cost_units": 1}}"#,
    );
    let schedule = client.add_schedule(&spec.unwrap()).unwrap();
    let id = schedule.schedule_id;
    assert!(client.pause_schedule(id).unwrap().spec.paused);
    assert!(!client.resume_schedule(id).unwrap().spec.paused);
    client
        .put_schedule(id, &client.schedule(id).unwrap().spec)
        .unwrap();
    assert_eq!(client.schedules().unwrap().len(), 1);
    client.delete_schedule(id).unwrap();

    let request = TokenRequest {
        name: "reader".to_owned(),
        addon_id: AddonId::new("photos").ok(),
        scopes: vec![Scope::Read],
        expires_at: None,
    };
    let token = client.add_token(&request).unwrap();
    let reader = Client::builder(house.server.url())
        .token(&token.token)
        .build()
        .unwrap();
    reader.jobs(&JobQuery::default()).unwrap();
    let refused = reader.submit(job("thumbnail")).unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::Forbidden));
    assert!(
        client
            .tokens()
            .unwrap()
            .iter()
            .any(|token| token.name == "reader")
    );
    client.delete_token(token.view.token_id).unwrap();
    let refused = reader.status().unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::Unauthorized));
    let hook = WebhookRequest {
        url: "http://127.0.0.1:9/".to_owned(),
        addon_id: None,
        events: Vec::new(),
        secret: "0123456789abcdef".to_owned(),
    };
    let hook = client.add_webhook(&hook).unwrap();
    assert_eq!(client.webhooks().unwrap().len(), 1);
    client.delete_webhook(hook.webhook_id).unwrap();
}

#[test]
fn a_job_is_run_by_a_worker_and_seen_all_the_way() {
    let house = House::new("a worker with a daemon");
    let client = house.client();
    let (go, goes) = mpsc::channel::<()>();
    let goes = Mutex::new(goes);
    let runtime = runtime();
    let worker = Worker::new(client.clone())
        .addon("photos")
        .on(&runtime)
        .handle_blocking("thumbnail", move |path: String, run: &Run| {
            run.progress(0.5, "half");
            run.log(format!("reading {path}"));
            goes.lock().unwrap().recv()?;
            Ok(path.len())
        })
        .start()
        .unwrap();
    let mut events = client.events(Filter::default(), None);
    events.connect().unwrap();
    let request = SubmitRequest {
        payload: Some(Json::of("rock.png").unwrap()),
        ..job("thumbnail")
    };
    let id = client.submit(request).unwrap().job_id;
    let half = events
        .by_ref()
        .find_map(|happened| match happened.unwrap().what {
            What::Event(event) if event.kind == EventKind::Progress => Some(event),
            _ => None,
        });
    assert_eq!(half.unwrap().job_id, Some(id));
    let tree = loop {
        match client.tree(id) {
            Ok(tree) => break tree.tree,
            Err(error) => assert_eq!(error.code(), Some(ErrorCode::NotFound)),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(tree.nodes[0].label, format!("thumbnail {id}"));
    assert_eq!(client.workers().unwrap()[0].jobs, [id]);
    let log = client.log(id, None, Duration::from_secs(20)).unwrap();
    assert_eq!(log.text, "reading rock.png\n");
    go.send(()).unwrap();
    let ended = client.wait_for(id, FAR).unwrap();
    assert_eq!(
        (ended.state, ended.result.unwrap().text()),
        (JobState::Done, "8")
    );
    worker.drain(FAR).unwrap();
    assert!(worker.last_error().is_none(), "{:?}", worker.last_error());
}

#[test]
fn what_a_run_tells_last_is_in_the_record_when_it_has_ended() {
    let house = House::new("last progress with a daemon");
    let client = house.client();
    let runtime = runtime();
    let worker = Worker::new(client.clone())
        .addon("photos")
        .on(&runtime)
        .concurrency(2)
        .handle("counts", |well: bool, run: &Run| {
            for step in 1..=10 {
                run.progress(f64::from(step) / 10.0, format!("step {step}"));
            }
            if !well {
                return Err("the last step was wrong".into());
            }
            Ok(())
        })
        .start()
        .unwrap();
    for well in [true, false, true] {
        let request = SubmitRequest {
            payload: Some(Json::of(&well).unwrap()),
            max_attempts: Some(1),
            ..job("counts")
        };
        let id = client.submit(request).unwrap().job_id;
        let ended = client.wait_for(id, FAR).unwrap();
        let expected = if well {
            JobState::Done
        } else {
            JobState::Failed
        };
        assert_eq!(ended.state, expected);
        let progress = ended.progress.expect("it told something");
        assert_eq!(progress.fraction, Some(1.0));
        assert_eq!(progress.message.as_deref(), Some("step 10"));
    }
    worker.drain(FAR).unwrap();
}

#[test]
fn a_cancel_over_http_ends_every_level_before_the_next_heartbeat() {
    let house = House::new("a cancel with a daemon");
    let client = house.client();
    let (told, tells) = mpsc::channel();
    let told = Mutex::new(told);
    let runtime = runtime();
    let worker = Worker::new(client.clone())
        .addon("photos")
        .on(&runtime)
        .handle("sleeps", move |(), _: &Run| -> Result<(), BoxError> {
            let told = told.lock().unwrap().clone();
            Ok(nursery(|n| {
                n.launch(move || {
                    told.send(Instant::now())?;
                    let slept = sleep(FAR);
                    told.send(Instant::now())?;
                    Ok(slept?)
                });
                Ok(())
            })?)
        });
    let worker = worker.start().unwrap();
    let id = client.submit(job("sleeps")).unwrap().job_id;
    tells.recv().unwrap();
    let asked = Instant::now();
    client.cancel(id, None).unwrap();
    let took = tells.recv().unwrap() - asked;
    let ended = client.wait_for(id, FAR).unwrap();
    assert_eq!(ended.state, JobState::Canceled);
    // A third of the lease's time is what it would take without the event stream.
    let leases = house.server.scheduler().policy().dispatch.lease_ttl;
    assert!(took < leases / 3, "{took:?} of {leases:?}");
    worker.drain(FAR).unwrap();
}
