//! Why a pool could not be made, in rayon's words: programs compare them.

use std::error::Error;
use std::fmt;
use std::io;

use jobtree_pool::BuildError;

/// Why [`ThreadPoolBuilder`](crate::ThreadPoolBuilder) could not make a pool.
///
/// ```
/// use std::error::Error;
///
/// let error = rayon_core::ThreadPoolBuilder::new()
///     .spawn_handler(|_| Err(std::io::Error::other("no threads today")))
///     .build()
///     .unwrap_err();
/// assert_eq!(error.to_string(), "no threads today");
/// assert!(error.source().is_some());
/// ```
#[derive(Debug)]
pub struct ThreadPoolBuildError {
    pub(crate) kind: ErrorKind,
}

#[derive(Debug)]
pub(crate) enum ErrorKind {
    GlobalPoolExists,
    CurrentThreadInPool,
    Io(io::Error),
}

impl ThreadPoolBuildError {
    pub(crate) fn new(kind: ErrorKind) -> ThreadPoolBuildError {
        ThreadPoolBuildError { kind }
    }
}

impl ThreadPoolBuildError {
    // Not `From`: upstream has no such conversion, and another one can make a caller's `into` ambiguous.
    pub(crate) fn from_pool(error: BuildError) -> ThreadPoolBuildError {
        ThreadPoolBuildError::new(match error {
            BuildError::GlobalPoolExists => ErrorKind::GlobalPoolExists,
            BuildError::CurrentThreadIsWorker => ErrorKind::CurrentThreadInPool,
            BuildError::Thread(error) => ErrorKind::Io(error),
            BuildError::Stack(error) => {
                ErrorKind::Io(io::Error::new(io::ErrorKind::OutOfMemory, error))
            }
            // Upstream knows no other kinds.
            error => ErrorKind::Io(io::Error::new(io::ErrorKind::InvalidInput, error)),
        })
    }
}

impl ErrorKind {
    /// The whole message of the kinds that have no cause.
    fn message(&self) -> Option<&'static str> {
        match self {
            ErrorKind::GlobalPoolExists => {
                Some("The global thread pool has already been initialized.")
            }
            ErrorKind::CurrentThreadInPool => {
                Some("The current thread is already part of another thread pool.")
            }
            ErrorKind::Io(_) => None,
        }
    }
}

impl fmt::Display for ThreadPoolBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ErrorKind::Io(error) => error.fmt(f),
            kind => kind.message().unwrap_or_default().fmt(f),
        }
    }
}

impl Error for ThreadPoolBuildError {
    #[allow(deprecated)]
    fn description(&self) -> &str {
        match &self.kind {
            ErrorKind::Io(error) => error.description(),
            kind => kind.message().unwrap_or_default(),
        }
    }

    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            ErrorKind::Io(error) => Some(error),
            ErrorKind::GlobalPoolExists | ErrorKind::CurrentThreadInPool => None,
        }
    }
}
