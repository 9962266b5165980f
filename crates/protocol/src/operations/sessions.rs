//! Sessions: signing in with a browser by a link for one use, and signing out.

use serde_json::json;

use super::{Answer, Created, NoContent, Required, WithCookie};
use crate::{SessionView, SignInLink, SignInRequest};

use super::define::{access, define_operations, given, method};

/// The description of a 401 for a code.
const NO_CODE: &str = "The code is not known: it was used, or is too old.";
/// The description of a 409 for a link.
const NO_LINK: &str =
    "A session cannot make links, and a daemon that asks for no token needs none.";

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! session_operations {
    ($read:ident) => {
        $read! {
            base: "/api/system/scheduler";
            SIGN_IN_LINKS = "/sign-in-links" {
                /// Creates a code that signs in one browser, once, with the rights of this call's token.
                post create_sign_in_link: CreateSignInLink {
                    scope: AnyToken,
                    answer: Created<SignInLink> = "The code, which holds for a minute.",
                    errors: [409 => NO_LINK],
                    client: sign_in_link,
                }
            }
            SIGN_IN = "/sign-in" {
                /// Begins a session: exchanges a code for a cookie.
                post sign_in: SignIn {
                    scope: Open,
                    body: Required<SignInRequest> = json!({
                        "code": "0000000000000000000000000000000000000000000000000000000000000000",
                    }),
                    answer: WithCookie<Answer<SessionView>> = "The session. Its cookie is for scripts neither to read nor to send from elsewhere.",
                    errors: [401 => NO_CODE],
                }
            }
            SESSION = "/session" {
                /// Returns who the caller is, and what they may do.
                get get_session: GetSession {
                    scope: AnyToken,
                    answer: Answer<SessionView> = "The caller.",
                    client: session,
                }
                /// Ends the session of this call's cookie. A token stays as it is.
                delete sign_out: SignOut {
                    scope: AnyToken,
                    answer: WithCookie<NoContent> = "There is no session any more.",
                    idempotent: true,
                }
            }
        }
    };
}

session_operations!(define_operations);
