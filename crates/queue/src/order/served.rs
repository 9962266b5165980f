//! Types that are served stand in the classes; the job groups of other types stand aside, and are probed one by one.
//!
//! Whether a type is served is decided by the planner. What it needs for that is here: which types have waiting jobs, and
//! which of their jobs would be next.

use super::group::{GroupId, Stand};
use super::{KeyId, KindId, Order};

impl Order {
    /// Types that have waiting jobs since the last call, and were not watched before.
    pub(crate) fn take_appeared(&mut self) -> Vec<KindId> {
        std::mem::take(&mut self.appeared)
    }

    /// Stops watching a type: when it has waiting jobs again it appears again.
    pub(crate) fn unwatch(&mut self, kind: &KindId) {
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.watched = false;
        }
    }

    /// Returns `true` if jobs of a type wait whose time has come.
    pub(crate) fn has_groups(&self, kind: &KindId) -> bool {
        let kind = self.kinds.get(kind);
        kind.is_some_and(|kind| !kind.groups.is_empty())
    }

    /// Returns `true` if the groups of a type stand in the classes.
    pub(crate) fn is_served(&self, kind: &KindId) -> bool {
        self.kinds.get(kind).is_some_and(|kind| kind.served)
    }

    /// Says whether a type is served; returns what it was.
    pub(crate) fn set_served(&mut self, kind: &KindId, served: bool) -> bool {
        let about = self.kinds.entry(kind.clone()).or_default();
        let before = std::mem::replace(&mut about.served, served);
        if before != served {
            let groups = about.groups.clone();
            self.restand_all(groups);
        }
        before
    }

    /// The first groups of a type, at most so many, each with where it would stand.
    pub(crate) fn aside(&self, kind: &KindId, most: usize) -> Vec<(GroupId, Stand)> {
        let groups = self.kinds.get(kind).map(|kind| &kind.groups);
        let groups = groups.into_iter().flatten().take(most);
        groups
            .filter_map(|id| {
                let group = self.groups[id.0].as_ref()?;
                let head = *group.queue.first()?;
                let (stand, _) = self.stand_at(group, head)?;
                Some((*id, stand))
            })
            .collect()
    }

    /// The group of a waiting job, and where that would stand with this job as its head, whether its type is served or not.
    pub(crate) fn stand_of_job(
        &self,
        job: jobtree_protocol::JobId,
    ) -> Option<(GroupId, Option<Stand>)> {
        let waiting = self.jobs.get(&job)?;
        let id = waiting.group?;
        let group = self.groups[id.0].as_ref()?;
        let stand = self.stand_at(group, (waiting.candidate.enqueued_at, job));
        Some((id, stand.map(|(stand, _)| stand)))
    }

    /// The concurrency key of a group.
    pub(crate) fn key_of(&self, group: GroupId) -> Option<KeyId> {
        let shape = &self.groups[group.0].as_ref()?.shape;
        let key = shape.key.as_ref()?;
        Some((shape.addon, key.key.clone()))
    }

    /// Returns `true` if jobs of a served type wait that have this concurrency key.
    pub(crate) fn served_have_key(&self, key: &KeyId) -> bool {
        let groups = self.keys.get(key).map(|key| &key.groups);
        let mut groups = groups.into_iter().flatten();
        groups.any(|id| {
            let group = self.groups[id.0].as_ref();
            group.is_some_and(|group| self.is_served(&group.shape.kind()))
        })
    }
}
