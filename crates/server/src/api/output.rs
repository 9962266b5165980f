//! The output of commands on its way to the one who waits for it; see [`Relays`](crate::relay::Relays).

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::operations::{AppendJobOutput, GetJobOutput};
use jobtree_protocol::{ErrorCode, OutputAppendAnswer, OutputPage};
use tokio::time::Instant;

use super::ownership;
use super::route::Call;
use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};

/// How long a writer waits for room before it is asked to send again.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(20);

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
    ownership::check(&daemon, &call.caller, append.lease_id).await?;
    let lease = daemon.scheduler.lease(append.lease_id).await?;
    if !lease.jobs.contains(&call.id) {
        let message = "the lease is not, or no longer, the job's: stop what runs under it";
        return Err(Refusal::new(ErrorCode::LeaseLost, message));
    }
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
