//! Workers that ask: for jobs, and for leases without one.
//!
//! A claim waits like a job does. The worker that asks first does not get everything: among addons that have both jobs and
//! waiting workers the same order decides as for reservations, so that a worker that asks in a tight loop wins nothing.

use std::time::Duration;

use jobtree_protocol::{AddonId, Constraints, JobType, LeaseId, Priority, Start};

use super::Planner;
use crate::admission::{Ask, Verdict};
use crate::block::Block;
use crate::deadline::Urgency;
use crate::hold::Hold;
use crate::ledger::{Held, Holder, Phase};
use crate::now::Now;
use crate::order::{AddonIndex, Gate, Takes};

/// A worker's ask for jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimAsk {
    /// The caller's name for it.
    pub id: u64,
    /// Whose jobs.
    pub addon: AddonId,
    /// Of which types; none means all.
    pub types: Vec<JobType>,
    /// How many in one lease, one after the other.
    pub jobs: u32,
    /// How many leases.
    pub leases: u32,
}

impl ClaimAsk {
    pub(super) fn wants(&self, job_type: &JobType) -> bool {
        self.types.is_empty() || self.types.contains(job_type)
    }
}

/// An ask for a lease without a job in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseAsk {
    /// Who asks.
    pub addon: AddonId,
    /// Units.
    pub cost: u32,
    /// How urgent.
    pub priority: Priority,
    /// What it is heavy on.
    pub constraints: Constraints,
    /// How long it takes.
    pub expected_duration: Option<Duration>,
}

impl Planner {
    pub(super) fn ask(&mut self, ask: ClaimAsk, now: Now) {
        let addon = self.order.addon(&ask.addon);
        self.asks_of.entry(addon).or_default().insert(ask.id);
        self.asks.insert(ask.id, ask.clone());
        self.note_claim(&ask, true, now);
    }

    pub(super) fn end_ask(&mut self, id: u64, now: Now) {
        let Some(ask) = self.asks.remove(&id) else {
            return;
        };
        self.note_claim(&ask, false, now);
        let addon = self.order.addon(&ask.addon);
        if let Some(asks) = self.asks_of.get_mut(&addon) {
            asks.remove(&id);
            if asks.is_empty() {
                self.asks_of.remove(&addon);
            }
        }
    }

    /// The oldest ask for such a job.
    pub(super) fn ask_for(&self, addon: AddonIndex, job_type: &JobType) -> Option<&ClaimAsk> {
        let asks = self.asks_of.get(&addon)?;
        asks.iter()
            .filter_map(|id| self.asks.get(id))
            .find(|ask| ask.wants(job_type))
    }

    /// Returns `true` if a waiting ask gets no job of a type only because none of it waits: a job of the type, on these terms,
    /// could start now.
    pub fn lacks_jobs(&mut self, id: u64, job_type: &JobType, terms: &LeaseAsk, now: Now) -> bool {
        let Some(ask) = self.asks.get(&id) else {
            return false;
        };
        if !ask.wants(job_type) || ask.addon != terms.addon {
            return false;
        }
        let addon = self.order.addon(&terms.addon);
        let kind = (addon, job_type.clone());
        if self.order.has_groups(&kind) || self.order.type_paused(addon, job_type) {
            return false;
        }
        let asked = self.machine_ask(terms, now);
        let (usage, view) = (self.usage_of(addon), self.view(now));
        let limits = self.order.addons[addon.0].terms;
        (self.admission)
            .gate(&view, asked.waiver, asked.constraints)
            .is_none()
            && self
                .admission
                .room(&view, &asked, &usage, &limits)
                .is_empty()
            && self.lease_obstacle(addon, terms, &asked, now).is_none()
    }

    /// What the machine is asked for by a lease without a deadline.
    fn machine_ask(&self, asked: &LeaseAsk, now: Now) -> Ask {
        let urgency = Urgency {
            priority: asked.priority,
            time_sensitive: false,
            start: Start::WhenQuiet,
            deadline: None,
            takes: asked.expected_duration.unwrap_or_default(),
        };
        let deadlines = &self.admission.policy().deadline;
        Ask {
            cost: asked.cost,
            constraints: asked.constraints,
            waiver: urgency.standing(deadlines, now.wall).waiver,
        }
    }

    /// One lease of an ask is used up.
    pub(super) fn use_ask(&mut self, id: u64, now: Now) {
        let Some(ask) = self.asks.get_mut(&id) else {
            return;
        };
        ask.leases = ask.leases.saturating_sub(1);
        if ask.leases == 0 {
            self.end_ask(id, now);
        }
    }

    /// Decides on a lease without a job. When it is approved its units are in use from now on, under that name, until
    /// `Freed`.
    pub fn lease(&mut self, lease: LeaseId, asked: &LeaseAsk, now: Now) -> Verdict {
        self.admission.tick(now);
        self.note_poll(Some(&asked.addon), now);
        let addon = self.order.addon(&asked.addon);
        let policy = self.admission.policy().clone();
        let ask = self.machine_ask(asked, now);
        let waiver = ask.waiver;
        let (usage, view, terms) = (
            self.usage_of(addon),
            self.view(now),
            policy.addon(asked.addon.as_str()),
        );
        let mut verdict = self
            .admission
            .decide(asked.addon.as_str(), &ask, &usage, now);
        let block = self.lease_obstacle(addon, asked, &ask, now);
        if let Some(block) = block.filter(|_| verdict.approved()) {
            verdict = self
                .admission
                .verdict(Some(block), &view, &ask, &usage, &terms);
        }
        if verdict.approved() {
            let needed_one = self
                .admission
                .gate(&view, waiver, asked.constraints)
                .is_some();
            let allowed = needed_one.then(|| self.admission.allowed_one());
            let ends = asked.expected_duration.map(|takes| now.mono + takes);
            let (units, phase) = (asked.cost, Phase::Running);
            let held = Held {
                addon,
                units,
                key: None,
                ends,
                phase,
                jobs: Vec::new(),
                charged: None,
                allowed,
                since: now.mono,
                probe: false,
            };
            self.enter(Holder::Lease(lease), held);
        }
        verdict
    }

    /// What only the planner knows of: pauses, draining, and capacity that is kept for a job.
    fn lease_obstacle(
        &self,
        addon: AddonIndex,
        asked: &LeaseAsk,
        ask: &Ask,
        now: Now,
    ) -> Option<Block> {
        if self.draining {
            return Some(Block::Draining);
        }
        if self.order.addons[addon.0].paused {
            return Some(Block::AddonPaused);
        }
        let hold = self
            .holds
            .current
            .filter(|hold| asked.priority as usize <= hold.class)?;
        let gate = Gate {
            waiver: ask.waiver,
            cost: ask.cost,
            heavy: [false; 4],
            takes: asked.expected_duration.map(Takes::of),
        };
        self.delays(&hold, &gate, now)
    }

    /// The hold, as an obstacle to a job behind this gate, if that job would delay it.
    pub(super) fn delays(&self, hold: &Hold, gate: &Gate, now: Now) -> Option<Block> {
        let shadow = self.shadow(hold, &self.view(now), now);
        let (job, until, spare, requested) = (hold.job, hold.until, shadow.spare, gate.cost);
        (!shadow.lets_pass(gate, now.mono)).then_some(Block::Held {
            job,
            until,
            spare,
            requested,
        })
    }
}
