//! What operators do: pauses, draining, a scheduling pass, signals, the policy, backups.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::operations::{
    Backup, Drain, GetPolicy, Kick, ListPauses, Pause, PushSignals, Resume, SetPolicy,
    ValidatePolicy,
};
use jobtree_protocol::{
    ApiError, BackupAnswer, DrainRequest, ErrorCode, PauseList, PauseView, PolicyVerdict,
    ResumeAnswer,
};

use super::invalid;
use super::preview::preview_policy;
use super::route::{Call, routes};
use crate::daemon::Daemon;
use crate::policy;
use crate::problem::Answered;

jobtree_protocol::operating_operations!(routes);

async fn kick(daemon: Arc<Daemon>, _: Call<Kick>) -> Answered<()> {
    daemon.scheduler.kick();
    Ok(())
}

async fn pause(daemon: Arc<Daemon>, call: Call<Pause>) -> Answered<()> {
    let by = Some(call.caller.name().to_owned());
    Ok(daemon.scheduler.pause_by(call.body, by).await?)
}

async fn resume(daemon: Arc<Daemon>, call: Call<Resume>) -> Answered<ResumeAnswer> {
    let resumed = daemon.scheduler.resume(call.body).await?;
    Ok(ResumeAnswer { resumed })
}

async fn list_pauses(daemon: Arc<Daemon>, call: Call<ListPauses>) -> Answered<PauseList> {
    let all = daemon.scheduler.pauses().await?.into_iter();
    let seen = all.filter(|pause| call.caller.sees(&pause.addon_id));
    let pauses = seen.map(|pause| PauseView {
        addon_id: pause.addon_id,
        job_type: pause.job_type,
        since: pause.since,
        reason: pause.reason,
        by: pause.by,
    });
    Ok(PauseList {
        pauses: pauses.collect(),
    })
}

async fn drain(daemon: Arc<Daemon>, call: Call<Drain>) -> Answered<DrainRequest> {
    daemon.scheduler.drain(call.body.draining);
    Ok(call.body)
}

async fn push_signals(daemon: Arc<Daemon>, call: Call<PushSignals>) -> Answered<()> {
    Ok(daemon.scheduler.push_signals(call.body)?)
}

async fn get_policy(daemon: Arc<Daemon>, _: Call<GetPolicy>) -> Answered<String> {
    Ok(daemon.scheduler.policy().to_toml())
}

async fn set_policy(daemon: Arc<Daemon>, call: Call<SetPolicy>) -> Answered<()> {
    let policy = &daemon.policy;
    let kept = policy.set(&daemon.scheduler, daemon.stamp(), &call.body);
    kept.await?;
    Ok(())
}

async fn validate_policy(_: Arc<Daemon>, call: Call<ValidatePolicy>) -> Answered<PolicyVerdict> {
    policy::read(&call.body)?;
    Ok(PolicyVerdict { valid: true })
}

/// Writes the copy into the folder `backups` of the data directory, under a name that the caller may choose: with a path,
/// any holder of a token could write anywhere on the machine.
async fn backup(daemon: Arc<Daemon>, call: Call<Backup>) -> Answered<BackupAnswer> {
    let now = Timestamp::now();
    let name = match call.body.name {
        Some(name) => checked(name)?,
        None => format!("jobs-{}.db", now.strftime("%Y%m%d-%H%M%S%.3f")),
    };
    let folder = daemon.data_dir.join("backups");
    let made = crate::server::make_folder(&folder);
    made.map_err(|error| ApiError::new(ErrorCode::Unavailable, error.to_string()))?;
    let done = daemon.store().backup(folder.join(name)).await;
    let done = done.map_err(|error| ApiError::new(ErrorCode::Conflict, error.to_string()))?;
    Ok(BackupAnswer {
        path: done.path.to_string_lossy().into_owned(),
        bytes: done.bytes,
        last_event: done.last_event,
        at: now,
    })
}

/// Returns a name that is one on every system.
fn checked(name: String) -> Answered<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if (1..=128).contains(&name.len()) && name.chars().all(allowed) && !name.starts_with('.') {
        return Ok(name);
    }
    let message =
        "is not a valid file name here: write letters, digits, dots, hyphens, not a dot first";
    Err(invalid("name", message))
}
