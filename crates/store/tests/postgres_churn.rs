//! A queue on PostgreSQL that runs and forgets jobs while another program holds a snapshot open: it goes on forgetting, and
//! when the snapshot is gone, the database clears what is dead. The stage `postgres-churn` does this for an hour, over HTTP.
#![cfg(feature = "postgres")]

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::time::Duration;

use jobtree_protocol::{CompleteRequest, JobId, LeaseId, Limits, SubmitRequest};
use jobtree_store::{PostgresOptions, Retention, Store, Submission};
use support::postgres::Server;
use support::{claim, stamp};
use watchdog::Watchdog;

const ROUNDS: usize = 10;
const JOBS: usize = 100;
/// The tables whose rows come and go with jobs.
const TABLES: [&str; 5] = ["jobs", "jobs_history", "leases", "keys", "job_events"];
/// Of them, those that are cleared soon even if there are few dead rows; of jobs and leases it takes 5000
/// (`src/postgres/migration_3.sql`).
const SOON: [&str; 2] = ["jobs_history", "keys"];

fn run_jobs(store: &Store, round: usize) {
    let jobs = (0..JOBS).map(|number| {
        let request = SubmitRequest {
            idempotency_key: Some(format!("{round} {number}")),
            ..SubmitRequest::new("visuals", "indexing", 1)
        };
        Submission::new(request.validate(&Limits::default()).expect("valid"))
    });
    let answers = store.submit_many(stamp(), jobs.collect()).wait();
    let answers = answers.expect("they are taken").into_iter();
    let jobs: Vec<JobId> = answers.map(|it| it.expect("taken").job_id).collect();
    for jobs in jobs.chunks(20) {
        let lease = LeaseId::generate();
        let claimed = store.claim(stamp(), jobs.to_vec(), claim(lease)).wait();
        for job in claimed.expect("they wait").jobs {
            let done = CompleteRequest::done(lease, None);
            store
                .complete(stamp(), job.id, done)
                .wait()
                .expect("it is the lease's");
        }
    }
}

fn forget_all(store: &Store) {
    let now = jiff::Timestamp::now() + Duration::from_secs(3600);
    let retention = Retention {
        done: now,
        failed: now,
        canceled: now,
        events: now,
        keys: now,
        leases: now,
    };
    while store
        .prune(stamp(), retention, 500)
        .wait()
        .expect("it can")
        .more
    {}
}

#[test]
fn old_rows_are_forgotten_beside_a_snapshot_and_cleared_behind_it() {
    let _watchdog = Watchdog::watching("churn");
    let server = Server::start();
    server.sql("ALTER SYSTEM SET autovacuum_naptime = 1");
    server.sql("SELECT pg_reload_conf()");
    let store = Store::connect(&PostgresOptions::new(server.place("public"))).expect("a node");
    let rows = |table: &str| server.sql(&format!("SELECT count(*) FROM scheduler_{table}"));
    run_jobs(&store, 0);
    let mut holder = server.session();
    let seen = "SELECT count(*) FROM scheduler_jobs_history";
    holder.sql("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(holder.sql(seen), JOBS.to_string());
    for round in 1..=ROUNDS {
        run_jobs(&store, round);
        forget_all(&store);
        for table in TABLES {
            assert_eq!(rows(table), "0", "{table} in round {round}");
        }
    }
    assert_eq!(holder.sql(seen), JOBS.to_string());
    drop(holder);
    // The database learns how many rows are dead when connections end, if not before.
    drop(store);
    for table in SOON {
        let cleared = format!(
            "SELECT last_autovacuum IS NOT NULL AND n_dead_tup < {JOBS} FROM pg_stat_user_tables \
             WHERE relname = 'scheduler_{table}'"
        );
        while server.sql(&cleared) != "t" {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
