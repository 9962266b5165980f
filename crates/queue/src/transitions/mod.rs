//! Every change of a job or a lease, and the only code that makes one.
//!
//! A transition is a function of the records it concerns, a command, and a [`Context`] (time, a number to draw from,
//! rules). It returns all records that are to be written and all events that go with them ([`Changes`]), or an error that
//! names the state and says what to do; it never changes half of something, and it changes nothing itself. Whoever calls
//! it writes all of the changes in one transaction with the reading of the records, or none.
//!
//! | function | from | to |
//! | --- | --- | --- |
//! | [`submit()`] | nothing | QUEUED; CANCELED if a dependency has failed |
//! | [`reserve`] | QUEUED | DISPATCHING |
//! | [`return_unclaimed`] | DISPATCHING | QUEUED |
//! | [`take_up`], [`ack`] | DISPATCHING | RUNNING |
//! | [`claim`] | QUEUED, DISPATCHING | RUNNING (its worker begins it at once), DISPATCHING under the lease |
//! | [`complete`], [`complete_many`] | RUNNING, DISPATCHING under the lease | DONE, FAILED, CANCELED, QUEUED (another attempt) |
//! | | DISPATCHING under the lease (the next job) | RUNNING |
//! | [`release`], [`revoke`] | RUNNING, DISPATCHING under the lease | QUEUED, CANCELED |
//! | [`expire`] | RUNNING, DISPATCHING under the lease | QUEUED (in hand: a rescue), FAILED (quarantined), CANCELED |
//! | [`time_out`] | RUNNING | QUEUED (another attempt), FAILED, CANCELED |
//! | | DISPATCHING under the lease | QUEUED, CANCELED |
//! | [`miss_deadline`] | QUEUED | FAILED |
//! | [`cancel`] | QUEUED, DISPATCHING without a lease | CANCELED |
//! | | RUNNING, DISPATCHING under a lease | the same, asked to stop |
//! | [`dependency_ended`] | QUEUED | QUEUED, CANCELED |
//! | [`redrive()`] | FAILED, CANCELED | QUEUED |
//! | [`hasten`], [`edit`], [`deny`], [`mark_at_risk`] | QUEUED | QUEUED |
//! | [`heartbeat`], [`report`] | DISPATCHING under the lease (the one it names) | RUNNING |
//! | [`heartbeat`] | DISPATCHING under the lease (given back) | QUEUED, CANCELED |
//! | [`heartbeat`], [`report`], [`log`], [`pause_run`] | RUNNING | RUNNING |
//! | [`ask_back`] | DISPATCHING under the lease | the same, its worker asked to give it back |
//! | [`admit`] | no job | a lease without one |
//!
//! Which steps there are between stages is in `state.rs`, and nothing else sets a state.
//!
//! A call that is repeated after it took effect is answered as before, with `repeated` set and no changes: answers get
//! lost, and workers ask again.

mod begin;
mod command;
mod dispatch;
mod ending;
mod error;
mod grant;
mod held;
mod redrive;
mod state;
mod submit;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{Event, JobId, JobState, LeaseId, whole_micros};
use serde::{Deserialize, Serialize};

use crate::now::{Now, wall_after};
use crate::record::{JobRecord, KeyRecord, LeaseRecord};

pub use begin::ask_back;
pub use command::{
    Abilities, Admit, Claim, LoadAdvice, Proof, Proposed, Reserve, RuntimeProof, Submit, TakeUp,
    TimeOut, Unclaimed,
};
pub use dispatch::{Claimed, ack, claim, reserve, return_unclaimed, take_up};
pub use ending::{CompletedMany, cancel, complete, complete_many, miss_deadline, time_out};
pub use error::TransitionError;
pub use grant::admit;
pub use held::{expire, heartbeat, heartbeat_needs, log, pause_run, release, report, revoke};
pub use redrive::{Redrive, redrive};
pub use submit::{dependency_ended, submit, submit_among};
pub use waiting::{deny, edit, hasten, mark_at_risk};

/// The numbers that transitions go by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// How long a lease holds without being renewed.
    pub lease_ttl_sec: u32,
    /// How long a dispatch waits to be taken up.
    pub dispatch_timeout_sec: u32,
    /// With its so manieth rescue a job is quarantined.
    pub quarantine_after: u32,
    /// How much of an error is kept.
    pub error_bytes: usize,
    /// How much of what a job prints is kept of each run.
    pub log_bytes: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            lease_ttl_sec: 30,
            dispatch_timeout_sec: 30,
            quarantine_after: 3,
            error_bytes: 16 << 10,
            log_bytes: 1 << 20,
        }
    }
}

impl Rules {
    /// How long a dispatch waits to be taken up.
    pub fn dispatch_timeout(&self) -> Duration {
        Duration::from_secs(self.dispatch_timeout_sec.into())
    }
}

/// What every transition is given.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The time.
    pub now: Now,
    /// Any number, another one each time: what is random is drawn from it and from the job's id.
    pub roll: u64,
    /// The numbers to go by.
    pub rules: &'a Rules,
}

impl Context<'_> {
    /// The calendar's time, cut to what stores keep.
    fn wall(&self) -> Timestamp {
        whole_micros(self.now.wall)
    }

    /// So much later, likewise.
    fn wall_after(&self, delay: Duration) -> Timestamp {
        whole_micros(wall_after(self.now.wall, delay))
    }
}

/// What one transition writes: all of it, in one transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Jobs, as they are from now on. Each had the revision before this one, or did not exist if it is 1. Whoever keeps
    /// one or answers with it shares the record.
    pub jobs: Vec<Arc<JobRecord>>,
    /// Leases, likewise.
    pub leases: Vec<LeaseRecord>,
    /// Idempotency keys to be remembered.
    pub keys: Vec<KeyRecord>,
    /// What happened, in order. Those that are not kept ([`jobtree_protocol::EventKind::is_kept`]) are only told.
    pub events: Vec<Event>,
    /// Jobs that ended by this. Those that wait for one are given to [`dependency_ended`] in the same transaction; that
    /// may end further jobs. They may also be moved to the history.
    pub ended: Vec<(JobId, JobState)>,
    /// Leases whose workers are asked for something by this, and hear of it with their next heartbeat: for listeners that
    /// can make a worker ask at once.
    pub asked: Vec<LeaseId>,
}

impl Changes {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
            && self.leases.is_empty()
            && self.keys.is_empty()
            && self.events.is_empty()
    }

    /// Adds what a later transition of the same transaction writes. A record that both changed is written as the later
    /// one has it, some revisions further on.
    pub fn absorb(&mut self, later: Self) {
        for job in later.jobs {
            let known = if job.revision == 1 {
                None
            } else {
                self.jobs.iter_mut().find(|known| known.id == job.id)
            };
            match known {
                Some(known) => *known = job,
                None => self.jobs.push(job),
            }
        }
        for lease in later.leases {
            match self.leases.iter_mut().find(|known| known.id == lease.id) {
                Some(known) => *known = lease,
                None => self.leases.push(lease),
            }
        }
        self.keys.extend(later.keys);
        self.events.extend(later.events);
        self.ended.extend(later.ended);
        self.asked.extend(later.asked);
    }
}

/// An answer, and what has to be written before it is given.
#[derive(Clone, Debug, PartialEq)]
pub struct Done<A> {
    /// For the caller.
    pub answer: A,
    /// For the store.
    pub changes: Changes,
    /// The call took effect before; nothing is to be written.
    pub repeated: bool,
}

impl<A> Done<A> {
    fn new(answer: A, changes: Changes) -> Self {
        Self {
            answer,
            changes,
            repeated: false,
        }
    }

    fn repeated(answer: A) -> Self {
        Self {
            answer,
            changes: Changes::default(),
            repeated: true,
        }
    }
}

/// What every transition returns.
pub type Outcome<A> = Result<Done<A>, TransitionError>;
