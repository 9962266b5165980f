//! Writes the file that later releases must be able to open: some tens of jobs in every state, with all that can belong
//! to one. `tests/upgrade.rs` says when this is run; in short: once for each release that changes the file's format, before
//! that release, and never again.
//!
//! ```text
//! cargo run -p jobtree-store --example upgrade_fixture
//! ```
//!
//! With `--postgres` and a connection string it writes the same to a new database, and no file.
//!
//! It is named by the version of this crate. One that is there stays there, unless `--replace` is said; that is for a
//! version that was not released yet.

#[path = "../tests/support/describe.rs"]
mod describe;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, Backoff, CancelRequest, CompleteRequest, Constraints, EventKind, Heartbeat,
    InstanceId, JobId, JobState, JobType, Json, Late, LeaseId, Limits, LogAppend, Missed, NodeId,
    OnDependencyFailure, Overlap, Priority, Progress, ReleaseRequest, ReportRequest, RevokeRequest,
    ScheduleId, ScheduleSpec, SubmitRequest,
};
use jobtree_queue::Now;
use jobtree_queue::transitions::{
    Abilities, Admit, Claim, LoadAdvice, Proof, Reserve, RuntimeProof, TakeUp, TimeOut, Unclaimed,
};
use jobtree_store::{
    Firing, Pause, Retention, ScheduleRecord, SqliteOptions, Stamp, Store, Submission, audit,
};

/// A store, and a clock and a draw that are the same each time.
struct World {
    store: Store,
    seconds: Cell<u64>,
    drawn: Cell<u64>,
}

impl World {
    fn now(&self) -> Now {
        let begin: Timestamp = "2026-03-01T08:00:00.000001Z".parse().expect("a time");
        let mono = Duration::from_secs(self.seconds.get());
        Now {
            wall: begin + mono,
            mono,
        }
    }

    fn later(&self, seconds: u64) {
        self.seconds.set(self.seconds.get() + seconds);
    }

    fn draw(&self) -> u64 {
        self.drawn.set(self.drawn.get() + 1);
        self.drawn.get()
    }

    /// The next command comes a second after the one before.
    fn stamp(&self) -> Stamp {
        self.later(1);
        Stamp {
            now: self.now(),
            roll: self.draw().wrapping_mul(0x9e37_79b9_7f4a_7c15),
            rules: Arc::default(),
        }
    }

    fn submission(&self, request: SubmitRequest) -> Submission {
        let mut random = [7; 10];
        random[..8].copy_from_slice(&self.draw().to_be_bytes());
        let id = JobId::from_parts(self.now().wall, random);
        let intent = request.validate(&Limits::default()).expect("it is valid");
        Submission::with_id(id, intent)
    }

    fn submit(&self, request: SubmitRequest) -> JobId {
        let submission = self.submission(request);
        let answer = self.store.submit(self.stamp(), submission).wait();
        answer.expect("it is taken").job_id
    }

    fn lease_id(&self) -> LeaseId {
        let mut random = [0x4c; 16];
        random[8..].copy_from_slice(&self.draw().to_be_bytes());
        LeaseId::from_random(random)
    }

    fn claim(&self, jobs: &[JobId]) -> LeaseId {
        let lease_id = self.lease_id();
        let claim = Claim {
            lease_id,
            node_id: node(),
            instance_id: Some(InstanceId::from_random([5; 16])),
            pids: vec![4711, 4712],
            process_origin: None,
            reason: "capacity 100, used 0".into(),
            worker: Abilities::default(),
        };
        let claimed = self.store.claim(self.stamp(), jobs.to_vec(), claim).wait();
        assert_eq!(claimed.expect("they wait").jobs.len(), jobs.len());
        lease_id
    }

    fn complete(&self, job: JobId, request: CompleteRequest) -> JobState {
        let answer = self.store.complete(self.stamp(), job, request).wait();
        answer.expect("its lease holds").state
    }

    fn finish(&self, job: JobId) {
        let lease = self.claim(&[job]);
        let result = Json::of(&vec!["a result", "ä, 漢"]).expect("JSON");
        let done = CompleteRequest::done(lease, Some(result));
        assert_eq!(self.complete(job, done), JobState::Done);
    }

    fn expire(&self, lease: LeaseId) {
        self.later(31);
        let expired = self.store.expire(self.stamp(), lease, Proof::Wall);
        expired.wait().expect("it is over");
    }

    fn print(&self, job: JobId, lease_id: LeaseId, offset: u64, text: &str) {
        let append = LogAppend {
            lease_id,
            offset,
            text: text.to_owned(),
        };
        let kept = self.store.append_log(self.stamp(), job, append).wait();
        kept.expect("its lease holds");
    }
}

fn node() -> NodeId {
    NodeId::new("node-a").expect("a name")
}

fn addon(name: &str) -> AddonId {
    AddonId::new(name).expect("a name")
}

fn plain() -> SubmitRequest {
    SubmitRequest::new("visuals", "indexing", 3)
}

/// All that a submission can say.
fn rich() -> SubmitRequest {
    SubmitRequest {
        addon_id: "sounds".into(),
        job_type: "mix.v2".into(),
        cost_units: 20,
        priority: Priority::High,
        constraints: Constraints {
            cpu_heavy: true,
            disk_write_heavy: true,
            network_heavy: false,
            memory_heavy: true,
        },
        expected_duration_sec: Some(90),
        payload: Some(
            Json::from_text(r#"{"tracks": [1, 2.5, null], "name": "ä \u0000"}"#.into())
                .expect("JSON"),
        ),
        time_sensitive: true,
        max_runtime_sec: Some(600),
        tags: vec!["night".into(), "ä".into()],
        concurrency_key: Some("card".into()),
        concurrency_limit: Some(3),
        max_attempts: Some(5),
        backoff: Some(Backoff {
            initial_sec: 2.0,
            factor: 3.0,
            max_sec: 600.0,
            jitter: 0.25,
        }),
        required_node: Some("node-a".into()),
        required_labels: vec!["gpu".into()],
        ..SubmitRequest::default()
    }
}

fn keyed(name: &str) -> SubmitRequest {
    SubmitRequest {
        idempotency_key: Some(name.into()),
        ..plain()
    }
}

/// Jobs that wait, for every reason there is.
fn waiting(world: &World) {
    world.submit(plain());
    world.submit(keyed("waits"));
    world.submit(SubmitRequest {
        unique_key: Some("only-one".into()),
        ..plain()
    });
    let start = world.now().wall + Duration::from_secs(86_400);
    let early = world.submit(SubmitRequest {
        earliest_start_at: Some(start),
        ..plain()
    });
    world.submit(SubmitRequest {
        earliest_start_at: Some(start),
        deadline_at: Some(start + Duration::from_secs(3600)),
        late: Late::Fail,
        ..plain()
    });
    let hastened = world.store.hasten(world.stamp(), early).wait();
    hastened.expect("it waits for a time");
    let long = Json::of(&"long ".repeat(600)).expect("JSON");
    let denied = world.submit(SubmitRequest {
        payload: Some(long),
        ..rich()
    });
    let (code, reason) = ("capacity".to_owned(), "used 95 of 100".to_owned());
    let noted = world.store.deny(world.stamp(), denied, code, reason).wait();
    noted.expect("it waits");
    let at_risk = world.submit(SubmitRequest {
        deadline_at: Some(world.now().wall + Duration::from_secs(900)),
        ..rich()
    });
    let reason = "900 s are left, and it takes 90".to_owned();
    let marked = world.store.mark_at_risk(world.stamp(), at_risk, reason);
    marked.wait().expect("it waits");
    let before = world.submit(plain());
    world.submit(SubmitRequest {
        depends_on: vec![before, early],
        on_dependency_failure: OnDependencyFailure::Run,
        ..plain()
    });
    // One that waited until another had ended, and now waits for its turn.
    let before = world.submit(plain());
    world.submit(SubmitRequest {
        depends_on: vec![before],
        ..plain()
    });
    world.finish(before);
    // One that failed, and will be tried again.
    let again = world.submit(rich());
    let lease = world.claim(&[again]);
    world.print(again, lease, 0, "first run\n");
    let failed = CompleteRequest::failed(lease, "no luck: ä");
    assert_eq!(world.complete(again, failed), JobState::Queued);
    // One whose worker gave it back.
    let back = world.submit(plain());
    let lease = world.claim(&[back]);
    let request = ReleaseRequest {
        return_jobs: true,
        reason: Some("the worker is stopping".into()),
        ..ReleaseRequest::default()
    };
    let released = world.store.release(world.stamp(), lease, request);
    released.wait().expect("it is its own");
    // One whose worker lost its lease, and one whose lease was taken away.
    let rescued = world.submit(plain());
    world.expire(world.claim(&[rescued]));
    let revoked = world.submit(plain());
    let request = RevokeRequest {
        reason: Some("somebody needs the machine".into()),
    };
    let lease = world.claim(&[revoked]);
    let taken = world.store.revoke(world.stamp(), lease, request);
    taken.wait().expect("it holds");
}

fn reserve(world: &World, job: JobId) -> LeaseId {
    let reservation_id = world.lease_id();
    let command = Reserve {
        reservation_id,
        node_id: node(),
        key_holders: 0,
        reason: "quiet for 70 s".into(),
    };
    let reserved = world.store.reserve(world.stamp(), job, command).wait();
    reserved.expect("it waits");
    reservation_id
}

/// Jobs that are dispatched or run.
fn held(world: &World) {
    let unclaimed = world.submit(plain());
    let reservation = reserve(world, unclaimed);
    world.later(31);
    let why = Unclaimed::TimedOut(Proof::Wall);
    let returned = world
        .store
        .return_unclaimed(world.stamp(), unclaimed, reservation, why);
    returned.wait().expect("nobody came");
    for request in [plain(), rich()] {
        let job = world.submit(request);
        reserve(world, job);
    }
    let taken_up = world.submit(plain());
    reserve(world, taken_up);
    let command = TakeUp {
        lease_id: world.lease_id(),
        instance_id: None,
        pids: Vec::new(),
        process_origin: None,
    };
    let lease = world.store.take_up(world.stamp(), taken_up, command);
    lease.wait().expect("it was reserved");
    // A batch of which two have ended, and one is wanted stopped.
    let batch: Vec<JobId> = (0..6).map(|_| world.submit(plain())).collect();
    let lease = world.claim(&batch);
    for job in &batch[..2] {
        let done = CompleteRequest::done(lease, None);
        assert_eq!(world.complete(*job, done), JobState::Done);
    }
    let request = CancelRequest {
        reason: Some("not needed any more".into()),
    };
    let asked = world.store.cancel(world.stamp(), batch[4], request).wait();
    assert_eq!(asked, Ok(JobState::Running));
    // One that talks.
    let talks = world.submit(rich());
    let lease = world.claim(&[talks]);
    world.print(talks, lease, 0, "eins\nzwei\n");
    world.print(talks, lease, 10, "drei \0\n");
    let beat = Heartbeat {
        progress: Some(Progress {
            fraction: Some(0.25),
            message: Some("a quarter".into()),
        }),
        pids: Some(vec![99]),
        process_origin: None,
        ..Heartbeat::of(lease)
    };
    let renewed = world
        .store
        .heartbeat(world.stamp(), beat, LoadAdvice::default());
    renewed.wait().expect("it holds");
    let report = ReportRequest {
        lease_id: lease,
        job_id: Some(talks),
        progress: None,
        metrics: [("frames".to_owned(), 12.5)].into(),
        pids: None,
        process_origin: None,
    };
    let noted = world.store.report(world.stamp(), report).wait();
    noted.expect("it holds");
    // Capacity alone.
    let admit = Admit {
        lease_id: world.lease_id(),
        addon_id: addon("sounds"),
        job_type: JobType::new("live").expect("a name"),
        cost_units: 15,
        priority: Priority::Low,
        constraints: Constraints::default(),
        expected_duration_sec: Some(30),
        node_id: node(),
        instance_id: None,
        request_key: None,
        pids: vec![12],
        process_origin: None,
        reason: "capacity 100, used 40".into(),
    };
    let admitted = world.store.admit(world.stamp(), admit).wait();
    admitted.expect("it is granted");
}

/// Jobs that ended, in every way.
fn ended(world: &World) {
    for request in [plain(), keyed("done"), rich()] {
        let job = world.submit(request);
        world.finish(job);
    }
    let failed = world.submit(plain());
    let lease = world.claim(&[failed]);
    world.print(failed, lease, 0, "about to fail\n");
    let answer = CompleteRequest::failed(lease, "it cannot be");
    assert_eq!(world.complete(failed, answer), JobState::Failed);
    // Its next one is canceled with it, as nothing else was said.
    let first = world.submit(plain());
    world.submit(SubmitRequest {
        depends_on: vec![first],
        ..plain()
    });
    let canceled = world
        .store
        .cancel(world.stamp(), first, CancelRequest::default());
    assert_eq!(canceled.wait(), Ok(JobState::Canceled));
    let quarantined = world.submit(rich());
    for _ in 0..3 {
        world.expire(world.claim(&[quarantined]));
    }
    let slow = world.submit(SubmitRequest {
        max_runtime_sec: Some(10),
        ..plain()
    });
    let lease = world.claim(&[slow]);
    let since = world.store.lease(lease).wait().expect("it").current_since;
    world.later(11);
    let over = TimeOut {
        job_id: slow,
        current_since: since,
        by: RuntimeProof::Wall,
    };
    let over = world.store.time_out(world.stamp(), lease, over).wait();
    assert_eq!(over, Ok(JobState::Failed));
    let late = world.submit(SubmitRequest {
        deadline_at: Some(world.now().wall + Duration::from_secs(10)),
        late: Late::Fail,
        ..plain()
    });
    world.later(11);
    let missed = world.store.miss_deadline(world.stamp(), late).wait();
    assert_eq!(missed, Ok(JobState::Failed));
    // A dead letter that was brought back, and ended well.
    let redriven = world.submit(plain());
    let lease = world.claim(&[redriven]);
    world.complete(redriven, CompleteRequest::failed(lease, "once"));
    let reason = Some("the disk is free again".to_owned());
    let queued = world.store.redrive(world.stamp(), redriven, reason).wait();
    assert_eq!(queued, Ok(JobState::Queued));
    world.finish(redriven);
}

/// A job whose record was pruned, while its key is kept.
fn forgotten(world: &World) {
    let job = world.submit(keyed("forgotten"));
    world.finish(job);
    world.later(10);
    let retention = Retention {
        done: world.now().wall,
        failed: Timestamp::MIN,
        canceled: Timestamp::MIN,
        events: Timestamp::MIN,
        keys: Timestamp::MIN,
        leases: Timestamp::MIN,
    };
    let pruned = world.store.prune(world.stamp(), retention, 100).wait();
    assert_eq!(pruned.expect("it is old").jobs, 1);
}

/// What is kept beside jobs.
fn beside(world: &World) {
    for (place, (name, paused)) in [("nightly", false), ("weekly", true)]
        .into_iter()
        .enumerate()
    {
        let record = ScheduleRecord {
            id: ScheduleId::from_random([place as u8; 16]),
            revision: 0,
            spec: ScheduleSpec {
                name: name.into(),
                cron: "30 3 * * 1-5".into(),
                time_zone: "Europe/Berlin".into(),
                jitter_sec: 60,
                missed: Missed::All,
                overlap: Overlap::Forbid,
                paused,
                job: rich(),
            },
            next_at: Some(world.now().wall),
            last_at: None,
            last_job: None,
        };
        let put = world.store.put_schedule(world.stamp(), record.clone());
        let put = put.wait().expect("it is new");
        if !paused {
            let firing = Firing {
                schedule_id: put.id,
                revision: put.revision,
                at: record.next_at.expect("it has one"),
                job: Some(world.submission(rich())),
                unless: None,
                next_at: record.next_at.map(|at| at + Duration::from_secs(86_400)),
            };
            let fired = world.store.fire(world.stamp(), firing).wait();
            assert!(fired.expect("it is due").is_some());
        }
    }
    let pause = |name: &str, job_type: Option<&str>| Pause {
        addon_id: addon(name),
        job_type: job_type.map(|name| JobType::new(name).expect("a name")),
        since: world.now().wall,
        reason: Some("maintenance".into()),
        by: None,
    };
    let pauses = [
        pause("archive", None),
        pause("sounds", Some("live")),
        pause("visuals", None),
    ];
    for pause in &pauses {
        let paused = world.store.pause(world.stamp(), pause.clone()).wait();
        paused.expect("it goes on");
    }
    let resumed = world.store.resume(world.stamp(), pauses[2].clone()).wait();
    assert_eq!(resumed, Ok(true));
    for (name, text) in [
        ("engine/profile", r#"{"hours": [0.5, 1, 7]}"#),
        ("server/token/example", r#""a note of the server""#),
    ] {
        let value = Json::from_text(text.into()).expect("JSON");
        let put = world
            .store
            .put_note(world.stamp(), name.into(), Some(value))
            .wait();
        put.expect("it is noted");
    }
}

fn nothing_is_missing(store: &Store, file: &Path) {
    let events = store.events_after(0, 10_000).wait().expect("the trail");
    let told: BTreeSet<EventKind> = events.iter().map(|recorded| recorded.event.kind).collect();
    let kept = EventKind::ALL.iter().filter(|kind| kind.is_kept());
    let untold: Vec<_> = kept.filter(|kind| !told.contains(kind)).collect();
    assert!(untold.is_empty(), "the file has no {untold:?}");
    let db = rusqlite::Connection::open(file).expect("the file");
    let mut tables = db
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .expect("the tables");
    let names = tables.query_map([], |row| row.get::<_, String>(0));
    for name in names
        .expect("their names")
        .map(|name| name.expect("a name"))
    {
        let count = format!("SELECT count(*) FROM {name}");
        let rows: i64 = db.query_row(&count, [], |row| row.get(0)).expect("a count");
        assert!(rows > 0, "the table {name} is empty: put something in");
    }
}

/// Puts in all that there can be.
fn fill(world: &World) {
    forgotten(world);
    waiting(world);
    held(world);
    ended(world);
    beside(world);
}

#[cfg(feature = "postgres")]
fn to_postgres(place: String) {
    let options = jobtree_store::PostgresOptions::new(place).callers_time();
    let world = World {
        store: Store::connect(&options).expect("the server is there"),
        seconds: Cell::default(),
        drawn: Cell::default(),
    };
    fill(&world);
    let report = audit(&world.store, |_| {}).expect("it can be read");
    assert_eq!(report.violations, []);
    println!("{} jobs, {} events", report.jobs, report.events);
}

#[cfg(not(feature = "postgres"))]
fn to_postgres(_place: String) {
    panic!("build it with the feature 'postgres'");
}

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--postgres");
    if arguments.next().is_some() {
        return to_postgres(arguments.next().expect("a connection string"));
    }
    let replace = std::env::args().any(|argument| argument == "--replace");
    let release = env!("CARGO_PKG_VERSION")
        .rsplit_once('.')
        .expect("three numbers")
        .0;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let file = folder.join(format!("jobs-{release}.db"));
    let told = file.with_extension("json");
    let known = file.exists();
    if known && !replace {
        println!(
            "{} is there, and stays; --replace makes it again",
            file.display()
        );
        return;
    }
    let work = std::env::temp_dir().join(format!("jobtree-fixture-{}", std::process::id()));
    std::fs::create_dir_all(&work).expect("a folder");
    let world = World {
        store: Store::open(&SqliteOptions::new(work.join("jobs.db"))).expect("a new file"),
        seconds: Cell::default(),
        drawn: Cell::default(),
    };
    fill(&world);
    let report = audit(&world.store, |_| {}).expect("it can be read");
    assert_eq!(report.violations, []);
    nothing_is_missing(&world.store, &work.join("jobs.db"));
    let keys = ["waits", "done", "forgotten"].map(|key| ("visuals".to_owned(), key.to_owned()));
    let text = serde_json::to_string_pretty(&describe::describe(&world.store, &keys));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(&told, text.expect("JSON") + "\n").expect("it is written");
    if known {
        std::fs::remove_file(&file).expect("it can be replaced");
    }
    world.store.backup(&file).wait().expect("a copy");
    drop(world);
    // What is left is the system's to clean up.
    let _ = std::fs::remove_dir_all(&work);
    println!(
        "{} jobs, {} events: {} and {}",
        report.jobs,
        report.events,
        file.display(),
        told.display()
    );
}
