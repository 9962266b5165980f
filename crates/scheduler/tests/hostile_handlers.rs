//! Handlers whose errors and captured values are hostile: their jobs end, and the queue goes on.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use jobtree_runtime::user_code::caught_panics;
use jobtree_scheduler::durable::{NewJob, Queue, ResultError, Run};
use watchdog::Watchdog;

const FAR: Duration = Duration::from_secs(3600);

fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

/// Shows that the queue runs jobs.
fn still_works(queue: &Queue) {
    let worker = queue.worker().handle("works", |n: u32, _| Ok(n + 1));
    let worker = worker.start().unwrap();
    let job = queue
        .submit(NewJob::new("works", &1))
        .wait()
        .unwrap()
        .job_id;
    assert_eq!(queue.result_of::<u32>(job).wait().unwrap(), 2);
    worker.drain(FAR).unwrap();
}

/// An error that cannot be written as text.
#[derive(Debug)]
enum Unspeakable {
    Panics,
    Refuses,
}

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unspeakable::Panics => panic!("on purpose, in the text of an error"),
            Unspeakable::Refuses => Err(fmt::Error),
        }
    }
}

impl Error for Unspeakable {}

#[test]
fn a_job_ends_even_if_its_handlers_error_panics_when_it_is_written() {
    let _watch = watch();
    let queue = Queue::in_memory();
    let fail = |panics: bool, _: &Run| -> Result<(), _> {
        Err(match panics {
            true => Unspeakable::Panics.into(),
            false => Unspeakable::Refuses.into(),
        })
    };
    let worker = queue.worker().handle("computes", fail);
    let worker = worker.handle_blocking("blocks", fail).start().unwrap();
    for (job_type, panics) in [
        ("computes", true),
        ("computes", false),
        ("blocks", true),
        ("blocks", false),
    ] {
        let before = caught_panics();
        let job = queue.submit(NewJob::new(job_type, &panics)).wait();
        let ended = queue.result_of::<()>(job.unwrap().job_id).wait();
        let Err(ResultError::Failed { error, .. }) = ended else {
            panic!("{ended:?}");
        };
        assert!(
            format!("{error:?}").contains("panics when it is written"),
            "{error:?}"
        );
        assert!(caught_panics() > before);
    }
    still_works(&queue);
    worker.drain(FAR).unwrap();
}

#[test]
fn a_handler_that_panics_when_it_is_dropped_disturbs_no_other_worker() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose, in the destructor of a handler");
        }
    }
    let _watch = watch();
    let queue = Queue::in_memory();
    for _ in 0..3 {
        let (first, second) = (Bomb, Bomb);
        let worker = queue.worker().handle("one", move |(): (), _| {
            let _captured = &first;
            Ok(())
        });
        let worker = worker.handle("two", move |(): (), _| {
            let _captured = &second;
            Ok(())
        });
        worker.start().unwrap().drain(FAR).unwrap();
    }
    still_works(&queue);
}

#[test]
fn a_worker_that_may_run_more_than_a_claim_can_ask_for_gets_jobs() {
    let _watch = watch();
    for (concurrency, batch) in [(65_536, 1), (usize::MAX, u32::MAX)] {
        let queue = Queue::in_memory();
        let worker = queue.worker().concurrency(concurrency).batch(batch);
        let worker = worker.handle("works", |n: u32, _| Ok(n + 1)).start();
        let worker = worker.unwrap();
        let job = queue.submit(NewJob::new("works", &1)).wait();
        let job = job.unwrap().job_id;
        assert_eq!(queue.result_of::<u32>(job).wait().unwrap(), 2);
        worker.drain(FAR).unwrap();
    }
}
