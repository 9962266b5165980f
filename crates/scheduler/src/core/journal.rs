//! What was decided last, and counts since the start: for people and for metrics.
//!
//! Decisions are kept across restarts, as notes under the node's name. They lie many to a note, and a note is written anew while it
//! fills up; the oldest note is the next to be written over. What was decided in the last seconds before a crash is lost; an ordinary stop writes it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jobtree_protocol::{Decision, Json};
use jobtree_queue::transitions::Changes;
use serde::{Deserialize, Serialize};

use super::learning;
use super::operations::PutNote;
use super::stats::Stats;
use super::turn::Turn;

/// The number of decisions that are remembered.
const DECISIONS: usize = 1000;
/// Decisions of one note.
const NOTE: u64 = 100;
/// The interval at which new decisions are written.
const EVERY: Duration = Duration::from_secs(10);

/// Decisions as they are kept, by their numbers.
#[derive(Serialize, Deserialize)]
struct Note {
    decisions: BTreeMap<u64, Decision>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// The newest first, each with its number, which grow.
    decisions: VecDeque<(u64, Decision)>,
    /// The notes with decisions that are not written.
    unwritten: BTreeSet<u64>,
    next_write: Option<Duration>,
    stats: Stats,
}

impl Journal {
    pub(super) fn remember(&mut self, decision: Decision) {
        let number = self.decisions.front().map_or(0, |(last, _)| last + 1);
        self.unwritten.insert(note_of(number));
        self.decisions.push_front((number, decision));
        self.decisions.truncate(DECISIONS);
    }

    pub(super) fn decisions(&self, limit: usize) -> Vec<Decision> {
        let newest = self.decisions.iter().take(limit);
        newest.map(|(_, decision)| decision.clone()).collect()
    }

    /// Takes what was kept before the start, below what was decided since.
    pub(super) fn restore(&mut self, notes: &[(String, Json)], node: &str) {
        let prefix = prefix(node);
        let own = notes.iter().filter(|(name, _)| name.starts_with(&prefix));
        let read = own.filter_map(|(_, value)| value.read::<Note>().ok());
        let kept: BTreeMap<u64, Decision> = read.flat_map(|note| note.decisions).collect();
        let since = std::mem::take(&mut self.decisions);
        self.unwritten.clear();
        self.decisions = kept.into_iter().rev().take(DECISIONS).collect();
        for (_, decision) in since.into_iter().rev() {
            self.remember(decision);
        }
    }

    /// Writes the decisions that are not written, if it is time.
    pub(super) fn write(&mut self, turn: &mut Turn) {
        let now = turn.now.mono;
        if self.unwritten.is_empty() {
            return;
        }
        let due = *self.next_write.get_or_insert(now + EVERY);
        if due <= now {
            self.write_now(turn);
        }
    }

    /// Writes the decisions that are not written.
    pub(super) fn write_now(&mut self, turn: &mut Turn) {
        self.next_write = None;
        for note in std::mem::take(&mut self.unwritten) {
            let of_note = |(number, _): &&(u64, Decision)| note_of(*number) == note;
            let decisions = self.decisions.iter().filter(of_note).cloned().collect();
            if let Ok(value) = Json::of(&Note { decisions }) {
                let name = format!("{}{note}", prefix(turn.config.node.as_str()));
                turn.ask(PutNote {
                    name,
                    value: Some(value),
                });
            }
        }
    }

    pub(super) fn next_write(&self) -> Option<Duration> {
        self.next_write
    }

    pub(super) fn committed(&mut self, changes: &Changes) {
        for event in &changes.events {
            self.stats.add_event(event.kind);
        }
        for job in &changes.jobs {
            self.stats.add_job(job);
        }
    }

    pub(super) fn count_denial(&mut self, code: &str) {
        *self.stats.denials.entry(code.to_owned()).or_default() += 1;
    }

    pub(super) fn count_lost_proposal(&mut self) {
        self.stats.lost_proposals += 1;
    }

    pub(super) fn count_store_failure(&mut self) {
        self.stats.store_failures += 1;
    }

    pub(super) fn count_reading(&mut self) {
        self.stats.reads += 1;
    }

    pub(super) fn stats(&self) -> &Stats {
        &self.stats
    }
}

/// Returns the note that a decision belongs to.
fn note_of(number: u64) -> u64 {
    number / NOTE % (DECISIONS as u64 / NOTE + 1)
}

fn prefix(node: &str) -> String {
    format!("{}decisions/{node}/", learning::PREFIX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jobtree_protocol::LeaseNumbers;
    use jobtree_queue::Now;
    use jobtree_queue::policy::Policy;

    use super::super::operations::Op;
    use super::super::turn::{Config, Output};
    use super::*;
    use crate::options::Options;

    fn turn() -> Turn {
        let now = Now {
            wall: "2026-01-03T00:00:00Z".parse().unwrap(),
            mono: Duration::from_secs(1_000_000),
        };
        let options = Options::default();
        Turn::new(Config::new(&options, Arc::new(Policy::default())), 7, now)
    }

    fn decision(number: u64, turn: &Turn) -> Decision {
        Decision {
            at: turn.now.wall,
            job_id: None,
            addon_id: "a".parse().unwrap(),
            approved: true,
            code: number.to_string(),
            reason: String::new(),
            retry_after_sec: None,
            numbers: LeaseNumbers {
                used: 0,
                requested: 0,
                capacity: 0,
                busy: 0.0,
            },
        }
    }

    /// Lets time pass, and returns the notes as they are then.
    fn written(journal: &mut Journal, turn: &mut Turn, notes: &mut BTreeMap<String, Json>) {
        for _ in 0..2 {
            journal.write(turn);
            turn.now = turn.now.after(EVERY);
        }
        for output in turn.take_outputs() {
            match output {
                Output::Op {
                    op: Op::PutNote(put),
                    ..
                } => drop(notes.insert(put.name, put.value.expect("a note"))),
                other => panic!("{other:?}"),
            }
        }
    }

    fn codes(journal: &Journal, limit: usize) -> Vec<u64> {
        let decisions = journal.decisions(limit).into_iter();
        decisions.map(|it| it.code.parse().unwrap()).collect()
    }

    #[test]
    fn decisions_are_there_after_a_restart_and_the_oldest_are_forgotten() {
        let (mut turn, mut journal) = (turn(), Journal::default());
        let mut notes = BTreeMap::new();
        for number in 0..2345 {
            journal.remember(decision(number, &turn));
            if number % 250 == 0 {
                written(&mut journal, &mut turn, &mut notes);
            }
        }
        written(&mut journal, &mut turn, &mut notes);
        assert!(notes.len() <= 11, "{}", notes.len());
        let notes: Vec<(String, Json)> = notes.into_iter().collect();
        let mut again = Journal::default();
        // One was decided before the notes were read.
        again.remember(decision(9999, &turn));
        again.restore(&notes, turn.config.node.as_str());
        assert_eq!(codes(&again, 4), [9999, 2344, 2343, 2342]);
        assert_eq!(codes(&again, 5000).len(), 1000);
        assert_eq!(codes(&again, 5000)[1..], codes(&journal, 999)[..]);
        let mut other = Journal::default();
        other.restore(&notes, "other");
        assert_eq!(codes(&other, 10), [0; 0]);
    }
}
