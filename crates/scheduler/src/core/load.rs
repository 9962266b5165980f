//! Reading the store: at the start, when news may have been lost, and each few seconds if others write to it.
//!
//! First what is live, of one snapshot, then what waits, page by page. Commits go on meanwhile: what was heard of since
//! the reading began is newer than what it shows. At the start nothing is dispatched before all of it is read: what is in
//! use must be known, and who waits, or the first page's jobs would come before everybody's.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{AddonId, JobId, JobState, JobType, Json, LeaseId};
use jobtree_queue::candidate::{Candidate, ConcurrencyKey};
use jobtree_queue::dispatch::Event;
use jobtree_queue::ledger::Holder;
use jobtree_queue::{JobRecord, Now};
use jobtree_store::Pause;

use super::io::{Live, Op, PAGE, Slot, Told};
use super::notes::{self, Note};
use super::observe::key_of;
use super::{Bug, Core};

/// How far a reading is.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// One is under way.
    reading: bool,
    /// It goes on with what waits.
    full: bool,
    /// Something came about that asks for another one, perhaps a full one.
    again: Option<bool>,
    /// When the next one begins.
    next: Option<Duration>,
    /// What waits, until all of it was read for the first time.
    waiting: Vec<Candidate>,
    /// Who waits for the reading under way, and for the one after it.
    told: Vec<Slot>,
    told_next: Vec<Slot>,
    /// Leases of other nodes were seen: somebody else uses the store, or did.
    foreign: bool,
}

impl Load {
    pub(super) fn next(&self) -> Option<Duration> {
        self.next
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.told.iter().chain(&self.told_next).copied()
    }

    pub(super) fn soon(&mut self, at: Duration) {
        self.next = Some(self.next.map_or(at, |known| known.min(at)));
    }
}

impl Core {
    /// Reads the store, or does so again when the reading under way is done.
    pub(super) fn read_store(&mut self, full: bool, now: Now) {
        if self.load.reading {
            self.load.again = Some(full || self.load.again.unwrap_or(false));
            return;
        }
        self.load.reading = true;
        let told = std::mem::take(&mut self.load.told_next);
        self.load.told.extend(told);
        self.load.full = full;
        self.stats.reads += 1;
        self.ended_meanwhile.clear();
        self.op(Op::ReadLive, None, now);
    }

    /// Others have changed these jobs: they are read, and so is what somebody may wait for because of them.
    pub(super) fn hinted(&mut self, jobs: Vec<JobId>, now: Now) {
        self.wake_hinted(&jobs, now);
        self.op(Op::Look(jobs), None, now);
    }

    /// Reads what was written, and tells when it is known here.
    pub(super) fn reread(&mut self, slot: Slot, now: Now) {
        self.load.told_next.push(slot);
        self.read_store(false, now);
    }

    /// Looks at a shared store again when it is time.
    pub(super) fn look_again(&mut self, now: Now) {
        if self.load.next.is_none_or(|at| at > now.mono) || self.has(Bug::NoFallback) {
            return;
        }
        self.load.next = None;
        let full = self.options.shared;
        self.read_store(full, now);
    }

    /// What is live was read.
    pub(super) fn loaded_live(&mut self, live: Live, heard: u64, now: Now) {
        let Live {
            leases,
            running,
            dispatching,
            pauses,
            schedules,
        } = live;
        self.set_pauses(&pauses);
        self.set_schedules(schedules);
        if !self.ready && self.has(Bug::NoGrace) {
            for lease in leases.iter().filter(|lease| lease.expires_at <= now.wall) {
                let proof = jobtree_queue::transitions::Proof::Wall;
                self.op(Op::Expire(lease.id, proof), None, now);
            }
        }
        if !self.ready {
            // One whole term for everything: its worker may have been renewing in vain.
            let dispatched = dispatching.iter().map(|job| &**job);
            self.deadlines
                .recover(&leases, dispatched, now, &self.rules);
        }
        self.load.foreign = leases.iter().any(|lease| lease.node_id != self.node)
            || dispatching
                .iter()
                .any(|job| job.node_id.as_ref() != Some(&self.node));
        self.set_elsewhere(&running, &dispatching);
        if self.has(Bug::ForgetLive) && !self.ready {
            return self.live_done(now);
        }

        let keys: HashMap<LeaseId, Option<ConcurrencyKey>> = running
            .iter()
            .filter_map(|job| Some((job.lease_id?, key_of(job))))
            .collect();
        let mut seen = HashSet::new();
        for lease in &leases {
            seen.insert(lease.id);
            let newer = self
                .leases
                .get(&lease.id)
                .is_some_and(|known| known.heard > heard);
            if newer || self.ended_meanwhile.contains(&lease.id) {
                continue;
            }
            self.put_lease(lease, keys.get(&lease.id).cloned(), now);
            self.watch(Vec::new(), vec![lease.clone()], now);
        }
        let gone: Vec<LeaseId> = self
            .leases
            .iter()
            .filter(|(id, known)| !seen.contains(id) && known.heard <= heard)
            .map(|(id, _)| *id)
            .filter(|id| !self.granting.contains(id))
            .collect();
        for id in gone {
            self.drop_lease(id);
        }

        let there: HashSet<JobId> = dispatching.iter().map(|job| job.id).collect();
        let gone: Vec<JobId> = self
            .dispatched
            .iter()
            .filter(|(id, at)| !there.contains(id) && **at <= heard)
            .map(|(id, _)| *id)
            .filter(|id| !self.flying.contains_key(id))
            .collect();
        for job in &gone {
            self.dispatched.remove(job);
            self.events.push(Event::Freed(Holder::Job(*job)));
        }
        if !gone.is_empty() {
            self.op(Op::Look(gone), None, now);
        }
        for job in &dispatching {
            if !self.is_outdated(job) && !self.flying.contains_key(&job.id) {
                self.reconcile(job, now);
            }
        }
        let dispatching = dispatching
            .into_iter()
            .filter(|job| !self.is_outdated(job))
            .collect();
        self.watch(dispatching, Vec::new(), now);
        self.live_done(now);
    }

    fn live_done(&mut self, now: Now) {
        if self.load.full {
            self.op(Op::ReadQueued(None), None, now);
        } else {
            self.loaded(now);
        }
    }

    /// A page of what waits was read.
    pub(super) fn loaded_queued(&mut self, jobs: &[Arc<JobRecord>], now: Now) {
        for job in jobs {
            if self.ready {
                self.reconcile_read(job, now);
                continue;
            }
            if job.waiting_for.is_empty() {
                self.load.waiting.push(job.candidate());
            }
            if !self.is_outdated(job) {
                self.watch_late(job);
            }
        }
        match jobs.last() {
            Some(last) if jobs.len() == PAGE => {
                self.op(Op::ReadQueued(Some(last.id)), None, now);
            }
            _ => self.loaded(now),
        }
    }

    /// A waiting job that was read while others go on: it is shown if nothing is known of it. What is known is newer, or
    /// will be found out when it is proposed.
    fn reconcile_read(&mut self, job: &Arc<JobRecord>, now: Now) {
        let known = self.is_outdated(job)
            || self.dispatched.contains_key(&job.id)
            || self.flying.contains_key(&job.id)
            || self.dispatcher.is_waiting(job.id)
            || self.is_parked(job.id);
        if !known && job.state == JobState::Queued {
            self.reconcile(job, now);
        }
    }

    fn loaded(&mut self, now: Now) {
        self.load.reading = false;
        for slot in std::mem::take(&mut self.load.told) {
            self.reply(slot, Ok(Told::Reread));
        }
        if !self.ready {
            self.ready = true;
            // Before everything that was heard of since: that is newer.
            let waiting = std::mem::take(&mut self.load.waiting);
            self.events.insert(0, Event::Submitted(waiting));
        }
        if self.options.shared || self.load.foreign {
            self.read_all_waits(now);
            // A look that is due sooner stays: what was read may have been only what is live, and where schedules fire
            // often, or others tell of much, a look that is put off each time would never come.
            let look = self.draw_look(now);
            self.load.soon(look);
        }
        if let Some(full) = self.load.again.take() {
            self.read_store(full, now);
        }
    }

    fn draw_look(&mut self, now: Now) -> Duration {
        let look = self.dice.jittered(self.options.look);
        if self.has(Bug::NoJitter) {
            // On the full seconds of the wall clock.
            let every = self.options.look.as_millis() as i64;
            let past = now.wall.as_millisecond().rem_euclid(every);
            return now.mono + Duration::from_millis((every - past) as u64);
        }
        now.mono + look
    }

    fn set_pauses(&mut self, pauses: &[Pause]) {
        if self.has(Bug::IgnorePauses) {
            return;
        }
        let new: BTreeSet<_> = pauses
            .iter()
            .map(|pause| (pause.addon_id.clone(), pause.job_type.clone()))
            .collect();
        let old = std::mem::replace(&mut self.pauses, new.clone());
        for (addon, job_type) in new.difference(&old) {
            self.show_pause(addon.clone(), job_type.clone(), true);
        }
        for (addon, job_type) in old.difference(&new) {
            self.show_pause(addon.clone(), job_type.clone(), false);
        }
    }

    pub(super) fn show_pause(&mut self, addon: AddonId, job_type: Option<JobType>, paused: bool) {
        self.events.push(match job_type {
            Some(job_type) => Event::TypePaused(addon, job_type, paused),
            None => {
                let paused = paused || self.policy.addon(addon.as_str()).paused;
                Event::AddonPaused(addon, paused)
            }
        });
    }

    /// Keys that are held on other nodes.
    fn set_elsewhere(&mut self, running: &[Arc<JobRecord>], dispatching: &[Arc<JobRecord>]) {
        if self.has(Bug::LeakedKeys) {
            return;
        }
        let mut holders: HashMap<(AddonId, Arc<str>), HashSet<uuid_of::Holder>> = HashMap::new();
        for job in running.iter().chain(dispatching) {
            if job.node_id.as_ref() == Some(&self.node) {
                continue;
            }
            if let Some(key) = key_of(job) {
                let held = uuid_of::holder(job);
                let addon = job.intent.addon_id.clone();
                holders.entry((addon, key.key)).or_default().insert(held);
            }
        }
        let new: HashMap<_, u32> = holders
            .into_iter()
            .map(|(key, held)| (key, held.len() as u32))
            .collect();
        let mut changed: Vec<((AddonId, Arc<str>), u32)> = Vec::new();
        for (key, running) in &new {
            if self.elsewhere.get(key) != Some(running) {
                changed.push((key.clone(), *running));
            }
        }
        for key in self.elsewhere.keys() {
            if !new.contains_key(key) {
                changed.push((key.clone(), 0));
            }
        }
        changed.sort();
        for ((addon, key), running) in changed {
            self.events.push(Event::KeyElsewhere {
                addon,
                key,
                running,
            });
        }
        self.elsewhere = new;
    }

    /// What was learnt before the start.
    pub(super) fn loaded_notes(&mut self, all: &[(String, Json)]) {
        for (name, value) in all {
            match notes::read(name, value, self.node.as_str()) {
                None => {}
                Some(Note::Profile(profile)) => self.profile = profile,
                Some(Note::Record(addon, job_type, record)) => {
                    if let Some(takes) = record.learnt() {
                        self.events.push(Event::Learnt {
                            addon: addon.clone(),
                            job_type: job_type.clone(),
                            takes,
                        });
                    }
                    self.history.restore(addon, job_type, record);
                }
            }
        }
    }

    pub(super) fn write_notes(&mut self, now: Now) {
        if let Ok(profile) = Json::of(&self.profile) {
            let name = notes::profile_name(self.node.as_str());
            self.op(Op::Note(name, profile), None, now);
        }
        for (addon, job_type) in std::mem::take(&mut self.unwritten) {
            let record = self.history.job_type(&addon, &job_type);
            if let Some(Ok(value)) = record.map(Json::of) {
                let name = notes::record_name(&addon, &job_type);
                self.op(Op::Note(name, value), None, now);
            }
        }
    }
}

/// Jobs of one lease run one after the other, so they hold a key once.
mod uuid_of {
    use jobtree_protocol::{JobId, LeaseId};
    use jobtree_queue::JobRecord;

    #[derive(PartialEq, Eq, Hash)]
    pub(super) enum Holder {
        Lease(LeaseId),
        Job(JobId),
    }

    pub(super) fn holder(job: &JobRecord) -> Holder {
        job.lease_id.map_or(Holder::Job(job.id), Holder::Lease)
    }
}
