//! One priority class: deficit round robin across its addons, in cost units.
//!
//! Addons take turns in the order of their numbers. At the beginning of its turn an addon's credit grows by quantum ×
//! weight; each start costs it the job's units; the turn ends when the credit does not reach for its next job. A quantum
//! is at least the largest cost, so that a turn always reaches for one. Credit is lost when an addon has nothing left
//! to start; debt (from starts out of turn: backfills, held jobs) is kept, to ten turns at most.
//!
//! Between two addons that both have jobs all the time, the started units divided by weight therefore differ by no more
//! than one quantum and one largest cost, plus debt.

use std::collections::{BTreeMap, BTreeSet};

use jobtree_protocol::JobType;

use super::Addon;
use super::group::{AddonIndex, Gate, GroupId, JobGroup, Place, Stand};

/// Job groups of one addon behind one gate, the oldest head first.
type Heads = BTreeSet<(Place, GroupId)>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Class {
    gates: BTreeMap<Gate, BTreeMap<AddonIndex, Heads>>,
    turns: Turns,
}

/// Whose turn it is, and how much each may still start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    /// Where the round goes on.
    cursor: AddonIndex,
    /// Whose turn it is: its credit has grown.
    topped: Option<AddonIndex>,
    credit: BTreeMap<AddonIndex, i64>,
}

/// What is asked of the addons and groups while one is looked for.
pub(crate) trait Eligible {
    /// Whether jobs behind this gate may start now, as far as the gate goes.
    fn gate(&mut self, gate: &Gate) -> bool;
    /// Whether jobs of this addon may start now, this one of this cost first.
    fn addon(&mut self, index: AddonIndex, addon: &Addon, cost: u32) -> bool;
    /// Returns `true` if a claim waits for jobs of this addon and type, or they may be reserved.
    fn wanted(&mut self, index: AddonIndex, job_type: &JobType) -> bool;
}

impl Class {
    pub(crate) fn insert(&mut self, addon: AddonIndex, group: GroupId, stand: &Stand) {
        let addons = self.gates.entry(stand.gate).or_default();
        addons.entry(addon).or_default().insert((stand.head, group));
    }

    pub(crate) fn remove(&mut self, addon: AddonIndex, group: GroupId, stand: &Stand) {
        let Some(addons) = self.gates.get_mut(&stand.gate) else {
            return;
        };
        if let Some(heads) = addons.get_mut(&addon) {
            heads.remove(&(stand.head, group));
            if heads.is_empty() {
                addons.remove(&addon);
            }
        }
        if addons.is_empty() {
            self.gates.remove(&stand.gate);
        }
    }

    /// The gates that there are, with the addons behind each.
    pub(crate) fn gates(&self) -> impl Iterator<Item = (&Gate, &BTreeMap<AddonIndex, Heads>)> {
        self.gates.iter()
    }

    /// Whose job is next among what is eligible, and which. Takes turns on, but charges nothing. `work` counts what was
    /// looked at.
    pub(crate) fn next(
        &mut self,
        groups: &[Option<JobGroup>],
        addons: &[Addon],
        eligible: &mut dyn Eligible,
        work: &mut u64,
    ) -> Option<(AddonIndex, GroupId, Gate)> {
        let mut open: Vec<(Gate, &BTreeMap<AddonIndex, Heads>)> = Vec::new();
        for (gate, addons) in &self.gates {
            *work += 1;
            if eligible.gate(gate) {
                open.push((*gate, addons));
            }
        }
        if open.is_empty() {
            return None;
        }
        let mut from = self.turns.cursor;
        // Addons that have nothing for us in this search, and whether one of the others only lacks credit: when the
        // search comes round to the former and there are none of the latter, that is all.
        let mut fruitless: BTreeSet<AddonIndex> = BTreeSet::new();
        let mut saving = false;
        loop {
            *work += open.len() as u64;
            let after = open
                .iter()
                .filter_map(|(_, addons)| addons.range(from..).next());
            let first = open.iter().filter_map(|(_, addons)| addons.iter().next());
            let addon =
                (after.map(|(addon, _)| *addon).min()).or(first.map(|(addon, _)| *addon).min())?;
            from = AddonIndex(addon.0 + 1);
            if fruitless.contains(&addon) {
                if !std::mem::take(&mut saving) {
                    return None;
                }
                continue;
            }
            let about = &addons[addon.0];
            let head = open.iter().filter_map(|(gate, addons)| {
                let heads = addons.get(&addon)?;
                let group = heads.iter().find(|(_, group)| {
                    *work += 1;
                    let group = groups[group.0].as_ref();
                    group.is_some_and(|group| eligible.wanted(addon, &group.shape.job_type))
                });
                group.map(|(place, group)| (*place, *group, *gate))
            });
            let head = head.min_by_key(|(place, ..)| *place);
            let Some((_, group, gate)) =
                head.filter(|(.., gate)| eligible.addon(addon, about, gate.cost))
            else {
                fruitless.insert(addon);
                continue;
            };
            let turns = &mut self.turns;
            let credit = turns.credit.entry(addon).or_default();
            if turns.topped != Some(addon) {
                turns.topped = Some(addon);
                *credit += about.quantum;
            }
            turns.cursor = addon;
            if *credit >= i64::from(gate.cost) {
                return Some((addon, group, gate));
            }
            turns.topped = None;
            turns.cursor = from;
            saving = true;
        }
    }

    /// Charges an addon for a start.
    pub(crate) fn charge(&mut self, addon: AddonIndex, cost: u32, quantum: i64) {
        let credit = self.turns.credit.entry(addon).or_default();
        *credit = (*credit - i64::from(cost)).max(-10 * quantum);
    }

    /// Gives a charge back: the job did not start.
    pub(crate) fn refund(&mut self, addon: AddonIndex, cost: u32) {
        *self.turns.credit.entry(addon).or_default() += i64::from(cost);
    }

    /// An addon has nothing to start in this class any more: credit is lost, debt stays.
    pub(crate) fn idle(&mut self, addon: AddonIndex) {
        if self
            .gates
            .values()
            .any(|addons| addons.contains_key(&addon))
        {
            return;
        }
        if self
            .turns
            .credit
            .get(&addon)
            .is_some_and(|credit| *credit >= 0)
        {
            self.turns.credit.remove(&addon);
        }
    }

    pub(crate) fn turns(&self) -> Turns {
        self.turns.clone()
    }

    pub(crate) fn set_turns(&mut self, turns: Turns) {
        self.turns = turns;
    }
}
