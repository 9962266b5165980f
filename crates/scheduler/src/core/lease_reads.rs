//! Readings of leases that are under way, and what must not be undone by them.
//!
//! A lease of this node may be changed by any node that shares the store: a job that is reserved here is accepted there, a
//! lease is completed, released or revoked there. This node hears of the jobs, and reads their leases. A reading shows a lease
//! as it was when the reading began, so a lease that has ended since must not be brought back by it; and a lease that changes
//! again while it is read is read once more.

use std::collections::{BTreeMap, HashSet};

use jobtree_protocol::LeaseId;

use super::operations::ReadLeases;
use super::turn::Turn;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct LeaseReads {
    /// Leases that are being read, and whether each is to be read again afterwards.
    under_way: BTreeMap<LeaseId, bool>,
    /// All leases are being read.
    all: bool,
    /// Leases that ended while something was being read. They are remembered no longer than that.
    ended: HashSet<LeaseId>,
}

impl LeaseReads {
    /// Reads leases, each of them again if it is being read.
    pub(super) fn read(&mut self, leases: impl IntoIterator<Item = LeaseId>, turn: &mut Turn) {
        let mut new = Vec::new();
        for lease in leases {
            match self.under_way.get_mut(&lease) {
                Some(again) => *again = true,
                None => {
                    self.under_way.insert(lease, false);
                    new.push(lease);
                }
            }
        }
        if !new.is_empty() {
            turn.ask(ReadLeases { leases: new.into() });
        }
    }

    /// Returns `true` while a lease is being read.
    pub(super) fn is_reading(&self, lease: LeaseId) -> bool {
        self.under_way.contains_key(&lease)
    }

    /// These leases were read, and what was read has been taken.
    pub(super) fn answered(&mut self, leases: &[LeaseId], turn: &mut Turn) {
        let again: Vec<LeaseId> = leases
            .iter()
            .copied()
            .filter(|lease| self.under_way.remove(lease) == Some(true))
            .collect();
        self.read(again, turn);
        self.forget_ended();
    }

    /// All leases are being read from now on.
    pub(super) fn begin_all(&mut self) {
        self.all = true;
    }

    /// All leases were read, and what was read has been taken.
    pub(super) fn end_all(&mut self) {
        self.all = false;
        self.forget_ended();
    }

    /// Notes that a lease is over.
    pub(super) fn ended(&mut self, lease: LeaseId) {
        if self.all || !self.under_way.is_empty() {
            self.ended.insert(lease);
        }
    }

    /// Returns `true` if a lease has ended since the first of the readings under way began.
    pub(super) fn has_ended(&self, lease: LeaseId) -> bool {
        self.ended.contains(&lease)
    }

    /// Returns `true` if nothing is remembered.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && !self.all && self.ended.is_empty()
    }

    fn forget_ended(&mut self) {
        if !self.all && self.under_way.is_empty() {
            self.ended.clear();
        }
    }
}
