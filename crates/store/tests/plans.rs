//! How SQLite answers the store's questions: by an index, never by looking at every row, and without sorting more than
//! the few jobs that run. Asked with statistics of a large queue and without, since the plan may depend on them.

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use jobtree_protocol::{JobQuery, JobState};
use jobtree_store::{SqliteOptions, Store, plans};
use rusqlite::Connection;
use support::{Folder, stamp, submission};
use watchdog::Watchdog;

fn plan(db: &Connection, sql: &str) -> Vec<String> {
    let mut statement = db
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let count = statement.parameter_count();
    let nulls = vec![rusqlite::types::Null; count];
    statement
        .query_map(rusqlite::params_from_iter(nulls), |row| row.get(3))
        .and_then(Iterator::collect)
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Whether a step looks at rows it need not: a scan of a table that no index narrows or puts in order.
fn is_full_scan(step: &str) -> bool {
    step.starts_with("SCAN") && !step.contains("INDEX")
}

fn check(db: &Connection, when: &str) {
    for sql in plans::HOT_STATEMENTS {
        let steps = plan(db, sql);
        let sorts = steps
            .iter()
            .any(|step| step.contains("TEMP B-TREE") && !step.contains("count(DISTINCT"));
        assert!(
            !steps.iter().any(|step| is_full_scan(step)),
            "{when}: {sql}\n{steps:#?}"
        );
        assert!(!sorts, "{when}: {sql}\n{steps:#?}");
    }
    for sql in plans::COUNTED {
        let steps = plan(db, sql);
        let sorts = steps.iter().any(|step| step.contains("TEMP B-TREE"));
        assert!(!sorts, "{when}: {sql}\n{steps:#?}");
    }
    let states = JobState::ALL.map(|state| vec![state]);
    let queries = states
        .into_iter()
        .chain([Vec::new(), JobState::ALL.to_vec()])
        .map(|state| JobQuery {
            state,
            ..JobQuery::default()
        });
    let tagged = JobQuery {
        tag: Some("red".into()),
        ..JobQuery::default()
    };
    let quarantined = JobQuery {
        quarantined: true,
        ..JobQuery::default()
    };
    for query in queries.chain([tagged, quarantined]) {
        for sql in plans::list_statements(&query) {
            let steps = plan(db, &sql);
            assert!(
                !steps.iter().any(|step| is_full_scan(step)),
                "{when}: {sql}\n{steps:#?}"
            );
            // Running jobs are in the order of their leases, and there are few of them.
            let running = sql.contains("scheduler_jobs_leased");
            let sorts = steps.iter().any(|step| step.contains("TEMP B-TREE"));
            assert!(!sorts || running, "{when}: {sql}\n{steps:#?}");
        }
    }
}

#[test]
fn no_question_looks_at_every_row() {
    let _watchdog = Watchdog::watching("plans");
    let folder = Folder::new("plans");
    let path = folder.file("jobs.db");
    let store = Store::open(&SqliteOptions::new(&path)).expect("a new file");
    let batch = (0..2000).map(|_| submission()).collect();
    store.submit_many(stamp(), batch).wait().expect("taken");
    let mut ledger = std::sync::Mutex::new(0);
    support::ledger::work_on(&store, 100, &|_| {
        *ledger.lock().expect("nobody panics") += 1
    });
    assert!(*ledger.get_mut().expect("nobody panics") > 1000);
    drop(store);
    let db = Connection::open(&path).expect("the file");
    check(&db, "without statistics");
    db.execute_batch("ANALYZE").expect("statistics");
    check(&db, "with statistics");
}

#[test]
fn the_check_itself_finds_a_full_scan() {
    let db = Connection::open_in_memory().expect("memory");
    db.execute_batch("CREATE TABLE t (a, b)").expect("a table");
    assert!(
        plan(&db, "SELECT * FROM t WHERE a = 1")
            .iter()
            .any(|step| is_full_scan(step))
    );
    db.execute_batch("CREATE INDEX i ON t (a)")
        .expect("an index");
    assert!(
        !plan(&db, "SELECT * FROM t WHERE a = 1")
            .iter()
            .any(|step| is_full_scan(step))
    );
}
