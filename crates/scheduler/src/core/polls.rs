//! Long polls: callers that wait for a job's end, a dispatch, an event, or what a job prints.
//!
//! Each poll is read once when it comes. If that does not satisfy it, it is read again when a commit concerns it, and a
//! last time when its time is over. It is registered before it is read, so a commit in between is not missed.
//!
//! The four kinds differ in what they read and in what concerns them; the rest is one [`Table`] for each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use jobtree_protocol::{AddonId, ApiError, Event, EventKind, JobId, JobView, LogPage};
use jobtree_queue::JobRecord;
use jobtree_queue::transitions::Changes;
use jobtree_store::{Reading, Recorded, StoreError};

use super::calls::{CallId, Responder};
use super::operations::{Op, PollRead};
use super::turn::Turn;
use crate::error::told;

/// A poll's name, unique among polls of its kind.
pub type PollId = u64;

/// A dispatch that is being reserved for a poll is waited for, for so long beyond the poll's own time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something to wait for.
pub trait Poll: Clone + fmt::Debug + Send + 'static {
    /// The response to the caller.
    type Answer: fmt::Debug + Send + 'static;

    /// Reads it.
    ///
    /// # Errors
    /// Those of the store.
    fn read(&self, tables: &mut dyn Reading) -> Result<Self::Answer, StoreError>;

    /// Returns `true` if the caller need not wait any longer.
    fn is_satisfied(answer: &Self::Answer) -> bool;
}

/// Waits for the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended(pub JobId);

impl Poll for Ended {
    type Answer = JobView;

    fn read(&self, tables: &mut dyn Reading) -> Result<JobView, StoreError> {
        let job = tables.jobs(&[self.0])?.pop();
        let job = job.ok_or(StoreError::NoJob(self.0))?;
        let lease = match job.lease_id {
            None => None,
            Some(lease) => tables.lease(lease)?,
        };
        Ok(job.view(lease.as_ref()))
    }

    fn is_satisfied(job: &JobView) -> bool {
        job.state.is_ended()
    }
}

/// Waits for dispatches to be accepted, of an addon or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatchable(pub Option<AddonId>);

impl Dispatchable {
    fn includes(&self, job: &JobRecord) -> bool {
        self.0
            .as_ref()
            .is_none_or(|addon| *addon == job.intent.addon_id)
    }
}

impl Poll for Dispatchable {
    type Answer = Vec<JobView>;

    fn read(&self, tables: &mut dyn Reading) -> Result<Vec<JobView>, StoreError> {
        let jobs = tables.dispatching()?;
        let jobs = jobs.iter().filter(|job| self.includes(job));
        Ok(jobs.map(|job| job.view(None)).collect())
    }

    fn is_satisfied(jobs: &Vec<JobView>) -> bool {
        !jobs.is_empty()
    }
}

/// Waits for events after a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events {
    /// The place.
    pub after: u64,
    /// The most that are returned.
    pub limit: usize,
}

impl Poll for Events {
    type Answer = Vec<Recorded>;

    fn read(&self, tables: &mut dyn Reading) -> Result<Vec<Recorded>, StoreError> {
        tables.events_after(self.after, self.limit)
    }

    fn is_satisfied(events: &Vec<Recorded>) -> bool {
        !events.is_empty()
    }
}

/// Waits for more of what a job prints, or for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// The job.
    pub job: JobId,
    /// The place after which it is read.
    pub after: u64,
}

impl Poll for Log {
    type Answer = LogPage;

    fn read(&self, tables: &mut dyn Reading) -> Result<LogPage, StoreError> {
        jobtree_store::read_log(tables, self.job, self.after, usize::MAX)
    }

    fn is_satisfied(page: &LogPage) -> bool {
        page.ended || !page.text.is_empty()
    }
}

/// A caller that waits.
#[derive(Debug)]
struct Waiter<P: Poll> {
    caller: Responder<P::Answer>,
    poll: P,
    until: Duration,
    /// It is being read.
    reading: bool,
    /// It is to be read (again).
    wanted: bool,
}

/// All polls of one kind.
#[derive(Debug)]
struct Table<P: Poll> {
    next: PollId,
    waiting: BTreeMap<PollId, Waiter<P>>,
    /// When each is read a last time; those for which that has begun are not in it.
    ends: BTreeSet<(Duration, PollId)>,
    /// Polls to be read.
    wanted: Vec<PollId>,
}

impl<P: Poll> Default for Table<P> {
    fn default() -> Self {
        Self {
            next: 0,
            waiting: BTreeMap::new(),
            ends: BTreeSet::new(),
            wanted: Vec::new(),
        }
    }
}

impl<P: Poll> Table<P>
where
    Op: From<PollRead<P>>,
{
    fn add(&mut self, poll: P, until: Duration, caller: Responder<P::Answer>) -> PollId {
        let id = self.next;
        self.next += 1;
        self.ends.insert((until, id));
        let waiter = Waiter {
            caller,
            poll,
            until,
            reading: false,
            wanted: false,
        };
        self.waiting.insert(id, waiter);
        self.want(id);
        id
    }

    /// Has a poll read, as soon as may be.
    fn want(&mut self, id: PollId) {
        if let Some(waiter) = self.waiting.get_mut(&id)
            && !waiter.wanted
        {
            waiter.wanted = true;
            self.wanted.push(id);
        }
    }

    fn want_where(&mut self, concerned: impl Fn(&P) -> bool) {
        let concerned = |(_, waiter): &(&PollId, &Waiter<P>)| concerned(&waiter.poll);
        let ids = self.waiting.iter().filter(concerned);
        let ids: Vec<PollId> = ids.map(|(id, _)| *id).collect();
        for id in ids {
            self.want(id);
        }
    }

    fn want_over(&mut self, now: Duration) {
        while let Some((until, id)) = self.ends.first().copied()
            && until <= now
        {
            self.ends.remove(&(until, id));
            self.want(id);
        }
    }

    /// Begins the last reading of polls whose time was over at `now`, whatever else they wait for.
    fn read_overdue(&mut self, now: Duration, turn: &mut Turn) {
        let overdue = self.ends.iter().take_while(|(until, _)| *until <= now);
        let overdue: Vec<(Duration, PollId)> = overdue.copied().collect();
        for (until, id) in overdue {
            self.ends.remove(&(until, id));
            if let Some(waiter) = self.waiting.get_mut(&id).filter(|waiter| !waiter.reading) {
                (waiter.reading, waiter.wanted) = (true, false);
                let poll = waiter.poll.clone();
                turn.ask(PollRead { id, poll });
            }
        }
    }

    /// Begins the readings that are wanted.
    fn read_wanted(&mut self, turn: &mut Turn) {
        for id in std::mem::take(&mut self.wanted) {
            let Some(waiter) = self.waiting.get_mut(&id) else {
                continue;
            };
            // One that is being read is read again when that is done.
            if !waiter.reading {
                (waiter.reading, waiter.wanted) = (true, false);
                let poll = waiter.poll.clone();
                turn.ask(PollRead { id, poll });
            }
        }
    }

    /// Takes a reading. Returns the waiter that was answered by it, if it was.
    fn was_read(
        &mut self,
        request: &PollRead<P>,
        result: Result<P::Answer, StoreError>,
        turn: &mut Turn,
    ) -> Option<P> {
        let waiter = self.waiting.get_mut(&request.id)?;
        waiter.reading = false;
        let goes_on = |answer: &P::Answer| !P::is_satisfied(answer) && waiter.until > turn.now.mono;
        if result.as_ref().is_ok_and(goes_on) {
            if waiter.wanted {
                self.wanted.push(request.id);
            }
            self.read_wanted(turn);
            return None;
        }
        let waiter = self.remove(request.id)?;
        turn.respond(waiter.caller, result.map_err(|error| told(&error)));
        Some(waiter.poll)
    }

    fn remove(&mut self, id: PollId) -> Option<Waiter<P>> {
        let waiter = self.waiting.remove(&id)?;
        self.ends.remove(&(waiter.until, id));
        Some(waiter)
    }

    /// Removes the poll of a caller that does not wait any more.
    fn leave(&mut self, call: CallId) -> Option<(PollId, P)> {
        let found = self
            .waiting
            .iter()
            .find(|(_, waiter)| waiter.caller.call() == call);
        let id = found.map(|(id, _)| *id)?;
        self.remove(id).map(|waiter| (id, waiter.poll))
    }

    /// Returns when the next poll is read a last time. One whose time is over already waits for something else, for
    /// [`PATIENCE`] at most.
    fn next_end(&self, now: Duration) -> Option<Duration> {
        let over = self.ends.first().filter(|(until, _)| *until <= now);
        let over = over.map(|(until, _)| *until + PATIENCE);
        let later = self.ends.range((now, PollId::MAX)..).next();
        let later = later.map(|(until, _)| *until);
        over.into_iter().chain(later).min()
    }

    fn refuse_all(&mut self, error: &ApiError, turn: &mut Turn) {
        for waiter in std::mem::take(self).waiting.into_values() {
            turn.respond(waiter.caller, Err(error.clone()));
        }
    }
}

/// All callers that wait.
#[derive(Debug, Default)]
pub(super) struct Polls {
    ended: Table<Ended>,
    /// Polls of each job's end: there may be many.
    ended_of: HashMap<JobId, Vec<PollId>>,
    dispatchable: Table<Dispatchable>,
    /// Polls of dispatches came or went since the last [`Polls::take_changed_polling`].
    polling_changed: bool,
    events: Table<Events>,
    log: Table<Log>,
}

impl Polls {
    /// Returns how many callers wait for dispatches of each addon, or of all, if that may have changed.
    pub(super) fn take_changed_polling(&mut self) -> Option<BTreeMap<Option<AddonId>, u32>> {
        if !std::mem::take(&mut self.polling_changed) {
            return None;
        }
        let mut polling = BTreeMap::new();
        for waiter in self.dispatchable.waiting.values() {
            *polling.entry(waiter.poll.0.clone()).or_default() += 1;
        }
        Some(polling)
    }

    pub(super) fn wait_for_end(
        &mut self,
        poll: Ended,
        wait_for: Duration,
        caller: Responder<JobView>,
        turn: &mut Turn,
    ) {
        let id = self.ended.add(poll, turn.now.mono + wait_for, caller);
        self.ended_of.entry(poll.0).or_default().push(id);
        self.ended.read_wanted(turn);
    }

    /// Begins to wait for dispatches. What is reserved because of this very call is read with it: see
    /// [`Polls::read_wanted`].
    pub(super) fn wait_for_dispatch(
        &mut self,
        poll: Dispatchable,
        wait_for: Duration,
        caller: Responder<Vec<JobView>>,
        turn: &Turn,
    ) {
        self.dispatchable
            .add(poll, turn.now.mono + wait_for, caller);
        self.polling_changed = true;
    }

    pub(super) fn wait_for_events(
        &mut self,
        poll: Events,
        wait_for: Duration,
        caller: Responder<Vec<Recorded>>,
        turn: &mut Turn,
    ) {
        self.events.add(poll, turn.now.mono + wait_for, caller);
        self.events.read_wanted(turn);
    }

    pub(super) fn wait_for_log(
        &mut self,
        poll: Log,
        wait_for: Duration,
        caller: Responder<LogPage>,
        turn: &mut Turn,
    ) {
        self.log.add(poll, turn.now.mono + wait_for, caller);
        self.log.read_wanted(turn);
    }

    pub(super) fn next_end(&self, now: Duration) -> Option<Duration> {
        let ends = [
            self.ended.next_end(now),
            self.dispatchable.next_end(now),
            self.events.next_end(now),
            self.log.next_end(now),
        ];
        ends.into_iter().flatten().min()
    }

    pub(super) fn leave(&mut self, call: CallId) {
        if let Some((id, poll)) = self.ended.leave(call) {
            self.forget_ended(poll.0, id);
        }
        self.polling_changed |= self.dispatchable.leave(call).is_some();
        self.events.leave(call);
        self.log.leave(call);
    }

    pub(super) fn refuse_all(&mut self, error: &ApiError, turn: &mut Turn) {
        self.ended_of.clear();
        self.ended.refuse_all(error, turn);
        self.dispatchable.refuse_all(error, turn);
        self.events.refuse_all(error, turn);
        self.log.refuse_all(error, turn);
    }

    fn forget_ended(&mut self, job: JobId, id: PollId) {
        if let Some(ids) = self.ended_of.get_mut(&job) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.ended_of.remove(&job);
            }
        }
    }

    pub(super) fn ended_read(
        &mut self,
        request: &PollRead<Ended>,
        result: Result<JobView, StoreError>,
        turn: &mut Turn,
    ) {
        if let Some(poll) = self.ended.was_read(request, result, turn) {
            self.forget_ended(poll.0, request.id);
        }
    }

    pub(super) fn dispatchable_read(
        &mut self,
        request: &PollRead<Dispatchable>,
        result: Result<Vec<JobView>, StoreError>,
        turn: &mut Turn,
    ) {
        let answered = self.dispatchable.was_read(request, result, turn);
        self.polling_changed |= answered.is_some();
    }

    pub(super) fn events_read(
        &mut self,
        request: &PollRead<Events>,
        result: Result<Vec<Recorded>, StoreError>,
        turn: &mut Turn,
    ) {
        self.events.was_read(request, result, turn);
    }

    pub(super) fn log_read(
        &mut self,
        request: &PollRead<Log>,
        result: Result<LogPage, StoreError>,
        turn: &mut Turn,
    ) {
        self.log.was_read(request, result, turn);
    }

    /// Has those read that a commit concerns. The end of a job needs no reading: the commit says it all.
    pub(super) fn committed(&mut self, changes: &Changes, turn: &mut Turn) {
        for job in changes.jobs.iter().filter(|job| job.state.is_ended()) {
            for id in self.ended_of.remove(&job.id).unwrap_or_default() {
                if let Some(waiter) = self.ended.remove(id) {
                    turn.respond(waiter.caller, Ok(job.view(None)));
                }
            }
        }
        let kept = |event: &Event| EventKind::is_kept(event.kind);
        if changes.events.iter().any(kept) {
            self.events.want_where(|_| true);
        }
        self.log.want_where(|log| {
            let printed =
                |event: &Event| event.kind == EventKind::Log && event.job_id == Some(log.job);
            let ended = |(job, _): &(JobId, _)| *job == log.job;
            changes.events.iter().any(printed) || changes.ended.iter().any(ended)
        });
        self.dispatchable.want_where(|poll| {
            let dispatched = |job: &JobRecord| job.is_reserved() && poll.includes(job);
            changes.jobs.iter().any(|job| dispatched(job))
        });
    }

    /// Has those read that another scheduler's message may concern.
    pub(super) fn jobs_changed(&mut self, jobs: &[JobId]) {
        for id in jobs
            .iter()
            .filter_map(|job| self.ended_of.get(job))
            .flatten()
        {
            self.ended.want(*id);
        }
        self.want_others();
    }

    /// Has all of them read: another scheduler may have done what they wait for.
    pub(super) fn want_all(&mut self) {
        self.ended.want_where(|_| true);
        self.want_others();
    }

    fn want_others(&mut self) {
        self.dispatchable.want_where(|_| true);
        self.events.want_where(|_| true);
        self.log.want_where(|_| true);
    }

    /// Begins the readings that are wanted, and the last ones of those whose time is over.
    ///
    /// A poll for dispatches makes the planner reserve what may start, so it is read when the planner is `ready` and those
    /// reservations have been answered: also one that does not wait gets what it has caused.
    pub(super) fn read_wanted(&mut self, ready: bool, turn: &mut Turn) {
        let now = turn.now.mono;
        self.ended.want_over(now);
        self.events.want_over(now);
        self.log.want_over(now);
        self.ended.read_wanted(turn);
        self.events.read_wanted(turn);
        self.log.read_wanted(turn);
        if ready && !turn.in_flight.reserves() {
            self.dispatchable.want_over(now);
            self.dispatchable.read_wanted(turn);
        } else {
            self.dispatchable
                .read_overdue(now.saturating_sub(PATIENCE), turn);
        }
    }
}
