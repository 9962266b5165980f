//! Requests for one job by its name: `lease/request` with a `job_id`, and `ack`, for a job that is QUEUED.
//!
//! The job is admitted out of turn, if it may start now by the rules that hold for claims: its time, pauses, its key and
//! its node, the machine, room and ramp, and capacity that is held for another job. Its addon is charged for it as for any
//! start, so that requests win nothing in the long run.

use jobtree_protocol::JobId;

use super::Planner;
use super::pump::{How, Pick};
use crate::admission::{Ask, Verdict};
use crate::block::Block;
use crate::now::Now;
use crate::order::Gate;

/// The answer to a request for one job.
#[derive(Clone, Debug, PartialEq)]
pub enum Requested {
    /// Grant a lease for the job, if it still is at this revision. Its units are in use from now on, until
    /// [`Event::Answered`](super::Event::Answered) says what became of it.
    Granted {
        /// The revision to compare and swap on.
        revision: u64,
        /// The units of the lease.
        cost: u32,
        /// By which numbers it was decided.
        verdict: Verdict,
    },
    /// The job waits on: why, and when it is worth asking again.
    Denied(Verdict),
}

impl Requested {
    /// The verdict, whichever it is.
    pub fn verdict(&self) -> &Verdict {
        match self {
            Requested::Granted { verdict, .. } | Requested::Denied(verdict) => verdict,
        }
    }
}

impl Planner {
    /// Decides on a request for a waiting job; `None` if it does not wait here. The caller serves the job's type by that.
    pub fn request(&mut self, job: JobId, now: Now) -> Option<Requested> {
        let (candidate, addon) = self.candidate_of(job)?;
        let (candidate, kind) = (candidate.clone(), (addon, candidate.job_type.clone()));
        self.admission.tick(now);
        self.note_acceptance(&kind, now);
        let (view, usage) = (self.view(now), self.usage_of(addon));
        let terms = self.order.addons[addon.0].terms;
        let stand = self.order.stand_of_job(job);
        let learnt = self.order.learnt(addon, &kind.1);
        let deadlines = &self.admission.policy().deadline;
        let standing = candidate.urgency(learnt).standing(deadlines, now.wall);
        let own = Ask {
            cost: candidate.cost,
            constraints: candidate.constraints,
            waiver: standing.waiver,
        };
        // The one that is allowed when quiet never comes waits for no quiet.
        let asked = Ask {
            waiver: view.waiver(own.waiver),
            ..own
        };
        let blocked = self
            .own_obstacle(job, now)
            .or_else(|| (self.admission).gate(&view, asked.waiver, asked.constraints))
            .or_else(|| {
                let room = self.admission.room(&view, &asked, &usage, &terms);
                room.into_iter().next()
            });
        let stands = stand.and_then(|(group, stand)| Some((group, stand?)));
        let held = stands.and_then(|(_, stand)| self.held_from(job, stand.class, &stand.gate, now));
        let blocked = blocked.or(held);
        let (Some((group, stand)), None) = (stands, &blocked) else {
            // What stands nowhere has an obstacle of its own; it is not granted without knowing which.
            let block = blocked.unwrap_or(Block::NotYet { at: now.wall });
            let verdict = (self.admission).verdict(Some(block), &view, &own, &usage, &terms);
            return Some(Requested::Denied(verdict));
        };
        let shut = self.admission.gate(&view, own.waiver, own.constraints);
        let allowed = shut.map(|_| self.admission.allowed_one());
        let pick = Pick {
            class: stand.class,
            addon,
            group,
            gate: stand.gate,
        };
        let how = How {
            allowed,
            ..How::default()
        };
        let proposal = self.propose(job, pick, how, &view)?;
        Some(Requested::Granted {
            revision: candidate.revision,
            cost: candidate.cost,
            verdict: proposal.verdict,
        })
    }

    /// What is in a job's way by itself, whatever else waits, and however busy the machine is.
    fn own_obstacle(&self, job: JobId, now: Now) -> Option<Block> {
        let (candidate, addon) = self.candidate_of(job)?;
        if let Some(block) = candidate.delayed(now.wall) {
            return Some(block);
        }
        if self.draining {
            return Some(Block::Draining);
        }
        if self.order.addons[addon.0].paused {
            return Some(Block::AddonPaused);
        }
        if self.order.type_paused(addon, &candidate.job_type) {
            return Some(Block::TypePaused);
        }
        let wrong = self
            .order
            .unsuited(candidate.node.as_ref(), &candidate.labels);
        if wrong.is_some() {
            return wrong;
        }
        let key = candidate.key.as_ref()?;
        let (running, limit) = (self.order.running(addon, &key.key), key.limit);
        (running >= limit).then(|| Block::KeyTaken {
            key: key.key.to_string(),
            running,
            limit,
        })
    }

    /// The hold that a job of this class must not delay, if it would.
    fn held_from(&self, job: JobId, class: usize, gate: &Gate, now: Now) -> Option<Block> {
        let hold = self.holds.current;
        let hold = hold.filter(|hold| hold.job != job && class <= hold.class)?;
        self.delays(&hold, gate, now)
    }
}
