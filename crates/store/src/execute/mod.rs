//! The rules, run: each command reads what its transition needs, asks `queue` for the outcome, and writes all of it at
//! once. It is written here once, for every backend.
//!
//! Nothing is written before everything is decided, so a command that is refused leaves no trace. What ends by a command
//! frees the jobs that wait for it in the same transaction, and what that ends, too.

mod leases;
mod logs;
mod schedules;
mod submit;

use std::collections::HashMap;
use std::sync::Arc;

use jobtree_protocol::{CancelRequest, EditRequest, JobId, JobState, LeaseId};
use jobtree_queue::transitions::{self, Changes, Context, Done, Redrive, Rules, Unclaimed};
use jobtree_queue::{JobRecord, LeaseRecord, Now};

use crate::error::StoreError;
use crate::tables::{Result, Tables};

pub use schedules::Firing;
pub use submit::Submission;

/// What every command is given: the time, a number to draw from, and the rules. Commands draw and read no clocks
/// themselves, so a run can be repeated.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// The time. Its calendar's is replaced by the database's where several machines share one.
    pub now: Now,
    /// Any number, another one each time.
    pub roll: u64,
    /// The numbers to go by.
    pub rules: Arc<Rules>,
}

/// A command at work.
pub(crate) struct Unit<'a> {
    tables: &'a mut dyn Tables,
    cx: Context<'a>,
}

impl<'a> Unit<'a> {
    pub(crate) fn new(tables: &'a mut dyn Tables, stamp: &'a Stamp) -> Result<Self> {
        let mut now = stamp.now;
        if let Some(wall) = tables.wall()? {
            now.wall = wall;
        }
        let cx = Context {
            now,
            roll: stamp.roll,
            rules: &stamp.rules,
        };
        Ok(Self { tables, cx })
    }

    pub(crate) fn tables(&mut self) -> &mut dyn Tables {
        self.tables
    }

    fn job(&mut self, id: JobId) -> Result<Arc<JobRecord>> {
        let found = self.tables.jobs(&[id])?.pop();
        found.ok_or(StoreError::NoJob(id))
    }

    fn lease(&mut self, id: LeaseId) -> Result<LeaseRecord> {
        self.tables.lease(id)?.ok_or(StoreError::NoLease(id))
    }

    /// The lease that a job runs under.
    fn lease_of(&mut self, job: &JobRecord) -> Result<Option<LeaseRecord>> {
        match job.lease_id {
            None => Ok(None),
            Some(id) => self.tables.lease(id),
        }
    }

    fn jobs_of(&mut self, lease: &LeaseRecord) -> Result<Vec<Arc<JobRecord>>> {
        let ids: Vec<JobId> = lease.jobs.iter().map(|job| job.id).collect();
        self.tables.jobs(&ids)
    }

    /// How many other jobs hold this one's concurrency key. One that waits holds none itself.
    fn key_holders(&mut self, job: &JobRecord) -> Result<u32> {
        match &job.intent.concurrency_key {
            None => Ok(0),
            Some(key) => self.tables.key_holders(&job.intent.addon_id, key),
        }
    }

    /// Writes what a transition changed, and what follows from it.
    fn settle<A>(&mut self, done: Done<A>) -> Result<A> {
        self.write(done.changes)?;
        Ok(done.answer)
    }

    fn write(&mut self, mut changes: Changes) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.free_waiting(&mut changes)?;
        self.tables.write(changes, self.cx.now)
    }

    /// Tells the jobs that wait for those that ended. Some may end by it, and others wait for these.
    fn free_waiting(&mut self, changes: &mut Changes) -> Result<()> {
        // Where a job stands among the changes, found when there is a job that waits at all.
        let mut places: Option<HashMap<JobId, usize>> = None;
        let mut next = 0;
        while let Some((ended, how)) = changes.ended.get(next).copied() {
            next += 1;
            for waiting in self.tables.waiting_for(ended)? {
                let places = places.get_or_insert_with(|| {
                    let jobs = changes.jobs.iter().enumerate();
                    jobs.map(|(place, job)| (job.id, place)).collect()
                });
                let job = match places.get(&waiting) {
                    Some(place) => Arc::clone(&changes.jobs[*place]),
                    None => self.job(waiting)?,
                };
                let Ok(done) = transitions::dependency_ended(&self.cx, &job, ended, how) else {
                    // It ended itself by this very command.
                    continue;
                };
                for job in done.changes.jobs {
                    match places.get(&job.id) {
                        Some(place) => changes.jobs[*place] = job,
                        None => {
                            places.insert(job.id, changes.jobs.len());
                            changes.jobs.push(job);
                        }
                    }
                }
                changes.events.extend(done.changes.events);
                changes.ended.extend(done.changes.ended);
            }
        }
        Ok(())
    }

    pub(crate) fn cancel(&mut self, id: JobId, request: &CancelRequest) -> Result<JobState> {
        let job = self.job(id)?;
        let lease = self.lease_of(&job)?;
        let done = transitions::cancel(&self.cx, &job, lease.as_ref(), request)?;
        self.settle(done)
    }

    pub(crate) fn redrive(&mut self, id: JobId, reason: Option<&str>) -> Result<JobState> {
        let job = self.job(id)?;
        let dependencies = self.states(&job.intent.depends_on)?;
        let same_unique = match &job.intent.unique_key {
            None => None,
            Some(key) => {
                let intent = &job.intent;
                self.tables
                    .unique_holder(&intent.addon_id, &intent.job_type, key)?
            }
        };
        let command = Redrive {
            dependencies: &dependencies,
            same_unique: same_unique.map(|(id, _)| id),
            reason,
        };
        let done = transitions::redrive(&self.cx, &job, command)?;
        self.settle(done)
    }

    /// For each of these jobs its state.
    fn states(&mut self, ids: &[JobId]) -> Result<Vec<(JobId, Option<JobState>)>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found: HashMap<JobId, JobState> = self
            .tables
            .jobs(ids)?
            .into_iter()
            .map(|job| (job.id, job.state))
            .collect();
        Ok(ids.iter().map(|id| (*id, found.get(id).copied())).collect())
    }

    pub(crate) fn hasten(&mut self, id: JobId) -> Result<()> {
        let job = self.job(id)?;
        let done = transitions::hasten(&self.cx, &job)?;
        self.settle(done)
    }

    pub(crate) fn edit(&mut self, id: JobId, request: &EditRequest) -> Result<Arc<JobRecord>> {
        let job = self.job(id)?;
        let done = transitions::edit(&self.cx, &job, request)?;
        let edited = done.changes.jobs.first().map_or(job, Arc::clone);
        self.settle(done)?;
        Ok(edited)
    }

    pub(crate) fn miss_deadline(&mut self, id: JobId) -> Result<JobState> {
        let job = self.job(id)?;
        let done = transitions::miss_deadline(&self.cx, &job)?;
        self.settle(done)
    }

    pub(crate) fn deny(&mut self, id: JobId, code: &str, reason: &str) -> Result<()> {
        let job = self.job(id)?;
        let done = transitions::deny(&self.cx, &job, code, reason)?;
        self.settle(done)
    }

    pub(crate) fn mark_at_risk(&mut self, id: JobId, reason: &str) -> Result<()> {
        let job = self.job(id)?;
        let done = transitions::mark_at_risk(&self.cx, &job, reason)?;
        self.settle(done)
    }

    /// Writes that a run is paused, or goes on.
    pub(crate) fn pause_run(&mut self, id: JobId, paused: bool, reason: String) -> Result<()> {
        let job = self.job(id)?;
        let done = transitions::pause_run(&self.cx, &job, paused, reason)?;
        self.settle(done)
    }

    pub(crate) fn return_unclaimed(
        &mut self,
        id: JobId,
        reservation: LeaseId,
        why: &Unclaimed,
    ) -> Result<JobState> {
        let job = self.job(id)?;
        let done = transitions::return_unclaimed(&self.cx, &job, reservation, why)?;
        self.settle(done)
    }
}
