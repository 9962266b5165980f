//! What explanations need of a planner: to look inside, to try, and to be as before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::JobId;

use super::{ClaimAsk, Planner, Started, WhatIf};
use crate::block::Block;
use crate::candidate::Candidate;
use crate::hold::Holds;
use crate::now::Now;
use crate::order::{AddonIndex, KindId, Order, Turns};

/// What a search changes that putting jobs back does not restore.
pub(crate) struct Saved {
    turns: [Turns; 3],
    holds: Holds,
    asks: BTreeMap<u64, ClaimAsk>,
    asks_of: HashMap<AddonIndex, BTreeSet<u64>>,
}

impl Planner {
    pub(crate) fn save(&self) -> Saved {
        Saved {
            turns: self.order.turns(),
            holds: self.holds.clone(),
            asks: self.asks.clone(),
            asks_of: self.asks_of.clone(),
        }
    }

    pub(crate) fn restore(&mut self, saved: Saved) {
        self.order.set_turns(saved.turns);
        self.holds = saved.holds;
        self.asks = saved.asks;
        self.asks_of = saved.asks_of;
        self.what_if = WhatIf::default();
    }

    /// The search for what starts, without effects.
    pub(crate) fn try_pump(&mut self, now: Now) -> Started {
        self.pump(now, &mut Vec::new())
    }

    pub(crate) fn candidate_of(&self, job: JobId) -> Option<(&Candidate, AddonIndex)> {
        self.order
            .jobs
            .get(&job)
            .map(|waiting| (&waiting.candidate, waiting.addon))
    }

    pub(crate) fn denial_of(&self, job: JobId) -> Option<&(Block, Timestamp)> {
        self.denied.get(&job)
    }

    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    pub(crate) fn order_mut(&mut self) -> &mut Order {
        &mut self.order
    }

    pub(crate) fn what_if_mut(&mut self) -> &mut WhatIf {
        &mut self.what_if
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    pub(crate) fn draining_since(&self) -> Option<Timestamp> {
        self.draining_since
    }

    pub(crate) fn set_draining(&mut self, draining: bool) -> bool {
        std::mem::replace(&mut self.draining, draining)
    }

    pub(crate) fn forget_hold(&mut self, job: JobId) {
        self.holds.forget(job);
    }

    /// Returns `true` if a claim waits for jobs of a type, or they may be reserved.
    pub(crate) fn is_taken(&self, kind: &KindId, now: Now) -> bool {
        self.ask_for(kind.0, &kind.1).is_some() || self.is_accepted(kind, now)
    }

    /// How long until so many units are freed, if running jobs end as expected.
    pub(crate) fn units_free_in(&self, units: u32, now: Now) -> Option<Duration> {
        let (at, _) = self.ledger.freed(units, now.mono)?;
        Some(at.saturating_sub(now.mono))
    }
}
