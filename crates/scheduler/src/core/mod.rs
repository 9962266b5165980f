//! The engine as a state machine: inputs of one moment in, outputs out; no clock, no thread, no randomness of its own.
//!
//! # What is true
//!
//! The store is. The core knows three things of it, all of which may be read again at any time: what waits (in the
//! dispatcher), what holds capacity (leases and dispatches of this node), and when that is over (deadlines on the
//! monotonic clock). It learns of changes from the commits themselves, whoever asked for them, in their order; what
//! others commit to a shared store it reads each few seconds, or when somebody hints at it.
//!
//! # How something is started
//!
//! The dispatcher proposes; the proposal becomes an operation of the store, whose ids are drawn here. While it is under
//! way its jobs are *flying*: what commits say of them meanwhile is put aside and looked at when the answer is there.
//!
//! - The store says yes: it is so.
//! - The store says no (somebody was faster): the proposal is taken back, its jobs are *parked* for a moment and then
//!   read again.
//! - The store fails: the same operation is asked for again, with the same ids, until one of the other two comes. The
//!   ids make it safe: what took effect before is answered as before.
//!
//! So a waiting job always is in exactly one of these places: in the dispatcher (which names the next moment to look), in
//! a flight, parked with a time, being read, or in a store that is about to be read. There is no place without a next
//! moment.
//!
//! # Files
//!
//! `io` what goes in and out; `observe` commits; `load` reading the store; `flights` operations and their answers;
//! `claims` workers that ask; `waits` long polls; `sweep` what is over; `firing` schedules; `views` questions; `notes`
//! what is remembered; `perform` the store's side.

mod claims;
pub(crate) mod dice;
pub(crate) mod firing;
mod flights;
mod io;
mod load;
mod notes;
mod observe;
mod parkings;
mod perform;
mod stats;
mod sweep;
mod views;
mod waits;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use jobtree_protocol::{
    AddonId, Advice, ApiError, Constraints, Decision, ErrorCode, JobId, JobType, LeaseId, NodeId,
    Priority, QuietState,
};
use jobtree_queue::advice::advice;
use jobtree_queue::dispatch::{Dispatcher, Effect, Event};
use jobtree_queue::estimate::WeeklyProfile;
use jobtree_queue::history::History;
use jobtree_queue::lease::Deadlines;
use jobtree_queue::policy::Policy;
use jobtree_queue::transitions::{Claim, Reserve, Rules};
use jobtree_queue::{JobRecord, Now};
use jobtree_store::{Retention, Stamp, StoreError};

pub use dice::Dice;
pub use io::{Answered, Call, Input, Live, Op, OpId, Output, PAGE, Slot, Told, Wait, Waited};
pub use perform::{Performing, perform};
pub use stats::Stats;

use crate::options::Options;
use claims::Claims;
use firing::Schedules;
use flights::Flight;
use load::Load;
use observe::Known;
use parkings::Parkings;
use waits::Waits;

/// The rules that a policy makes.
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

/// Decisions that are remembered.
const DECISIONS: usize = 1000;
/// How often old things are looked for.
const PRUNING: Duration = Duration::from_secs(60);
/// How soon again, when there were more than one step takes.
const PRUNING_ON: Duration = Duration::from_millis(200);
/// Rows of each kind in one step.
const PRUNED_AT_ONCE: usize = 500;
/// How often what was learnt is written down.
const NOTING: Duration = Duration::from_secs(15 * 60);
/// Somebody may set the wall clock: what waits for a time on it is looked at this often.
const WALL_LOOK: Duration = Duration::from_secs(15);

/// Why a claim got a job that was reserved: it was admitted when that was done.
const TAKEN_UP: &str = "a claim took up what was reserved";

/// Mistakes that can be switched on, to see that a simulation finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(not(feature = "sim"), allow(dead_code))]
pub enum Bug {
    /// Leases are never expired: jobs stay RUNNING for days.
    NoSweeper,
    /// A lease is not expired while somebody with its worker's name asks for jobs.
    TrustWorkerNames,
    /// Leases are expired by the wall clock.
    WallClockExpiry,
    /// After a restart there is no grace: leases are expired at once.
    NoGrace,
    /// Ended leases keep their units.
    LeakedUnits,
    /// What is in use is not read at the start.
    ForgetLive,
    /// A refused proposal is not looked at again.
    LostProposal,
    /// An operation that failed is not repeated.
    NoRepeat,
    /// The store is never read again: lost news stay lost.
    NoFallback,
    /// Timers of all schedulers go off together.
    NoJitter,
    /// What may not start now keeps everything else from starting.
    BlockedHead,
    /// Nothing is quarantined.
    NoQuarantine,
    /// Slots of concurrency keys are counted up when a lease is granted, and not down when it ends.
    LeakedKeys,
    /// What is paused is started all the same.
    IgnorePauses,
    /// What nobody here takes up is dispatched again at once, and not left to other nodes.
    KeepsDispatching,
    /// A firing is named by the clock at which it happens, and not by the time of its calendar.
    FireByClock,
}

/// The engine's state.
#[derive(Debug)]
pub struct Core {
    node: NodeId,
    options: Options,
    policy: Arc<Policy>,
    zone: TimeZone,
    rules: Arc<Rules>,
    dice: Dice,
    dispatcher: Dispatcher,
    /// For the dispatcher's next step.
    events: Vec<Event>,
    dispatcher_wake: Option<Duration>,
    deadlines: Deadlines,
    longest_gap: Duration,
    /// The store was read: what is in use is known.
    ready: bool,
    dead: bool,
    draining: bool,
    load: Load,
    // What is iterated is ordered: a run must not depend on how a table is hashed.
    flights: BTreeMap<OpId, Flight>,
    next_op: OpId,
    /// Jobs in proposals that are under way, with what commits said of them meanwhile.
    flying: HashMap<JobId, Option<Arc<JobRecord>>>,
    /// Leases that are about to be granted here.
    granting: HashSet<LeaseId>,
    /// Leases of this node that hold.
    leases: BTreeMap<LeaseId, Known>,
    /// Jobs that are dispatched to this node, and when that was heard of.
    dispatched: BTreeMap<JobId, u64>,
    /// Counts what is heard, so that an older reading does not undo a newer one.
    heard: u64,
    /// Revisions that commits told of while jobs were being read.
    recent: HashMap<JobId, u64>,
    /// Leases that ended while the store was being read.
    ended_meanwhile: HashSet<LeaseId>,
    /// Keys that run on other nodes.
    elsewhere: HashMap<(AddonId, Arc<str>), u32>,
    pauses: BTreeSet<(AddonId, Option<JobType>)>,
    parkings: Parkings,
    late: BTreeSet<(Timestamp, JobId)>,
    late_at: HashMap<JobId, Timestamp>,
    /// Ends that are under way.
    ending: HashSet<sweep::Ending>,
    claims: Claims,
    waits: Waits,
    /// Questions that came before the store was read.
    early: Vec<(Slot, Call)>,
    /// Jobs that are read to say why they do not start.
    explaining: HashMap<OpId, JobId>,
    schedules: Schedules,
    next_prune: Duration,
    next_note: Duration,
    pids_version: u64,
    /// What leases are told may have changed.
    advice_changed: bool,
    /// Some lease is told something.
    advised: bool,
    history: History,
    /// Types with news since they were written down.
    unwritten: BTreeSet<(AddonId, JobType)>,
    profile: WeeklyProfile,
    decisions: VecDeque<Decision>,
    stats: Stats,
    outputs: Vec<Output>,
    bugs: BTreeSet<Bug>,
}

impl Core {
    /// A core that knows nothing yet.
    pub fn new(options: &Options, policy: Arc<Policy>, seed: u64, now: Now) -> Self {
        let rules = Arc::new(rules_of(&policy, options));
        let ttl = Duration::from_secs(rules.lease_ttl_sec.into());
        let longest_gap = (ttl / 3).clamp(Duration::from_millis(500), Duration::from_secs(10));
        let mut dispatcher = Dispatcher::new(
            Arc::clone(&policy),
            options.node.clone(),
            options.labels.iter().cloned(),
            now,
        );
        dispatcher.set_shared(options.shared);
        Self {
            node: options.node.clone(),
            options: options.clone(),
            zone: TimeZone::get(&policy.quiet.time_zone).unwrap_or(TimeZone::UTC),
            policy,
            rules,
            dice: Dice::new(seed),
            dispatcher,
            events: Vec::new(),
            dispatcher_wake: None,
            deadlines: Deadlines::new(now, longest_gap),
            longest_gap,
            ready: false,
            dead: false,
            draining: false,
            load: Load::default(),
            flights: BTreeMap::new(),
            next_op: 0,
            flying: HashMap::new(),
            granting: HashSet::new(),
            leases: BTreeMap::new(),
            dispatched: BTreeMap::new(),
            heard: 0,
            recent: HashMap::new(),
            ended_meanwhile: HashSet::new(),
            elsewhere: HashMap::new(),
            pauses: BTreeSet::new(),
            parkings: Parkings::default(),
            late: BTreeSet::new(),
            late_at: HashMap::new(),
            ending: HashSet::new(),
            claims: Claims::default(),
            early: Vec::new(),
            explaining: HashMap::new(),
            waits: Waits::default(),
            schedules: Schedules::default(),
            next_prune: now.mono + PRUNING,
            next_note: now.mono + NOTING,
            pids_version: 0,
            advice_changed: false,
            advised: false,
            history: History::default(),
            unwritten: BTreeSet::new(),
            profile: WeeklyProfile::default(),
            decisions: VecDeque::new(),
            stats: Stats::default(),
            outputs: Vec::new(),
            bugs: BTreeSet::new(),
        }
    }

    /// Switches a mistake on.
    #[cfg(feature = "sim")]
    pub(crate) fn plant(&mut self, bug: Bug) {
        if bug == Bug::KeepsDispatching {
            self.dispatcher.set_shared(false);
        }
        self.bugs.insert(bug);
    }

    fn has(&self, bug: Bug) -> bool {
        cfg!(feature = "sim") && self.bugs.contains(&bug)
    }

    /// Begins: reads the store.
    pub fn begin(&mut self, now: Now) -> Vec<Output> {
        self.op(Op::ReadNotes, None, now);
        self.read_store(true, now);
        self.step([], now)
    }

    /// Takes what happened, and says what is to be done.
    pub fn step(&mut self, inputs: impl IntoIterator<Item = Input>, now: Now) -> Vec<Output> {
        for input in inputs {
            self.take(input, now);
        }
        if !self.dead {
            self.settle(now);
        }
        std::mem::take(&mut self.outputs)
    }

    fn take(&mut self, input: Input, now: Now) {
        match input {
            Input::Committed(all) => {
                for written in all {
                    self.observe(written, now);
                }
            }
            Input::Call { slot, call } if self.dead => {
                let _ = call;
                self.reply(slot, Err(store_gone()));
            }
            Input::Call { slot, call } => self.call(slot, *call, now),
            Input::Left(slot) => {
                self.leave_claim(slot);
                self.waits.leave(slot);
            }
            Input::Untaken(leases) => {
                for lease in leases {
                    self.op(Op::GiveBack(lease), None, now);
                }
            }
            Input::Answer { op, answer } => self.answered(op, answer, now),
            Input::Sample(sample) => {
                self.advice_changed = true;
                self.events.push(Event::Sample(sample));
                let quiet = self.dispatcher.admission().quiet().state() == QuietState::Quiet;
                self.profile.add(now.wall, &self.zone, quiet);
            }
            Input::Signals(signals) => self.events.push(Event::Pushed(signals)),
            Input::Policy(policy) => self.set_policy(policy),
            Input::Drain(draining) => {
                self.draining = draining;
                self.advice_changed = true;
                self.events.push(Event::Drain(draining));
            }
            Input::Kick => self.events.push(Event::Kick),
            Input::Doubt if self.has(Bug::NoFallback) => {}
            Input::Doubt => self.read_store(true, now),
            Input::Settings => self.read_store(false, now),
            Input::Hint(jobs) => self.hinted(jobs, now),
            Input::Timer => self.advice_changed |= self.advised,
        }
    }

    fn set_policy(&mut self, policy: Arc<Policy>) {
        self.rules = Arc::new(rules_of(&policy, &self.options));
        self.zone = TimeZone::get(&policy.quiet.time_zone).unwrap_or(TimeZone::UTC);
        self.policy = Arc::clone(&policy);
        self.events.push(Event::PolicyChanged(policy));
        // What is paused by the policy is, and what is paused in the store stays so.
        let pauses: Vec<_> = self.pauses.iter().cloned().collect();
        for (addon, job_type) in pauses {
            self.show_pause(addon, job_type, true);
        }
    }

    /// The store has stopped: everybody is told, and nothing is asked of it any more.
    pub fn store_stopped(&mut self, why: &StoreError) {
        if self.dead {
            return;
        }
        self.dead = true;
        let slots: Vec<Slot> = self
            .flights
            .values()
            .filter_map(|flight| flight.slot)
            .chain(self.claims.slots())
            .chain(self.waits.slots())
            .chain(self.load.slots())
            .chain(self.early.iter().map(|(slot, _)| *slot))
            .collect();
        self.flights.clear();
        let error = ApiError::new(ErrorCode::Unavailable, why.to_string());
        for slot in slots {
            self.reply(slot, Err(error.clone()));
        }
    }

    /// What follows from what happened and from the time.
    fn settle(&mut self, now: Now) {
        self.sweep(now);
        self.look_at_parked(now);
        self.repeat_failed(now);
        self.fire_schedules(now);
        self.keep_house(now);
        if self.ready {
            self.run_dispatcher(now);
            self.decide_leases(now);
            for (slot, call) in std::mem::take(&mut self.early) {
                self.call(slot, call, now);
            }
        }
        self.answer_claims(now);
        self.end_waits(now);
        let wake = self.next_wake(now);
        self.outputs.push(Output::WakeAt(wake));
    }

    /// Shows the dispatcher what happened, and carries out what it proposes.
    fn run_dispatcher(&mut self, now: Now) {
        let due = self.dispatcher_wake.is_some_and(|at| at <= now.mono);
        if self.events.is_empty() && !due {
            return;
        }
        if self.has(Bug::BlockedHead) {
            self.events.push(Event::Drain(self.head_is_blocked()));
        }
        let events = std::mem::take(&mut self.events);
        self.dispatcher_wake = None;
        for effect in self.dispatcher.step_all(events, now) {
            self.carry_out(effect, now);
        }
    }

    /// The mistake [`Bug::BlockedHead`]: something waits that is paused.
    fn head_is_blocked(&self) -> bool {
        !self.pauses.is_empty() && self.dispatcher.waiting() > 0
    }

    fn carry_out(&mut self, effect: Effect, now: Now) {
        match effect {
            Effect::Reserve { job, verdict, .. } => {
                self.log(&verdict, Some(job), now);
                let command = Reserve {
                    reservation_id: self.dice.lease_id(),
                    node_id: self.node.clone(),
                    // Counted in the store.
                    key_holders: 0,
                    reason: verdict.reason(),
                };
                self.flying.insert(job, None);
                self.op(Op::Reserve(job, command), None, now);
            }
            Effect::Grant {
                ask, jobs, verdict, ..
            } => {
                let ids: Vec<JobId> = jobs.iter().map(|(job, _)| *job).collect();
                self.log(&verdict, ids.first().copied(), now);
                self.grant(ask, ids, verdict.reason(), now);
            }
            Effect::TakeUp { ask, job, .. } => {
                if self.claims.granting(ask).is_some() {
                    // After a refusal the job is read: if it still is dispatched, that is news then.
                    self.dispatched.remove(&job);
                }
                self.grant(ask, vec![job], TAKEN_UP.to_owned(), now);
            }
            // The deadlines know better when it is over, and heal what the dispatcher has wrong.
            Effect::ReturnUnclaimed { job } => {
                self.op(Op::Look(vec![job]), None, now);
            }
            Effect::WriteDenial { job, verdict } => {
                self.log(&verdict, Some(job), now);
                if let Some(block) = &verdict.denied {
                    let code = block.code().to_owned();
                    *self.stats.denials.entry(code.clone()).or_default() += 1;
                    let reason = verdict.reason();
                    self.op(Op::Deny { job, code, reason }, None, now);
                }
            }
            Effect::AtRisk { job, slack } => {
                let seconds = slack.as_secs();
                let reason = if seconds < 0 {
                    format!("it should have started {} s ago", -seconds)
                } else {
                    format!("it must start within {seconds} s")
                };
                self.op(Op::AtRisk(job, reason), None, now);
            }
            Effect::StateChanged { .. } => {}
            Effect::WakeAt(at) => {
                let known = self.dispatcher_wake.unwrap_or(at.mono);
                self.dispatcher_wake = Some(known.min(at.mono));
            }
        }
    }

    /// Asks the store for a lease for `jobs`, for the worker behind `ask`.
    fn grant(&mut self, ask: u64, jobs: Vec<JobId>, reason: String, now: Now) {
        let drawn = self.dice.lease_id();
        let Some(grant) = self.claims.granting(ask) else {
            // The ask has ended in this very step: nothing is proposed.
            return self.take_back(&jobs, now);
        };
        let command = Claim {
            lease_id: grant.lease_id.unwrap_or(drawn),
            node_id: self.node.clone(),
            instance_id: Some(grant.instance_id),
            pids: grant.pids,
            reason,
        };
        for job in &jobs {
            self.flying.insert(*job, None);
        }
        self.granting.insert(command.lease_id);
        let id = self.op(Op::Claim(jobs, command), None, now);
        self.claims.began(ask, id);
    }

    fn log(&mut self, verdict: &jobtree_queue::admission::Verdict, job: Option<JobId>, now: Now) {
        let addon = job.and_then(|job| self.dispatcher.addon_of(job)).cloned();
        if let Some(addon) = addon {
            self.remember(verdict.to_log(now.wall, job, addon));
        }
    }

    fn remember(&mut self, decision: Decision) {
        if self.decisions.len() == DECISIONS {
            self.decisions.pop_back();
        }
        self.decisions.push_front(decision);
    }

    /// Pruning, notes, and another look at a shared store.
    fn keep_house(&mut self, now: Now) {
        if !self.ready {
            return;
        }
        if self.next_prune <= now.mono {
            self.next_prune = now.mono + self.dice.jittered(PRUNING);
            let before = |time: Duration| now.wall.checked_sub(time).unwrap_or(Timestamp::MIN);
            let keep = &self.options.keep;
            let retention = Retention {
                done: before(keep.done),
                failed: before(keep.failed),
                canceled: before(keep.canceled),
                events: before(keep.events),
                keys: before(keep.keys),
                leases: before(keep.leases),
            };
            self.op(Op::Prune(retention, PRUNED_AT_ONCE), None, now);
        }
        if self.next_note <= now.mono {
            self.next_note = now.mono + self.dice.jittered(NOTING);
            self.write_notes(now);
        }
        self.look_again(now);
    }

    fn next_wake(&self, now: Now) -> Duration {
        let after_wall = |at: Timestamp| {
            let left = Duration::try_from(at.duration_since(now.wall)).unwrap_or_default();
            now.mono + left.min(WALL_LOOK)
        };
        let gap = (!self.deadlines.is_empty()).then(|| now.mono + self.longest_gap / 2);
        let due = self.deadlines.next().filter(|at| *at > now.mono);
        let late = self.late.first().map(|(at, _)| *at);
        let moments = [
            self.dispatcher_wake.filter(|_| self.ready),
            gap,
            due,
            late.filter(|at| *at > now.wall).map(after_wall),
            self.schedules.next().map(after_wall),
            self.parkings.next_due(),
            self.next_repeat(),
            self.claims.next(),
            self.waits.next(),
            self.load.next(),
            Some(self.next_prune),
            Some(self.next_note),
        ];
        let first = moments.into_iter().flatten().min();
        first.unwrap_or(self.next_prune).max(now.mono)
    }

    fn stamp(&mut self, now: Now) -> Stamp {
        Stamp {
            now,
            roll: self.dice.roll(),
            rules: Arc::clone(&self.rules),
        }
    }

    fn reply(&mut self, slot: Slot, reply: Result<Told, ApiError>) {
        self.outputs.push(Output::Reply { slot, reply });
    }

    /// What the load of this node asks of a worker.
    pub fn advice(&self, priority: Priority, constraints: Constraints, now: Now) -> Advice {
        let view = self.dispatcher.view(now);
        let admission = self.dispatcher.admission();
        advice(admission, &view, priority, constraints, self.draining, now)
    }

    /// What each lease of this node is told that is told something else than to go on, if that may have changed.
    pub fn advices(&mut self, now: Now) -> Option<HashMap<LeaseId, Advice>> {
        if !std::mem::take(&mut self.advice_changed) {
            return None;
        }
        let view = self.dispatcher.view(now);
        let admission = self.dispatcher.admission();
        let told = self.leases.iter().filter_map(|(id, lease)| {
            let (priority, constraints) = (lease.priority, lease.constraints);
            let told = advice(admission, &view, priority, constraints, self.draining, now);
            (told != Advice::Continue).then_some((*id, told))
        });
        let told: HashMap<LeaseId, Advice> = told.collect();
        self.advised = !told.is_empty();
        Some(told)
    }

    /// Grows when [`Core::pids`] changes.
    pub fn pids_version(&self) -> u64 {
        self.pids_version
    }

    /// Processes of leases that hold here.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self
            .leases
            .values()
            .flat_map(|lease| lease.pids.iter().copied())
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Whether something will look at a job that waits: the dispatcher, an operation under way, or a timer.
    #[cfg(feature = "sim")]
    pub(crate) fn has_next_moment(&self, job: JobId) -> bool {
        let shown = |event: &Event| match event {
            Event::Submitted(all) => all.iter().any(|it| it.id == job),
            _ => false,
        };
        self.dispatcher.is_waiting(job)
            || self.flying.contains_key(&job)
            || self.dispatched.contains_key(&job)
            || self.parkings.is_due_later(job)
            || self.events.iter().any(shown)
            || self.is_looked_at(job)
    }

    /// Whether all of the store is being read.
    #[cfg(feature = "sim")]
    pub(crate) fn is_reading(&self) -> bool {
        let reads = |flight: &Flight| matches!(flight.op, Op::ReadLive | Op::ReadQueued(_));
        self.flights.values().any(reads)
    }

    /// When the store is looked at again, by the monotonic clock.
    #[cfg(feature = "sim")]
    pub(crate) fn next_look(&self) -> Option<Duration> {
        self.load.next()
    }

    /// The dispatcher, for whoever checks it.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }
}

fn store_gone() -> ApiError {
    ApiError::new(
        ErrorCode::Unavailable,
        "the store has stopped; open it again and start a scheduler on it",
    )
}
