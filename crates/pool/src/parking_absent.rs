//! What `parking` offers where stacks cannot be switched: nothing can be parked, so whoever waits
//! helps in place, and no strand is ever ready.

use crate::strand::Strand;
use crate::worker::{Found, WorkerThread};

impl WorkerThread {
    pub(crate) fn can_park(&self) -> bool {
        false
    }

    pub(crate) fn park_in_favour_of(&self, _strand: &Strand, _found: Found) {
        unreachable!("`can_park` says no here");
    }

    pub(crate) fn let_run(&self, _strand: &Strand, _ready: *const Strand) {
        unreachable!("no strand waits by mail here");
    }

    pub(crate) fn yield_to(&self, _strand: &Strand, _found: Found) {
        unreachable!("`can_park` says no here");
    }
}
