//! Finding a program before it is started, so that a missing one is reported once and at once, and not by each job.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The reason why a program cannot be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoProgram {
    /// No directory of `PATH` has a program of this name.
    NotInPath(String),
    /// There is no such file.
    NoFile(PathBuf),
    /// The file may not be executed.
    NotExecutable(PathBuf),
}

impl fmt::Display for NoProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInPath(name) => write!(f, "program {name:?} not found in PATH"),
            Self::NoFile(file) => write!(f, "program {} not found", file.display()),
            Self::NotExecutable(file) => {
                write!(f, "program {} is not executable", file.display())
            }
        }
    }
}

impl std::error::Error for NoProgram {}

/// Finds the file that a program's name stands for, as `exec` does: a name with a slash is a path from this process'
/// directory, any other is looked up in the directories of `path`.
///
/// # Errors
/// If there is none, or it may not be executed.
///
/// ```
/// use jobtree_process::{NoProgram, find_program};
///
/// assert!(find_program("sh", "/usr/bin:/bin".as_ref()).is_ok());
/// let missing = find_program("no-such-program", "/usr/bin:/bin".as_ref());
/// assert_eq!(missing, Err(NoProgram::NotInPath("no-such-program".into())));
/// ```
pub fn find_program(name: &str, path: &OsStr) -> Result<PathBuf, NoProgram> {
    if name.contains('/') {
        let file = PathBuf::from(name);
        return match executable(&file) {
            Some(true) => Ok(file),
            Some(false) => Err(NoProgram::NotExecutable(file)),
            None => Err(NoProgram::NoFile(file)),
        };
    }
    let mut not_executable = None;
    for folder in std::env::split_paths(path) {
        let file = folder.join(name);
        match executable(&file) {
            Some(true) => return Ok(file),
            Some(false) => not_executable = Some(file),
            None => {}
        }
    }
    Err(match not_executable {
        Some(file) => NoProgram::NotExecutable(file),
        None => NoProgram::NotInPath(name.to_owned()),
    })
}

/// Whether a file may be executed by anyone; none if there is no such file. The kernel has the last word.
fn executable(file: &Path) -> Option<bool> {
    let found = std::fs::metadata(file).ok()?;
    Some(found.is_file() && found.permissions().mode() & 0o111 != 0)
}
