//! Where each job is, and the only code that moves one.
//!
//! A job that this scheduler knows of is in exactly one [`Place`]: it waits in the planner, an operation that starts it is
//! under way, it is reserved for this node, or it was refused and is read again at a set time. Jobs that run, have ended or
//! were never heard of are in none. There is no place without a next step, so no job is forgotten.
//!
//! The planner decides by what it is told. Whatever is told from here may be told twice, or late: each message says how
//! things are for one job or one lease, whatever was known before.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{
    AddonId, Explain, JobCost, JobId, JobState, JobType, LeaseAnswer, LeaseId, LeaseLimits,
    LeaseNumbers, QuietState, Reason,
};
use jobtree_queue::candidate::{Candidate, ConcurrencyKey};
use jobtree_queue::ledger::Holder;
#[cfg(feature = "sim")]
use jobtree_queue::planner::Mistake;
use jobtree_queue::planner::{
    ClaimAsk, Effect, Event, LeaseAsk, ListenScope, LiveLease, Outcome, Planner, Requested,
};
use jobtree_queue::quiet::QuietRecord;
use jobtree_queue::transitions::{Claimed, TransitionError};
use jobtree_queue::{JobRecord, LeaseRecord, Now, Reservation};
use jobtree_store::{Pause, StoreError};

use super::in_flight::FIRST_REPEAT;
use super::learning::{Expected, Learning};
use super::operations::{OpId, ReadJobs};
use super::planted::Bug;
use super::recent::Recent;
use super::retry_backoff::RetryBackoff;
use super::turn::Turn;

/// A place of a job that is not simply waiting in the planner.
#[derive(Debug)]
enum Place {
    /// An operation that starts it is under way. `latest` is what commits said of it meanwhile: it is looked at when the
    /// operation is answered. `was_reserved`: it was reserved for this node before, and may be so afterwards.
    Proposed {
        latest: Option<Arc<JobRecord>>,
        was_reserved: bool,
    },
    /// It is reserved for this node, as was learnt when so many commits had been seen.
    Reserved { commits_seen: u64 },
    /// A proposal was refused: it is read again when its backoff is over.
    Refused,
    /// It is being read after a refusal.
    Reread,
    /// It may be reserved here, so it holds units until a reading says what it is. Only readings that began afterwards count,
    /// those from this operation on.
    Uncertain { from: OpId },
}

type KeyName = (AddonId, Arc<str>);

/// See the module's head.
#[derive(Debug)]
pub(super) struct Places {
    planner: Planner,
    /// The events that the planner gets with its next pass.
    events: Vec<Event>,
    /// When the planner wants its next pass at the latest.
    wake: Option<Duration>,
    /// Jobs that are elsewhere than in the planner's order.
    places: HashMap<JobId, Place>,
    backoff: RetryBackoff,
    /// Revisions that commits told of while jobs were being read: what is read of them may be older.
    recent: Recent<JobId, u64>,
    /// Concurrency keys that are held on other nodes.
    keys_elsewhere: HashMap<KeyName, u32>,
    pauses: BTreeMap<(AddonId, Option<JobType>), Pause>,
    /// Programs that are told of dispatches, and callers that wait for one of an addon, or of all, in a long poll.
    listeners: BTreeMap<ListenScope, u32>,
    polling: BTreeMap<Option<AddonId>, u32>,
    draining: bool,
}

impl Places {
    pub(super) fn new(turn: &Turn) -> Self {
        let config = &turn.config;
        let labels = config.options.labels.iter().cloned();
        let policy = Arc::clone(&config.policy);
        let planner = Planner::new(policy, config.node.clone(), labels, turn.now);
        Self {
            planner,
            events: Vec::new(),
            wake: None,
            places: HashMap::new(),
            backoff: RetryBackoff::default(),
            recent: Recent::default(),
            keys_elsewhere: HashMap::new(),
            pauses: BTreeMap::new(),
            listeners: BTreeMap::new(),
            polling: BTreeMap::new(),
            draining: false,
        }
    }

    pub(super) fn planner(&self) -> &Planner {
        &self.planner
    }

    #[cfg(feature = "sim")]
    pub(super) fn plant(&mut self, mistake: Mistake) {
        self.planner.plant(mistake);
    }

    /// Runs a pass of the planner, if something was told to it or its time has come.
    pub(super) fn pass(&mut self, turn: &Turn) -> Vec<Effect> {
        let due = self.wake.is_some_and(|at| at <= turn.now.mono);
        if self.events.is_empty() && !due {
            return Vec::new();
        }
        if turn.has(Bug::BlockedHead) {
            let blocked = !self.pauses.is_empty() && self.planner.waiting() > 0;
            self.events.push(Event::Drain(blocked));
        }
        self.wake = None;
        let events = std::mem::take(&mut self.events);
        self.planner.step_all(events, turn.now)
    }

    pub(super) fn wake_at(&mut self, at: Duration) {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
    }

    /// Returns when a pass or a reading is due.
    pub(super) fn next_wake(&self, ready: bool) -> Option<Duration> {
        let passes = self.wake.filter(|_| ready);
        [passes, self.backoff.next_due()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// What the planner is told of the machine, of callers and of settings.
impl Places {
    pub(super) fn tell(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.planner.admission().quiet().state() == QuietState::Quiet
    }

    /// Goes on with the states of the machine that were kept before a restart.
    pub(super) fn restore_load(&mut self, record: &QuietRecord, now: Now) {
        self.planner.restore_load(record, now);
    }

    pub(super) fn drain(&mut self, draining: bool) {
        self.draining = draining;
        self.tell(Event::Drain(draining));
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Notes that a caller asks for dispatches or for capacity of an addon, or of any: it serves its types, and what may
    /// start of them is reserved in the next pass. Claims are asks of the planner itself, and it hears of accepted
    /// dispatches from their commits.
    pub(super) fn polled(&mut self, addon: Option<AddonId>) {
        self.tell(Event::Polled { addon });
    }

    /// Takes how many programs are told of dispatches of these job types.
    pub(super) fn set_listeners(&mut self, scope: ListenScope, count: u32) {
        match count {
            0 => self.listeners.remove(&scope),
            _ => self.listeners.insert(scope.clone(), count),
        };
        self.tell_listeners(scope);
    }

    /// Takes how many callers wait for dispatches in long polls.
    pub(super) fn set_polling(&mut self, polling: BTreeMap<Option<AddonId>, u32>) {
        let before = std::mem::replace(&mut self.polling, polling);
        let addons: BTreeSet<_> = before
            .into_keys()
            .chain(self.polling.keys().cloned())
            .collect();
        for addon in addons {
            self.tell_listeners(ListenScope {
                addon,
                job_type: None,
            });
        }
    }

    fn tell_listeners(&mut self, scope: ListenScope) {
        let told = self.listeners.get(&scope);
        // A poll is for all types of its addon.
        let polling = self.polling.get(&scope.addon);
        let polling = polling.filter(|_| scope.job_type.is_none());
        let listeners = told.into_iter().chain(polling).sum();
        self.tell(Event::Listening { scope, listeners });
    }

    pub(super) fn claim(&mut self, ask: ClaimAsk) {
        self.tell(Event::Claim(ask));
    }

    pub(super) fn end_claim(&mut self, id: u64) {
        self.tell(Event::ClaimEnded(id));
    }

    pub(super) fn expect(&mut self, expected: Expected) {
        self.tell(Event::Learnt {
            addon: expected.addon,
            job_type: expected.job_type,
            takes: expected.learnt.takes,
            cost_factor: expected.learnt.cost_factor,
        });
    }

    /// Takes another policy, which the configuration has already.
    pub(super) fn policy_changed(&mut self, turn: &Turn) {
        let policy = Arc::clone(&turn.config.policy);
        self.tell(Event::PolicyChanged(policy));
        // What is paused by the policy is; what is paused in the store stays so.
        for (addon, job_type) in self.pauses.clone().into_keys() {
            self.tell_pause(addon, job_type, true, turn);
        }
    }

    /// Takes the pauses as they were read.
    pub(super) fn set_pauses(&mut self, pauses: &[Pause], turn: &Turn) {
        if turn.has(Bug::IgnorePauses) {
            return;
        }
        let key = |pause: &Pause| (pause.addon_id.clone(), pause.job_type.clone());
        let new: BTreeMap<_, _> = pauses.iter().map(|it| (key(it), it.clone())).collect();
        let old = std::mem::replace(&mut self.pauses, new.clone());
        for (addon, job_type) in new.keys().filter(|key| !old.contains_key(*key)) {
            self.tell_pause(addon.clone(), job_type.clone(), true, turn);
        }
        for (addon, job_type) in old.into_keys().filter(|key| !new.contains_key(key)) {
            self.tell_pause(addon, job_type, false, turn);
        }
    }

    fn tell_pause(&mut self, addon: AddonId, job_type: Option<JobType>, paused: bool, turn: &Turn) {
        self.tell(match job_type {
            Some(job_type) => Event::TypePaused(addon, job_type, paused),
            None => {
                let paused = paused || turn.config.policy.addon(addon.as_str()).paused;
                Event::AddonPaused(addon, paused)
            }
        });
    }

    /// Returns the addons that are paused as a whole in the store.
    pub(super) fn paused_addons(&self) -> impl Iterator<Item = &AddonId> {
        let whole = self
            .pauses
            .keys()
            .filter(|(_, job_type)| job_type.is_none());
        whole.map(|(addon, _)| addon)
    }

    /// Takes what holds capacity here.
    pub(super) fn lease_holds(&mut self, lease: LiveLease) {
        self.tell(Event::Leased(lease));
    }

    pub(super) fn lease_ended(&mut self, lease: LeaseId) {
        self.tell(Event::Freed(Holder::Lease(lease)));
    }

    /// Returns `true` if a claim waits only because no job of the type waits: one on these terms could start now.
    pub(super) fn lacks_jobs(
        &mut self,
        claim: u64,
        job_type: &JobType,
        terms: &LeaseAsk,
        now: Now,
    ) -> bool {
        self.planner.lacks_jobs(claim, job_type, terms, now)
    }

    /// Decides on capacity without a job. If it is approved, its units are in use from now on.
    pub(super) fn decide_capacity(
        &mut self,
        lease: LeaseId,
        asked: &LeaseAsk,
        now: Now,
    ) -> jobtree_queue::admission::Verdict {
        self.planner.lease(lease, asked, now)
    }

    /// Writes into the answer to a request what its lease holds, with the numbers of this instant.
    pub(super) fn describe_grant(&self, answer: &mut LeaseAnswer, lease: &LeaseRecord, now: Now) {
        let (view, admission) = (self.planner.view(now), self.planner.admission());
        answer.lease_id = Some(lease.id);
        answer.granted_units = Some(lease.cost());
        answer.expires_at = Some(lease.expires_at);
        let terms = admission.policy().addon(lease.addon_id.as_str());
        answer.limits = LeaseLimits {
            ttl_sec: lease.ttl_sec,
            max_runtime_sec: lease.jobs.first().and_then(|job| job.max_runtime_sec),
            ..admission.limits(&terms)
        };
        answer.numbers = LeaseNumbers {
            used: self.planner.used(),
            requested: lease.cost(),
            capacity: admission.capacity(&view, lease.constraints),
            busy: view.busy,
        };
    }

    /// Decides on a request for a waiting job; none if it does not wait here. What is granted is a proposal from now on.
    pub(super) fn request(&mut self, job: JobId, now: Now) -> Option<Requested> {
        self.planner.request(job, now)
    }

    /// Explains why a job waits; none if the planner does not know it.
    pub(super) fn explain(&mut self, job: JobId, learning: &Learning, now: Now) -> Option<Explain> {
        let explanation = self.planner.explain(job, now)?;
        let mut explain = explanation.to_wire();
        for reason in &mut explain.reasons {
            self.tell_who_paused(job, reason);
        }
        explain.estimate = self.planner.estimate(&explanation, learning.profile(), now);
        let candidate = self.planner.candidate(job)?;
        explain.cost = Some(JobCost {
            declared: candidate.declared,
            charged: candidate.cost,
            measured: learning.usage(&candidate.addon, &candidate.job_type),
        });
        Some(explain)
    }

    /// Returns the first reason of each job that waits here.
    pub(super) fn reasons(&mut self, jobs: &[JobId], turn: &Turn) -> Vec<(JobId, Reason)> {
        let reasons = jobs.iter().filter_map(|job| {
            let mut reason = self.planner.first_obstacle(*job, turn.now)?.to_wire();
            self.tell_who_paused(*job, &mut reason);
            Some((*job, reason))
        });
        reasons.collect()
    }

    /// Adds to a reason that is a pause who paused, why, and since when.
    fn tell_who_paused(&self, job: JobId, reason: &mut Reason) {
        let whole = match reason.code.as_str() {
            "addon_paused" => true,
            "type_paused" => false,
            _ => return,
        };
        let Some(candidate) = self.planner.candidate(job) else {
            return;
        };
        let job_type = (!whole).then(|| candidate.job_type.clone());
        let Some(pause) = self.pauses.get(&(candidate.addon.clone(), job_type)) else {
            reason.message += " by the policy";
            reason.change = "the policy does not pause its addon any more".to_owned();
            return;
        };
        reason.since = Some(pause.since);
        if let Some(by) = &pause.by {
            reason.message += &format!(" by {by}");
        }
        if let Some(why) = &pause.reason {
            reason.message += &format!(": {why}");
        }
        let addon = &candidate.addon;
        reason.change = match &pause.job_type {
            Some(job_type) => {
                format!("jobs of this type are resumed (jobtree resume {addon} {job_type})")
            }
            None => format!("its addon is resumed (jobtree resume {addon})"),
        };
    }

    /// Takes the keys that are held on other nodes, by the jobs that are live there. Jobs of one lease run one after the
    /// other, so they hold a key once.
    pub(super) fn set_keys_elsewhere<'a>(
        &mut self,
        live: impl Iterator<Item = &'a Arc<JobRecord>>,
        turn: &Turn,
    ) {
        if turn.has(Bug::LeakedKeys) {
            return;
        }
        let mut holders: HashMap<KeyName, HashSet<Holder>> = HashMap::new();
        for job in live.filter(|job| job.node_id.as_ref() != Some(&turn.config.node)) {
            if let Some(key) = key_of(job) {
                let holder = job.lease_id.map_or(Holder::Job(job.id), Holder::Lease);
                let name = (job.intent.addon_id.clone(), key.key);
                holders.entry(name).or_default().insert(holder);
            }
        }
        let count = |(name, held): (KeyName, HashSet<Holder>)| (name, held.len() as u32);
        let new: HashMap<KeyName, u32> = holders.into_iter().map(count).collect();
        let mut changed: Vec<(KeyName, u32)> = Vec::new();
        for (name, running) in &new {
            if self.keys_elsewhere.get(name) != Some(running) {
                changed.push((name.clone(), *running));
            }
        }
        let gone = self.keys_elsewhere.keys();
        changed.extend(
            gone.filter(|name| !new.contains_key(*name))
                .map(|name| (name.clone(), 0)),
        );
        changed.sort();
        for (name, running) in changed {
            self.tell_key(name, running);
        }
        self.keys_elsewhere = new;
    }

    fn tell_key(&mut self, (addon, key): KeyName, running: u32) {
        self.tell(Event::KeyElsewhere {
            addon,
            key,
            running,
        });
    }

    /// The mistake [`Bug::LeakedKeys`].
    pub(super) fn count_key_up(&mut self, addon: &AddonId, key: &Arc<str>) {
        let name = (addon.clone(), Arc::clone(key));
        let counter = self.keys_elsewhere.entry(name.clone());
        let running = *counter.and_modify(|count| *count += 1).or_insert(1);
        self.tell_key(name, running);
    }
}

/// The transitions of jobs between places.
impl Places {
    /// Takes a job as a commit has it.
    pub(super) fn committed(&mut self, job: &Arc<JobRecord>, turn: &Turn) {
        if turn.in_flight.reads() {
            let next = turn.in_flight.next_id();
            self.recent.note(job.id, job.revision, next);
        }
        self.learn(job, turn);
    }

    /// Takes a job as it is now, and puts it where it belongs.
    fn learn(&mut self, job: &Arc<JobRecord>, turn: &Turn) {
        let id = job.id;
        if let Some(Place::Proposed { latest, .. }) = self.places.get_mut(&id) {
            let newer = |known: &Arc<JobRecord>| known.revision <= job.revision;
            if latest.as_ref().is_none_or(newer) {
                *latest = Some(Arc::clone(job));
            }
            return;
        }
        let before = self.places.remove(&id);
        self.backoff.disarm(id);
        if job.state != JobState::Queued {
            self.backoff.forget(id);
        }
        let here = Some(&turn.config.node);
        let reserved = job.reservation.as_ref().map(|place| &place.node_id);
        match job.lease_id.filter(|_| job.node_id.as_ref() == here) {
            None if job.state == JobState::Queued && job.waiting_for.is_empty() => {
                // As a return, if it was dispatched; and as it is now.
                let revision = job.revision;
                self.tell(Event::Returned { job: id, revision });
                self.tell(Event::Submitted(vec![job.candidate()]));
            }
            None if reserved.is_some() && reserved == here => {
                if !matches!(before, Some(Place::Reserved { .. })) {
                    let candidate = job.candidate();
                    let until = turn.now.mono + turn.config.rules.dispatch_timeout();
                    self.tell(Event::Dispatched { candidate, until });
                }
                let commits_seen = turn.commits_seen;
                self.places.insert(id, Place::Reserved { commits_seen });
            }
            Some(lease) => {
                self.tell(Event::Accepted { job: id, lease });
                self.tell(Event::Withdrawn(id));
            }
            None if reserved.is_some() => {
                self.tell(Event::Freed(Holder::Job(id)));
                let candidate = job.candidate();
                let until =
                    turn.now.mono + turn.config.rules.dispatch_timeout() + turn.config.options.look;
                self.tell(Event::ReservedElsewhere { candidate, until });
            }
            None => {
                self.tell(Event::Freed(Holder::Job(id)));
                self.tell(Event::Withdrawn(id));
            }
        }
    }

    /// Puts jobs into a proposal that is under way.
    pub(super) fn propose(&mut self, jobs: &[JobId]) {
        for job in jobs {
            let before = self.places.get(job);
            let proposed = Place::Proposed {
                latest: None,
                was_reserved: matches!(before, Some(Place::Reserved { .. })),
            };
            self.places.insert(*job, proposed);
        }
    }

    /// Takes a proposal back that was never asked for.
    pub(super) fn withdraw(&mut self, jobs: &[JobId], turn: &Turn) {
        if let Some(job) = jobs.first().copied() {
            let outcome = Outcome::Failed;
            self.tell(Event::Answered { job, outcome });
            // The planner is not run before the next step: something has to come.
            self.wake = Some(turn.now.mono);
        }
    }

    /// Ends a job's proposal. Returns what commits said of the job meanwhile.
    fn land(&mut self, job: JobId) -> Option<Arc<JobRecord>> {
        match self.places.remove(&job) {
            Some(Place::Proposed { latest, .. }) => latest,
            Some(other) => {
                self.places.insert(job, other);
                None
            }
            None => None,
        }
    }

    /// A reservation was made.
    pub(super) fn reserved(&mut self, job: JobId, made: &Reservation, turn: &mut Turn) {
        let outcome = Outcome::Accepted(None);
        self.tell(Event::Answered { job, outcome });
        let latest = self.land(job);
        let commits_seen = turn.commits_seen;
        self.places.insert(job, Place::Reserved { commits_seen });
        let of_this = |latest: &Arc<JobRecord>| {
            let place = latest.reservation.as_ref();
            place.is_some_and(|place| place.id == made.id)
        };
        match latest.filter(of_this) {
            Some(latest) => self.learn(&latest, turn),
            // No commit told of it, or of more than it: how things are now has to be read.
            None => turn.ask(ReadJobs::one(job)),
        }
    }

    /// A claim was granted: the jobs that are in it are held, the others are read again.
    pub(super) fn claimed(&mut self, proposed: &[JobId], claimed: &Claimed, turn: &mut Turn) {
        if let Some(job) = proposed.first().copied() {
            let outcome = Outcome::Accepted(Some(claimed.lease.id));
            self.tell(Event::Answered { job, outcome });
        }
        for job in proposed {
            let latest = self.land(*job);
            let in_it = claimed.jobs.iter().any(|it| it.id == *job);
            match latest {
                // Before the claim, or after all of it: the record alone does not tell.
                Some(latest) if in_it && !latest.is_held() && !latest.state.is_ended() => {
                    self.refuse(*job, turn);
                }
                Some(latest) => self.learn(&latest, turn),
                None if in_it => {}
                None => self.refuse(*job, turn),
            }
        }
    }

    /// A proposal was refused: its jobs are not as they were thought to be, and are read again after a pause.
    pub(super) fn refused(
        &mut self,
        jobs: &[JobId],
        error: &StoreError,
        turn: &mut Turn,
    ) -> KeyFull {
        let full = self.note_full_keys(error);
        self.overtaken(jobs, turn);
        full
    }

    /// A proposal came to nothing: another scheduler or caller was faster. A job that was reserved may be reserved as before,
    /// and then holds its units: without them, the next pass would start another job in its place.
    pub(super) fn overtaken(&mut self, jobs: &[JobId], turn: &mut Turn) {
        let was_reserved = |job: &JobId| {
            let place = self.places.get(job);
            matches!(
                place,
                Some(Place::Proposed {
                    was_reserved: true,
                    ..
                })
            )
        };
        if let [job] = jobs
            && was_reserved(job)
        {
            return self.uncertain(*job, turn);
        }
        if let Some(job) = jobs.first().copied() {
            let outcome = Outcome::Lost;
            self.tell(Event::Answered { job, outcome });
        }
        for job in jobs {
            self.land(*job);
            self.refuse(*job, turn);
        }
    }

    /// A job may be reserved: its reservation was refused and may have been made before, or accepting it came to nothing. The
    /// job is read, and keeps its units until then.
    pub(super) fn uncertain(&mut self, job: JobId, turn: &mut Turn) {
        self.land(job);
        let from = turn.in_flight.next_id();
        self.places.insert(job, Place::Uncertain { from });
        turn.ask(ReadJobs::one(job));
    }

    fn refuse(&mut self, job: JobId, turn: &mut Turn) {
        if turn.has(Bug::LostProposal) {
            return;
        }
        let pause = self.backoff.pause_of(job);
        let pause = turn
            .rng
            .jittered(pause.min(turn.config.policy.dispatch.tick));
        let now = turn.now.mono;
        self.backoff.refuse(job, now + pause, now);
        self.places.insert(job, Place::Refused);
    }

    /// Leases of other nodes hold a key: it is not proposed again before the store was read again.
    fn note_full_keys(&mut self, error: &StoreError) -> KeyFull {
        let StoreError::Refused(why) = error else {
            return KeyFull(None);
        };
        let causes = match &**why {
            TransitionError::NothingToClaim { skipped } => {
                skipped.iter().map(|(_, why)| &**why).collect()
            }
            other => vec![other],
        };
        let mut full = KeyFull(None);
        for why in causes {
            let TransitionError::KeyFull { job_id, key, limit } = why else {
                continue;
            };
            let Some(addon) = self.planner.addon_of(*job_id).cloned() else {
                continue;
            };
            let name: KeyName = (addon, key.as_str().into());
            self.keys_elsewhere.insert(name.clone(), *limit);
            self.tell_key(name, *limit);
            full = KeyFull(Some(FIRST_REPEAT * 10));
        }
        full
    }

    /// Reads the refused jobs whose pause is over.
    pub(super) fn reread_refused(&mut self, turn: &mut Turn) {
        let due = self.backoff.take_due(turn.now.mono);
        if due.is_empty() {
            return;
        }
        for job in &due {
            self.places.insert(*job, Place::Reread);
        }
        turn.ask(ReadJobs { jobs: due.into() });
    }

    /// Jobs were read, by this operation.
    pub(super) fn read(
        &mut self,
        op: OpId,
        asked: &[JobId],
        found: Vec<Arc<JobRecord>>,
        turn: &Turn,
    ) -> JobsRead {
        for job in asked {
            match self.places.get(job) {
                Some(Place::Reread) => drop(self.places.remove(job)),
                Some(Place::Uncertain { from }) if *from <= op => {
                    if !found.iter().any(|it| it.id == *job) {
                        self.tell(Event::Freed(Holder::Job(*job)));
                    }
                    self.places.remove(job);
                }
                _ => {}
            }
        }
        let mut read = JobsRead::default();
        for job in found {
            if self.may_learn_from_reading(&job) {
                self.learn(&job, turn);
                let here = job.node_id.as_ref() == Some(&turn.config.node);
                read.held
                    .extend(job.lease_id.filter(|_| here).map(|lease| (job.id, lease)));
                if job.is_reserved() {
                    read.dispatched.push(job);
                }
            }
        }
        read
    }

    /// What is proposed is not known from a reading: its answer says more, or the reading that follows it. And a commit may
    /// have said more since.
    fn may_learn_from_reading(&self, job: &JobRecord) -> bool {
        let place = self.places.get(&job.id);
        let waits = matches!(
            place,
            Some(Place::Proposed { .. } | Place::Uncertain { .. })
        );
        !self.is_outdated(job) && !waits
    }

    /// Returns `true` if a job that was read has changed since.
    pub(super) fn is_outdated(&self, job: &JobRecord) -> bool {
        let newer = |revision: &u64| *revision > job.revision;
        self.recent.get(&job.id).is_some_and(newer)
    }

    /// Forgets what every reading shows that is under way; see `InFlight::oldest_reading`.
    pub(super) fn forget_read(&mut self, oldest: OpId) {
        self.recent.forget(oldest);
    }

    /// Returns the number of revisions that are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.recent.len()
    }

    /// All dispatches were read, in a reading that began when so many commits had been seen. Returns those whose
    /// deadlines are to be watched.
    pub(super) fn dispatches_read(
        &mut self,
        dispatching: Vec<Arc<JobRecord>>,
        begun: u64,
        turn: &mut Turn,
    ) -> Vec<Arc<JobRecord>> {
        let there: HashSet<JobId> = dispatching.iter().map(|job| job.id).collect();
        let is_gone = |job: &JobId, place: &Place| {
            matches!(place, Place::Reserved { commits_seen } if *commits_seen <= begun)
                && !there.contains(job)
        };
        let gone = self.places.iter();
        let gone = gone.filter(|(job, place)| is_gone(job, place));
        let mut gone: Vec<JobId> = gone.map(|(job, _)| *job).collect();
        gone.sort_unstable();
        for job in &gone {
            self.places.remove(job);
            self.tell(Event::Freed(Holder::Job(*job)));
        }
        if !gone.is_empty() {
            turn.ask(ReadJobs { jobs: gone.into() });
        }
        let mut watched = Vec::new();
        for job in dispatching {
            if self.is_outdated(&job) {
                continue;
            }
            if self.may_learn_from_reading(&job) {
                self.learn(&job, turn);
            }
            watched.push(job);
        }
        watched
    }

    /// A waiting job was read while the planner is at work: it is told of a job that it does not know. What is known is
    /// newer, or will be found out when it is proposed.
    pub(super) fn queued_read(&mut self, job: &Arc<JobRecord>, turn: &Turn) {
        let known = self.is_outdated(job)
            || self.places.contains_key(&job.id)
            || self.planner.is_waiting(job.id);
        if !known && job.state == JobState::Queued {
            self.learn(job, turn);
        }
    }

    /// All that waits was read for the first time. It comes before everything that was heard of since: that is newer.
    pub(super) fn begin_with(&mut self, waiting: Vec<Candidate>) {
        self.events.insert(0, Event::Submitted(waiting));
    }

    /// Returns `true` if a job counts as reserved here, is not being accepted, and its addon is not paused.
    #[cfg(feature = "sim")]
    pub(super) fn awaits_claim(&self, job: &JobRecord) -> bool {
        let paused = |(addon, _): &(AddonId, Option<JobType>)| *addon == job.intent.addon_id;
        matches!(self.places.get(&job.id), Some(Place::Reserved { .. }))
            && !self.pauses.keys().any(paused)
    }

    /// Returns `true` if something will happen with a job that waits: a pass, the answer of an operation, or a timer.
    #[cfg(feature = "sim")]
    pub(super) fn has_next_step(&self, job: JobId) -> bool {
        let told = |event: &Event| match event {
            Event::Submitted(all) => all.iter().any(|it| it.id == job),
            _ => false,
        };
        self.planner.is_waiting(job)
            || self.places.contains_key(&job)
            || self.events.iter().any(told)
    }
}

/// What was learnt from a reading of jobs.
#[derive(Debug, Default)]
pub(super) struct JobsRead {
    /// Those that are dispatched: their deadlines are to be watched.
    pub(super) dispatched: Vec<Arc<JobRecord>>,
    /// Those that leases of this node hold, each with its lease.
    pub(super) held: Vec<(JobId, LeaseId)>,
}

/// A refusal that said that a concurrency key is full: the store is to be read again after this pause.
#[must_use]
pub(super) struct KeyFull(pub(super) Option<Duration>);

/// Returns the concurrency key of a job.
pub(super) fn key_of(job: &JobRecord) -> Option<ConcurrencyKey> {
    let key = job.intent.concurrency_key.as_deref()?;
    Some(ConcurrencyKey {
        key: key.into(),
        limit: job.intent.concurrency_limit,
    })
}
