//! Why a job does not run: what the scheduler knows of jobs that wait, completed by what the daemon knows of workers and of
//! the store. Lists show the first of these reasons, and both ways go through [`completed`].

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::operations::{ExplainJob, ListReasons};
use jobtree_protocol::{
    Advice, CommandSpec, Constraints, Explain, JobId, JobReason, JobState, QuietState,
    RUNNER_ADDON, RUNNER_TYPE, Reason, ReasonList,
};
use jobtree_queue::{JobRecord, LeaseRecord};
use jobtree_scheduler::dependencies;

use super::ownership;
use super::route::Call;
use crate::daemon::Daemon;
use crate::live::unnamed;
use crate::problem::Answered;

/// Code of the reason that the store takes no changes, which comes before all others: nothing starts anywhere.
const STORE: &str = "store";

/// Why a command stands still.
const IN_PANIC: &str = "The command stands still while the machine is overloaded (PANIC)";
const IN_USE: &str = "The command stands still while other programs use what it leans on (--heavy)";

pub(super) async fn explain_job(daemon: Arc<Daemon>, call: Call<ExplainJob>) -> Answered<Explain> {
    let mut explain = daemon.scheduler.explain(call.id).await?;
    let (job, lease) = held(&daemon, call.id).await?;
    let Some(job) = job else {
        return Ok(explain);
    };
    for reason in &mut explain.reasons {
        completed(&daemon, &job, reason);
    }
    explain
        .reasons
        .extend(in_worker(&daemon, &job, lease.as_ref()));
    if !job.state.is_ended() {
        explain.reasons.splice(..0, store_reason(&daemon));
    }
    Ok(explain)
}

pub(super) async fn list_reasons(
    daemon: Arc<Daemon>,
    call: Call<ListReasons>,
) -> Answered<ReasonList> {
    let mut ids = call.body.jobs;
    let hidden = ownership::hidden_jobs(&daemon, &call.caller, ids.clone()).await?;
    ids.retain(|id| !hidden.contains(id));
    let found = daemon.scheduler.reasons(ids.clone()).await?;
    let mut planned: HashMap<JobId, Reason> = found.into_iter().collect();
    let records = {
        let ids = ids.clone();
        let read = daemon.store().read(move |tables| {
            let mut found = Vec::new();
            for job in tables.jobs(&ids)? {
                let lease = match job.lease_id {
                    Some(lease) => tables.lease(lease)?,
                    None => None,
                };
                found.push((job, lease));
            }
            Ok(found)
        });
        read.await.map_err(ownership::unreadable)?
    };
    let mut reasons: HashMap<JobId, Reason> = HashMap::new();
    for (job, lease) in records {
        if job.state.is_ended() {
            continue;
        }
        let own = planned.remove(&job.id).map(|mut reason| {
            completed(&daemon, &job, &mut reason);
            reason
        });
        let first = store_reason(&daemon)
            .or(own)
            .or_else(|| dependencies(&job))
            .or_else(|| in_worker(&daemon, &job, lease.as_ref()));
        reasons.extend(first.map(|reason| (job.id, reason)));
    }
    let jobs = ids.into_iter().filter_map(|job_id| {
        let reason = reasons.remove(&job_id)?;
        Some(JobReason { job_id, reason })
    });
    Ok(ReasonList {
        jobs: jobs.collect(),
    })
}

/// Reads a job, and the lease that holds it.
pub(super) async fn held(
    daemon: &Daemon,
    id: JobId,
) -> Answered<(Option<Arc<JobRecord>>, Option<LeaseRecord>)> {
    let read = daemon.store().read(move |tables| {
        let Some(job) = tables.jobs(&[id])?.pop() else {
            return Ok((None, None));
        };
        let lease = match job.lease_id {
            Some(lease) => tables.lease(lease)?,
            None => None,
        };
        Ok((Some(job), lease))
    });
    read.await.map_err(ownership::unreadable)
}

fn store_reason(daemon: &Daemon) -> Option<Reason> {
    let trouble = daemon.store_trouble()?;
    let change = "the store takes changes again";
    let since = daemon.store_trouble_since();
    Some(Reason::new(STORE, trouble, since, change))
}

/// Adds to a reason what is known of workers.
fn completed(daemon: &Daemon, job: &JobRecord, reason: &mut Reason) {
    let live = &daemon.observing.live;
    let (addon, job_type) = (&job.intent.addon_id, &job.intent.job_type);
    match reason.code.as_str() {
        "unserved" => {
            let last = match live.last_server(addon, job_type) {
                Some(last) => format!("served last by {} at {}", last.name, last.at),
                None => "none has called since the daemon started".to_owned(),
            };
            reason.message = format!("No worker serves {job_type} jobs of addon {addon}: {last}");
        }
        "no_worker" => {
            let slots = live.slots(addon, job_type);
            if slots.all == 0 {
                return;
            }
            let workers = match &slots.workers[..] {
                [one] => one.clone(),
                all => format!("{} workers", all.len()),
            };
            reason.message = format!(
                "All worker slots for {job_type} jobs of addon {addon} are taken: {} of {} ({workers})",
                slots.taken.max(1),
                slots.all
            );
            reason.measured = Some(slots.taken.into());
            reason.threshold = Some(slots.all.into());
        }
        _ => {}
    }
}

/// Returns why a job does not get on although a worker has it: the worker is silent, or runs another job first.
fn in_worker(daemon: &Daemon, job: &JobRecord, lease: Option<&LeaseRecord>) -> Option<Reason> {
    let lease = lease.filter(|lease| job.lease_id == Some(lease.id))?;
    let live = &daemon.observing.live;
    let named = lease
        .instance_id
        .and_then(|instance| live.name_of(instance));
    let name = named
        .or_else(|| lease.instance_id.map(unnamed))
        .unwrap_or_else(|| "its worker".to_owned());
    let seen = lease
        .instance_id
        .and_then(|instance| live.seen_at(instance));
    let seen = seen.map_or(lease.renewed_at, |seen| seen.max(lease.renewed_at));
    let silent = Timestamp::now().duration_since(seen);
    // A worker renews its leases three times in a term.
    if silent > SignedDuration::from_secs(i64::from(lease.ttl_sec) * 2 / 3) {
        let end = lease.expires_at;
        let message = format!("{name} has the job and is silent since {seen}");
        let change = format!(
            "the worker calls again, or its lease ends (at {end}) and the job is queued again"
        );
        return Some(Reason::new("worker_silent", message, Some(seen), change));
    }
    if job.state == JobState::Running {
        return paused_run(daemon, job, lease);
    }
    if job.state != JobState::Dispatching {
        return None;
    }
    let begun = lease.in_hand().filter(|other| other.id != job.id);
    let (message, change) = match begun {
        Some(other) => (
            format!("{name} has claimed the job and runs job {} first", other.id),
            format!("job {} ends", other.id),
        ),
        None => (
            format!("{name} has claimed the job and has not begun it"),
            "the worker begins it".to_owned(),
        ),
    };
    Some(Reason::new(
        "claimed",
        message,
        Some(lease.granted_at),
        change,
    ))
}

/// Returns why a run stands still: somebody has paused it, or the machine is overloaded.
fn paused_run(daemon: &Daemon, job: &JobRecord, lease: &LeaseRecord) -> Option<Reason> {
    if let Some(run) = daemon.paused_run(lease.id).filter(|run| run.job == job.id) {
        let resume = format!("it is resumed (jobtree resume --job {})", job.id);
        let told = run.told();
        let (message, since) = match run.still_since {
            Some(since) => (format!("The run of the job is paused {told}"), since),
            // A handler in a worker's own process is advised to checkpoint, and says nothing.
            None => (
                format!(
                    "The job is asked to pause {told}; its worker has not said that it stands still"
                ),
                run.since,
            ),
        };
        return Some(Reason::new("run_paused", message, Some(since), resume));
    }
    let advice = daemon.scheduler.advice(lease.id);
    if !matches!(advice, Advice::Checkpoint | Advice::Yield) || !stands_still_on_advice(job) {
        return None;
    }
    let (load, since) = daemon.observing.load.newest()?;
    // The advice may be newer than what was measured. Only a job that leans on something stands still in another state.
    let is_heavy = job.intent.constraints != Constraints::default();
    let (message, since) = match load.state {
        QuietState::Panic => (IN_PANIC, since),
        _ if is_heavy => (IN_USE, since),
        _ => (IN_PANIC, load.at),
    };
    Some(Reason {
        measured: Some(load.busy),
        ..Reason::new(
            "held_by_load",
            message,
            Some(since.max(lease.granted_at)),
            "the machine is calmer",
        )
    })
}

/// Returns `true` if the runner pauses the command of a job that is told to save or to yield.
fn stands_still_on_advice(job: &JobRecord) -> bool {
    let intent = &job.intent;
    if (intent.addon_id.as_str(), intent.job_type.as_str()) != (RUNNER_ADDON, RUNNER_TYPE) {
        return false;
    }
    let payload = intent.payload.as_ref();
    let spec = payload.and_then(|payload| payload.read::<CommandSpec>().ok());
    spec.is_some_and(|spec| !spec.obeys_advice && spec.advice_signal.is_none())
}
