//! Questions of callers: how things stand, and why a job waits.

use std::collections::{BTreeMap, HashMap};

use jobtree_protocol::{
    AddonStatus, ApiError, ErrorCode, Explain, JobCost, JobId, JobState, LoadSample, NodeStatus,
    Reason, StatusView, Streak,
};
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;
use jobtree_queue::{JobRecord, Now};
use jobtree_store::{Count, StoreError};

use super::calls::{Call, CallId, Responder};
use super::learning::Learning;
use super::operations::{CountJobs, ReadExplained};
use super::places::Places;
use super::turn::Turn;
use crate::error::told;

/// Questions that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Those that came before the store was read.
    early: Vec<Call>,
    explaining: HashMap<CallId, (JobId, Responder<Explain>)>,
    statuses: HashMap<CallId, Responder<StatusView>>,
}

impl Questions {
    /// Keeps a call until the store has been read.
    pub(super) fn postpone(&mut self, call: Call) {
        self.early.push(call);
    }

    pub(super) fn take_postponed(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.early)
    }

    /// Explains why a job waits; the planner knows all that happened. A job that the planner does not know is read.
    pub(super) fn explain(
        &mut self,
        job: JobId,
        caller: Responder<Explain>,
        places: &mut Places,
        learning: &Learning,
        turn: &mut Turn,
    ) {
        match places.explain(job, learning, turn.now) {
            Some(explain) => turn.respond(caller, Ok(explain)),
            None => {
                let call = caller.call();
                self.explaining.insert(call, (job, caller));
                turn.ask(ReadExplained { job, call });
            }
        }
    }

    /// A job that the planner does not know was read, to say why it waits.
    pub(super) fn explained(
        &mut self,
        call: CallId,
        read: Result<Option<&JobRecord>, &StoreError>,
        learning: &Learning,
        turn: &mut Turn,
    ) {
        let Some((id, caller)) = self.explaining.remove(&call) else {
            return;
        };
        let answer = match read {
            Err(error) => Err(told(error)),
            Ok(None) => {
                let message = format!("there is no job {id}: check the id");
                Err(ApiError::new(ErrorCode::NotFound, message))
            }
            Ok(Some(job)) => Ok(Explain {
                job_id: id,
                reasons: dependencies(job).into_iter().collect(),
                estimate: None,
                load_ignored: turn.config.policy.busy.ignore,
                cost: Some(cost_of(job, learning, &turn.config.policy)),
            }),
        };
        turn.respond(caller, answer);
    }

    pub(super) fn status(&mut self, caller: Responder<StatusView>, turn: &mut Turn) {
        let call = caller.call();
        self.statuses.insert(call, caller);
        turn.ask(CountJobs { call });
    }

    /// Jobs were counted for a status.
    pub(super) fn counted(
        &mut self,
        call: CallId,
        counts: Result<Vec<Count>, StoreError>,
        nodes: Vec<NodeStatus>,
        places: &Places,
        turn: &mut Turn,
    ) {
        if let Some(caller) = self.statuses.remove(&call) {
            let status = counts.map(|counts| status_of(&counts, nodes, places, turn));
            turn.respond(caller, status.map_err(|error| told(&error)));
        }
    }

    pub(super) fn leave(&mut self, call: CallId) {
        self.explaining.remove(&call);
        self.statuses.remove(&call);
    }

    pub(super) fn refuse_all(&mut self, error: &ApiError, turn: &mut Turn) {
        for call in std::mem::take(&mut self.early) {
            turn.deliver(call.refuse(error.clone()));
        }
        for (_, caller) in std::mem::take(&mut self.explaining).into_values() {
            turn.respond(caller, Err(error.clone()));
        }
        for caller in std::mem::take(&mut self.statuses).into_values() {
            turn.respond(caller, Err(error.clone()));
        }
    }
}

/// Returns what a job that does not wait declares, and what one like it is charged.
fn cost_of(job: &JobRecord, learning: &Learning, policy: &Policy) -> JobCost {
    let (addon, declared) = (&job.intent.addon_id, job.cost());
    let measured = learning.usage(addon, &job.intent.job_type);
    let factor = measured.and_then(|usage| usage.cost_factor);
    let most = policy.largest_cost(addon.as_str());
    JobCost {
        declared,
        charged: policy.cost.charge(declared, factor, most),
        measured,
    }
}

/// Returns the jobs that a job waits for, as a reason; none if it waits for none.
pub fn dependencies(job: &JobRecord) -> Option<Reason> {
    let count = job.waiting_for.len();
    if job.state != JobState::Queued || count == 0 {
        return None;
    }
    let shown = job.waiting_for.iter().take(3);
    let shown: Vec<String> = shown.map(ToString::to_string).collect();
    let more = if count > 3 { ", …" } else { "" };
    Some(Reason {
        code: "dependency".to_owned(),
        message: match count {
            1 => format!("The job waits for job {} to end", shown.join("")),
            _ => format!("The job waits for {count} other jobs to end"),
        },
        measured: Some(count as f64),
        threshold: Some(0.0),
        since: Some(job.created_at),
        change: match count {
            1 => format!("job {} ends", shown.join("")),
            _ => format!("jobs {}{more} have ended", shown.join(", ")),
        },
        signals: Vec::new(),
    })
}

fn status_of(counts: &[Count], nodes: Vec<NodeStatus>, places: &Places, turn: &Turn) -> StatusView {
    let mut jobs: BTreeMap<JobState, u64> = BTreeMap::new();
    let mut addons: BTreeMap<_, AddonStatus> = BTreeMap::new();
    for count in counts {
        *jobs.entry(count.state).or_default() += count.jobs;
        if count.state.is_ended() {
            continue;
        }
        let addon = addons.entry(count.addon_id.clone()).or_default();
        match count.state {
            JobState::Queued => addon.queued += count.jobs,
            JobState::Dispatching => addon.dispatching += count.jobs,
            _ => addon.running += count.jobs,
        }
    }
    for addon in places.paused_addons() {
        addons.entry(addon.clone()).or_default().paused = true;
    }
    for (addon, status) in &mut addons {
        status.paused |= turn.config.policy.addon(addon.as_str()).paused;
    }
    let now = turn.now;
    let oldest = places.planner().oldest_waiting();
    StatusView {
        at: now.wall,
        nodes,
        jobs,
        oldest_queued_sec: oldest.map(|since| now.wall.duration_since(since).as_secs_f64()),
        addons,
    }
}

/// Returns how the machine of this scheduler stands.
pub(super) fn node_status(places: &Places, active_leases: usize, turn: &Turn) -> NodeStatus {
    let (planner, now) = (places.planner(), turn.now);
    let (view, admission) = (planner.view(now), planner.admission());
    let streaks = admission.quiet().streaks(now).into_iter();
    NodeStatus {
        node_id: turn.config.node.clone(),
        busy: view.busy,
        state: view.state,
        since: view.since,
        capacity: admission.capacity(&view, Default::default()),
        used: planner.used(),
        reserved: planner.reserved(),
        active_leases: active_leases as u32,
        stale: view.stale.is_some(),
        load_ignored: view.ignored,
        streaks: streaks
            .map(|streak| Streak {
                start: streak.start,
                end: streak.end,
                average: streak.average,
                minimum: streak.minimum,
            })
            .collect(),
        labels: turn.config.options.labels.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        last_seen: Some(now.wall),
        silent: false,
    }
}

/// Returns how busy the machine is.
pub(super) fn load_of(places: &Places, now: Now) -> LoadSample {
    let planner = places.planner();
    let (view, admission) = (planner.view(now), planner.admission());
    let sample = admission.signals().last();
    LoadSample {
        at: now.wall,
        busy: view.busy,
        state: view.state,
        capacity: admission.capacity(&view, Default::default()),
        used: planner.used(),
        foreign_cpu: sample.map(Sample::foreign_cpu),
        own_cpu: sample.map(|sample| sample.own_cpu),
        memory_available: sample.and_then(|sample| sample.memory_available),
        psi_cpu: sample.and_then(|sample| sample.psi_cpu),
        psi_io: sample.and_then(|sample| sample.psi_io),
        psi_memory: sample.and_then(|sample| sample.psi_memory),
        load_per_core: sample.and_then(|sample| sample.load_per_core),
        disk_busy: sample.and_then(|sample| sample.disk_busy),
        disk_free: sample.and_then(|sample| sample.disk_free),
        network: sample.and_then(|sample| sample.network),
    }
}
