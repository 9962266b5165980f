//! The records that a command reads, said before it runs: so that a backend which several processes share can lock and
//! read those of a whole group of commands in one round trip, and in one order.
//!
//! A command may read more than it announced, as the next job of a lease; that is read on demand. It must not announce
//! less for the sake of speed alone: what is read on demand costs a round trip, and cannot be waited for.

use jobtree_protocol::{AddonId, Intent, JobId, JobType, LeaseId};
use jobtree_queue::RequestName;

use crate::execute::Submission;

/// Something that does not exist yet and that only one command may create at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// An idempotency key.
    Key(AddonId, String),
    /// A unique key.
    Unique(AddonId, JobType, String),
    /// The id of a job, if its submitter chose it.
    Job(JobId),
    /// The id of a lease that may be granted.
    Lease(LeaseId),
    /// A request for capacity that may be repeated.
    Request(RequestName),
}

/// The records that a command, or a group of commands, reads to decide by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names that the command may give to something new.
    pub names: Vec<Name>,
    /// Jobs that it changes or decides by.
    pub jobs: Vec<JobId>,
    /// Jobs of which it takes those that no other process has at the moment.
    pub free_jobs: Vec<JobId>,
    /// Jobs whose concurrency keys it takes; also those of `free_jobs` are.
    pub keyed_jobs: Vec<JobId>,
    /// Concurrency keys that it takes.
    pub holders: Vec<(AddonId, String)>,
    /// Leases that it changes or decides by.
    pub leases: Vec<LeaseId>,
    /// Jobs whose leases it changes or decides by.
    pub leases_of: Vec<JobId>,
    /// Leases all of whose jobs it changes.
    pub whole_leases: Vec<LeaseId>,
    /// Jobs that may end by it.
    pub ending: Vec<JobId>,
    /// It changes schedules or pauses.
    pub settings: bool,
    /// The number of jobs that the command submits.
    pub submissions: usize,
}

impl Needs {
    /// Adds those of a submission.
    pub(crate) fn submission(&mut self, submission: &Submission) {
        let intent: &Intent = &submission.intent;
        self.submissions += 1;
        if let Some(key) = &intent.idempotency_key {
            let name = Name::Key(intent.addon_id.clone(), key.clone());
            self.names.push(name);
        }
        if let Some(key) = &intent.unique_key {
            let (addon, job_type) = (intent.addon_id.clone(), intent.job_type.clone());
            self.names.push(Name::Unique(addon, job_type, key.clone()));
        }
        if submission.id_given {
            self.names.push(Name::Job(submission.id));
            self.jobs.push(submission.id);
        }
        self.jobs.extend(&intent.depends_on);
    }

    /// Adds a lease that is granted under this id, unless it was before.
    pub(crate) fn grant(&mut self, lease: LeaseId) {
        self.names.push(Name::Lease(lease));
        self.leases.push(lease);
    }

    /// Adds a job that changes, with the lease that it may be under.
    pub(crate) fn job_with_lease(&mut self, job: JobId) {
        self.jobs.push(job);
        self.leases_of.push(job);
    }

    /// Adds a job that may end.
    pub(crate) fn ending_job(&mut self, job: JobId) {
        self.jobs.push(job);
        self.ending.push(job);
    }

    /// About how many events follow, and none for commands that seldom have any.
    #[cfg(feature = "postgres")]
    pub(crate) fn likely_events(&self) -> usize {
        // A job that gets a place has two: that it is admitted, and that it is dispatched or runs.
        let of_jobs = self.submissions
            + 2 * (self.free_jobs.len() + self.keyed_jobs.len())
            + self.ending.len()
            + self.leases_of.len()
            + self.whole_leases.len();
        match of_jobs {
            0 => 0,
            some => some + self.leases.len(),
        }
    }

    /// About how many rows are read and written for it.
    pub(crate) fn rows(&self) -> usize {
        self.submissions + self.jobs.len() + self.free_jobs.len() + self.leases_of.len()
    }

    /// Adds those of another command.
    pub(crate) fn extend(&mut self, other: Self) {
        self.names.extend(other.names);
        self.jobs.extend(other.jobs);
        self.free_jobs.extend(other.free_jobs);
        self.keyed_jobs.extend(other.keyed_jobs);
        self.holders.extend(other.holders);
        self.leases.extend(other.leases);
        self.leases_of.extend(other.leases_of);
        self.whole_leases.extend(other.whole_leases);
        self.ending.extend(other.ending);
        self.settings |= other.settings;
        self.submissions += other.submissions;
    }
}
