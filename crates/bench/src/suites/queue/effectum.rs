//! effectum, in a program of its own: `peers/effectum` has a workspace and a lockfile for itself, is built when it is first
//! needed, and is asked for one measurement after another. Without cargo or the network it is left out.
//!
//! It does a tenth of the work in a third of the rounds, since it takes some twenty times as long.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use super::Work;
use crate::servant::Servant;

/// Of the rounds, it takes part in each so manieth.
pub const EACH: usize = 3;

pub struct Effectum(Servant);

impl Effectum {
    /// Builds it if need be, and starts it on a new file.
    ///
    /// # Errors
    ///
    /// If it cannot be built or started.
    pub fn start(file: &Path) -> io::Result<Self> {
        let mut process = Command::new(build()?);
        process.arg(file);
        Servant::begin(&mut process).map(Self)
    }

    /// The time that a job takes in microseconds; `None` if effectum has no such work, or is gone.
    pub fn micros_each(&mut self, work: Work, count: usize) -> Option<f64> {
        let service = match work {
            Work::Submit { callers } => format!("submit-{callers}"),
            Work::Bulk => "bulk".to_owned(),
            // It hands jobs to handlers, and has no other way to complete one.
            Work::ProcessBatches => "process".to_owned(),
            Work::ProcessOneByOne { .. } => return None,
        };
        let fewer = match work {
            Work::Submit { callers } => (count / 10).max(callers),
            _ => count / 10,
        };
        match self.0.measure(&service, fewer as u64) {
            Ok((time, done)) => Some(time.as_secs_f64() * 1e6 / done as f64),
            Err(error) => {
                eprintln!("  effectum: {service}: {error}; left out from here on");
                None
            }
        }
    }
}

fn build() -> io::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/effectum/Cargo.toml");
    let program = env::current_exe()?;
    let target = program.with_file_name("peers");
    eprintln!("  effectum: building");
    let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--release", "--locked"])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target)
        .status()?;
    if built.success() {
        Ok(target.join("release").join("jobtree-bench-effectum"))
    } else {
        Err(io::Error::other("cargo could not build it"))
    }
}
