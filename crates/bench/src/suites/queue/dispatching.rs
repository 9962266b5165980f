//! One dispatch beside few and beside many waiting jobs: instructions, which must not depend on how many wait, and memory
//! for each that does. Nothing but the planner: no store, no clock.

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{AddonId, JobId, JobType, LeaseId, NodeId};
use jobtree_queue::Now;
use jobtree_queue::candidate::Candidate;
use jobtree_queue::ledger::Holder;
use jobtree_queue::planner::{Effect, Event, ListenScope, Outcome, Planner};
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;

use crate::alone::Probe;

/// Jobs wait for these in turn.
const ADDONS: u64 = 10;

struct Beside {
    planner: Planner,
    now: Now,
    submitted: u64,
}

impl Beside {
    /// So many wait.
    fn new(waiting: u64) -> Self {
        let now = Now {
            wall: "2026-01-01T00:00:00Z".parse().expect("a time"),
            mono: Duration::from_secs(100),
        };
        let mut policy = Policy::default();
        policy.busy.stale_after = Duration::from_secs(86_400);
        policy.quiet.enter_after = Duration::ZERO;
        policy.ramp.units_per_sample = 0;
        let node = NodeId::new("here").expect("a name");
        let mut planner = Planner::new(Arc::new(policy), node, [], now);
        planner.step(Event::Sample(Sample::idle()), now);
        let (scope, listeners) = (ListenScope::default(), 1);
        planner.step(Event::Listening { scope, listeners }, now);
        // Nothing starts while they come.
        planner.step(Event::Drain(true), now);
        let mut beside = Self {
            planner,
            now,
            submitted: 0,
        };
        for _ in 0..waiting {
            let job = beside.next_job();
            beside.planner.step(Event::Submitted(vec![job]), now);
        }
        beside
    }

    fn next_job(&mut self) -> Candidate {
        let number = self.submitted;
        self.submitted += 1;
        let mut random = [0; 10];
        random[2..].copy_from_slice(&number.to_be_bytes());
        let addon = AddonId::new(format!("addon{}", number % ADDONS)).expect("a name");
        let job_type = JobType::new("indexing").expect("a name");
        let wall = self.now.wall + Duration::from_millis(number);
        Candidate::new(
            JobId::from_parts(wall, random),
            addon,
            job_type,
            1,
            self.now.wall,
        )
    }

    /// A job comes, one starts and ends, over and over: as many wait afterwards as before.
    fn dispatch(&mut self, count: u64) {
        let effects = self.planner.step(Event::Drain(false), self.now);
        let mut started: Vec<JobId> = reserved(&effects).collect();
        assert!(!started.is_empty(), "nothing starts");
        for number in 0..count {
            let job = started.pop().expect("something runs");
            let lease = LeaseId::from_random(u128::from(number).to_be_bytes());
            let accepted = Event::Answered {
                job,
                outcome: Outcome::Accepted(Some(lease)),
            };
            let new = self.next_job();
            let events = [
                accepted,
                Event::Submitted(vec![new]),
                Event::Freed(Holder::Lease(lease)),
            ];
            for event in events {
                let effects = self.planner.step(event, self.now);
                started.extend(reserved(&effects));
            }
        }
    }
}

fn reserved(effects: &[Effect]) -> impl Iterator<Item = JobId> {
    effects.iter().filter_map(|effect| match effect {
        Effect::Reserve { job, .. } => Some(*job),
        _ => None,
    })
}

/// What the program can be told to do alone.
pub const PROBES: &[Probe] = &[BESIDE_FEW, BESIDE_MANY, WAITING];

pub const BESIDE_FEW: Probe = Probe {
    name: "queue-dispatched-beside-1000",
    run: |count| Beside::new(1000).dispatch(count),
};

pub const BESIDE_MANY: Probe = Probe {
    name: "queue-dispatched-beside-1000000",
    run: |count| Beside::new(1_000_000).dispatch(count),
};

/// They are still there at the end.
pub const WAITING: Probe = Probe {
    name: "queue-waiting",
    run: |count| std::mem::forget(Beside::new(count)),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_wait_afterwards_as_before() {
        let mut beside = Beside::new(100);
        assert_eq!(beside.planner.waiting(), 100);
        beside.dispatch(500);
        assert_eq!(beside.submitted, 600);
        let (waiting, used) = (beside.planner.waiting(), beside.planner.used());
        assert_eq!(waiting + used as usize, 100);
    }
}
