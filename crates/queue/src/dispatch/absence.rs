//! Addons that nobody here takes dispatches up for: on a shared store, their jobs are left to other nodes for a while.
//!
//! A dispatch is a proposal to whoever is at this node. If nobody takes it up it goes back to the queue, and the node that
//! took it back is the first to hear of that: it would dispatch the job again at once, and again, while workers wait for
//! it elsewhere. So after a dispatch that was not taken up this node leaves jobs of that addon and type alone:
//!
//! - for the time that a dispatch may take to be taken up, and twice as long each time that nobody does in a row, to
//!   [`LONGEST_REST`] at most; by up to a quarter less, which differs from node to node, so that they do not all come back
//!   together;
//! - until somebody of the addon shows itself here: it asks for dispatches or for capacity. Twice in a row at most, for
//!   somebody who asks all the time and does not take this type up is nobody who waits for it;
//! - until a dispatch of the type is taken up here, or a worker claims such jobs: then all of this is forgotten.
//!
//! Dispatches that were out together and come back together count once. A job that asks for this very node is not left
//! alone, as nobody else may have it, and neither is any job where no other node uses the store: there it is dispatched
//! again at once.
//!
//! What this adds to anybody's wait is [`VainBound`](crate::hold::VainBound).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobType, NodeId};

use super::{ClaimAsk, Dispatcher};
use crate::ledger::{Held, Phase};
use crate::now::{Now, wall_after};
use crate::order::AddonIndex;

/// Jobs are left to others for this long at most, or for as long as a dispatch may take to be taken up, if that is more.
pub(crate) const LONGEST_REST: Duration = Duration::from_secs(300);

/// So many times in a row an ask is taken for somebody who will take jobs of a type up.
const TRUSTED: u32 = 2;

/// Nobody here has taken up what was dispatched of an addon and type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Absence {
    /// How often in a row.
    pub(crate) times: u32,
    /// Since when.
    pub(crate) since: Timestamp,
    /// Until when its jobs are left to others, by the monotonic clock; none when they are not any more.
    until: Option<Duration>,
    /// How often in a row somebody asked, and did not take them up then.
    trusted: u32,
}

/// All absences.
#[derive(Clone, Debug, Default)]
pub(super) struct Absences {
    /// Other nodes use the store.
    shared: bool,
    kinds: BTreeMap<(AddonIndex, JobType), Absence>,
}

impl Absences {
    pub(super) fn next_time(&self) -> Option<Duration> {
        self.kinds
            .values()
            .filter_map(|absence| absence.until)
            .min()
    }
}

impl Dispatcher {
    /// Says whether other nodes use the store. Then jobs of an addon that nobody at this node takes up are left to them
    /// for a while: first for as long as a dispatch may take to be taken up, then for longer each time, to some minutes.
    /// If not, as in the beginning, they are dispatched again at once.
    pub fn set_shared(&mut self, shared: bool) {
        self.absences.shared = shared;
        if !shared {
            for (addon, job_type) in std::mem::take(&mut self.absences.kinds).into_keys() {
                self.order.leave_type(addon, &job_type, false);
            }
        }
    }

    /// A dispatch came back, and is in its old place again: was it not taken up?
    pub(super) fn came_back(&mut self, before: Option<(AddonIndex, JobType)>, now: Now) {
        let Some(kind) = before.filter(|_| self.absences.shared) else {
            return;
        };
        let absence = self.absences.kinds.entry(kind.clone());
        let absence = absence.or_insert(Absence {
            times: 0,
            since: now.wall,
            until: None,
            trusted: 0,
        });
        if absence.until.is_some() {
            // It was out together with one that is back already.
            return;
        }
        absence.times = absence.times.saturating_add(1);
        absence.since = now.wall;
        let first = self.admission.policy().dispatch.take_up;
        let longest = first.max(LONGEST_REST);
        let doubled = first.saturating_mul(2_u32.saturating_pow(absence.times - 1));
        let spread = spread(&self.node, &kind.1, absence.times);
        let rest = doubled.min(longest).mul_f64(1.0 - spread / 4.0);
        absence.until = Some(now.mono + rest);
        self.order.leave_type(kind.0, &kind.1, true);
    }

    /// Time has passed: what has been left to others for long enough is tried again.
    pub(super) fn try_again(&mut self, now: Now) {
        let (absences, order) = (&mut self.absences.kinds, &mut self.order);
        for ((addon, job_type), absence) in absences {
            if absence.until.is_some_and(|until| until <= now.mono) {
                absence.until = None;
                order.leave_type(*addon, job_type, false);
            }
        }
    }

    /// Somebody is here who may take up what is dispatched of an addon, or of any.
    pub(super) fn shown(&mut self, addon: Option<&AddonId>) {
        if self.absences.kinds.is_empty() {
            return;
        }
        let of = addon.map(|addon| self.order.addon(addon));
        let (absences, order) = (&mut self.absences.kinds, &mut self.order);
        for ((addon, job_type), absence) in absences {
            let concerned = of.is_none_or(|of| of == *addon);
            if concerned && absence.until.is_some() && absence.trusted < TRUSTED {
                absence.trusted += 1;
                absence.until = None;
                order.leave_type(*addon, job_type, false);
            }
        }
    }

    /// A worker asks for these jobs themselves.
    pub(super) fn claimed_here(&mut self, ask: &ClaimAsk) {
        if self.absences.kinds.is_empty() {
            return;
        }
        let of = self.order.addon(&ask.addon);
        let order = &mut self.order;
        self.absences.kinds.retain(|(addon, job_type), _| {
            let keeps = *addon != of || !ask.wants(job_type);
            if !keeps {
                order.leave_type(*addon, job_type, false);
            }
            keeps
        });
    }

    /// Jobs of this addon and type are taken up here.
    pub(super) fn present(&mut self, held: &Held) {
        if let Some(job) = held
            .jobs
            .first()
            .filter(|_| !self.absences.kinds.is_empty())
        {
            let kind = (held.addon, job.job_type.clone());
            if self.absences.kinds.remove(&kind).is_some() {
                self.order.leave_type(kind.0, &kind.1, false);
            }
        }
    }

    /// Whether jobs of an addon and type are left to others now: until when, and since when after how many dispatches.
    pub(crate) fn absence(
        &self,
        addon: AddonIndex,
        job_type: &JobType,
        now: Now,
    ) -> Option<(Timestamp, &Absence)> {
        let absence = self.absences.kinds.get(&(addon, job_type.clone()))?;
        let left = absence.until?.saturating_sub(now.mono);
        Some((wall_after(now.wall, left), absence))
    }
}

/// What a dispatch was of, if it waited to be taken up.
pub(super) fn kind_of(held: &Held) -> Option<(AddonIndex, JobType)> {
    let waited = matches!(held.phase, Phase::Dispatched(_));
    let job = held.jobs.first().filter(|_| waited)?;
    Some((held.addon, job.job_type.clone()))
}

/// A number from 0 to 1 that looks random, and is another one on another node: nothing is drawn here (FNV-1a, and a last
/// mix for the high bits).
fn spread(node: &NodeId, job_type: &JobType, times: u32) -> f64 {
    let bytes = node.as_str().bytes().chain(job_type.as_str().bytes());
    let hash = bytes
        .chain(times.to_le_bytes())
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) as f64 / (1_u64 << 24) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_do_not_come_back_together() {
        let kind = JobType::new("work").unwrap();
        let of =
            |index: u32, times| spread(&NodeId::new(format!("n{index}")).unwrap(), &kind, times);
        for times in 1..5 {
            let mut all: Vec<f64> = (0..40).map(|index| of(index, times)).collect();
            assert!(all.iter().all(|part| (0.0..1.0).contains(part)));
            all.sort_by(f64::total_cmp);
            assert!(all[0] < 0.2 && all[39] > 0.8, "{all:?}");
            all.dedup();
            assert_eq!(all.len(), 40);
        }
        assert_eq!(of(3, 1), of(3, 1));
    }
}
