//! A process that works for its own queue file is killed. The process that opens the file next knows that the workers
//! inside the killed one have ended, so their jobs run again at once; workers and programs in other processes may still
//! run, and keep their leases.
//!
//! Leases hold for an hour here: a job that runs again within the test did not wait for the end of one. This program starts
//! itself again as the process that is killed.
#![cfg(unix)]

#[cfg(feature = "postgres")]
#[path = "../../store/tests/support/postgres.rs"]
mod postgres;
mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use jobtree_protocol::{
    ClaimRequest, EventKind, JobId, JobQuery, JobState, JobType, LeaseId, LeaseState, ReportRequest,
};
use jobtree_runtime::sleep;
use jobtree_scheduler::Scheduler;
use jobtree_scheduler::durable::{NewJob, Queue, Run};
use jobtree_store::{SqliteOptions, Store};
use support::{Folder, claim};
use watchdog::Watchdog;

const FILE: &str = "JOBTREE_CRASH_FILE";
const PART: &str = "JOBTREE_CRASH_PART";
const HOUR: Duration = Duration::from_secs(3600);

fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

fn open(file: impl AsRef<Path>) -> Queue {
    let hold = |options: &mut jobtree_scheduler::Options| {
        options.policy.dispatch.lease_ttl = HOUR;
    };
    let queue = Queue::builder().options(hold).open(file.as_ref());
    queue.expect("the file of this test")
}

fn submit(queue: &Queue, job_type: &str) -> JobId {
    let job = queue.submit(NewJob::new(job_type, &()));
    job.wait().expect("taken").job_id
}

/// Tells the process that started this one.
fn tell(what: &str, id: impl std::fmt::Display) {
    println!("\ntold {what} {id}");
}

/// The part of the process that is killed; nothing without the variables that say which.
#[test]
fn child() {
    let (Some(file), Ok(part)) = (std::env::var_os(FILE), std::env::var(PART)) else {
        return;
    };
    let queue = open(Path::new(&file));
    match part.as_str() {
        "three workers" => three_workers(&queue),
        "batch" => batch(&queue),
        "fatal job" => fatal_job(&queue),
        other => panic!("{other:?} is no part"),
    }
    std::thread::sleep(HOUR);
}

/// A claim that may be for a worker elsewhere, a worker inside with a program beside it, and a worker inside alone.
fn three_workers(queue: &Queue) {
    let remote = submit(queue, "remote");
    let request = ClaimRequest {
        job_types: vec![JobType::new("remote").expect("a name")],
        ..claim("app", 1)
    };
    let leases = queue.scheduler().claim(request).wait().expect("a lease");
    assert_eq!(leases[0].jobs[0].job_id, remote);
    tell("remote", remote);
    let scheduler = queue.scheduler().clone();
    let worker = queue.worker().concurrency(2);
    let worker = worker.handle_blocking("program", move |(), run: &Run| {
        let lease_id = run.job().lease_id.expect("a lease");
        let report = ReportRequest {
            lease_id,
            pids: Some(vec![std::process::id(), 77]),
            process_origin: None,
            job_id: None,
            progress: None,
            metrics: Default::default(),
        };
        scheduler.report(report).wait()?;
        tell("program", run.id());
        std::thread::sleep(HOUR);
        Ok(())
    });
    let worker = worker.handle("inside", |(), run: &Run| {
        tell("inside", run.id());
        Ok(sleep(HOUR)?)
    });
    std::mem::forget(worker.start().expect("a worker"));
    submit(queue, "program");
    submit(queue, "inside");
}

/// Runs short jobs until a batch of them is claimed, and stands still in its second or a later one, with others to come.
fn batch(queue: &Queue) {
    let scheduler = queue.scheduler().clone();
    let before: Mutex<Option<LeaseId>> = Mutex::new(None);
    let worker = queue.worker().concurrency(1);
    let worker = worker.handle_blocking("short", move |(), run: &Run| {
        let lease = run.job().lease_id.expect("a lease");
        if before.lock().expect("no panic").replace(lease) != Some(lease) {
            return Ok(());
        }
        // The end of the job before this one is on its way, and with it the begin of this one.
        let held = loop {
            let held = scheduler.lease(lease).wait()?;
            if held.current == Some(run.id()) {
                break held;
            }
        };
        if let Some(next) = held.jobs.get(1) {
            tell("next", next);
            tell("in-hand", run.id());
            std::thread::sleep(HOUR);
        }
        Ok(())
    });
    std::mem::forget(worker.start().expect("a worker"));
    loop {
        let some = (0..50).map(|_| NewJob::new("short", &()));
        queue.submit_many(some).wait().expect("taken");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a job that its process does not survive. Only the first process submits it.
fn fatal_job(queue: &Queue) {
    let page = queue.scheduler().jobs(JobQuery::default()).wait();
    if page.expect("a list").jobs.is_empty() {
        submit(queue, "fatal");
    }
    let worker = queue.worker().handle("fatal", |(), run: &Run| {
        tell("fatal", run.id());
        Ok(sleep(HOUR)?)
    });
    std::mem::forget(worker.start().expect("a worker"));
}

/// A process that is killed, by [`Process::kill`] or with the test.
struct Process {
    child: Child,
    told: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(part: &str, file: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["child", "--exact", "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .env(FILE, file)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let told = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, told }
    }

    /// Waits for all of these, in any order, and returns their ids in this one.
    fn told<const N: usize>(&mut self, what: [&str; N]) -> [JobId; N] {
        let mut ids = [None; N];
        while ids.contains(&None) {
            let line = self.told.next().expect("the process tells more");
            let line = line.expect("text");
            let told: Vec<&str> = line.split(' ').collect();
            if let ["told", name, id] = told[..]
                && let Some(place) = what.iter().position(|what| *what == name)
            {
                ids[place] = Some(id.parse().expect("an id"));
            }
        }
        ids.map(|id| id.expect("all were told"))
    }

    fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // SIGKILL, as `kill -9`.
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it has ended");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The state of a job, and how often it was rescued.
fn state(queue: &Queue, id: JobId) -> (JobState, u32) {
    let job = queue.job(id).wait().expect("the job");
    (job.state, job.rescues)
}

#[test]
fn leases_of_workers_inside_a_killed_process_end_when_its_file_is_opened_and_no_others() {
    let _watch = watch();
    let folder = Folder::new("crash-inside");
    let file = folder.file("jobs.db");
    let mut process = Process::start("three workers", &file);
    let [remote, program, inside] = process.told(["remote", "program", "inside"]);
    process.kill();

    let queue = open(&file);
    let worker = queue.worker();
    let worker = worker
        .handle("inside", |(), _| Ok(()))
        .handle("program", |(), _| Ok(()))
        .handle("remote", |(), _| Ok(()));
    let worker = worker.start().expect("a worker");
    queue.result_of::<()>(inside).wait().expect("it ran again");
    assert_eq!(state(&queue, inside), (JobState::Done, 1));
    let events = queue.scheduler().job_events(inside).wait().expect("events");
    let expired = events.iter().map(|recorded| &recorded.event);
    let mut expired = expired.filter(|event| event.kind == EventKind::LeaseExpired);
    assert_eq!(
        expired.next().and_then(|event| event.reason.as_deref()),
        Some("the process of its worker ended: rescue 1 of 3")
    );
    // All that is over after the opening was found in the same step, so these two were left alone.
    for id in [remote, program] {
        assert_eq!(state(&queue, id), (JobState::Running, 0));
        let lease = queue.job(id).wait().expect("the job").lease_id;
        let lease = queue.scheduler().lease(lease.expect("a lease")).wait();
        assert_eq!(lease.expect("it is there").state, LeaseState::Active);
    }
    worker.drain(HOUR).expect("nothing runs");
}

#[test]
fn a_crash_inside_a_batch_counts_for_the_job_in_hand_and_for_no_other() {
    let _watch = watch();
    let folder = Folder::new("crash-batch");
    let file = folder.file("jobs.db");
    let mut process = Process::start("batch", &file);
    let [next, in_hand] = process.told(["next", "in-hand"]);
    process.kill();

    let queue = open(&file);
    let worker = queue.worker().handle("short", |(), _| Ok(()));
    let worker = worker.start().expect("a worker");
    for id in [in_hand, next] {
        queue.result_of::<()>(id).wait().expect("it ran again");
    }
    assert_eq!(state(&queue, in_hand), (JobState::Done, 1));
    assert_eq!(state(&queue, next), (JobState::Done, 0));
    worker.drain(HOUR).expect("nothing runs");
    let mut query = JobQuery::default();
    loop {
        let page = queue
            .scheduler()
            .jobs(query.clone())
            .wait()
            .expect("a page");
        for job in &page.jobs {
            assert_eq!(job.rescues, u32::from(job.job_id == in_hand), "{job:?}");
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
}

#[test]
fn each_crash_is_counted_once_and_the_third_puts_the_job_aside() {
    let _watch = watch();
    let folder = Folder::new("crash-thrice");
    let file = folder.file("jobs.db");
    let mut fatal = None;
    for _ in 0..3 {
        let mut process = Process::start("fatal job", &file);
        let [id] = process.told(["fatal"]);
        assert_eq!(*fatal.get_or_insert(id), id, "the same job each time");
        process.kill();
    }
    let queue = open(&file);
    let fatal = fatal.expect("it ran");
    let ended = queue.result_of::<()>(fatal).wait();
    ended.expect_err("it is put aside");
    let job = queue.job(fatal).wait().expect("the job");
    assert_eq!(
        (job.state, job.rescues, job.quarantined, job.attempts),
        (JobState::Failed, 3, true, 0)
    );
}

/// What a store knows of dead processes is as of its opening: later schedulers on it find nothing to end.
#[test]
fn a_second_scheduler_on_an_open_file_leaves_the_leases_of_the_first() {
    let _watch = watch();
    let folder = Folder::new("crash-second");
    let store = Store::open(&SqliteOptions::new(folder.file("jobs.db"))).expect("a new file");
    let queue = open_on(store.clone());
    let (worker, job, lease) = stands_still(&queue);
    assert!(store.lease(lease).wait().expect("the lease").in_process);

    let second = open_on(store.clone());
    second.scheduler().status().wait().expect("all was read");
    // The store carries commands out in their order: a lease that the second one ends has ended when this is taken.
    submit(&second, "later");
    assert_eq!(store.orphaned_leases(), []);
    assert_eq!(state(&second, job), (JobState::Running, 0));
    worker.drain(Duration::ZERO).expect("it stops");
}

/// Other processes have the same database open, so no process's end is known from opening it.
#[cfg(feature = "postgres")]
#[test]
fn on_a_shared_database_no_lease_ends_before_its_time() {
    let _watch = watch();
    let server = postgres::Server::start();
    let options = jobtree_store::PostgresOptions::new(server.new_place());
    let connect = || Store::connect(&options).expect("the server is there");
    let queue = open_on(connect());
    let (worker, job, lease) = stands_still(&queue);

    // Of the same name: as a node that is started again while its old process still runs.
    let store = connect();
    let second = open_on(store.clone());
    second.scheduler().status().wait().expect("all was read");
    assert_eq!(store.orphaned_leases(), []);
    let lease = store.lease(lease).wait().expect("the lease");
    assert!(lease.is_live() && !lease.in_process);
    assert_eq!(state(&second, job), (JobState::Running, 0));
    worker.drain(Duration::ZERO).expect("it stops");
}

fn open_on(store: Store) -> Queue {
    let mut options = jobtree_scheduler::Options::default();
    // The default of a queue in a process, which `Queue::builder` sets: nothing is measured.
    options.policy.busy.ignore = true;
    options.policy.dispatch.lease_ttl = HOUR;
    let scheduler = Scheduler::start(store, options);
    Queue::on(scheduler, "app".parse().expect("a name"))
}

/// Starts a worker in this process, with a job that does not end by itself.
fn stands_still(queue: &Queue) -> (jobtree_scheduler::durable::Worker, JobId, LeaseId) {
    let (begun, begins) = std::sync::mpsc::channel();
    let begun = Mutex::new(begun);
    let worker = queue.worker().handle("inside", move |(), run: &Run| {
        begun.lock().expect("no panic").send(run.job().lease_id)?;
        Ok(sleep(HOUR)?)
    });
    let worker = worker.start().expect("a worker");
    let job = submit(queue, "inside");
    let lease = begins.recv().expect("it begins").expect("a lease");
    (worker, job, lease)
}
