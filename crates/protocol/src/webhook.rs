//! Somebody else's address that is told when a job ends or waits to be taken up.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{AddonId, EventKind};

/// `POST …/webhooks`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WebhookRequest {
    /// Where to: `http://` or `https://`.
    pub url: String,
    /// Whose jobs; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addon_id: Option<AddonId>,
    /// Of which kinds; DONE, FAILED, CANCELED and DISPATCHING if none is given.
    #[serde(default)]
    pub events: Vec<EventKind>,
    /// What each delivery is signed with: HMAC-SHA256, in the header `Jobtree-Signature`. 16 characters at least.
    pub secret: String,
}

impl fmt::Debug for WebhookRequest {
    /// Without the secret: it must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookRequest")
            .field("url", &self.url)
            .field("addon_id", &self.addon_id)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// A webhook, as it is shown: without its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookView {
    /// To delete it by.
    pub webhook_id: Uuid,
    /// Where to.
    pub url: String,
    /// Whose jobs.
    pub addon_id: Option<AddonId>,
    /// Of which kinds.
    pub events: Vec<EventKind>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Deliveries that were taken.
    pub delivered: u64,
    /// Deliveries that were given up after all retries.
    pub given_up: u64,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}
