//! A store is moved to another: the same in all that can be asked, refused where it could do harm, and never half.

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, CompleteRequest, JobId, Json, LeaseId, Limits, LogAppend, Missed, Overlap, ScheduleId,
    ScheduleSpec, SubmitRequest,
};
use jobtree_store::conformance::{sameness::assert_same, walk};
use jobtree_store::{
    Firing, MoveError, OpenError, Pause, Retention, ScheduleRecord, SqliteOptions, Store,
    Submission, move_store,
};
use support::{Folder, claim, stamp, submission};
use watchdog::Watchdog;

fn file(folder: &Folder, name: &str) -> Store {
    Store::open(&SqliteOptions::new(folder.file(name))).expect("a new file")
}

fn with_key() -> Submission {
    let request = SubmitRequest {
        idempotency_key: Some("once".into()),
        tags: vec!["kept".into()],
        payload: Some(Json::of(&"long ".repeat(1000)).expect("JSON")),
        ..SubmitRequest::new("visuals", "indexing", 3)
    };
    Submission::new(request.validate(&Limits::default()).expect("valid"))
}

/// A random history, and all that it does not come to: logs, schedules, pauses, notes, a key whose job is pruned. The
/// job of that key.
fn fill(store: &Store, seed: u64) -> JobId {
    walk::compare(seed, 150, store);
    let keyed = store.submit(stamp(), with_key()).wait().expect("taken");
    let job = store.submit(stamp(), submission()).wait().expect("taken");
    let lease = LeaseId::generate();
    let jobs = vec![keyed.job_id, job.job_id];
    store
        .claim(stamp(), jobs, claim(lease))
        .wait()
        .expect("a lease");
    let append = LogAppend {
        lease_id: lease,
        offset: 0,
        text: "printed ½\n".repeat(60_000),
    };
    let logged = store.append_log(stamp(), job.job_id, append).wait();
    logged.expect("it runs");
    let done = CompleteRequest::done(lease, None);
    let completed = store.complete(stamp(), keyed.job_id, done);
    completed.wait().expect("it runs");
    let spec = ScheduleSpec {
        name: "nightly".into(),
        cron: "0 3 * * *".into(),
        time_zone: "UTC".into(),
        jitter_sec: 0,
        missed: Missed::Skip,
        overlap: Overlap::Forbid,
        paused: false,
        job: SubmitRequest::new("visuals", "indexing", 3),
    };
    let schedule = ScheduleRecord {
        id: ScheduleId::generate(),
        revision: 0,
        spec,
        next_at: Some(Timestamp::UNIX_EPOCH),
        last_at: None,
        last_job: None,
    };
    let schedule_id = schedule.id;
    let put = store.put_schedule(stamp(), schedule).wait();
    put.expect("new");
    for (revision, second, job) in [(1, 0, Some(submission())), (2, 60, None)] {
        let firing = Firing {
            schedule_id,
            revision,
            at: Timestamp::from_second(second).expect("a time"),
            job,
            unless: None,
            next_at: None,
        };
        store.fire(stamp(), firing).wait().expect("fired");
    }
    let pause = Pause {
        addon_id: AddonId::new("sounds").expect("a name"),
        job_type: None,
        since: Timestamp::UNIX_EPOCH,
        reason: Some("so".into()),
        by: Some("token \"ops\"".into()),
    };
    store.pause(stamp(), pause).wait().expect("paused");
    let note = store.put_note(stamp(), "a/b".into(), Some(Json::of(&7).expect("JSON")));
    note.wait().expect("noted");
    // The keyed job goes, and the oldest events; its key stays.
    let old = Retention {
        done: Timestamp::MAX,
        failed: Timestamp::MIN,
        canceled: Timestamp::MIN,
        events: Timestamp::MIN,
        keys: Timestamp::MIN,
        leases: Timestamp::MIN,
    };
    while store.prune(stamp(), old, 100).wait().expect("a step").more {}
    let events = Retention {
        done: Timestamp::MIN,
        events: Timestamp::MAX,
        ..old
    };
    store.prune(stamp(), events, 20).wait().expect("a step");
    keyed.job_id
}

/// Moves, compares, and lets the target go on.
fn moves(from: &Store, to: &Store, keyed: JobId) {
    let mut told = Vec::new();
    let moved = move_store(from, to, |moved| told.push(moved)).expect("moved");
    assert_eq!(told.last(), Some(&moved));
    assert!(told.len() > 6 && moved.jobs > 50 && moved.events > 100);
    assert!(moved.leases > 5 && moved.keys > 1 && moved.logs == 1);
    assert_eq!(
        (moved.schedules, moved.firings, moved.pauses, moved.notes),
        (1, 2, 1, 1)
    );
    assert_same(from, to);
    let gone = to.job(keyed).wait();
    assert!(gone.is_err(), "its history was pruned before: {gone:?}");
}

/// The target works as the source would have: keys still answer, leases still hold, events go on behind.
fn goes_on(to: &Store, keyed: JobId) {
    let again = to.submit(stamp(), with_key()).wait().expect("the key");
    assert_eq!((again.job_id, again.duplicate), (keyed, true));
    let before = to.read(|tables| tables.next_event()).wait();
    let before = before.expect("a place");
    let leases = to.live_leases().wait().expect("the leases");
    let (lease, job) = leases
        .iter()
        .find_map(|lease| Some((lease.id, lease.in_hand()?.id)))
        .expect("one that runs");
    let done = to.complete(stamp(), job, CompleteRequest::done(lease, None));
    done.wait().expect("its lease holds");
    let new = to.submit(stamp(), submission()).wait().expect("taken");
    let events = to.events_after(before - 1, 100).wait().expect("the trail");
    assert!(events.len() >= 2 && events[0].cursor >= before);
    let trail = to.events_of(job).wait().expect("a trail");
    assert_eq!(trail.last().map(|last| last.cursor), Some(events[0].cursor));
    assert!(trail.len() > 1, "the old events are in front of it");
    assert_eq!(to.events_of(new.job_id).wait().expect("a trail").len(), 1);
}

#[test]
fn from_memory_to_a_file_to_another_file() {
    let _watchdog = Watchdog::watching("moving");
    for seed in [3, 4] {
        let folder = Folder::new("moving");
        let memory = Store::in_memory();
        let keyed = fill(&memory, seed);
        let first = file(&folder, "first.db");
        moves(&memory, &first, keyed);
        let second = file(&folder, "second.db");
        moves(&first, &second, keyed);
        // What was written past the memory of the writer is there after opening again, too.
        drop(second);
        let second = file(&folder, "second.db");
        assert_same(&first, &second);
        goes_on(&second, keyed);
        goes_on(&first, keyed);
        let back = Store::in_memory();
        move_store(&second, &back, |_| {}).expect("moved");
        assert_same(&second, &back);
    }
}

#[test]
fn a_target_that_is_not_empty_is_not_touched() {
    let folder = Folder::new("moving-refused");
    let from = Store::in_memory();
    from.submit(stamp(), submission()).wait().expect("taken");
    let to = file(&folder, "jobs.db");
    to.submit(stamp(), submission()).wait().expect("taken");
    let before = to.events_after(0, 10).wait();
    assert_eq!(move_store(&from, &to, |_| {}), Err(MoveError::NotEmpty));
    assert_eq!(to.events_after(0, 10).wait(), before);
    assert_eq!(to.notes(String::new()).wait(), Ok(Vec::new()));
    assert_eq!(move_store(&to, &to, |_| {}), Err(MoveError::SameStore));
}

#[test]
fn a_store_in_use_is_not_moved() {
    let (from, to) = (Store::in_memory(), Store::in_memory());
    let other = from.clone();
    let refused = move_store(&from, &to, |_| {});
    assert_eq!(refused, Err(MoveError::InUse { which: "source" }));
    drop(other);
    let _other = to.clone();
    let refused = move_store(&from, &to, |_| {});
    assert_eq!(refused, Err(MoveError::InUse { which: "target" }));
}

/// The move is cut off in the middle: nobody takes what is there for the whole.
#[test]
fn a_half_moved_store_is_recognised() {
    let _watchdog = Watchdog::watching("half moved");
    let folder = Folder::new("moving-half");
    let from = Store::in_memory();
    fill(&from, 5);
    let to = file(&folder, "jobs.db");
    let cut = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        move_store(&from, &to, |_| panic!("the power fails"))
    }));
    assert!(cut.is_err());
    assert_eq!(move_store(&from, &to, |_| {}), Err(MoveError::HalfMoved));
    assert_eq!(
        move_store(&to, &Store::in_memory(), |_| {}),
        Err(MoveError::HalfMoved)
    );
    drop(to);
    let opened = Store::open(&SqliteOptions::new(folder.file("jobs.db")));
    assert!(matches!(opened, Err(OpenError::HalfMoved)), "{opened:?}");
    let new = file(&folder, "again.db");
    move_store(&from, &new, |_| {}).expect("the source is as it was");
    assert_same(&from, &new);
}

#[cfg(feature = "postgres")]
#[test]
fn from_a_file_to_postgres_and_back() {
    use jobtree_store::PostgresOptions;
    use support::postgres::Server;

    let _watchdog = Watchdog::watching("moving to PostgreSQL");
    let server = Server::start();
    let folder = Folder::new("moving-pg");
    let from = file(&folder, "from.db");
    let keyed = fill(&from, 6);
    let place = server.new_place();
    let options = PostgresOptions::new(&place).callers_time();
    let to = Store::connect(&options).expect("the server is there");
    moves(&from, &to, keyed);
    let back = file(&folder, "back.db");
    moves(&to, &back, keyed);
    goes_on(&to, keyed);
    let half = server.new_place();
    let options = PostgresOptions::new(&half);
    let to = Store::connect(&options).expect("the server is there");
    let cut = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        move_store(&from, &to, |_| panic!("the power fails"))
    }));
    assert!(cut.is_err());
    let opened = Store::connect(&options);
    assert!(matches!(opened, Err(OpenError::HalfMoved)), "{opened:?}");
}
