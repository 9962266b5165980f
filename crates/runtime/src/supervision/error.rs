//! A supervisor gives up.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use jobtree_tree::JobError;

/// Children were restarted too often within a period, so their supervisor has given up. Its source is the last error.
#[derive(Clone, Debug)]
pub struct TooManyRestarts {
    pub(super) child: String,
    pub(super) allowed: usize,
    pub(super) period: Duration,
    pub(super) last: Option<JobError>,
}

impl TooManyRestarts {
    /// The child whose end was one too many.
    pub fn child(&self) -> &str {
        &self.child
    }

    /// What that child ended with; `None` if it ended with success, and should have gone on.
    pub fn last_error(&self) -> Option<&JobError> {
        self.last.as_ref()
    }
}

impl fmt::Display for TooManyRestarts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` has ended again after {} restarts within {:?}, so its supervisor gives up; find out why it ends, or allow \
             more restarts",
            self.child, self.allowed, self.period
        )?;
        match &self.last {
            Some(error) => write!(f, "; the last time: {error}"),
            None => f.write_str("; the last time with success"),
        }
    }
}

impl Error for TooManyRestarts {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.last.as_ref().map(|error| error as _)
    }
}
