//! Files and databases of earlier releases: each is opened by today's code, has all that was in it, is sound, and can be worked
//! with.
//!
//! In `fixtures` there is one file for each release that changed the format, `jobs-0.1.db` for 0.1, the same in tables of
//! PostgreSQL, `jobs-0.1.sql`, and beside them what was in both, in the protocol's types. **Old ones are never made again and never changed**: they stand for files on the
//! machines of people. If a test fails with one, the code is wrong, not the file.
//!
//! To add one for a later release, just before that release: have the version in `Cargo.toml`, see that
//! `examples/upgrade_fixture.rs` uses what is new, run `cargo run -p jobtree-store --example upgrade_fixture`, and add the
//! release to [`RELEASES`]. With `--postgres` and a connection string, the example writes the same to a new database, for
//! `pg_dump --inserts --no-owner --no-privileges`; of that its settings are left out.

#[path = "support/describe.rs"]
mod describe;
mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{
    CompleteRequest, Heartbeat, JobId, JobState, LeaseId, Limits, NodeId, SubmitRequest,
};
use jobtree_queue::Now;
use jobtree_queue::transitions::{Claim, LoadAdvice, Proof, TakeUp};
use jobtree_store::{Firing, SqliteOptions, Stamp, Store, Submission, audit};
use serde_json::Value;
use support::{Folder, claim};
use watchdog::Watchdog;

/// All that there are files of.
const RELEASES: &[&str] = &["0.1"];

/// A copy of a release's file or database, open; and what must be in it.
struct Old {
    release: &'static str,
    store: Store,
    expected: Value,
    /// Some time after the file was written.
    seconds: std::cell::Cell<u64>,
    /// Where the copy is, for as long as the store is open.
    _place: Place,
}

enum Place {
    Folder(#[allow(dead_code, reason = "it goes with the copy")] Folder),
    #[cfg(feature = "postgres")]
    Server(#[allow(dead_code, reason = "it goes with the copy")] support::postgres::Server),
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

impl Old {
    /// Opens the copies of each release, one after the other.
    fn all() -> impl Iterator<Item = Old> {
        let releases = RELEASES.iter().copied();
        #[cfg(feature = "postgres")]
        let openers = [Self::file, Self::database];
        #[cfg(not(feature = "postgres"))]
        let openers = [Self::file];
        releases
            .flat_map(move |release| openers.map(|open| (open, release)))
            .map(|(open, release)| open(release))
    }

    fn new(release: &'static str, store: Store, place: Place) -> Self {
        let expected = std::fs::read_to_string(fixtures().join(format!("jobs-{release}.json")));
        let expected = serde_json::from_str(&expected.expect("what is in it")).expect("JSON");
        Old {
            release,
            store,
            expected,
            seconds: std::cell::Cell::new(0),
            _place: place,
        }
    }

    /// The tables of PostgreSQL that a release wrote, in a server of their own.
    #[cfg(feature = "postgres")]
    fn database(release: &'static str) -> Self {
        let server = support::postgres::Server::start();
        server.restore(&fixtures().join(format!("jobs-{release}.sql")));
        // The clock of the test is that of the data.
        let options = jobtree_store::PostgresOptions::new(server.place("public")).callers_time();
        let store = Store::connect(&options)
            .unwrap_or_else(|error| panic!("a database of {release} is refused: {error}"));
        Self::new(release, store, Place::Server(server))
    }

    fn file(release: &'static str) -> Self {
        let fixtures = fixtures();
        let folder = Folder::new("upgrade");
        let copy = folder.file("jobs.db");
        let bytes = std::fs::read(fixtures.join(format!("jobs-{release}.db")));
        // Written, not copied: the fixture may be read-only.
        std::fs::write(&copy, bytes.expect("the file")).expect("a copy");
        let store = Store::open(&SqliteOptions::new(&copy))
            .unwrap_or_else(|error| panic!("a file of {release} is refused: {error}"));
        Self::new(release, store, Place::Folder(folder))
    }

    fn stamp(&self) -> Stamp {
        self.seconds.set(self.seconds.get() + 1);
        let last = &self.expected["events"].as_array().expect("events").last();
        let at: Timestamp = read(&last.expect("one")["event"]["at"]);
        let mono = Duration::from_secs(self.seconds.get());
        Stamp {
            now: Now {
                wall: at + mono,
                mono,
            },
            roll: self.seconds.get(),
            rules: Arc::default(),
        }
    }

    fn is_sound(&self) {
        let report = audit(&self.store, |_| {}).expect("it can be read");
        assert_eq!(report.violations, [], "{}", self.release);
    }

    /// Views of those jobs of the file for which it holds.
    fn views(&self, holds: impl Fn(&Value) -> bool) -> Vec<&Value> {
        let jobs = self.expected["jobs"].as_array().expect("jobs").iter();
        jobs.map(|job| &job["view"])
            .filter(|view| holds(view))
            .collect()
    }

    fn ids(&self, state: &str) -> Vec<JobId> {
        let views = self.views(|view| view["state"] == state);
        assert!(!views.is_empty(), "{} has none {state}", self.release);
        views.iter().map(|view| read(&view["job_id"])).collect()
    }
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

/// Where something is missing. What is there besides may be new.
fn missing(found: &Value, expected: &Value, place: &str, told: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (name, expected) in expected {
                let found = found.get(name).unwrap_or(&Value::Null);
                missing(found, expected, &format!("{place}.{name}"), told);
            }
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
                missing(found, expected, &format!("{place}[{number}]"), told);
            }
        }
        _ if found == expected => {}
        _ => told.push(format!("{place} is {found:.200}, and was {expected:.200}")),
    }
}

#[test]
fn everything_is_there_and_sound() {
    let _watchdog = Watchdog::watching("old files");
    for old in Old::all() {
        old.is_sound();
        // Where the workers of old leases ran is not known: each lease keeps its term.
        assert_eq!(old.store.orphaned_leases(), [], "{}", old.release);
        let keys = old.expected["keys"].as_array().expect("keys").iter();
        let keys: Vec<(String, String)> = keys
            .map(|key| (read(&key["addon_id"]), read(&key["key"])))
            .collect();
        let mut told = Vec::new();
        let found = describe::describe(&old.store, &keys);
        missing(&found, &old.expected, old.release, &mut told);
        assert!(told.is_empty(), "{told:#?}");
    }
}

#[test]
fn work_goes_on_where_it_was() {
    let _watchdog = Watchdog::watching("work on old files");
    for old in Old::all() {
        let store = &old.store;
        // What runs is renewed and completed under the lease it had.
        for job in old.ids("RUNNING") {
            let lease = store
                .job(job)
                .wait()
                .expect("it")
                .lease
                .expect("a lease")
                .id;
            let beat = Heartbeat::of(lease);
            let renewed = store.heartbeat(old.stamp(), beat, LoadAdvice::default());
            renewed.wait().expect("it holds");
            let done = CompleteRequest::done(lease, None);
            let ended = store.complete(old.stamp(), job, done.clone()).wait();
            assert_eq!(ended.expect("its lease").state, JobState::Done);
            let again = store.complete(old.stamp(), job, done).wait();
            assert_eq!(again.expect("a repetition").state, JobState::Done);
        }
        for lease in store.live_leases().wait().expect("the leases") {
            let proof = Proof::Seen {
                revision: lease.revision,
            };
            let ended = store.expire(old.stamp(), lease.id, proof).wait();
            ended.expect("it is over");
        }
        for job in old.ids("DISPATCHING") {
            let take_up = TakeUp {
                lease_id: LeaseId::generate(),
                instance_id: None,
                pids: Vec::new(),
                process_origin: None,
            };
            let taken = store.take_up(old.stamp(), job, take_up).wait();
            let lease = taken.expect("it was reserved").id;
            let failed = CompleteRequest::failed(lease, "not this time");
            let answer = store.complete(old.stamp(), job, failed).wait();
            assert_ne!(answer.expect("its lease").state, JobState::Running);
        }
        // Dead letters come back, and each job that waits for nothing can be claimed.
        for job in [old.ids("FAILED"), old.ids("CANCELED")].concat() {
            let queued = store.redrive(old.stamp(), job, None).wait();
            assert_eq!(queued, Ok(JobState::Queued));
        }
        let now = old.stamp().now.wall;
        let queued = store.queued(None, 1000).wait().expect("what waits");
        let ready = queued.iter().filter(|job| job.is_dispatchable(now));
        let ready: Vec<JobId> = ready.map(|job| job.id).collect();
        assert!(ready.len() > 10, "{ready:?}");
        for job in ready {
            let lease = LeaseId::generate();
            let command = Claim {
                node_id: NodeId::new("node-a").expect("a name"),
                ..claim(lease)
            };
            let claimed = store.claim(old.stamp(), vec![job], command).wait();
            claimed.expect("it waits");
            let done = CompleteRequest::done(lease, None);
            let ended = store.complete(old.stamp(), job, done).wait();
            assert_eq!(ended.expect("its lease").state, JobState::Done);
        }
        // Those that waited for one of them wait no longer.
        for job in store.queued(None, 1000).wait().expect("what waits") {
            for before in &job.waiting_for {
                let before = store.job(*before).wait().expect("it").job.state;
                assert!(
                    !before.is_ended(),
                    "{} waits for one that has ended",
                    job.id
                );
            }
        }
        old.is_sound();
    }
}

#[test]
fn what_was_said_once_counts_once() {
    let _watchdog = Watchdog::watching("keys of old files");
    for old in Old::all() {
        let submit = |request: SubmitRequest| {
            let intent = request.validate(&Limits::default()).expect("it is valid");
            let answer = old.store.submit(old.stamp(), Submission::new(intent));
            answer.wait().expect("it is taken")
        };
        // The same body is the same job: the fingerprint is still computed as it was.
        for key in old.expected["keys"].as_array().expect("keys") {
            let answer = submit(SubmitRequest {
                idempotency_key: Some(read(&key["key"])),
                ..SubmitRequest::new("visuals", "indexing", 3)
            });
            let first: JobId = read(&key["job_id"]);
            assert_eq!((answer.job_id, answer.duplicate), (first, true), "{key}");
        }
        let unique = old.expected["jobs"].as_array().expect("jobs").iter();
        let unique: Vec<_> = unique
            .filter(|job| job["intent"]["unique_key"].is_string())
            .collect();
        assert!(!unique.is_empty());
        for job in unique {
            let answer = submit(SubmitRequest {
                unique_key: Some(read(&job["intent"]["unique_key"])),
                ..SubmitRequest::new("visuals", "indexing", 3)
            });
            let first: JobId = read(&job["view"]["job_id"]);
            assert_eq!((answer.job_id, answer.duplicate), (first, true), "{job}");
        }
        // What was fired is not fired again.
        let schedules = old.store.schedules().wait().expect("the schedules");
        let fired: Vec<_> = schedules
            .iter()
            .filter_map(|schedule| Some((schedule, schedule.last_at?)))
            .collect();
        assert!(!fired.is_empty());
        for (schedule, at) in fired {
            let intent = schedule.spec.job.clone().validate(&Limits::default());
            let firing = Firing {
                schedule_id: schedule.id,
                revision: schedule.revision,
                at,
                job: Some(Submission::new(intent.expect("it is valid"))),
                unless: None,
                next_at: schedule.next_at,
            };
            assert_eq!(old.store.fire(old.stamp(), firing).wait(), Ok(None));
        }
        old.is_sound();
    }
}
