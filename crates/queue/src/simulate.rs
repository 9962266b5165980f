//! Recorded load and jobs against a policy: what would have run when.
//!
//! The planner that runs in the daemon runs here, over recorded measurements and a clock that jumps from event to event. Nothing is
//! asked or changed anywhere. Workers are thought to be there for everything; dependencies, concurrency keys, required machines and
//! labels, attempts after the first and time limits have no effect.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, JobType, JobView, LeaseId, LoadSample, NodeId};
use serde::Serialize;

use crate::Now;
use crate::candidate::Candidate;
use crate::ledger::Holder;
use crate::planner::{self, Effect, Event, ListenScope, Planner};
use crate::policy::Policy;
use crate::signals::Sample;

/// The running time of a job that never ran and declares none. By feel.
pub const UNKNOWN: Duration = Duration::from_secs(60);

/// A measurement, and when it was made.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The time of the measurement.
    pub at: Timestamp,
    /// The measured values.
    pub sample: Sample,
}

impl Measured {
    /// Returns what other programs used. What our own jobs used then is not what they would have used now: it counts as idle.
    pub fn of(load: &LoadSample) -> Self {
        let foreign = load.foreign_cpu.unwrap_or(load.busy / 10.0);
        Self {
            at: load.at,
            sample: Sample {
                cpu_idle: (1.0 - foreign).clamp(0.0, 1.0),
                own_cpu: 0.0,
                psi_cpu: load.psi_cpu,
                psi_io: load.psi_io,
                psi_memory: load.psi_memory,
                memory_available: load.memory_available,
                load_per_core: load.load_per_core,
                disk_busy: load.disk_busy,
                disk_free: load.disk_free,
                network: load.network,
            },
        }
    }
}

/// A job, and how long it runs.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The job as it was submitted.
    pub candidate: Candidate,
    /// As long as it ran, else as long as it was expected to, else [`UNKNOWN`].
    pub takes: Duration,
}

impl Recorded {
    /// Returns the job of a list.
    pub fn of(job: &JobView) -> Self {
        let mut candidate = Candidate::new(
            job.job_id,
            job.addon_id.clone(),
            job.job_type.clone(),
            job.cost_units,
            job.created_at,
        );
        candidate.priority = job.priority;
        candidate.constraints = job.constraints;
        candidate.time_sensitive = job.time_sensitive;
        candidate.start = job.start;
        // As it was submitted; the other is also when the next attempt of a job that failed may start.
        candidate.not_before = job.earliest_start_at.or(job.next_earliest_start_at);
        candidate.deadline = job.deadline_at;
        let expected = job.expected_duration_sec;
        candidate.expected_duration = expected.map(|sec| Duration::from_secs(sec.into()));
        let takes = running_time(job.started_at, job.ended_at)
            .or(candidate.expected_duration)
            .unwrap_or(UNKNOWN);
        Self { candidate, takes }
    }
}

/// Returns how long a job ran; none if it did not, or has not ended.
pub fn running_time(started: Option<Timestamp>, ended: Option<Timestamp>) -> Option<Duration> {
    let (from, to) = started.zip(ended)?;
    Duration::try_from(to.duration_since(from)).ok()
}

/// The fate of a job under the policy.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The job.
    pub job_id: JobId,
    /// The name of its addon.
    pub addon_id: AddonId,
    /// Of which type.
    pub job_type: JobType,
    /// The time of its submission.
    pub submitted_at: Timestamp,
    /// The time at which it would have started.
    pub started_at: Option<Timestamp>,
    /// The time at which it would have ended.
    pub ended_at: Option<Timestamp>,
    /// The seconds from its submission to its start.
    pub waited_sec: Option<f64>,
    /// The last reason against it, if it never started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
}

struct World<'a> {
    planner: Planner,
    begun: Timestamp,
    /// By time, then in the order in which they were put in.
    agenda: BTreeMap<(Duration, u64), Event>,
    wake: Option<Duration>,
    count: u64,
    jobs: HashMap<JobId, &'a Recorded>,
    outcomes: BTreeMap<JobId, Outcome>,
}

/// Returns what would have become of each job until the last measurement; what runs then is let run to its end. Measurements and
/// jobs are in the order of their times.
pub fn simulate(policy: Arc<Policy>, samples: &[Measured], jobs: &[Recorded]) -> Vec<Outcome> {
    simulate_while(policy, samples, jobs, || true).unwrap_or_default()
}

/// The same, unless `go_on` returns false, which is asked now and then: how long it takes depends on the policy.
pub fn simulate_while(
    policy: Arc<Policy>,
    samples: &[Measured],
    jobs: &[Recorded],
    go_on: impl FnMut() -> bool,
) -> Option<Vec<Outcome>> {
    let Some((first, last)) = samples.first().zip(samples.last()) else {
        return Some(Vec::new());
    };
    let begun = jobs
        .first()
        .map_or(first.at, |job| job.candidate.enqueued_at.min(first.at));
    let stale = policy.busy.stale_after;
    let node = NodeId::new("simulated").unwrap_or_else(|_| unreachable!("a name"));
    let mut world = World {
        planner: Planner::new(policy, node, [], moment(begun, Duration::ZERO)),
        begun,
        agenda: BTreeMap::new(),
        wake: None,
        count: 0,
        jobs: jobs.iter().map(|job| (job.candidate.id, job)).collect(),
        outcomes: jobs
            .iter()
            .map(|job| (job.candidate.id, unstarted(job)))
            .collect(),
    };
    // Workers are thought to be there for everything.
    let (scope, listeners) = (ListenScope::default(), 1);
    world.plan(begun, Event::Listening { scope, listeners });
    for (measured, at) in samples.iter().flat_map(|each| held(each, samples, stale)) {
        world.plan(at, Event::Sample(measured.sample));
    }
    for job in jobs {
        let candidate = job.candidate.clone();
        world.plan(candidate.enqueued_at, Event::Submitted(vec![candidate]));
    }
    if !world.run_until(offset(begun, last.at), go_on) {
        return None;
    }
    let mut outcomes: Vec<_> = world.outcomes.into_values().collect();
    outcomes.sort_by_key(|outcome| (outcome.submitted_at, outcome.job_id));
    Some(outcomes)
}

/// Events between two questions whether to go on. By feel: some milliseconds.
const ASKED_EVERY: u64 = 64;

/// The longest stretch between two measurements in which the machine was on: recorded minutes, and some.
const GAP: Duration = Duration::from_secs(180);

/// A measurement, again and again until the next: one that stands for a minute must not count as stale after seconds.
fn held<'a>(
    measured: &'a Measured,
    all: &[Measured],
    stale: Duration,
) -> impl Iterator<Item = (&'a Measured, Timestamp)> + use<'a> {
    let next = all.partition_point(|other| other.at <= measured.at);
    let gap = all.get(next).map(|next| offset(measured.at, next.at));
    let gap = gap.filter(|gap| *gap <= GAP).unwrap_or_default();
    let step = (stale / 2).max(Duration::from_millis(500));
    let times = u32::try_from(gap.as_millis().saturating_sub(1) / step.as_millis()).unwrap_or(0);
    (0..=times).map(move |count| (measured, measured.at + step * count))
}

fn unstarted(job: &Recorded) -> Outcome {
    let candidate = &job.candidate;
    Outcome {
        job_id: candidate.id,
        addon_id: candidate.addon.clone(),
        job_type: candidate.job_type.clone(),
        submitted_at: candidate.enqueued_at,
        started_at: None,
        ended_at: None,
        waited_sec: None,
        denied: None,
    }
}

/// Wall and monotonic time go side by side here. The monotonic one begins well behind zero, where a machine starts.
fn moment(begun: Timestamp, after: Duration) -> Now {
    let start = Now {
        wall: begun,
        mono: Duration::from_secs(86_400),
    };
    start.after(after)
}

fn offset(begun: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(begun)).unwrap_or_default()
}

impl World<'_> {
    fn plan(&mut self, at: Timestamp, event: Event) {
        self.put(offset(self.begun, at), event);
    }

    fn put(&mut self, after: Duration, event: Event) {
        self.count += 1;
        self.agenda.insert((after, self.count), event);
    }

    /// Returns false if it was stopped. Nothing is decided behind the end: there is no load to decide by.
    fn run_until(&mut self, end: Duration, mut go_on: impl FnMut() -> bool) -> bool {
        for step in 0_u64.. {
            if step % ASKED_EVERY == 0 && !go_on() {
                return false;
            }
            let planned = self.agenda.first_key_value().map(|((after, _), _)| *after);
            let wake = self.wake.filter(|wake| planned.is_none_or(|at| *wake < at));
            let Some(after) = wake.or(planned).filter(|after| *after <= end) else {
                return true;
            };
            let event = match wake {
                Some(_) => Event::Timer,
                None => match self.agenda.pop_first() {
                    Some((_, event)) => event,
                    None => return true,
                },
            };
            self.step(event, after);
        }
        true
    }

    /// One event, and what follows from its effects at the same moment.
    fn step(&mut self, event: Event, after: Duration) {
        let now = moment(self.begun, after);
        self.wake = None;
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.planner.step(event, now) {
                match effect {
                    Effect::Reserve { job, .. } => {
                        let lease = LeaseId::from_random(job.0.into_bytes());
                        // The last is taken first.
                        events.push(Event::Accepted { job, lease });
                        events.push(Event::Answered {
                            job,
                            outcome: planner::Outcome::Accepted(None),
                        });
                        self.started(job, lease, after);
                    }
                    Effect::WriteDenial { job, verdict } => {
                        if let Some(outcome) = self.outcomes.get_mut(&job) {
                            outcome.denied = Some(verdict.reason());
                        }
                    }
                    Effect::WakeAt(at) => {
                        let at = at
                            .mono
                            .saturating_sub(moment(self.begun, Duration::ZERO).mono);
                        // One that lies behind would be taken for ever.
                        self.wake = Some(at.max(after + Duration::from_millis(1)));
                    }
                    _ => {}
                }
            }
        }
    }

    fn started(&mut self, job: JobId, lease: LeaseId, after: Duration) {
        let Some(takes) = self.jobs.get(&job).map(|job| job.takes) else {
            return;
        };
        if let Some(outcome) = self.outcomes.get_mut(&job) {
            let at = moment(self.begun, after).wall;
            outcome.started_at = Some(at);
            outcome.ended_at = Some(moment(self.begun, after + takes).wall);
            outcome.waited_sec = Some(offset(outcome.submitted_at, at).as_secs_f64());
            outcome.denied = None;
        }
        self.put(after + takes, Event::Freed(Holder::Lease(lease)));
    }
}
