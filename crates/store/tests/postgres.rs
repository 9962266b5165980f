//! The PostgreSQL backend does what every backend must, on a real server; and several stores share one database.
#![cfg(feature = "postgres")]

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::collections::HashMap;
use std::io::Write;
use std::process::Command;
use std::sync::Mutex;

use jobtree_protocol::{CompleteRequest, JobId, JobState, Json, LeaseId, Limits, SubmitRequest};
use jobtree_store::{OpenError, PostgresOptions, Store, StoreError, Submission, conformance};
use support::ledger::{self, Entry};
use support::postgres::Server;
use support::{claim, stamp, submission};
use watchdog::Watchdog;

fn connect(place: &str) -> Store {
    Store::connect(&PostgresOptions::new(place)).expect("the server is there")
}

#[test]
fn conforms() {
    let _watchdog = Watchdog::watching("conformance of PostgreSQL");
    let server = Server::start();
    conformance::run(|| {
        let options = PostgresOptions::new(server.new_place())
            .readers(1)
            .callers_time();
        Store::connect(&options).expect("the server is there")
    });
}

/// A database that the first release made is brought to the newest version when it is opened, and only once.
#[test]
fn tables_of_the_first_release_are_migrated() {
    let _watchdog = Watchdog::watching("a database of the first release");
    let server = Server::start();
    let first_release = include_str!("../src/postgres/schema.sql");
    server.sql(first_release);
    assert_eq!(server.sql("SELECT version FROM scheduler_version"), "1");
    for _ in 0..2 {
        let store = connect(&server.place("public"));
        let lease = LeaseId::generate();
        let jobs: Vec<JobId> = (0..2)
            .map(|_| submission())
            .map(|it| {
                let id = it.id;
                store.submit(stamp(), it).wait().expect("it is taken");
                id
            })
            .collect();
        let claimed = store.claim(stamp(), jobs.clone(), claim(lease)).wait();
        assert_eq!(claimed.expect("they wait").jobs.len(), 2);
        assert_eq!(store.dispatching().wait(), Ok(Vec::new()));
        for job in jobs {
            let done = store.complete(stamp(), job, CompleteRequest::done(lease, None));
            assert_eq!(
                done.wait().expect("it is the lease's").state,
                JobState::Done
            );
        }
        assert_eq!(server.sql("SELECT version FROM scheduler_version"), "6");
    }
}

/// A migration changes one table after the other. A writer that has used a later one, and comes to an earlier one, would wait
/// for the migration, which waits for the writer.
#[test]
fn a_migration_lets_writers_pass_and_comes_to_its_end() {
    let _watchdog = Watchdog::watching("a migration beside a writer");
    let server = Server::start();
    server.sql(include_str!("../src/postgres/schema.sql"));
    server.sql("INSERT INTO scheduler_leases VALUES (gen_random_uuid(), false, 1, '{}')");
    // The database must not resolve a deadlock: it would pick a caller by chance, which then fails.
    server.sql("ALTER SYSTEM SET deadlock_timeout = '1min'");
    server.sql("SELECT pg_reload_conf()");
    while server.sql("SHOW deadlock_timeout") != "1min" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut writer = server.session();
    writer.sql("BEGIN; UPDATE scheduler_leases SET ended_at = 2");
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| Store::connect(&PostgresOptions::new(server.place("public"))));
        // The migration has locked the table of jobs, and waits for that of leases.
        let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'scheduler_leases'::regclass AND NOT granted)";
        while server.sql(waits) != "t" {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        writer.sql("UPDATE scheduler_jobs SET revision = 1; COMMIT");
        let store = opening.join().expect("it does not panic");
        store.expect("the tables are migrated when the writer has ended");
    });
    assert_eq!(server.sql("SELECT ended_at FROM scheduler_leases"), "2");
}

/// Daemons are replaced one after the other: a program goes on, and can be started again, beside a newer one that has added to
/// the tables, unless that says that it cannot be.
#[test]
fn a_program_shares_the_tables_of_a_newer_one_that_allows_it() {
    let _watchdog = Watchdog::watching("two versions");
    let server = Server::start();
    let place = server.place("public");
    let run_one = |store: &Store| {
        let lease = LeaseId::generate();
        let job = store.submit(stamp(), submission()).wait();
        let job = job.expect("it is taken").job_id;
        let claimed = store.claim(stamp(), vec![job], claim(lease)).wait();
        assert_eq!(claimed.expect("it waits").jobs.len(), 1);
        let done = store.complete(stamp(), job, CompleteRequest::done(lease, None));
        assert_eq!(done.wait().expect("it runs").state, JobState::Done);
    };
    let running = connect(&place);
    run_one(&running);
    // What the next version may do while this one runs.
    for table in [
        "jobs",
        "jobs_history",
        "leases",
        "keys",
        "job_events",
        "schedules",
        "firings",
        "pauses",
        "notes",
        "tags",
        "waits",
    ] {
        server.sql(&format!(
            "ALTER TABLE scheduler_{table} ADD COLUMN added TEXT"
        ));
    }
    server.sql("UPDATE scheduler_version SET version = 7");
    run_one(&running);
    run_one(&connect(&place));
    server.sql("UPDATE scheduler_version SET oldest = 7");
    run_one(&running);
    let refused = Store::connect(&PostgresOptions::new(&place));
    assert!(matches!(
        refused,
        Err(OpenError::Newer { found: 7, known: 6 })
    ));
    assert_eq!(server.sql("SELECT version FROM scheduler_version"), "7");
}

#[test]
fn several_stores_share_a_database() {
    let _watchdog = Watchdog::watching("several stores");
    let server = Server::start();
    let place = server.new_place();
    let stores: Vec<Store> = (0..3).map(|_| connect(&place)).collect();
    let ledger = Mutex::new(Vec::new());
    let tell = |entry| ledger.lock().expect("nobody panics").push(entry);
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(|| ledger::submit_on(store, 40, &tell));
            scope.spawn(|| ledger::work_on(store, 60, &tell));
        }
    });
    let ledger = ledger.into_inner().expect("nobody panics");
    for store in &stores {
        assert_eq!(ledger::compare(store, &ledger), Ok(()));
    }
    // Each claim of a job was under a lease of its own, and nobody else had it at the time.
    let mut claims: HashMap<JobId, usize> = HashMap::new();
    for entry in &ledger {
        if let Entry::Claimed(job, _) = entry {
            *claims.entry(*job).or_default() += 1;
        }
    }
    assert!(
        claims.len() > 20 && claims.values().all(|count| *count == 1),
        "{claims:?}"
    );
    // The trail has all events once, in one order for all.
    let trail = stores[0]
        .events_after(0, 100_000)
        .wait()
        .expect("the trail");
    assert!(trail.is_sorted_by_key(|recorded| recorded.cursor));
    // Nobody waited for somebody who waited for him, which takes the database a second to find out.
    drop(stores);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'";
    assert_eq!(server.sql(deadlocks), "0");
}

#[test]
fn a_concurrency_key_holds_among_stores() {
    let _watchdog = Watchdog::watching("a concurrency key");
    let server = Server::start();
    let place = server.new_place();
    let stores: Vec<Store> = (0..3).map(|_| connect(&place)).collect();
    let request = SubmitRequest {
        concurrency_key: Some("printer".into()),
        concurrency_limit: Some(2),
        ..SubmitRequest::new("visuals", "printing", 1)
    };
    let intent = request.validate(&Limits::default()).expect("valid");
    for _ in 0..8 {
        let jobs: Vec<JobId> = (0..6)
            .map(|_| {
                let answer = stores[0].submit(stamp(), Submission::new(intent.clone()));
                answer.wait().expect("taken").job_id
            })
            .collect();
        let granted = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (store, jobs) in stores.iter().zip(jobs.chunks(2)) {
                let granted = &granted;
                scope.spawn(move || {
                    for job in jobs {
                        let lease = LeaseId::generate();
                        match store.claim(stamp(), vec![*job], claim(lease)).wait() {
                            Ok(_) => granted.lock().expect("nobody panics").push((*job, lease)),
                            Err(StoreError::Refused(_)) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        let granted = granted.into_inner().expect("nobody panics");
        assert_eq!(granted.len(), 2, "two at a time, whoever asks");
        for (job, lease) in granted {
            let done = stores[1].complete(stamp(), job, CompleteRequest::done(lease, None));
            assert_eq!(done.wait().expect("it ran").state, JobState::Done);
        }
        for job in jobs {
            // Those that did not run make room for the next round; the others have ended.
            let _ = stores[2]
                .cancel(stamp(), job, jobtree_protocol::CancelRequest::default())
                .wait();
        }
    }
}

#[test]
fn the_server_restarts_in_the_middle() {
    let _watchdog = Watchdog::watching("a restart");
    let mut server = Server::start();
    let place = server.new_place();
    let store = connect(&place);
    let kept = store
        .submit(stamp(), submission())
        .wait()
        .expect("taken")
        .job_id;
    server.crash();
    let lost = store.submit(stamp(), submission()).wait();
    assert!(
        matches!(lost, Err(StoreError::Disconnected { .. })),
        "{lost:?}"
    );
    assert!(lost.is_err_and(|error| error.is_transient()));
    server.run();
    store
        .submit(stamp(), submission())
        .wait()
        .expect("it connects again");
    assert_eq!(
        store.job(kept).wait().expect("it is there").job.state,
        JobState::Queued
    );
}

#[test]
fn time_is_the_databases() {
    let _watchdog = Watchdog::watching("the database's time");
    let server = Server::start();
    let store = connect(&server.new_place());
    let mut wrong = stamp();
    wrong.now.wall = "2001-01-01T00:00:00Z".parse().expect("a time");
    let job = store
        .submit(wrong, submission())
        .wait()
        .expect("taken")
        .job_id;
    let created = store.job(job).wait().expect("it is there").job.created_at;
    let of_server = server.sql("SELECT extract(epoch FROM now())::bigint");
    let of_server: i64 = of_server.parse().expect("seconds");
    assert!(
        (of_server - created.as_second()).abs() < 300,
        "{created} is not the server's time"
    );
}

/// Jobs in one call: two calls are too much for one transaction, so the second is begun behind the first one's commit.
const BULK: usize = 300;

fn bulk(job_type: &str) -> Vec<Submission> {
    let request = SubmitRequest {
        payload: Some(Json::of(&"x".repeat(1000)).expect("JSON")),
        ..SubmitRequest::new("visuals", job_type, 3)
    };
    let intent = request.validate(&Limits::default()).expect("valid");
    (0..BULK).map(|_| Submission::new(intent.clone())).collect()
}

/// Submits so many jobs in one call; all of them are taken, or none.
fn submit_bulk(store: &Store, job_type: &str) -> Result<(), StoreError> {
    let answers = store.submit_many(stamp(), bulk(job_type)).wait()?;
    assert!(answers.iter().all(Result::is_ok));
    Ok(())
}

fn jobs_in(store: &Store) -> usize {
    let counts = store.counts(true).wait().expect("it can be read");
    counts.iter().map(|count| count.jobs as usize).sum()
}

#[test]
fn a_transaction_that_fails_takes_nothing_with_it_that_was_begun_behind_it() {
    const CALLS: usize = 8;
    const CALLERS: usize = 4;
    let _watchdog = Watchdog::watching("transactions behind one that fails");
    let server = Server::start();
    let store = connect(&server.place("public"));
    server.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'refused'; END$$",
    );
    server.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON scheduler_jobs FOR EACH ROW WHEN (NEW.job_type = 'poison') \
         EXECUTE FUNCTION refuse()",
    );
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                for _ in 0..CALLS {
                    submit_bulk(&store, "indexing").expect("it is not this one that fails");
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..CALLS {
                assert!(submit_bulk(&store, "poison").is_err());
            }
        });
    });
    assert_eq!(jobs_in(&store), CALLERS * CALLS * BULK);
    let trail = store.events_after(0, 100_000).wait().expect("the trail");
    assert_eq!(trail.len(), CALLERS * CALLS * BULK);
    assert!(trail.is_sorted_by_key(|recorded| recorded.cursor));
}

/// Unmounts when it is dropped.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// With the server's disk full, calls are refused as such and nothing that was answered is lost; when there is room again, it goes on.
#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let _watchdog = Watchdog::watching("a full disk");
    let server = Server::start();
    let folder = server.path().join("small");
    std::fs::create_dir(&folder).expect("a folder");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=24m,mode=777", "jobtree-test"]);
    let mounted = mount.arg(&folder).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        // The test's output is not shown if it passes, but what is written past it is.
        let mut terminal = std::io::stderr();
        let _ = writeln!(
            terminal,
            "\nSKIPPED: a_full_disk_refuses_and_loses_nothing: a small file system cannot be mounted here (it takes \
             CAP_SYS_ADMIN)"
        );
        return;
    }
    let _mounted = Mounted(folder.clone());
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![0; 8 << 20]).expect("there is room");
    let space = folder.join("space");
    let made = support::postgres::unprivileged(std::path::Path::new("mkdir"))
        .arg(&space)
        .status();
    assert!(made.is_ok_and(|status| status.success()));
    server.sql(&format!(
        "CREATE TABLESPACE small LOCATION '{}'",
        space.display()
    ));
    server.sql("ALTER ROLE postgres SET default_tablespace = small");
    let store = connect(&server.place("public"));
    let taken = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    match submit_bulk(&store, "indexing") {
                        Ok(()) => *taken.lock().expect("nobody panics") += BULK,
                        Err(error) => {
                            assert_eq!(error, StoreError::NoSpace);
                            return;
                        }
                    }
                }
            });
        }
    });
    let taken = taken.into_inner().expect("nobody panics");
    assert!(taken > 0);
    assert_eq!(jobs_in(&store), taken, "it can still be read");
    assert_eq!(store.trouble(), Some(StoreError::NoSpace));
    std::fs::remove_file(&ballast).expect("it can be deleted");
    submit_bulk(&store, "indexing").expect("there is room again");
    assert_eq!(jobs_in(&store), taken + BULK);
    assert_eq!(store.trouble(), None);
}
