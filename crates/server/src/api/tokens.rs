//! Tokens: creating them, listing them without their secrets, deleting them.

use std::sync::Arc;

use jobtree_protocol::operations::{CreateToken, DeleteToken, GetCurrentToken, ListTokens};
use jobtree_protocol::{NewToken, TokenList, TokenRights};

use super::route::{Call, routes};
use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};

jobtree_protocol::token_operations!(routes);

async fn list_tokens(daemon: Arc<Daemon>, _: Call<ListTokens>) -> Answered<TokenList> {
    let tokens = daemon.tokens.views();
    Ok(TokenList { tokens })
}

async fn create_token(daemon: Arc<Daemon>, call: Call<CreateToken>) -> Answered<NewToken> {
    let made = daemon.tokens.add(daemon.store(), daemon.stamp(), call.body);
    Ok(made.await?)
}

async fn get_current_token(_: Arc<Daemon>, call: Call<GetCurrentToken>) -> Answered<TokenRights> {
    Ok(call.caller.rights())
}

async fn delete_token(daemon: Arc<Daemon>, call: Call<DeleteToken>) -> Answered<()> {
    let id = call.id;
    let removed = daemon.tokens.remove(daemon.store(), daemon.stamp(), id);
    if removed.await? {
        // They allow nothing without their token; now they are forgotten, too.
        let ended = daemon
            .sessions
            .end_of_token(daemon.store(), || daemon.stamp(), id);
        return Ok(ended.await?);
    }
    Err(Refusal::not_found(format!(
        "there is no token {id}: see the list of tokens"
    )))
}
