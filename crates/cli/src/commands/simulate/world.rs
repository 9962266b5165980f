//! A clock that jumps from event to event, and the daemon's own planner.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, JobType, LeaseId, NodeId};
use jobtree_queue::Now;
use jobtree_queue::ledger::Holder;
use jobtree_queue::planner::{self, Effect, Event, ListenScope, Planner};
use jobtree_queue::policy::Policy;
use serde::Serialize;

use super::recorded::{Measured, Recorded};

/// How a job would have fared.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub job_id: JobId,
    pub addon_id: AddonId,
    pub job_type: JobType,
    pub submitted_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub waited_sec: Option<f64>,
    /// What was in its way last, if it never started.
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

/// Runs it until the last measurement; what runs then is let run to its end.
pub fn simulate(policy: Arc<Policy>, samples: &[Measured], jobs: &[Recorded]) -> Vec<Outcome> {
    let Some((first, last)) = samples.first().zip(samples.last()) else {
        return Vec::new();
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
    world.run_until(offset(begun, last.at));
    let mut outcomes: Vec<_> = world.outcomes.into_values().collect();
    outcomes.sort_by_key(|outcome| (outcome.submitted_at, outcome.job_id));
    outcomes
}

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

    /// Nothing is decided behind the end: there is no load to decide by.
    fn run_until(&mut self, end: Duration) {
        loop {
            let planned = self.agenda.first_key_value().map(|((after, _), _)| *after);
            let wake = self.wake.filter(|wake| planned.is_none_or(|at| *wake < at));
            let Some(after) = wake.or(planned).filter(|after| *after <= end) else {
                return;
            };
            let event = match wake {
                Some(_) => Event::Timer,
                None => match self.agenda.pop_first() {
                    Some((_, event)) => event,
                    None => return,
                },
            };
            self.step(event, after);
        }
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

#[cfg(test)]
mod tests {
    use super::super::recorded::{jobs_in, samples_in};
    use super::*;

    fn load(minutes: std::ops::Range<u32>, cpu: f64) -> String {
        let mut text = String::new();
        for second in minutes.start * 60..minutes.end * 60 {
            let at = Timestamp::from_second(1_767_225_600 + i64::from(second)).unwrap();
            text.push_str(&format!(
                "{{\"at\":\"{at}\",\"busy\":0,\"state\":\"QUIET\",\"capacity\":0,\"used\":0,\"foreign_cpu\":{cpu}}}\n"
            ));
        }
        text
    }

    #[test]
    fn a_job_starts_when_the_machine_has_become_quiet_and_not_before() {
        let text = load(0..10, 0.95) + &load(10..60, 0.0);
        let jobs = r#"{"addon_id":"a","job_type":"t","cost_units":20,"created_at":"2026-01-01T00:00:30Z","expected_duration_sec":60}"#;
        let (samples, jobs) = (samples_in(&text).unwrap(), jobs_in(jobs).unwrap());
        let run = || simulate(Arc::new(Policy::default()), &samples, &jobs);
        let outcome = run().remove(0);
        let started = outcome.started_at.expect("it starts in the quiet part");
        assert!(
            started > "2026-01-01T00:10:00Z".parse().unwrap(),
            "{outcome:?}"
        );
        assert_eq!(
            outcome.ended_at.unwrap().duration_since(started).as_secs(),
            60
        );
        assert_eq!(run()[0].started_at, Some(started));
    }

    #[test]
    fn a_measurement_a_minute_is_enough() {
        let minutes: String = load(0..60, 0.0)
            .lines()
            .step_by(60)
            .map(|line| format!("{line}\n"))
            .collect();
        let jobs = r#"{"addon_id":"a","job_type":"t","cost_units":20,"created_at":"2026-01-01T00:10:30Z"}"#;
        let samples = samples_in(&minutes).unwrap();
        assert_eq!(samples.len(), 60);
        let outcome = simulate(
            Arc::new(Policy::default()),
            &samples,
            &jobs_in(jobs).unwrap(),
        )
        .remove(0);
        assert!(
            outcome.waited_sec.is_some_and(|sec| sec < 1.0),
            "{outcome:?}"
        );
    }

    #[test]
    fn a_machine_that_stays_busy_starts_nothing_and_says_why() {
        let jobs = r#"{"addon_id":"a","job_type":"t","cost_units":20,"created_at":"2026-01-01T00:00:30Z"}"#;
        let samples = samples_in(&load(0..20, 0.99)).unwrap();
        let outcome = simulate(
            Arc::new(Policy::default()),
            &samples,
            &jobs_in(jobs).unwrap(),
        )
        .remove(0);
        assert_eq!(outcome.started_at, None);
        assert!(outcome.denied.is_some(), "{outcome:?}");
    }
}
