//! What workers do with jobs: claim them, accept dispatches, report how they ended.

use serde_json::json;

use super::checks::{all, too_many, wrong_wait};
use super::query::Kind;
use super::{Answer, ID, Optional, Required, WRONG_STATE};
use crate::{
    AckRequest, AddonId, ClaimRequest, ClaimedLeases, CompleteAnswer, CompleteManyAnswer,
    CompleteManyRequest, CompleteRequest, DispatchableJobs, JobId, LeaseView,
};

use super::define::{access, define_operations, given, method, query_parameters};

query_parameters! {
    /// The query of [`ListDispatchable`].
    pub struct DispatchableQuery {
        /// Only this addon's jobs.
        pub addon_id: Option<AddonId> = Kind::Name,
        /// Wait up to this many seconds for a job.
        pub wait_sec: Option<u32> = Kind::WAIT,
    }
}

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! work_operations {
    ($read:ident) => {
        $read! {
            base: "/api/system/scheduler";
            CLAIM = "/queue/claim" {
                /// Claims jobs for a worker, in leases. With `wait_sec`, waits for some.
                post claim_jobs: ClaimJobs {
                    scope: Lease,
                    body: Required<ClaimRequest> = json!({
                        "addon_id": "visuals", "instance_id": ID, "max_jobs": 1, "wait_sec": 30,
                    }),
                    answer: Answer<ClaimedLeases> = "The leases; none if there was nothing to run.",
                    errors: [409 => WRONG_STATE],
                    check: |body| all([
                        wrong_wait("wait_sec", body.wait_sec),
                        too_many("job_types", body.job_types.len()),
                    ]),
                    long: true,
                }
            }
            DISPATCHABLE = "/queue/dispatchable" {
                /// Lists dispatched jobs that wait for a worker to accept them.
                get list_dispatchable: ListDispatchable {
                    scope: Lease,
                    query: DispatchableQuery,
                    answer: Answer<DispatchableJobs> = "The jobs.",
                }
            }
            ACK = "/queue/jobs/{job_id}/ack" {
                /// Accepts a dispatch: DISPATCHING becomes RUNNING.
                post ack_job: AckJob {
                    scope: Lease,
                    path: JobId,
                    body: Optional<AckRequest> = json!({}),
                    answer: Answer<LeaseView> = "The lease under which the job runs.",
                    errors: [409 => WRONG_STATE],
                }
            }
            COMPLETE = "/queue/jobs/{job_id}/complete" {
                /// Reports how a run ended.
                post complete_job: CompleteJob {
                    scope: Lease,
                    path: JobId,
                    body: Required<CompleteRequest> = json!({"lease_id": ID, "status": "DONE", "result": {"found": 3}}),
                    answer: Answer<CompleteAnswer> = "The job's state.",
                    errors: [409 => WRONG_STATE],
                    idempotent: true,
                    client: complete,
                    scheduler: complete,
                }
            }
            COMPLETE_MANY = "/queue/jobs/complete-many" {
                /// Reports how many runs of one lease ended, in one commit.
                post complete_jobs: CompleteJobs {
                    scope: Lease,
                    body: Required<CompleteManyRequest> = json!({
                        "lease_id": ID, "jobs": [{"job_id": ID, "status": "DONE"}],
                    }),
                    answer: Answer<CompleteManyAnswer> = "One answer per job, in the order of the request.",
                    errors: [404 => "The lease does not exist, or is another addon's."],
                    check: |body| too_many("jobs", body.jobs.len()),
                    idempotent: true,
                    client: complete_many,
                }
            }
        }
    };
}

work_operations!(define_operations);
