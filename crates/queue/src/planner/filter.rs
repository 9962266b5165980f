//! What is eligible in one search.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jobtree_protocol::{Constraints, JobType};

use super::served::Served;
use super::{ClaimAsk, WhatIf};
use crate::admission::{Admission, View};
use crate::deadline::Waiver;
use crate::hold::Shadow;
use crate::ledger::Ledger;
use crate::order::{Addon, AddonIndex, Eligible, Gate};

/// What a search looks for.
#[derive(Clone, Copy, Default)]
pub(super) struct Search {
    /// Jobs that cost this or more have to fit: capacity is not held for them now.
    pub(super) fitting_from: Option<u32>,
    /// The quiet conditions are waived: one is allowed.
    pub(super) allow_one: bool,
}

pub(super) struct Filter<'a> {
    pub(super) admission: &'a Admission,
    pub(super) ledger: &'a Ledger,
    pub(super) asks: &'a BTreeMap<u64, ClaimAsk>,
    pub(super) asks_of: &'a HashMap<AddonIndex, BTreeSet<u64>>,
    pub(super) what_if: &'a WhatIf,
    pub(super) served: &'a Served,
    pub(super) take_up: Duration,
    /// Everything may be reserved, whether it is served or not: a planted mistake.
    pub(super) everything: bool,
    pub(super) view: &'a View,
    pub(super) used: u32,
    pub(super) search: Search,
    /// The hold that the jobs of this class must not delay.
    pub(super) passing: Option<Shadow>,
    /// Whether a waiver and constraints are enough, and the capacity for those constraints.
    pub(super) gates: HashMap<(Waiver, [bool; 4]), (bool, u32)>,
}

impl Filter<'_> {
    fn opened(&mut self, gate: &Gate) -> (bool, u32) {
        let waiver = match self.search.allow_one {
            true => gate.waiver.max(Waiver::Normal),
            false => gate.waiver,
        };
        *self.gates.entry((waiver, gate.heavy)).or_insert_with(|| {
            let constraints: Constraints = gate.constraints();
            let open = self
                .admission
                .gate(self.view, waiver, constraints)
                .is_none();
            let capacity = (self.admission).capacity_for(self.view, constraints, waiver);
            (open, capacity)
        })
    }
}

impl Eligible for Filter<'_> {
    fn gate(&mut self, gate: &Gate) -> bool {
        let (open, capacity) = self.opened(gate);
        if !open || gate.cost > capacity {
            return false;
        }
        let fits = self.used + gate.cost <= capacity;
        if self
            .search
            .fitting_from
            .is_some_and(|from| gate.cost >= from)
            && !fits
        {
            return false;
        }
        let now = self.view.now.mono;
        self.passing
            .is_none_or(|shadow| fits && shadow.lets_pass(gate, now))
    }

    fn addon(&mut self, index: AddonIndex, addon: &Addon, cost: u32) -> bool {
        let usage = self.what_if.usage(self.ledger, index);
        let policy = self.admission.policy();
        addon
            .terms
            .admit(policy, usage.addon_units, usage.addon_leases, cost)
    }

    fn wanted(&mut self, index: AddonIndex, job_type: &JobType) -> bool {
        let asks = self.asks_of.get(&index).into_iter().flatten();
        let mut asks = asks.filter_map(|id| self.asks.get(id));
        if asks.any(|ask| ask.wants(job_type)) || self.everything {
            return true;
        }
        let kind = (index, job_type.clone());
        self.what_if.worker_for.as_ref() == Some(&kind)
            || (self.served).is_accepted(&kind, self.take_up, self.view.now.mono)
    }
}
