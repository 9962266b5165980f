//! How a scheduler on the same machine recognises processes of this worker.

use jobtree_protocol::ProcessOrigin;

/// Returns what makes these pids unambiguous; none if a process is gone, or the system does not tell: Linux alone does.
#[cfg(target_os = "linux")]
pub fn process_origin(pids: &[u32]) -> Option<Box<ProcessOrigin>> {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    let started = |pid: &u32| started_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(Box::new(ProcessOrigin {
        boot_id: boot_id.trim().to_owned(),
        pid_namespace: fs::metadata("/proc/self/ns/pid").ok()?.ino(),
        started: pids.iter().map(started).collect::<Option<_>>()?,
    }))
}

/// Returns what makes these pids unambiguous; none, since this system does not tell.
#[cfg(not(target_os = "linux"))]
pub fn process_origin(_pids: &[u32]) -> Option<Box<ProcessOrigin>> {
    None
}

/// Returns field 22. Field 2 is the program's name in parentheses, which may hold anything, so that counting begins behind
/// the last one.
#[cfg(target_os = "linux")]
fn started_in(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_hide_the_start_time() {
        let stat = "42 (a) R 7 (b c) S 17 42 42 0 -1 4194304 97 0 0 0 120 30 400 5 20 0 1 0 3769558 3133440 412";
        assert_eq!(started_in(stat), Some(3_769_558));
        assert_eq!(started_in("42 (half) S 17"), None);
    }

    #[test]
    fn each_process_has_its_start_time_and_a_missing_one_has_no_origin() {
        let own = std::process::id();
        let origin = process_origin(&[own, own]).expect("Linux tells");
        assert_eq!(origin.boot_id.len(), 36, "{}", origin.boot_id);
        assert_eq!(origin.started.len(), 2);
        assert_eq!(origin.started[0], origin.started[1]);
        assert_eq!(process_origin(&[own, u32::MAX - 7]), None);
    }
}
