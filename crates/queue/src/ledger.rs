//! What is in use: live leases, reservations and proposals, each with its units, its key and its expected end.
//!
//! This is the one place that usage comes from. Every sum here is of entries that are there; an entry that goes takes
//! its part with it, and one that is entered twice counts once, so that nothing can leak away or be freed twice. A
//! planner that starts enters what its store says is live.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jobtree_protocol::{JobId, LeaseId};

use crate::admission::Usage;
use crate::candidate::Candidate;
use crate::order::{AddonIndex, KeyId};

/// What holds units: a job that is proposed or reserved, or a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A job on its way to a worker; of a batch, the first.
    Job(JobId),
    /// A lease.
    Lease(LeaseId),
}

/// How far it is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Proposed to the store.
    Proposed,
    /// Waits to be accepted until then, on the monotonic clock.
    Reserved(Duration),
    /// Proposed to the store for a claim. If nothing comes of that, it waits to be accepted until then, as before.
    Accepting(Duration),
    /// Runs.
    Running,
}

#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) addon: AddonIndex,
    pub(crate) units: u32,
    pub(crate) key: Option<KeyId>,
    /// When it will have ended, on the monotonic clock; not known for all.
    pub(crate) ends: Option<Duration>,
    pub(crate) phase: Phase,
    /// The jobs, while they may have to be put back.
    pub(crate) jobs: Vec<Candidate>,
    /// The class that was charged for it.
    pub(crate) charged: Option<usize>,
    /// It was the one that is allowed when quiet never comes; what that took.
    pub(crate) allowed: Option<Duration>,
    /// Since when it holds units here, on the monotonic clock.
    pub(crate) since: Duration,
    /// The reservation is a probe: no worker is known to serve its type.
    pub(crate) probe: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    held: BTreeMap<Holder, Held>,
    units: u32,
    by_addon: HashMap<AddonIndex, (u32, u32)>,
    by_key: HashMap<KeyId, u32>,
    ends: BTreeSet<(Duration, Holder)>,
    reserved: BTreeSet<(Duration, Holder)>,
}

impl Ledger {
    /// Enters something; what was there under that name is replaced and returned.
    pub(crate) fn insert(&mut self, holder: Holder, held: Held) -> Option<Held> {
        let before = self.remove(holder);
        self.units += held.units;
        let (units, leases) = self.by_addon.entry(held.addon).or_default();
        *units += held.units;
        *leases += 1;
        if let Some(key) = &held.key {
            *self.by_key.entry(key.clone()).or_default() += 1;
        }
        if let Some(ends) = held.ends {
            self.ends.insert((ends, holder));
        }
        if let Phase::Reserved(until) = held.phase {
            self.reserved.insert((until, holder));
        }
        self.held.insert(holder, held);
        before
    }

    pub(crate) fn remove(&mut self, holder: Holder) -> Option<Held> {
        let held = self.held.remove(&holder)?;
        self.units -= held.units;
        if let Some((units, leases)) = self.by_addon.get_mut(&held.addon) {
            *units -= held.units;
            *leases -= 1;
        }
        if let Some(key) = &held.key
            && let Some(running) = self.by_key.get_mut(key)
        {
            *running -= 1;
            if *running == 0 {
                self.by_key.remove(key);
            }
        }
        if let Some(ends) = held.ends {
            self.ends.remove(&(ends, holder));
        }
        if let Phase::Reserved(until) = held.phase {
            self.reserved.remove(&(until, holder));
        }
        Some(held)
    }

    pub(crate) fn get(&self, holder: Holder) -> Option<&Held> {
        self.held.get(&holder)
    }

    pub(crate) fn contains(&self, holder: Holder) -> bool {
        self.held.contains_key(&holder)
    }

    /// Returns everything that holds units.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Holder> {
        self.held.keys().copied()
    }

    /// Returns the number of concurrency keys that are held.
    pub(crate) fn keys(&self) -> usize {
        self.by_key.len()
    }

    /// What is in use, as an addon sees it.
    pub(crate) fn usage(&self, addon: AddonIndex) -> Usage {
        let (addon_units, addon_leases) = self.by_addon.get(&addon).copied().unwrap_or_default();
        Usage {
            units: self.units,
            leases: self.held.len() as u32,
            addon_units,
            addon_leases,
        }
    }

    pub(crate) fn units(&self) -> u32 {
        self.units
    }

    /// Reservations that wait to be accepted, the next to go back first.
    pub(crate) fn reserved(&self) -> impl Iterator<Item = &Held> {
        let reserved = self.reserved.iter();
        reserved.filter_map(|(_, holder)| self.held.get(holder))
    }

    /// Units of reservations that wait to be accepted.
    pub(crate) fn reserved_units(&self) -> u32 {
        self.reserved().map(|held| held.units).sum()
    }

    pub(crate) fn leases(&self) -> u32 {
        self.held.len() as u32
    }

    pub(crate) fn running(&self, key: &KeyId) -> u32 {
        self.by_key.get(key).copied().unwrap_or_default()
    }

    /// When at least `units` of what is in use will have been freed, if ends that are known come true; none if they do
    /// not suffice. With it, what is freed by then. What should have ended before `now` is taken to end any moment.
    pub(crate) fn freed(&self, units: u32, now: Duration) -> Option<(Duration, u32)> {
        let mut freed = 0;
        for &(ends, holder) in &self.ends {
            freed += self.held.get(&holder).map_or(0, |held| held.units);
            if freed >= units {
                return Some((ends.max(now), freed));
            }
        }
        None
    }

    /// Reservations that were not accepted in time.
    pub(crate) fn overdue(&self, now: Duration) -> Vec<Holder> {
        self.reserved
            .iter()
            .take_while(|(until, _)| *until <= now)
            .map(|(_, holder)| *holder)
            .collect()
    }

    /// When the next reservation is overdue.
    pub(crate) fn next_overdue(&self) -> Option<Duration> {
        self.reserved.first().map(|(until, _)| *until)
    }

    /// Changes how far something is on its way.
    pub(crate) fn set_phase(&mut self, holder: Holder, phase: Phase) {
        if let Some(held) = self.remove(holder) {
            self.insert(holder, Held { phase, ..held });
        }
    }
}
