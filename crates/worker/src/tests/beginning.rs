//! Which jobs of a lease begin, what is told of that, and which go back.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use jobtree_protocol::{Heartbeat, HeartbeatAnswer, JobId, JobState, JobView};

use super::desk::{Desk, Said, job, renewed};
use super::watchdog::Watchdog;
use super::{completed, end, runtime};

/// A job that its scheduler shows as claimed and not begun.
fn unbegun(job_type: &str, payload: &str) -> JobView {
    JobView {
        state: JobState::Dispatching,
        ..job(job_type, payload)
    }
}

fn beat(said: &mpsc::Receiver<Said>) -> Heartbeat {
    match said.recv().unwrap() {
        Said::Beat(beat) => beat,
        other => panic!("{other:?}"),
    }
}

/// A handler that says that it runs, and ends when the test says so.
struct Gate {
    runs: mpsc::Receiver<u32>,
    open: mpsc::Sender<()>,
}

fn gate() -> (
    Gate,
    impl Fn(u32, &crate::Run) -> Result<(), jobtree_runtime::BoxError> + Send + Sync + 'static,
) {
    let (running, runs) = mpsc::channel();
    let (open, opened) = mpsc::channel::<()>();
    let inside = Mutex::new((running, opened));
    let handler = move |number: u32, _: &crate::Run| {
        let inside = inside.lock().unwrap();
        inside.0.send(number)?;
        inside.1.recv()?;
        Ok(())
    };
    (Gate { runs, open }, handler)
}

#[test]
fn a_limited_run_is_told_at_once_and_an_unlimited_one_a_moment_later() {
    let _watch = Watchdog::watching("begins");
    let (desk, said) = Desk::friendly();
    let runtime = runtime();
    let (gate, handler) = gate();
    let worker = desk.worker().on(&runtime).concurrency(1);
    let worker = worker.handle_blocking("waits", handler).start().unwrap();

    let mut limited = unbegun("waits", "1");
    limited.max_runtime_sec = Some(60);
    let id = limited.job_id;
    desk.offer(vec![limited]);
    assert_eq!(gate.runs.recv().unwrap(), 1);
    let told = beat(&said);
    assert_eq!((told.job_id, told.began_ms_ago), (Some(id), Some(0)));
    gate.open.send(()).unwrap();
    assert_eq!(completed(&said).0, id);
    end(&worker);

    // Jobs are short here, as far as is known: an unlimited one is not told before a second is over.
    let (desk, said) = Desk::friendly();
    let (gate, handler) = self::gate();
    let worker = desk.worker().on(&runtime).concurrency(1);
    let worker = worker
        .handle("short", |_: u32, _| Ok(()))
        .handle_blocking("waits", handler)
        .start()
        .unwrap();
    desk.offer(vec![unbegun("short", "0")]);
    completed(&said);
    let waits = unbegun("waits", "2");
    let id = waits.job_id;
    desk.offer(vec![waits]);
    assert_eq!(gate.runs.recv().unwrap(), 2);
    desk.pass(Duration::from_millis(999));
    assert!(said.recv_timeout(Duration::from_millis(100)).is_err());
    desk.pass(Duration::from_millis(1));
    let told = beat(&said);
    assert_eq!((told.job_id, told.began_ms_ago), (Some(id), Some(1000)));
    gate.open.send(()).unwrap();
    let (_, request) = completed(&said);
    assert_eq!(
        (request.began_ms_ago, request.ended_ms_ago),
        (Some(1000), Some(0))
    );
    end(&worker);
}

#[test]
fn a_begin_that_came_with_the_grant_is_not_told_again() {
    let _watch = Watchdog::watching("begins with the grant");
    let (desk, said) = Desk::friendly();
    let runtime = runtime();
    let (gate, handler) = gate();
    let worker = desk.worker().on(&runtime).concurrency(2);
    let worker = worker.handle_blocking("waits", handler).start().unwrap();
    let mut limited = job("waits", "1");
    limited.max_runtime_sec = Some(60);
    desk.offer(vec![limited]);
    assert_eq!(gate.runs.recv().unwrap(), 1);
    desk.pass(Duration::from_secs(2));
    assert!(said.recv_timeout(Duration::from_millis(100)).is_err());
    gate.open.send(()).unwrap();
    completed(&said);
    end(&worker);
    let begins_now = desk.offers.lock().unwrap().begins_now.clone();
    assert_eq!(
        begins_now[..2],
        [Some(2), Some(1)],
        "one of two places is taken"
    );
}

#[test]
fn a_completion_tells_of_the_next_begin_if_its_run_is_timed() {
    let _watch = Watchdog::watching("begins with completions");
    let (desk, said) = Desk::friendly();
    let runtime = runtime();
    let worker = desk.worker().on(&runtime).concurrency(1);
    let worker = worker.handle("works", |_: u32, _| Ok(())).start().unwrap();
    let mut jobs = vec![job("works", "1"), unbegun("works", "2")];
    jobs[1].max_runtime_sec = Some(60);
    let ids: Vec<JobId> = jobs.iter().map(|job| job.job_id).collect();
    desk.offer(jobs);
    let (first, request) = completed(&said);
    assert_eq!(first, ids[0]);
    assert_eq!(request.in_hand.map(|it| it.job_id), Some(ids[1]));
    let (second, request) = completed(&said);
    assert_eq!((second, request.in_hand), (ids[1], None));
    end(&worker);
}

#[test]
fn unbegun_jobs_go_back_when_asked_for_and_are_never_begun() {
    let _watch = Watchdog::watching("jobs that go back");
    let asked: Arc<Mutex<Vec<JobId>>> = Arc::default();
    let asking = Arc::clone(&asked);
    let (desk, said) = Desk::open(move |beat| {
        let mut wanted = asking.lock().unwrap();
        wanted.retain(|id| !beat.given_back.contains(id));
        Some(Ok(HeartbeatAnswer {
            give_back: wanted.clone(),
            ..renewed(&[])
        }))
    });
    let runtime = runtime();
    let (gate, handler) = gate();
    let worker = desk.worker().on(&runtime).concurrency(1);
    let worker = worker.handle_blocking("waits", handler).start().unwrap();
    let jobs = vec![
        job("waits", "1"),
        unbegun("waits", "2"),
        unbegun("waits", "3"),
    ];
    let ids: Vec<JobId> = jobs.iter().map(|job| job.job_id).collect();
    let lease = desk.offer(jobs);
    assert_eq!(gate.runs.recv().unwrap(), 1);
    // The first has begun: to ask for it is in vain.
    *asked.lock().unwrap() = vec![ids[0], ids[2]];
    desk.poke(lease);
    assert_eq!(
        beat(&said).given_back,
        [],
        "nobody has asked before this one"
    );
    let confirmed = beat(&said);
    assert_eq!(
        (confirmed.job_id, confirmed.given_back),
        (Some(ids[0]), vec![ids[2]])
    );
    for id in &ids[..2] {
        gate.open.send(()).unwrap();
        assert_eq!(completed(&said).0, *id);
    }
    end(&worker);
    assert_eq!(
        gate.runs.try_iter().collect::<Vec<_>>(),
        [2],
        "the third never began"
    );
}

#[test]
fn a_scheduler_of_the_first_release_is_spoken_to_in_its_words() {
    let _watch = Watchdog::watching("a scheduler of the first release");
    let (desk, said) = Desk::friendly();
    desk.offers.lock().unwrap().is_first_release = true;
    let runtime = runtime();
    let worker = desk.worker().on(&runtime).concurrency(1);
    let worker = worker.handle("works", |_: u32, _| Ok(())).start().unwrap();
    let jobs = vec![job("works", "1"), job("works", "2")];
    let ids: Vec<JobId> = jobs.iter().map(|job| job.job_id).collect();
    desk.offer(jobs);
    for id in ids {
        let (job, request) = completed(&said);
        assert_eq!(job, id);
        assert_eq!(
            (request.began_ms_ago, request.ended_ms_ago, request.in_hand),
            (None, None, None)
        );
    }
    end(&worker);
    assert_eq!(worker.last_error(), None);
    let begins_now = desk.offers.lock().unwrap().begins_now.clone();
    assert_eq!(begins_now[..2], [Some(1), None]);
}
