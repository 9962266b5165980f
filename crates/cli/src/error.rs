//! What a command can fail with: a message for people, a hint what to do, and the exit code for programs.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io;

use jobtree_client::ClientError;
use jobtree_protocol::{ErrorCode, FieldError};
use serde::Serialize;

use crate::exit::Exit;

/// Why a command ended without its result.
#[derive(Debug)]
pub enum CliError {
    /// Arguments, variables or files that make no sense.
    Usage {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The daemon did not do it.
    Daemon(Box<ClientError>),
    /// The daemon did not answer in time.
    NoAnswer {
        /// The state of the call, as far as it is known.
        message: String,
        /// The trouble that the daemon reports.
        trouble: String,
    },
    /// There is no such thing.
    NotFound {
        /// What was looked for.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The token does not allow it.
    Refused {
        /// What was not allowed.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Something else did not work.
    Failed {
        /// What.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The result could not be written.
    Output(io::Error),
}

impl CliError {
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage {
            message: message.into(),
            hint: None,
        }
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::NotFound {
            message: message.into(),
            hint: None,
        }
    }

    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused {
            message: message.into(),
            hint: None,
        }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed {
            message: message.into(),
            hint: None,
        }
    }

    /// With what to do about it.
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Usage { hint, .. }
        | Self::NotFound { hint, .. }
        | Self::Refused { hint, .. }
        | Self::Failed { hint, .. } = &mut self
        {
            *hint = Some(text.into());
        }
        self
    }

    /// Returns what to do about it, if that is known and not part of the message.
    pub fn advice(&self) -> Option<&str> {
        match self {
            Self::Usage { hint, .. }
            | Self::NotFound { hint, .. }
            | Self::Refused { hint, .. }
            | Self::Failed { hint, .. } => hint.as_deref(),
            Self::Daemon(_) | Self::NoAnswer { .. } | Self::Output(_) => None,
        }
    }

    /// Adds what the daemon says of itself, if it answered nothing else.
    pub fn explained(self, trouble: impl FnOnce() -> Option<String>) -> Self {
        let Self::Daemon(error) = &self else {
            return self;
        };
        if !matches!(**error, ClientError::TimedOut { .. }) {
            return self;
        }
        let message = error.to_string();
        match trouble() {
            Some(trouble) => Self::NoAnswer { message, trouble },
            None => self,
        }
    }

    pub fn exit(&self) -> Exit {
        match self {
            Self::NoAnswer { .. } => Exit::UNREACHABLE,
            Self::Usage { .. } => Exit::USAGE,
            Self::NotFound { .. } => Exit::NOT_FOUND,
            Self::Refused { .. } => Exit::REFUSED,
            Self::Failed { .. } => Exit::FAILED,
            Self::Daemon(error) => exit_of(error),
            // Whoever read our output has seen enough, as in `jobtree bench | head -n 3`.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::OK,
            Self::Output(_) => Exit::FAILED,
        }
    }
}

fn exit_of(error: &ClientError) -> Exit {
    match (error, error.code()) {
        (ClientError::Setup(_), _) => Exit::USAGE,
        (
            ClientError::Unreachable { .. }
            | ClientError::Untrusted { .. }
            | ClientError::TimedOut { .. },
            _,
        ) => Exit::UNREACHABLE,
        (_, Some(ErrorCode::Forbidden | ErrorCode::Unauthorized)) => Exit::REFUSED,
        (_, Some(ErrorCode::NotFound)) => Exit::NOT_FOUND,
        (
            _,
            Some(
                ErrorCode::WrongState
                | ErrorCode::LeaseLost
                | ErrorCode::Conflict
                | ErrorCode::NotNow,
            ),
        ) => Exit::CONFLICT,
        (_, Some(ErrorCode::Malformed | ErrorCode::Invalid)) => Exit::USAGE,
        _ => Exit::FAILED,
    }
}

/// What an error says, for people and programs.
#[derive(Serialize)]
struct Parts<'a> {
    /// The kind of error: the daemon's code, if it refused.
    code: &'static str,
    message: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    fields: &'a [FieldError],
}

impl CliError {
    /// What it says. A closed pipe is nothing to talk about.
    fn parts(&self) -> Option<Parts<'_>> {
        let own = |code, message: &'_ str, hint: &'_ Option<String>| Parts {
            code,
            message: Cow::Owned(message.to_owned()),
            hint: hint.clone().map(Cow::Owned),
            fields: &[],
        };
        Some(match self {
            Self::Usage { message, hint } => own("usage", message, hint),
            Self::NotFound { message, hint } => own("not_found", message, hint),
            Self::Refused { message, hint } => own("forbidden", message, hint),
            Self::Failed { message, hint } => own("failed", message, hint),
            Self::Daemon(error) => parts_of(error),
            Self::NoAnswer { message, trouble } => {
                own("timed_out", message, &Some(trouble.clone()))
            }
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return None,
            Self::Output(error) => {
                let message = format!("the result could not be written: {error}");
                own("failed", &message, &None)
            }
        })
    }

    /// What it says as a line of JSON, for `--json`; none if there is nothing to say.
    pub fn json(&self) -> Option<String> {
        #[derive(Serialize)]
        struct Document<'a> {
            version: u32,
            error: Parts<'a>,
            exit_code: u8,
        }
        let document = Document {
            version: crate::out::VERSION,
            error: self.parts()?,
            exit_code: self.exit().0,
        };
        serde_json::to_string(&document).ok()
    }
}

fn parts_of(error: &ClientError) -> Parts<'_> {
    let (code, message, hint) = match error {
        ClientError::Unreachable { url, source } => (
            "unreachable",
            format!("no daemon answers at {url} ({source})"),
            Some("start one with `jobtree serve`, or name another with --url or JOBTREE_URL"),
        ),
        ClientError::Untrusted { url, source } => (
            "untrusted",
            format!("what answers at {url} is not to be trusted ({source})"),
            Some(
                "name the certificates that the daemon's is signed by with --ca-file or JOBTREE_CA_FILE, and with --url \
                 a name that stands in it; a daemon without TLS has an address with http://",
            ),
        ),
        ClientError::Refused { error, .. } => {
            let hint = (error.code == ErrorCode::Unauthorized).then_some(
                "set JOBTREE_TOKEN, or --token-file to the daemon's admin.token; `jobtree config show --origin` tells what is used",
            );
            let message = match &error.fields[..] {
                [] => error.message.clone(),
                _ => "the daemon does not take this".to_owned(),
            };
            return Parts {
                code: error.code.as_str(),
                message: Cow::Owned(message),
                hint: hint.map(Cow::Borrowed),
                fields: &error.fields,
            };
        }
        ClientError::Setup(_) => ("usage", error.to_string(), None),
        ClientError::TimedOut { .. } => ("timed_out", error.to_string(), None),
        _ => ("failed", error.to_string(), None),
    };
    Parts {
        code,
        message: Cow::Owned(message),
        hint: hint.map(Cow::Borrowed),
        fields: &[],
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(parts) = self.parts() else {
            return Ok(());
        };
        write!(f, "error: {}", parts.message)?;
        parts
            .fields
            .iter()
            .try_for_each(|wrong| write!(f, "\n  {wrong}"))?;
        parts
            .hint
            .iter()
            .try_for_each(|hint| write!(f, "\nhint: {hint}"))
    }
}

impl Error for CliError {}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        Self::Daemon(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_stands_on_a_line_of_its_own() {
        let error = CliError::usage("no").hint("say yes");
        assert_eq!(error.to_string(), "error: no\nhint: say yes");
    }

    #[test]
    fn programs_get_the_same_as_people() {
        let error = CliError::usage("no").hint("say yes");
        let json = r#"{"version":1,"error":{"code":"usage","message":"no","hint":"say yes"},"exit_code":2}"#;
        assert_eq!(error.json().as_deref(), Some(json));
        let wrong = FieldError::new("cost_units", "is 0: write more");
        let refused = CliError::from(ClientError::Refused {
            status: 422,
            error: jobtree_protocol::ApiError::invalid(vec![wrong]),
        });
        let json = refused.json().expect("it says something");
        assert!(
            json.contains(r#""fields":[{"field":"cost_units""#),
            "{json}"
        );
        assert!(
            refused
                .to_string()
                .ends_with("\n  cost_units: is 0: write more")
        );
    }

    #[test]
    fn an_unreachable_daemon_gives_a_hint() {
        let error = CliError::from(ClientError::Unreachable {
            url: "http://x".into(),
            source: "refused".into(),
        });
        assert_eq!(error.exit(), Exit::UNREACHABLE);
        assert!(error.to_string().contains("jobtree serve"));
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((error.exit(), error.to_string()), (Exit::OK, String::new()));
    }
}
