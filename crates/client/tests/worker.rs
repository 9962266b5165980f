//! Workers over HTTP, against a daemon that does what the test wants, over a real socket.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod daemon;
mod fake;

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use daemon::Daemon;
use jobtree_client::protocol::LiveTree;
use jobtree_client::{Run, WorkError, Worker};
use jobtree_runtime::{BoxError, Runtime, nursery, sleep};
use serde_json::{Value, json};
use watchdog::Watchdog;

const FAR: Duration = Duration::from_secs(3600);

fn runtime() -> Runtime {
    Runtime::builder().workers(2).build().unwrap()
}

/// A handler that waits in a job below its own, and tells when that one begins and how it ends.
fn waits_below(
    told: mpsc::Sender<&'static str>,
) -> impl Fn((), &Run) -> Result<(), BoxError> + Send + Sync {
    let told = Mutex::new(told);
    move |(), _| {
        let told = told.lock().unwrap().clone();
        Ok(nursery(|n| {
            n.job_options().label("below").launch(move || {
                told.send("begun")?;
                let slept = sleep(FAR);
                told.send(if slept.is_err() { "cancelled" } else { "slept" })?;
                Ok(slept?)
            });
            Ok(())
        })?)
    }
}

#[test]
fn results_progress_and_logs_flow_back() {
    let _watch = Watchdog::watching("a worker over HTTP");
    let daemon = Daemon::start(30);
    let runtime = runtime();
    let (go, goes) = mpsc::channel::<()>();
    let goes = Mutex::new(goes);
    let worker = Worker::new(daemon.client())
        .on(&runtime)
        .program("tests")
        .handle("double", |number: u32, _| Ok(number * 2))
        .handle_blocking("tells", move |(), run: &Run| {
            run.progress(0.5, "half");
            run.log("half of it");
            goes.lock().unwrap().recv()?;
            run.log("all of it");
            Err::<(), BoxError>("no luck".into())
        })
        .start()
        .unwrap();
    let (_, ids) = daemon.offer(&[("double", json!(21)), ("tells", json!(null))]);
    let first = daemon.until(|state| state.completed.first().cloned());
    assert_eq!(
        (&first["job_id"], &first["result"]),
        (&json!(ids[0]), &json!(42))
    );
    let told = daemon.until(|state| state.progress.first().cloned());
    assert_eq!(told, json!({"fraction": 0.5, "message": "half"}));
    let log = ids[1].to_string();
    daemon.until(|state| {
        state
            .logs
            .get(&log)
            .filter(|log| *log == "half of it\n")
            .cloned()
    });
    // It is told in full before the job counts as ended, though the connection breaks meanwhile.
    daemon.change(|state| state.breaks = 1);
    go.send(()).unwrap();
    let second = daemon.until(|state| {
        let log = state.logs[&log].clone();
        state.completed.get(1).cloned().map(|second| (second, log))
    });
    assert_eq!(second.1, "half of it\nall of it\n");
    assert_eq!(
        (&second.0["status"], &second.0["error"]),
        (&json!("FAILED"), &json!("no luck"))
    );
    worker.drain(FAR).unwrap();
}

#[test]
fn the_daemon_hears_who_works_and_what_its_trees_look_like() {
    let _watch = Watchdog::watching("reports over HTTP");
    let daemon = Daemon::start(30);
    let runtime = runtime();
    let (told, tells) = mpsc::channel();
    let worker = Worker::new(daemon.client()).on(&runtime).concurrency(3);
    let worker = worker.program("tests").handle("waits", waits_below(told));
    let worker = worker.start().unwrap();
    let idle = daemon.until(|state| state.reports.first().cloned());
    assert_eq!(
        (&idle["program"], &idle["slots"]),
        (&json!("tests"), &json!(3))
    );
    assert_eq!(idle["pool"]["threads"], 2);
    let (_, ids) = daemon.offer(&[("waits", json!(null))]);
    assert_eq!(tells.recv().unwrap(), "begun");
    let tree = daemon.until(|state| {
        let with_tree =
            |report: &Value| report["trees"][0]["nodes"].as_array().map(Vec::len) >= Some(3);
        state
            .reports
            .iter()
            .find(|report| with_tree(report))
            .cloned()
    });
    let tree: LiveTree = serde_json::from_value(tree["trees"][0].clone()).unwrap();
    assert_eq!(tree.job_id, ids[0]);
    assert_eq!(tree.nodes[0].label, format!("waits {}", ids[0]));
    assert!(tree.nodes.iter().any(|node| node.label == "below"));
    worker.drain(Duration::ZERO).unwrap();
}

#[test]
fn a_cancel_reaches_the_tree_by_the_event_stream() {
    let _watch = Watchdog::watching("a cancel over HTTP");
    // Its heartbeats are hours apart: only the event can tell it.
    let daemon = Daemon::start(86_400);
    let runtime = runtime();
    let (told, tells) = mpsc::channel();
    let worker = Worker::new(daemon.client()).on(&runtime);
    let worker = worker.handle("waits", waits_below(told)).start().unwrap();
    let (lease, ids) = daemon.offer(&[("waits", json!(null))]);
    assert_eq!(tells.recv().unwrap(), "begun");
    daemon.change(|state| state.wanted_stopped.push(ids[0]));
    daemon.tell("CANCEL_REQUESTED", ids[0], lease);
    assert_eq!(tells.recv().unwrap(), "cancelled");
    let ended = daemon.until(|state| state.completed.first().cloned());
    assert_eq!(
        (&ended["status"], &ended["retry"]),
        (&json!("FAILED"), &json!(false))
    );
    worker.drain(FAR).unwrap();
}

#[test]
fn a_daemon_that_hangs_does_not_keep_jobs_running() {
    let _watch = Watchdog::watching("a daemon that hangs");
    let daemon = Daemon::start(2);
    daemon.change(|state| state.hangs = true);
    let runtime = runtime();
    let (told, tells) = mpsc::channel();
    let worker = Worker::new(daemon.client()).on(&runtime);
    let worker = worker.handle("waits", waits_below(told)).start().unwrap();
    daemon.offer(&[("waits", json!(null))]);
    assert_eq!(tells.recv().unwrap(), "begun");
    assert_eq!(tells.recv().unwrap(), "cancelled", "by its own clock");
    let beats = |daemon: &Daemon| {
        let asked = daemon.fake().asked();
        let beat = |asked: &&fake::Asked| {
            asked.path.ends_with("/heartbeat-many") && asked.json()["leases"] != json!([])
        };
        asked.iter().filter(beat).count()
    };
    assert!(beats(&daemon) >= 2, "it asked again before it gave up");
    worker.drain(FAR).unwrap();
    assert!(
        daemon.change(|state| state.completed.is_empty()),
        "there was nobody to tell"
    );
}

#[test]
fn a_worker_that_is_stopped_gives_back_what_it_has_not_begun() {
    let _watch = Watchdog::watching("a stop over HTTP");
    let daemon = Daemon::start(30);
    let runtime = runtime();
    let (told, tells) = mpsc::channel();
    let worker = Worker::new(daemon.client()).on(&runtime);
    let worker = worker.handle("waits", waits_below(told)).start().unwrap();
    let (lease, _) = daemon.offer(&[("waits", json!(null)), ("waits", json!(null))]);
    assert_eq!(tells.recv().unwrap(), "begun");
    worker.drain(Duration::ZERO).unwrap();
    assert_eq!(tells.recv().unwrap(), "cancelled");
    let released = daemon.until(|state| state.released.first().cloned());
    assert_eq!(released, lease.to_string());
    assert!(worker.handle().has_ended());
}

#[test]
fn a_run_that_can_yield_is_stopped_and_given_back() {
    let _watch = Watchdog::watching("yielding over HTTP");
    let daemon = Daemon::start(3);
    daemon.change(|state| state.advice = Some("yield"));
    let runtime = runtime();
    let (told, tells) = mpsc::channel();
    let waits = waits_below(told);
    let worker = Worker::new(daemon.client()).on(&runtime);
    let worker = worker.handle("waits", move |(), run: &Run| {
        run.can_yield(Duration::from_millis(10));
        waits((), run)
    });
    let worker = worker.start().unwrap();
    let (lease, _) = daemon.offer(&[("waits", json!(null))]);
    assert_eq!(tells.recv().unwrap(), "begun");
    assert_eq!(tells.recv().unwrap(), "cancelled");
    let released = daemon.until(|state| state.released.first().cloned());
    assert_eq!(released, lease.to_string());
    assert!(daemon.change(|state| state.completed.is_empty()));
    worker.drain(FAR).unwrap();
}

#[test]
fn what_is_no_name_is_refused() {
    let daemon = Daemon::start(30);
    let worker = Worker::new(daemon.client())
        .addon("no name")
        .handle("x", |(), _| Ok(()));
    let error = worker.start().unwrap_err();
    assert!(matches!(error, WorkError::Addon(_)), "{error:?}");
    let error = Worker::new(daemon.client()).start().unwrap_err();
    assert!(error.to_string().contains("without a handler"), "{error}");
}
