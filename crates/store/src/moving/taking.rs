//! What a backend must be able to do beside the rest, so that a store can be moved from and to it.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, LeaseId, ScheduleId};
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord};

use crate::logs::LogEnd;
use crate::tables::{Recorded, Result};

/// A firing of a schedule that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// Whose.
    pub schedule_id: ScheduleId,
    /// For which time.
    pub at: Timestamp,
    /// The job, if there was one.
    pub job_id: Option<JobId>,
}

/// Everything that the rules ask for one by one, page by page in an order of the backend's own.
pub trait ReadAll {
    /// Leases after this one, ended ones included.
    fn all_leases(&mut self, after: Option<LeaseId>, limit: usize) -> Result<Vec<LeaseRecord>>;

    /// Idempotency keys after this one.
    fn all_keys(
        &mut self,
        after: Option<(AddonId, String)>,
        limit: usize,
    ) -> Result<Vec<KeyRecord>>;

    /// Firings after this one.
    fn all_firings(
        &mut self,
        after: Option<(ScheduleId, Timestamp)>,
        limit: usize,
    ) -> Result<Vec<Fired>>;

    /// Where logs end, of jobs after this one.
    fn all_logs(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<(JobId, LogEnd)>>;

    /// No event that is still to come has a lesser place: greater than that of every event there ever was.
    fn next_event(&mut self) -> Result<u64>;
}

/// Takes over what another store had, in a transaction.
pub trait TakeIn {
    /// Jobs that are not there yet, in whatever state, each with the place of its last event.
    fn take_in_jobs(&mut self, jobs: &[(Option<u64>, Arc<JobRecord>)]) -> Result<()>;

    /// Events at these places, which grow, each with the place of the one before it of the same job.
    fn take_in_events(&mut self, events: &[(Recorded, Option<u64>)]) -> Result<()>;

    /// The next event gets this place, or a greater one.
    fn go_on_from(&mut self, next_event: u64) -> Result<()>;
}
