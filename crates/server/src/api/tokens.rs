//! Tokens: made, listed without their secrets, deleted.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get};
use jobtree_protocol::{NewToken, Scope, TokenList, TokenRequest, paths};
use uuid::Uuid;

use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{Created, Id, Json, Told};
use crate::problem::{Answered, Refusal};

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::TOKENS, get(list).post(create))
        .route(paths::TOKEN, delete(remove))
}

async fn list(State(daemon): State<Arc<Daemon>>, caller: Caller) -> Answered<Told<TokenList>> {
    caller.needs(Scope::Admin)?;
    let tokens = daemon.tokens.views();
    Ok(Told(TokenList { tokens }))
}

async fn create(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<TokenRequest>,
) -> Answered<Created<NewToken>> {
    caller.needs(Scope::Admin)?;
    let made = daemon.tokens.add(daemon.store(), daemon.stamp(), request);
    Ok(Created(made.await?))
}

async fn remove(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<Uuid>,
) -> Answered<StatusCode> {
    caller.needs(Scope::Admin)?;
    let known = daemon
        .tokens
        .remove(daemon.store(), daemon.stamp(), id)
        .await?;
    if known {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Refusal::not_found(format!(
        "there is no token {id}: see the list of tokens"
    )))
}
