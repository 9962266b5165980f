//! The rows of the suite on PostgreSQL.
//!
//! Beside the time, two figures say where the time goes: bytes of write-ahead log and commits a job. A commit is a sync, so
//! few commits a job mean that callers shared them.

use jobtree_store::{PostgresOptions, Store};

use super::ours::Ours;
use super::{ROWS, Row, Work, jobs, rounds};
use crate::harness::{Fact, Report, quantile};
use crate::postgres::Server;
use crate::suites::Options;

/// Runs every row that was asked for.
pub fn run(options: &Options, report: &mut Report) {
    let wanted: Vec<&Row> = ROWS.iter().filter(|row| options.wants(row.name)).collect();
    if wanted.is_empty() {
        return;
    }
    let server = Server::start();
    let store = Store::connect(&PostgresOptions::new(server.address())).expect("a new database");
    let mut ours = Ours::on(store);
    for row in wanted {
        measure(options, row, &server, &mut ours, report);
    }
}

/// In microseconds a job: what is asked of the daemon over HTTP.
fn goal(work: Work) -> Option<f64> {
    match work {
        Work::Submit { callers: 64 } => Some(1e6 / 10_000.0),
        Work::Bulk => Some(1e6 / 120_000.0),
        Work::ProcessBatches => Some(1e6 / 30_000.0),
        Work::Submit { .. } | Work::ProcessOneByOne { .. } => None,
    }
}

fn measure(options: &Options, row: &Row, server: &Server, ours: &mut Ours, report: &mut Report) {
    eprintln!("  {}", row.name);
    let count = jobs(options, row.work);
    let (mut times, mut bytes, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds(options) {
        ours.provide(row.work, count);
        let (wal_before, commits_before) = (server.wal_bytes(), ours.commits());
        let time = ours.micros_each(row.work, count);
        // The first round warms up.
        if round > 0 {
            times.push(time);
            bytes.push((server.wal_bytes() - wal_before) / count as f64);
            commits.push((ours.commits() - commits_before) as f64 / count as f64);
        }
    }
    for (what, figures, unit, at_most) in [
        ("ours", &times, "µs a job", goal(row.work)),
        ("write-ahead log", &bytes, "bytes a job", None),
        ("commits", &commits, "a job", None),
    ] {
        report.facts.push(Fact {
            name: format!("PostgreSQL, {}: {what}", row.name),
            value: quantile(figures, 0.5),
            unit,
            at_most,
        });
    }
}
