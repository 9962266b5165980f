//! The invariant of claims that get nothing: no job that the worker could have had is reserved at the same scheduler.
//!
//! A reservation that a claim does not see is not lost. It is returned when no caller accepts it, and is reserved again, so
//! everything ends, only later: no other invariant notices.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jobtree_protocol::{InstanceId, JobId, LeaseId};
use jobtree_store::Written;

use super::check::Broken;
use super::served_waits::is_unserved;
use super::world::World;
use crate::core::{Answer, Call};

/// A scheduler may be about to return a reservation that is this near to its end.
const RETURNED_SOON: Duration = Duration::from_secs(1);

/// What is known of reservations, and of claims under way.
#[derive(Default)]
pub(super) struct ClaimAnswers {
    /// The reservation of each job that has one, and when it was committed.
    reserved: BTreeMap<JobId, (LeaseId, Duration)>,
    /// Workers that claim at a node and were refused a grant there since. Such a claim is answered without another pass if
    /// its time is over.
    refused: BTreeSet<(usize, InstanceId)>,
}

impl ClaimAnswers {
    /// A worker calls a node.
    pub(super) fn called(&mut self, node: usize, call: &Call) {
        if let Call::Claim(claim, _) = call {
            self.refused.remove(&(node, claim.request.instance_id));
        }
    }

    /// A node hears the answer of an operation.
    pub(super) fn answered(&mut self, node: usize, answer: &Answer) {
        if let Answer::Claim(op, Err(_)) = answer
            && let Some(instance) = op.command.instance_id
        {
            self.refused.insert((node, instance));
        }
    }

    pub(super) fn committed(&mut self, written: &[Written], time: Duration) {
        for job in written.iter().flat_map(|it| &it.changes.jobs) {
            let Some(reservation) = &job.reservation else {
                self.reserved.remove(&job.id);
                continue;
            };
            let known = self.reserved.get(&job.id);
            if known.is_none_or(|(id, _)| *id != reservation.id) {
                self.reserved.insert(job.id, (reservation.id, time));
            }
        }
    }
}

impl World {
    /// A claim is answered with nothing. A claim of an earlier turn is answered so if the worker has asked again.
    pub(super) fn check_empty_claim(
        &self,
        node: usize,
        worker: usize,
        turn: u64,
    ) -> Result<(), Broken> {
        let (this, claimer) = (&self.nodes[node], &self.workers[worker]);
        let was_refused = (self.claim_answers.refused).contains(&(node, claimer.instance));
        let Some(core) = this.core.as_ref().filter(|core| !core.is_reading()) else {
            return Ok(());
        };
        if claimer.turn != turn || was_refused {
            return Ok(());
        }
        let longest = this.policy.dispatch.take_up.saturating_sub(RETURNED_SOON);
        for (id, (_, since)) in &self.claim_answers.reserved {
            let Some(job) = self.shadow.jobs.get(id) else {
                continue;
            };
            let wanted = job.intent.addon_id == claimer.addon
                && !is_unserved(&job.intent.job_type)
                && self.shadow.is_reserved(id, &this.options.node);
            if wanted && *since + longest > self.time && core.awaits_claim(job) {
                return Err(format!(
                    "a claim of worker {worker} gets nothing, and job {id} is reserved on n{node}"
                ));
            }
        }
        Ok(())
    }
}
