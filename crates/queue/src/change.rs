//! What would have to change for a job to start.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, JobType, QuietState};

use crate::block::name;
use crate::busy::Resource;
use crate::policy::write_duration;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Busy, and the pressure on each resource, come down to this and stay for so long.
    BusyAtMost {
        /// The bound, 0..=10.
        busy: f64,
        /// The state that makes of it.
        state: QuietState,
        /// For how long.
        lasting: Duration,
    },
    /// So much time passes.
    Wait(Duration),
    /// This moment comes.
    WaitUntil(Timestamp),
    /// The pressure on one resource comes down to this.
    PressureAtMost {
        /// The resource.
        resource: Resource,
        /// The bound, 0..=10.
        level: f64,
    },
    /// So many units are freed.
    FreeUnits(u32),
    /// The machine is measured again.
    NextSample,
    /// So many leases of the node end.
    FreeLeases(u32),
    /// So many leases of the addon end.
    FreeAddonLeases(u32),
    /// So many units of the addon are freed.
    FreeAddonUnits(u32),
    /// The addon is resumed.
    ResumeAddon,
    /// The type is resumed.
    ResumeType,
    /// So many jobs with its concurrency key end.
    FreeKey(u32),
    /// It is looked at by the node that it asks for, or this one gets the labels.
    OtherNode,
    /// The node is not drained any more.
    StopDraining,
    /// A worker of the type that is busy now claims again.
    Worker,
    /// A worker for its type is started.
    Serve {
        /// The addon.
        addon: AddonId,
        /// The type.
        job_type: JobType,
    },
    /// These jobs are gone: started, or cancelled.
    JobsGone(Vec<JobId>),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::BusyAtMost {
                busy,
                state,
                lasting,
            } => {
                let (state, lasting) = (name(*state), write_duration(*lasting));
                write!(
                    f,
                    "busy comes down to {busy:.1} or less ({state}) and stays there for {lasting}"
                )
            }
            Change::Wait(time) => write!(f, "{:.0} s pass", time.as_secs_f64().ceil()),
            Change::WaitUntil(at) => write!(f, "{at} comes"),
            Change::PressureAtMost { resource, level } => {
                write!(
                    f,
                    "the pressure on {} comes down to {level:.1} or less",
                    resource.name()
                )
            }
            Change::FreeUnits(1) => f.write_str("1 unit is freed"),
            Change::FreeUnits(units) => write!(f, "{units} units are freed"),
            Change::NextSample => f.write_str("the machine is measured again"),
            Change::FreeLeases(1) => f.write_str("a lease ends"),
            Change::FreeLeases(count) => write!(f, "{count} leases end"),
            Change::FreeAddonLeases(count) => write!(f, "{count} leases of its addon end"),
            Change::FreeAddonUnits(units) => write!(f, "{units} units of its addon are freed"),
            Change::ResumeAddon => f.write_str("its addon is resumed"),
            Change::ResumeType => f.write_str("its type is resumed"),
            Change::FreeKey(1) => f.write_str("a job with its concurrency key ends"),
            Change::FreeKey(count) => write!(f, "{count} jobs with its concurrency key end"),
            Change::OtherNode => f.write_str(
                "a daemon that has what it asks for takes it (jobtree serve --node NAME --label LABEL)",
            ),
            Change::StopDraining => f.write_str("the node is not drained any more"),
            Change::Worker => f.write_str("a worker for its addon and type claims its next job"),
            Change::Serve { addon, job_type } => {
                write!(
                    f,
                    "a worker for addon {addon} and type {job_type} is started"
                )
            }
            Change::JobsGone(jobs) if jobs.len() == 1 => {
                write!(f, "job {} has started or is cancelled", jobs[0])
            }
            Change::JobsGone(jobs) => write!(
                f,
                "{} jobs before it have started or are cancelled",
                jobs.len()
            ),
        }
    }
}
