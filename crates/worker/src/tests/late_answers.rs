//! Answers of the scheduler that come late, or never.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use jobtree_protocol::{ApiError, ErrorCode};
use jobtree_runtime::{Runtime, sim, sleep};

use super::desk::{Desk, Said, job};
use super::watchdog::Watchdog;
use super::{FAR, completed, end, released, runtime, waits_below};
use crate::{GiveBack, Worker};

/// A worker whose handler gives each job back.
fn gives_back(desk: &Arc<Desk>, runtime: &Runtime) -> Worker {
    let worker = desk.worker().on(runtime);
    let worker = worker.handle("refuses", |(), _| {
        Err::<(), _>(GiveBack::because("later").into())
    });
    worker.start().unwrap()
}

/// Blocks until the worker's claim waits at the scheduler.
fn wait_for_claim(desk: &Desk) {
    while desk.offers.lock().unwrap().waiting.is_none() {
        std::thread::yield_now();
    }
}

#[test]
fn a_lease_that_was_long_in_coming_is_renewed_at_once() {
    let _watch = Watchdog::watching("a long wait");
    let (desk, said) = Desk::friendly();
    let (told, tells) = mpsc::channel();
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle("waits", waits_below(told))
        .start()
        .unwrap();
    // The claim is there, and waits; then much time passes.
    wait_for_claim(&desk);
    desk.pass(Duration::from_secs(19));
    let lease = desk.offer(vec![job("waits", "null")]);
    match said.recv().unwrap() {
        Said::Beat(beat) => assert_eq!(beat.lease_id, lease),
        other => panic!("{other:?}"),
    }
    assert_eq!(tells.recv().unwrap(), "begun");
    worker.drain(Duration::from_millis(1)).unwrap();
}

#[test]
fn a_lease_whose_answer_may_be_late_begins_nothing_before_it_is_renewed() {
    let _watch = Watchdog::watching("a late answer");
    for seed in 0..20 {
        let outcome = sim::Runtime::new(seed).run(|rt| {
            // No heartbeat is answered: the lease may be over, and the job with another worker.
            let (desk, said) = Desk::open(|_| None);
            let (told, tells) = mpsc::channel();
            let worker = desk.worker().on(rt).handle("waits", waits_below(told));
            let worker = worker.start()?;
            // Longer than an answer that is recent takes, a sixth of the TTL.
            sleep(Duration::from_secs(6))?;
            let lease = desk.offer(vec![job("waits", "null")]);
            sleep(FAR)?;
            worker.stop();
            worker.join();
            let said: Vec<_> = said.try_iter().collect();
            assert!(
                matches!(&said[..], [Said::Beat(beat)] if beat.lease_id == lease),
                "{said:?}"
            );
            assert!(tells.try_recv().is_err(), "the job has begun");
            Ok(())
        });
        outcome.outcome.unwrap();
    }
}

#[test]
fn a_release_without_an_answer_is_repeated() {
    let _watch = Watchdog::watching("a lost release");
    let (desk, said) = Desk::friendly();
    let lost = ApiError::new(ErrorCode::Unavailable, "no answer");
    desk.release_refusals
        .lock()
        .unwrap()
        .extend([lost.clone(), lost]);
    let runtime = runtime();
    let worker = gives_back(&desk, &runtime);
    let lease = desk.offer(vec![job("refuses", "null")]);
    for _ in 0..3 {
        assert_eq!(released(&said).0, lease);
    }
    end(&worker);
    assert!(said.try_iter().all(|said| matches!(said, Said::Beat(_))));
}

#[test]
fn a_release_that_is_refused_is_not_repeated() {
    let _watch = Watchdog::watching("a refused release");
    let (desk, said) = Desk::friendly();
    // As if the first one had taken effect and only its answer got lost.
    desk.release_refusals.lock().unwrap().extend([
        ApiError::new(ErrorCode::Unavailable, "no answer"),
        ApiError::new(ErrorCode::WrongState, "the lease has ended"),
    ]);
    let runtime = runtime();
    let worker = gives_back(&desk, &runtime);
    desk.offer(vec![job("refuses", "null")]);
    released(&said);
    released(&said);
    end(&worker);
    assert!(said.try_iter().all(|said| matches!(said, Said::Beat(_))));
}

#[test]
fn a_lease_whose_claim_was_repeated_is_renewed_before_its_first_job_begins() {
    let _watch = Watchdog::watching("a repeated claim");
    let (desk, said) = Desk::friendly();
    desk.loses_answers.store(true, Ordering::SeqCst);
    // Whether the first claim was granted is not known, nor when.
    desk.put(Err(ApiError::new(ErrorCode::Unavailable, "no answer")));
    let lease = desk.offer(vec![job("double", "1")]);
    let runtime = runtime();
    let worker = desk.worker().on(&runtime);
    let worker = worker
        .handle("double", |number: u32, _| Ok(number * 2))
        .start()
        .unwrap();
    assert!(matches!(said.recv().unwrap(), Said::Beat(beat) if beat.lease_id == lease));
    completed(&said);
    end(&worker);
}
