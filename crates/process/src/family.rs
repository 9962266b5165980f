//! Who descends from this process: what a process group misses when somebody opens a group or session of their own.
//!
//! Read from `/proc`, so on Linux alone; elsewhere the process group is all that is known.

use rustix::process::{Pid, Signal, kill_process};

/// All processes below this one, in no order. A process that this one is the reaper of stays below it when its parent
/// ends, so nobody gets away by a double fork.
pub(crate) fn descendants() -> Vec<Pid> {
    let parents = parents();
    let mut found = vec![std::process::id()];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(
            parents
                .iter()
                .filter(|&&(_, of)| of == parent)
                .map(|&(child, _)| child),
        );
        next += 1;
    }
    found[1..]
        .iter()
        .filter_map(|&pid| Pid::from_raw(pid.cast_signed()))
        .collect()
}

/// Each process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, parent_in(&stat)?))
        })
        .collect()
}

/// The fourth field. The second is the program's name in parentheses, which may hold anything, so that counting begins
/// behind the last one.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(1)?.parse().ok()
}

/// Sends a signal to all of them. Those that are gone are gone.
pub(crate) fn signal_all(signal: Signal) {
    for pid in descendants() {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_hide_the_parent() {
        assert_eq!(parent_in("17 (a) b (c) S 12 17 17 0"), Some(12));
        assert_eq!(parent_in("17 (sh) S 1 17"), Some(1));
        assert_eq!(parent_in("nonsense"), None);
    }

    #[test]
    fn a_child_is_found() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let id = child.id();
        let found = descendants();
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
        assert!(
            found
                .iter()
                .any(|pid| pid.as_raw_nonzero().get() == id.cast_signed()),
            "{id} is not in {found:?}"
        );
    }
}
