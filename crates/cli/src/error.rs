//! What a command can fail with: a message for people, a hint what to do, and the exit code for programs.

use std::error::Error;
use std::fmt;
use std::io;

use jobtree_client::ClientError;
use jobtree_protocol::ErrorCode;

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
    /// There is no such thing.
    NotFound {
        /// What was looked for.
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

    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed {
            message: message.into(),
            hint: None,
        }
    }

    /// With what to do about it.
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Usage { hint, .. } | Self::NotFound { hint, .. } | Self::Failed { hint, .. } =
            &mut self
        {
            *hint = Some(text.into());
        }
        self
    }

    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage { .. } => Exit::USAGE,
            Self::NotFound { .. } => Exit::NOT_FOUND,
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

/// A closed pipe is nothing to talk about.
impl fmt::Display for CliError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage { message, hint }
            | Self::NotFound { message, hint }
            | Self::Failed { message, hint } => {
                write!(formatter, "error: {message}")?;
                hint.iter()
                    .try_for_each(|hint| write!(formatter, "\nhint: {hint}"))
            }
            Self::Daemon(error) => tell(formatter, error),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Self::Output(error) => {
                write!(formatter, "error: the result could not be written: {error}")
            }
        }
    }
}

fn tell(formatter: &mut fmt::Formatter<'_>, error: &ClientError) -> fmt::Result {
    match error {
        ClientError::Unreachable { url, source } => write!(
            formatter,
            "error: no daemon answers at {url} ({source})\n\
             hint: start one with `jobtree serve`, or name another with --url or JOBTREE_URL"
        ),
        ClientError::Untrusted { url, source } => write!(
            formatter,
            "error: what answers at {url} is not to be trusted ({source})\n\
             hint: name the certificates that the daemon's is signed by with --ca-file or JOBTREE_CA_FILE, and with --url \
             a name that stands in it; a daemon without TLS has an address with http://"
        ),
        _ if error.code() == Some(ErrorCode::Unauthorized) => write!(
            formatter,
            "error: {error}\n\
             hint: set JOBTREE_TOKEN, or --token-file to the daemon's admin.token; `jobtree config show --origin` tells what is used"
        ),
        ClientError::Refused { error, .. } if !error.fields.is_empty() => {
            formatter.write_str("error: the daemon does not take this")?;
            let fields = &error.fields;
            fields
                .iter()
                .try_for_each(|wrong| write!(formatter, "\n  {wrong}"))
        }
        _ => write!(formatter, "error: {error}"),
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
