//! The durable queue in one object: jobs survive the process, handlers are jobs of the tree, results are awaited.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use jobtree_protocol::{AddonId, Backoff, Each, ErrorCode, EventKind, JobState};
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;
use jobtree_runtime::{BoxError, Runtime, nursery, sleep};
use jobtree_scheduler::durable::{NewJob, Permanent, Queue, ResultError, Run};
use serde::{Deserialize, Serialize};
use watchdog::Watchdog;

const FAR: Duration = Duration::from_secs(3600);

fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

fn runtime() -> Runtime {
    Runtime::builder().workers(2).build().unwrap()
}

/// A directory that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("jobtree-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("jobs.db")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Order {
    item: String,
    count: u32,
}

fn no_wait() -> Backoff {
    Backoff {
        initial_sec: 0.0,
        max_sec: 0.0,
        ..Backoff::default()
    }
}

#[test]
fn the_load_is_ignored_and_that_is_told() {
    let _watch = watch();
    let queue = Queue::in_memory();
    assert!(queue.sampling().is_none(), "nothing is measured");
    assert!(queue.scheduler().policy().busy.ignore);
    let status = queue.scheduler().status().wait().unwrap();
    assert!(status.nodes[0].load_ignored && !status.nodes[0].stale);
    let job = queue
        .submit(NewJob::new("nobody", &1))
        .wait()
        .unwrap()
        .job_id;
    let why = queue.scheduler().explain(job).wait().unwrap();
    assert!(why.load_ignored);
    let codes: Vec<_> = why.reasons.iter().map(|why| &*why.code).collect();
    assert_eq!(codes, ["unserved"], "and nothing about load");
}

#[test]
fn values_go_in_and_results_come_out() {
    let _watch = watch();
    let (queue, runtime) = (Queue::in_memory(), runtime());
    let worker = queue
        .worker()
        .on(&runtime)
        .handle("double", |order: Order, run: &Run| {
            assert_eq!(run.attempt(), 1);
            let count = order.count * 2;
            Ok(Order { count, ..order })
        });
    let worker = worker.start().unwrap();
    let order = Order {
        item: "tea".to_owned(),
        count: 21,
    };
    let job = queue
        .submit(NewJob::new("double", &order))
        .wait()
        .unwrap()
        .job_id;
    let result: Order = queue.result_of(job).wait().unwrap();
    assert_eq!(result, Order { count: 42, ..order });
    // Again, awaited, from inside of a job.
    let awaited = {
        let queue = queue.clone();
        runtime.spawn_future(async move { Ok(queue.result_of::<Order>(job).await?.count) })
    };
    assert_eq!(awaited.join().unwrap(), 42);
    // As something that it is not.
    let shape = queue.result_of::<Vec<u8>>(job).wait().unwrap_err();
    assert!(matches!(shape, ResultError::Shape(_)), "{shape}");
    worker.drain(FAR).unwrap();
}

#[test]
fn a_job_is_tried_again_until_it_succeeds_or_its_attempts_are_used_up() {
    let _watch = watch();
    let (queue, runtime) = (Queue::in_memory(), runtime());
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let worker = queue
        .worker()
        .on(&runtime)
        .handle("third-time", move |(), run: &Run| {
            counted.fetch_add(1, Ordering::SeqCst);
            if run.attempt() < 3 {
                return Err("not yet".into());
            }
            Ok(run.attempt())
        })
        .handle("never", |(), _| -> Result<(), BoxError> {
            panic!("broken")
        })
        .handle("once", |(), _| -> Result<(), BoxError> {
            Err(Permanent::new("no such thing").into())
        });
    let worker = worker.start().unwrap();
    let submit = |kind: &str| {
        let job = NewJob::new(kind, &()).attempts(3).backoff(no_wait());
        queue.submit(job).wait().unwrap().job_id
    };
    let (good, bad, once) = (submit("third-time"), submit("never"), submit("once"));
    assert_eq!(queue.result_of::<u32>(good).wait().unwrap(), 3);
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    let ended = |error| match error {
        ResultError::Failed {
            error, attempts, ..
        } => (error, attempts),
        other => panic!("{other}"),
    };
    let (error, attempts) = ended(queue.result_of::<()>(bad).wait().unwrap_err());
    assert!(
        error.starts_with("panicked: broken") && attempts == 3,
        "{error}"
    );
    let (error, attempts) = ended(queue.result_of::<()>(once).wait().unwrap_err());
    assert_eq!((error.as_str(), attempts), ("no such thing", 1));
    worker.drain(FAR).unwrap();
}

#[test]
fn what_is_submitted_survives_the_queue_and_is_run_by_the_next() {
    let _watch = watch();
    let place = Place::new("survives");
    let ids: Vec<_> = {
        let queue = Queue::open(place.file()).unwrap();
        let jobs = (0..20u32).map(|number| NewJob::new("square", &number));
        let answers = queue.submit_many(jobs).wait().unwrap().jobs;
        answers
            .into_iter()
            .map(|answer| match answer {
                Each::Done(answer) => answer.job_id,
                Each::Refused { error } => panic!("{error}"),
            })
            .collect()
    };
    let runtime = runtime();
    let queue = Queue::open(place.file()).unwrap();
    let worker = queue.worker().on(&runtime).batch(8);
    let worker = worker
        .handle("square", |number: u32, _| Ok(number * number))
        .start()
        .unwrap();
    for (number, id) in ids.into_iter().enumerate() {
        let expected = u32::try_from(number * number).unwrap();
        assert_eq!(queue.result_of::<u32>(id).wait().unwrap(), expected);
    }
    worker.drain(FAR).unwrap();
}

#[test]
fn a_running_job_can_be_looked_at_tells_its_progress_and_is_canceled_with_all_below() {
    let _watch = watch();
    let (queue, runtime) = (Queue::in_memory(), runtime());
    let (told, tells) = mpsc::channel();
    let told = Mutex::new(told);
    let worker = queue
        .worker()
        .on(&runtime)
        .handle("waits", move |(), run: &Run| {
            let told = told.lock().unwrap().clone();
            run.progress(0.5, "half way");
            Ok(nursery(|n| {
                n.job_options().label("deep below").launch(move || {
                    told.send("begun")?;
                    let slept = sleep(FAR);
                    told.send(if slept.is_err() { "cancelled" } else { "slept" })?;
                    Ok(slept?)
                });
                Ok(())
            })?)
        });
    let worker = worker.start().unwrap();
    let id = queue
        .submit(NewJob::new("waits", &()))
        .wait()
        .unwrap()
        .job_id;
    assert_eq!(tells.recv().unwrap(), "begun");
    let tree = queue.live_tree(id).unwrap().to_string();
    assert!(
        tree.contains(&format!("waits {id}")) && tree.contains("deep below"),
        "{tree}"
    );
    let progress = until(|| queue.job(id).wait().unwrap().progress);
    assert_eq!(progress.fraction, Some(0.5));
    assert_eq!(progress.message.as_deref(), Some("half way"));

    let began = Instant::now();
    assert_eq!(
        queue.cancel(id, "changed my mind").wait().unwrap(),
        JobState::Running
    );
    assert_eq!(tells.recv().unwrap(), "cancelled");
    let error = queue.result_of::<()>(id).wait().unwrap_err();
    assert!(matches!(error, ResultError::Canceled(_)), "{error}");
    // Told at once, not with the next heartbeat, which would be a third of 30 s away.
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
    assert!(queue.live_tree(id).is_none());
    worker.drain(FAR).unwrap();
}

#[test]
fn a_lease_that_is_revoked_cancels_the_run_and_the_job_runs_again() {
    let _watch = watch();
    let (queue, runtime) = (Queue::in_memory(), runtime());
    let (told, tells) = mpsc::channel();
    let told = Mutex::new(told);
    let worker = queue
        .worker()
        .on(&runtime)
        .handle("sometimes", move |(), run: &Run| {
            // Both runs have the same number: nothing was counted. So they are told apart by what is seen outside.
            let told = told.lock().unwrap().clone();
            told.send(run.job().lease_id)?;
            sleep(Duration::from_millis(if run.job().tags.is_empty() {
                0
            } else {
                3_600_000
            }))?;
            Ok(())
        });
    let worker = worker.start().unwrap();
    let id = queue
        .submit(NewJob::new("sometimes", &()).tag("waits"))
        .wait()
        .unwrap()
        .job_id;
    let first = tells.recv().unwrap();
    let lease = queue.job(id).wait().unwrap().lease_id.unwrap();
    queue
        .scheduler()
        .revoke(lease, Default::default())
        .wait()
        .unwrap();
    // It runs again under another lease, while the first run is told to stop.
    tells.recv().unwrap();
    let second = queue.job(id).wait().unwrap().lease_id;
    assert!(
        second.is_some() && second != Some(lease),
        "{first:?} {second:?}"
    );
    worker.drain(Duration::ZERO).unwrap();
    assert_eq!(
        queue.job(id).wait().unwrap().state,
        JobState::Queued,
        "given back"
    );
}

#[test]
fn a_run_that_takes_too_long_is_cancelled_and_counts_as_an_attempt() {
    let _watch = watch();
    let (queue, runtime) = (Queue::in_memory(), runtime());
    let (told, tells) = mpsc::channel();
    let told = Mutex::new(told);
    let worker = queue.worker().on(&runtime).handle("slow", move |(), _| {
        let slept = sleep(FAR);
        told.lock().unwrap().send(slept.is_err())?;
        Ok(slept?)
    });
    let worker = worker.start().unwrap();
    let slow = NewJob::new("slow", &()).max_runtime(Duration::from_millis(700));
    let id = queue.submit(slow).wait().unwrap().job_id;
    assert!(tells.recv().unwrap(), "cancelled");
    let error = queue.result_of::<()>(id).wait().unwrap_err();
    assert!(
        matches!(error, ResultError::Failed { attempts: 1, .. }),
        "{error}"
    );
    let events = queue.scheduler().job_events(id).wait().unwrap();
    assert!(
        events
            .iter()
            .any(|told| told.event.kind == EventKind::Timeout)
    );
    worker.drain(FAR).unwrap();
}

#[test]
fn a_drained_queue_keeps_what_has_not_ended() {
    let _watch = watch();
    let (queue, runtime) = (Queue::in_memory(), runtime());
    let (told, tells) = mpsc::channel();
    let told = Mutex::new(told);
    let worker = queue
        .worker()
        .on(&runtime)
        .concurrency(1)
        .handle("waits", move |(), _| {
            told.lock().unwrap().send(())?;
            Ok(sleep(FAR)?)
        });
    let worker = worker.start().unwrap();
    let ids: Vec<_> = (0..3)
        .map(|_| {
            queue
                .submit(NewJob::new("waits", &()))
                .wait()
                .unwrap()
                .job_id
        })
        .collect();
    tells.recv().unwrap();
    queue.drain(Duration::from_millis(5)).unwrap();
    for id in ids {
        let job = queue.job(id).wait().unwrap();
        assert_eq!(
            (job.state, job.attempts, job.rescues),
            (JobState::Queued, 0, 0)
        );
    }
    assert!(worker.running().is_empty());
}

#[test]
fn a_deaf_job_is_named_by_the_drain_and_ends_in_its_own_time() {
    let _watch = watch();
    let (queue, runtime) = (Queue::in_memory(), runtime());
    let (go, goes) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    let (goes, begun) = (Mutex::new(goes), Mutex::new(begun));
    let worker = queue
        .worker()
        .on(&runtime)
        .handle_blocking("deaf", move |(), _: &Run| {
            begun.lock().unwrap().send(())?;
            Ok(goes.lock().unwrap().recv()?)
        });
    let worker = worker.start().unwrap();
    let id = queue
        .submit(NewJob::new("deaf", &()))
        .wait()
        .unwrap()
        .job_id;
    begins.recv().unwrap();
    let left = queue.drain(Duration::ZERO).unwrap_err();
    assert!(left.paths()[0].ends_with(&format!("deaf {id}")), "{left}");
    assert_eq!(
        queue.job(id).wait().unwrap().state,
        JobState::Running,
        "under its lease"
    );
    go.send(()).unwrap();
    queue.result_of::<()>(id).wait().unwrap();
    worker.drain(FAR).unwrap();
}

#[test]
fn keys_dependencies_and_limits_are_there() {
    let _watch = watch();
    let (queue, runtime) = (Queue::in_memory(), runtime());
    let key = |number: u32| NewJob::new("adds", &number).idempotency_key("the key");
    let first = queue.submit(key(1)).wait().unwrap();
    let again = queue.submit(key(1)).wait().unwrap();
    assert_eq!((again.job_id, again.duplicate), (first.job_id, true));
    assert_eq!(
        queue.submit(key(2)).wait().unwrap_err().code,
        ErrorCode::Conflict
    );
    let large = queue
        .submit(NewJob::new("adds", &1).cost(101))
        .wait()
        .unwrap_err();
    assert_eq!(large.fields[0].field, "cost_units");

    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let (most, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&most);
    let later = NewJob::new("adds", &10).after(first.job_id);
    let last = queue.submit(later).wait().unwrap().job_id;
    for number in 100..106 {
        let one_at_a_time = NewJob::new("adds", &number).concurrency("printer", 1);
        queue.submit(one_at_a_time).wait().unwrap();
    }
    let worker =
        queue
            .worker()
            .on(&runtime)
            .concurrency(4)
            .handle("adds", move |number: u32, _| {
                if number >= 100 {
                    let others = now.fetch_add(1, Ordering::SeqCst) + 1;
                    counted.fetch_max(others, Ordering::SeqCst);
                    sleep(Duration::from_millis(2))?;
                    now.fetch_sub(1, Ordering::SeqCst);
                }
                seen.lock().unwrap().push(number);
                Ok(())
            });
    let worker = worker.start().unwrap();
    queue.result_of::<()>(last).wait().unwrap();
    until(|| (order.lock().unwrap().len() == 8).then_some(()));
    let order = order.lock().unwrap().clone();
    let place = |number| order.iter().position(|seen| *seen == number).unwrap();
    assert!(place(1) < place(10), "{order:?}");
    assert_eq!(most.load(Ordering::SeqCst), 1);
    worker.drain(FAR).unwrap();
}

#[test]
fn each_name_runs_its_own_jobs() {
    let _watch = watch();
    let (queue, runtime) = (Queue::in_memory(), runtime());
    let other = queue.for_addon(AddonId::new("other").unwrap());
    let seen: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let workers: Vec<_> = [&queue, &other]
        .into_iter()
        .map(|queue| {
            let (seen, name) = (Arc::clone(&seen), queue.addon().to_string());
            let worker = queue
                .worker()
                .on(&runtime)
                .handle("who", move |(), run: &Run| {
                    assert_eq!(run.job().addon_id.as_str(), name);
                    *seen.lock().unwrap().entry(name.clone()).or_default() += 1;
                    Ok(())
                });
            worker.start().unwrap()
        })
        .collect();
    let jobs: Vec<_> = (0..5)
        .flat_map(|_| [&queue, &other])
        .map(|queue| queue.submit(NewJob::new("who", &())).wait().unwrap().job_id)
        .collect();
    for job in jobs {
        queue.result_of::<()>(job).wait().unwrap();
    }
    assert_eq!(
        seen.lock()
            .unwrap()
            .clone()
            .into_values()
            .collect::<Vec<_>>(),
        [5, 5]
    );
    queue.drain(FAR).unwrap();
    drop(workers);
}

#[test]
fn with_a_policy_jobs_wait_until_the_machine_is_quiet() {
    let _watch = watch();
    let mut policy = Policy::default();
    // A test cannot wait for the minute after which a machine counts as quiet.
    policy.quiet.enter_after = Duration::ZERO;
    let builder = Queue::builder().policy(policy).without_measuring();
    let (queue, runtime) = (builder.in_memory().unwrap(), runtime());
    let worker = queue
        .worker()
        .on(&runtime)
        .handle("works", |(), _| Ok(()))
        .start()
        .unwrap();
    let busy = Sample {
        cpu_idle: 0.55,
        ..Sample::idle()
    };
    queue.scheduler().sample(busy);
    let id = queue
        .submit(NewJob::new("works", &()))
        .wait()
        .unwrap()
        .job_id;
    // Its trail says that it was looked at and refused, and why.
    let denied = until(|| {
        let events = queue.scheduler().job_events(id).wait().unwrap();
        events
            .into_iter()
            .find(|told| told.event.kind == EventKind::Denied)
    });
    let reason = denied.event.reason.unwrap();
    assert!(reason.contains("waits for QUIET"), "{reason}");
    assert_eq!(queue.job(id).wait().unwrap().state, JobState::Queued);
    queue.scheduler().sample(Sample::idle());
    queue.result_of::<()>(id).wait().unwrap();
    worker.drain(FAR).unwrap();
}

#[test]
fn a_run_that_can_yield_goes_back_in_a_panic_and_ends_later() {
    let _watch = watch();
    let mut policy = Policy::default();
    // Samples are given by hand, one for each load, and the test cannot wait for minutes of panic and calm.
    policy.busy.stale_after = FAR;
    policy.quiet.enter_after = Duration::ZERO;
    policy.quiet.calm_after = Duration::ZERO;
    policy.quiet.panic_cooldown = Duration::ZERO;
    policy.dispatch.lease_ttl = Duration::from_secs(3);
    let builder = Queue::builder().policy(policy).without_measuring();
    let (queue, runtime) = (builder.in_memory().unwrap(), runtime());
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let worker = queue.worker().on(&runtime);
    let worker = worker.handle("works", move |(), run: &Run| {
        run.can_yield(Duration::from_millis(10));
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            sleep(FAR)?;
        }
        Ok(())
    });
    let worker = worker.start().unwrap();
    queue.scheduler().sample(Sample::idle());
    let id = queue.submit(NewJob::new("works", &()));
    let id = id.wait().unwrap().job_id;
    until(|| (runs.load(Ordering::SeqCst) == 1).then_some(()));
    let overloaded = Sample {
        psi_cpu: Some(100.0),
        ..Sample::default()
    };
    queue.scheduler().sample(overloaded);
    let back = until(|| {
        let job = queue.job(id).wait().unwrap();
        (job.state == JobState::Queued).then_some(job)
    });
    assert_eq!((back.attempts, back.rescues), (0, 0), "nothing is counted");
    queue.scheduler().sample(Sample::idle());
    queue.result_of::<()>(id).wait().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    worker.drain(FAR).unwrap();
}

#[test]
fn with_a_policy_the_machine_is_measured() {
    let _watch = watch();
    let mut policy = Policy::default();
    // Whatever this machine is doing, it is quiet enough for this policy: but it has to be measured for that.
    policy.quiet.enter_after = Duration::ZERO;
    policy.quiet.quiet_max = 10.0;
    policy.quiet.quiet_leave = 10.0;
    policy.quiet.normal_max = 10.0;
    policy.quiet.busy_max = 10.0;
    policy.capacity.curve = [100.0; 11];
    let builder = Queue::builder()
        .policy(policy)
        .measure_every(Duration::from_millis(200));
    let (queue, runtime) = (builder.in_memory().unwrap(), runtime());
    let worker = queue
        .worker()
        .on(&runtime)
        .handle("works", |(), _| Ok(()))
        .start()
        .unwrap();
    let id = queue
        .submit(NewJob::new("works", &()))
        .wait()
        .unwrap()
        .job_id;
    queue.result_of::<()>(id).wait().unwrap();
    assert!(queue.sampling().is_some());
    worker.drain(FAR).unwrap();
}

/// Asks until there is an answer.
fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
