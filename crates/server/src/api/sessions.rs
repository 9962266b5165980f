//! Sessions: signing in with a browser by a link for one use, and signing out.

use std::sync::Arc;

use axum::http::HeaderValue;
use jobtree_protocol::operations::{CreateSignInLink, GetSession, SignIn, SignOut};
use jobtree_protocol::{ErrorCode, SessionKind, SessionView, SignInLink};

use super::route::{Call, routes};
use crate::auth::{Caller, over_tls};
use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};

jobtree_protocol::session_operations!(routes);

async fn create_sign_in_link(
    daemon: Arc<Daemon>,
    call: Call<CreateSignInLink>,
) -> Answered<SignInLink> {
    if call.caller.session().is_some() {
        let message = "a session makes no links, or it would never end: use a token";
        return Err(Refusal::new(ErrorCode::Conflict, message));
    }
    let Some(token) = call.caller.token() else {
        let message = "this daemon asks for no token: open its address in a browser";
        return Err(Refusal::new(ErrorCode::Conflict, message));
    };
    Ok(daemon.links.make(token))
}

async fn sign_in(
    daemon: Arc<Daemon>,
    call: Call<SignIn>,
) -> Answered<(SessionView, Option<HeaderValue>)> {
    let token = daemon.links.take(&call.body.code);
    let caller = token.and_then(|token| daemon.tokens.holder(token));
    let (Some(token), Some(caller)) = (token, caller) else {
        let message = "the link was used already, or is older than a minute: make another with \
                       `jobtree dashboard`";
        return Err(Refusal::new(ErrorCode::Unauthorized, message));
    };
    // A browser has one session, so that another one's rights do not linger.
    if let Some(old) = daemon.sessions.of(&call.headers) {
        let ended = daemon.sessions.end(daemon.store(), daemon.stamp(), old.id);
        ended.await?;
    }
    let secure = daemon.speaks_tls || over_tls(&call.headers);
    let begun = daemon
        .sessions
        .begin(daemon.store(), || daemon.stamp(), token, secure);
    let (session, cookie) = begun.await?;
    Ok((view(&caller.by(session)), Some(cookie)))
}

async fn get_session(_: Arc<Daemon>, call: Call<GetSession>) -> Answered<SessionView> {
    Ok(view(&call.caller))
}

async fn sign_out(daemon: Arc<Daemon>, call: Call<SignOut>) -> Answered<((), Option<HeaderValue>)> {
    let Some(session) = call.caller.session() else {
        return Ok(((), None));
    };
    let ended = daemon
        .sessions
        .end(daemon.store(), daemon.stamp(), session.id);
    ended.await?;
    let secure = daemon.speaks_tls || over_tls(&call.headers);
    Ok(((), Some(daemon.sessions.no_cookie(secure))))
}

fn view(caller: &Caller) -> SessionView {
    let rights = caller.rights();
    let session = caller.session();
    SessionView {
        kind: match (session, caller.token()) {
            (Some(_), _) => SessionKind::Session,
            (None, Some(_)) => SessionKind::Token,
            (None, None) => SessionKind::Open,
        },
        name: caller.name().to_owned(),
        addon_id: rights.addon_id,
        scopes: rights.scopes,
        csrf: session.map(|session| session.csrf.clone()),
        expires_at: session.map(|session| session.expires_at),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
