//! The replacement of `parking` where stacks cannot be switched: nothing can be parked, so a worker that waits helps in place,
//! and no fiber is ever ready.

use crate::found::Found;
use crate::strand::Strand;
use crate::worker::{Settled, WorkerThread};

impl WorkerThread {
    pub(crate) fn can_park(&self) -> bool {
        false
    }

    pub(crate) fn can_give_way(&self) -> bool {
        false
    }

    /// Returns `true`: a worker that waits runs other work on top anyway.
    pub(crate) fn has_room_for_another(&self, _strand: &Strand) -> bool {
        true
    }

    /// The stack is a thread's own, and not known.
    pub(crate) fn has_room_on_top(&self, _strand: &Strand) -> bool {
        true
    }

    pub(crate) fn patience_with_spares(&self) -> Option<std::time::Duration> {
        None
    }

    pub(crate) fn end_surplus_spares(&self) {}

    pub(crate) fn next_ready(&self) -> Option<*const Strand> {
        None
    }

    pub(crate) fn yield_to_next_ready(&self, _strand: &Strand) -> bool {
        false
    }

    pub(crate) fn park_in_favour_of(&self, _strand: &Strand, _found: Found) {
        unreachable!("`can_park` says no here");
    }

    pub(crate) fn settle(&self, _strand: &Strand, _found: Found) -> Settled {
        Settled::Here
    }

    pub(crate) fn give_way(&self, _strand: &Strand, _ready: *const Strand) -> bool {
        unreachable!("no strand is ever ready here");
    }

    pub(crate) fn let_run(&self, _strand: &Strand, _ready: *const Strand) {
        unreachable!("no strand waits by mail here");
    }

    pub(crate) fn suspend_to_hub(&self, _strand: &Strand) {
        unreachable!("nothing is simulated here");
    }

    pub(crate) fn idle_in_simulation(&self, _alone: bool) {
        unreachable!("nothing is simulated here");
    }

    pub(crate) fn take_some_ready(&self) -> Option<*const Strand> {
        unreachable!("nothing is simulated here");
    }

    pub(crate) fn yield_to(&self, _strand: &Strand, _found: Found) {
        unreachable!("`can_park` says no here");
    }
}
