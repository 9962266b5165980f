//! Jobs: submitting them and reading about them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::checks::{more_than, too_many, wrong_input};
use super::query::Kind;
use super::{Answer, ID, JsonObject, Required, WRONG_STATE};
use crate::{
    AddonId, EventPage, Explain, InputAppend, InputAppendAnswer, InputPage, JobId, JobList,
    JobQuery, JobState, JobType, JobView, LeaseId, LogAppend, LogAppendAnswer, LogPage,
    OutputAppend, OutputAppendAnswer, OutputPage, ReasonList, ReasonsRequest, SubmitAnswer,
    SubmitManyAnswer, SubmitManyRequest, SubmitRequest, TreeView,
};

use super::define::{access, define_operations, given, method, query_parameters};

query_parameters! {
    impl JobQuery {
        "Only jobs in these states." state = Kind::States,
        "Only this addon's jobs." addon_id = Kind::Name,
        "Only jobs of this type." job_type = Kind::Name,
        "Only jobs with this tag." tag = Kind::Text,
        "Only jobs that contain this text." text = Kind::Text,
        "Only quarantined jobs." quarantined = Kind::Flag,
        "Only jobs that ended at this time or later." ended_since = Kind::Time,
        "Jobs after this one: the `next` of the previous page." after = Kind::Uuid,
        "The most jobs to return; 50 if absent." limit = Kind::ROWS,
    }
}

query_parameters! {
    /// The query of [`ListRecentJobs`].
    pub struct RecentQuery {
        /// Only jobs whose id begins or ends with these hexadecimal digits; hyphens do not count.
        pub id: Option<String> = Kind::IdPart,
        /// Only jobs in these states.
        pub state: Vec<JobState> = Kind::States,
        /// Only this addon's jobs.
        pub addon_id: Option<AddonId> = Kind::Name,
        /// Only jobs of this type.
        pub job_type: Option<JobType> = Kind::Name,
        /// Only jobs with this tag.
        pub tag: Option<String> = Kind::Text,
        /// Only jobs that contain this text.
        pub text: Option<String> = Kind::Text,
        /// Only quarantined jobs.
        pub quarantined: bool = Kind::Flag,
        /// Only jobs that ended at this time or later.
        pub ended_since: Option<Timestamp> = Kind::Time,
        /// Jobs before this one: the `next` of the previous page.
        pub before: Option<JobId> = Kind::Uuid,
        /// The most jobs to return; 50 if absent.
        pub limit: Option<u32> = Kind::ROWS,
    }
}

query_parameters! {
    /// The query of [`GetJob`].
    pub struct JobWait {
        /// Wait up to this many seconds for the job's end.
        pub wait_sec: Option<u32> = Kind::WAIT,
    }
}

query_parameters! {
    /// The query of [`ListJobEvents`].
    pub struct JobEventQuery {
        /// Events after this one: the `next` of the previous page.
        pub after: Option<u64> = Kind::Cursor,
        /// The most events to return; 50 if absent.
        pub limit: Option<u32> = Kind::ROWS,
    }
}

query_parameters! {
    /// The query of [`GetJobLog`].
    pub struct LogQuery {
        /// Output after this many bytes: the `next` of the previous page.
        pub after: Option<u64> = Kind::Cursor,
        /// Wait up to this many seconds for more output.
        pub wait_sec: Option<u32> = Kind::WAIT,
    }
}

query_parameters! {
    /// The query of [`GetJobOutput`].
    pub struct OutputQuery {
        /// Output after this many pieces, which are forgotten: the `next` of the previous answer.
        pub after: Option<u64> = Kind::Cursor,
        /// Wait up to this many seconds for more output.
        pub wait_sec: Option<u32> = Kind::WAIT,
    }
}

query_parameters! {
    /// The query of [`GetJobInput`].
    pub struct InputQuery {
        /// The lease that the command runs under; required.
        pub lease_id: Option<LeaseId> = Kind::Uuid,
        /// Input after this many bytes, which are forgotten: the `next` of the previous answer.
        pub after: Option<u64> = Kind::Cursor,
        /// Wait up to this many seconds for more input.
        pub wait_sec: Option<u32> = Kind::WAIT,
    }
}

fn example() -> Value {
    json!({
        "addon_id": "visuals",
        "job_type": "indexing",
        "cost_units": 30,
        "priority": "NORMAL",
        "constraints": {"cpu_heavy": true, "disk_write_heavy": false, "network_heavy": false},
        "expected_duration_sec": 120,
        "payload": {"path": "/some/dir"},
        "time_sensitive": false,
    })
}

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! job_operations {
    ($read:ident) => {
        $read! {
            base: "/api/system/scheduler";
            SUBMIT = "/queue/jobs/submit" {
                /// Submits a job.
                post submit_job: SubmitJob {
                    scope: Submit,
                    body: Required<SubmitRequest> = example(),
                    answer: Answer<SubmitAnswer> = "The job is on disk.",
                    errors: [409 => "The key or id was used for another body."],
                    links: [get_job.job_id = "/job_id", cancel_job.job_id = "/job_id"],
                }
            }
            SUBMIT_MANY = "/queue/jobs/submit-many" {
                /// Submits many jobs in one commit.
                post submit_jobs: SubmitJobs {
                    scope: Submit,
                    body: Required<SubmitManyRequest> = json!({"jobs": [example()]}),
                    answer: Answer<SubmitManyAnswer> = "One answer per job, in the order of the request.",
                    check: |body| too_many("jobs", body.jobs.len()),
                }
            }
            JOBS = "/queue/jobs" {
                /// Lists a page of jobs.
                get list_jobs: ListJobs {
                    scope: Read,
                    query: JobQuery,
                    answer: Answer<JobList> = "The jobs, in the order of their ids.",
                    client: jobs,
                }
            }
            RECENT = "/queue/jobs/recent" {
                /// Lists the newest jobs, newest first; with `id`, finds jobs by a part of their id.
                get list_recent_jobs: ListRecentJobs {
                    scope: Read,
                    query: RecentQuery,
                    answer: Answer<JobList> = "The jobs, newest first. `next` is the `before` of the next page; jobs that are submitted in the meantime do not move it.",
                    client: recent_jobs,
                }
            }
            JOB = "/queue/jobs/{job_id}" {
                /// Returns a job. With `wait_sec`, waits for its end first.
                get get_job: GetJob {
                    scope: Read,
                    path: JobId,
                    query: JobWait,
                    answer: Answer<JobView> = "The job.",
                }
            }
            EXPLAIN = "/queue/jobs/{job_id}/explain" {
                /// Explains why a job waits: each reason with what would have to change, and when the job will probably start.
                get explain_job: ExplainJob {
                    scope: Read,
                    path: JobId,
                    answer: Answer<Explain> = "The reasons.",
                    client: explain,
                }
            }
            REASONS = "/queue/jobs/reasons" {
                /// Returns the first reason why each of some jobs does not run: what an explanation of the job lists first.
                post list_reasons: ListReasons {
                    scope: Read,
                    body: Required<ReasonsRequest> = json!({"jobs": [ID]}),
                    answer: Answer<ReasonList> = "The first reason of each job that has one.",
                    check: |body| more_than("jobs", body.jobs.len(), ReasonsRequest::MOST),
                    idempotent: true,
                    client: reasons,
                }
            }
            JOB_EVENTS = "/queue/jobs/{job_id}/events" {
                /// Lists a page of a job's events.
                get list_job_events: ListJobEvents {
                    scope: Read,
                    path: JobId,
                    query: JobEventQuery,
                    answer: Answer<EventPage> = "The events, oldest first.",
                }
            }
            LOG = "/queue/jobs/{job_id}/log" {
                /// Returns a part of a job's output.
                get get_job_log: GetJobLog {
                    scope: Read,
                    path: JobId,
                    query: LogQuery,
                    answer: Answer<LogPage> = "A part of the output.",
                }
                /// Appends to the output of a running job.
                post append_job_log: AppendJobLog {
                    scope: Lease,
                    path: JobId,
                    body: Required<LogAppend> = json!({"lease_id": ID, "offset": 0, "text": "a line\n"}),
                    answer: Answer<LogAppendAnswer> = "How much was accepted.",
                    errors: [409 => WRONG_STATE],
                    idempotent: true,
                    client: append_log,
                    scheduler: append_log,
                }
            }
            OUTPUT = "/queue/jobs/{job_id}/output" {
                /// Returns output of a command that is not read yet, and waits for some. Only for the one reader that waits for the
                /// command: what is confirmed by `after` is forgotten. The log is what is kept.
                get get_job_output: GetJobOutput {
                    scope: Read,
                    path: JobId,
                    query: OutputQuery,
                    answer: Answer<OutputPage> = "The next part of the output.",
                }
                /// Passes output of a running command on to its reader. Waits for room.
                post append_job_output: AppendJobOutput {
                    scope: Lease,
                    path: JobId,
                    body: Required<OutputAppend> = json!({
                        "lease_id": ID, "run": 1, "offset": 0, "pieces": [{"stream": "stdout", "text": "a line\n"}],
                    }),
                    answer: Answer<OutputAppendAnswer> = "How much was accepted, and whether anyone reads.",
                    errors: [409 => WRONG_STATE],
                    check: |body| too_many("pieces", body.pieces.len()),
                    idempotent: true,
                }
            }
            INPUT = "/queue/jobs/{job_id}/input" {
                /// Returns standard input for a running command, and waits for some. What is confirmed by `after` is forgotten.
                get get_job_input: GetJobInput {
                    scope: Lease,
                    path: JobId,
                    query: InputQuery,
                    answer: Answer<InputPage> = "The next bytes.",
                    errors: [409 => WRONG_STATE, 422 => "The query names no lease."],
                    client: input,
                }
                /// Passes standard input on to a command, which may not run yet. Waits for room. A sender that is silent for half a
                /// minute before the end counts as gone, and the command is stopped.
                post append_job_input: AppendJobInput {
                    scope: Submit,
                    path: JobId,
                    body: Required<InputAppend> = json!({"offset": 0, "base64": "YSBsaW5lCg==", "ended": true}),
                    answer: Answer<InputAppendAnswer> = "How much was accepted.",
                    check: wrong_input,
                    idempotent: true,
                    client: append_input,
                }
            }
            JOB_TRACE = "/queue/jobs/{job_id}/trace" {
                /// Returns a job's states, attempts, leases and events, and what its worker reported last of the jobs below it, as a trace.
                get get_job_trace: GetJobTrace {
                    scope: Read,
                    path: JobId,
                    answer: JsonObject = "In the JSON format of Chrome's tracing page, which Perfetto reads, too.",
                    client: job_trace,
                }
            }
            TREE = "/queue/jobs/{job_id}/tree" {
                /// Returns the jobs under a running job in its worker's process, as the worker reported them last.
                get get_job_tree: GetJobTree {
                    scope: Read,
                    path: JobId,
                    answer: Answer<TreeView> = "The jobs.",
                    client: tree,
                }
            }
        }
    };
}

job_operations!(define_operations);
