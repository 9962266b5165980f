//! The same work beside a long history, and beside a long queue: its cost must not depend on them, nor the way in which
//! SQLite finds what it is asked for.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::files::{Folder, bytes_written};
use super::ours::Ours;
use super::{Work, jobs, rounds};
use crate::harness::{Fact, Report, quantile};
use crate::suites::Options;

const NAME: &str = "growth";
/// SQLite's, in bytes.
const PAGE: f64 = 4096.0;

/// Rounds beside little and beside much take turns, so both meet the same disk.
struct Side {
    ours: Ours,
    submit: Vec<f64>,
    process: Vec<f64>,
    bytes: Vec<f64>,
    file: PathBuf,
}

impl Side {
    fn new(file: PathBuf) -> Self {
        Self {
            ours: Ours::open(&file),
            file,
            submit: Vec::new(),
            process: Vec::new(),
            bytes: Vec::new(),
        }
    }

    fn round(&mut self, count: usize, counts: bool) {
        let before = bytes_written();
        let submit = self.ours.micros_each(Work::Bulk, count);
        let process = self.ours.micros_each(Work::ProcessBatches, count);
        if counts {
            self.submit.push(submit);
            self.process.push(process);
            let bytes = bytes_written()
                .zip(before)
                .map(|(after, before)| after - before);
            self.bytes
                .extend(bytes.map(|bytes| bytes as f64 / count as f64));
        }
    }
}

/// Adds what there is to know.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let many = if options.quick { 50_000 } else { 1_000_000 };
    let folder = Folder::new("queue-growth");
    eprintln!("  {NAME}: filling");
    let mut sides = ["little.db", "ended.db", "queued.db"].map(|name| Side::new(folder.file(name)));
    sides[1].ours.submit_in_bulk(many);
    sides[1].ours.process_in_batches(many);
    sides[2].ours.submit_in_bulk(many);
    eprintln!("  {NAME}");
    let count = jobs(options, Work::Bulk);
    for round in 0..=rounds(options) {
        for side in &mut sides {
            side.round(count, round > 0);
        }
    }
    let typical = |figures: &[f64]| (!figures.is_empty()).then(|| quantile(figures, 0.5));
    // The log is copied into the file in some of the rounds, so bytes are those of all rounds together.
    let mean = |figures: &[f64]| {
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    };
    let names = ["an empty file", "a long history", "a long queue"];
    for (name, side) in names.iter().zip(&sides) {
        for (what, figure, unit) in [
            ("submit", typical(&side.submit), "µs a job"),
            ("claim and complete", typical(&side.process), "µs a job"),
            ("written", mean(&side.bytes), "bytes a job"),
            (
                "written",
                mean(&side.bytes).map(|bytes| bytes / PAGE),
                "pages a job",
            ),
        ] {
            if let Some(value) = figure {
                report.facts.push(Fact {
                    name: format!("{NAME}, beside {name}: {what}"),
                    value,
                    unit,
                    at_most: None,
                });
            }
        }
    }
    for (name, side) in names.iter().zip(&sides).skip(1) {
        let little = &sides[0];
        for (what, much, little) in [
            ("submit", typical(&side.submit), typical(&little.submit)),
            (
                "claim and complete",
                typical(&side.process),
                typical(&little.process),
            ),
            ("written", mean(&side.bytes), mean(&little.bytes)),
        ] {
            if let Some((much, little)) = much.zip(little) {
                report.facts.push(Fact {
                    name: format!("{NAME}, beside {name} against an empty file: {what}"),
                    value: much / little,
                    unit: "times",
                    at_most: Some(1.15),
                });
            }
        }
    }
    let plans = sides.map(|Side { ours, file, .. }| {
        // Closed first: only one program may use the file, and statistics are about to be written.
        drop(ours);
        plans(&file)
    });
    report.facts.push(Fact {
        name: format!("{NAME}: query plans that are not those of an empty file"),
        value: plans.iter().filter(|plan| **plan != plans[0]).count() as f64,
        unit: "files",
        at_most: Some(0.0),
    });
}

/// How SQLite answers each of the store's questions, without statistics and with them.
fn plans(file: &Path) -> Vec<String> {
    let db = Connection::open(file).expect("the file");
    let mut found = Vec::new();
    for _ in 0..2 {
        for sql in jobtree_store::plans::HOT_STATEMENTS {
            let mut plan = db
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
                .expect("a statement");
            let nulls = vec![rusqlite::types::Null; plan.parameter_count()];
            let steps = plan
                .query_map(rusqlite::params_from_iter(nulls), |row| row.get(3))
                .and_then(Iterator::collect::<Result<Vec<String>, _>>);
            found.extend(steps.expect("a plan"));
        }
        db.execute_batch("ANALYZE").expect("statistics");
    }
    found
}
