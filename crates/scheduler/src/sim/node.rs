//! A scheduler in the simulation: the real core, what the engine does around it, and the clocks of its machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::{AddonId, ApiError, JobId, NodeId};
use jobtree_queue::ledger::Holder;
use jobtree_queue::policy::{AddonPolicy, Policy};
use jobtree_queue::{Now, RequestName};
use jobtree_store::{Listening, Store, Written};

use super::disk::{Disk, Plug, Port};
use super::machine::SimMachine;
use super::sim_event::Reply;
use super::{Mistake, Scenario};
use crate::core::{Answer, CallId, Core, Op, OpId, Performing, Responder};
use crate::options::Options;
use crate::sampler::Sampler;

/// With its so manieth rescue a job is quarantined.
pub(super) const QUARANTINE: u32 = 4;

/// The first moment of 2026, at which simulations begin.
pub(super) fn base() -> Timestamp {
    Timestamp::constant(1_767_225_600, 0)
}

/// Answers of a core.
type Replies = Arc<Mutex<Vec<Result<Reply, ApiError>>>>;

/// What waits to be told to the core.
type Inbox = Arc<Mutex<Vec<Written>>>;

pub(super) struct Node {
    pub(super) options: Options,
    pub(super) policy: Arc<Policy>,
    /// None while its process is dead.
    pub(super) core: Option<Core>,
    pub(super) store: Store,
    pub(super) port: Arc<Port>,
    inbox: Inbox,
    listening: Option<Listening>,
    pub(super) ops: BTreeMap<OpId, Performing>,
    /// What each operation under way is.
    pub(super) asked: BTreeMap<OpId, Op>,
    /// The worker that waits for each answer, and its turn.
    pub(super) callers: BTreeMap<CallId, (usize, u64)>,
    /// The requests for capacity among the calls that are not answered.
    pub(super) requested: BTreeMap<CallId, RequestName>,
    next_call: CallId,
    /// Answers of the core that have been delivered here.
    replies: Replies,
    /// Operations before this have been begun.
    pub(super) begun: OpId,
    /// Which timer counts.
    pub(super) alarm: u64,
    /// Grows with each start: what is for an earlier process is for nobody.
    pub(super) life: u64,
    /// The machine sleeps until then.
    pub(super) asleep_until: Duration,
    /// Its way to the store stands still until then.
    pub(super) stalled_until: Duration,
    /// By how much its wall clock is wrong.
    pub(super) wall_off: SignedDuration,
    pub(super) machine: SimMachine,
    pub(super) sampler: Sampler,
    /// How idle its CPUs are, 0..=1.
    pub(super) idle: f64,
    /// It is not measured until then.
    pub(super) blind_until: Duration,
    /// Addons of which it knows that they are paused.
    pub(super) paused: BTreeSet<AddonId>,
    /// Waiting jobs that it has not heard of, and since when.
    pub(super) unheard: BTreeMap<JobId, Duration>,
    /// What it counts as in use otherwise than the store, and since when.
    pub(super) miscounted: BTreeMap<Holder, Duration>,
    boot: Duration,
}

/// The policy of simulations, if nothing else is said: everything happens in seconds, not in hours.
pub(super) fn policy() -> Policy {
    let mut policy = Policy::default();
    let seconds = Duration::from_secs;
    policy.quiet.enter_after = seconds(2);
    policy.quiet.calm_after = seconds(2);
    policy.quiet.panic_cooldown = seconds(5);
    policy.quiet.allow_one_after = seconds(120);
    policy.busy.stale_after = seconds(10);
    policy.order.age_step = seconds(120);
    policy.order.hold = seconds(60);
    policy.order.rest = seconds(20);
    policy.deadline.at_risk = seconds(60);
    policy.deadline.waive_busy = seconds(20);
    policy.deadline.waive_quiet = seconds(40);
    policy.dispatch.take_up = seconds(8);
    policy.dispatch.tick = seconds(5);
    policy.dispatch.lease_ttl = seconds(10);
    policy.caps.leases = 8;
    // One addon is not allowed much.
    let narrow = AddonPolicy {
        units: Some(60),
        ..AddonPolicy::default()
    };
    policy.addons.insert("a2".to_owned(), narrow);
    policy
}

impl Node {
    pub(super) fn new(index: usize, scenario: &Scenario, disk: &Arc<Disk>) -> Self {
        let policy = scenario.policy.clone();
        let options = Options {
            node: NodeId::new(format!("n{index}")).expect("a name"),
            policy: policy.clone(),
            shared: scenario.schedulers > 1,
            look: Duration::from_secs(4),
            quarantine_after: if scenario.has(Mistake::Core(super::Bug::NoQuarantine)) {
                u32::MAX
            } else {
                QUARANTINE
            },
            ..Options::default()
        };
        let port = Port::new(disk, index);
        let machine = SimMachine::new(scenario.schedulers * scenario.workers);
        Self {
            sampler: Sampler::of(machine.clone()),
            machine,
            options,
            policy: Arc::new(policy),
            core: None,
            store: Store::on(Plug(Arc::clone(&port))),
            port,
            inbox: Arc::default(),
            listening: None,
            ops: BTreeMap::new(),
            asked: BTreeMap::new(),
            callers: BTreeMap::new(),
            requested: BTreeMap::new(),
            next_call: 0,
            replies: Replies::default(),
            begun: 0,
            alarm: 0,
            life: 0,
            asleep_until: Duration::ZERO,
            stalled_until: Duration::ZERO,
            wall_off: SignedDuration::ZERO,
            idle: 1.0,
            blind_until: Duration::ZERO,
            paused: BTreeSet::new(),
            unheard: BTreeMap::new(),
            miscounted: BTreeMap::new(),
            boot: Duration::from_secs(1000 + 77 * index as u64),
        }
    }

    pub(super) fn now(&self, time: Duration) -> Now {
        let wall = base() + time;
        Now {
            wall: wall.checked_add(self.wall_off).expect("a time in range"),
            mono: self.boot + time,
        }
    }

    /// The simulation's time of a moment of this machine's monotonic clock.
    pub(super) fn time_of(&self, mono: Duration) -> Duration {
        mono.saturating_sub(self.boot)
    }

    /// Starts its process.
    pub(super) fn start(&mut self, scenario: &Scenario, seed: u64, time: Duration) {
        self.life += 1;
        self.begun = 0;
        let mut core = Core::new(
            &self.options,
            Arc::clone(&self.policy),
            seed,
            self.now(time),
        );
        for mistake in &scenario.mistakes {
            if let Mistake::Core(bug) = mistake {
                core.plant(*bug);
            }
        }
        self.core = Some(core);
        self.sampler = Sampler::of(self.machine.clone());
        if scenario.has(Mistake::ForgedPids) {
            self.sampler.trust_pids();
        }
        // The first reading is nothing to compare with.
        let first = self.sampler.sample(time);
        debug_assert!(first.is_err());
        let inbox = Arc::clone(&self.inbox);
        let listening = self.store.listen(Arc::new(move |written| {
            let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.extend(written.iter().cloned());
        }));
        self.listening = Some(listening);
    }

    /// Kills its process: nothing of it is left but what the store holds.
    pub(super) fn kill(&mut self) {
        self.life += 1;
        self.core = None;
        self.port.close();
        self.ops.clear();
        self.asked.clear();
        self.callers.clear();
        self.requested.clear();
        self.unheard.clear();
        self.miscounted.clear();
        self.news();
    }

    /// Returns the id of a new call.
    pub(super) fn new_call(&mut self) -> CallId {
        let call = self.next_call;
        self.next_call += 1;
        call
    }

    /// Returns the way back for a call, and its id.
    pub(super) fn caller<T: Send + 'static>(
        &mut self,
        reply: fn(T) -> Reply,
    ) -> (CallId, Responder<T>) {
        let call = self.new_call();
        let replies = Arc::clone(&self.replies);
        let caller = Responder::new(call, move |answer| {
            let mut replies = replies.lock().unwrap_or_else(PoisonError::into_inner);
            replies.push(answer.map(reply));
            Ok(())
        });
        (call, caller)
    }

    /// Takes the answer that was delivered last.
    pub(super) fn take_reply(&self) -> Option<Result<Reply, ApiError>> {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.pop()
    }

    /// What the core was not told yet.
    pub(super) fn news(&self) -> Vec<Written> {
        std::mem::take(&mut *self.inbox.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn has_news(&self) -> bool {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        !inbox.is_empty()
    }

    /// Operations that have been answered.
    pub(super) fn answers(&mut self) -> Vec<(OpId, Answer)> {
        let mut context = Context::from_waker(Waker::noop());
        let mut answered = Vec::new();
        for (id, operation) in &mut self.ops {
            if let Poll::Ready(answer) = operation.as_mut().poll(&mut context) {
                answered.push((*id, answer));
            }
        }
        for (id, _) in &answered {
            self.ops.remove(id);
        }
        answered
    }
}
