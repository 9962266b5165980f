//! The same work beside a long history, and beside a long queue: its cost must not depend on them.

use super::files::{Folder, bytes_written};
use super::ours::Ours;
use super::{Work, jobs, rounds};
use crate::harness::{Fact, Report, quantile};
use crate::suites::Options;

const NAME: &str = "growth";

/// Rounds beside little and beside much take turns, so both meet the same disk.
struct Side {
    ours: Ours,
    submit: Vec<f64>,
    process: Vec<f64>,
    bytes: Vec<f64>,
}

impl Side {
    fn new(ours: Ours) -> Self {
        Self {
            ours,
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
    let little = Side::new(Ours::open(&folder.file("little.db")));
    let mut ended = Ours::open(&folder.file("ended.db"));
    ended.submit_in_bulk(many);
    ended.process_in_batches(many);
    let mut queued = Ours::open(&folder.file("queued.db"));
    queued.submit_in_bulk(many);
    let mut sides = [little, Side::new(ended), Side::new(queued)];
    eprintln!("  {NAME}");
    let count = jobs(options, Work::Bulk);
    for round in 0..=rounds(options) {
        for side in &mut sides {
            side.round(count, round > 0);
        }
    }
    let typical = |figures: &[f64]| (!figures.is_empty()).then(|| quantile(figures, 0.5));
    let names = ["an empty file", "a long history", "a long queue"];
    for (name, side) in names.iter().zip(&sides) {
        for (what, figures, unit) in [
            ("submit", &side.submit, "µs a job"),
            ("claim and complete", &side.process, "µs a job"),
            ("written", &side.bytes, "bytes a job"),
        ] {
            if let Some(value) = typical(figures) {
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
        for (what, much, little) in [
            ("submit", &side.submit, &sides[0].submit),
            ("claim and complete", &side.process, &sides[0].process),
            ("written", &side.bytes, &sides[0].bytes),
        ] {
            if let Some((much, little)) = typical(much).zip(typical(little)) {
                report.facts.push(Fact {
                    name: format!("{NAME}, beside {name} against an empty file: {what}"),
                    value: much / little,
                    unit: "times",
                    at_most: Some(1.15),
                });
            }
        }
    }
}
