//! A command as a job: what `jobtree run` submits and the runner executes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The addon whose jobs are commands.
pub const RUNNER_ADDON: &str = "jobtree";
/// The type of jobs that are commands.
pub const RUNNER_TYPE: &str = "command";

/// The payload of a job that is a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandSpec {
    /// The program and its arguments. No shell reads them.
    pub argv: Vec<String>,
    /// Where it runs; the runner's own folder if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables beside a small safe set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// How nice, 0 to 19; 10 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nice: Option<u8>,
    /// It reads and writes the disk only when nobody else does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub io_idle: bool,
    /// Bytes of address space at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Open files at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Seconds of CPU at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_sec: Option<u64>,
    /// It obeys advice by itself, so the runner does not pause it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub obeys_advice: bool,
    /// The signal it wants when the advice changes: HUP, USR1, USR2 or WINCH. It then obeys advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice_signal: Option<String>,
    /// How long it may go on after it was told to yield, before it is stopped and waits again; 30 seconds if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yield_grace_sec: Option<u64>,
    /// Its submitter reads its output: the runner waits some seconds for that reader before it starts the command.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
    /// Its submitter passes it standard input.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stdin: bool,
    /// It is never run twice: a job whose first run was interrupted, by a crash too, fails.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
    /// It is not stopped when it was told to yield.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never_yields: bool,
}

/// The result of a job that is a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandResult {
    /// What it exited with, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}
