//! Who asks, and what they may do.
//!
//! A token is looked up by the id that stands in it, and its secret is compared, hashed, in constant time. What it allows
//! travels with the request as a [`Caller`]; the scope that an operation needs is checked before its handler is called. An addon's token sees and touches that addon's things only:
//! others' things do not exist for it, and lists are narrowed rather than refused.

pub(crate) mod admin_file;
mod book;
mod links;
mod revocations;
mod secret;
mod sessions;

use std::sync::{Arc, LazyLock};

use axum::http::request::Parts;
use jobtree_protocol::{AddonId, ErrorCode, Scope, TokenRights};
use uuid::Uuid;

pub(crate) use book::Book;
pub(crate) use links::Links;
pub(crate) use revocations::Revocations;
pub(crate) use secret::Secret;
pub(crate) use sessions::{Session, Sessions, over_tls};

use crate::guard::rate::Bucket;
use crate::problem::{Answered, Refusal};

/// The caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    holder: Arc<Holder>,
    /// The session that the request's cookie names. The holder is that of the token that the session was made from.
    session: Option<Arc<Session>>,
}

/// What is known of whoever holds a token.
#[derive(Debug)]
pub(crate) struct Holder {
    /// The token; none where no token is asked for.
    token: Option<Uuid>,
    /// Who it is, in words.
    name: String,
    addon: Option<AddonId>,
    scopes: Vec<Scope>,
    pub(crate) bucket: Bucket,
}

impl Holder {
    fn new(token: Option<Uuid>, name: String, addon: Option<AddonId>, scopes: Vec<Scope>) -> Self {
        Self {
            token,
            name,
            addon,
            scopes,
            bucket: Bucket::default(),
        }
    }
}

impl Caller {
    fn holding(holder: Holder) -> Self {
        Self {
            holder: Arc::new(holder),
            session: None,
        }
    }

    /// Somebody who may do everything, by this token.
    pub(crate) fn admin(token: Uuid) -> Self {
        let name = "the admin of this machine".to_owned();
        Self::holding(Holder::new(Some(token), name, None, vec![Scope::Admin]))
    }

    /// A caller of a daemon that asks for no token: everything is allowed.
    pub(crate) fn anyone() -> Self {
        let name = "a caller without a token".to_owned();
        Self::holding(Holder::new(None, name, None, vec![Scope::Admin]))
    }

    /// A caller who may do nothing: of an operation that needs no token.
    pub(crate) fn nobody() -> Self {
        static NOBODY: LazyLock<Caller> =
            LazyLock::new(|| Caller::holding(Holder::new(None, String::new(), None, Vec::new())));
        NOBODY.clone()
    }

    /// Returns the caller of a request: `front` notes it before anything is routed, except for what needs no token.
    pub(crate) fn of(parts: &Parts) -> Answered<Self> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Refusal::new(ErrorCode::Unauthorized, "this needs a token"))
    }

    /// The same caller, known by a session.
    pub(crate) fn by(self, session: Arc<Session>) -> Self {
        Self {
            session: Some(session),
            ..self
        }
    }

    /// The session that the caller is known by; none if it is a token.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// The token that the caller has, or that its session was made from; none where no token is asked for.
    pub(crate) fn token(&self) -> Option<Uuid> {
        self.holder.token
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        &self.holder.bucket
    }

    /// Who it is, in words, for the trail.
    pub(crate) fn name(&self) -> &str {
        &self.holder.name
    }

    /// Whose things it sees: one addon's, or all.
    pub(crate) fn addon(&self) -> Option<&AddonId> {
        self.holder.addon.as_ref()
    }

    /// What it may do.
    pub(crate) fn rights(&self) -> TokenRights {
        TokenRights {
            addon_id: self.holder.addon.clone(),
            scopes: self.holder.scopes.clone(),
        }
    }

    /// Refuses a token without this scope.
    pub(crate) fn needs(&self, scope: Scope) -> Answered<()> {
        let scopes = &self.holder.scopes;
        if scopes.contains(&scope) || scopes.contains(&Scope::Admin) {
            return Ok(());
        }
        let message = format!("this needs a token with the scope {scope}: ask an admin for one");
        Err(Refusal::forbidden(message))
    }

    /// Refuses an addon that the token is not for.
    pub(crate) fn acts_for(&self, addon: &str) -> Answered<()> {
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
