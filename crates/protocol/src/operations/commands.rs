//! Commands on jobs: cancel, retry, edit, pause, redrive, one by one or all that a query finds.

use serde_json::json;

use super::checks::{all, too_many, wrong_reason};
use super::{Answer, Optional, Required, WRONG_STATE};
use crate::{
    BulkAnswer, CancelManyRequest, CancelRequest, EditRequest, JobId, JobView, PauseRunRequest,
    RedriveRequest, RetryRequest, StateAnswer,
};

use super::define::{access, define_operations, given, method};

/// The reason that a run is neither paused nor resumed.
const NOT_RUNNING_HERE: &str = "The job does not run, or runs on the machine of another daemon.";

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! command_operations {
    ($read:ident) => {
        $read! {
            base: "/api/system/scheduler";
            CANCEL = "/queue/jobs/{job_id}/cancel" {
                /// Cancels a job: at once if it does not run, otherwise by asking its worker.
                post cancel_job: CancelJob {
                    scope: Cancel,
                    path: JobId,
                    body: Optional<CancelRequest> = json!({"reason": "no longer needed"}),
                    answer: Answer<StateAnswer> = "The job's state.",
                    errors: [409 => WRONG_STATE],
                    check: |body| wrong_reason(&body.reason),
                    idempotent: true,
                }
            }
            RETRY = "/queue/jobs/{job_id}/retry" {
                /// Starts a job's next attempt now: ends its wait for a time, or queues a failed job again.
                post retry_job: RetryJob {
                    scope: Cancel,
                    path: JobId,
                    body: Optional<RetryRequest> = json!({"reason": "no longer needed"}),
                    answer: Answer<StateAnswer> = "The job's state.",
                    errors: [409 => WRONG_STATE],
                    check: |body| wrong_reason(&body.reason),
                }
            }
            EDIT = "/queue/jobs/{job_id}/edit" {
                /// Changes priority, start, deadline or tags of a job that is QUEUED.
                post edit_job: EditJob {
                    scope: Submit,
                    path: JobId,
                    body: Required<EditRequest> = json!({"priority": "HIGH", "deadline_at": "2030-01-01T22:00:00Z"}),
                    answer: Answer<JobView> = "The job as it is now.",
                    errors: [409 => WRONG_STATE],
                    idempotent: true,
                    client: edit,
                    scheduler: edit,
                }
            }
            JOB_PAUSE = "/queue/jobs/{job_id}/pause" {
                /// Pauses the run of a job until it is resumed: its worker is told with its next heartbeat, and makes the program stand
                /// still. A handler in a worker's own process is advised to checkpoint. Forgotten when the run ends or the daemon
                /// restarts.
                post pause_job: PauseJob {
                    scope: Cancel,
                    path: JobId,
                    body: Optional<PauseRunRequest> = json!({"reason": "the disk is needed"}),
                    answer: Answer<StateAnswer> = "The job's state.",
                    errors: [409 => NOT_RUNNING_HERE],
                    check: |body| wrong_reason(&body.reason),
                    idempotent: true,
                }
            }
            JOB_RESUME = "/queue/jobs/{job_id}/resume" {
                /// Resumes the run of a job that was paused.
                post resume_job: ResumeJob {
                    scope: Cancel,
                    path: JobId,
                    body: Optional<PauseRunRequest> = json!({"reason": "the disk is free again"}),
                    answer: Answer<StateAnswer> = "The job's state.",
                    errors: [409 => NOT_RUNNING_HERE],
                    check: |body| wrong_reason(&body.reason),
                    idempotent: true,
                }
            }
            CANCEL_MANY = "/queue/jobs/cancel-many" {
                /// Cancels all jobs that a query finds and that have not ended.
                post cancel_jobs: CancelJobs {
                    scope: Cancel,
                    body: Required<CancelManyRequest> = json!({"query": {"addon_id": "visuals"}}),
                    answer: Answer<BulkAnswer> = "The jobs that were cancelled, and those that were not.",
                    check: |body| wrong_reason(&body.reason),
                    idempotent: true,
                }
            }
            REDRIVE = "/queue/jobs/redrive" {
                /// Queues failed jobs again: those listed, or all that a query finds.
                post redrive_jobs: RedriveJobs {
                    scope: Cancel,
                    body: Required<RedriveRequest> = json!({"query": {"addon_id": "visuals"}}),
                    answer: Answer<BulkAnswer> = "The jobs that were queued, and those that were not.",
                    check: |body| all([wrong_reason(&body.reason), too_many("job_ids", body.job_ids.len())]),
                    client: redrive,
                }
            }
        }
    };
}

command_operations!(define_operations);
