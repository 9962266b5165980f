//! Output and standard input of commands on their way; see [`Relays`](crate::relay::Relays) and
//! [`Inputs`](crate::input::Inputs).

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::operations::{AppendJobInput, AppendJobOutput, GetJobInput, GetJobOutput};
use jobtree_protocol::{
    ErrorCode, InputAppendAnswer, InputPage, JobId, LeaseId, OutputAppendAnswer, OutputPage,
};
use tokio::time::Instant;

use super::ownership;
use super::route::Call;
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};

/// How long a writer waits for room before it is asked to send again.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(20);
/// How often an input is looked for that its sender has not begun.
const LOOK_FOR_SENDER: Duration = Duration::from_millis(20);

pub(super) async fn get_job_output(
    daemon: Arc<Daemon>,
    mut call: Call<GetJobOutput>,
) -> Answered<OutputPage> {
    let id = call.id;
    let job = call.view(&daemon).await?;
    let relays = &daemon.observing.relays;
    let Some(relay) = relays.to_read(id) else {
        let message = "the output of too many commands is read at once: wait for one to end";
        return Err(Refusal::new(ErrorCode::TooMany, message));
    };
    let read = relay.read(call.query.after.unwrap_or(0));
    let wait = Duration::from_secs(call.query.wait_sec.unwrap_or(0).into());
    let until = Instant::now() + wait;
    let mut ended = job.state.is_ended();
    loop {
        let mut page = read.page();
        if !page.pieces.is_empty() {
            return Ok(page);
        }
        // All was in the relay before the job ended.
        if ended {
            relays.forget(id);
            page.ended = true;
            return Ok(page);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || daemon.is_stopping() {
            return Ok(page);
        }
        tokio::select! {
            () = read.came() => {}
            job = daemon.scheduler.wait_for(id, left) => ended = job?.state.is_ended(),
            () = daemon.stopped() => {}
        }
    }
}

pub(super) async fn append_job_output(
    daemon: Arc<Daemon>,
    call: Call<AppendJobOutput>,
) -> Answered<OutputAppendAnswer> {
    let append = call.body;
    check_lease(&daemon, &call.caller, append.lease_id, call.id).await?;
    let Some(relay) = daemon.observing.relays.to_write(call.id) else {
        return Ok(OutputAppendAnswer {
            is_read: false,
            next_offset: append.offset + append.pieces.len() as u64,
        });
    };
    Ok(tokio::select! {
        answer = relay.append(append.clone(), WAIT_FOR_ROOM) => answer,
        () = daemon.stopped() => OutputAppendAnswer { is_read: true, next_offset: append.offset },
    })
}

pub(super) async fn append_job_input(
    daemon: Arc<Daemon>,
    mut call: Call<AppendJobInput>,
) -> Answered<InputAppendAnswer> {
    let id = call.id;
    let inputs = &daemon.observing.inputs;
    let closed = |next_offset| InputAppendAnswer {
        next_offset,
        closed: true,
    };
    if call.view(&daemon).await?.state.is_ended() {
        inputs.forget(id);
        return Ok(closed(call.body.offset));
    }
    let Some(input) = inputs.to_send(id) else {
        let message = "too many commands are given input at once: wait for one to end";
        return Err(Refusal::new(ErrorCode::TooMany, message));
    };
    let bytes = call.body.bytes().unwrap_or_default();
    let ended = daemon.scheduler.wait_for(id, WAIT_FOR_ROOM);
    tokio::select! {
        answer = input.append(&call.body, &bytes, WAIT_FOR_ROOM) => Ok(answer),
        job = ended => {
            let over = job?.state.is_ended();
            Ok(InputAppendAnswer { next_offset: call.body.offset, closed: over })
        }
        () = daemon.stopped() => Ok(InputAppendAnswer { next_offset: call.body.offset, closed: false }),
    }
}

pub(super) async fn get_job_input(
    daemon: Arc<Daemon>,
    call: Call<GetJobInput>,
) -> Answered<InputPage> {
    let Some(lease_id) = call.query.lease_id else {
        return Err(super::invalid(
            "lease_id",
            "is missing: write the lease that the command runs under",
        ));
    };
    check_lease(&daemon, &call.caller, lease_id, call.id).await?;
    let wait = Duration::from_secs(call.query.wait_sec.unwrap_or(0).into());
    let after = call.query.after.unwrap_or(0);
    let until = Instant::now() + wait;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if let Some(input) = daemon.observing.inputs.to_read(call.id) {
            return Ok(tokio::select! {
                page = input.read(lease_id, after, left) => page,
                () = daemon.stopped() => InputPage { next: after, ..InputPage::default() },
            });
        }
        if left.is_zero() || daemon.is_stopping() {
            return Ok(InputPage {
                next: after,
                ..InputPage::default()
            });
        }
        // Its sender begins right after the submission.
        tokio::time::sleep(LOOK_FOR_SENDER.min(left)).await;
    }
}

/// Refuses a call under a lease that is not the caller's, or does not hold the job.
async fn check_lease(
    daemon: &Daemon,
    caller: &Caller,
    lease_id: LeaseId,
    job: JobId,
) -> Answered<()> {
    ownership::check(daemon, caller, lease_id).await?;
    let lease = daemon.scheduler.lease(lease_id).await?;
    if lease.jobs.contains(&job) {
        return Ok(());
    }
    let message = "the lease is not, or no longer, the job's: stop what runs under it";
    Err(Refusal::new(ErrorCode::LeaseLost, message))
}
