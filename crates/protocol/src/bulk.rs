//! Many at once: one request, one commit, and an answer for each.

use serde::{Deserialize, Serialize};

use crate::{
    ApiError, CompleteAnswer, CompleteRequest, CompleteStatus, InHand, JobId, Json, LeaseId,
    SubmitAnswer, SubmitRequest, Usage,
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
    /// The job of the same lease that the worker has begun since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_hand: Option<InHand>,
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
    /// The milliseconds between the begin of the run and the sending of this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_ms_ago: Option<u64>,
    /// The milliseconds between the end of the run and the sending of this call; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms_ago: Option<u64>,
    /// What the run used, as far as the worker measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

fn yes() -> bool {
    true
}

impl CompleteManyRequest {
    /// Each as a request of its own. The last one tells which job is in hand.
    pub fn each(self) -> impl Iterator<Item = (JobId, CompleteRequest)> {
        let (lease_id, mut in_hand) = (self.lease_id, self.in_hand);
        let last = self.jobs.len().saturating_sub(1);
        self.jobs.into_iter().enumerate().map(move |(place, one)| {
            let CompleteOne {
                job_id,
                status,
                result,
                error,
                retry,
                began_ms_ago,
                ended_ms_ago,
                usage,
            } = one;
            (
                job_id,
                CompleteRequest {
                    lease_id,
                    status,
                    result,
                    error,
                    retry,
                    began_ms_ago,
                    ended_ms_ago,
                    in_hand: in_hand.take_if(|_| place == last),
                    usage,
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
