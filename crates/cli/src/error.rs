//! What a command can fail with: a message for people, a hint what to do, and the exit code for programs.

use std::error::Error;
use std::fmt;
use std::io;
use std::process::ExitCode;

/// Why a command ended without its result.
#[derive(Debug)]
pub enum CliError {
    /// Arguments or variables that make no sense.
    Usage {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The result could not be written.
    Output(io::Error),
}

impl CliError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage { .. } => ExitCode::from(2),
            // Whoever read our output has seen enough, as in `jobtree bench | head -n 3`.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Self::Output(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage { message, hint } => {
                write!(formatter, "error: {message}")?;
                hint.iter()
                    .try_for_each(|hint| write!(formatter, "\nhint: {hint}"))
            }
            Self::Output(error) => {
                write!(formatter, "error: the result could not be written: {error}")
            }
        }
    }
}

impl Error for CliError {}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_stands_on_a_line_of_its_own() {
        let error = CliError::Usage {
            message: "no".into(),
            hint: Some("say yes".into()),
        };
        assert_eq!(error.to_string(), "error: no\nhint: say yes");
    }
}
