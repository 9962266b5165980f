//! The engine as a state machine: inputs of one instant in, outputs out; no clock, no thread, no randomness of its own.
//!
//! # What is true
//!
//! The store is. The core knows three things of it, all of which may be read again at any time: what waits (in the
//! planner), what holds capacity (leases and dispatches of this node), and when that is over (deadlines on the monotonic
//! clock). It learns of changes from the commits themselves, whichever caller asked for them, in their order; what other
//! schedulers commit to a shared store it reads every few seconds, or when a notification tells of it.
//!
//! # How something is started
//!
//! The planner proposes; the proposal becomes an operation of the store, whose ids are drawn here. While it is under way,
//! what commits say of its jobs is put aside and looked at when the answer is there.
//!
//! - The store says yes: it is so.
//! - The store says no (another scheduler or caller was faster): the proposal is taken back, and its jobs are read again
//!   after a pause.
//! - The store fails: the same operation is asked for again, with the same ids, until one of the other two comes. The
//!   ids make it safe: what took effect before is answered as before.
//!
//! # Rooms
//!
//! Each room is a file with private state; [`Core`] passes between them what happened.
//!
//! | you wonder | read |
//! | --- | --- |
//! | where a job is, and what moves it | `places`, with the backoff of refused jobs in `retry_backoff` |
//! | what holds capacity, and when it is over | `leases`, with what is read of them in `lease_reads`; jobs that wait beyond their deadline in `late` |
//! | how a worker gets jobs, how a caller gets one job or capacity | `claims`, `requests`, `capacity` |
//! | how an idle worker gets jobs that another one holds and has not begun | `unbegun` |
//! | how a caller waits for something | `polls` |
//! | how the store is read again | `resync`; what is newer than a reading that is under way in `recent` |
//! | what fires when | `schedules` |
//! | which other machines share the store | `nodes` |
//! | what is learnt and remembered | `learning`; decisions and counts in `journal` and `stats` |
//! | how a question is answered | `questions` |
//! | what goes in and out | `calls` and `turn`; the table of operations of the store is `operations` |

mod calls;
mod capacity;
mod claims;
mod in_flight;
mod journal;
mod late;
mod learning;
mod lease_reads;
mod leases;
mod load_record;
mod nodes;
mod operations;
mod places;
mod planted;
mod polls;
mod questions;
mod recent;
mod requests;
mod resync;
mod retry_backoff;
pub(crate) mod rng;
pub(crate) mod schedules;
mod stats;
#[cfg(test)]
mod tests;
mod turn;
mod unbegun;
pub(crate) mod upkeep;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{Advice, ApiError, ErrorCode, JobId, LeaseId, NodeStatus};
use jobtree_queue::Now;
#[cfg(feature = "sim")]
use jobtree_queue::planner::Mistake;
use jobtree_queue::planner::{Effect, Event, Planner};
use jobtree_queue::policy::Policy;
use jobtree_queue::transitions;
use jobtree_store::{StoreError, Written};

pub use calls::{Call, CallId, CapacityRequest, Input, Responder, Response};
pub use claims::{ClaimId, WorkerClaim};
pub use leases::LeaseProcesses;
pub use operations::{
    Admit, Answer, AskBack, Claim, CountJobs, Deny, Expire, FindClaimed, FindRequested, FoundLease,
    GiveBack, GrantFor, Live, MarkAtRisk, MissDeadline, Op, OpId, PAGE, Performing, PollRead,
    Prune, PutNote, ReadExplained, ReadJobs, ReadLeases, ReadLive, ReadNodes, ReadNotes,
    ReadQueued, Request, Reserve, Return, TellLoadState, TimeOut, perform,
};
pub use planted::Bug;
pub use polls::{Dispatchable, Ended, Events, Log, Poll, PollId};
pub use questions::dependencies;
pub use requests::{JobAnswer, JobRequest};
pub use rng::Rng;
pub use stats::Stats;
pub use turn::{Output, rules_of};

use crate::options::Options;
use capacity::Capacity;
use claims::Claims;
use in_flight::Entry;
use journal::Journal;
use late::LateJobs;
use learning::Learning;
use leases::{Ending, Leases};
use load_record::LoadRecord;
use nodes::Nodes;
use operations::OnFailure;
use places::{JobsRead, KeyFull, Places};
use polls::Polls;
use questions::Questions;
use requests::Requests;
use resync::{Extent, Resync};
use schedules::Schedules;
use turn::{Config, Turn};
use upkeep::Upkeep;

/// The wall clock may be set: what waits for a time on it is looked at this often.
const WALL_CHECK: Duration = Duration::from_secs(15);

/// The reason of a claim that got a reserved job: it was admitted when it was reserved.
pub(crate) const ACCEPTED: &str = "a claim accepted a reserved job";

/// The phase of the core's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The store is being read for the first time: what is in use is not known.
    Starting,
    /// All is known.
    Ready,
    /// The store has stopped.
    Dead,
}

/// The engine's state: rooms, each with its own.
#[derive(Debug)]
pub struct Core {
    turn: Turn,
    phase: Phase,
    places: Places,
    leases: Leases,
    late: LateJobs,
    claims: Claims,
    requests: Requests,
    capacity: Capacity,
    polls: Polls,
    questions: Questions,
    resync: Resync,
    schedules: Schedules,
    learning: Learning,
    load_record: LoadRecord,
    journal: Journal,
    upkeep: Upkeep,
    nodes: Nodes,
}

impl Core {
    /// Returns a core that knows nothing yet.
    pub fn new(options: &Options, policy: Arc<Policy>, seed: u64, now: Now) -> Self {
        let turn = Turn::new(Config::new(options, policy), seed, now);
        Self {
            phase: Phase::Starting,
            places: Places::new(&turn),
            leases: Leases::new(&turn),
            late: LateJobs::default(),
            claims: Claims::default(),
            requests: Requests::default(),
            capacity: Capacity::default(),
            polls: Polls::default(),
            questions: Questions::default(),
            resync: Resync::default(),
            schedules: Schedules::default(),
            learning: Learning::new(now.mono),
            load_record: LoadRecord::default(),
            journal: Journal::default(),
            upkeep: Upkeep::new(now.mono),
            nodes: Nodes::new(&turn),
            turn,
        }
    }

    /// Begins: reads the store.
    pub fn begin(&mut self, now: Now) -> Vec<Output> {
        self.turn.now = now;
        self.turn.ask(ReadNotes);
        self.read_store(Extent::Everything);
        self.step([], now)
    }

    /// Takes what happened, and says what is to be done.
    pub fn step(&mut self, inputs: impl IntoIterator<Item = Input>, now: Now) -> Vec<Output> {
        self.turn.now = now;
        for input in inputs {
            self.take(input);
        }
        if self.phase != Phase::Dead {
            self.settle();
        }
        self.turn.take_outputs()
    }

    /// Ends: takes the commits that came last, and asks for what is remembered and not written to be written. Nothing is planned
    /// any more.
    pub fn end(&mut self, inputs: impl IntoIterator<Item = Input>, now: Now) -> Vec<Output> {
        self.turn.now = now;
        for input in inputs {
            if matches!(input, Input::Committed(_)) {
                self.take(input);
            }
        }
        self.turn.take_outputs();
        if self.phase == Phase::Ready {
            self.learning.write_now(&mut self.turn);
            self.journal.write_now(&mut self.turn);
            self.load_record.changed(now.mono);
            self.load_record.write(&self.places, &mut self.turn);
        }
        self.turn.take_outputs()
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Committed(all) => all.into_iter().for_each(|it| self.committed(it)),
            Input::Call(call) => self.call(call),
            Input::Left(call) => {
                self.claims.leave(call, &mut self.places);
                self.requests.leave(call);
                self.capacity.leave(call);
                self.polls.leave(call);
                self.questions.leave(call);
            }
            Input::Untaken(leases) => {
                for lease in leases {
                    self.turn.ask(GiveBack { lease });
                }
            }
            Input::Answer { op, answer } => self.answered(op, *answer),
            Input::Sample(sample) => {
                self.leases.advice_may_change();
                self.places.tell(Event::Sample(sample));
                self.learning.sampled(self.places.is_quiet(), &self.turn);
                self.load_record.sampled(self.turn.now.mono);
            }
            Input::Signals(signals) => self.places.tell(Event::Pushed(signals)),
            Input::Policy(policy) => {
                self.turn.config.set_policy(policy);
                self.places.policy_changed(&self.turn);
            }
            Input::Drain(draining) => {
                self.leases.advice_may_change();
                self.places.drain(draining);
            }
            Input::PauseLease(lease, paused) => self.leases.pause(lease, paused),
            Input::Listeners(scope, count) => self.places.set_listeners(scope, count),
            Input::Kick => self.places.tell(Event::Kick),
            Input::Resync if self.turn.has(Bug::NoFallback) => {}
            Input::Resync => self.read_store(Extent::Everything),
            Input::SettingsChanged => self.read_store(Extent::Live),
            Input::JobsChanged(jobs) => {
                self.polls.jobs_changed(&jobs);
                self.leases.jobs_changed(&jobs, &mut self.turn);
                self.turn.ask(ReadJobs { jobs: jobs.into() });
            }
            Input::Timer => self.leases.time_passed(),
        }
    }

    /// What follows from what happened and from the time.
    fn settle(&mut self) {
        self.leases.sweep(&self.claims, &mut self.turn);
        self.late.sweep(&mut self.turn);
        self.places.reread_refused(&mut self.turn);
        self.turn.repeat_failed();
        self.schedules.fire(&mut self.turn);
        let ready = self.phase == Phase::Ready;
        if ready {
            self.upkeep.prune(&mut self.turn);
            self.learning.write(&mut self.turn);
            self.load_record.write(&self.places, &mut self.turn);
            self.journal.write(&mut self.turn);
            if self.nodes.is_due(self.turn.now.mono) {
                let own = self.own_status();
                self.nodes.renew(own, &mut self.turn);
            }
            if let Some(extent) = self.resync.take_due(&self.turn) {
                self.read_store(extent);
            }
            if let Some(polling) = self.polls.take_changed_polling() {
                self.places.set_polling(polling);
            }
            self.plan();
            let (places, leases) = (&mut self.places, &mut self.leases);
            self.requests
                .decide(places, leases, &mut self.journal, &mut self.turn);
            self.capacity
                .decide(places, leases, &mut self.journal, &mut self.turn);
            self.take_back_unbegun();
            for call in self.questions.take_postponed() {
                self.call(call);
            }
        }
        self.claims.answer(ready, &mut self.places, &mut self.turn);
        self.polls.read_wanted(ready, &mut self.turn);
        let wake = self.next_wake();
        self.turn.wake_at(wake);
    }

    /// Asks workers for jobs that they have not begun, for workers that have nothing to do.
    fn take_back_unbegun(&mut self) {
        let unbegun = self.leases.unbegun();
        if !unbegun.ripen(self.turn.now.mono) {
            return;
        }
        for (claim, request) in self.claims.idle() {
            unbegun.ask_for(claim, request, &mut self.places, &mut self.turn);
        }
    }

    /// Returns how this machine stands.
    fn own_status(&self) -> NodeStatus {
        questions::node_status(&self.places, self.leases.count(), &self.turn)
    }

    fn next_wake(&self) -> Duration {
        let now = self.turn.now;
        let idle = self.claims.idle().next().is_some();
        let by_wall = |at: Timestamp| {
            let left = Duration::try_from(at.duration_since(now.wall)).unwrap_or_default();
            now.mono + left.min(WALL_CHECK)
        };
        let times = [
            self.places.next_wake(self.phase == Phase::Ready),
            self.leases.next_end(now.mono),
            self.late.next(now.wall).map(by_wall),
            self.schedules.next().map(by_wall),
            self.turn.in_flight.next_repeat(),
            self.leases.next_returnable().filter(|_| idle),
            self.claims.next_end(),
            self.polls.next_end(now.mono),
            self.resync.next(),
            Some(self.learning.next_write()),
            self.load_record.next(),
            self.journal.next_write(),
            self.nodes.next().filter(|_| self.phase == Phase::Ready),
        ];
        let first = times.into_iter().flatten().min();
        first
            .map_or(self.upkeep.next(), |first| first.min(self.upkeep.next()))
            .max(now.mono)
    }
}

/// Commits and results of the store.
impl Core {
    /// Takes a commit.
    fn committed(&mut self, written: Written) {
        self.turn.commits_seen += 1;
        let Written { changes, now: then } = written;
        self.journal.committed(&changes);
        for job in &changes.jobs {
            let capacity = self.turn.config.policy.capacity.units;
            if let Some(expected) = self.learning.learn(job, capacity) {
                self.places.expect(expected);
            }
            self.late.watch(job);
            self.places.committed(job, &self.turn);
        }
        let places = &mut self.places;
        self.leases.committed(&changes, then, places, &self.turn);
        self.polls.committed(&changes, &mut self.turn);
    }

    /// Takes the answer of an operation.
    fn answered(&mut self, id: OpId, answer: Answer) {
        let Some(entry) = self.turn.in_flight.end(id) else {
            // An answer that came twice.
            return;
        };
        let reads = entry.reads();
        let repeat = self.is_repeated(&answer);
        match repeat {
            Some(true) => self.turn.repeat_later(id, entry, answer.into_op()),
            Some(false) => {}
            None => self.route(id, answer, &entry),
        }
        if reads {
            let oldest = self.turn.in_flight.oldest_reading();
            self.places.forget_read(oldest);
            self.leases.forget_read(oldest);
        }
    }

    /// For an operation that failed: `true` if it is asked for again, `false` if it is dropped. None if its room is told.
    fn is_repeated(&mut self, answer: &Answer) -> Option<bool> {
        answer.failure()?;
        self.journal.count_store_failure();
        match answer.on_failure() {
            OnFailure::Repeat => Some(!self.turn.has(Bug::NoRepeat)),
            OnFailure::Drop => Some(false),
            OnFailure::TellCaller => None,
        }
    }

    /// Brings an answer to its room.
    fn route(&mut self, id: OpId, answer: Answer, entry: &Entry) {
        let commits_seen = entry.commits_seen;
        let turn = &mut self.turn;
        match answer {
            Answer::Reserve(op, Ok(made)) => self.places.reserved(op.job, &made, turn),
            Answer::Reserve(op, Err(_))
                if entry.may_have_happened() && !turn.has(Bug::RefusedIsUndone) =>
            {
                // It may have been made and accepted since: what it holds is known when the job was read.
                self.journal.count_lost_proposal();
                self.places.uncertain(op.job, turn);
            }
            Answer::Reserve(op, Err(error)) => self.proposal_refused(&[op.job], &error),
            Answer::Claim(op, Ok(claimed)) => {
                let key = claimed.jobs.first().map(|job| places::key_of(job));
                let of_this = |job: &JobId| claimed.jobs.iter().any(|it| it.id == *job);
                if op.jobs.iter().any(of_this) || turn.has(Bug::UnreadLeases) {
                    self.places.claimed(&op.jobs, &claimed, turn);
                } else {
                    // The lease was granted before for other jobs, perhaps at another node: what was decided now is void.
                    self.places.overtaken(&op.jobs, turn);
                }
                self.leases
                    .granted(&claimed.lease, key, &mut self.places, turn);
                match op.grant_for {
                    GrantFor::Claim(claim) => self.claims.granted(claim, &claimed, turn),
                    GrantFor::Request(call) => {
                        let places = &self.places;
                        self.requests.granted(call, &claimed.lease, places, turn);
                    }
                }
            }
            Answer::Claim(op, Err(error)) => {
                self.leases.grant_refused(op.command.lease_id);
                self.proposal_refused(&op.jobs, &error);
                match op.grant_for {
                    GrantFor::Claim(claim) => {
                        self.claims.grant_refused(claim, &error, &mut self.places);
                    }
                    GrantFor::Request(call) => {
                        self.requests.grant_refused(call, &error, &mut self.turn);
                    }
                }
            }
            Answer::Admit(op, Ok(lease)) => {
                if lease.id != op.command.lease_id {
                    // The request was answered before, by another lease: what was decided now is void.
                    self.leases.grant_refused(op.command.lease_id);
                    self.places.lease_ended(op.command.lease_id);
                }
                self.leases.granted(&lease, None, &mut self.places, turn);
                self.capacity.granted(op.call, lease);
            }
            Answer::Admit(op, Err(error)) => {
                self.leases.grant_refused(op.command.lease_id);
                self.places.lease_ended(op.command.lease_id);
                self.capacity.grant_refused(op.call, &error, turn);
            }
            Answer::Return(op, result) => {
                let ending = Ending::Dispatch(op.job);
                self.leases.end_answered(ending, result.is_err(), turn);
            }
            Answer::Expire(op, result) => {
                let ending = Ending::Lease(op.lease);
                self.leases.end_answered(ending, result.is_err(), turn);
            }
            Answer::TimeOut(op, result) => {
                let ending = Ending::Run(op.lease);
                self.leases.end_answered(ending, result.is_err(), turn);
            }
            Answer::MissDeadline(op, result) => {
                if self.late.answered(op.job, result.is_err()) {
                    turn.ask(ReadJobs::one(op.job));
                }
            }
            // Refused: the job or the lease is not as it was, and there is nothing to note or to give back any more.
            Answer::Deny(..) | Answer::MarkAtRisk(..) | Answer::GiveBack(..) => {}
            Answer::PutNote(..) | Answer::TellLoadState(..) => {}
            Answer::AskBack(op, asked) => {
                let jobs = asked.map_or(0, |jobs| jobs.len());
                self.leases.unbegun().asked(op.lease, jobs, turn.now.mono);
            }
            Answer::Prune(_, pruned) => self.upkeep.pruned(pruned.is_ok_and(|it| it.more), turn),
            Answer::Fire(..) => self.read_store(Extent::Live),
            Answer::ReadLive(_, Ok(live)) => self.live_read(live, commits_seen),
            Answer::ReadQueued(_, Ok(jobs)) => self.queued_read(&jobs),
            Answer::ReadNodes(_, Ok(notes)) => self.nodes.read(&notes, turn),
            Answer::ReadNotes(_, Ok(notes)) => {
                let node = turn.config.node.clone();
                self.journal.restore(&notes, node.as_str());
                if let Some(record) = load_record::find(&notes, node.as_str()) {
                    self.places.restore_load(&record, turn.now);
                }
                for expected in self.learning.restore(&notes, turn) {
                    self.places.expect(expected);
                }
            }
            Answer::ReadJobs(op, Ok(found)) => self.jobs_read(id, &op.jobs, found),
            Answer::ReadExplained(op, result) => {
                let read = result.as_ref().map(|job| job.as_deref());
                let learning = &self.learning;
                self.questions.explained(op.call, read, learning, turn);
                if let Ok(found) = result {
                    self.jobs_read(id, &[op.job], found.into_iter().collect());
                }
            }
            Answer::ReadLeases(op, Ok(found)) => {
                let places = &mut self.places;
                self.leases
                    .read(&op.leases, found, commits_seen, places, turn);
            }
            // A reading is never refused; one that fails is repeated.
            Answer::ReadLive(_, Err(_))
            | Answer::ReadQueued(_, Err(_))
            | Answer::ReadNotes(_, Err(_))
            | Answer::ReadNodes(_, Err(_))
            | Answer::ReadJobs(_, Err(_))
            | Answer::ReadLeases(_, Err(_)) => {}
            Answer::FindClaimed(op, found) => {
                self.claims.found(op.call, found, &mut self.places, turn);
            }
            Answer::FindRequested(op, found) => self.capacity.found(op.call, found, turn),
            Answer::PollEnded(op, result) => self.polls.ended_read(&op, result, turn),
            Answer::PollDispatchable(op, result) => {
                self.polls.dispatchable_read(&op, result, turn);
            }
            Answer::PollEvents(op, result) => self.polls.events_read(&op, result, turn),
            Answer::PollLog(op, result) => self.polls.log_read(&op, result, turn),
            Answer::CountJobs(op, counts) => {
                let others = self.nodes.others(turn.now.mono);
                let own = questions::node_status(&self.places, self.leases.count(), turn);
                let nodes = std::iter::once(own).chain(others).collect();
                self.questions
                    .counted(op.call, counts, nodes, &self.places, turn);
            }
        }
    }

    /// A proposal lost against another scheduler or a caller.
    fn proposal_refused(&mut self, jobs: &[JobId], error: &StoreError) {
        self.journal.count_lost_proposal();
        let KeyFull(reread) = self.places.refused(jobs, error, &mut self.turn);
        if let Some(pause) = reread {
            self.resync.no_later_than(self.turn.now.mono + pause);
        }
    }

    fn jobs_read(&mut self, id: OpId, asked: &[JobId], found: Vec<Arc<jobtree_queue::JobRecord>>) {
        for job in found.iter().filter(|job| !self.places.is_outdated(job)) {
            self.late.watch(job);
        }
        let JobsRead { dispatched, held } = self.places.read(id, asked, found, &self.turn);
        self.leases.watch(dispatched, Vec::new(), &self.turn);
        self.leases.seen_on_jobs(&held, &mut self.turn);
    }

    fn read_store(&mut self, extent: Extent) {
        if self.resync.read(extent, &mut self.turn) {
            self.journal.count_reading();
        }
    }

    /// Takes the live leases and dispatches that were read.
    fn live_read(&mut self, live: Live, begun: u64) {
        let turn = &mut self.turn;
        let starting = self.phase == Phase::Starting;
        if starting {
            self.leases.recover(&live, turn);
        }
        self.places.set_pauses(&live.pauses, turn);
        self.schedules.set(live.schedules, turn);
        let here = Some(&turn.config.node);
        let foreign_lease = live.leases.iter().any(|lease| Some(&lease.node_id) != here);
        let mut dispatches = live.dispatching.iter();
        let others = foreign_lease || dispatches.any(|job| job.node_id.as_ref() != here);
        self.resync.set_others_seen(others);
        let jobs = live.held.iter().chain(&live.dispatching);
        self.places.set_keys_elsewhere(jobs, turn);
        if !(starting && turn.has(Bug::ForgetLive)) {
            let places = &mut self.places;
            self.leases
                .all_read(&live.leases, &live.held, begun, places, turn);
            let dispatched = places.dispatches_read(live.dispatching, begun, turn);
            self.leases.watch(dispatched, Vec::new(), turn);
        }
        if self.resync.live_read(&mut self.turn) {
            self.reading_done();
        }
    }

    /// A page of what waits was read.
    fn queued_read(&mut self, jobs: &[Arc<jobtree_queue::JobRecord>]) {
        for job in jobs {
            if !self.places.is_outdated(job) {
                self.late.watch(job);
            }
            if self.phase == Phase::Ready {
                self.places.queued_read(job, &self.turn);
            } else {
                self.resync.keep_waiting(job);
            }
        }
        if self.resync.page_read(jobs, &mut self.turn) {
            self.reading_done();
        }
    }

    fn reading_done(&mut self) {
        let waiting = self.resync.done(&mut self.turn);
        if self.phase == Phase::Starting {
            self.phase = Phase::Ready;
            self.places.begin_with(waiting);
        }
        if self.resync.plan_next(&mut self.turn) {
            self.polls.want_all();
        }
        if let Some(extent) = self.resync.take_again() {
            self.read_store(extent);
        }
    }

    /// The store has stopped: every caller is told, and nothing is asked of it any more.
    pub fn store_stopped(&mut self, why: &StoreError) {
        if self.phase == Phase::Dead {
            return;
        }
        self.phase = Phase::Dead;
        let error = ApiError::new(ErrorCode::Unavailable, why.to_string());
        let turn = &mut self.turn;
        turn.in_flight.clear();
        self.claims.refuse_all(&error, turn);
        self.requests.refuse_all(&error, turn);
        self.capacity.refuse_all(&error, turn);
        self.polls.refuse_all(&error, turn);
        self.questions.refuse_all(&error, turn);
        self.resync.refuse_all(&error, turn);
    }
}

/// What callers ask, and what the planner proposes.
impl Core {
    fn call(&mut self, call: Call) {
        let turn = &mut self.turn;
        match call {
            call if self.phase == Phase::Dead => turn.deliver(call.refuse(store_gone())),
            Call::Explain(..) | Call::Reasons(..) | Call::Status(_)
                if self.phase == Phase::Starting =>
            {
                self.questions.postpone(call);
            }
            Call::Claim(claim, caller) => {
                self.claims.claim(claim, caller, &mut self.places, turn);
            }
            Call::Request(request, caller) => self.requests.ask(request, caller),
            Call::Capacity(request, caller) => {
                self.places.polled(Some(request.addon_id.clone()));
                self.capacity.ask(*request, caller, turn);
            }
            Call::Ended(poll, wait_for, caller) => {
                self.polls.wait_for_end(poll, wait_for, caller, turn);
            }
            Call::Dispatchable(poll, wait_for, caller) => {
                self.places.polled(poll.0.clone());
                self.polls.wait_for_dispatch(poll, wait_for, caller, turn);
            }
            Call::Events(poll, wait_for, caller) => {
                self.polls.wait_for_events(poll, wait_for, caller, turn);
            }
            Call::Log(poll, wait_for, caller) => {
                self.polls.wait_for_log(poll, wait_for, caller, turn);
            }
            Call::FollowSettings(caller) => {
                self.resync.tell_when_read(caller);
                self.read_store(Extent::Live);
            }
            Call::Explain(job, caller) => {
                // What has happened is told first: the explanation is of how things are now.
                self.plan();
                let (places, learning) = (&mut self.places, &self.learning);
                self.questions
                    .explain(job, caller, places, learning, &mut self.turn);
            }
            Call::Reasons(jobs, caller) => {
                self.plan();
                let reasons = self.places.reasons(&jobs, &self.turn);
                self.turn.respond(caller, Ok(reasons));
            }
            Call::Status(caller) => self.questions.status(caller, turn),
            Call::Load(caller) => {
                if self.phase == Phase::Ready {
                    // What has happened is told first: what is in use is as of now.
                    self.plan();
                }
                let load = questions::load_of(&self.places, self.turn.now);
                self.turn.respond(caller, Ok(load));
            }
            Call::Stats(caller) => turn.respond(caller, Ok(self.journal.stats().clone())),
            Call::Decisions(limit, caller) => {
                turn.respond(caller, Ok(self.journal.decisions(limit)));
            }
            Call::History(caller) => turn.respond(caller, Ok(self.learning.history())),
        }
    }

    /// Runs a scheduling pass, and carries out what the planner proposes.
    fn plan(&mut self) {
        for effect in self.places.pass(&self.turn) {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Reserve { job, verdict, .. } => {
                self.remember(&verdict, job);
                let command = transitions::Reserve {
                    reservation_id: self.turn.rng.lease_id(),
                    node_id: self.turn.config.node.clone(),
                    // Counted in the store.
                    key_holders: 0,
                    reason: verdict.reason(),
                };
                self.places.propose(&[job]);
                self.turn.ask(Reserve { job, command });
            }
            Effect::Grant {
                ask, jobs, verdict, ..
            } => {
                let jobs: Vec<JobId> = jobs.iter().map(|(job, _)| *job).collect();
                if let Some(first) = jobs.first() {
                    self.remember(&verdict, *first);
                }
                self.grant(ask, jobs, verdict.reason());
            }
            Effect::Accept { ask, job, .. } => self.grant(ask, vec![job], ACCEPTED.to_owned()),
            // The deadlines know better when it is over, and heal what the planner has wrong.
            Effect::ReturnUnclaimed { job } => self.turn.ask(ReadJobs::one(job)),
            Effect::WriteDenial { job, verdict } => {
                self.remember(&verdict, job);
                if let Some(block) = &verdict.denied {
                    let code = block.code().to_owned();
                    self.journal.count_denial(&code);
                    let reason = verdict.reason();
                    self.turn.ask(Deny { job, code, reason });
                }
            }
            Effect::AtRisk { job, slack } => {
                let seconds = slack.as_secs();
                let reason = if seconds < 0 {
                    format!("it should have started {} s ago", -seconds)
                } else {
                    format!("it must start within {seconds} s")
                };
                self.turn.ask(MarkAtRisk { job, reason });
            }
            Effect::StateChanged { from, to } => {
                self.load_record.changed(self.turn.now.mono);
                let reason = self.places.planner().admission().change_of_state(from, to);
                let node = self.turn.config.node.clone();
                self.turn.ask(TellLoadState { node, reason });
            }
            Effect::WakeAt(at) => self.places.wake_at(at.mono),
        }
    }

    /// Asks the store for a lease for `jobs`, for a claim.
    fn grant(&mut self, claim: ClaimId, jobs: Vec<JobId>, reason: String) {
        let Some(command) = self.claims.begin_grant(claim, reason, &mut self.turn) else {
            // The claim has ended in this very step: nothing is proposed.
            return self.places.withdraw(&jobs, &self.turn);
        };
        self.places.propose(&jobs);
        self.leases.begin_grant(command.lease_id);
        self.turn.ask(Claim {
            jobs,
            command,
            grant_for: GrantFor::Claim(claim),
        });
    }

    fn remember(&mut self, verdict: &jobtree_queue::admission::Verdict, job: JobId) {
        let addon = self.places.planner().addon_of(job).cloned();
        if let Some(addon) = addon {
            let decision = verdict.to_log(self.turn.now.wall, Some(job), addon);
            self.journal.remember(decision);
        }
    }
}

/// What the engine publishes, and what the simulator checks.
impl Core {
    /// Returns the advice for each lease of this node that is told something else than to go on, if that may have changed.
    pub fn advices(&mut self, now: Now) -> Option<HashMap<LeaseId, Advice>> {
        self.leases.advices(&self.places, now)
    }

    /// Returns a number that grows when [`Core::processes`] changes.
    pub fn processes_version(&self) -> u64 {
        self.leases.processes_version()
    }

    /// Returns the processes of each lease that holds here and has registered any.
    pub fn processes(&self) -> Vec<Arc<LeaseProcesses>> {
        self.leases.processes()
    }

    /// Returns the planner, for tests that check it.
    pub fn planner(&self) -> &Planner {
        self.places.planner()
    }

    /// Switches a mistake on.
    #[cfg(feature = "sim")]
    pub(crate) fn plant(&mut self, bug: Bug) {
        if bug == Bug::ReserveForNobody {
            self.places.plant(Mistake::ReserveForNobody);
        }
        if bug == Bug::ClaimsMissReservations {
            self.places.plant(Mistake::ClaimsMissReservations);
        }
        if bug == Bug::CheapIsFree {
            self.places.plant(Mistake::CheapIsFree);
        }
        self.turn.planted.add(bug);
    }

    /// Returns `true` if something will happen with a job that waits: a pass, the answer of an operation, or a timer.
    #[cfg(feature = "sim")]
    pub(crate) fn has_next_step(&self, job: JobId) -> bool {
        self.places.has_next_step(job) || self.turn.in_flight.reads_job(job)
    }

    /// Returns `true` until the store was read for the first time.
    #[cfg(feature = "sim")]
    pub(crate) fn is_starting(&self) -> bool {
        self.phase == Phase::Starting
    }

    /// Returns `true` if a job counts as reserved here, and a claim for it would accept it.
    #[cfg(feature = "sim")]
    pub(crate) fn awaits_claim(&self, job: &jobtree_queue::JobRecord) -> bool {
        self.places.awaits_claim(job)
    }

    /// Returns `true` while all of the store is being read.
    #[cfg(feature = "sim")]
    pub(crate) fn is_reading(&self) -> bool {
        self.turn.in_flight.reads_everything()
    }

    /// Returns when the store is read again, by the monotonic clock.
    #[cfg(feature = "sim")]
    pub(crate) fn next_reading(&self) -> Option<Duration> {
        self.resync.next()
    }
}

fn store_gone() -> ApiError {
    ApiError::new(
        ErrorCode::Unavailable,
        "the store has stopped; open it again and start a scheduler on it",
    )
}
