//! Why a server does not start.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use jobtree_queue::policy::PolicyError;
use jobtree_store::{OpenError, StoreError};

/// Why a server does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// Other machines reach this address, and it would not be safe there.
    Exposed {
        /// The address.
        listen: SocketAddr,
        /// Anybody could use it.
        without_tokens: bool,
        /// Anybody could listen in.
        without_tls: bool,
    },
    /// The address cannot be listened on.
    Listen {
        /// The address.
        listen: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A file or folder cannot be used.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file with the admin's token can be read by others.
    OpenToAll {
        /// Which.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file with the admin's token holds something else.
    NoToken {
        /// Which.
        path: PathBuf,
    },
    /// The certificate or its key cannot be used.
    Tls(String),
    /// The store's file cannot be opened.
    OpenFile {
        /// Which.
        path: PathBuf,
        /// Why.
        error: OpenError,
    },
    /// The store cannot be opened.
    Open(OpenError),
    /// The store was opened and cannot be read.
    Store(StoreError),
    /// What was registered to be told of events cannot be read.
    Webhooks(jobtree_protocol::ApiError),
    /// This program was built without the store that was asked for.
    NotBuilt {
        /// Which.
        store: &'static str,
    },
    /// The policy cannot be used.
    Policy {
        /// The file.
        path: PathBuf,
        /// Why.
        error: PolicyError,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exposed {
                listen,
                without_tokens,
                without_tls,
            } => {
                let missing = match (without_tokens, without_tls) {
                    (true, true) => "tokens and TLS",
                    (true, false) => "tokens",
                    _ => "TLS",
                };
                write!(
                    f,
                    "{listen} can be reached from other machines, which needs {missing}: \
                     give a certificate and its key and leave authentication on, or listen on 127.0.0.1"
                )
            }
            Self::Listen { listen, error } => {
                write!(f, "cannot listen on {listen}: {error}; choose another port")
            }
            Self::File { path, error } => write!(f, "cannot use {}: {error}", path.display()),
            Self::OpenToAll { path, mode } => write!(
                f,
                "{} can be read by others (mode {mode:o}): another account may know the token; \
                 delete the file and start again for a new one",
                path.display()
            ),
            Self::NoToken { path } => write!(
                f,
                "{} holds no token: delete the file and start again for a new one",
                path.display()
            ),
            Self::Tls(why) => write!(f, "the certificate or its key cannot be used: {why}"),
            Self::OpenFile { path, error } => {
                write!(f, "the store {} cannot be opened: {error}", path.display())
            }
            Self::Open(error) => write!(f, "the store cannot be opened: {error}"),
            Self::Webhooks(error) => write!(f, "the webhooks cannot be read: {error}"),
            Self::Store(error) => write!(f, "the store cannot be read: {error}"),
            Self::NotBuilt { store } => write!(
                f,
                "this program was built without {store}: build it with that feature, or choose another store"
            ),
            Self::Policy { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { error, .. } | Self::File { error, .. } => Some(error),
            Self::Open(error) | Self::OpenFile { error, .. } => Some(error),
            Self::Webhooks(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::Policy { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl ServeError {
    /// For a file or folder.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { path, error }
    }
}
