//! What a worker tells, and how much it claims: progress, completions, logs, reports.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use jobtree_protocol::{ApiError, ErrorCode};
use jobtree_runtime::{nursery, sleep};

use super::desk::{Desk, Said, job, renewed};
use super::watchdog::Watchdog;
use super::{FAR, completed, end, next_said, runtime};
use crate::Run;

#[test]
fn progress_that_was_not_answered_is_told_again() {
    let _watch = Watchdog::watching("progress again");
    let failures = Mutex::new(2);
    let (desk, said) = Desk::open(move |beat| {
        let mut failures = failures.lock().unwrap();
        if beat.progress.is_some() && *failures > 0 {
            *failures -= 1;
            return Some(Err(ApiError::new(
                ErrorCode::Unavailable,
                "the disk is full",
            )));
        }
        Some(Ok(renewed(&[])))
    });
    let (go, goes) = mpsc::channel::<()>();
    let goes = Mutex::new(goes);
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle_blocking("tells", move |(), run: &Run| {
            run.progress(0.25, "a quarter");
            Ok(goes.lock().unwrap().recv()?)
        });
    let worker = worker.start().unwrap();
    desk.offer(vec![job("tells", "null")]);
    let mut told = 0;
    while told < 3 {
        desk.pass(Duration::from_millis(1100));
        while let Ok(beat) = said.recv_timeout(Duration::from_millis(20)) {
            match beat {
                Said::Beat(beat) if beat.progress.is_some() => {
                    let words = beat.progress.unwrap().message;
                    assert_eq!(words.as_deref(), Some("a quarter"));
                    told += 1;
                }
                Said::Beat(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    go.send(()).unwrap();
    completed(&said);
    end(&worker);
    assert_eq!(told, 3, "taken the third time, and not told again");
}

#[test]
fn the_last_progress_is_told_before_its_run_counts_as_ended() {
    let _watch = Watchdog::watching("last progress");
    // The first one that tells something is not answered, and one is not liked.
    let seen = Mutex::new(0);
    let (desk, said) = Desk::open(move |beat| {
        let Some(told) = &beat.progress else {
            return Some(Ok(renewed(&[])));
        };
        let mut seen = seen.lock().unwrap();
        *seen += 1;
        let code = match (told.message.as_deref(), *seen) {
            (_, 1) => ErrorCode::Unavailable,
            (Some("bad"), _) => ErrorCode::Invalid,
            _ => return Some(Ok(renewed(&[]))),
        };
        Some(Err(ApiError::new(code, "no")))
    });
    let runtime = runtime();
    let worker = desk.worker().on(&runtime).batch(9);
    let worker = worker.handle("tells", |words: Vec<String>, run: &Run| {
        for word in words {
            run.progress(0.5, word);
        }
        Ok(())
    });
    let worker = worker.start().unwrap();
    let jobs = ["[\"a\", \"b\"]", "[\"bad\"]", "[]", "[\"c\"]"].map(|words| job("tells", words));
    let ids = jobs.clone().map(|job| job.job_id);
    desk.offer(jobs.into());
    let mut told = vec![None; ids.len()];
    let mut done = 0;
    while done < ids.len() {
        // By its own clock, no time passes beside what a refusal asks for.
        match said.recv_timeout(Duration::from_millis(20)) {
            Ok(Said::Beat(beat)) => {
                if let Some(progress) = beat.progress {
                    let of = ids.iter().position(|id| Some(*id) == beat.job_id);
                    let of = of.expect("it names its job");
                    assert_eq!(of, done, "neither before nor after its turn");
                    told[of] = progress.message;
                }
            }
            Ok(Said::Completed(id, _)) => {
                assert_eq!(id, ids[done]);
                done += 1;
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => desk.pass(Duration::from_secs(1)),
        }
    }
    let told: Vec<_> = told.iter().map(Option::as_deref).collect();
    assert_eq!(told, [Some("b"), Some("bad"), None, Some("c")]);
    end(&worker);
}

#[test]
fn what_ends_while_an_answer_is_awaited_goes_together() {
    let _watch = Watchdog::watching("completions together");
    let (desk, said) = Desk::friendly();
    let (keep, kept) = mpsc::channel();
    *desk.kept.lock().unwrap() = Some(keep);
    let (go, goes) = mpsc::channel::<()>();
    let goes = Mutex::new(goes);
    let (ran, runs) = mpsc::channel();
    let ran = Mutex::new(ran);
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle_blocking("waits", move |wait: bool, _: &Run| {
            ran.lock().unwrap().send(())?;
            if wait {
                goes.lock().unwrap().recv()?;
            }
            Ok(())
        });
    let worker = worker.start().unwrap();
    let jobs: Vec<_> = ["false", "false", "false", "true"]
        .map(|payload| job("waits", payload))
        .into();
    let ids: Vec<_> = jobs.iter().map(|job| job.job_id).collect();
    desk.offer(jobs);
    let (answer, first) = kept.recv().unwrap();
    assert_eq!(first.jobs.len(), 1, "the first goes alone, at once");
    for _ in 0..4 {
        runs.recv().unwrap();
    }
    // The fourth runs, so the second and third have ended, and wait. Nobody but the answer brings them on.
    assert!(kept.try_recv().is_err());
    answer.keep(Ok(first)).unwrap();
    let (answer, second) = kept.recv().unwrap();
    assert_eq!(second.jobs.len(), 2);
    answer.keep(Ok(second)).unwrap();
    go.send(()).unwrap();
    let (answer, third) = kept.recv().unwrap();
    assert_eq!(third.jobs.len(), 1);
    answer.keep(Ok(third)).unwrap();
    let told: Vec<_> = (0..4).map(|_| completed(&said).0).collect();
    assert_eq!(told, ids);
    end(&worker);
}

#[test]
fn a_request_for_many_that_is_refused_as_a_whole_is_made_one_by_one() {
    let _watch = Watchdog::watching("one by one");
    let (desk, said) = Desk::friendly();
    let (keep, kept) = mpsc::channel();
    *desk.kept.lock().unwrap() = Some(keep);
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle("works", |(), _| Ok("well"));
    let worker = worker.start().unwrap();
    desk.offer(vec![
        job("works", "null"),
        job("works", "null"),
        job("works", "null"),
    ]);
    let (answer, first) = kept.recv().unwrap();
    for _ in 0..first.jobs.len() {
        completed(&said);
    }
    // All have ended before the first is answered for, or the rest would come one by one anyway.
    while !worker.running().is_empty() {
        std::thread::yield_now();
    }
    let mut left = 3 - first.jobs.len();
    answer.keep(Ok(first)).unwrap();
    while left > 0 {
        let (answer, next) = kept.recv().unwrap();
        if next.jobs.len() > 1 {
            for _ in 0..next.jobs.len() {
                completed(&said);
            }
            let large = ApiError::new(ErrorCode::TooLarge, "9 MiB");
            answer.keep(Err(large)).unwrap();
        } else {
            completed(&said);
            left -= 1;
            answer.keep(Ok(next)).unwrap();
        }
    }
    end(&worker);
    assert!(said.try_iter().all(|said| matches!(said, Said::Beat(_))));
}

#[test]
fn a_log_is_sent_before_its_run_counts_as_ended() {
    let _watch = Watchdog::watching("a log");
    let (desk, said) = Desk::friendly();
    let later = ApiError::new(ErrorCode::Unavailable, "later");
    desk.log_refusals.lock().unwrap().push_back(later);
    let (go, goes) = mpsc::channel::<()>();
    let goes = Mutex::new(goes);
    let runtime = runtime();
    let worker = desk
        .worker()
        .on(&runtime)
        .handle_blocking("prints", move |(), run: &Run| {
            run.log("begun");
            goes.lock().unwrap().recv()?;
            run.log("over");
            Ok(())
        });
    let worker = worker.start().unwrap();
    let printing = job("prints", "null");
    let id = printing.job_id;
    let lease = desk.offer(vec![printing]);
    for _ in 0..2 {
        match next_said(&desk, &said) {
            Said::Logged(job, piece) => {
                assert_eq!((job, piece.lease_id), (id, lease));
                assert_eq!((piece.offset, piece.text.as_str()), (0, "begun\n"));
            }
            other => panic!("{other:?}"),
        }
    }
    go.send(()).unwrap();
    match next_said(&desk, &said) {
        Said::Logged(_, piece) => {
            assert_eq!((piece.offset, piece.text.as_str()), (6, "over\n"));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(next_said(&desk, &said), Said::Completed(job, _) if job == id));
    end(&worker);
}

#[test]
fn a_worker_tells_how_it_does_with_the_trees_of_its_jobs() {
    let _watch = Watchdog::watching("a report");
    let (desk, said) = Desk::friendly();
    *desk.report_every.lock().unwrap() = Some(Duration::from_secs(5));
    let (told, tells) = mpsc::channel();
    let told = Mutex::new(told);
    let runtime = runtime();
    let worker = desk.worker().on(&runtime).concurrency(3).program("tests 1");
    let worker = worker
        .handle("wide", move |(), _| {
            let told = told.lock().unwrap().clone();
            Ok(nursery(|n| {
                for _ in 0..300 {
                    let below = n.job_options().label("x".repeat(200));
                    below.launch(|| Ok(sleep(FAR)?));
                }
                told.send(())?;
                Ok(())
            })?)
        })
        .start()
        .unwrap();
    let Said::Reported(idle) = next_said(&desk, &said) else {
        panic!("it tells of itself before it has anything to do")
    };
    assert_eq!((idle.program.as_str(), idle.slots), ("tests 1", 3));
    assert!(idle.trees.is_empty() && !idle.draining);
    assert_eq!(idle.pool.unwrap().threads, 2);
    let wide = job("wide", "null");
    let id = wide.job_id;
    desk.offer(vec![wide]);
    tells.recv().unwrap();
    let tree = loop {
        desk.pass(Duration::from_secs(5));
        match next_said(&desk, &said) {
            Said::Reported(report) if !report.trees.is_empty() => break report.trees[0].clone(),
            Said::Reported(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(tree.job_id, id);
    assert_eq!(tree.nodes.len(), jobtree_protocol::LiveTree::MOST_NODES);
    assert!(tree.left_out > 0);
    assert_eq!(
        (tree.nodes[0].depth, tree.nodes[0].label.clone()),
        (0, format!("wide {id}"))
    );
    assert!(tree.nodes.iter().all(|node| node.label.len() <= 120));
    worker.drain(Duration::ZERO).unwrap();
}

#[test]
fn of_short_jobs_more_are_claimed_than_run_at_once_and_of_long_ones_not() {
    let _watch = Watchdog::watching("claims ahead");
    let (desk, said) = Desk::friendly();
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let (begun, goes) = (Mutex::new(begun), Mutex::new(goes));
    let runtime = runtime();
    let worker = desk.worker().on(&runtime).concurrency(1);
    let worker = worker.handle_blocking("waits", move |wait: bool, _: &Run| {
        begun.lock().unwrap().send(())?;
        if wait {
            goes.lock().unwrap().recv()?;
        }
        Ok(())
    });
    let worker = worker.start().unwrap();
    let is_asking = || desk.offers.lock().unwrap().waiting.is_some();
    // Nothing is known of its jobs: none is claimed while one runs.
    desk.offer(vec![job("waits", "true")]);
    begins.recv().unwrap();
    assert!(!is_asking());
    std::thread::sleep(Duration::from_millis(50));
    go.send(()).unwrap();
    completed(&said);
    // Short ones make it believe that they are short.
    let short = |count: usize| {
        (0..count)
            .map(|_| job("waits", "false"))
            .collect::<Vec<_>>()
    };
    for _ in 0..20 {
        desk.offer(short(50));
        for _ in 0..50 {
            begins.recv().unwrap();
            completed(&said);
        }
    }
    // Now one runs, one waits for its turn, and no third is asked for.
    desk.offer(vec![job("waits", "true")]);
    begins.recv().unwrap();
    while !is_asking() {
        std::thread::yield_now();
    }
    let second = desk.offer(vec![job("waits", "false")]);
    while desk.offers.lock().unwrap().waiting.is_some() {
        std::thread::yield_now();
    }
    assert!(begins.try_recv().is_err(), "it is not its turn");
    // It is renewed while it waits.
    desk.pass(Duration::from_secs(10));
    loop {
        match said.recv().unwrap() {
            Said::Beat(beat) if beat.lease_id == second => break,
            Said::Beat(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(!is_asking());
    go.send(()).unwrap();
    begins.recv().unwrap();
    end(&worker);
}
