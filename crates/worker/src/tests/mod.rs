//! Workers against a scheduler that says what the test says, by a clock that the test moves.

mod beginning;
mod desk;
mod late_answers;
mod simulated;
mod telling;
mod yielding;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use jobtree_protocol::{
    ApiError, CompleteRequest, CompleteStatus, ErrorCode, JobId, JobView, LeaseId, ReleaseRequest,
};
use jobtree_runtime::{BoxError, Runtime, future, nursery, sleep};

use crate::{GiveBack, Permanent, Run, SchedulerPlace, Worker, WorkerError};
use desk::{Desk, Said, job, renewed};

#[path = "../../../pool/tests/watchdog/mod.rs"]
mod watchdog;
use watchdog::Watchdog;

const FAR: Duration = Duration::from_secs(3600);

fn runtime() -> Runtime {
    Runtime::builder().workers(2).build().unwrap()
}

/// The next completion; heartbeats may come before it.
fn completed(said: &mpsc::Receiver<Said>) -> (JobId, CompleteRequest) {
    loop {
        match said.recv().unwrap() {
            Said::Completed(job, request) => return (job, request),
            Said::Beat(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn released(said: &mpsc::Receiver<Said>) -> (LeaseId, ReleaseRequest) {
    loop {
        match said.recv().unwrap() {
            Said::Released(lease, request) => return (lease, request),
            Said::Beat(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// What is said next, heartbeats aside, while the clock goes on.
fn next_said(desk: &Desk, said: &mpsc::Receiver<Said>) -> Said {
    loop {
        match said.recv_timeout(Duration::from_millis(20)) {
            Ok(Said::Beat(_)) => {}
            Ok(other) => return other,
            Err(_) => desk.pass(Duration::from_millis(400)),
        }
    }
}

fn end(worker: &Worker) {
    worker.drain(FAR).unwrap();
}

#[test]
fn a_batch_is_run_in_order_and_each_job_answered_for() {
    let _watch = Watchdog::watching("a batch");
    let (desk, said) = Desk::friendly();
    let runtime = runtime();
    let worker = desk.worker().on(&runtime).batch(9);
    let worker = worker
        .handle("double", |number: u32, _| Ok(number * 2))
        .start()
        .unwrap();
    let jobs = vec![
        job("double", "1"),
        job("double", "20"),
        job("double", "300"),
    ];
    let ids: Vec<_> = jobs.iter().map(|job| job.job_id).collect();
    let lease = desk.offer(jobs);
    for (id, expected) in ids.into_iter().zip(["2", "40", "600"]) {
        let (job, request) = completed(&said);
        assert_eq!(
            (job, request.status, request.lease_id),
            (id, CompleteStatus::Done, lease)
        );
        assert_eq!(request.result.unwrap().text(), expected);
    }
    end(&worker);
    assert!(worker.running().is_empty() && worker.last_error().is_none());
}

#[test]
fn what_a_handler_returns_says_whether_another_attempt_follows() {
    let _watch = Watchdog::watching("errors of handlers");
    let (desk, said) = Desk::friendly();
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle("fails", |(), _| -> Result<(), BoxError> {
            Err("no luck".into())
        })
        .handle("nested", |(), _| {
            Ok(nursery(|n| {
                n.launch(|| Err(Permanent::new("broken for good").into()));
                Ok(())
            })?)
        })
        .handle("panics", |(), _| -> Result<(), BoxError> {
            panic!("oh dear")
        })
        .handle("picky", |_: Vec<u8>, _| Ok(()))
        .handle_blocking("blocks", |(), _| Ok(std::fs::read("/dev/null")?.len()))
        .handle_future("awaits", |name: String, run: Run| async move {
            future::sleep(Duration::from_millis(1)).await?;
            Ok(format!("{name} {}", run.attempt()))
        })
        .start()
        .unwrap();
    let expect = |kind: &str, payload: &str| {
        desk.offer(vec![job(kind, payload)]);
        completed(&said).1
    };
    let failed = expect("fails", "null");
    assert_eq!(
        (failed.error.as_deref(), failed.retry),
        (Some("no luck"), true)
    );
    let nested = expect("nested", "null");
    assert_eq!(
        (nested.error.as_deref(), nested.retry),
        (Some("broken for good"), false)
    );
    let panicked = expect("panics", "null");
    let text = panicked.error.unwrap();
    assert!(
        text.starts_with("panicked: oh dear") && panicked.retry,
        "{text}"
    );
    let picky = expect("picky", r#""text""#);
    assert!(picky.error.unwrap().contains("handler of picky") && !picky.retry);
    assert_eq!(expect("blocks", "null").result.unwrap().text(), "0");
    assert_eq!(
        expect("awaits", r#""you""#).result.unwrap().text(),
        r#""you 1""#
    );
    end(&worker);
}

#[test]
fn a_job_that_is_given_back_takes_the_rest_of_its_batch_along() {
    let _watch = Watchdog::watching("given back");
    let (desk, said) = Desk::friendly();
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle("yields", |(), _| -> Result<(), BoxError> {
            Err(GiveBack::because("saved at page 7").into())
        });
    let worker = worker.start().unwrap();
    let lease = desk.offer(vec![job("yields", "null"), job("yields", "null")]);
    let (given, request) = released(&said);
    assert_eq!((given, request.return_jobs), (lease, true));
    assert_eq!(request.reason.as_deref(), Some("saved at page 7"));
    end(&worker);
    assert!(said.try_recv().is_err(), "nothing else was said");
}

/// A handler that waits in a job below its own, and tells when that one begins and how it ends.
fn waits_below(
    told: mpsc::Sender<&'static str>,
) -> impl Fn((), &Run) -> Result<(), BoxError> + Send + Sync {
    let told = Mutex::new(told);
    move |(), run| {
        let told = told.lock().unwrap().clone();
        run.progress(0.0, "");
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
fn a_wish_to_stop_cancels_the_subtree_and_is_answered() {
    let _watch = Watchdog::watching("a wish to stop");
    let wanted: Arc<Mutex<Vec<JobId>>> = Arc::default();
    let wishes = Arc::clone(&wanted);
    let (desk, said) = Desk::open(move |_| Some(Ok(renewed(&wishes.lock().unwrap()))));
    let (told, tells) = mpsc::channel();
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle("waits", waits_below(told))
        .start()
        .unwrap();
    let waiting = job("waits", "null");
    let id = waiting.job_id;
    let behind = job("waits", "null");
    let behind_id = behind.job_id;
    let lease = desk.offer(vec![waiting, behind]);
    assert_eq!(tells.recv().unwrap(), "begun");
    assert_eq!(worker.running(), [id]);
    let tree = worker.live_tree(id).unwrap().to_string();
    assert!(
        tree.contains(&format!("waits {id}")) && tree.contains("below"),
        "{tree}"
    );

    wanted.lock().unwrap().extend([id, behind_id]);
    desk.poke(lease);
    assert_eq!(tells.recv().unwrap(), "cancelled");
    for expected in [id, behind_id] {
        let (job, request) = completed(&said);
        assert_eq!((job, request.status), (expected, CompleteStatus::Failed));
        assert_eq!(request.error.as_deref(), Some("canceled while it ran"));
    }
    end(&worker);
    assert!(tells.try_recv().is_err(), "the second never began");
    assert!(worker.live_tree(id).is_none());
}

#[test]
fn a_lease_that_is_lost_cancels_the_subtree_and_nothing_is_said() {
    let _watch = Watchdog::watching("a lost lease");
    let (desk, said) = Desk::open(|_| Some(Err(ApiError::new(ErrorCode::LeaseLost, "revoked"))));
    let (told, tells) = mpsc::channel();
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle("waits", waits_below(told))
        .start()
        .unwrap();
    let lease = desk.offer(vec![job("waits", "null"), job("waits", "null")]);
    assert_eq!(tells.recv().unwrap(), "begun");
    desk.poke(lease);
    assert_eq!(tells.recv().unwrap(), "cancelled");
    end(&worker);
    assert!(said.try_iter().all(|said| matches!(said, Said::Beat(_))));
    assert!(
        tells.try_recv().is_err(),
        "the rest of the batch never began"
    );
}

#[test]
fn a_worker_that_cannot_renew_stops_by_its_own_clock_before_the_lease_ends() {
    let _watch = Watchdog::watching("self-fencing");
    let (desk, said) = Desk::open(|_| None);
    let (told, tells) = mpsc::channel();
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle("waits", waits_below(told))
        .start()
        .unwrap();
    desk.offer(vec![job("waits", "null")]);
    assert_eq!(tells.recv().unwrap(), "begun");
    desk.pass(Duration::from_secs(24));
    // It has asked, so it has looked at the clock, and nothing is stopped yet.
    assert!(matches!(said.recv().unwrap(), Said::Beat(_)));
    assert!(tells.try_recv().is_err());
    desk.pass(Duration::from_secs(2));
    assert_eq!(tells.recv().unwrap(), "cancelled", "at 26 s of 30");
    end(&worker);
    assert!(said.try_iter().all(|said| matches!(said, Said::Beat(_))));
}

#[test]
fn leases_are_renewed_three_times_a_ttl_while_the_handler_does_not_care() {
    let _watch = Watchdog::watching("renewals");
    let (desk, said) = Desk::friendly();
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let (begun, goes) = (Mutex::new(begun), Mutex::new(goes));
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle_blocking("deaf", move |(), run: &Run| {
            begun.lock().unwrap().send(run.id())?;
            // Deaf to everything but the test.
            goes.lock().unwrap().recv()?;
            Ok(())
        });
    let worker = worker.start().unwrap();
    let deaf = job("deaf", "null");
    let id = deaf.job_id;
    let lease = desk.offer(vec![deaf]);
    assert_eq!(begins.recv().unwrap(), id);
    for _ in 0..10 {
        desk.pass(Duration::from_secs(10));
        match said.recv().unwrap() {
            Said::Beat(beat) => {
                // The handler may be faster than who notes that it has begun.
                assert_eq!(beat.lease_id, lease);
                assert!(beat.job_id.is_none_or(|named| named == id));
            }
            other => panic!("{other:?}"),
        }
    }
    go.send(()).unwrap();
    assert_eq!(completed(&said).1.status, CompleteStatus::Done);
    end(&worker);
}

#[test]
fn progress_comes_with_a_heartbeat_soon() {
    let _watch = Watchdog::watching("progress");
    let (desk, said) = Desk::friendly();
    let (go, goes) = mpsc::channel::<()>();
    let goes = Mutex::new(goes);
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle_blocking("tells", move |(), run: &Run| {
            run.progress(0.25, "a quarter");
            run.progress(7.0, "é".repeat(1000));
            goes.lock().unwrap().recv()?;
            Ok(())
        });
    let worker = worker.start().unwrap();
    desk.offer(vec![job("tells", "null")]);
    let told = loop {
        desk.pass(Duration::from_millis(300));
        match said.recv_timeout(Duration::from_millis(20)) {
            Ok(Said::Beat(beat))
                if beat
                    .progress
                    .as_ref()
                    .is_some_and(|told| told.fraction == Some(1.0)) =>
            {
                break beat.progress.unwrap();
            }
            Ok(Said::Beat(_)) | Err(_) => {}
            Ok(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(told.message.unwrap().len(), 1024, "the newest, cut");
    go.send(()).unwrap();
    completed(&said);
    end(&worker);
}

#[test]
fn a_completion_that_may_be_lost_is_sent_again() {
    let _watch = Watchdog::watching("sent again");
    let (desk, said) = Desk::friendly();
    let unavailable = || ApiError::new(ErrorCode::Unavailable, "the disk is full");
    desk.refusals
        .lock()
        .unwrap()
        .extend([unavailable(), unavailable()]);
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle("works", |(), _| Ok("well"))
        .start()
        .unwrap();
    desk.offer(vec![job("works", "null")]);
    let untimed = |(job, request): (JobId, CompleteRequest)| {
        let times = (request.began_ms_ago, request.ended_ms_ago);
        let request = CompleteRequest {
            began_ms_ago: None,
            ended_ms_ago: None,
            ..request
        };
        ((job, request), times)
    };
    let (first, times) = untimed(completed(&said));
    assert_eq!(times, (Some(0), Some(0)));
    let mut ago = 0;
    for _ in 0..2 {
        match next_said(&desk, &said) {
            Said::Completed(job, request) => {
                let (again, (began, ended)) = untimed((job, request));
                assert_eq!(again, first);
                assert!(
                    began == ended && ended > Some(ago),
                    "as long ago as it is by now"
                );
                ago = ended.unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    end(&worker);
    assert!(said.try_recv().is_err(), "the third was taken");
    assert_eq!(worker.last_error().unwrap().message, "the disk is full");
}

#[test]
fn a_result_that_is_refused_is_a_failure() {
    let _watch = Watchdog::watching("a refused result");
    let (desk, said) = Desk::friendly();
    let refused = ApiError::new(ErrorCode::Invalid, "result: has 2 MiB");
    desk.refusals.lock().unwrap().push_back(refused);
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle("works", |(), _| Ok("well"))
        .start()
        .unwrap();
    desk.offer(vec![job("works", "null")]);
    assert_eq!(completed(&said).1.status, CompleteStatus::Done);
    desk.pass(Duration::from_secs(1));
    let second = completed(&said).1;
    assert_eq!(
        (second.status, second.retry),
        (CompleteStatus::Failed, false)
    );
    assert!(second.error.unwrap().contains("2 MiB"));
    end(&worker);
}

#[test]
fn a_drain_lets_jobs_finish_and_returns_what_has_not_begun() {
    let _watch = Watchdog::watching("a drain");
    let (desk, said) = Desk::friendly();
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let (begun, goes) = (Mutex::new(begun), Mutex::new(goes));
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle_blocking("works", move |(), _: &Run| {
            begun.lock().unwrap().send(())?;
            Ok(goes.lock().unwrap().recv()?)
        });
    let worker = worker.start().unwrap();
    let lease = desk.offer(vec![job("works", "null"), job("works", "null")]);
    begins.recv().unwrap();
    worker.stop();
    go.send(()).unwrap();
    assert_eq!(completed(&said).1.status, CompleteStatus::Done);
    assert_eq!(released(&said).0, lease);
    end(&worker);
    desk.offer(vec![job("works", "null")]);
    assert!(begins.try_recv().is_err(), "nothing is claimed any more");
}

#[test]
fn a_drain_that_takes_too_long_cancels_and_returns() {
    let _watch = Watchdog::watching("a short drain");
    let (desk, said) = Desk::friendly();
    let (told, tells) = mpsc::channel();
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle("waits", waits_below(told))
        .start()
        .unwrap();
    let lease = desk.offer(vec![job("waits", "null")]);
    assert_eq!(tells.recv().unwrap(), "begun");
    worker.drain(Duration::from_millis(1)).unwrap();
    assert_eq!(tells.recv().unwrap(), "cancelled");
    let (given, request) = released(&said);
    assert_eq!((given, request.return_jobs), (lease, true));
}

#[test]
fn a_runtime_that_is_shut_down_returns_its_jobs() {
    let _watch = Watchdog::watching("a shutdown");
    let (desk, said) = Desk::friendly();
    let (told, tells) = mpsc::channel();
    let runtime = runtime();
    let _worker = desk
        .worker()
        .on(&runtime)
        .handle("waits", waits_below(told))
        .start()
        .unwrap();
    let lease = desk.offer(vec![job("waits", "null")]);
    assert_eq!(tells.recv().unwrap(), "begun");
    runtime.shutdown(FAR).unwrap();
    assert_eq!(tells.recv().unwrap(), "cancelled");
    assert_eq!(released(&said).0, lease);
}

#[test]
fn a_claim_that_fails_is_made_again_and_no_place_is_lost() {
    let _watch = Watchdog::watching("claims that fail");
    let (desk, said) = Desk::friendly();
    desk.put(Err(ApiError::new(ErrorCode::Unavailable, "not now")));
    desk.put(Err(ApiError::new(ErrorCode::Unavailable, "not yet")));
    let runtime = runtime();
    let worker = desk.worker().on(&runtime).concurrency(3);
    let worker = worker.handle("works", |(), _| Ok(())).start().unwrap();
    for _ in 0..20 {
        desk.offer(vec![job("works", "null")]);
        completed(&said);
    }
    end(&worker);
    let asked_for = desk.offers.lock().unwrap().asked_for.clone();
    assert_eq!(asked_for[..3], [3, 3, 3]);
    // The jobs are short, so as many more may wait for their turn.
    assert!(
        asked_for.iter().all(|count| (1..=6).contains(count)),
        "{asked_for:?}"
    );
    assert_eq!(worker.last_error().unwrap().message, "not yet");
}

#[test]
fn processes_are_named_to_schedulers_of_this_machine_alone() {
    let _watch = Watchdog::watching("processes");
    let own = vec![std::process::id()];
    for (place, pids, is_told_more) in [
        (SchedulerPlace::SameProcess, own.clone(), false),
        (SchedulerPlace::SameMachine, own, cfg!(target_os = "linux")),
        (SchedulerPlace::Elsewhere, Vec::new(), false),
    ] {
        let (desk, said) = Desk::friendly();
        *desk.place.lock().unwrap() = place;
        let runtime = runtime();
        let worker = desk.worker().on(&runtime);
        let worker = worker.handle("works", |(), _| Ok(())).start().unwrap();
        desk.offer(vec![job("works", "null")]);
        completed(&said);
        end(&worker);
        for (named, origin) in &desk.offers.lock().unwrap().processes {
            assert_eq!(named, &pids, "{place:?}");
            assert_eq!(origin.is_some(), is_told_more, "{place:?}");
        }
    }
}

#[test]
fn a_job_that_runs_twice_for_a_moment_is_known_by_its_newest_run() {
    let _watch = Watchdog::watching("two runs of a job");
    let lost: Arc<Mutex<Option<LeaseId>>> = Arc::default();
    let losing = Arc::clone(&lost);
    let (desk, said) = Desk::open(move |beat| {
        let is_lost = *losing.lock().unwrap() == Some(beat.lease_id);
        Some(if is_lost {
            Err(ApiError::new(ErrorCode::LeaseLost, "revoked"))
        } else {
            Ok(renewed(&[]))
        })
    });
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let (begun, goes) = (Mutex::new(begun), Mutex::new(goes));
    let runtime = runtime();
    let worker = desk.worker().on(&runtime).concurrency(2);
    let worker = worker.handle_blocking("stubborn", move |deaf: bool, _: &Run| {
        begun.lock().unwrap().send(())?;
        if deaf {
            return Ok(goes.lock().unwrap().recv()?);
        }
        Ok(sleep(FAR)?)
    });
    let worker = worker.start().unwrap();
    let deaf = job("stubborn", "true");
    let again = JobView {
        job_id: deaf.job_id,
        ..job("stubborn", "false")
    };
    let id = deaf.job_id;
    let first = desk.offer(vec![deaf]);
    begins.recv().unwrap();
    *lost.lock().unwrap() = Some(first);
    desk.poke(first);
    let second = desk.offer(vec![again]);
    begins.recv().unwrap();
    // The first run ends at last, and takes only itself out: the second is still known, and can be stopped.
    go.send(()).unwrap();
    assert_eq!(completed(&said).1.lease_id, first);
    assert_eq!(worker.running(), [id]);
    assert!(worker.live_tree(id).is_some());
    worker.drain(Duration::ZERO).unwrap();
    assert_eq!(released(&said).0, second);
}

#[test]
fn a_worker_without_a_handler_does_not_start() {
    let (desk, _said) = Desk::friendly();
    assert!(matches!(desk.worker().start(), Err(WorkerError::NoHandler)));
    let odd = desk.worker().handle("a b", |(), _| Ok(())).start();
    assert!(odd.unwrap_err().to_string().contains("holds ' '"));
}
