//! What is learnt from the jobs that ran and from this machine's load, and remembered across restarts: how long jobs of
//! a type take, what they use and how they did, and the machine's hours of quiet.
//!
//! Each node writes under its own name: what it has seen is what it was called for, and two that wrote under one name would
//! take the other's runs for their own. The first release had one record a type for all nodes. A node that has none of its own
//! begins with that; it is forgotten where no other node can be about to read it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jobtree_protocol::{AddonId, HistoryStats, JobType, Json, UsageStats};
use jobtree_queue::JobRecord;
use jobtree_queue::estimate::WeeklyProfile;
use jobtree_queue::history::{History, Record, Run};

use super::operations::PutNote;
use super::turn::Turn;

/// The beginning of all names under which something is remembered.
pub(super) const PREFIX: &str = "learnt/";

/// The interval at which learnt statistics are written.
const WRITING: Duration = Duration::from_secs(15 * 60);

/// The expectations of jobs of one type.
pub(super) struct Expected {
    pub(super) addon: AddonId,
    pub(super) job_type: JobType,
    pub(super) learnt: Learnt,
}

/// The statistics of a type's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Learnt {
    /// The durations of the runs.
    pub(super) takes: Option<Duration>,
    /// What admission may charge for each unit that they declare.
    pub(super) cost_factor: Option<f64>,
}

impl Learnt {
    fn of(record: &Record) -> Self {
        Self {
            takes: record.learnt(),
            cost_factor: record.usage().factor(),
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Learning {
    history: History,
    /// Job types whose statistics changed since the last write.
    unwritten: BTreeSet<(AddonId, JobType)>,
    profile: WeeklyProfile,
    next_write: Duration,
}

impl Learning {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            history: History::default(),
            unwritten: BTreeSet::new(),
            profile: WeeklyProfile::default(),
            next_write: now + WRITING,
        }
    }

    /// Takes a job that changed. Returns what is expected of jobs of its type, if that is new. `capacity` is the units of the
    /// whole machine.
    pub(super) fn learn(&mut self, job: &JobRecord, capacity: u32) -> Option<Expected> {
        let run = Run::of(job, capacity)?;
        let (addon, job_type) = (&job.intent.addon_id, &job.intent.job_type);
        let before = self.learnt(addon, job_type);
        self.history.add(addon, job_type, &run);
        self.unwritten.insert((addon.clone(), job_type.clone()));
        let learnt = self.learnt(addon, job_type);
        (learnt != before).then(|| Expected {
            addon: addon.clone(),
            job_type: job_type.clone(),
            learnt,
        })
    }

    fn learnt(&self, addon: &AddonId, job_type: &JobType) -> Learnt {
        let record = self.history.job_type(addon, job_type);
        record.map(Learnt::of).unwrap_or_default()
    }

    /// Returns what was measured of jobs of one type; none if no run of it was.
    pub(super) fn usage(&self, addon: &AddonId, job_type: &JobType) -> Option<UsageStats> {
        self.history.job_type(addon, job_type)?.usage().stats()
    }

    /// Notes that the machine is quiet now, or is not.
    pub(super) fn sampled(&mut self, quiet: bool, turn: &Turn) {
        self.profile.add(turn.now.wall, &turn.config.zone, quiet);
    }

    /// Returns this machine's hours of quiet.
    pub(super) fn profile(&self) -> &WeeklyProfile {
        &self.profile
    }

    /// Takes what was remembered before the start. Returns what jobs are expected to take.
    pub(super) fn restore(&mut self, notes: &[(String, Json)], turn: &mut Turn) -> Vec<Expected> {
        let node = turn.config.node.clone();
        let mut records = BTreeMap::new();
        let mut old = Vec::new();
        for (name, value) in notes {
            match read(name, value, node.as_str()) {
                None => {}
                Some(Note::Profile(profile)) => self.profile = profile,
                Some(Note::Record(kind, record)) => drop(records.insert(kind, record)),
                Some(Note::OldRecord(kind, record)) => old.push((name, kind, record)),
            }
        }
        let alone = !turn.config.options.shared;
        for (name, kind, record) in old {
            if let Entry::Vacant(vacant) = records.entry(kind.clone()) {
                vacant.insert(record);
                if let Some(Ok(value)) = records.get(&kind).map(Json::of) {
                    let (name, value) = (record_name(node.as_str(), &kind.0, &kind.1), Some(value));
                    turn.ask(PutNote { name, value });
                }
            }
            if alone {
                let (name, value) = (name.clone(), None);
                turn.ask(PutNote { name, value });
            }
        }
        let mut expected = Vec::new();
        for ((addon, job_type), record) in records {
            expected.push(Expected {
                addon: addon.clone(),
                job_type: job_type.clone(),
                learnt: Learnt::of(&record),
            });
            self.history.restore(addon, job_type, *record);
        }
        expected
    }

    /// Writes what was learnt, if it is time.
    pub(super) fn write(&mut self, turn: &mut Turn) {
        if self.next_write <= turn.now.mono {
            self.write_now(turn);
        }
    }

    /// Writes what was learnt since the last time.
    pub(super) fn write_now(&mut self, turn: &mut Turn) {
        self.next_write = turn.now.mono + turn.rng.jittered(WRITING);
        if let Ok(value) = Json::of(&self.profile) {
            let (name, value) = (profile_name(turn.config.node.as_str()), Some(value));
            turn.ask(PutNote { name, value });
        }
        for (addon, job_type) in std::mem::take(&mut self.unwritten) {
            let record = self.history.job_type(&addon, &job_type);
            if let Some(Ok(value)) = record.map(Json::of) {
                let name = record_name(turn.config.node.as_str(), &addon, &job_type);
                let value = Some(value);
                turn.ask(PutNote { name, value });
            }
        }
    }

    pub(super) fn next_write(&self) -> Duration {
        self.next_write
    }

    /// Returns how jobs of each addon, and of each of its types, did.
    pub(super) fn history(&self) -> Vec<HistoryStats> {
        self.history.stats()
    }
}

/// Returns the name of a node's profile.
fn profile_name(node: &str) -> String {
    format!("{PREFIX}quiet/{node}")
}

/// Returns the name of a node's record of a type.
fn record_name(node: &str, addon: &AddonId, job_type: &JobType) -> String {
    // Names hold no slash.
    format!("{PREFIX}runs/{node}/{addon}/{job_type}")
}

type Kind = (AddonId, JobType);

enum Note {
    /// The profile of this node.
    Profile(WeeklyProfile),
    /// This node's record of a type.
    Record(Kind, Box<Record>),
    /// A record of a type as the first release wrote it, for all nodes.
    OldRecord(Kind, Box<Record>),
}

/// Reads a note; none if it is another node's, or of a version that is not known.
fn read(name: &str, value: &Json, node: &str) -> Option<Note> {
    let rest = name.strip_prefix(PREFIX)?;
    if rest.strip_prefix("quiet/").is_some_and(|it| it == node) {
        return value.read().ok().map(Note::Profile);
    }
    let parts: Vec<&str> = rest.strip_prefix("runs/")?.split('/').collect();
    let kind = |addon: &str, job_type: &str| {
        Some((AddonId::new(addon).ok()?, JobType::new(job_type).ok()?))
    };
    let record = || value.read().ok().map(Box::new);
    match parts[..] {
        [addon, job_type] => Some(Note::OldRecord(kind(addon, job_type)?, record()?)),
        [whose, addon, job_type] if whose == node => {
            Some(Note::Record(kind(addon, job_type)?, record()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jobtree_queue::Now;
    use jobtree_queue::policy::Policy;

    use super::super::operations::Op;
    use super::super::turn::{Config, Output};
    use super::*;
    use crate::options::Options;

    fn turn(node: &str, shared: bool) -> Turn {
        let now = Now {
            wall: "2026-01-01T00:00:00Z".parse().unwrap(),
            mono: Duration::from_secs(100),
        };
        let options = Options {
            node: node.parse().unwrap(),
            shared,
            ..Options::default()
        };
        Turn::new(Config::new(&options, Arc::new(Policy::default())), 7, now)
    }

    fn record_of(runs: u32) -> Json {
        let run = Run {
            succeeded: true,
            waited: Duration::ZERO,
            ran: Duration::from_secs(1),
            measured: None,
        };
        let mut history = History::default();
        let (addon, job_type) = ("a".parse().unwrap(), "t".parse().unwrap());
        for _ in 0..runs {
            history.add(&addon, &job_type, &run);
        }
        Json::of(history.job_type(&addon, &job_type).unwrap()).unwrap()
    }

    /// Returns the runs that are known after a start, and the notes that it wrote.
    fn restored(notes: &[(&str, u32)], turn: &mut Turn) -> (u64, Vec<(String, bool)>) {
        let notes = notes.iter();
        let notes: Vec<_> = notes
            .map(|(name, runs)| ((*name).to_owned(), record_of(*runs)))
            .collect();
        let mut learning = Learning::new(turn.now.mono);
        learning.restore(&notes, turn);
        let ended = learning.history().iter().map(|stats| stats.ended).max();
        let written = turn.take_outputs().into_iter().map(|output| match output {
            Output::Op {
                op: Op::PutNote(put),
                ..
            } => (put.name, put.value.is_some()),
            other => panic!("{other:?}"),
        });
        (ended.unwrap_or(0), written.collect())
    }

    #[test]
    fn each_node_has_its_own_record_and_begins_with_the_old_one() {
        let notes = [("learnt/runs/n2/a/t", 5), ("learnt/runs/a/t", 3)];
        let written = |name: &str, is_kept| (name.to_owned(), is_kept);
        let (runs, wrote) = restored(&notes, &mut turn("n1", true));
        assert_eq!(runs, 3, "that of another node is not this one's");
        // Another node may not have read it yet.
        assert_eq!(wrote, [written("learnt/runs/n1/a/t", true)]);
        let (runs, wrote) = restored(&notes, &mut turn("n2", true));
        assert_eq!((runs, wrote), (5, vec![]));
        let (runs, wrote) = restored(&notes[1..], &mut turn("local", false));
        let moved = [
            written("learnt/runs/local/a/t", true),
            written("learnt/runs/a/t", false),
        ];
        assert_eq!((runs, &wrote[..]), (3, &moved[..]));
    }
}
