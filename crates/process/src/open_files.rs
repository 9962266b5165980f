//! How many files this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit on open files as far as this user may, and says what it is then. Each connection is an open file, and
/// many systems begin with room for a thousand.
///
/// ```
/// let first = jobtree_process::raise_open_files();
/// assert!(first > 0);
/// assert_eq!(jobtree_process::raise_open_files(), first, "there is nothing left to raise");
/// ```
pub fn raise_open_files() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Where it is refused the old limit holds, and is told.
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        let _ = setrlimit(Resource::Nofile, raised);
    }
    // No limit is a large one.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
