//! The queue in main memory: for tests, for programs whose jobs need not outlive them, and as the plainest statement of
//! what a backend does.
//!
//! All of it is behind one lock; a command runs in its caller's thread. A command writes once, at its end, and writing
//! cannot fail, so there is nothing to undo.

mod logs;
mod moving;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, EventKind, JobId, JobQuery, JobState, JobType, Json, LeaseId, ScheduleId,
};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, Now, RequestName};

use crate::backend::{Backend, Listen, Listeners, Query, Work, Written};
use crate::error::StoreError;
use crate::numbers::{Counting, StoreNumbers};
use crate::search::{Searched, Text, ended_since};
use crate::tables::{
    Count, Page, Pause, Pruned, Reading, Recorded, Result, Retention, ScheduleRecord, Tables,
};

/// The backend in memory. Most want [`Store::in_memory`](crate::Store::in_memory); this is for backends that wrap it, as
/// simulators do.
#[derive(Default)]
pub struct Memory {
    data: Mutex<Data>,
    listeners: Listeners,
    counting: Counting,
}

/// What a [`Memory`] held at one moment.
pub struct MemoryImage(Data);

impl std::fmt::Debug for MemoryImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryImage").finish_non_exhaustive()
    }
}

#[derive(Clone, Default)]
struct Data {
    jobs: BTreeMap<JobId, Arc<JobRecord>>,
    /// Those in each state that is not an end, so that nothing else is looked at.
    by_state: BTreeMap<JobState, BTreeSet<JobId>>,
    leases: BTreeMap<LeaseId, LeaseRecord>,
    /// Those that hold and answer a request that may be repeated.
    requested: HashMap<RequestName, LeaseId>,
    keys: BTreeMap<(AddonId, String), KeyRecord>,
    unique: HashMap<(AddonId, JobType, String), JobId>,
    waits: HashMap<JobId, BTreeSet<JobId>>,
    events: BTreeMap<u64, Recorded>,
    trails: HashMap<JobId, Vec<u64>>,
    last_event: u64,
    schedules: BTreeMap<ScheduleId, ScheduleRecord>,
    firings: BTreeMap<(ScheduleId, Timestamp), Option<JobId>>,
    pauses: BTreeMap<(AddonId, Option<JobType>), Pause>,
    notes: BTreeMap<String, Json>,
    logs: BTreeMap<JobId, logs::Log>,
    written: Vec<Written>,
}

impl Memory {
    /// All of it, as it is now: what a disk would hold.
    pub fn image(&self) -> MemoryImage {
        MemoryImage(self.data().clone())
    }

    /// Goes back to an image: as a machine does that lost what was not on its disk.
    pub fn restore(&self, image: &MemoryImage) {
        *self.data() = image.0.clone();
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Backend for Memory {
    fn transact(&self, mut work: Box<dyn Work>) {
        let mut data = self.data();
        let outcome = work.run(&mut *data);
        let written = std::mem::take(&mut data.written);
        self.counting.ran(1);
        if !written.is_empty() {
            self.counting.committed(1, None);
        }
        // Under the lock, so that listeners hear of commits in their order.
        self.listeners.tell(&written);
        drop(data);
        work.finish(outcome);
    }

    fn snapshot(&self, query: Box<dyn Query>) {
        query.ask(&mut *self.data());
    }

    fn listen(&self, listener: Weak<Listen>) {
        self.listeners.add(listener);
    }

    fn stopped(&self) -> Option<StoreError> {
        None
    }

    fn numbers(&self) -> StoreNumbers {
        self.counting.read(0)
    }
}

fn unique_key(job: &JobRecord) -> Option<(AddonId, JobType, String)> {
    let intent = &job.intent;
    let key = intent.unique_key.clone()?;
    Some((intent.addon_id.clone(), intent.job_type.clone(), key))
}

impl Data {
    fn put_job(&mut self, job: Arc<JobRecord>) {
        let before = self.jobs.get(&job.id);
        if let Some(before) = before {
            if let Some(ids) = self.by_state.get_mut(&before.state) {
                ids.remove(&job.id);
            }
            for gone in &before.waiting_for {
                if let Some(waiting) = self.waits.get_mut(gone) {
                    waiting.remove(&job.id);
                    if waiting.is_empty() {
                        self.waits.remove(gone);
                    }
                }
            }
        }
        for dependency in &job.waiting_for {
            self.waits.entry(*dependency).or_default().insert(job.id);
        }
        self.by_state.entry(job.state).or_default().insert(job.id);
        if let Some(key) = unique_key(&job) {
            if job.state.is_ended() {
                if self.unique.get(&key) == Some(&job.id) {
                    self.unique.remove(&key);
                }
            } else {
                self.unique.insert(key, job.id);
            }
        }
        self.jobs.insert(job.id, job);
    }

    fn in_state(&self, state: JobState) -> impl Iterator<Item = &Arc<JobRecord>> {
        let ids = self.by_state.get(&state).into_iter().flatten();
        ids.map(|id| &self.jobs[id])
    }

    fn delete_job(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id)
            && let Some(ids) = self.by_state.get_mut(&job.state)
        {
            ids.remove(&id);
        }
        self.trails.remove(&id);
        self.logs.remove(&id);
    }
}

fn matches(query: &JobQuery, job: &JobRecord) -> bool {
    (query.state.is_empty() || query.state.contains(&job.state))
        && query
            .addon_id
            .as_ref()
            .is_none_or(|addon| *addon == job.intent.addon_id)
        && query
            .job_type
            .as_ref()
            .is_none_or(|job_type| *job_type == job.intent.job_type)
        && query
            .tag
            .as_ref()
            .is_none_or(|tag| job.intent.tags.contains(tag))
        && (!query.quarantined || job.quarantined)
        && ended_since(query, job)
}

impl Reading for Data {
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Arc<JobRecord>>> {
        Ok(ids
            .iter()
            .filter_map(|id| self.jobs.get(id).cloned())
            .collect())
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRecord>> {
        Ok(self.leases.get(&id).cloned())
    }

    fn requested_lease(&mut self, request: &RequestName) -> Result<Option<LeaseId>> {
        Ok(self.requested.get(request).copied())
    }

    fn live_leases(&mut self) -> Result<Vec<LeaseRecord>> {
        let live = self.leases.values().filter(|lease| lease.is_live());
        Ok(live.cloned().collect())
    }

    fn dispatching(&mut self) -> Result<Vec<Arc<JobRecord>>> {
        let dispatching = self.in_state(JobState::Dispatching);
        Ok(dispatching
            .filter(|job| job.is_reserved())
            .cloned()
            .collect())
    }

    fn queued(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<Arc<JobRecord>>> {
        let Some(ids) = self.by_state.get(&JobState::Queued) else {
            return Ok(Vec::new());
        };
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = ids.range((after, Bound::Unbounded)).take(limit);
        Ok(page.map(|id| Arc::clone(&self.jobs[id])).collect())
    }

    fn list(&mut self, query: &JobQuery, limit: usize) -> Result<Page> {
        let limit = limit.max(1);
        let after = query.after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self
            .jobs
            .range((after, Bound::Unbounded))
            .map(|(_, job)| job)
            .filter(|job| matches(query, job));
        let (text, mut searched) = (Text::of(query), Searched::nothing());
        let mut page = Page::default();
        for job in found {
            if page.jobs.len() == limit {
                page.next = page.jobs.last().map(|job| job.id);
                break;
            }
            if text.as_ref().is_none_or(|text| text.is_of(job)) {
                page.jobs.push(Arc::clone(job));
            }
            if text.is_some() && !searched.add(job) {
                page.next = Some(job.id);
                break;
            }
        }
        Ok(page)
    }

    fn counts(&mut self, ended: bool) -> Result<Vec<Count>> {
        let mut counts = BTreeMap::new();
        for job in self
            .jobs
            .values()
            .filter(|job| ended || !job.state.is_ended())
        {
            *counts
                .entry((job.intent.addon_id.clone(), job.state))
                .or_insert(0) += 1;
        }
        let count = |((addon_id, state), jobs)| Count {
            addon_id,
            state,
            jobs,
        };
        Ok(counts.into_iter().map(count).collect())
    }

    fn key(&mut self, addon: &AddonId, key: &str) -> Result<Option<KeyRecord>> {
        Ok(self.keys.get(&(addon.clone(), key.to_owned())).cloned())
    }

    fn unique_holder(
        &mut self,
        addon: &AddonId,
        job_type: &JobType,
        key: &str,
    ) -> Result<Option<(JobId, JobState)>> {
        let key = (addon.clone(), job_type.clone(), key.to_owned());
        let holder = self.unique.get(&key).and_then(|id| self.jobs.get(id));
        Ok(holder.map(|job| (job.id, job.state)))
    }

    fn key_holders(&mut self, addon: &AddonId, key: &str) -> Result<u32> {
        let active = [JobState::Dispatching, JobState::Running]
            .into_iter()
            .flat_map(|state| self.in_state(state));
        let holders: BTreeSet<_> = active
            .filter(|job| {
                job.intent.addon_id == *addon && job.intent.concurrency_key.as_deref() == Some(key)
            })
            .filter_map(|job| job.key_holder())
            .collect();
        Ok(holders.len() as u32)
    }

    fn waiting_for(&mut self, dependency: JobId) -> Result<Vec<JobId>> {
        let waiting = self.waits.get(&dependency).into_iter().flatten();
        Ok(waiting.copied().collect())
    }

    fn events_of(&mut self, job: JobId) -> Result<Vec<Recorded>> {
        let trail = self.trails.get(&job).into_iter().flatten();
        Ok(trail
            .filter_map(|place| self.events.get(place).cloned())
            .collect())
    }

    fn events_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>> {
        let after = (Bound::Excluded(cursor), Bound::Unbounded);
        Ok(self
            .events
            .range(after)
            .take(limit)
            .map(|(_, event)| event.clone())
            .collect())
    }

    fn last_event(&mut self) -> Result<u64> {
        Ok(self.last_event)
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>> {
        let mut all: Vec<_> = self.schedules.values().cloned().collect();
        all.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        Ok(all)
    }

    fn pauses(&mut self) -> Result<Vec<Pause>> {
        Ok(self.pauses.values().cloned().collect())
    }

    fn note(&mut self, name: &str) -> Result<Option<Json>> {
        Ok(self.notes.get(name).cloned())
    }

    fn notes(&mut self, prefix: &str) -> Result<Vec<(String, Json)>> {
        let from = self.notes.range(prefix.to_owned()..);
        Ok(from
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect())
    }
}

impl Tables for Data {
    fn write(&mut self, changes: Changes, now: Now) -> Result<()> {
        for event in changes
            .events
            .iter()
            .filter(|event| EventKind::is_kept(event.kind))
        {
            self.last_event += 1;
            let cursor = self.last_event;
            if let Some(job) = event.job_id {
                self.trails.entry(job).or_default().push(cursor);
            }
            let event = event.clone();
            self.events.insert(cursor, Recorded { cursor, event });
        }
        for job in &changes.jobs {
            self.put_job(Arc::clone(job));
        }
        for lease in &changes.leases {
            if let Some(request) = lease.request_name() {
                if lease.is_live() {
                    self.requested.insert(request, lease.id);
                } else if self.requested.get(&request) == Some(&lease.id) {
                    self.requested.remove(&request);
                }
            }
            self.leases.insert(lease.id, lease.clone());
        }
        for key in &changes.keys {
            let name = (key.addon_id.clone(), key.key.clone());
            self.keys.insert(name, key.clone());
        }
        self.written.push(Written { changes, now });
        Ok(())
    }

    fn put_schedule(&mut self, schedule: &ScheduleRecord) -> Result<()> {
        self.schedules.insert(schedule.id, schedule.clone());
        Ok(())
    }

    fn delete_schedule(&mut self, id: ScheduleId) -> Result<bool> {
        self.firings.retain(|(schedule, _), _| *schedule != id);
        Ok(self.schedules.remove(&id).is_some())
    }

    fn fire(&mut self, schedule: ScheduleId, at: Timestamp, job: Option<JobId>) -> Result<bool> {
        let new = !self.firings.contains_key(&(schedule, at));
        if new {
            self.firings.insert((schedule, at), job);
        }
        Ok(new)
    }

    fn put_pause(&mut self, pause: &Pause) -> Result<()> {
        let what = (pause.addon_id.clone(), pause.job_type.clone());
        self.pauses.insert(what, pause.clone());
        Ok(())
    }

    fn delete_pause(&mut self, addon: &AddonId, job_type: Option<&JobType>) -> Result<bool> {
        let what = (addon.clone(), job_type.cloned());
        Ok(self.pauses.remove(&what).is_some())
    }

    fn put_note(&mut self, name: &str, value: Option<&Json>) -> Result<()> {
        match value {
            Some(value) => self.notes.insert(name.to_owned(), value.clone()),
            None => self.notes.remove(name),
        };
        Ok(())
    }

    fn prune(&mut self, retention: &Retention, limit: usize) -> Result<Pruned> {
        let old: Vec<JobId> = self
            .jobs
            .values()
            .filter(|job| {
                let before = retention.of(job.state);
                before.is_some_and(|before| job.ended_at.is_some_and(|ended| ended < before))
            })
            .map(|job| job.id)
            .take(limit)
            .collect();
        let (mut jobs, mut chunks) = (0, limit);
        for id in &old {
            if !self.prune_log(*id, &mut chunks) {
                break;
            }
            self.delete_job(*id);
            jobs += 1;
        }
        let events: Vec<u64> = self
            .events
            .values()
            .take(limit)
            .take_while(|recorded| recorded.event.at < retention.events)
            .map(|recorded| recorded.cursor)
            .collect();
        events
            .iter()
            .for_each(|place| drop(self.events.remove(place)));
        let keys: Vec<_> = self
            .keys
            .iter()
            .filter(|(_, key)| key.created_at < retention.keys)
            .map(|(name, _)| name.clone())
            .take(limit)
            .collect();
        keys.iter().for_each(|key| drop(self.keys.remove(key)));
        let leases: Vec<_> = self
            .leases
            .values()
            .filter(|lease| lease.ended_at.is_some_and(|ended| ended < retention.leases))
            .map(|lease| lease.id)
            .take(limit)
            .collect();
        leases.iter().for_each(|id| drop(self.leases.remove(id)));
        let firings: Vec<_> = self
            .firings
            .keys()
            .filter(|(_, at)| *at < retention.leases)
            .copied()
            .take(limit)
            .collect();
        firings
            .iter()
            .for_each(|firing| _ = self.firings.remove(firing));
        let counts = [
            old.len(),
            limit - chunks,
            events.len(),
            keys.len(),
            leases.len(),
            firings.len(),
        ];
        Ok(Pruned {
            jobs,
            events: events.len() as u64,
            keys: keys.len() as u64,
            leases: (leases.len() + firings.len()) as u64,
            more: counts.contains(&limit),
        })
    }
}
