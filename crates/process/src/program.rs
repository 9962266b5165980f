//! What is to be run, and within which limits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::advice::AdviceSignal;

/// A program, before it is started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    /// The program and its arguments. No shell reads them.
    pub argv: Vec<String>,
    /// Where it runs; the worker's own folder if absent.
    pub cwd: Option<PathBuf>,
    /// Its whole environment: nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// What it reads from its standard input.
    pub stdin: String,
    /// A named pipe that it reads its standard input from, instead; see [`Feed`](crate::Feed).
    pub stdin_from: Option<PathBuf>,
    /// How much nicer than the worker it is, 0 to 19.
    pub nice: Option<u8>,
    /// It reads and writes the disk only when nobody else does.
    pub io_idle: bool,
    /// What it may use.
    pub rlimits: Rlimits,
    /// The control group it joins; see [`Cgroup`](crate::cgroup::Cgroup).
    pub cgroup: Option<PathBuf>,
    /// How long it may take to end after it was told to, before it is killed.
    pub grace: Duration,
    /// The signal it wants when the advice changes. An unhandled signal ends a program, so there is none by default.
    pub advice_signal: Option<AdviceSignal>,
}

/// The kernel's limits of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rlimits {
    /// Bytes of address space.
    pub memory_bytes: Option<u64>,
    /// Open files.
    pub open_files: Option<u64>,
    /// Seconds of CPU.
    pub cpu_sec: Option<u64>,
}

impl Program {
    /// A program and its arguments, with this process' environment but its secrets, and ten seconds of grace.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Program {
            argv: argv.into_iter().map(Into::into).collect(),
            env: std::env::vars()
                .filter(|(name, _)| !is_secret(name))
                .collect(),
            grace: Duration::from_secs(10),
            ..Program::default()
        }
    }
}

/// A token in the environment is for the worker, and not for what it runs.
fn is_secret(name: &str) -> bool {
    name == "JOBTREE_TOKEN"
}

/// Of this process' environment, what any program needs and nothing that tells a secret: where programs and homes are,
/// and how text is written.
pub fn safe_environment() -> BTreeMap<String, String> {
    const NAMES: &[&str] = &[
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR",
    ];
    std::env::vars()
        .filter(|(name, _)| NAMES.contains(&name.as_str()) || name.starts_with("LC_"))
        .collect()
}
