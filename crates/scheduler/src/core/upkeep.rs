//! Forgetting of old rows, a few at a time.

use std::time::Duration;

use jiff::Timestamp;
use jobtree_queue::policy::RetentionPolicy;
use jobtree_store::Retention;

use super::operations::Prune;
use super::turn::Turn;

/// The interval at which old rows are pruned.
const EVERY: Duration = Duration::from_secs(60);
/// How soon again, when there were more than one operation takes.
const SOON: Duration = Duration::from_millis(200);
/// The rows of each kind in one operation.
const AT_ONCE: usize = 500;

/// Returns the times before which things are forgotten.
pub(crate) fn before(now: Timestamp, policy: &RetentionPolicy) -> Retention {
    let before = |time: Duration| now.checked_sub(time).unwrap_or(Timestamp::MIN);
    Retention {
        done: before(policy.done),
        failed: before(policy.failed),
        canceled: before(policy.canceled),
        events: before(policy.events),
        keys: before(policy.keys),
        leases: before(policy.leases),
    }
}

/// When rows are forgotten next.
#[derive(Debug)]
pub(super) struct Upkeep {
    next: Duration,
}

impl Upkeep {
    pub(super) fn new(now: Duration) -> Self {
        Self { next: now + EVERY }
    }

    /// Forgets old rows, if it is time.
    pub(super) fn prune(&mut self, turn: &mut Turn) {
        if self.next > turn.now.mono {
            return;
        }
        self.next = turn.now.mono + turn.rng.jittered(EVERY);
        let retention = before(turn.now.wall, &turn.config.policy.retention);
        turn.ask(Prune {
            retention,
            limit: AT_ONCE,
        });
    }

    /// Rows were forgotten; there may be more.
    pub(super) fn pruned(&mut self, more: bool, turn: &Turn) {
        if more {
            self.next = turn.now.mono + SOON;
        }
    }

    pub(super) fn next(&self) -> Duration {
        self.next
    }
}
