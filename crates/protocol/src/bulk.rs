//! Many at once: one request, one commit, and an answer for each.

use serde::{Deserialize, Serialize};

use crate::{
    ApiError, CompleteAnswer, CompleteRequest, CompleteStatus, JobId, Json, LeaseId, SubmitAnswer,
    SubmitRequest,
};

/// What became of one of many: the answer that it would have had alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Each<T> {
    /// It was done.
    Done(T),
    /// It was refused; the others are not held up by it.
    Refused {
        /// Why.
        error: ApiError,
    },
}

/// Submits many jobs. Each is checked and answered for itself, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SubmitManyRequest {
    /// They.
    pub jobs: Vec<SubmitRequest>,
}

/// The answers to a submission of many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubmitManyAnswer {
    /// In the order of the request.
    pub jobs: Vec<Each<SubmitAnswer>>,
}

/// Completes many jobs of one lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CompleteManyRequest {
    /// The lease they ran under.
    pub lease_id: LeaseId,
    /// They.
    pub jobs: Vec<CompleteOne>,
}

/// One of many completions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CompleteOne {
    /// The job.
    pub job_id: JobId,
    /// How it ended.
    pub status: CompleteStatus,
    /// What it gave.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Json, required = false))]
    pub result: Option<Json>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<String>,
    /// `false`: no further attempt will do better.
    #[serde(default = "yes")]
    pub retry: bool,
}

fn yes() -> bool {
    true
}

impl CompleteManyRequest {
    /// Each as a request of its own.
    pub fn each(self) -> impl Iterator<Item = (JobId, CompleteRequest)> {
        let lease_id = self.lease_id;
        self.jobs.into_iter().map(move |one| {
            let CompleteOne {
                job_id,
                status,
                result,
                error,
                retry,
            } = one;
            (
                job_id,
                CompleteRequest {
                    lease_id,
                    status,
                    result,
                    error,
                    retry,
                },
            )
        })
    }
}

/// The answers to a completion of many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CompleteManyAnswer {
    /// In the order of the request.
    pub jobs: Vec<Each<CompleteAnswer>>,
}
