//! The rules that a run must keep, each a function that lists what breaks it.
//!
//! They compare the ledger of the callers with the event log of the store. Each is tried on a run made by hand that breaks it,
//! see `rules_can_fail`.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jobtree_protocol::{Event, EventKind, JobId, JobState, LeaseId};

use crate::ledger::{Outcome, Run, What};

/// The units of each lease and job in a run, and of a machine.
pub const COST: u64 = 20;
pub const CAPACITY: u64 = 100;
/// The term of leases.
pub const TERM: Duration = Duration::from_secs(2);

/// A rule, and what breaks it.
pub type Rule = fn(&Run) -> Vec<String>;

pub const ALL: &[(&str, Rule)] = &[
    (
        "a submission that was acknowledged is kept",
        submissions_are_kept,
    ),
    (
        "a submission takes effect once",
        submissions_take_effect_once,
    ),
    ("a unique key has one live job", unique_keys_hold),
    ("an end that was acknowledged is kept", ends_are_kept),
    ("a job is done once", jobs_are_done_once),
    ("a claim that was acknowledged is kept", claims_are_kept),
    ("a lease is granted once", leases_are_granted_once),
    ("a job has one live lease", jobs_have_one_lease),
    ("a request key has one live lease", request_keys_hold),
    ("a concurrency key lets in as many as its limit", gates_hold),
    ("a machine's leases fit its capacity", capacity_holds),
    ("a lease lasts its term", leases_last),
    (
        "every call is answered, and not with 5xx",
        calls_are_answered,
    ),
    ("every job ends while workers ask for jobs", jobs_end),
    ("nothing is in use when nothing runs", nothing_stays_in_use),
    ("the audit finds nothing", audit_is_clean),
];

/// Lists what breaks any rule.
pub fn broken(run: &Run) -> Vec<String> {
    let all = ALL.iter().flat_map(|(name, rule)| {
        let found = rule(run);
        found.into_iter().map(move |what| format!("{name}: {what}"))
    });
    all.collect()
}

fn parsed<T: std::str::FromStr>(value: &serde_json::Value) -> Option<T> {
    value.as_str()?.parse().ok()
}

fn submissions_are_kept(run: &Run) -> Vec<String> {
    let mut broken = Vec::new();
    for call in &run.calls {
        let What::Submit { number } = call.what else {
            continue;
        };
        let Some(body) = call.acknowledged() else {
            continue;
        };
        let Some(id) = parsed::<JobId>(&body["job_id"]) else {
            broken.push(format!("submission {number} was answered with {body}"));
            continue;
        };
        match run.evidence.jobs.get(&id) {
            None => broken.push(format!("job {id} of submission {number} is gone")),
            // A job that has the same unique key was there before.
            Some(kept) if kept.number != number && body["duplicate"] != true => {
                broken.push(format!(
                    "submission {number} was answered with job {id} of submission {}",
                    kept.number
                ))
            }
            Some(_) => {}
        }
    }
    broken
}

fn submissions_take_effect_once(run: &Run) -> Vec<String> {
    let mut broken = Vec::new();
    let mut sent = HashSet::new();
    let mut first_answers: HashMap<u64, u32> = HashMap::new();
    for call in &run.calls {
        if let What::Submit { number } = call.what {
            sent.insert(number);
            let is_first = call
                .acknowledged()
                .is_some_and(|body| body["duplicate"] != true);
            *first_answers.entry(number).or_default() += u32::from(is_first);
        }
    }
    for (number, answers) in first_answers {
        if answers > 1 {
            broken.push(format!(
                "{answers} answers say that submission {number} was the first"
            ));
        }
    }
    let mut jobs: HashMap<u64, JobId> = HashMap::new();
    for (id, kept) in &run.evidence.jobs {
        if !sent.contains(&kept.number) {
            broken.push(format!("job {id} was never submitted"));
        }
        if let Some(other) = jobs.insert(kept.number, *id) {
            broken.push(format!(
                "submission {} is job {id} and job {other}",
                kept.number
            ));
        }
    }
    broken
}

/// Follows which jobs or leases are live, by what opens and ends them, and lists when more than `most` of one key are.
fn overlaps<
    K: std::hash::Hash + Eq + std::fmt::Debug,
    I: std::hash::Hash + Eq + std::fmt::Debug,
>(
    steps: impl Iterator<Item = (K, I, bool)>,
    most: impl Fn(&K) -> usize,
) -> Vec<String> {
    let mut live: HashMap<K, HashSet<I>> = HashMap::new();
    let mut broken = Vec::new();
    for (key, id, opens) in steps {
        let most = most(&key);
        let ids = live.entry(key).or_default();
        if !opens {
            ids.remove(&id);
        } else if ids.insert(id) && ids.len() > most {
            broken.push(format!("{ids:?} at once, where {most} may be"));
        }
    }
    broken
}

fn unique_keys_hold(run: &Run) -> Vec<String> {
    let steps = run.evidence.events.iter().filter_map(|event| {
        let id = event.job_id?;
        let key = run.evidence.jobs.get(&id)?.unique_key.as_ref()?;
        let state = event.kind.leads_to()?;
        Some((key, id, !state.is_ended()))
    });
    overlaps(steps, |_| 1)
}

/// Returns the events of each job.
fn by_job(run: &Run) -> HashMap<JobId, Vec<&Event>> {
    let mut jobs: HashMap<JobId, Vec<&Event>> = HashMap::new();
    for event in &run.evidence.events {
        if let Some(job) = event.job_id {
            jobs.entry(job).or_default().push(event);
        }
    }
    jobs
}

fn ends_are_kept(run: &Run) -> Vec<String> {
    let mut broken = Vec::new();
    let jobs = by_job(run);
    let of_job = |job: JobId| jobs.get(&job).into_iter().flatten();
    for call in &run.calls {
        let Some(body) = call.acknowledged() else {
            continue;
        };
        match call.what {
            What::Complete { job, lease } => {
                let ends = [
                    EventKind::Done,
                    EventKind::Failed,
                    EventKind::RetryScheduled,
                    EventKind::Canceled,
                ];
                let mut events = of_job(job);
                if !events.any(|it| it.lease_id == Some(lease) && ends.contains(&it.kind)) {
                    broken.push(format!("job {job} has no end under lease {lease}: {body}"));
                }
                let is_done = run
                    .evidence
                    .jobs
                    .get(&job)
                    .is_some_and(|it| it.state == JobState::Done);
                if body["state"] == "DONE" && !is_done {
                    broken.push(format!("job {job} was acknowledged as DONE and is not"));
                }
            }
            What::Cancel { job }
                if body["state"] == "CANCELED"
                    && !of_job(job).any(|event| event.kind == EventKind::Canceled) =>
            {
                broken.push(format!(
                    "job {job} was acknowledged as CANCELED and never was"
                ));
            }
            _ => {}
        }
    }
    broken
}

fn jobs_are_done_once(run: &Run) -> Vec<String> {
    let mut done: HashMap<JobId, u32> = HashMap::new();
    for event in &run.evidence.events {
        if let (EventKind::Done, Some(job)) = (event.kind, event.job_id) {
            *done.entry(job).or_default() += 1;
        }
    }
    let often = done.into_iter().filter(|(_, times)| *times > 1);
    often
        .map(|(job, times)| format!("job {job} was done {times} times"))
        .collect()
}

fn claims_are_kept(run: &Run) -> Vec<String> {
    let mut broken = Vec::new();
    let jobs = by_job(run);
    let starts = |job: JobId, lease| {
        jobs.get(&job).into_iter().flatten().any(|event| {
            let is_start = matches!(event.kind, EventKind::Dispatching | EventKind::Running);
            is_start && event.lease_id == Some(lease)
        })
    };
    for call in &run.calls {
        let Some(body) = call.acknowledged() else {
            continue;
        };
        let (claimed, lease): (Vec<JobId>, LeaseId) = match &call.what {
            What::Claim { .. } => {
                let leases = body["leases"].as_array().into_iter().flatten();
                let mut all = leases.filter_map(|lease| {
                    let jobs = lease["jobs"].as_array()?;
                    let jobs = jobs.iter().filter_map(|job| parsed(&job["job_id"]));
                    Some((jobs.collect(), parsed(&lease["lease_id"])?))
                });
                match all.next() {
                    Some(found) => found,
                    None => continue,
                }
            }
            What::Ack { job, lease } => (vec![*job], *lease),
            _ => continue,
        };
        let lost = claimed.into_iter().filter(|job| !starts(*job, lease));
        broken.extend(lost.map(|job| format!("job {job} never started under lease {lease}")));
    }
    broken
}

fn leases_are_granted_once(run: &Run) -> Vec<String> {
    let mut granted: HashMap<LeaseId, u32> = HashMap::new();
    for event in &run.evidence.events {
        if let (EventKind::LeaseGranted, Some(lease)) = (event.kind, event.lease_id) {
            *granted.entry(lease).or_default() += 1;
        }
    }
    let often = granted.into_iter().filter(|(_, times)| *times > 1);
    often
        .map(|(lease, times)| format!("lease {lease} was granted {times} times"))
        .collect()
}

fn jobs_have_one_lease(run: &Run) -> Vec<String> {
    let mut held: HashMap<JobId, LeaseId> = HashMap::new();
    let mut broken = Vec::new();
    for event in &run.evidence.events {
        let Some(job) = event.job_id else { continue };
        match event.kind {
            EventKind::Dispatching | EventKind::Running => {
                let Some(lease) = event.lease_id else {
                    continue;
                };
                if let Some(other) = held.insert(job, lease).filter(|other| *other != lease) {
                    broken.push(format!("job {job} has lease {other} and lease {lease}"));
                }
            }
            kind if kind.leads_to().is_some() => drop(held.remove(&job)),
            _ => {}
        }
    }
    broken
}

/// Returns the lease that an event opens or ends.
fn opens_or_ends(event: &Event) -> Option<(LeaseId, bool)> {
    let opens = match event.kind {
        EventKind::LeaseGranted => true,
        // Of a job, it is the job that is told of.
        EventKind::LeaseExpired if event.job_id.is_some() => return None,
        EventKind::LeaseExpired | EventKind::LeaseReleased | EventKind::LeaseRevoked => false,
        _ => return None,
    };
    Some((event.lease_id?, opens))
}

fn request_keys_hold(run: &Run) -> Vec<String> {
    let steps = run.evidence.events.iter().filter_map(|event| {
        let (lease, opens) = opens_or_ends(event)?;
        Some((run.evidence.request_keys.get(&lease)?, lease, opens))
    });
    let mut broken = overlaps(steps, |_| 1);
    for call in &run.calls {
        let What::Capacity { key } = &call.what else {
            continue;
        };
        let body = call.acknowledged().filter(|body| body["approved"] == true);
        let lease = body.and_then(|body| parsed::<LeaseId>(&body["lease_id"]));
        if let Some(lease) = lease
            && run.evidence.request_keys.get(&lease) != Some(key)
        {
            broken.push(format!(
                "lease {lease} was granted for {key} and is not of it"
            ));
        }
    }
    broken
}

fn gates_hold(run: &Run) -> Vec<String> {
    // The jobs of one lease run one after the other, so a lease counts once.
    let mut held: HashMap<JobId, LeaseId> = HashMap::new();
    let mut gates: HashMap<&str, HashMap<LeaseId, HashSet<JobId>>> = HashMap::new();
    let mut broken = Vec::new();
    for event in &run.evidence.events {
        let Some((job, state)) = event.job_id.zip(event.kind.leads_to()) else {
            continue;
        };
        let gate = run
            .evidence
            .jobs
            .get(&job)
            .and_then(|kept| kept.gate.as_ref());
        let Some((gate, limit)) = gate else { continue };
        let inside = gates.entry(gate).or_default();
        if let Some(lease) = held.remove(&job)
            && let Some(jobs) = inside.get_mut(&lease)
        {
            jobs.remove(&job);
        }
        inside.retain(|_, jobs| !jobs.is_empty());
        if state.holds_capacity() {
            // A reservation without a lease is a holder of its own.
            let holder = event.lease_id.unwrap_or(LeaseId(job.0));
            held.insert(job, holder);
            inside.entry(holder).or_default().insert(job);
            if inside.len() > *limit as usize {
                broken.push(format!(
                    "{} in {gate}, whose limit is {limit}: {inside:?}",
                    inside.len()
                ));
            }
        }
    }
    broken
}

fn capacity_holds(run: &Run) -> Vec<String> {
    let mut nodes = HashMap::new();
    let steps = run.evidence.events.iter().filter_map(|event| {
        let (lease, opens) = opens_or_ends(event)?;
        if let (true, Some(node)) = (opens, &event.node_id) {
            nodes.insert(lease, node);
        }
        Some((*nodes.get(&lease)?, lease, opens))
    });
    overlaps(steps, |_| (CAPACITY / COST) as usize)
}

fn leases_last(run: &Run) -> Vec<String> {
    let mut granted = HashMap::new();
    let mut broken = Vec::new();
    for event in &run.evidence.events {
        let Some(lease) = event.lease_id else {
            continue;
        };
        match event.kind {
            EventKind::LeaseGranted => drop(granted.insert(lease, event.at)),
            EventKind::LeaseExpired => {
                let Some(at) = granted.get(&lease) else {
                    continue;
                };
                let lasted = event.at.duration_since(*at);
                if lasted.as_secs_f64() < TERM.as_secs_f64() {
                    broken.push(format!("lease {lease} expired after {lasted:?}"));
                }
            }
            _ => {}
        }
    }
    broken
}

fn calls_are_answered(run: &Run) -> Vec<String> {
    let mut broken = Vec::new();
    for call in &run.calls {
        let is_disturbed = run
            .disturbances
            .iter()
            .any(|it| it.daemon == call.daemon && it.from <= call.ended && call.sent <= it.to);
        let bad = match &call.outcome {
            Outcome::Dropped => false,
            Outcome::Unreachable(_) | Outcome::Answer(503, _) => !is_disturbed,
            // 400 and 422 would be errors of the caller here, 429 is a limit that no run comes near.
            Outcome::Answer(status, _) => !matches!(status, 200..=299 | 404 | 409),
        };
        if bad {
            broken.push(format!("{call:?}"));
        }
    }
    broken
}

fn jobs_end(run: &Run) -> Vec<String> {
    run.evidence.stuck.clone()
}

fn nothing_stays_in_use(run: &Run) -> Vec<String> {
    let used = run.evidence.used.iter().enumerate();
    let used = used.filter(|(_, units)| **units > 0);
    used.map(|(daemon, units)| format!("{units} units at daemon {daemon}"))
        .collect()
}

fn audit_is_clean(run: &Run) -> Vec<String> {
    run.evidence.audit.clone()
}
