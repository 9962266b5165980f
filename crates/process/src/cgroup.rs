//! A control group (version 2) around one program: its weight among others, and a way to make all of it stand still.
//!
//! There is one only where the machine has the second version, and this process may make groups below its own, as under
//! a service with `Delegate=yes`. Where there is none, [`Cgroup::create`] says why in a sentence; programs are then
//! niced, and paused by signals.
//!
//! The files' meaning is taken from the kernel's documentation. It has been exercised on a folder that looks like a control
//! group, and not yet on a machine that has one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// Where it is mounted by convention.
const ROOT: &str = "/sys/fs/cgroup";

/// One group.
#[derive(Clone, Debug)]
pub struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// A group below this process' own.
    ///
    /// # Errors
    /// A sentence that says why there is none.
    pub fn create(name: &str, weight: u32) -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::create_in(Path::new(ROOT), &own, name, weight)
    }

    /// As [`create`](Cgroup::create), with the root and the text of `/proc/self/cgroup`.
    ///
    /// # Errors
    /// A sentence that says why there is none.
    pub fn create_in(root: &Path, own: &str, name: &str, weight: u32) -> Result<Self, String> {
        if !root.join("cgroup.controllers").exists() {
            return Err("this machine has no control groups of version 2: commands have no weight, and are paused by signals".into());
        }
        // The second version is the hierarchy without a number and a name.
        let own = own
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .ok_or("this process is in no control group of version 2")?;
        let folder = root.join(own.trim()).join(name);
        fs::create_dir_all(&folder).map_err(|error| {
            format!(
                "no control group can be made below {own:?} ({error}): run the daemon as a service with Delegate=yes"
            )
        })?;
        let group = Cgroup { folder };
        // Only there if the controller was handed down; freezing works without.
        let _ = group.write("cpu.weight", &weight.clamp(1, 10_000).to_string());
        Ok(group)
    }

    /// One that exists.
    pub fn at(folder: PathBuf) -> Self {
        Cgroup { folder }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn add(&self, pid: Pid) -> io::Result<()> {
        self.write("cgroup.procs", &pid.as_raw_nonzero().to_string())
    }

    /// Whether it could be done.
    pub(crate) fn freeze(&self, still: bool) -> bool {
        self.write("cgroup.freeze", if still { "1" } else { "0" })
            .is_ok()
    }

    pub(crate) fn kill(&self) {
        let _ = self.write("cgroup.kill", "1");
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir(&self.folder);
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.folder.join(file), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("jobtree-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn a_machine_without_says_so() {
        let root = folder("no-cgroup");
        let told = Cgroup::create_in(&root, "0::/a\n", "x", 10).expect_err("there is none");
        assert!(told.contains("version 2"), "{told}");
        fs::remove_dir_all(root).expect("ours");
    }

    #[test]
    fn a_group_is_made_below_the_own_one_and_frozen() {
        let root = folder("cgroup");
        fs::write(root.join("cgroup.controllers"), "cpu").expect("a file");
        let own = "1:name=systemd:/old\n0::/service\n";
        let group = Cgroup::create_in(&root, own, "job", 20).expect("a group");
        assert_eq!(group.folder(), root.join("service/job"));
        assert!(group.freeze(true));
        let read = |file: &str| fs::read_to_string(group.folder().join(file)).expect("written");
        assert_eq!(
            (read("cpu.weight"), read("cgroup.freeze")),
            ("20".into(), "1".into())
        );
        fs::remove_dir_all(root).expect("ours");
    }
}
