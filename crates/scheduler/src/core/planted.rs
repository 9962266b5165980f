//! Mistakes that can be switched on in the core, to show that the simulator finds them.

use std::collections::BTreeSet;

/// A mistake of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(not(feature = "sim"), allow(dead_code))]
pub enum Bug {
    /// Leases are never expired: jobs stay RUNNING for days.
    NoSweeper,
    /// A lease is not expired while a process with its worker's name asks for jobs.
    TrustWorkerNames,
    /// Leases are expired by the wall clock.
    WallClockExpiry,
    /// The term of a lease counts from when its grant or renewal was issued, and not from when it was committed.
    TermFromIssue,
    /// After a restart there is no grace: leases are expired at once.
    NoGrace,
    /// Ended leases keep their units.
    LeakedUnits,
    /// A job of this node that was accepted at another node counts by its lease, which is never read.
    UnreadLeases,
    /// The capacity in use is not read at the start.
    ForgetLive,
    /// A refused proposal is not read again.
    LostProposal,
    /// A reservation that is refused when it is repeated after a lost answer counts as one that was never made.
    RefusedIsUndone,
    /// An operation that failed is not repeated.
    NoRepeat,
    /// The store is never read again: lost notifications stay lost.
    NoFallback,
    /// Timers of all schedulers go off together.
    NoJitter,
    /// A job that may not start now keeps every other one from starting.
    BlockedHead,
    /// Nothing is quarantined.
    NoQuarantine,
    /// Slots of concurrency keys are counted up when a lease is granted, and not down when it ends.
    LeakedKeys,
    /// Jobs of a paused addon are started all the same.
    IgnorePauses,
    /// Capacity is reserved for types that no caller serves, again and again, and their jobs are not left to other nodes.
    ReserveForNobody,
    /// The key of a request for capacity is not looked at: a request that is repeated gets another lease.
    DoubledCapacity,
    /// Claims do not see what is reserved.
    ClaimsMissReservations,
    /// Jobs of a type that was measured to cost less than they declare are charged one unit each.
    CheapIsFree,
    /// A firing is named by the clock at which it happens, and not by the time of its calendar.
    FireByClock,
}

/// The mistakes that are switched on; none outside of simulations.
#[derive(Clone, Debug, Default)]
pub(super) struct Planted(BTreeSet<Bug>);

impl Planted {
    #[cfg(feature = "sim")]
    pub(super) fn add(&mut self, bug: Bug) {
        self.0.insert(bug);
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        cfg!(feature = "sim") && self.0.contains(&bug)
    }
}
