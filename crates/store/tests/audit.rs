//! An audit finds nothing in a store that only this program wrote, and each kind of damage in one that was tampered with.

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use jiff::Timestamp;
use jobtree_protocol::JobId;
use jobtree_store::conformance::walk;
use jobtree_store::{AuditReport, Retention, SqliteOptions, Store, audit};
use rusqlite::{Connection, params};
use support::{Folder, ledger, stamp, submission};
use watchdog::Watchdog;

fn check(store: &Store) -> AuditReport {
    audit(store, |_| {}).expect("it can be read")
}

#[test]
fn what_this_program_writes_is_clean_pruned_or_not() {
    let _watchdog = Watchdog::watching("audit");
    for seed in 10..16 {
        let store = Store::in_memory();
        walk::compare(seed, 200, &store);
        let mut steps = Vec::new();
        let report = audit(&store, |audited| steps.push(audited)).expect("it can be read");
        assert_eq!(report.violations, [], "seed {seed}");
        assert!(report.is_clean() && !report.pruned);
        assert!(report.events > 200 && report.jobs > 50);
        assert!(steps.last().is_some_and(|last| last.jobs == report.jobs));
        // Wherever the trail is cut, what is left is possible.
        let retention = Retention {
            done: Timestamp::MIN,
            failed: Timestamp::MIN,
            canceled: Timestamp::MIN,
            events: Timestamp::MAX,
            keys: Timestamp::MIN,
            leases: Timestamp::MIN,
        };
        while store
            .prune(stamp(), retention, 7)
            .wait()
            .expect("a step")
            .more
        {
            let report = check(&store);
            assert_eq!(report.violations, [], "seed {seed}");
            assert!(report.pruned);
        }
    }
}

/// A file with jobs that wait and jobs that are done, and what is found after somebody did this to it.
fn tampered(damage: impl Fn(&Connection)) -> AuditReport {
    let folder = Folder::new("audit");
    let options = SqliteOptions::new(folder.file("jobs.db"));
    let store = Store::open(&options).expect("a new file");
    ledger::submit_on(&store, 20, &|_| {});
    ledger::work_on(&store, 2, &|_| {});
    let clean = check(&store);
    assert_eq!(clean.violations, []);
    drop(store);
    let db = Connection::open(folder.file("jobs.db")).expect("the file");
    damage(&db);
    drop(db);
    let store = Store::open(&options).expect("the file");
    check(&store)
}

fn some(db: &Connection, table: &str) -> [u8; 16] {
    let sql = format!("SELECT id FROM {table} ORDER BY id LIMIT 1 OFFSET 2");
    db.query_row(&sql, [], |row| row.get(0)).expect("a job")
}

#[test]
fn damage_is_found() {
    let _watchdog = Watchdog::watching("tampering");
    let lost = std::cell::Cell::new([0; 16]);
    let report = tampered(|db| {
        lost.set(some(db, "scheduler_jobs"));
        db.execute("DELETE FROM scheduler_jobs WHERE id = ?1", [lost.get()])
            .expect("deleted");
    });
    let id = JobId(uuid::Uuid::from_bytes(lost.get()));
    assert_eq!(report.found, 1, "{:?}", report.violations);
    assert_eq!(report.violations[0].job_id, Some(id));
    assert!(report.violations[0].to_string().contains("it was lost"));

    let report = tampered(|db| {
        let id = some(db, "scheduler_jobs_history");
        db.execute(
            "UPDATE scheduler_jobs_history SET state = 4 WHERE id = ?1",
            [id],
        )
        .expect("changed");
    });
    assert_eq!(report.found, 1, "{:?}", report.violations);
    let told = report.violations[0].to_string();
    assert!(
        told.contains("its record says FAILED, its events DONE"),
        "{told}"
    );

    // A row of events in the middle is gone: those behind it cannot be.
    let report = tampered(|db| {
        let sql = "SELECT id FROM scheduler_job_events ORDER BY id DESC LIMIT 1 OFFSET 1";
        let row: i64 = db.query_row(sql, [], |row| row.get(0)).expect("a row");
        db.execute("DELETE FROM scheduler_job_events WHERE id = ?1", [row])
            .expect("deleted");
    });
    assert!(report.found > 2);
    let told: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
    assert!(
        told.iter().any(|it| it.contains("no such step")),
        "{told:?}"
    );
    assert!(
        told.iter().any(|it| it.contains("never granted")),
        "{told:?}"
    );

    // The last row of events is there twice.
    let report = tampered(|db| {
        let sql = "SELECT max(id), count, body FROM scheduler_job_events";
        let (id, count, body): (i64, i64, Vec<u8>) = db
            .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .expect("a row");
        let insert = "INSERT INTO scheduler_job_events VALUES (?1, ?2, ?3)";
        db.execute(insert, params![id + count, count, body])
            .expect("added");
    });
    assert!(report.found > 1);
    let told: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|it| it.contains("has ended")), "{told:?}");
}

#[test]
fn a_store_in_use_can_be_audited() {
    let _watchdog = Watchdog::watching("audit of a live store");
    let folder = Folder::new("audit-live");
    let options = SqliteOptions::new(folder.file("jobs.db"));
    let store = Store::open(&options).expect("a new file");
    std::thread::scope(|scope| {
        scope.spawn(|| ledger::submit_on(&store, 100, &|_| {}));
        scope.spawn(|| ledger::work_on(&store, 100, &|_| {}));
        for _ in 0..5 {
            assert_eq!(check(&store).violations, []);
        }
    });
    let job = store.submit(stamp(), submission()).wait().expect("taken");
    let report = check(&store);
    assert!(report.is_clean() && report.jobs > 1);
    assert!(store.job(job.job_id).wait().is_ok());
}
