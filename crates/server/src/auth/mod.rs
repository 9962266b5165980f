//! Who asks, and what they may do.
//!
//! A token is looked up by the id that stands in it, and its secret is compared, hashed, in constant time. What it allows
//! travels with the request as a [`Caller`]; handlers ask it. An addon's token sees and touches that addon's things only:
//! others' things do not exist for it, and lists are narrowed rather than refused.

pub(crate) mod admin_file;
mod book;
mod secret;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use jobtree_protocol::{AddonId, ErrorCode, Scope};

pub(crate) use book::Book;
pub(crate) use secret::Secret;

use crate::daemon::Daemon;
use crate::guard::rate::Bucket;
use crate::problem::{Answered, Refusal};

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Arc<Holder>);

/// What is known of whoever holds a token.
#[derive(Debug)]
pub(crate) struct Holder {
    addon: Option<AddonId>,
    scopes: Vec<Scope>,
    pub(crate) bucket: Bucket,
}

impl Holder {
    fn new(addon: Option<AddonId>, scopes: Vec<Scope>) -> Self {
        Self {
            addon,
            scopes,
            bucket: Bucket::default(),
        }
    }
}

impl Caller {
    /// Somebody who may do everything.
    pub(crate) fn admin() -> Self {
        Self(Arc::new(Holder::new(None, vec![Scope::Admin])))
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        &self.0.bucket
    }

    /// Whose things it sees: one addon's, or all.
    pub(crate) fn addon(&self) -> Option<&AddonId> {
        self.0.addon.as_ref()
    }

    /// It may do such things, at least to something.
    pub(crate) fn needs(&self, scope: Scope) -> Answered<()> {
        let scopes = &self.0.scopes;
        if scopes.contains(&scope) || scopes.contains(&Scope::Admin) {
            return Ok(());
        }
        let message = format!("this needs a token with the scope {scope}: ask an admin for one");
        Err(Refusal::forbidden(message))
    }

    /// It may do such things to that addon.
    pub(crate) fn may(&self, scope: Scope, addon: &str) -> Answered<()> {
        self.needs(scope)?;
        match self.addon() {
            Some(own) if own.as_str() != addon => Err(Refusal::forbidden(format!(
                "the token is for the addon {own}: write that as addon_id, or use another token"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether that addon's things exist for it.
    pub(crate) fn sees(&self, addon: &AddonId) -> bool {
        self.addon().is_none_or(|own| own == addon)
    }

    /// What a list is narrowed to. `None` if nothing can be left of it.
    pub(crate) fn narrowed(&self, asked: Option<AddonId>) -> Option<Option<AddonId>> {
        match (self.addon(), asked) {
            (None, asked) => Some(asked),
            (Some(own), None) => Some(Some(own.clone())),
            (Some(own), Some(asked)) => (*own == asked).then_some(Some(asked)),
        }
    }
}

impl FromRequestParts<Arc<Daemon>> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Daemon>) -> Answered<Self> {
        // `front` puts it there before anything is routed, except for what everybody may ask.
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Refusal::new(ErrorCode::Unauthorized, "this needs a token"))
    }
}
