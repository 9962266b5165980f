//! Decides which registered processes are ours, and how much of the machine each lease may take out of the foreign load.
//!
//! A pid that a worker names is a claim, not a fact: it may be of another machine, of another container, of a process
//! that has ended since, or it may be a lie. A process counts only if the worker's boot id, pid namespace and start time
//! are those that this process reads itself. Process 1, this process and its ancestors never count: nearly everything
//! runs below them. A local worker can still name the process of another program, so a lease takes out at most its cost
//! units of the capacity, whatever its processes use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::machine::Machine;
use crate::core::LeaseProcesses;

/// The boot and the pid namespace of a machine, as its kernel names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) boot_id: String,
    pub(crate) pid_namespace: u64,
}

/// The share of one lease.
#[derive(Debug)]
struct Share {
    units: u32,
    /// Those of its processes that were accepted by its word: another lease may name the same pid in vain.
    pids: Vec<u32>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Ownership {
    /// The accepted processes: pid and start time.
    accepted: BTreeMap<u32, u64>,
    shares: Vec<Share>,
    /// The units of the whole machine.
    capacity: u32,
    own_pid: u32,
    /// The jobs run in this very process, so its load is theirs.
    pub(crate) in_process: bool,
    /// The planted mistake: every pid counts for the process that has it.
    #[cfg(feature = "sim")]
    pub(crate) trusts_pids: bool,
}

impl Ownership {
    /// Registers the processes of these leases, and no others. `capacity` is what the cost units are a part of.
    pub(crate) fn register(
        &mut self,
        leases: &[Arc<LeaseProcesses>],
        capacity: u32,
        machine: &dyn Machine,
    ) {
        let before = std::mem::take(&mut self.accepted);
        self.shares.clear();
        self.capacity = capacity.max(1);
        self.own_pid = machine.own_pid();
        if leases.is_empty() {
            return;
        }
        let (place, excluded) = (machine.place(), ancestors(machine));
        // Many leases name the same worker: each process is read once.
        let mut read: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        for lease in leases {
            let mut share = Share {
                units: lease.units,
                pids: Vec::new(),
            };
            for (index, &pid) in lease.pids.iter().enumerate() {
                let runs = *read
                    .entry(pid)
                    .or_insert_with(|| machine.process(pid).map(|process| process.started));
                let own_process = self.in_process && pid == self.own_pid;
                let accepted = if own_process || self.trusts_pids() {
                    runs
                } else if excluded.contains(&pid) {
                    None
                } else {
                    // What an accepted process has started may outlive it.
                    let runs = runs.or_else(|| before.get(&pid).copied());
                    started_here(lease, index, place.as_ref()).filter(|told| runs == Some(*told))
                };
                if let Some(started) = accepted {
                    self.accepted.insert(pid, started);
                    share.pids.push(pid);
                }
            }
            self.shares.push(share);
        }
    }

    /// Returns the accepted processes: pid and start time.
    pub(crate) fn accepted(&self) -> &BTreeMap<u32, u64> {
        &self.accepted
    }

    /// Returns what of the time that accepted processes used is taken out of the foreign load, if the machine had `total`:
    /// of each lease's processes at most the lease's share of it.
    pub(crate) fn own_time(&self, used: &BTreeMap<u32, u64>, total: u64) -> u64 {
        let mut left = used.clone();
        left.retain(|pid, _| self.accepted.contains_key(pid));
        let mut own = 0;
        if self.in_process {
            // Its jobs are threads of it: there is no other process that could lie.
            own += left.remove(&self.own_pid).unwrap_or(0);
        }
        for share in &self.shares {
            let units = u64::from(share.units.min(self.capacity));
            let mut most = total.saturating_mul(units) / u64::from(self.capacity);
            for pid in &share.pids {
                if let Some(left) = left.get_mut(pid) {
                    let taken = most.min(*left);
                    (most, *left, own) = (most - taken, *left - taken, own + taken);
                }
            }
        }
        own
    }

    fn trusts_pids(&self) -> bool {
        #[cfg(feature = "sim")]
        return self.trusts_pids;
        #[cfg(not(feature = "sim"))]
        false
    }
}

/// Returns the start time that the worker told of one of its processes, if the process is of this boot and namespace.
fn started_here(lease: &LeaseProcesses, index: usize, place: Option<&Place>) -> Option<u64> {
    let origin = lease.origin.as_ref()?;
    let place = place?;
    let here = origin.boot_id == place.boot_id && origin.pid_namespace == place.pid_namespace;
    origin.started.get(index).copied().filter(|_| here)
}

/// Returns process 1, this process and all processes above it.
fn ancestors(machine: &dyn Machine) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([1]);
    let mut next = Some(machine.own_pid());
    while let Some(pid) = next {
        // What was read while it changed may be a ring.
        if pid == 0 || !found.insert(pid) {
            break;
        }
        next = machine.process(pid).map(|process| process.parent);
    }
    found
}
