//! How large things may be.

use serde::{Deserialize, Serialize};

/// What is too much. The defaults are generous for people and small for a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of a payload: 1 MiB. A payload is written to the log, to the table and to the history, and travels to the
    /// worker; larger input belongs into a file or a bucket that the payload names.
    pub payload_bytes: usize,
    /// Bytes of a result, for the same reasons: 1 MiB.
    pub result_bytes: usize,
    /// Bytes of an error that are kept: 16 KiB. Longer ones are cut, not refused: a job must be able to fail.
    pub error_bytes: usize,
    /// Bytes of a job's log that are kept of each run: 1 MiB. What the run prints beyond is counted and left out. All runs together
    /// have as many times that as the job has attempts and rescues.
    pub log_bytes: usize,
    /// Lists and objects in each other in a payload or result: 64. Readers of JSON give up at about 128.
    pub json_depth: usize,
    /// Tags of a job: 32.
    pub tags: usize,
    /// Bytes of one tag: 128.
    pub tag_bytes: usize,
    /// Bytes of an idempotency, unique or concurrency key: 256.
    pub key_bytes: usize,
    /// Labels that a job may require: 16.
    pub labels: usize,
    /// Jobs that one may depend on: 1024. More are better joined by a job in between.
    pub dependencies: usize,
    /// Attempts: 1000.
    pub attempts: u32,
    /// Processes of one lease: 64.
    pub pids: usize,
    /// Bytes of a progress message: 1 KiB.
    pub message_bytes: usize,
    /// Metrics of one report: 32.
    pub metrics: usize,
    /// Jobs of one lease, and leases of one claim: 1000.
    pub batch: u32,
    /// The largest cost that can ever fit: 100, or what the policy's caps leave.
    pub cost_units: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes: 1 << 20,
            result_bytes: 1 << 20,
            error_bytes: 16 << 10,
            log_bytes: 1 << 20,
            json_depth: 64,
            tags: 32,
            tag_bytes: 128,
            key_bytes: 256,
            labels: 16,
            dependencies: 1024,
            attempts: 1000,
            pids: 64,
            message_bytes: 1 << 10,
            metrics: 32,
            batch: 1000,
            cost_units: 100,
        }
    }
}
