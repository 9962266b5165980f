//! Who submits in the world of a simulation: each request until it is answered, some of them with keys, and now and then a
//! key with another body.

use std::time::Duration;

use jobtree_protocol::{
    Backoff, JobId, Json, Late, Limits, OnDependencyFailure, Priority, SubmitRequest,
};
use jobtree_store::{Stamp, Submission};

use super::sim_event::{Calling, From, Out, SimEvent};
use super::worker::Script;
use super::world::{PAUSED, World};
use crate::core::rules_of;

/// A request that is not answered for so long is repeated.
const REPEAT: Duration = Duration::from_secs(4);

/// Submissions in 1000 that are sent to another node at the same time.
const TWICE: u64 = 150;

/// Seconds between two bursts.
const BURST: u64 = 30;

impl World {
    pub(super) fn plan_submissions(&mut self) {
        let span = self.scenario.trouble.as_millis() as u64 * 3 / 4;
        for place in 0..self.scenario.jobs {
            let request = self.request(place);
            self.submissions.push((request, None));
            let when = match place {
                0 => Duration::from_secs(1),
                _ if self.processes.is_some() && self.rng.chance(700) => self.in_a_burst(span),
                _ => self.millis(0, span),
            };
            let when = match self.scenario.bursts {
                true => Duration::from_secs(when.as_secs() / BURST * BURST),
                false => when,
            };
            self.later(when, SimEvent::Submit(place));
            if self.rng.chance(80) && !self.scenario.named_claims {
                let when = self.millis(0, span);
                self.later(when, SimEvent::Cancel);
            }
        }
        for place in self.scenario.jobs..self.scenario.jobs + self.scenario.unserved {
            let request = self.unserved_request(place);
            self.submissions.push((request, None));
            // Half of them are there from the beginning.
            let most = if place % 2 == 0 { 2_000 } else { span };
            let when = self.millis(0, most);
            self.later(when, SimEvent::Submit(place));
        }
    }

    /// Returns a job of a type that no worker serves: urgent, and often as large as the machine.
    fn unserved_request(&mut self, place: usize) -> SubmitRequest {
        // Where workers name the types that they claim, other types of their addons are unserved, too.
        let addons: &[&str] = match self.scenario.named_claims {
            true => &["u0", "u1", "a0", "a2"],
            false => &["u0", "u1", "u2"],
        };
        let addon = addons[self.rng.below(addons.len() as u64) as usize];
        let job_type = format!("x{}", self.rng.below(24));
        let cost = [10, 40, 100, 100][self.rng.below(4) as usize];
        let cost = self.scenario.policy.largest_cost(addon).min(cost);
        let keyed = self.shares_keys() && self.rng.chance(500);
        SubmitRequest {
            priority: Priority::High,
            time_sensitive: self.rng.chance(500),
            concurrency_key: keyed.then(|| "k".to_owned()),
            concurrency_limit: keyed.then_some(2),
            idempotency_key: Some(format!("s{place}")),
            ..SubmitRequest::new(addon, &job_type, cost)
        }
    }

    /// Returns `true` if served and unserved jobs share concurrency keys: where several nodes try unserved ones one after the
    /// other, such a key may be taken for long.
    fn shares_keys(&self) -> bool {
        self.scenario.named_claims && self.scenario.schedulers == 1
    }

    /// A time at which many jobs come at once: real workers take them in batches.
    fn in_a_burst(&mut self, span: u64) -> Duration {
        let bursts = 4;
        let burst = span * self.rng.below(bursts) / bursts;
        self.millis(burst + 2_000, burst + 2_100)
    }

    fn request(&mut self, place: usize) -> SubmitRequest {
        // Most are small, some take the whole machine.
        let is_system = self.processes.is_some();
        let costs = match is_system {
            // An idle worker shall find capacity, too: jobs are given back for it.
            true => [1, 2, 5, 10, 15, 30],
            false => [1, 5, 10, 20, 40, 60],
        };
        let cost = costs[self.rng.below(6) as usize];
        let addon = match is_system {
            true => [0, 0, 1, 2][self.rng.below(4) as usize],
            false => self.rng.below(3),
        };
        let cost = if addon != 2 && self.rng.chance(60) {
            100
        } else {
            cost
        };
        // Of each addon's own key.
        let limit = if addon == 0 { 1 } else { 2 };
        let addon = if place == 0 {
            PAUSED.to_owned()
        } else {
            format!("a{addon}")
        };
        let cost = cost.min(self.scenario.policy.largest_cost(&addon));
        // Real workers take short jobs in batches.
        let short_jobs = self.processes.as_ref().map(|it| it.short_jobs());
        let short = short_jobs.is_some_and(|in_1000| self.rng.chance(in_1000));
        let takes = match (short, is_system) {
            (true, _) => 1 + self.rng.below(6),
            // Longer than a worker that is cut off may believe in its lease.
            (false, true) => 200 + self.rng.below(25_000),
            (false, false) => 200 + self.rng.below(9_000),
        };
        let poison = self.rng.chance(40);
        let fails = if self.rng.chance(150) { 1 } else { 0 };
        let script = Script {
            takes,
            poison,
            fails,
        };
        let priority = Priority::ALL[self.rng.below(3) as usize];
        let expected = self.rng.chance(500);
        let key = self.rng.chance(300);
        let deadline = self.rng.chance(100);
        let late = self.rng.chance(500);
        let limited = self.rng.chance(100);
        let earliest = self.rng.chance(100);
        let second = |seconds: u64| super::node::base() + Duration::from_secs(seconds);
        let (when, then) = (self.rng.below(300), self.rng.below(200));
        let unique = self.rng.chance(150);
        let runs_anyway = self.rng.chance(300);
        if self.scenario.named_claims {
            let addon = ["a0", "a2"][place % 2];
            let keyed = self.shares_keys() && key;
            let script = Script {
                takes: takes / 4,
                ..Script::default()
            };
            return SubmitRequest {
                priority,
                payload: Json::of(&script).ok(),
                concurrency_key: keyed.then(|| "k".to_owned()),
                concurrency_limit: keyed.then_some(limit),
                idempotency_key: Some(format!("s{place}")),
                ..SubmitRequest::new(
                    addon,
                    "t",
                    cost.min(self.scenario.policy.largest_cost(addon)),
                )
            };
        }
        if self.scenario.bursts && place > 0 {
            return SubmitRequest {
                payload: Json::of(&script).ok(),
                // A batch has jobs with a limit behind jobs without one.
                max_runtime_sec: (place % 3 == 2).then_some(4),
                idempotency_key: Some(format!("s{place}")),
                ..SubmitRequest::new(["a0", "a2"][place % 2], "t", 5)
            };
        }
        SubmitRequest {
            priority,
            payload: Json::of(&script).ok(),
            expected_duration_sec: expected.then_some((takes / 1000 + 1) as i64),
            // Among many, jobs with one key would wait for each other for hours.
            concurrency_key: key.then(|| match self.scenario.schedulers {
                0..=3 => "k".to_owned(),
                _ => format!("k{}", place / 40),
            }),
            concurrency_limit: key.then_some(limit),
            deadline_at: deadline.then(|| second(when + 260)),
            late: if late && deadline {
                Late::Fail
            } else {
                Late::Run
            },
            max_runtime_sec: limited.then_some(4),
            earliest_start_at: earliest.then(|| second(then)),
            idempotency_key: Some(format!("s{place}")),
            unique_key: unique.then(|| "u".to_owned()),
            on_dependency_failure: if runs_anyway {
                OnDependencyFailure::Run
            } else {
                OnDependencyFailure::Cancel
            },
            max_attempts: Some(3),
            backoff: Some(Backoff {
                initial_sec: 1.0,
                max_sec: 5.0,
                ..Backoff::default()
            }),
            ..SubmitRequest::new(addon, "t", cost)
        }
    }

    pub(super) fn stamp(&mut self, node: usize) -> Stamp {
        let roll = self.rng.draw();
        let this = &self.nodes[node];
        Stamp {
            now: this.now(self.time),
            roll,
            rules: rules_of(&this.policy, &this.options).into(),
        }
    }

    /// A machine whose scheduler can be asked.
    pub(super) fn reachable(&mut self) -> Option<usize> {
        let node = self.rng.below(self.nodes.len() as u64) as usize;
        let up = self.nodes[node].core.is_some() && self.nodes[node].asleep_until <= self.time;
        up.then_some(node)
    }

    pub(super) fn submit(&mut self, place: usize) {
        if self.submissions[place].1.is_some() {
            return;
        }
        // Until it is answered.
        self.later(REPEAT, SimEvent::Submit(place));
        let lost = self.fault(self.scenario.faults.message_lost);
        let Some(node) = self.reachable().filter(|_| !lost) else {
            return;
        };
        let mut request = self.submissions[place].0.clone();
        if place % 9 == 4 && place < self.scenario.jobs && !self.scenario.named_claims {
            // It depends on the one before, if that is known.
            request.depends_on.extend(self.submissions[place - 1].1);
            if request.depends_on.is_empty() {
                return;
            }
            self.submissions[place].0 = request.clone();
        }
        let intent = request
            .validate(&Limits::default())
            .expect("a sound request");
        let id = self.job_id(node);
        let times = 1 + u64::from(self.fault(self.scenario.faults.message_doubled));
        for time in 0..times {
            let submission = Submission {
                id,
                id_given: time > 0,
                intent: intent.clone(),
            };
            let from = if time == 0 {
                From::Submitter(place)
            } else {
                From::Nobody
            };
            self.send_submission(node, submission, from);
        }
        if let Some(other) = self.at_once_elsewhere(node) {
            // A node gives an id of its own.
            let submission = Submission {
                id: self.job_id(other),
                id_given: false,
                intent,
            };
            self.report.submitted_twice += 1;
            self.send_submission(other, submission, From::Submitter(place));
        }
    }

    fn send_submission(&mut self, node: usize, submission: Submission, from: From) {
        let stamp = self.stamp(node);
        let answer = self.nodes[node].store.submit(stamp, submission);
        let calling: Calling = Box::pin(async { answer.await.map(Out::Submitted) });
        self.call_store(node, from, calling);
    }

    /// Returns another node that gets the same submission at the same time, now and then.
    fn at_once_elsewhere(&mut self, node: usize) -> Option<usize> {
        if !self.scenario.anywhere || self.nodes.len() == 1 || !self.fault(TWICE) {
            return None;
        }
        self.reachable().filter(|other| *other != node)
    }

    fn job_id(&mut self, node: usize) -> JobId {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.rng.draw().to_le_bytes());
        JobId::from_parts(self.nodes[node].now(self.time).wall, random)
    }

    /// A key that was used, with another body: it must be refused.
    pub(super) fn submit_another_body(&mut self) {
        let place = self.rng.below(self.submissions.len() as u64) as usize;
        let (request, Some(_)) = &self.submissions[place] else {
            return;
        };
        let mut request = request.clone();
        request.payload = Json::of(&"another body").ok();
        let Some(node) = self.reachable() else {
            return;
        };
        let limits = Limits::default();
        let submission = Submission {
            id: self.job_id(node),
            id_given: false,
            intent: request.validate(&limits).expect("a sound request"),
        };
        self.send_submission(node, submission, From::Liar("one key, two bodies"));
    }
}
