//! What the rules need of a database, and nothing more: each backend implements this, and `execute` calls it inside of
//! one transaction.
//!
//! [`Reading`] is what a snapshot can answer; [`Tables`] can also write. All of a command's changes are written in one
//! call at its end, [`Tables::write`], after everything was read and decided: a command that is refused has written
//! nothing.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, Event, JobId, JobQuery, JobState, JobType, Json, LeaseId, Outcome, ScheduleId,
    ScheduleSpec,
};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, Now, RequestName};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::logs::{ReadLogs, WriteLogs};
use crate::moving::{ReadAll, TakeIn};

/// What every method answers.
pub type Result<T> = std::result::Result<T, StoreError>;

/// An event with its place in the trail. Places only ever grow, and are never used twice; some may be missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Its place: what to ask for the ones after.
    pub cursor: u64,
    /// The event.
    pub event: Event,
}

/// A page of jobs, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The jobs. There may be fewer than asked for even if more follow: a page costs a bounded time, whatever it is
    /// filtered by.
    pub jobs: Vec<Arc<JobRecord>>,
    /// After which id the next page begins; none if this was the last.
    pub next: Option<JobId>,
}

/// A schedule, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    /// Its id.
    pub id: ScheduleId,
    /// Which version of the record this is; the first is 1.
    pub revision: u64,
    /// As it was written.
    pub spec: ScheduleSpec,
    /// When it fires next, as its expression says, before jitter: what the firing is named by.
    pub next_at: Option<Timestamp>,
    /// When it fired last.
    pub last_at: Option<Timestamp>,
    /// The job of that.
    pub last_job: Option<JobId>,
}

/// An addon, or one type of its jobs, that is skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Whose jobs.
    pub addon_id: AddonId,
    /// Of which type; all if absent.
    pub job_type: Option<JobType>,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: Option<String>,
    /// Who paused, in words: the name of a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// How many jobs are in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Whose.
    pub addon_id: AddonId,
    /// In which state.
    pub state: JobState,
    /// How many.
    pub jobs: u64,
}

/// Up to when things are old enough to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Jobs that ended well before this.
    pub done: Timestamp,
    /// Jobs that failed before this.
    pub failed: Timestamp,
    /// Jobs that were canceled before this.
    pub canceled: Timestamp,
    /// Events before this. One of a job that is still there may go: its trail then begins later.
    pub events: Timestamp,
    /// Idempotency keys used before this.
    pub keys: Timestamp,
    /// Leases that ended before this, and firings of schedules.
    pub leases: Timestamp,
}

impl Retention {
    /// The time before which jobs that ended in this state are forgotten; `None` for one that has not ended.
    pub fn of(&self, state: JobState) -> Option<Timestamp> {
        state.outcome().map(|outcome| match outcome {
            Outcome::Done => self.done,
            Outcome::Failed => self.failed,
            Outcome::Cancelled => self.canceled,
        })
    }

    pub(crate) fn newest_for_jobs(&self) -> Timestamp {
        self.done.max(self.failed).max(self.canceled)
    }
}

/// What one step of pruning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Jobs that were forgotten.
    pub jobs: u64,
    /// Events.
    pub events: u64,
    /// Idempotency keys.
    pub keys: u64,
    /// Leases and firings.
    pub leases: u64,
    /// There is probably more: take another step soon.
    pub more: bool,
}

/// What can be asked of a snapshot.
pub trait Reading: ReadLogs + ReadAll {
    /// The time that all who share the database agree on, if it has one of its own.
    fn wall(&mut self) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    /// These jobs, also from history, in any order; those that do not exist are left out. In a transaction that writes,
    /// they cannot change until its end.
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Arc<JobRecord>>>;

    /// A lease, with its jobs that have not ended.
    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRecord>>;

    /// The lease that holds and answers this request for capacity. In a transaction that writes, no other transaction can
    /// grant one until its end.
    fn requested_lease(&mut self, request: &RequestName) -> Result<Option<LeaseId>>;

    /// All leases that hold.
    fn live_leases(&mut self) -> Result<Vec<LeaseRecord>>;

    /// All jobs with a place that waits to be taken up: not those that a worker has claimed.
    fn dispatching(&mut self) -> Result<Vec<Arc<JobRecord>>>;

    /// Waiting jobs in the order of their ids, after one: to fill a dispatcher's memory page by page.
    fn queued(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<Arc<JobRecord>>>;

    /// Jobs that a query finds.
    fn list(&mut self, query: &JobQuery, limit: usize) -> Result<Page>;

    /// How many jobs of each addon are in each state, those in history included if `ended`. Reads every row.
    fn counts(&mut self, ended: bool) -> Result<Vec<Count>>;

    /// An idempotency key that was used.
    fn key(&mut self, addon: &AddonId, key: &str) -> Result<Option<KeyRecord>>;

    /// The job with this unique key that has not ended.
    fn unique_holder(
        &mut self,
        addon: &AddonId,
        job_type: &JobType,
        key: &str,
    ) -> Result<Option<(JobId, JobState)>>;

    /// How many leases and reservations hold this concurrency key: the jobs of one lease run one after the other, so they
    /// count once. In a transaction that writes, nobody else can take one until its end.
    fn key_holders(&mut self, addon: &AddonId, key: &str) -> Result<u32>;

    /// Jobs that wait for this one.
    fn waiting_for(&mut self, dependency: JobId) -> Result<Vec<JobId>>;

    /// The trail of a job, oldest first.
    fn events_of(&mut self, job: JobId) -> Result<Vec<Recorded>>;

    /// The trail of everything after a place. Events are told in the order of their places, and none is left out: one that
    /// may still appear before it holds an event back for a moment.
    fn events_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>>;

    /// As [`events_after`](Reading::events_after), with all events that this snapshot shows. Where several processes write,
    /// some may appear later before the last of these, so this is for those who read one snapshot to its end.
    fn shown_events_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>> {
        self.events_after(cursor, limit)
    }

    /// The place of the last event, of those that [`events_after`](Reading::events_after) tells.
    fn last_event(&mut self) -> Result<u64>;

    /// All schedules, by name.
    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>>;

    /// A schedule. In a transaction that writes, it cannot change until its end.
    fn schedule(&mut self, id: ScheduleId) -> Result<Option<ScheduleRecord>> {
        let all = self.schedules()?;
        Ok(all.into_iter().find(|schedule| schedule.id == id))
    }

    /// All that is paused.
    fn pauses(&mut self) -> Result<Vec<Pause>>;

    /// Something that was noted under this name.
    fn note(&mut self, name: &str) -> Result<Option<Json>>;

    /// All notes whose names begin so, by name.
    fn notes(&mut self, prefix: &str) -> Result<Vec<(String, Json)>>;
}

/// What can be done in a transaction.
pub trait Tables: Reading + WriteLogs + TakeIn {
    /// Returns `true` if the transaction may be undone and all of its commands run again.
    fn may_run_again(&self) -> bool {
        false
    }

    /// As [`jobs`](Reading::jobs), for somebody who wants any of them: those that another transaction has at the moment
    /// may be left out, so nobody waits for them.
    fn free_jobs(&mut self, ids: &[JobId]) -> Result<Vec<Arc<JobRecord>>> {
        self.jobs(ids)
    }

    /// Writes all of it. A job of revision 1 is new; each other one was read in this transaction. Jobs that have ended
    /// go to the history, and those that came back leave it.
    /// `now` is the time that the command was given, for listeners.
    fn write(&mut self, changes: Changes, now: Now) -> Result<()>;

    /// Writes a schedule: new if its revision is 1.
    fn put_schedule(&mut self, schedule: &ScheduleRecord) -> Result<()>;

    /// Forgets a schedule and its firings. Whether it was there.
    fn delete_schedule(&mut self, id: ScheduleId) -> Result<bool>;

    /// Marks a firing as done, with its job if it has one. False if somebody did before: then nothing is to be done.
    fn fire(&mut self, schedule: ScheduleId, at: Timestamp, job: Option<JobId>) -> Result<bool>;

    /// Skips an addon or a type from now on.
    fn put_pause(&mut self, pause: &Pause) -> Result<()>;

    /// Skips it no longer. Whether it was skipped.
    fn delete_pause(&mut self, addon: &AddonId, job_type: Option<&JobType>) -> Result<bool>;

    /// Notes something, or with `None` forgets it.
    fn put_note(&mut self, name: &str, value: Option<&Json>) -> Result<()>;

    /// Forgets old things, at most `limit` of each kind, so that nobody waits long for it.
    fn prune(&mut self, retention: &Retention, limit: usize) -> Result<Pruned>;
}
