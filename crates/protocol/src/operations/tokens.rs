//! Tokens: creating them, listing them without their secrets, deleting them.

use serde_json::json;
use uuid::Uuid;

use super::{Answer, Created, NoContent, Required};
use crate::{NewToken, TokenList, TokenRequest, TokenRights};

use super::define::{access, define_operations, given, method};

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! token_operations {
    ($read:ident) => {
        $read! {
            base: "/api/system/scheduler";
            TOKENS = "/tokens" {
                /// Lists all tokens, without their secrets.
                get list_tokens: ListTokens {
                    scope: Admin,
                    answer: Answer<TokenList> = "The tokens, oldest first.",
                }
                /// Creates a token. Only the answer to this call has its secret.
                post create_token: CreateToken {
                    scope: Admin,
                    body: Required<TokenRequest> = json!({
                        "name": "the indexer", "addon_id": "visuals", "scopes": ["submit", "read"],
                    }),
                    answer: Created<NewToken> = "The token, with its secret.",
                    links: [delete_token.token_id = "/token_id"],
                    client: add_token,
                }
            }
            CURRENT_TOKEN = "/tokens/current" {
                /// Returns what the token of this call allows.
                get get_current_token: GetCurrentToken {
                    scope: AnyToken,
                    answer: Answer<TokenRights> = "The addon and scopes of the token.",
                    client: current_token,
                }
            }
            TOKEN = "/tokens/{token_id}" {
                /// Deletes a token.
                delete delete_token: DeleteToken {
                    scope: Admin,
                    path: Uuid,
                    answer: NoContent = "The token allows nothing any more.",
                }
            }
        }
    };
}

token_operations!(define_operations);
