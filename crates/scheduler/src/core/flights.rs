//! Operations of the store that are under way, and what becomes of them.
//!
//! An operation that fails is asked for again with the same ids, after a while that doubles; see the protocol in `core`.
//! What is only read or noted for convenience is dropped instead, and questions of callers are answered with the error.

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{JobId, JobState, LeaseAnswer};
use jobtree_queue::dispatch::{Event, Outcome};
use jobtree_queue::ledger::Holder;
use jobtree_queue::transitions::{Claimed, TransitionError};
use jobtree_queue::{JobRecord, LeaseRecord, Now};
use jobtree_store::StoreError;

use super::io::{Answered, Op, OpId, Output, Slot, Told, Waited};
use super::observe::key_of;
use super::{Bug, Core, PRUNING_ON};
use crate::error::{is_refusal, told};

/// The first wait before an operation is asked for again.
const FIRST_REPEAT: Duration = Duration::from_millis(50);
/// The longest.
const LAST_REPEAT: Duration = Duration::from_secs(5);

/// An operation under way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) op: Op,
    /// The caller that waits for its answer.
    pub(super) slot: Option<Slot>,
    failures: u32,
    /// When it is asked for again, if it failed.
    repeat_at: Option<Duration>,
    /// What had been heard when it began.
    pub(super) heard: u64,
    /// What is to be replied when it took effect.
    pub(super) lease: Option<LeaseAnswer>,
}

impl Core {
    /// Begins an operation.
    pub(super) fn op(&mut self, op: Op, slot: Option<Slot>, now: Now) -> OpId {
        let id = self.next_op;
        self.next_op += 1;
        let flight = Flight {
            op: op.clone(),
            slot,
            failures: 0,
            repeat_at: None,
            heard: self.heard,
            lease: None,
        };
        self.flights.insert(id, flight);
        let stamp = self.stamp(now);
        self.outputs.push(Output::Op { id, stamp, op });
        id
    }

    /// Asks again for what failed.
    pub(super) fn repeat_failed(&mut self, now: Now) {
        let due: Vec<OpId> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.repeat_at.is_some_and(|at| at <= now.mono))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let stamp = self.stamp(now);
            let heard = self.heard;
            let Some(flight) = self.flights.get_mut(&id) else {
                continue;
            };
            flight.repeat_at = None;
            flight.heard = heard;
            let op = flight.op.clone();
            self.outputs.push(Output::Op { id, stamp, op });
        }
    }

    pub(super) fn next_repeat(&self) -> Option<Duration> {
        self.flights
            .values()
            .filter_map(|flight| flight.repeat_at)
            .min()
    }

    /// An operation was answered.
    pub(super) fn answered(
        &mut self,
        id: OpId,
        answer: Result<Box<Answered>, StoreError>,
        now: Now,
    ) {
        let Some(flight) = self.flights.remove(&id) else {
            // An answer that came twice.
            return;
        };
        match answer {
            Ok(answered) => self.succeeded(id, flight, *answered, now),
            Err(error) if is_refusal(&error) => self.refused(id, flight, &error, now),
            Err(error) => self.failed(id, flight, &error, now),
        }
        if !self.recent.is_empty() && !self.flights.values().any(|it| it.op.reads_jobs()) {
            self.recent.clear();
        }
    }

    /// The store could not: again, later.
    fn failed(&mut self, id: OpId, mut flight: Flight, error: &StoreError, now: Now) {
        self.stats.store_failures += 1;
        let question = matches!(
            flight.op,
            Op::ReadWait(_) | Op::Count | Op::FindLease(_) | Op::Look(_)
        );
        if flight.op.is_optional() || self.has(Bug::NoRepeat) {
            return;
        }
        if let (true, Some(slot)) = (question, flight.slot) {
            self.claims.forget_finding(id);
            self.explaining.remove(&id);
            self.waits.forget_reading(id);
            return self.reply(slot, Err(told(error)));
        }
        let wait = FIRST_REPEAT * 2_u32.saturating_pow(flight.failures.min(16));
        flight.failures += 1;
        flight.repeat_at = Some(now.mono + self.dice.jittered(wait.min(LAST_REPEAT)));
        self.flights.insert(id, flight);
    }

    fn succeeded(&mut self, id: OpId, flight: Flight, answered: Answered, now: Now) {
        match (flight.op, answered) {
            (Op::Reserve(job, _), Answered::Reserved(reserved)) => {
                self.dispatched.insert(job, self.heard);
                let outcome = Outcome::Accepted(None);
                self.events.push(Event::Answered { job, outcome });
                let of_this = |latest: &Arc<JobRecord>| {
                    let place = latest.reservation.as_ref();
                    place.is_some_and(|place| place.id == reserved.id)
                };
                match self.land(job).filter(of_this) {
                    Some(latest) => self.reconcile(&latest, now),
                    // No commit told of it, or of more than it: how things are now has to be read.
                    None => drop(self.op(Op::Look(vec![job]), None, now)),
                }
            }
            (Op::Claim(jobs, _), Answered::Claimed(claimed)) => {
                self.claimed(id, &jobs, claimed, now);
            }
            (Op::Admit(_), Answered::Admitted(lease)) => {
                self.granted(&lease, None, now);
                if let (Some(slot), Some(mut answer)) = (flight.slot, flight.lease) {
                    answer.lease_id = Some(lease.id);
                    self.reply(slot, Ok(Told::Lease(answer)));
                }
            }
            (Op::Return { job, .. }, _) => self.ended(super::sweep::Ending::Dispatch(job)),
            (Op::Expire(lease, _), _) => self.ended(super::sweep::Ending::Lease(lease)),
            (Op::TimeOut(lease, _), _) => self.ended(super::sweep::Ending::Run(lease)),
            (Op::MissDeadline(job), _) => self.ended(super::sweep::Ending::Late(job)),
            (Op::Prune(..), Answered::Pruned(pruned)) if pruned.more => {
                self.next_prune = now.mono + PRUNING_ON;
            }
            (Op::Fire(..), _) => self.read_store(false, now),
            (Op::ReadLive, Answered::Live(live)) => self.loaded_live(live, flight.heard, now),
            (Op::ReadQueued(_), Answered::Queued(jobs)) => {
                self.loaded_queued(&jobs, now);
            }
            (Op::ReadNotes, Answered::Notes(notes)) => self.loaded_notes(&notes),
            (Op::Look(_), Answered::Looked(jobs)) => {
                if let (Some(slot), Some(job)) = (flight.slot, self.explaining.remove(&id)) {
                    self.explain_read(slot, job, jobs.first().map(|job| &**job));
                }
                self.looked(jobs, now);
            }
            (Op::FindLease(lease), Answered::Found(found)) => {
                let for_claim = self.found_for_claim(id, found.as_ref(), now);
                if !for_claim {
                    self.found_again(lease, found, now);
                }
            }
            (Op::ReadWait(_), Answered::Waited(waited)) => self.waited(id, waited, now),
            (Op::Count, Answered::Counted(counts)) => {
                if let Some(slot) = flight.slot {
                    self.tell_status(slot, &counts, now);
                }
            }
            _ => {}
        }
    }

    /// The store says no: things are not as they were thought to be.
    fn refused(&mut self, id: OpId, flight: Flight, error: &StoreError, now: Now) {
        match flight.op {
            Op::Reserve(job, _) => {
                self.full_key(error, now);
                self.lost(&[job], now);
            }
            Op::Claim(jobs, command) => {
                self.full_key(error, now);
                self.granting.remove(&command.lease_id);
                self.lost(&jobs, now);
                self.claim_lost(id, error);
            }
            Op::Admit(command) => {
                self.granting.remove(&command.lease_id);
                self.events
                    .push(Event::Freed(Holder::Lease(command.lease_id)));
                if let Some(slot) = flight.slot {
                    self.reply(slot, Err(told(error)));
                }
            }
            Op::Return { job, .. } => {
                self.ended(super::sweep::Ending::Dispatch(job));
                self.op(Op::Look(vec![job]), None, now);
            }
            Op::Expire(lease, _) => {
                self.ended(super::sweep::Ending::Lease(lease));
                self.op(Op::FindLease(lease), None, now);
            }
            Op::TimeOut(lease, _) => {
                self.ended(super::sweep::Ending::Run(lease));
                self.op(Op::FindLease(lease), None, now);
            }
            Op::MissDeadline(job) => {
                self.ended(super::sweep::Ending::Late(job));
                if let Some(before) = self.late_at.remove(&job) {
                    self.late.remove(&(before, job));
                }
                self.op(Op::Look(vec![job]), None, now);
            }
            Op::Fire(..) => self.read_store(false, now),
            Op::FindLease(_) | Op::ReadWait(_) | Op::Count => {
                self.waits.forget_reading(id);
                if let Some(slot) = flight.slot {
                    self.reply(slot, Err(told(error)));
                }
            }
            // Not as it was when it was noted: there is nothing to note any more.
            _ => {}
        }
    }

    /// A proposal lost: its jobs are read again after a moment.
    fn lost(&mut self, jobs: &[JobId], now: Now) {
        self.stats.lost_proposals += 1;
        if let Some(first) = jobs.first() {
            let outcome = Outcome::Lost;
            let job = *first;
            self.events.push(Event::Answered { job, outcome });
        }
        for job in jobs {
            self.land(*job);
            self.park(*job, now);
        }
    }

    /// A proposal that was never asked for.
    pub(super) fn take_back(&mut self, jobs: &[JobId], now: Now) {
        if let Some(job) = jobs.first().copied() {
            let outcome = Outcome::Failed;
            self.events.push(Event::Answered { job, outcome });
            // The dispatcher is not asked before the next step: something has to come.
            self.dispatcher_wake = Some(now.mono);
        }
    }

    /// A flight is over: what commits said of the job meanwhile.
    fn land(&mut self, job: JobId) -> Option<Arc<JobRecord>> {
        self.flying.remove(&job).flatten()
    }

    /// Leases of other nodes hold a key: it is not proposed again before the store was read again.
    fn full_key(&mut self, error: &StoreError, now: Now) {
        let StoreError::Refused(why) = error else {
            return;
        };
        let full = match &**why {
            TransitionError::NothingToClaim { skipped } => {
                skipped.iter().map(|(_, why)| &**why).collect()
            }
            other => vec![other],
        };
        for why in full {
            let TransitionError::KeyFull { job_id, key, limit } = why else {
                continue;
            };
            let Some(addon) = self.dispatcher.addon_of(*job_id).cloned() else {
                continue;
            };
            let key: std::sync::Arc<str> = key.as_str().into();
            self.elsewhere.insert((addon.clone(), key.clone()), *limit);
            let running = *limit;
            self.events.push(Event::KeyElsewhere {
                addon,
                key,
                running,
            });
            self.load.soon(now.mono + FIRST_REPEAT * 10);
        }
    }

    /// A claim was granted: those jobs that are in it run, the others are read again.
    fn claimed(&mut self, id: OpId, proposed: &[JobId], claimed: Claimed, now: Now) {
        let lease = &claimed.lease;
        if let Some(job) = proposed.first().copied() {
            let outcome = Outcome::Accepted(Some(lease.id));
            self.events.push(Event::Answered { job, outcome });
        }
        let key = claimed.jobs.first().map(|job| key_of(job));
        self.granted(lease, key, now);
        for job in proposed {
            let latest = self.land(*job);
            let in_it = claimed.jobs.iter().any(|it| it.id == *job);
            match latest {
                // Before the claim, or after all of it: nobody can tell.
                Some(latest)
                    if in_it && latest.state != JobState::Running && !latest.state.is_ended() =>
                {
                    self.park(*job, now);
                }
                Some(latest) => self.reconcile(&latest, now),
                None if in_it => {}
                None => self.park(*job, now),
            }
        }
        self.claim_granted(id, &claimed, now);
    }

    /// A lease that was asked for here is granted.
    fn granted(
        &mut self,
        lease: &LeaseRecord,
        key: Option<Option<jobtree_queue::candidate::ConcurrencyKey>>,
        now: Now,
    ) {
        self.granting.remove(&lease.id);
        if self.leases.contains_key(&lease.id) {
            // Commits told of it, and of what came after; only its units wait to be shown.
            let units = lease.cost();
            let known = self.leases.get(&lease.id);
            let key = known.and_then(|known| known.key.clone());
            let ends = known.and_then(|known| known.ends);
            let ends_in = ends.map(|at| at.saturating_sub(now.mono));
            let (addon, lease) = (lease.addon_id.clone(), lease.id);
            self.events
                .push(Event::Leased(jobtree_queue::dispatch::LiveLease {
                    lease,
                    addon,
                    units,
                    key,
                    ends_in,
                }));
        } else if self.ended_meanwhile.contains(&lease.id) {
            self.events.push(Event::Freed(Holder::Lease(lease.id)));
        } else {
            self.put_lease(lease, key, now);
            self.watch(Vec::new(), vec![lease.clone()], now);
        }
    }

    /// Jobs were read.
    fn looked(&mut self, jobs: Vec<Arc<JobRecord>>, now: Now) {
        let jobs: Vec<_> = jobs
            .into_iter()
            // What is proposed is not known from a reading: its answer says more.
            .filter(|job| !self.is_outdated(job) && !self.flying.contains_key(&job.id))
            .collect();
        for job in &jobs {
            self.reconcile(job, now);
        }
        let dispatched = jobs
            .into_iter()
            .filter(|job| job.reservation.is_some())
            .collect();
        self.watch(dispatched, Vec::new(), now);
    }

    /// A lease was read because its end was refused.
    fn found_again(
        &mut self,
        id: jobtree_protocol::LeaseId,
        found: Option<(LeaseRecord, Vec<Arc<JobRecord>>)>,
        now: Now,
    ) {
        match found {
            Some((lease, jobs)) if lease.is_live() => {
                let key = jobs.first().map(|job| key_of(job));
                self.put_lease(&lease, key, now);
                self.watch(Vec::new(), vec![lease], now);
            }
            Some((lease, _)) => {
                self.watch(Vec::new(), vec![lease], now);
                self.drop_lease(id);
            }
            None => self.drop_lease(id),
        }
    }

    /// Reads a job again after a moment, which doubles each time.
    pub(super) fn park(&mut self, job: JobId, now: Now) {
        if self.has(Bug::LostProposal) {
            return;
        }
        let wait = self.parkings.wait_for(job).min(self.policy.dispatch.tick);
        let at = now.mono + self.dice.jittered(wait);
        self.parkings.park(job, at, now.mono);
    }

    /// Whether a moment is set at which this job is looked at again, or it is being looked at. How often it was parked is
    /// remembered for longer.
    pub(super) fn is_parked(&self, job: JobId) -> bool {
        self.parkings.is_due_later(job)
            || (self.parkings.is_remembered(job) && self.is_looked_at(job))
    }

    pub(super) fn is_looked_at(&self, job: JobId) -> bool {
        let looks = |flight: &Flight| matches!(&flight.op, Op::Look(jobs) if jobs.contains(&job));
        self.flights.values().any(looks)
    }

    pub(super) fn look_at_parked(&mut self, now: Now) {
        let due = self.parkings.take_due(now.mono);
        if !due.is_empty() {
            self.op(Op::Look(due), None, now);
        }
    }

    fn waited(&mut self, id: OpId, waited: Waited, now: Now) {
        if let Some((slot, told)) = self.waits.read(id, waited, now.mono) {
            self.reply(slot, Ok(told));
        }
        self.read_waits(now);
    }
}
