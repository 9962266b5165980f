//! What past runs tell: success, waits, and how long jobs of a type take.
//!
//! Durations go into buckets that grow by 4 % each, so that a quantile is right to 2 % whatever the durations are, in a
//! few hundred numbers at most. When a type has 4 096 runs on record all counts are halved: what is new soon outweighs
//! what is old.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, HistoryStats, JobState, JobType, Usage};
use serde::{Deserialize, Serialize};

use crate::record::JobRecord;
use crate::usage::{Measured, UsageHistory};

const GROWTH: f64 = 1.04;
const MOST: u64 = 4096;
/// Fewer runs teach nothing.
pub(crate) const ENOUGH: u64 = 20;

/// Quantiles of a stream of numbers. Those up to 1 are all the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    buckets: BTreeMap<i32, u64>,
    count: u64,
}

impl Quantiles {
    /// Adds one.
    pub fn add(&mut self, value: f64) {
        let bucket = if value <= 1.0 {
            0
        } else {
            (value.ln() / GROWTH.ln()).ceil() as i32
        };
        *self.buckets.entry(bucket).or_default() += 1;
        self.count += 1;
        if self.count >= MOST {
            self.buckets.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
            self.count = self.buckets.values().sum();
        }
    }

    /// Returns how many there are, old ones counted less.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number that this part of all does not exceed, 0..=1; none without any.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let rank = (part.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        // The middle of the bucket, as ratios go.
        bucket.map(|(bucket, _)| GROWTH.powf(f64::from(*bucket) - 0.5))
    }

    pub(crate) fn join(&mut self, other: &Self) {
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
        self.count += other.count;
    }
}

/// Quantiles of a stream of durations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Durations(Quantiles);

impl Durations {
    /// Adds one.
    pub fn add(&mut self, duration: Duration) {
        self.0.add(duration.as_secs_f64() * 1000.0);
    }

    /// Returns how many there are, old ones counted less.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// Returns the duration that this part of all does not exceed, 0..=1; none without any.
    ///
    /// ```
    /// use std::time::Duration;
    /// use jobtree_queue::history::Durations;
    ///
    /// let mut durations = Durations::default();
    /// for seconds in 1..=100 {
    ///     durations.add(Duration::from_secs(seconds));
    /// }
    /// let p95 = durations.quantile(0.95).unwrap().as_secs_f64();
    /// assert!((95.0 * 0.97..95.0 * 1.03).contains(&p95));
    /// ```
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let millis = self.0.quantile(part)?;
        Some(Duration::from_secs_f64(millis / 1000.0))
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whether it ended well.
    pub succeeded: bool,
    /// How long the job had waited since it could have started.
    pub waited: Duration,
    /// How long it ran.
    pub ran: Duration,
    /// The measured usage.
    pub measured: Option<Measured>,
}

impl Run {
    /// Returns the last run of a job that is DONE or FAILED; none of others. `capacity` is the units of the whole machine.
    pub fn of(job: &JobRecord, capacity: u32) -> Option<Run> {
        let succeeded = match job.state {
            JobState::Done => true,
            JobState::Failed => false,
            _ => return None,
        };
        let (started, ended) = (job.started_at?, job.ended_at?);
        Some(Run {
            succeeded,
            waited: between(job.waiting_since(), started),
            ran: between(started, ended),
            measured: Some(Measured {
                usage: Usage::of(&job.metrics),
                declared: job.cost(),
                capacity,
            }),
        })
    }
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// What is known of an addon or a type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Runs that ended well.
    pub succeeded: u64,
    /// Runs that did not.
    pub failed: u64,
    waited_ms: u128,
    ran: Durations,
    #[serde(default, skip_serializing_if = "UsageHistory::is_empty")]
    usage: UsageHistory,
}

impl Record {
    fn add(&mut self, run: &Run) {
        if run.succeeded {
            self.succeeded += 1;
            // What failed early says nothing of what it takes.
            self.ran.add(run.ran);
            if let Some(measured) = &run.measured {
                self.usage.add(measured, run.ran);
            }
        } else {
            self.failed += 1;
        }
        self.waited_ms += run.waited.as_millis();
    }

    fn join(&mut self, other: &Record) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.waited_ms += other.waited_ms;
        self.ran.0.join(&other.ran.0);
        self.usage.join(&other.usage);
    }

    /// Part of the runs that ended well, 0..=1; none without any.
    pub fn success_rate(&self) -> Option<f64> {
        let runs = self.succeeded + self.failed;
        (runs > 0).then(|| self.succeeded as f64 / runs as f64)
    }

    /// Mean wait; none without any run.
    pub fn average_wait(&self) -> Option<Duration> {
        let runs = u128::from(self.succeeded + self.failed);
        self.waited_ms
            .checked_div(runs)
            .map(|millis| Duration::from_millis(millis as u64))
    }

    /// 95th percentile of the run time of what ended well.
    pub fn p95_run(&self) -> Option<Duration> {
        self.ran.quantile(0.95)
    }

    /// The same, once there are enough runs to go by: what `Event::Learnt` is told.
    pub fn learnt(&self) -> Option<Duration> {
        self.p95_run().filter(|_| self.ran.count() >= ENOUGH)
    }
}

impl Record {
    /// Returns what its runs declared, and what was measured of them.
    pub fn usage(&self) -> &UsageHistory {
        &self.usage
    }
}

/// What is known of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    addons: BTreeMap<AddonId, (Record, BTreeMap<JobType, Record>)>,
}

impl History {
    /// Adds a run.
    pub fn add(&mut self, addon: &AddonId, job_type: &JobType, run: &Run) {
        let (all, types) = self.addons.entry(addon.clone()).or_default();
        all.add(run);
        types.entry(job_type.clone()).or_default().add(run);
    }

    /// What was known of a type before, if nothing is known yet.
    pub fn restore(&mut self, addon: AddonId, job_type: JobType, record: Record) {
        let (all, types) = self.addons.entry(addon).or_default();
        if let std::collections::btree_map::Entry::Vacant(place) = types.entry(job_type) {
            all.join(&record);
            place.insert(record);
        }
    }

    /// All that is known of an addon.
    pub fn addon(&self, addon: &AddonId) -> Option<&Record> {
        self.addons.get(addon).map(|(all, _)| all)
    }

    /// All that is known of a type.
    pub fn job_type(&self, addon: &AddonId, job_type: &JobType) -> Option<&Record> {
        self.addons
            .get(addon)
            .and_then(|(_, types)| types.get(job_type))
    }

    /// Returns how jobs of each addon, and of each of its types, did.
    pub fn stats(&self) -> Vec<HistoryStats> {
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
        for (addon, record, types) in self.iter() {
            all.push(view(addon, None, record));
            for (job_type, record) in types {
                all.push(view(addon, Some(job_type), record));
            }
        }
        all
    }

    /// Every addon with its types.
    pub fn iter(&self) -> impl Iterator<Item = (&AddonId, &Record, &BTreeMap<JobType, Record>)> {
        self.addons
            .iter()
            .map(|(addon, (all, types))| (addon, all, types))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_outweighs_what_is_old() {
        let mut durations = Durations::default();
        for _ in 0..4000 {
            durations.add(Duration::from_secs(100));
        }
        for _ in 0..20_000 {
            durations.add(Duration::from_secs(1));
        }
        let p95 = durations.quantile(0.95).unwrap().as_secs_f64();
        assert!((0.9..1.1).contains(&p95), "{p95}");
        assert!(durations.0.buckets.len() <= 2 && durations.count() < MOST);
    }

    #[test]
    fn extremes_and_nothing() {
        let mut durations = Durations::default();
        assert_eq!(durations.quantile(0.95), None);
        durations.add(Duration::ZERO);
        durations.add(Duration::from_secs(30 * 86_400));
        assert!(durations.quantile(0.0).unwrap() <= Duration::from_millis(1));
        let most = durations.quantile(1.0).unwrap().as_secs_f64() / (30.0 * 86_400.0);
        assert!((0.97..1.03).contains(&most), "{most}");
    }

    /// What was learnt lies in the store: the first release wrote no usage, and durations as they are.
    #[test]
    fn a_record_of_the_first_release_is_read() {
        let text =
            r#"{"succeeded":30,"failed":0,"waited_ms":0,"ran":{"buckets":{"235":30},"count":30}}"#;
        let record: Record = serde_json::from_str(text).unwrap();
        let learnt = record.learnt().unwrap().as_secs_f64();
        assert!((9.8..10.2).contains(&learnt), "{learnt}");
        assert_eq!(record.usage().stats(), None);
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
    }

    #[test]
    fn records_by_addon_and_type() {
        let mut history = History::default();
        let (addon, kind) = (AddonId::new("a").unwrap(), JobType::new("t").unwrap());
        for number in 0..40 {
            let run = Run {
                succeeded: number % 4 != 0,
                waited: Duration::from_secs(number),
                ran: Duration::from_secs(10),
                measured: None,
            };
            history.add(&addon, &kind, &run);
        }
        let record = history.job_type(&addon, &kind).unwrap();
        assert_eq!(record.success_rate(), Some(0.75));
        assert_eq!(record.average_wait(), Some(Duration::from_millis(19_500)));
        let learnt = record.learnt().unwrap().as_secs_f64();
        assert!((9.8..10.2).contains(&learnt), "{learnt}");
        assert_eq!(history.addon(&addon), Some(record));
        let mut few = Record::default();
        few.add(&Run {
            succeeded: true,
            waited: Duration::ZERO,
            ran: Duration::from_secs(1),
            measured: None,
        });
        assert_eq!(few.learnt(), None, "one run teaches nothing");
    }
}
