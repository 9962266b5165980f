//! What a writing transaction knows: the records that it locked and read, with the changes that its commands decided on
//! and that the database does not have yet.
//!
//! Commands decide by this and write to it. Each table is written once, at the end of the transaction (`flush`): the last
//! state of each record. A command that is refused has written nothing, so nothing has to be taken back and no savepoint
//! is needed. What is here stays true until the end of the transaction, since all of it is locked; afterwards nothing is.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, JobState, JobType, LeaseId};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, LeasedJob, RequestName};

use super::events::NewEvents;
use crate::backend::Written;
use crate::error::StoreError;
use crate::ids::{IdMap, IdSet};
use crate::needs::{Name, Needs};
use crate::tables::Result;

/// The table that has a job's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `scheduler_jobs`.
    Hot,
    /// `scheduler_jobs_history`.
    History,
}

impl Place {
    pub(super) fn of(state: JobState) -> Self {
        if state.is_ended() {
            Self::History
        } else {
            Self::Hot
        }
    }
}

/// A job that is locked, or surely does not exist.
pub(super) struct KnownJob {
    /// As it is after the commands so far; none if there is no such job.
    pub(super) job: Option<Arc<JobRecord>>,
    /// Where the database has it.
    pub(super) place: Option<Place>,
    /// Where its trail ends.
    pub(super) last_event: Option<i64>,
    is_dirty: bool,
}

/// A lease, likewise.
pub(super) struct KnownLease {
    pub(super) lease: Option<LeaseRecord>,
    pub(super) is_stored: bool,
    is_dirty: bool,
}

/// A concurrency key.
pub(super) type ConcurrencyKey = (AddonId, String);

#[derive(Default)]
pub(super) struct Overlay {
    pub(super) clock: Option<Timestamp>,
    jobs: IdMap<JobId, KnownJob>,
    leases: IdMap<LeaseId, KnownLease>,
    pub(super) keys: HashMap<(AddonId, String), Option<KeyRecord>>,
    pub(super) unique: HashMap<(AddonId, JobType, String), Option<(JobId, JobState)>>,
    /// For each job that holds a key: what it counts as.
    pub(super) holders: HashMap<ConcurrencyKey, IdMap<JobId, LeaseId>>,
    pub(super) waits: IdMap<JobId, Vec<JobId>>,
    pub(super) requests: HashMap<RequestName, Option<LeaseId>>,
    /// Names that no other transaction can give until the end of this one.
    pub(super) names: HashSet<Name>,
    pub(super) has_all_names: bool,
    pub(super) has_all_holders: bool,
    /// Jobs that a claim goes without: another transaction has them, or they do not exist.
    pub(super) skipped: IdSet<JobId>,
    /// What another transaction has locked and the present command wanted. It waits for that in a transaction that begins
    /// with it.
    pub(super) missed: Option<Needs>,
    pub(super) dirty_jobs: Vec<JobId>,
    pub(super) dirty_leases: Vec<LeaseId>,
    /// Jobs whose tags an edit has changed.
    pub(super) retagged: IdSet<JobId>,
    pub(super) new_keys: Vec<KeyRecord>,
    /// Notes to be written, or deleted.
    pub(super) notes: BTreeMap<String, Option<String>>,
    pub(super) events: NewEvents,
    /// For listeners, once it is committed.
    pub(super) written: Vec<Written>,
    /// Pauses or schedules were written.
    pub(super) settings_changed: bool,
}

/// The answer to a command that wanted something which another transaction holds, if it is given at all.
pub(super) fn contended() -> StoreError {
    StoreError::CommitFailed {
        why: "another scheduler holds records that this call needs".into(),
    }
}

impl Overlay {
    pub(super) fn job(&self, id: JobId) -> Option<&KnownJob> {
        self.jobs.get(&id)
    }

    pub(super) fn lease(&self, id: LeaseId) -> Option<&KnownLease> {
        self.leases.get(&id)
    }

    /// Takes a job that was locked and read.
    pub(super) fn read_job(&mut self, job: Arc<JobRecord>, place: Place, last_event: Option<i64>) {
        self.jobs.entry(job.id).or_insert(KnownJob {
            job: Some(job),
            place: Some(place),
            last_event,
            is_dirty: false,
        });
    }

    /// Notes that a job does not exist.
    pub(super) fn no_job(&mut self, id: JobId) {
        self.jobs.entry(id).or_insert(KnownJob {
            job: None,
            place: None,
            last_event: None,
            is_dirty: false,
        });
    }

    /// Takes a lease that was locked and read, or notes that it does not exist.
    pub(super) fn read_lease(&mut self, id: LeaseId, lease: Option<LeaseRecord>) {
        let is_stored = lease.is_some();
        self.leases.entry(id).or_insert(KnownLease {
            lease,
            is_stored,
            is_dirty: false,
        });
    }

    /// Leaves the command to a later transaction, which begins with these locks.
    pub(super) fn miss<T>(&mut self, needs: Needs) -> Result<T> {
        self.missed.get_or_insert_default().extend(needs);
        Err(contended())
    }

    pub(super) fn has_name(&self, name: &Name) -> bool {
        self.has_all_names || self.names.contains(name)
    }

    /// Returns `true` if the database lacks something besides events.
    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty_jobs.is_empty()
            || !self.dirty_leases.is_empty()
            || !self.new_keys.is_empty()
            || !self.notes.is_empty()
    }

    /// Takes what a command decided.
    pub(super) fn write(&mut self, written: Written) -> Result<()> {
        let changes = &written.changes;
        for job in changes.jobs.iter().filter(|job| job.revision == 1) {
            if self.job(job.id).is_some_and(|known| known.job.is_some()) {
                return Err(StoreError::Database {
                    message: format!(
                        "job {} is there already; give each job an id of its own",
                        job.id
                    ),
                });
            }
        }
        for job in &changes.jobs {
            self.put_job(job, changes);
        }
        self.put_events(changes)?;
        for lease in &changes.leases {
            self.put_lease(lease.clone());
        }
        for key in &changes.keys {
            let name = (key.addon_id.clone(), key.key.clone());
            self.keys.insert(name, Some(key.clone()));
            self.new_keys.push(key.clone());
        }
        self.written.push(written);
        Ok(())
    }

    /// Gives the events their places, and adds them to the trails of the jobs that are written with them.
    fn put_events(&mut self, changes: &Changes) -> Result<()> {
        // Events mostly come in the order of their jobs, so the next one's job is near.
        let mut near = 0;
        for event in changes.events.iter().filter(|event| event.kind.is_kept()) {
            let jobs = &changes.jobs;
            let place = event.job_id.and_then(|id| {
                let places = (near..jobs.len()).chain(0..near);
                places.into_iter().find(|place| jobs[*place].id == id)
            });
            near = place.unwrap_or(near);
            let mut known = place.and_then(|place| self.jobs.get_mut(&jobs[place].id));
            let previous = known.as_ref().and_then(|known| known.last_event);
            let at = self.events.push(event, previous)?;
            if let Some(known) = &mut known {
                known.last_event = Some(at);
            }
        }
        Ok(())
    }

    fn put_job(&mut self, job: &Arc<JobRecord>, changes: &Changes) {
        let known = self.jobs.entry(job.id).or_insert(KnownJob {
            job: None,
            place: None,
            last_event: None,
            is_dirty: false,
        });
        let before = known.job.replace(Arc::clone(job));
        if !std::mem::replace(&mut known.is_dirty, true) {
            self.dirty_jobs.push(job.id);
        }
        let retagged = before
            .as_ref()
            .is_some_and(|before| before.intent.tags != job.intent.tags);
        if retagged {
            self.retagged.insert(job.id);
        }
        self.skipped.remove(&job.id);
        self.follow_keys(before.as_deref(), job);
        // A lease that is not written with its job may know something old of it.
        let leases = [before.and_then(|before| before.lease_id), job.lease_id];
        for lease in leases.into_iter().flatten() {
            if changes.leases.iter().any(|changed| changed.id == lease) {
                continue;
            }
            let known = self.leases.get_mut(&lease);
            if let Some(lease) = known.and_then(|known| known.lease.as_mut()) {
                put_in_lease(lease, job);
            }
        }
    }

    /// What is found by a job's keys and dependencies, as far as it was read.
    fn follow_keys(&mut self, before: Option<&JobRecord>, job: &JobRecord) {
        let intent = &job.intent;
        if let Some(key) = &intent.unique_key {
            let name = (
                intent.addon_id.clone(),
                intent.job_type.clone(),
                key.clone(),
            );
            if let Some(holder) = self.unique.get_mut(&name) {
                if !job.state.is_ended() {
                    *holder = Some((job.id, job.state));
                } else if holder.is_some_and(|(id, _)| id == job.id) {
                    *holder = None;
                }
            }
        }
        if let Some(key) = &intent.concurrency_key {
            let name = (intent.addon_id.clone(), key.clone());
            if let Some(holders) = self.holders.get_mut(&name) {
                match job.key_holder() {
                    Some(holder) => holders.insert(job.id, holder),
                    None => holders.remove(&job.id),
                };
            }
        }
        for dependency in &intent.depends_on {
            let Some(waiting) = self.waits.get_mut(dependency) else {
                continue;
            };
            let waits = job.waiting_for.contains(dependency);
            let waited = before.is_some_and(|before| before.waiting_for.contains(dependency));
            if waits && !waited {
                waiting.push(job.id);
                waiting.sort();
            } else if waited && !waits {
                waiting.retain(|id| *id != job.id);
            }
        }
    }

    fn put_lease(&mut self, mut lease: LeaseRecord) {
        if !lease.is_live() {
            // As it is read: with its jobs that have not ended.
            lease.jobs.clear();
        }
        if let Some(name) = lease.request_name()
            && let Some(granted) = self.requests.get_mut(&name)
        {
            if lease.is_live() {
                *granted = Some(lease.id);
            } else if *granted == Some(lease.id) {
                *granted = None;
            }
        }
        let known = self.leases.entry(lease.id).or_insert(KnownLease {
            lease: None,
            is_stored: false,
            is_dirty: false,
        });
        if !std::mem::replace(&mut known.is_dirty, true) {
            self.dirty_leases.push(lease.id);
        }
        known.lease = Some(lease);
    }

    /// The database has everything now, but for events.
    pub(super) fn flushed(&mut self) {
        for id in self.dirty_jobs.drain(..) {
            if let Some(known) = self.jobs.get_mut(&id) {
                known.is_dirty = false;
                known.place = known.job.as_ref().map(|job| Place::of(job.state));
            }
        }
        for id in self.dirty_leases.drain(..) {
            if let Some(known) = self.leases.get_mut(&id) {
                known.is_dirty = false;
                known.is_stored = true;
            }
        }
        self.retagged.clear();
        self.new_keys.clear();
        self.notes.clear();
    }
}

/// Lets a lease's list agree with a job's record.
fn put_in_lease(lease: &mut LeaseRecord, job: &JobRecord) {
    let place = lease.jobs.iter().position(|listed| listed.id == job.id);
    match (place, job.lease_id == Some(lease.id)) {
        (Some(place), true) => lease.jobs[place] = LeasedJob::of(job),
        (Some(place), false) => {
            lease.jobs.remove(place);
        }
        (None, true) => {
            lease.jobs.push(LeasedJob::of(job));
            lease.jobs.sort_by_key(|listed| listed.position);
        }
        (None, false) => {}
    }
}
