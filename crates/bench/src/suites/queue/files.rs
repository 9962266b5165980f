//! A folder on a real disk, which goes away with its owner.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

pub struct Folder(PathBuf);

impl Folder {
    /// An empty folder beside the program.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    pub fn new(name: &str) -> Self {
        let program = env::current_exe().expect("the program knows where it is");
        let beside = program.parent().unwrap_or(Path::new("."));
        let path = beside.join(format!("bench-{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder beside the program");
        Self(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left over is in the build's folder, and replaced by the next run.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How many bytes this process has given to the system to write so far; nothing where there is no `/proc`.
pub fn bytes_written() -> Option<u64> {
    let io = fs::read_to_string("/proc/self/io").ok()?;
    let line = io.lines().find_map(|line| line.strip_prefix("wchar:"))?;
    line.trim().parse().ok()
}
