//! How long ended things are kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::text;

/// `[retention]`: how long ended jobs and what belongs to them are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionPolicy {
    /// Jobs that are DONE.
    #[serde(with = "text::duration")]
    pub done: Duration,
    /// Jobs that are FAILED.
    #[serde(with = "text::duration")]
    pub failed: Duration,
    /// Jobs that are CANCELED.
    #[serde(with = "text::duration")]
    pub canceled: Duration,
    /// Events. The event log of a job that is kept longer begins later.
    #[serde(with = "text::duration")]
    pub events: Duration,
    /// Idempotency keys. They should outlive the jobs: a key that is forgotten can submit its job again.
    #[serde(with = "text::duration")]
    pub keys: Duration,
    /// Ended leases, and firings of schedules.
    #[serde(with = "text::duration")]
    pub leases: Duration,
}

impl Default for RetentionPolicy {
    /// 30 days for jobs and events, 60 for keys, one for leases.
    fn default() -> Self {
        let days = |count: u64| Duration::from_secs(count * 86_400);
        Self {
            done: days(30),
            failed: days(30),
            canceled: days(30),
            events: days(30),
            keys: days(60),
            leases: days(1),
        }
    }
}
