//! Runs that are asked to yield: those that can are stopped after their grace and go back, the others are only told.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use jobtree_protocol::{Advice, HeartbeatAnswer};
use jobtree_runtime::{BoxError, nursery, sleep};

use super::desk::{Desk, Said, job, renewed};
use super::watchdog::Watchdog;
use super::{FAR, completed, end, released, runtime};
use crate::{GiveBack, Permanent, Run};

const GRACE: Duration = Duration::from_secs(10);

/// A scheduler whose advice the test changes.
fn advising() -> (Arc<Desk>, mpsc::Receiver<Said>, Arc<Mutex<Advice>>) {
    let advice = Arc::new(Mutex::new(Advice::Yield));
    let says = Arc::clone(&advice);
    let (desk, said) = Desk::open(move |_| {
        Some(Ok(HeartbeatAnswer {
            advice: *says.lock().unwrap(),
            ..renewed(&[])
        }))
    });
    (desk, said, advice)
}

/// Lets a third of the lease's time pass, and waits for the heartbeat of that.
fn beat(desk: &Desk, said: &mpsc::Receiver<Said>) {
    desk.pass(Duration::from_secs(10));
    let told = said.recv().unwrap();
    assert!(matches!(told, Said::Beat(_)), "{told:?}");
}

#[test]
fn a_run_that_can_yield_is_cancelled_with_all_below_and_goes_back() {
    let _watch = Watchdog::watching("a run yields");
    let (desk, said, _) = advising();
    let (told, tells) = mpsc::channel();
    let told = Mutex::new(told);
    let runtime = runtime();
    let worker = desk.worker().on(&runtime);
    let worker = worker.handle("yields", move |(), run: &Run| {
        run.can_yield(GRACE);
        let told = told.lock().unwrap().clone();
        Ok(nursery(|n| {
            n.launch(move || {
                told.send("begun".to_owned())?;
                let slept = sleep(FAR).expect_err("it is cancelled");
                told.send(slept.to_string())?;
                Err(slept.into())
            });
            Ok(())
        })?)
    });
    let worker = worker.start().unwrap();
    let lease = desk.offer(vec![job("yields", "null"), job("yields", "null")]);
    assert_eq!(tells.recv().unwrap(), "begun");
    beat(&desk, &said);
    // It is asked now, and has its grace, by the worker's clock.
    desk.pass(GRACE);
    let (back, request) = loop {
        match said.recv_timeout(Duration::from_millis(100)) {
            Ok(Said::Released(lease, request)) => break (lease, request),
            Ok(Said::Beat(_)) => {}
            Ok(other) => panic!("{other:?}"),
            Err(_) => desk.pass(Duration::from_secs(1)),
        }
    };
    assert_eq!((back, request.return_jobs), (lease, true));
    assert!(request.reason.unwrap().contains("yield"));
    assert!(tells.recv().unwrap().contains("yield"), "the reason");
    assert!(tells.try_recv().is_err(), "the second job never began");
    end(&worker);
}

#[test]
fn a_run_keeps_its_grace_and_goes_on_if_the_advice_is_taken_back() {
    let _watch = Watchdog::watching("advice taken back");
    let (desk, said, advice) = advising();
    let (go, goes) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    let (goes, begun) = (Mutex::new(goes), Mutex::new(begun));
    let runtime = runtime();
    let worker = desk.worker().on(&runtime);
    let worker = worker.handle_blocking("yields", move |(), run: &Run| {
        run.can_yield(3 * GRACE);
        begun.lock().unwrap().send(run.clone())?;
        goes.lock().unwrap().recv()?;
        jobtree_runtime::checkpoint()?;
        Ok("done")
    });
    let worker = worker.start().unwrap();
    desk.offer(vec![job("yields", "null")]);
    let run = begins.recv().unwrap();
    for _ in 0..4 {
        // Asked for less than the grace each time, for more than it in sum.
        *advice.lock().unwrap() = Advice::Yield;
        beat(&desk, &said);
        beat(&desk, &said);
        *advice.lock().unwrap() = Advice::Slow;
        beat(&desk, &said);
        while run.advice() != Advice::Slow {
            std::thread::yield_now();
        }
    }
    go.send(()).unwrap();
    let (_, request) = completed(&said);
    assert_eq!(request.result.unwrap().text(), "\"done\"");
    end(&worker);
}

#[test]
fn a_grace_without_end_never_ends() {
    let _watch = Watchdog::watching("a grace without end");
    let (desk, said, _) = advising();
    let (go, goes) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    let (goes, begun) = (Mutex::new(goes), Mutex::new(begun));
    let runtime = runtime();
    let worker = desk.worker().on(&runtime);
    let worker = worker.handle_blocking("yields", move |(), run: &Run| {
        run.can_yield(Duration::MAX);
        begun.lock().unwrap().send(())?;
        goes.lock().unwrap().recv()?;
        jobtree_runtime::checkpoint()?;
        Ok("done")
    });
    let worker = worker.start().unwrap();
    desk.offer(vec![job("yields", "null")]);
    begins.recv().unwrap();
    for _ in 0..3 {
        beat(&desk, &said);
    }
    go.send(()).unwrap();
    let (_, request) = completed(&said);
    assert_eq!(request.result.unwrap().text(), "\"done\"");
    end(&worker);
}

#[test]
fn a_run_that_does_not_say_that_it_can_yield_is_only_told() {
    let _watch = Watchdog::watching("only told");
    let (desk, said, _) = advising();
    let (go, goes) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    let (goes, begun) = (Mutex::new(goes), Mutex::new(begun));
    let runtime = runtime();
    let worker = desk.worker().on(&runtime);
    let worker = worker.handle_blocking("stays", move |(), run: &Run| {
        begun.lock().unwrap().send(())?;
        goes.lock().unwrap().recv()?;
        jobtree_runtime::checkpoint()?;
        Ok(run.advice() == Advice::Yield)
    });
    let worker = worker.start().unwrap();
    desk.offer(vec![job("stays", "null")]);
    // Its lease is renewed from now on.
    begins.recv().unwrap();
    for _ in 0..5 {
        beat(&desk, &said);
    }
    go.send(()).unwrap();
    let (_, request) = completed(&said);
    assert_eq!(request.result.unwrap().text(), "true");
    end(&worker);
}

#[test]
fn how_a_run_ends_that_was_stopped_to_yield_says_what_becomes_of_its_job() {
    let _watch = Watchdog::watching("ends of yielding");
    let (desk, said, _) = advising();
    let runtime = runtime();
    let worker = desk.worker().on(&runtime).concurrency(1);
    let worker = worker.handle("ends", |how: String, run: &Run| -> Result<(), BoxError> {
        run.can_yield(Duration::ZERO);
        sleep(FAR).expect_err("it is cancelled");
        match how.as_str() {
            "well" => Ok(()),
            "back" => Err(GiveBack::because("saved at page 7").into()),
            "wrong" => Err(Permanent::new("no such file").into()),
            "panic" => panic!("oh dear"),
            _ => Err("interrupted".into()),
        }
    });
    let worker = worker.start().unwrap();
    let offer = |how: &str| {
        desk.offer(vec![job("ends", &format!("{how:?}"))]);
        loop {
            match said.recv_timeout(Duration::from_millis(100)) {
                Ok(Said::Beat(_)) => {}
                Ok(other) => return other,
                Err(_) => desk.pass(Duration::from_secs(10)),
            }
        }
    };
    for (how, reason) in [("error", "asked to yield"), ("back", "saved at page 7")] {
        match offer(how) {
            Said::Released(_, request) => {
                assert!(request.reason.unwrap().contains(reason), "{how}");
            }
            other => panic!("{how}: {other:?}"),
        }
    }
    for (how, error, retry) in [
        ("well", None, true),
        ("wrong", Some("no such file"), false),
        ("panic", Some("panicked: oh dear"), true),
    ] {
        match offer(how) {
            Said::Completed(_, request) => {
                let told = request.error.as_deref();
                assert_eq!(told.is_some(), error.is_some(), "{how}: {told:?}");
                assert!(told.unwrap_or("").starts_with(error.unwrap_or("")));
                assert_eq!(request.retry, retry, "{how}");
            }
            other => panic!("{how}: {other:?}"),
        }
    }
    end(&worker);
}

#[test]
fn jobs_of_a_batch_that_have_not_begun_go_back_when_the_worker_is_asked_to_yield() {
    let _watch = Watchdog::watching("a batch yields");
    let (desk, said, _) = advising();
    let (go, goes) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    let (goes, begun) = (Mutex::new(goes), Mutex::new(begun));
    let runtime = runtime();
    let worker = desk.worker().on(&runtime);
    let worker = worker.handle_blocking("stays", move |(), run: &Run| {
        begun.lock().unwrap().send(run.clone())?;
        Ok(goes.lock().unwrap().recv()?)
    });
    let worker = worker.start().unwrap();
    let jobs = vec![job("stays", "null"), job("stays", "null")];
    let first = jobs[0].job_id;
    let lease = desk.offer(jobs);
    let run = begins.recv().unwrap();
    beat(&desk, &said);
    while run.advice() != Advice::Yield {
        std::thread::yield_now();
    }
    go.send(()).unwrap();
    assert_eq!(completed(&said).0, first);
    assert_eq!(released(&said).0, lease);
    assert!(begins.try_recv().is_err());
    end(&worker);
}
