//! How a job of a lease begins, and how the times that a worker tells become times of this side.
//!
//! A worker has one job of a lease in hand at a time, and only that one runs. Its begin comes to be known in one of four ways:
//!
//! - with the grant, for the first job of a lease ([`claim`](super::claim));
//! - with the completion of the one before it, if the worker reports no begins, or if the completion names it;
//! - by a heartbeat or a report that names it;
//! - with its own completion, which then begins and ends the run in one step.
//!
//! So a job that ends soon costs no call and no write more than one whose begin is not reported.
//!
//! Times are told as distances from the sending of the call. Here they are counted back from the time of the command, which
//! is later by the way of the call, and are kept within the life of the lease: a worker can make a run of its own lease look
//! shorter or longer, and nothing else.

use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{JobId, whole_micros};

use super::grant::running_event;
use super::held::live;
use super::state::{begun, touched_lease};
use super::{Changes, Context, Done, Outcome, TransitionError};
use crate::now::wall_before;
use crate::record::{JobRecord, LeaseRecord};

/// The time that lies `ms_ago` before the command, or the nearest within the life of the lease.
pub(super) fn told_time(cx: &Context<'_>, lease: &LeaseRecord, ms_ago: u64) -> Timestamp {
    let ago = Duration::from_millis(ms_ago);
    whole_micros(wall_before(cx.now.wall, ago))
        .max(lease.granted_at)
        .min(cx.wall())
}

/// Takes a job of a lease into its worker's hand at `at`. One that has not begun begins then; its record is returned, for
/// the caller to put. `lease` is the revision that is being made.
pub(super) fn take_in_hand(
    cx: &Context<'_>,
    lease: &mut LeaseRecord,
    job: &JobRecord,
    at: Timestamp,
    changes: &mut Changes,
) -> Result<Option<JobRecord>, TransitionError> {
    let Some(place) = lease
        .place_of(job)
        .filter(|_| job.lease_id == Some(lease.id))
    else {
        return Err(TransitionError::Inconsistent {
            lease_id: lease.id,
            job_id: job.id,
        });
    };
    lease.begun = true;
    lease.asked_back.retain(|id| *id != job.id);
    let in_hand = lease.in_hand().is_some_and(|held| held.id == job.id);
    if !in_hand {
        lease.named_current = Some(job.id);
    }
    if job.has_begun() {
        if !in_hand {
            lease.current_since = at;
        }
        return Ok(None);
    }
    lease.current_since = at;
    lease.jobs[place].begun = true;
    let next = begun(cx, job, at);
    changes.events.push(running_event(cx, &next));
    Ok(Some(next))
}

/// Asks a lease's worker to give back jobs that it has not begun, so that an idle worker can have them. Nothing happens to
/// the jobs: the worker hears of it with the answer to its next heartbeat, and they wait again when it has confirmed, in a
/// later heartbeat, that it will not begin them.
///
/// Answers which of the jobs are asked for: those of the lease that have not begun and are not in hand, as far as is known.
///
/// # Errors
/// If the lease has ended, or its worker did not declare that it returns jobs.
pub fn ask_back(lease: &LeaseRecord, jobs: &[JobId]) -> Outcome<Vec<JobId>> {
    live(lease)?;
    if !lease.returns_unbegun {
        return Err(TransitionError::KeepsBatch { lease_id: lease.id });
    }
    let wanted: Vec<JobId> = lease
        .returnable()
        .map(|job| job.id)
        .filter(|id| jobs.contains(id))
        .collect();
    let is_new = |id: &&JobId| !lease.asked_back.contains(id);
    let new: Vec<JobId> = wanted.iter().filter(is_new).copied().collect();
    if new.is_empty() {
        return Ok(Done::repeated(wanted));
    }
    let mut next = touched_lease(lease);
    next.asked_back.extend(new);
    let changes = Changes {
        leases: vec![next],
        asked: vec![lease.id],
        ..Changes::default()
    };
    Ok(Done::new(wanted, changes))
}
