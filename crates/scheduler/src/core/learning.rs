//! What is learnt from the jobs that ran and from this machine's load, and remembered across restarts: how long jobs of
//! a type take, what they use and how they did, and the machine's hours of quiet.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, HistoryStats, JobState, JobType, Json, Usage, UsageStats};
use jobtree_queue::JobRecord;
use jobtree_queue::estimate::WeeklyProfile;
use jobtree_queue::history::{History, Record, Run};
use jobtree_queue::usage::Measured;

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
        let succeeded = match job.state {
            JobState::Done => true,
            JobState::Failed => false,
            _ => return None,
        };
        let (started, ended) = (job.started_at?, job.ended_at?);
        let (addon, job_type) = (&job.intent.addon_id, &job.intent.job_type);
        let run = Run {
            succeeded,
            waited: between(job.waiting_since(), started),
            ran: between(started, ended),
            measured: Some(Measured {
                usage: Usage::of(&job.metrics),
                declared: job.cost(),
                capacity,
            }),
        };
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
    pub(super) fn restore(&mut self, notes: &[(String, Json)], node: &str) -> Vec<Expected> {
        let mut expected = Vec::new();
        for (name, value) in notes {
            match read(name, value, node) {
                None => {}
                Some(Note::Profile(profile)) => self.profile = profile,
                Some(Note::Record(addon, job_type, record)) => {
                    expected.push(Expected {
                        addon: addon.clone(),
                        job_type: job_type.clone(),
                        learnt: Learnt::of(&record),
                    });
                    self.history.restore(addon, job_type, *record);
                }
            }
        }
        expected
    }

    /// Writes what was learnt, if it is time.
    pub(super) fn write(&mut self, turn: &mut Turn) {
        if self.next_write > turn.now.mono {
            return;
        }
        self.next_write = turn.now.mono + turn.rng.jittered(WRITING);
        if let Ok(value) = Json::of(&self.profile) {
            let name = profile_name(turn.config.node.as_str());
            turn.ask(PutNote { name, value });
        }
        for (addon, job_type) in std::mem::take(&mut self.unwritten) {
            let record = self.history.job_type(&addon, &job_type);
            if let Some(Ok(value)) = record.map(Json::of) {
                let name = record_name(&addon, &job_type);
                turn.ask(PutNote { name, value });
            }
        }
    }

    pub(super) fn next_write(&self) -> Duration {
        self.next_write
    }

    /// Returns how jobs of each addon, and of each of its types, did.
    pub(super) fn history(&self) -> Vec<HistoryStats> {
        let view = |addon_id: &AddonId, job_type: Option<&JobType>, record: &Record| HistoryStats {
            addon_id: addon_id.clone(),
            job_type: job_type.cloned(),
            ended: record.succeeded + record.failed,
            success_rate: record.success_rate(),
            average_wait_sec: record.average_wait().map(|wait| wait.as_secs_f64()),
            p95_run_sec: record.p95_run().map(|run| run.as_secs_f64()),
            usage: record.usage().stats(),
        };
        let mut all = Vec::new();
        for (addon, record, types) in self.history.iter() {
            all.push(view(addon, None, record));
            for (job_type, record) in types {
                all.push(view(addon, Some(job_type), record));
            }
        }
        all
    }
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// Returns the name of a node's profile.
fn profile_name(node: &str) -> String {
    format!("{PREFIX}quiet/{node}")
}

/// Returns the name of a type's record.
fn record_name(addon: &AddonId, job_type: &JobType) -> String {
    // Names hold no slash.
    format!("{PREFIX}runs/{addon}/{job_type}")
}

enum Note {
    /// The profile of this node.
    Profile(WeeklyProfile),
    /// The record of a type.
    Record(AddonId, JobType, Box<Record>),
}

/// Reads a note; none if it is another node's, or of a version that is not known.
fn read(name: &str, value: &Json, node: &str) -> Option<Note> {
    let rest = name.strip_prefix(PREFIX)?;
    if rest.strip_prefix("quiet/").is_some_and(|it| it == node) {
        return value.read().ok().map(Note::Profile);
    }
    let (addon, job_type) = rest.strip_prefix("runs/")?.split_once('/')?;
    let (addon, job_type) = (AddonId::new(addon).ok()?, JobType::new(job_type).ok()?);
    let record = value.read().ok()?;
    Some(Note::Record(addon, job_type, Box::new(record)))
}
