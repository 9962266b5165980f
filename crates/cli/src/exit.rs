//! What the command exits with: part of its interface, since scripts go by it.

use std::process::ExitCode;

use jobtree_protocol::{JobState, Outcome};

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(pub u8);

impl Exit {
    /// It is done.
    pub const OK: Exit = Exit(0);
    /// It could not be done.
    pub const FAILED: Exit = Exit(1);
    /// It makes no sense.
    pub const USAGE: Exit = Exit(2);
    /// No daemon answers.
    pub const UNREACHABLE: Exit = Exit(3);
    /// The token does not allow it, or there is none.
    pub const REFUSED: Exit = Exit(4);
    /// There is no such job, lease, schedule or token.
    pub const NOT_FOUND: Exit = Exit(5);
    /// Its state does not allow it.
    pub const CONFLICT: Exit = Exit(6);
    /// The job that was waited for is FAILED.
    pub const JOB_FAILED: Exit = Exit(10);
    /// The job that was waited for is CANCELED.
    pub const JOB_CANCELED: Exit = Exit(11);
    /// The time was over first.
    pub const STILL_WAITING: Exit = Exit(12);

    /// What an ended job says by itself.
    pub fn of_state(state: JobState) -> Exit {
        match state.outcome() {
            Some(Outcome::Done) => Exit::OK,
            Some(Outcome::Failed) => Exit::JOB_FAILED,
            Some(Outcome::Cancelled) => Exit::JOB_CANCELED,
            None => Exit::STILL_WAITING,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.0)
    }
}

/// As the help shows it.
pub const HELP: &str = "\
Exit codes:
  0   done
  1   it failed
  2   invalid arguments, variables or files
  3   no daemon answers
  4   refused: no token, a wrong one, or one that does not allow this
  5   there is no such job, lease, schedule or token
  6   its state does not allow this, or another caller was faster

  run and wait exit with the code of the job's command, if it was one; else with
  0   the job is DONE
  10  the job is FAILED
  11  the job is CANCELED
  12  --timeout was over first

Settings come from flags, else from variables (JOBTREE_URL, JOBTREE_TOKEN, …), else from the file
$XDG_CONFIG_HOME/jobtree/config.toml, else they are built in: `jobtree config show --origin`.";
