//! Why a transition was refused.

use std::fmt;

use jiff::Timestamp;
use jobtree_protocol::{ApiError, ErrorCode, FieldError, JobId, JobState, LeaseId, NodeId};

use crate::record::LeaseEnd;

/// Why nothing was changed. Says what to do, and where a state is in the way, names it.
#[derive(Clone, Debug, PartialEq)]
pub enum TransitionError {
    /// The job's state does not allow the command.
    WrongState {
        /// The job.
        job_id: JobId,
        /// Its state.
        state: JobState,
        /// What was asked for.
        command: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// The caller's lease is not the one that the job runs under.
    NotYourLease {
        /// The job.
        job_id: JobId,
        /// Its state.
        state: JobState,
        /// The lease that the caller gave.
        given: LeaseId,
    },
    /// The lease has ended.
    LeaseEnded {
        /// The lease.
        lease_id: LeaseId,
        /// How.
        end: LeaseEnd,
    },
    /// The lease and the command's job do not belong together.
    NotInLease {
        /// The job.
        job_id: JobId,
        /// The lease.
        lease_id: LeaseId,
    },
    /// A lease with jobs that have not ended cannot just be released, nor get another one.
    UnfinishedJobs {
        /// The lease.
        lease_id: LeaseId,
        /// They.
        jobs: Vec<JobId>,
    },
    /// Another process took the dispatch up.
    TakenUp {
        /// The job.
        job_id: JobId,
        /// Its state.
        state: JobState,
    },
    /// The lease's worker did not declare that it returns jobs.
    KeepsBatch {
        /// The lease.
        lease_id: LeaseId,
    },
    /// The job may not run on this node.
    WrongNode {
        /// The job.
        job_id: JobId,
        /// Where it must run.
        wanted: NodeId,
        /// Where it was to run.
        given: NodeId,
    },
    /// The job's time has not come.
    TooEarly {
        /// The job.
        job_id: JobId,
        /// From when on.
        not_before: Timestamp,
    },
    /// The job waits for others.
    Waiting {
        /// The job.
        job_id: JobId,
        /// How many.
        count: usize,
    },
    /// As many jobs with this concurrency key run as may.
    KeyFull {
        /// The job.
        job_id: JobId,
        /// The key.
        key: String,
        /// How many may.
        limit: u32,
    },
    /// A job whose worker crashed gets a lease of its own.
    RunsAlone {
        /// The job.
        job_id: JobId,
    },
    /// The batch has jobs of several addons.
    MixedAddons {
        /// One of another addon than the first.
        job_id: JobId,
    },
    /// What the caller saw has changed since, or has not come yet: there is nothing to do.
    NotDue {
        /// What is not due.
        what: &'static str,
    },
    /// The idempotency key was used for another body.
    KeyConflict {
        /// The key.
        key: String,
        /// The job it was used for.
        job_id: JobId,
    },
    /// The key of a request for capacity was used for other units or another type, and that lease holds.
    RequestConflict {
        /// The key.
        key: String,
        /// The lease that it was used for.
        lease_id: LeaseId,
    },
    /// The id was used for another body.
    IdConflict {
        /// The id.
        job_id: JobId,
    },
    /// A job with this unique key has not ended.
    UniqueConflict {
        /// The job that was to come back.
        job_id: JobId,
        /// The one that has the key.
        other: JobId,
    },
    /// Jobs that a submission depends on do not exist.
    UnknownDependencies {
        /// Their places in `depends_on`, and their ids.
        unknown: Vec<(usize, JobId)>,
    },
    /// A job cannot come back while what it depends on has failed.
    DependencyFailed {
        /// The job.
        job_id: JobId,
        /// What it depends on.
        dependency: JobId,
        /// How that ended.
        state: JobState,
    },
    /// The call is for another lease than the one whose record was given.
    OtherLease {
        /// The lease of the call.
        given: LeaseId,
        /// The record's.
        found: LeaseId,
    },
    /// The lease belongs to another addon than the job.
    OtherAddon {
        /// The job.
        job_id: JobId,
        /// The lease.
        lease_id: LeaseId,
    },
    /// The records given do not belong together.
    Inconsistent {
        /// The lease.
        lease_id: LeaseId,
        /// The job that should be in it, or should not.
        job_id: JobId,
    },
    /// Fields of a request do not go with the rest of the job.
    Invalid {
        /// The fields.
        wrong: Vec<FieldError>,
    },
    /// There is nothing to claim.
    NothingToClaim {
        /// Why not, for each job that was proposed.
        skipped: Vec<(JobId, Box<TransitionError>)>,
    },
}

impl fmt::Display for TransitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongState {
                job_id,
                state,
                command,
                advice,
            } => {
                write!(
                    f,
                    "job {job_id} is {state}, which does not allow {command}: {advice}"
                )
            }
            Self::NotYourLease {
                job_id,
                state,
                given,
            } => write!(
                f,
                "job {job_id} is {state}, and lease {given} is not the one it runs under: stop working on it, its \
                 outcome is decided elsewhere"
            ),
            Self::LeaseEnded { lease_id, end } => {
                write!(
                    f,
                    "lease {lease_id} {}: stop what ran under it, and ask for a new one",
                    end.as_str()
                )
            }
            Self::NotInLease { job_id, lease_id } => {
                write!(
                    f,
                    "job {job_id} has ended under lease {lease_id}, or never was in it: name one of its jobs"
                )
            }
            Self::UnfinishedJobs { lease_id, jobs } => write!(
                f,
                "lease {lease_id} has {} jobs that have not ended ({}): complete them and it ends by itself, or release \
                 it with return_jobs to let others run them",
                jobs.len(),
                list(jobs)
            ),
            Self::TakenUp { job_id, state } => write!(
                f,
                "job {job_id} is {state}: another worker has a lease for it; leave it to that one (give an \
                 instance_id, and a repeated request gets the same lease again)"
            ),
            Self::KeepsBatch { lease_id } => write!(
                f,
                "the worker of lease {lease_id} did not declare returns_unbegun with its claim, and keeps its jobs: wait \
                 until it has run them, or revoke the lease"
            ),
            Self::WrongNode {
                job_id,
                wanted,
                given,
            } => {
                write!(
                    f,
                    "job {job_id} belongs to node {wanted}, not {given}: dispatch it there"
                )
            }
            Self::TooEarly { job_id, not_before } => {
                write!(f, "job {job_id} may not start before {not_before}: wait")
            }
            Self::Waiting { job_id, count } => {
                write!(
                    f,
                    "job {job_id} waits for {count} jobs that have not ended: wait for them, or cancel them"
                )
            }
            Self::KeyFull { job_id, key, limit } => write!(
                f,
                "job {job_id} has the concurrency key {key:?}, and {limit} with it run already: wait until one ends"
            ),
            Self::RunsAlone { job_id } => {
                write!(
                    f,
                    "job {job_id} lost a worker before, and gets a lease of its own: claim it alone"
                )
            }
            Self::MixedAddons { job_id } => {
                write!(
                    f,
                    "job {job_id} is of another addon than the first of the batch: claim it apart"
                )
            }
            Self::NotDue { what } => {
                write!(f, "{what} is not due, or no longer: there is nothing to do")
            }
            Self::KeyConflict { key, job_id } => write!(
                f,
                "idempotency key {key:?} was used for job {job_id} with another body: draw a new key for a new job"
            ),
            Self::RequestConflict { key, lease_id } => write!(
                f,
                "request key {key:?} was used for lease {lease_id} with other units or another type: release that lease, or draw a new key for another one"
            ),
            Self::IdConflict { job_id } => {
                write!(
                    f,
                    "job {job_id} exists with another body: draw a new id for a new job"
                )
            }
            Self::UniqueConflict { job_id, other } => write!(
                f,
                "job {job_id} cannot come back while job {other} has its unique key: wait until that ends, or cancel it"
            ),
            Self::UnknownDependencies { unknown } => {
                let ids: Vec<JobId> = unknown.iter().map(|(_, id)| *id).collect();
                write!(
                    f,
                    "depends_on names jobs that do not exist ({}): submit them before, or leave them out",
                    list(&ids)
                )
            }
            Self::DependencyFailed {
                job_id,
                dependency,
                state,
            } => write!(
                f,
                "job {job_id} depends on job {dependency}, which is {state}: bring that back first, or submit a new job"
            ),
            Self::OtherAddon { job_id, lease_id } => {
                write!(
                    f,
                    "job {job_id} and lease {lease_id} belong to different addons: ask for a lease of the job's"
                )
            }
            Self::OtherLease { given, found } => {
                write!(
                    f,
                    "the call is for lease {given}, not for {found}: name the same lease everywhere"
                )
            }
            Self::Inconsistent { lease_id, job_id } => write!(
                f,
                "the records of lease {lease_id} and job {job_id} do not belong together: read them in one transaction"
            ),
            Self::Invalid { wrong } => {
                let each: Vec<_> = wrong.iter().map(ToString::to_string).collect();
                f.write_str(&each.join("; "))
            }
            Self::NothingToClaim { skipped } => match skipped.first() {
                Some((_, why)) => write!(
                    f,
                    "none of {} jobs can be claimed; the first: {why}",
                    skipped.len()
                ),
                None => write!(f, "no job was proposed: wait for one"),
            },
        }
    }
}

impl std::error::Error for TransitionError {}

/// The first few of a list, for a message.
fn list(ids: &[JobId]) -> String {
    const SHOWN: usize = 3;
    let mut told: Vec<String> = ids.iter().take(SHOWN).map(ToString::to_string).collect();
    if ids.len() > SHOWN {
        told.push("…".into());
    }
    told.join(", ")
}

impl TransitionError {
    /// The state that is in the way, if one is.
    pub fn state(&self) -> Option<JobState> {
        match self {
            Self::WrongState { state, .. }
            | Self::NotYourLease { state, .. }
            | Self::TakenUp { state, .. }
            | Self::DependencyFailed { state, .. } => Some(*state),
            _ => None,
        }
    }

    fn code(&self) -> ErrorCode {
        match self {
            Self::WrongState { .. }
            | Self::TakenUp { .. }
            | Self::KeepsBatch { .. }
            | Self::UnfinishedJobs { .. }
            | Self::DependencyFailed { .. } => ErrorCode::WrongState,
            Self::NotYourLease { .. } | Self::LeaseEnded { .. } | Self::NotInLease { .. } => {
                ErrorCode::LeaseLost
            }
            Self::OtherLease { .. } | Self::Invalid { .. } => ErrorCode::Invalid,
            Self::OtherAddon { .. } => ErrorCode::Forbidden,
            Self::Inconsistent { .. } => ErrorCode::Unavailable,
            Self::KeyConflict { .. }
            | Self::RequestConflict { .. }
            | Self::IdConflict { .. }
            | Self::UniqueConflict { .. } => ErrorCode::Conflict,
            Self::UnknownDependencies { .. } => ErrorCode::Invalid,
            Self::WrongNode { .. }
            | Self::TooEarly { .. }
            | Self::Waiting { .. }
            | Self::KeyFull { .. }
            | Self::RunsAlone { .. }
            | Self::MixedAddons { .. }
            | Self::NotDue { .. }
            | Self::NothingToClaim { .. } => ErrorCode::NotNow,
        }
    }
}

impl From<&TransitionError> for ApiError {
    fn from(error: &TransitionError) -> Self {
        let mut told = ApiError::new(error.code(), error.to_string());
        told.state = error.state();
        match error {
            TransitionError::LeaseEnded { lease_id, .. }
            | TransitionError::KeepsBatch { lease_id }
            | TransitionError::UnfinishedJobs { lease_id, .. }
            | TransitionError::NotInLease { lease_id, .. } => told.lease_id = Some(*lease_id),
            TransitionError::UnknownDependencies { unknown } => {
                let message = "does not exist: submit it before, or leave it out";
                let field = |(place, id): &(usize, JobId)| {
                    FieldError::new(format!("depends_on[{place}]"), format!("{id} {message}"))
                };
                told.fields = unknown.iter().map(field).collect();
            }
            TransitionError::Invalid { wrong } => told.fields.clone_from(wrong),
            _ => {}
        }
        told
    }
}
