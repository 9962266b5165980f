//! The audit trail: each change of a job or lease, in the commit that made it.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{JobId, JobState, LeaseId, NodeId};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// What happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum EventKind {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl EventKind {
            /// All kinds. A store may keep a kind's place in here: new ones are added at the end.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// As it is written.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

kinds! {
    /// The job is in the store.
    Submitted => "SUBMITTED",
    /// Admission passed; the reason tells the numbers.
    Admitted => "ADMITTED",
    /// Admission did not pass. Written when the reason changes, not each time.
    Denied => "DENIED",
    /// A place is reserved on a node; or, with a lease, a worker has claimed it and not begun it.
    Dispatching => "DISPATCHING",
    /// Its worker has begun it. A short job may end without this event: its completion tells both times.
    Running => "RUNNING",
    /// It ended well.
    Done => "DONE",
    /// It ended badly.
    Failed => "FAILED",
    /// It was stopped.
    Canceled => "CANCELED",
    /// It ran beyond `max_runtime_sec`, or waited beyond its deadline.
    Timeout => "TIMEOUT",
    /// The run failed and another follows.
    RetryScheduled => "RETRY_SCHEDULED",
    /// It took too many workers with it; it failed.
    Quarantined => "QUARANTINED",
    /// Its deadline will probably be missed.
    DeadlineAtRisk => "DEADLINE_AT_RISK",
    /// A lease was granted.
    LeaseGranted => "LEASE_GRANTED",
    /// A lease ran out. With a job: that job was in its worker's hand, and was rescued.
    LeaseExpired => "LEASE_EXPIRED",
    /// A lease was given back, or all of its jobs ended.
    LeaseReleased => "LEASE_RELEASED",
    /// A lease was taken away.
    LeaseRevoked => "LEASE_REVOKED",
    /// Somebody wants a running job to stop.
    CancelRequested => "CANCEL_REQUESTED",
    /// The job waits again, and nothing was counted: its dispatch was not taken up, its worker gave it back, or its
    /// batch ended before its turn.
    Returned => "RETURNED",
    /// A running job told how far it is.
    Progress => "PROGRESS",
    /// A dead letter was queued again, its attempts and rescues counted anew.
    Redriven => "REDRIVEN",
    /// The wait for a retry or a start time was ended by hand.
    Hastened => "HASTENED",
    /// A job that this one depends on has ended.
    DependencyEnded => "DEPENDENCY_ENDED",
    /// An addon or a type is skipped from now on; with a job: its run is to stand still.
    Paused => "PAUSED",
    /// It is no longer skipped, or the run goes on.
    Resumed => "RESUMED",
    /// A running job printed something, which its log has.
    Log => "LOG",
    /// The load state of a node has changed: QUIET, NORMAL, BUSY or PANIC. The reason tells both, and the signals.
    LoadState => "LOAD_STATE",
    /// Priority, start, deadline or tags of a waiting job were changed by hand.
    Edited => "EDITED",
}

/// By hand: names that a macro was given are not seen by another.
#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for EventKind {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        let names = Self::ALL.iter().map(|kind| kind.as_str());
        let schema = utoipa::openapi::schema::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some("What happened."))
            .enum_values(Some(names));
        schema.build().into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for EventKind {}

impl EventKind {
    /// Whether it belongs into the audit trail. Progress is told to whoever listens, and not kept: the job's record has
    /// the last one, and a talkative worker must not fill the disk. That a log has grown is for those who follow it.
    pub fn is_kept(self) -> bool {
        !matches!(self, Self::Progress | Self::Log)
    }

    /// Returns the state of a job after an event of this kind; none if the event leaves the state as it is.
    ///
    /// A run that expired or timed out is over; the job waits again, unless an event behind it says otherwise.
    pub fn leads_to(self) -> Option<JobState> {
        match self {
            Self::Submitted
            | Self::Returned
            | Self::RetryScheduled
            | Self::Redriven
            | Self::LeaseExpired => Some(JobState::Queued),
            Self::Dispatching => Some(JobState::Dispatching),
            Self::Running => Some(JobState::Running),
            Self::Done => Some(JobState::Done),
            Self::Failed => Some(JobState::Failed),
            Self::Canceled => Some(JobState::Canceled),
            _ => None,
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One entry of the audit trail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// The job it is about; none for those of a lease as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(rename = "event")]
    pub kind: EventKind,
    /// The job's state afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// The lease it happened under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// Which run this was, 1 for the first; for kinds that begin or end one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The job's revision afterwards: events of one job sort by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
