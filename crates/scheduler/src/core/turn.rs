//! What every room of the core is given while it handles an input: the time, the configuration, random numbers, and the
//! way out.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jobtree_protocol::{ApiError, NodeId};
use jobtree_queue::Now;
use jobtree_queue::policy::Policy;
use jobtree_queue::transitions::Rules;
use jobtree_store::Stamp;

use super::calls::{Responder, Response};
use super::in_flight::{Entry, InFlight};
use super::operations::{Op, OpId};
use super::planted::{Bug, Planted};
use super::rng::Rng;
use crate::options::Options;

/// An output of the core.
#[derive(Debug)]
pub enum Output {
    /// Carry this operation out, and bring its answer.
    Op {
        /// Its name.
        id: OpId,
        /// The time, chance and rules that the command is given.
        stamp: Stamp,
        /// The operation.
        op: Op,
    },
    /// Deliver this answer to its caller.
    Respond(Response),
    /// Come back then at the latest, by the monotonic clock.
    WakeAt(Duration),
}

/// Returns the rules that a policy makes.
pub fn rules_of(policy: &Policy, options: &Options) -> Rules {
    let seconds = |time: Duration| u32::try_from(time.as_secs().max(1)).unwrap_or(u32::MAX);
    Rules {
        lease_ttl_sec: seconds(policy.dispatch.lease_ttl),
        dispatch_timeout_sec: seconds(policy.dispatch.take_up),
        quarantine_after: options.quarantine_after,
        error_bytes: options.limits.error_bytes,
        log_bytes: options.limits.log_bytes,
    }
}

/// How the scheduler was set up, and the policy in force.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) node: NodeId,
    pub(super) options: Options,
    pub(super) policy: Arc<Policy>,
    pub(super) zone: TimeZone,
    pub(super) rules: Arc<Rules>,
}

impl Config {
    pub(super) fn new(options: &Options, policy: Arc<Policy>) -> Self {
        Self {
            node: options.node.clone(),
            options: options.clone(),
            zone: zone_of(&policy),
            rules: Arc::new(rules_of(&policy, options)),
            policy,
        }
    }

    pub(super) fn set_policy(&mut self, policy: Arc<Policy>) {
        self.rules = Arc::new(rules_of(&policy, &self.options));
        self.zone = zone_of(&policy);
        self.policy = policy;
    }
}

fn zone_of(policy: &Policy) -> TimeZone {
    TimeZone::get(&policy.quiet.time_zone).unwrap_or(TimeZone::UTC)
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) now: Now,
    pub(super) config: Config,
    pub(super) rng: Rng,
    pub(super) in_flight: InFlight,
    /// Counts the commits that were seen, so that an older reading does not undo a newer commit.
    pub(super) commits_seen: u64,
    pub(super) planted: Planted,
    outputs: Vec<Output>,
}

impl Turn {
    pub(super) fn new(config: Config, seed: u64, now: Now) -> Self {
        Self {
            now,
            config,
            rng: Rng::new(seed),
            in_flight: InFlight::default(),
            commits_seen: 0,
            planted: Planted::default(),
            outputs: Vec::new(),
        }
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        self.planted.has(bug)
    }

    /// Asks the store for something.
    pub(super) fn ask(&mut self, op: impl Into<Op>) {
        let op = op.into();
        let id = self.in_flight.begin(&op, self.commits_seen);
        self.emit(id, op);
    }

    /// Asks again, later, for an operation that failed.
    pub(super) fn repeat_later(&mut self, id: OpId, entry: Entry, op: Op) {
        let now = self.now.mono;
        self.in_flight
            .repeat_later(id, entry, op, &mut self.rng, now);
    }

    /// Asks again for what failed, where it is time.
    pub(super) fn repeat_failed(&mut self) {
        let repeats = self
            .in_flight
            .take_repeats(self.commits_seen, self.now.mono);
        for (id, op) in repeats {
            self.emit(id, op);
        }
    }

    fn emit(&mut self, id: OpId, op: Op) {
        let stamp = Stamp {
            now: self.now,
            roll: self.rng.draw(),
            rules: Arc::clone(&self.config.rules),
        };
        self.outputs.push(Output::Op { id, stamp, op });
    }

    /// Answers a call.
    pub(super) fn respond<T: Send + 'static>(
        &mut self,
        caller: Responder<T>,
        answer: Result<T, ApiError>,
    ) {
        self.deliver(caller.answer(answer));
    }

    pub(super) fn deliver(&mut self, response: Response) {
        self.outputs.push(Output::Respond(response));
    }

    pub(super) fn wake_at(&mut self, at: Duration) {
        self.outputs.push(Output::WakeAt(at));
    }

    pub(super) fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }
}
