//! Readings of leases that are under way, and what must not be undone by them.
//!
//! A lease of this node may be changed by any node that shares the store: a job that is reserved here is accepted there, a
//! lease is completed, released or revoked there. This node hears of the jobs, and reads their leases. A reading shows a lease
//! as it was when the reading began, so a lease that has ended since must not be brought back by it; and a lease that changes
//! again while it is read is read once more.

use std::collections::BTreeMap;

use jobtree_protocol::LeaseId;

use super::operations::{OpId, ReadLeases};
use super::recent::Recent;
use super::turn::Turn;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct LeaseReads {
    /// Leases that are being read, and whether each is to be read again afterwards.
    under_way: BTreeMap<LeaseId, bool>,
    /// Leases that ended while something was being read, until no reading is under way that began before.
    ended: Recent<LeaseId, ()>,
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
    }

    /// Notes that a lease is over.
    pub(super) fn ended(&mut self, lease: LeaseId, turn: &Turn) {
        if turn.in_flight.reads() {
            self.ended.note(lease, (), turn.in_flight.next_id());
        }
    }

    /// Returns `true` if a lease has ended since the oldest of the readings under way began.
    pub(super) fn has_ended(&self, lease: LeaseId) -> bool {
        self.ended.get(&lease).is_some()
    }

    /// Returns `true` if nothing is remembered.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.ended.len() == 0
    }

    /// Forgets leases whose end every reading shows that is under way.
    pub(super) fn forget(&mut self, oldest: OpId) {
        self.ended.forget(oldest);
    }

    /// Returns the number of leases that are remembered to have ended.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.ended.len()
    }
}
