//! Forgetting of old rows, a few at a time.

use std::time::Duration;

use jiff::Timestamp;
use jobtree_queue::policy::RetentionPolicy;
use jobtree_store::Retention;

use super::operations::Prune;
use super::turn::Turn;

/// The interval at which old rows are pruned.
const EVERY: Duration = Duration::from_secs(60);
/// How soon again, when there were more than one operation takes: after some times as long as the operation took, so that it
/// has a small share of the store's time, and within bounds. A queue that forgets less than it runs grows for ever. Picked by
/// feel.
const TIMES: u32 = 4;
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(200);
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
    /// When the last operation was asked for.
    asked: Duration,
}

impl Upkeep {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            next: now + EVERY,
            asked: now,
        }
    }

    /// Forgets old rows, if it is time.
    pub(super) fn prune(&mut self, turn: &mut Turn) {
        if self.next > turn.now.mono {
            return;
        }
        self.next = turn.now.mono + turn.rng.jittered(EVERY);
        self.asked = turn.now.mono;
        let retention = before(turn.now.wall, &turn.config.policy.retention);
        turn.ask(Prune {
            retention,
            limit: AT_ONCE,
        });
    }

    /// Rows were forgotten; there may be more.
    pub(super) fn pruned(&mut self, more: bool, turn: &Turn) {
        if more {
            let took = turn.now.mono.saturating_sub(self.asked);
            self.next = turn.now.mono + (took * TIMES).clamp(SHORTEST, LONGEST);
        }
    }

    pub(super) fn next(&self) -> Duration {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jobtree_queue::Now;
    use jobtree_queue::policy::Policy;

    use super::super::turn::Config;
    use super::*;
    use crate::options::Options;

    #[test]
    fn what_is_left_is_forgotten_soon_and_in_a_share_of_the_time() {
        let begin = Now {
            wall: "2026-07-01T12:00:00Z".parse().unwrap(),
            mono: Duration::from_secs(1000),
        };
        let options = Options::default();
        let mut turn = Turn::new(Config::new(&options, Arc::new(Policy::default())), 7, begin);
        let mut upkeep = Upkeep::new(begin.mono);
        for (took, pause) in [(1, 10), (20, 80), (500, 200)] {
            turn.now.mono = upkeep.next();
            upkeep.prune(&mut turn);
            turn.now.mono += Duration::from_millis(took);
            upkeep.pruned(true, &turn);
            assert_eq!(upkeep.next(), turn.now.mono + Duration::from_millis(pause));
        }
        turn.now.mono = upkeep.next();
        upkeep.prune(&mut turn);
        upkeep.pruned(false, &turn);
        assert!(upkeep.next() > turn.now.mono + Duration::from_secs(10));
    }
}
