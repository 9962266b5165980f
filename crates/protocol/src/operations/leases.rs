//! Leases: requesting, renewing, reporting under them, releasing, revoking.

use serde_json::json;

use super::checks::{too_many, wrong_reason};
use super::query::Kind;
use super::{Answer, ID, NoContent, Optional, Required, WRONG_STATE};
use crate::{
    AddonId, HeartbeatAnswer, HeartbeatBody, HeartbeatManyAnswer, HeartbeatManyRequest,
    LeaseAnswer, LeaseId, LeaseList, LeaseRequest, LeaseView, PidsRequest, ReleaseRequest,
    ReportBody, RevokeRequest,
};

use super::define::{access, define_operations, given, method, query_parameters};

query_parameters! {
    /// The query of [`ListLeases`].
    pub struct LeaseQuery {
        /// Only this addon's leases.
        pub addon_id: Option<AddonId> = Kind::Name,
        /// Leases after this one: the `next` of the previous page.
        pub after: Option<LeaseId> = Kind::Uuid,
        /// The most leases to return; 50 if absent.
        pub limit: Option<u32> = Kind::ROWS,
    }
}

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! lease_operations {
    ($read:ident) => {
        $read! {
            base: "/api/system/scheduler";
            LEASE_REQUEST = "/lease/request" {
                /// Requests capacity, or accepts a dispatch.
                post request_lease: RequestLease {
                    scope: Lease,
                    body: Required<LeaseRequest> = json!({
                        "addon_id": "visuals", "job_type": "indexing", "cost_units": 30, "priority": "NORMAL",
                        "constraints": {"cpu_heavy": true}, "expected_duration_sec": 120,
                    }),
                    answer: Answer<LeaseAnswer> = "Approved or denied, and why.",
                    errors: [404 => "The job does not exist, or is another addon's.", 409 => WRONG_STATE],
                }
            }
            LEASES = "/lease" {
                /// Lists a page of active leases.
                get list_leases: ListLeases {
                    scope: Read,
                    query: LeaseQuery,
                    answer: Answer<LeaseList> = "The leases, in the order of their ids.",
                }
            }
            LEASE = "/lease/{lease_id}" {
                /// Returns a lease.
                get get_lease: GetLease {
                    scope: Read,
                    path: LeaseId,
                    answer: Answer<LeaseView> = "The lease.",
                    client: lease,
                }
            }
            HEARTBEAT = "/lease/{lease_id}/heartbeat" {
                /// Renews a lease.
                post heartbeat: RenewLease {
                    scope: Lease,
                    path: LeaseId,
                    body: Optional<HeartbeatBody> = json!({"progress": {"fraction": 0.5, "message": "half of it"}}),
                    answer: Answer<HeartbeatAnswer> = "What the worker should do.",
                    errors: [409 => WRONG_STATE],
                    idempotent: true,
                }
            }
            HEARTBEAT_MANY = "/lease/heartbeat-many" {
                /// Renews many leases of one worker, which can report its state in the same call.
                post heartbeat_many: RenewLeases {
                    scope: Lease,
                    body: Required<HeartbeatManyRequest> = json!({"leases": [{"lease_id": ID}]}),
                    answer: Answer<HeartbeatManyAnswer> = "One answer per lease, in the order of the request.",
                    check: |body| too_many("leases", body.leases.len()),
                    idempotent: true,
                    client: heartbeat_many,
                }
            }
            REPORT = "/lease/{lease_id}/report" {
                /// Reports progress, metrics and processes of a running job.
                post report: ReportJob {
                    scope: Lease,
                    path: LeaseId,
                    body: Required<ReportBody> = json!({"progress": {"fraction": 0.5, "message": "half of it"}}),
                    answer: NoContent = "The report is kept.",
                    errors: [409 => WRONG_STATE],
                    idempotent: true,
                }
            }
            RELEASE = "/lease/{lease_id}/release" {
                /// Gives a lease back.
                post release_lease: ReleaseLease {
                    scope: Lease,
                    path: LeaseId,
                    body: Optional<ReleaseRequest> = json!({"return_jobs": true}),
                    answer: NoContent = "The lease has ended.",
                    errors: [409 => WRONG_STATE],
                    check: |body| wrong_reason(&body.reason),
                    idempotent: true,
                    client: release,
                    scheduler: release,
                }
            }
            REVOKE = "/lease/{lease_id}/revoke" {
                /// Takes a lease away from its worker. Its jobs wait again.
                post revoke_lease: RevokeLease {
                    scope: Cancel,
                    path: LeaseId,
                    body: Optional<RevokeRequest> = json!({"reason": "the machine is needed"}),
                    answer: NoContent = "The lease has ended.",
                    errors: [409 => WRONG_STATE],
                    check: |body| wrong_reason(&body.reason),
                    idempotent: true,
                    scheduler: revoke,
                }
            }
            PID = "/lease/{lease_id}/pid" {
                /// Registers the processes that work under a lease, in place of those registered before.
                post register_pids: RegisterPids {
                    scope: Lease,
                    path: LeaseId,
                    body: Required<PidsRequest> = json!({"pids": [4242]}),
                    answer: NoContent = "The processes are registered.",
                    errors: [409 => WRONG_STATE],
                    idempotent: true,
                }
            }
        }
    };
}

lease_operations!(define_operations);
