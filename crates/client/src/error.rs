//! What can go wrong between a client and its daemon.

use std::error::Error;
use std::fmt;

use jobtree_protocol::{ApiError, ErrorCode};

/// Why a call gave nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// What the client was told before its first call is not allowed.
    Setup(String),
    /// Nobody answers at this address, or the connection broke before the answer was there.
    Unreachable {
        /// Where.
        url: String,
        /// What the system said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Somebody answers at this address, but no connection can be trusted there: the certificate is signed by nobody who is
    /// known here, or is another's, or TLS is not spoken at all.
    Untrusted {
        /// Where.
        url: String,
        /// What is wrong.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The daemon says no.
    Refused {
        /// The HTTP status.
        status: u16,
        /// Why, and what to do.
        error: ApiError,
    },
    /// There was no answer in time. What was asked for may or may not have happened.
    TimedOut {
        /// Where.
        url: String,
    },
    /// There was an answer, but not one that a daemon gives.
    Protocol {
        /// Where.
        url: String,
        /// What is wrong with it.
        what: String,
    },
}

impl ClientError {
    /// The daemon's code, if it said no.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { error, .. } => Some(error.code),
            _ => None,
        }
    }

    /// Whether asking again may help: the daemon may be starting, or busy.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::Refused { error, .. } => {
                matches!(error.code, ErrorCode::Unavailable | ErrorCode::TooMany)
            }
            Self::Setup(_) | Self::Untrusted { .. } | Self::Protocol { .. } => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup(wrong) => f.write_str(wrong),
            Self::Unreachable { url, source } => write!(
                f,
                "no daemon answers at {url} ({source}): start one with `jobtree serve`, or check the address"
            ),
            Self::Untrusted { url, source } => write!(
                f,
                "what answers at {url} is not to be trusted ({source}): name the certificates that the daemon's is signed \
                 by, and a name that stands in it; a daemon without TLS has an address with http://"
            ),
            Self::Refused { error, .. } => error.fmt(f),
            Self::TimedOut { url } => write!(
                f,
                "the daemon at {url} did not answer in time: it may have done what it was asked; look, or ask again"
            ),
            Self::Protocol { url, what } => write!(
                f,
                "what answers at {url} is no jobtree daemon, or one of another version: {what}"
            ),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } | Self::Untrusted { source, .. } => Some(&**source),
            Self::Refused { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// For those who expect a scheduler: one that cannot be reached is not available.
impl From<ClientError> for ApiError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { error, .. } => error,
            other => ApiError::new(ErrorCode::Unavailable, other.to_string()),
        }
    }
}
