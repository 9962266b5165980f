//! Signing in with a browser: links for one use, and the sessions that are made of them.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{AddonId, Scope};

/// The answer to `POST …/sign-in-links`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignInLink {
    /// The code for `POST …/sign-in`. In a link it is the fragment: the dashboard's address, `enter#`, the code.
    pub code: String,
    /// The time after which the code is refused. It is refused after its first use, too.
    pub expires_at: Timestamp,
}

impl fmt::Debug for SignInLink {
    /// Writes the link without its code, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignInLink")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// `POST …/sign-in`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SignInRequest {
    /// The code of a sign-in link.
    pub code: String,
}

impl fmt::Debug for SignInRequest {
    /// Writes the request without its code, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignInRequest").finish_non_exhaustive()
    }
}

/// The way in which a caller is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    /// By the cookie of a session.
    Session,
    /// By a token.
    Token,
    /// Not at all: the daemon asks nobody for a token.
    Open,
}

/// The caller: who they are, and what they may do.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionView {
    /// The way in which the caller is known.
    pub kind: SessionKind,
    /// The token that the caller has, or that the session was made from, in words.
    pub name: String,
    /// The addon whose jobs the caller sees; all if absent.
    pub addon_id: Option<AddonId>,
    /// The rights of the caller.
    pub scopes: Vec<Scope>,
    /// The value of the header `X-Jobtree-Csrf`, which a session sends with every call that is not a GET.
    pub csrf: Option<String>,
    /// The end of the session.
    pub expires_at: Option<Timestamp>,
    /// The release of the daemon.
    pub version: String,
}

impl fmt::Debug for SessionView {
    /// Writes the view without the value that goes with the cookie.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionView")
            .field("kind", &self.kind)
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}
