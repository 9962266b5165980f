//! Who may do what.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::AddonId;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// To submit jobs.
    Submit,
    /// To look at jobs, leases, events.
    Read,
    /// To cancel, retry and redrive jobs.
    Cancel,
    /// To take jobs up, run them and tell how they went.
    Lease,
    /// Everything, for every addon: policy, tokens, pauses, schedules, backup.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Submit,
        Self::Read,
        Self::Cancel,
        Self::Lease,
        Self::Admin,
    ];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Read => "read",
            Self::Cancel => "cancel",
            Self::Lease => "lease",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `POST …/tokens`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What it is for, in words.
    pub name: String,
    /// Whose jobs it is for; all with `admin`, or with `read` and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addon_id: Option<AddonId>,
    /// What it allows.
    pub scopes: Vec<Scope>,
    /// Until when; for ever if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A token, as it is shown: without its secret, of which only a hash is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenView {
    /// To delete it by.
    pub token_id: Uuid,
    /// What it is for.
    pub name: String,
    /// Whose jobs it is for.
    pub addon_id: Option<AddonId>,
    /// What it allows.
    pub scopes: Vec<Scope>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Until when it holds.
    pub expires_at: Option<Timestamp>,
}

/// What a token allows: the answer to `GET …/tokens/current`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenRights {
    /// The addon whose jobs it is for; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addon_id: Option<AddonId>,
    /// What it allows.
    pub scopes: Vec<Scope>,
}

impl TokenRights {
    /// Whether an operation that needs this scope is allowed.
    pub fn allow(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }
}

/// The answer to `POST …/tokens`: the only time that the secret is told.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewToken {
    /// What goes behind `Authorization: Bearer`.
    pub token: String,
    /// The rest.
    #[serde(flatten)]
    pub view: TokenView,
}

impl fmt::Debug for NewToken {
    /// Without the secret: it must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}
