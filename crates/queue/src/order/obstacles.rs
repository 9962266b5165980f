//! What stands in the way of whole job groups: pauses, concurrency keys and nodes (that a type is not served is in
//! `served`). Each change touches the groups it concerns, once; while it lasts those groups cost nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{JobId, JobType, NodeId};

use super::group::{AddonIndex, GroupId, Takes};
use super::waiting::Waiting;
use super::{KeyId, Order};
use crate::block::Block;
use crate::policy::Policy;

/// A learnt cost factor that differs by less is the same.
const SMALL_CHANGE: f64 = 0.1;

impl Order {
    /// Pauses or resumes an addon; returns how it was.
    pub(crate) fn pause_addon(&mut self, addon: AddonIndex, paused: bool) -> bool {
        let before = std::mem::replace(&mut self.addons[addon.0].paused, paused);
        if before != paused {
            let groups = self.addons[addon.0].groups.clone();
            self.restand_all(groups);
        }
        before
    }

    /// Pauses or resumes a type; returns how it was.
    pub(crate) fn pause_type(
        &mut self,
        addon: AddonIndex,
        job_type: &JobType,
        paused: bool,
    ) -> bool {
        let kind = self.kinds.entry((addon, job_type.clone())).or_default();
        let before = std::mem::replace(&mut kind.paused, paused);
        if before != paused {
            let groups = kind.groups.clone();
            self.restand_all(groups);
        }
        before
    }

    pub(crate) fn type_paused(&self, addon: AddonIndex, job_type: &JobType) -> bool {
        self.kinds
            .get(&(addon, job_type.clone()))
            .is_some_and(|kind| kind.paused)
    }

    /// How many jobs with a key run.
    pub(crate) fn running(&self, addon: AddonIndex, key: &Arc<str>) -> u32 {
        self.keys
            .get(&(addon, key.clone()))
            .map_or(0, |key| key.running)
    }

    /// Says how many jobs with a key run.
    pub(crate) fn set_running(&mut self, key: &KeyId, running: u32) {
        if running == 0 && !self.keys.contains_key(key) {
            return;
        }
        let state = self.keys.entry(key.clone()).or_default();
        if state.running == running {
            return;
        }
        state.running = running;
        if state.groups.is_empty() && running == 0 {
            self.keys.remove(key);
            return;
        }
        let groups = state.groups.clone();
        self.restand_all(groups);
    }

    /// How long jobs of a type take, as learnt.
    pub(crate) fn learnt(&self, addon: AddonIndex, job_type: &JobType) -> Option<Duration> {
        self.kinds
            .get(&(addon, job_type.clone()))
            .and_then(|kind| kind.learnt)
    }

    /// Returns what a job of this type is charged that declares so much.
    pub(crate) fn charged_units(
        &self,
        addon: AddonIndex,
        job_type: &JobType,
        declared: u32,
    ) -> u32 {
        let policy = &self.policy;
        if !policy.cost.learn {
            return declared;
        }
        let kind = self.kinds.get(&(addon, job_type.clone()));
        let most = policy.largest_cost(self.addons[addon.0].name.as_str());
        let factor = kind.and_then(|kind| kind.cost_factor);
        if self.cheap_is_free && factor.is_some_and(|factor| factor < 1.0) {
            return 1;
        }
        policy.cost.charge(declared, factor, most)
    }

    /// Says what may be charged for each unit that jobs of a type declare. A small difference changes nothing: what was
    /// measured last would move jobs about with every run.
    pub(crate) fn learn_cost(&mut self, addon: AddonIndex, job_type: &JobType, factor: f64) {
        let kind = self.kinds.entry((addon, job_type.clone())).or_default();
        let before = kind.cost_factor.unwrap_or(1.0);
        if kind.cost_factor.is_some() && (factor / before - 1.0).abs() < SMALL_CHANGE {
            return;
        }
        kind.cost_factor = Some(factor);
        self.charge_again(Some((addon, job_type)));
    }

    /// Charges waiting jobs, of one type or all, by what is known now.
    fn charge_again(&mut self, only: Option<(AddonIndex, &JobType)>) {
        let is_meant = |waiting: &Waiting| {
            only.is_none_or(|(addon, job_type)| {
                waiting.addon == addon && waiting.candidate.job_type == *job_type
            })
        };
        let changed = self.jobs.values().filter(|waiting| {
            let Waiting {
                candidate, addon, ..
            } = &***waiting;
            is_meant(waiting)
                && candidate.cost
                    != self.charged_units(*addon, &candidate.job_type, candidate.declared)
        });
        let mut changed: Vec<JobId> = changed.map(|waiting| waiting.candidate.id).collect();
        // The order of a hash map must not show.
        changed.sort_unstable();
        for id in changed {
            if let Some(candidate) = self.remove(id) {
                self.add(candidate);
            }
        }
    }

    /// Says how long jobs of a type take.
    pub(crate) fn learn(&mut self, addon: AddonIndex, job_type: &JobType, takes: Duration) {
        let kind = self.kinds.entry((addon, job_type.clone())).or_default();
        let before = kind.learnt.replace(takes);
        if before.map(Takes::of) != Some(Takes::of(takes)) {
            let groups = kind.groups.clone();
            self.restand_all(groups);
        }
    }

    /// Whether this is the node that is asked for, with these labels.
    pub(crate) fn suits(&self, node: Option<&NodeId>, labels: &[String]) -> bool {
        node.is_none_or(|node| *node == self.node)
            && labels.iter().all(|label| self.labels.contains(label))
    }

    /// Returns what a job asks for that this node does not have; none if it suits.
    pub(crate) fn unsuited(&self, node: Option<&NodeId>, labels: &[String]) -> Option<Block> {
        if self.suits(node, labels) {
            return None;
        }
        let missing = labels.iter().filter(|label| !self.labels.contains(*label));
        Some(Block::WrongNode {
            node: self.node.clone(),
            wanted: node.filter(|node| **node != self.node).cloned(),
            labels: missing.cloned().collect(),
        })
    }

    /// Takes the jobs of a group as those of this node, or not.
    pub(crate) fn set_wrong_node(&mut self, group: GroupId, wrong: bool) {
        if let Some(group) = &mut self.groups[group.0] {
            group.wrong_node = wrong;
        }
        self.restand(group);
    }

    /// The node has other labels now.
    pub(crate) fn set_labels(&mut self, labels: BTreeSet<String>) {
        self.labels = labels;
        self.recheck_nodes();
    }

    /// Looks at every group's node and labels again.
    pub(crate) fn recheck_nodes(&mut self) {
        for index in 0..self.groups.len() {
            let Some(group) = &self.groups[index] else {
                continue;
            };
            let wrong = !self.suits(group.shape.node.as_ref(), &group.shape.labels);
            self.set_wrong_node(GroupId(index), wrong);
        }
    }

    /// Another policy: pauses, ages and deadlines are judged anew. The one thing here that looks at every job that has
    /// a deadline, if what deadlines waive has changed.
    pub(crate) fn set_policy(&mut self, policy: Arc<Policy>) {
        let before = std::mem::replace(&mut self.policy, policy);
        for index in 0..self.addons.len() {
            let name = self.addons[index].name.clone();
            let (was, is) = (
                before.addon(name.as_str()).paused,
                self.policy.addon(name.as_str()),
            );
            self.addons[index].terms = is;
            self.addons[index].quantum =
                i64::from(self.policy.order.quantum) * i64::from(is.weight);
            if was != is.paused {
                self.pause_addon(AddonIndex(index), is.paused);
            }
        }
        if before.cost != self.policy.cost || before.capacity != self.policy.capacity {
            self.charge_again(None);
        }
        if before.deadline != self.policy.deadline {
            let mut dated: Vec<JobId> = self
                .jobs
                .values()
                .filter(|waiting| waiting.candidate.deadline.is_some())
                .map(|waiting| waiting.candidate.id)
                .collect();
            // The order of a hash map must not show.
            dated.sort_unstable();
            for id in dated {
                if let Some(candidate) = self.remove(id) {
                    self.add(candidate);
                }
            }
        }
        if before.order.age_step != self.policy.order.age_step {
            self.restand_all((0..self.groups.len()).map(GroupId).collect());
        }
    }

    pub(super) fn restand_all(&mut self, groups: BTreeSet<GroupId>) {
        for group in groups {
            self.restand(group);
        }
    }
}
