//! What is said to and by the durable queue: requests, answers, events, errors, as JSON.
//!
//! Times are RFC 3339, states and priorities are upper case (priorities are read in either case), durations are whole
//! seconds in fields that end in `_sec`. Requests refuse fields that they do not know, and say which; answers may gain
//! fields, so whoever reads them skips what it does not know.
//!
//! Nothing in here has a clock or a connection. A request is turned into something that may be trusted in one place:
//! [`SubmitRequest::validate`] gives an [`Intent`], or one message a field.
//!
//! ```
//! use jobtree_protocol::{Limits, Priority, SubmitRequest};
//!
//! let request: SubmitRequest = serde_json::from_str(
//!     r#"{"addon_id": "visuals", "job_type": "indexing", "cost_units": 30, "priority": "high"}"#,
//! )?;
//! let intent = request.validate(&Limits::default()).unwrap();
//! assert_eq!(intent.priority, Priority::High);
//! # Ok::<(), serde_json::Error>(())
//! ```
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answers;
pub mod base64;
mod bulk;
mod bulk_action;
mod check;
mod clean;
mod draw;
mod edit;
mod error;
mod event;
mod explain;
mod fingerprint;
mod ids;
mod input;
mod intent;
mod job;
mod json;
mod lease;
mod limits;
mod load;
mod log;
pub mod operations;
mod output;
pub mod paths;
mod problem;
mod process_origin;
mod requests;
mod run;
mod schedule;
mod session;
mod state;
mod status;
mod submit;
mod time;
mod token;
mod trace;
mod usage;
mod webhook;
mod worker;

pub use answers::{
    BackupAnswer, BackupRequest, CancelManyRequest, ClaimedLeases, DecisionList, DispatchableJobs,
    DrainRequest, DurationBucket, DurationStats, EventEntry, EventPage, HeartbeatBody, HistoryList,
    LeaseList, LoadList, PauseList, PauseRunRequest, PauseView, PidsRequest, PolicyOutcome,
    PolicyPreview, PolicyVerdict, ReportBody, ResumeAnswer, RetryRequest, ScheduleList,
    StateAnswer, StatsView, TokenList, WebhookList, WorkerList,
};
pub use bulk::{
    CompleteManyAnswer, CompleteManyRequest, CompleteOne, Each, SubmitManyAnswer, SubmitManyRequest,
};
pub use bulk_action::{BulkAction, BulkList, BulkRequest, BulkState, BulkView};
pub use clean::{CleanAnswer, CleanRequest};
pub use edit::EditRequest;
pub use error::{ApiError, ErrorCode, FieldError};
pub use event::{Event, EventKind};
pub use explain::{
    Decision, Estimate, EstimateBasis, Explain, JobReason, LoadSignal, Reason, ReasonList,
    ReasonsRequest,
};
pub use fingerprint::Fingerprint;
pub use ids::{AddonId, InstanceId, InvalidName, JobId, JobType, LeaseId, NodeId, ScheduleId};
pub use input::{INPUT_AT_ONCE, InputAppend, InputAppendAnswer, InputPage};
pub use intent::{Backoff, Constraints, Intent, Late, OnDependencyFailure, Priority, Start};
pub use job::{BulkAnswer, BulkFailure, JobList, JobQuery, JobView, Progress, SubmitAnswer};
pub use json::Json;
pub use lease::{
    AckRequest, Advice, COMPLETION_GRACE, CancelRequest, ClaimAnswer, ClaimRequest, CompleteAnswer,
    CompleteRequest, CompleteStatus, Heartbeat, HeartbeatAnswer, InHand, LeaseAnswer, LeaseLimits,
    LeaseNumbers, LeaseRequest, LeaseState, LeaseView, RedriveRequest, ReleaseRequest,
    ReportRequest, RevokeRequest,
};
pub use limits::Limits;
pub use load::{LoadHour, LoadHours, LoadSample};
pub use log::{LogAppend, LogAppendAnswer, LogPage, LogTime};
pub use output::{OutputAppend, OutputAppendAnswer, OutputPage, OutputPiece, OutputStream};
pub use problem::Problem;
pub use process_origin::ProcessOrigin;
pub use requests::LeaseAsk;
pub use run::{CommandResult, CommandSpec, RUNNER_ADDON, RUNNER_TYPE};
pub use schedule::{Missed, Overlap, ScheduleSpec, ScheduleView};
pub use session::{SessionKind, SessionView, SignInLink, SignInRequest};
pub use state::{JobState, Outcome, Phase};
pub use status::{
    AddonStatus, HistoryStats, NodeStatus, PauseRequest, QuietState, SignalsRequest, StatusView,
    Streak,
};
pub use submit::SubmitRequest;
pub use time::{from_micros, to_micros, whole_micros};
pub use token::{NewToken, Scope, TokenRequest, TokenRights, TokenView};
pub use trace::{InvalidTraceParent, TraceParent};
pub use usage::{JobCost, Usage, UsageStats};
pub use webhook::{WebhookRequest, WebhookView};
pub use worker::{
    HeartbeatManyAnswer, HeartbeatManyRequest, LiveNode, LiveTree, PoolReport, TreeView,
    WorkerReport, WorkerView,
};
