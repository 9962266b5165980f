//! The leases of this node, and the end of what is over: leases that were not renewed, dispatches that were not
//! accepted, runs that took too long.
//!
//! A lease is this node's if its record names the node, whichever node's caller was granted it, renews it or ends it. Commits of
//! this process tell of it at once. Commits of others are heard of by the jobs that they changed, whose leases are read; what is
//! not heard of is found by the reading of all leases, every few seconds. What the planner counts as held by leases is what is
//! known here, or being granted or read ([`Leases::all_read`]).
//!
//! Only the lease is trusted, and this process's own monotonic clock: no row of a worker, no wall clock. What is due is
//! told again until it is over, so one end of each is under way at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{Advice, Constraints, InstanceId, JobId, LeaseId, Priority, ProcessOrigin};
use jobtree_queue::advice::advice;
use jobtree_queue::candidate::ConcurrencyKey;
use jobtree_queue::lease::{Deadlines, Due};
use jobtree_queue::ledger::Holder;
use jobtree_queue::planner::LiveLease;
use jobtree_queue::transitions::{self, Changes, Proof, RuntimeProof, Unclaimed};
use jobtree_queue::{JobRecord, LeaseRecord, Now};

use super::claims::Claims;
use super::lease_reads::LeaseReads;
use super::operations::{Expire, FoundLease, Live, Op, OpId, ReadJobs, Return, TimeOut};
use super::places::{Places, key_of};
use super::planted::Bug;
use super::turn::Turn;
use super::unbegun::Unbegun;

/// The view of a lease of this node.
#[derive(Clone, Debug)]
struct Known {
    /// The concurrency key of its jobs.
    key: Option<ConcurrencyKey>,
    /// When it will probably end, by the monotonic clock.
    ends: Option<Duration>,
    processes: Arc<LeaseProcesses>,
    instance: Option<InstanceId>,
    expires_at: Timestamp,
    priority: Priority,
    constraints: Constraints,
    /// Its jobs, where other nodes may change them.
    jobs: Vec<JobId>,
    /// The number of commits that had been seen when it was last heard of.
    commits_seen: u64,
}

/// The processes that a lease has registered: what a sampler needs to tell their load from that of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseProcesses {
    /// What the lease is charged now, in cost units: the most that may be its own load.
    pub units: u32,
    /// The registered processes.
    pub pids: Vec<u32>,
    /// The origin of these processes, to recognise them by.
    pub origin: Option<Box<ProcessOrigin>>,
}

impl LeaseProcesses {
    fn is_of(&self, lease: &LeaseRecord) -> bool {
        self.units == lease.cost() && self.pids == lease.pids && self.origin == lease.process_origin
    }

    fn of(lease: &LeaseRecord) -> Self {
        Self {
            units: lease.cost(),
            pids: lease.pids.clone(),
            origin: lease.process_origin.clone(),
        }
    }
}

/// An end that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    Lease(LeaseId),
    Dispatch(JobId),
    Run(LeaseId),
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Leases {
    // What is iterated is ordered: a run must not depend on how a table is hashed.
    live: BTreeMap<LeaseId, Known>,
    /// Leases whose grant is under way here, and whether they have ended before it was answered.
    granting: HashMap<LeaseId, bool>,
    reads: LeaseReads,
    /// The lease of each job that is held here, where other nodes may change it.
    holders: HashMap<JobId, LeaseId>,
    deadlines: Deadlines,
    longest_gap: Duration,
    ending: HashSet<Ending>,
    unbegun: Unbegun,
    processes_version: u64,
    /// Leases whose runs a caller has paused.
    paused: BTreeSet<LeaseId>,
    /// The advice for leases may have changed.
    advice_changed: bool,
    /// The last advice for some lease was not to go on.
    advised: bool,
}

impl Leases {
    pub(super) fn new(turn: &Turn) -> Self {
        let ttl = Duration::from_secs(turn.config.rules.lease_ttl_sec.into());
        let longest_gap = (ttl / 3).clamp(Duration::from_millis(500), Duration::from_secs(10));
        Self {
            live: BTreeMap::new(),
            granting: HashMap::new(),
            reads: LeaseReads::default(),
            holders: HashMap::new(),
            deadlines: Deadlines::new(turn.now, longest_gap),
            longest_gap,
            ending: HashSet::new(),
            unbegun: Unbegun::default(),
            processes_version: 0,
            paused: BTreeSet::new(),
            advice_changed: false,
            advised: false,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.live.len()
    }

    /// Returns the jobs that workers hold and have not begun.
    pub(super) fn unbegun(&mut self) -> &mut Unbegun {
        &mut self.unbegun
    }

    /// Returns when a worker may be asked to give jobs back.
    pub(super) fn next_returnable(&self) -> Option<Duration> {
        self.unbegun.next()
    }
}

/// Leases and dispatches that hold capacity.
impl Leases {
    /// Takes a commit: first its timers, then the leases themselves.
    pub(super) fn committed(
        &mut self,
        changes: &Changes,
        then: Now,
        places: &mut Places,
        turn: &Turn,
    ) {
        if !turn.has(Bug::NoSweeper) {
            // A term begins when its commit is learnt of, which is after the commit. `then` is when the operation was issued: the
            // store may have taken longer than the term.
            let since = match turn.has(Bug::TermFromIssue) {
                true => then,
                false => turn.now,
            };
            self.deadlines.observe(changes, since, &turn.config.rules);
        }
        for lease in &changes.leases {
            let of_lease = |job: &&Arc<JobRecord>| job.lease_id == Some(lease.id);
            let key = changes.jobs.iter().find(of_lease).map(|job| key_of(job));
            self.put(lease, key, places, turn);
        }
    }

    /// Takes a lease as it is now. `key` is that of its jobs; none if the jobs are not at hand.
    fn put(
        &mut self,
        lease: &LeaseRecord,
        key: Option<Option<ConcurrencyKey>>,
        places: &mut Places,
        turn: &Turn,
    ) {
        if lease.node_id != turn.config.node {
            return;
        }
        if !lease.is_live() {
            return self.ended(lease.id, places, turn);
        }
        let now = turn.now.mono;
        let known = self.live.get(&lease.id);
        let key = key.unwrap_or_else(|| known.and_then(|known| known.key.clone()));
        let takes = lease
            .expected_duration_sec
            .map(|seconds| now + Duration::from_secs(seconds.into()));
        let ends = known.map_or(takes, |known| known.ends);
        let processes = known.map(|known| &known.processes);
        let processes = match processes.filter(|processes| processes.is_of(lease)) {
            Some(same) => Arc::clone(same),
            None => {
                self.processes_version += 1;
                Arc::new(LeaseProcesses::of(lease))
            }
        };
        if known.is_none() {
            self.advice_changed |= self.advised || places.is_draining();
            if let Some(key) = key.as_ref().filter(|_| turn.has(Bug::LeakedKeys)) {
                places.count_key_up(&lease.addon_id, &key.key);
            }
        }
        self.unbegun.put(lease, key.is_some(), now);
        let mut jobs = Vec::new();
        if turn.config.options.shared {
            jobs.extend(lease.jobs.iter().map(|job| job.id));
            self.note_jobs(lease.id, &jobs);
        }
        let known = Known {
            key,
            ends,
            processes,
            instance: lease.instance_id,
            expires_at: lease.expires_at,
            priority: lease.priority,
            constraints: lease.constraints,
            jobs,
            commits_seen: turn.commits_seen,
        };
        // The units of a grant that is under way are those of the proposal until that is answered: not twice.
        if !self.granting.contains_key(&lease.id) {
            places.lease_holds(holding(lease, &known, now));
        }
        self.live.insert(lease.id, known);
    }

    /// A lease is over.
    fn ended(&mut self, id: LeaseId, places: &mut Places, turn: &Turn) {
        self.unbegun.remove(id);
        self.note_jobs(id, &[]);
        if let Some(known) = self.live.remove(&id)
            && !known.processes.pids.is_empty()
        {
            self.processes_version += 1;
        }
        // Only while an older answer or reading could bring it back: a lease that ended is not remembered for ever.
        if let Some(ended) = self.granting.get_mut(&id) {
            *ended = true;
        }
        self.reads.ended(id, turn);
        if !turn.has(Bug::LeakedUnits) {
            places.lease_ended(id);
        }
    }

    /// Notes the jobs that a lease holds now.
    fn note_jobs(&mut self, lease: LeaseId, jobs: &[JobId]) {
        let before = self.live.get(&lease).map(|known| &known.jobs);
        for job in before.into_iter().flatten() {
            if self.holders.get(job) == Some(&lease) {
                self.holders.remove(job);
            }
        }
        self.holders.extend(jobs.iter().map(|job| (*job, lease)));
    }

    /// A grant is asked for.
    pub(super) fn begin_grant(&mut self, lease: LeaseId) {
        self.granting.insert(lease, false);
    }

    /// A grant was refused.
    pub(super) fn grant_refused(&mut self, lease: LeaseId) {
        self.granting.remove(&lease);
    }

    /// A grant was made. `key` is that of its jobs; none for capacity alone.
    pub(super) fn granted(
        &mut self,
        lease: &LeaseRecord,
        key: Option<Option<ConcurrencyKey>>,
        places: &mut Places,
        turn: &Turn,
    ) {
        let ended = self.granting.remove(&lease.id).unwrap_or(false);
        if let Some(known) = self.live.get(&lease.id) {
            // Commits told of it, and of what came after; only its units wait to be shown.
            places.lease_holds(holding(lease, known, turn.now.mono));
        } else if ended {
            places.lease_ended(lease.id);
        } else {
            self.put(lease, key, places, turn);
            self.watch(Vec::new(), vec![lease.clone()], turn);
        }
    }

    /// Watches what a reading showed that no commit told of.
    pub(super) fn watch(
        &mut self,
        jobs: Vec<Arc<JobRecord>>,
        leases: Vec<LeaseRecord>,
        turn: &Turn,
    ) {
        if turn.has(Bug::NoSweeper) {
            return;
        }
        let changes = Changes {
            jobs,
            leases,
            ..Changes::default()
        };
        self.deadlines
            .observe(&changes, turn.now, &turn.config.rules);
    }

    /// Returns the number of leases that are remembered to have ended while something was read.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.reads.remembered()
    }

    /// Forgets what every reading shows that is under way; see `InFlight::oldest_reading`.
    pub(super) fn forget_read(&mut self, oldest: OpId) {
        self.reads.forget(oldest);
    }

    /// Another node changed these jobs: reads the leases of this node that hold them, as far as is known here.
    pub(super) fn jobs_changed(&mut self, jobs: &[JobId], turn: &mut Turn) {
        let leases: BTreeSet<LeaseId> = jobs
            .iter()
            .filter_map(|job| self.holders.get(job).copied())
            .collect();
        if !turn.has(Bug::UnreadLeases) {
            self.reads.read(leases, turn);
        }
    }

    /// A reading showed jobs under leases of this node: reads those of which no commit told that they hold the job.
    pub(super) fn seen_on_jobs(&mut self, held: &[(JobId, LeaseId)], turn: &mut Turn) {
        let unknown = |(job, lease): &(JobId, LeaseId)| {
            let known = match turn.config.options.shared {
                true => self.holders.get(job) == Some(lease),
                false => self.live.contains_key(lease),
            };
            !known && !self.granting.contains_key(lease) && !self.reads.has_ended(*lease)
        };
        let leases = held.iter().copied().filter(unknown);
        let leases: BTreeSet<LeaseId> = leases.map(|(_, lease)| lease).collect();
        if !turn.has(Bug::UnreadLeases) {
            self.reads.read(leases, turn);
        }
    }

    /// After a restart every lease and every dispatch gets one whole term: its worker may have been renewing in vain. Only
    /// leases whose worker has surely ended, with the process that owned the store before, end now.
    pub(super) fn recover(&mut self, live: &Live, turn: &mut Turn) {
        let leases = &live.leases;
        if turn.has(Bug::NoGrace) {
            let over = |lease: &&LeaseRecord| lease.expires_at <= turn.now.wall;
            let over: Vec<LeaseId> = leases.iter().filter(over).map(|lease| lease.id).collect();
            for lease in over {
                let proof = Proof::Wall;
                turn.ask(Expire { lease, proof });
            }
        }
        let orphaned: HashSet<&LeaseId> = live.orphaned.iter().collect();
        for lease in leases.iter().filter(|lease| orphaned.contains(&lease.id)) {
            let (lease, proof) = (lease.id, Proof::OwnerGone);
            if self.ending.insert(Ending::Lease(lease)) {
                turn.ask(Expire { lease, proof });
            }
        }
        let dispatched = live.dispatching.iter().map(|job| &**job);
        self.deadlines
            .recover(leases, dispatched, turn.now, &turn.config.rules);
    }

    /// All leases were read, with their jobs, in a reading that began when so many commits had been seen.
    pub(super) fn all_read(
        &mut self,
        leases: &[LeaseRecord],
        held: &[Arc<JobRecord>],
        begun: u64,
        places: &mut Places,
        turn: &Turn,
    ) {
        let key = |job: &Arc<JobRecord>| Some((job.lease_id?, key_of(job)));
        let keys: HashMap<LeaseId, Option<ConcurrencyKey>> = held.iter().filter_map(key).collect();
        let mut seen = HashSet::new();
        for lease in leases {
            seen.insert(lease.id);
            let known = self.live.get(&lease.id);
            let newer = known.is_some_and(|known| known.commits_seen > begun);
            if newer || self.reads.has_ended(lease.id) {
                continue;
            }
            self.put(lease, keys.get(&lease.id).cloned(), places, turn);
            self.watch(Vec::new(), vec![lease.clone()], turn);
        }
        let gone = self.live.iter();
        let gone = gone.filter(|(id, known)| {
            let granting = self.granting.contains_key(id);
            !seen.contains(id) && !granting && known.commits_seen <= begun
        });
        let gone: Vec<LeaseId> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            self.ended(id, places, turn);
        }
        self.free_unfounded(places, turn);
    }

    /// Frees what the planner counts for leases of which nothing is known here: no count survives its cause.
    fn free_unfounded(&self, places: &mut Places, turn: &Turn) {
        if turn.has(Bug::UnreadLeases) || turn.has(Bug::LeakedUnits) {
            return;
        }
        let unfounded = |holder: Holder| match holder {
            Holder::Lease(lease) => {
                let known = self.live.contains_key(&lease) || self.granting.contains_key(&lease);
                (!known && !self.reads.is_reading(lease)).then_some(lease)
            }
            Holder::Job(_) => None,
        };
        let leases: Vec<LeaseId> = places.planner().holders().filter_map(unfounded).collect();
        for lease in leases {
            places.lease_ended(lease);
        }
    }

    /// Leases were read: their jobs changed at another node, or their end was refused.
    pub(super) fn read(
        &mut self,
        leases: &[LeaseId],
        found: Vec<FoundLease>,
        begun: u64,
        places: &mut Places,
        turn: &mut Turn,
    ) {
        for (lease, found) in leases.iter().zip(found) {
            let known = self.live.get(lease);
            let newer = known.is_some_and(|known| known.commits_seen > begun);
            if !newer && !self.reads.has_ended(*lease) {
                self.found(*lease, found, places, turn);
            }
        }
        self.reads.answered(leases, turn);
    }

    fn found(&mut self, id: LeaseId, found: FoundLease, places: &mut Places, turn: &Turn) {
        match found {
            Some((lease, jobs)) if lease.is_live() => {
                let key = jobs.first().map(|job| key_of(job));
                self.put(&lease, key, places, turn);
                self.watch(Vec::new(), vec![lease], turn);
            }
            Some((lease, _)) => {
                self.watch(Vec::new(), vec![lease], turn);
                self.ended(id, places, turn);
            }
            None => self.ended(id, places, turn),
        }
    }
}

fn holding(lease: &LeaseRecord, known: &Known, now: Duration) -> LiveLease {
    LiveLease {
        lease: lease.id,
        addon: lease.addon_id.clone(),
        units: lease.cost(),
        job_type: (!lease.jobs.is_empty()).then(|| lease.job_type.clone()),
        key: known.key.clone(),
        ends_in: known.ends.map(|at| at.saturating_sub(now)),
    }
}

/// Leases, dispatches and runs whose time is over.
impl Leases {
    /// Ends what is over.
    pub(super) fn sweep(&mut self, claims: &Claims, turn: &mut Turn) {
        if turn.has(Bug::WallClockExpiry) {
            self.sweep_by_wall(turn);
        }
        for due in self.deadlines.due(turn.now) {
            if let Due::Lease { lease_id, .. } = &due
                && turn.has(Bug::TrustWorkerNames)
                && self.is_worker_seen(*lease_id, claims)
            {
                continue;
            }
            let (ending, op) = end_of(due);
            if self.ending.insert(ending) {
                // From now on the answer decides: a commit that ends it, or a reading that sets the timer anew.
                self.deadlines.forget(&due);
                turn.ask(op);
            }
        }
    }

    /// An end was answered. What was refused is read: things are not as they were thought to be.
    pub(super) fn end_answered(&mut self, ending: Ending, refused: bool, turn: &mut Turn) {
        self.ending.remove(&ending);
        if refused {
            match ending {
                Ending::Lease(lease) | Ending::Run(lease) => self.reads.read([lease], turn),
                Ending::Dispatch(job) => turn.ask(ReadJobs::one(job)),
            }
        }
    }

    /// Returns when something is over, or the clock is to be looked at: a longer pause would count as one in which no
    /// heartbeat could be heard.
    pub(super) fn next_end(&self, now: Duration) -> Option<Duration> {
        let gap = (!self.deadlines.is_empty()).then(|| now + self.longest_gap / 2);
        let due = self.deadlines.next().filter(|at| *at > now);
        [gap, due].into_iter().flatten().min()
    }

    /// The mistake [`Bug::TrustWorkerNames`]: a process of that name is there.
    fn is_worker_seen(&self, lease: LeaseId, claims: &Claims) -> bool {
        let known = self.live.get(&lease).and_then(|known| known.instance);
        known.is_some_and(|instance| claims.has_seen(instance))
    }

    /// The mistake [`Bug::WallClockExpiry`].
    fn sweep_by_wall(&mut self, turn: &mut Turn) {
        let over = |known: &Known| known.expires_at <= turn.now.wall;
        let over = self.live.iter().filter(|(_, known)| over(known));
        let ids: Vec<LeaseId> = over.map(|(id, _)| *id).collect();
        for lease in ids {
            if self.ending.insert(Ending::Lease(lease)) {
                let proof = Proof::Wall;
                turn.ask(Expire { lease, proof });
            }
        }
    }
}

fn end_of(due: Due) -> (Ending, Op) {
    match due {
        Due::Lease { lease_id, revision } => {
            let proof = Proof::Seen { revision };
            let lease = lease_id;
            (Ending::Lease(lease_id), Expire { lease, proof }.into())
        }
        Due::Reservation {
            job_id,
            reservation_id,
            revision,
        } => {
            let end = Return {
                job: job_id,
                reservation: reservation_id,
                why: Unclaimed::TimedOut(Proof::Seen { revision }),
            };
            (Ending::Dispatch(job_id), end.into())
        }
        Due::Run {
            lease_id,
            job_id,
            current_since,
        } => {
            let by = RuntimeProof::Monotonic;
            let command = transitions::TimeOut {
                job_id,
                current_since,
                by,
            };
            let lease = lease_id;
            (Ending::Run(lease_id), TimeOut { lease, command }.into())
        }
    }
}

/// What workers are told, and what the sampler needs to know.
impl Leases {
    /// Notes that the advice for leases may have changed.
    pub(super) fn advice_may_change(&mut self) {
        self.advice_changed = true;
    }

    /// Pauses the run under a lease, or resumes it.
    pub(super) fn pause(&mut self, lease: LeaseId, paused: bool) {
        match paused {
            true => self.paused.insert(lease),
            false => self.paused.remove(&lease),
        };
        self.advice_changed = true;
    }

    /// Notes that time has passed: advice that is not to go on may be over.
    pub(super) fn time_passed(&mut self) {
        self.advice_changed |= self.advised;
    }

    /// Returns the advice for each lease that is told something else than to go on, if that may have changed.
    pub(super) fn advices(
        &mut self,
        places: &Places,
        now: Now,
    ) -> Option<HashMap<LeaseId, Advice>> {
        if !std::mem::take(&mut self.advice_changed) {
            return None;
        }
        self.paused.retain(|lease| self.live.contains_key(lease));
        let (view, admission) = (places.planner().view(now), places.planner().admission());
        let draining = places.is_draining();
        let advices = self.live.iter().filter_map(|(id, lease)| {
            let (priority, constraints) = (lease.priority, lease.constraints);
            let advice = match advice(admission, &view, priority, constraints, draining, now) {
                Advice::Continue | Advice::Slow if self.paused.contains(id) => Advice::Checkpoint,
                advice => advice,
            };
            (advice != Advice::Continue).then_some((*id, advice))
        });
        let advices: HashMap<LeaseId, Advice> = advices.collect();
        self.advised = !advices.is_empty();
        Some(advices)
    }

    /// Returns a number that grows when [`Leases::processes`] changes.
    pub(super) fn processes_version(&self) -> u64 {
        self.processes_version
    }

    /// Returns the processes of each lease that holds here and has registered any.
    pub(super) fn processes(&self) -> Vec<Arc<LeaseProcesses>> {
        let processes = self.live.values().map(|lease| &lease.processes);
        let processes = processes.filter(|processes| !processes.pids.is_empty());
        processes.cloned().collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use jobtree_queue::policy::Policy;
    use jobtree_queue::record::LeaseEnd;

    use super::super::operations::ReadLive;
    use super::super::turn::Config;
    use super::*;
    use crate::options::Options;

    pub(in crate::core) fn lease(number: u128, turn: &Turn) -> LeaseRecord {
        let now = turn.now.wall;
        LeaseRecord {
            id: LeaseId::from_random(number.to_be_bytes()),
            revision: 1,
            addon_id: "a".parse().unwrap(),
            job_type: "t".parse().unwrap(),
            node_id: turn.config.node.clone(),
            instance_id: None,
            request_key: None,
            priority: Priority::Normal,
            constraints: Constraints::default(),
            expected_duration_sec: None,
            own_cost: 1,
            ttl_sec: 30,
            granted_at: now,
            renewed_at: now,
            renewals: 0,
            expires_at: now,
            jobs: Vec::new(),
            named_current: None,
            current_since: now,
            reports_begin: false,
            returns_unbegun: false,
            begun: false,
            in_process: false,
            asked_back: Vec::new(),
            pids: Vec::new(),
            process_origin: None,
            end: None,
            ended_at: None,
            end_reason: None,
        }
    }

    pub(in crate::core) fn end(lease: &LeaseRecord) -> LeaseRecord {
        LeaseRecord {
            revision: 2,
            end: Some(LeaseEnd::Released),
            ..lease.clone()
        }
    }

    fn rooms() -> (Leases, Places, Turn) {
        let now = Now {
            wall: "2026-01-01T00:00:00Z".parse().unwrap(),
            mono: Duration::from_secs(100),
        };
        let config = Config::new(&Options::default(), Arc::new(Policy::default()));
        let turn = Turn::new(config, 7, now);
        (Leases::new(&turn), Places::new(&turn), turn)
    }

    fn units(places: &mut Places, turn: &Turn) -> u32 {
        places.pass(turn);
        places.planner().used()
    }

    /// A daemon runs for months: what ended must leave nothing behind.
    #[test]
    fn leases_that_ended_are_not_remembered() {
        let (mut leases, mut places, turn) = rooms();
        for number in 0..1000 {
            let lease = lease(number, &turn);
            leases.begin_grant(lease.id);
            leases.put(&lease, None, &mut places, &turn);
            leases.granted(&lease, None, &mut places, &turn);
            leases.put(&end(&lease), None, &mut places, &turn);
        }
        assert!(leases.live.is_empty() && leases.granting.is_empty());
        assert!(leases.reads.is_empty() && leases.holders.is_empty());
        assert_eq!(units(&mut places, &turn), 0);
    }

    #[test]
    fn a_lease_that_ended_before_its_grant_was_answered_holds_nothing() {
        let (mut leases, mut places, mut turn) = rooms();
        let lease = lease(1, &turn);
        leases.begin_grant(lease.id);
        leases.put(&lease, None, &mut places, &turn);
        leases.put(&end(&lease), None, &mut places, &turn);
        // All leases are read in between, which must not hide that this one has ended.
        turn.ask(ReadLive);
        leases.all_read(&[], &[], turn.commits_seen, &mut places, &turn);
        leases.granted(&lease, None, &mut places, &turn);
        assert!(leases.live.is_empty());
        assert_eq!(units(&mut places, &turn), 0);
    }

    #[test]
    fn a_lease_that_ended_while_all_were_read_is_not_brought_back() {
        let (mut leases, mut places, mut turn) = rooms();
        let lease = lease(1, &turn);
        leases.put(&lease, None, &mut places, &turn);
        turn.ask(ReadLive);
        leases.put(&end(&lease), None, &mut places, &turn);
        leases.all_read(&[lease], &[], turn.commits_seen, &mut places, &turn);
        assert!(leases.live.is_empty());
        assert_eq!(units(&mut places, &turn), 0);
    }
}
