//! Long polls: somebody waits for an end, a dispatch, an event, or what a job prints.
//!
//! Each is read once when it comes. If that does not satisfy it, it is read again when a commit concerns it, and a last
//! time when its time is over. It is registered before it is read, so a commit in between is not missed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jobtree_protocol::{Event, EventKind, JobId, JobState};
use jobtree_queue::Now;
use jobtree_queue::transitions::Changes;

use super::Core;
use super::io::{Op, OpId, Slot, Told, Wait, Waited};

#[derive(Debug)]
struct Waiter {
    slot: Slot,
    wait: Wait,
    until: Duration,
    reading: Option<OpId>,
    /// Something happened: read it (again).
    look: bool,
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    next: u64,
    waiting: BTreeMap<u64, Waiter>,
    /// When each is read a last time; those that are being read so are not in it.
    ends: BTreeSet<(Duration, u64)>,
    /// Waiters for the end of a job: there may be many.
    for_job: HashMap<JobId, Vec<u64>>,
    /// Waiters for anything else.
    others: Vec<u64>,
    reading: HashMap<OpId, u64>,
    /// Those that want to be read.
    looks: Vec<u64>,
}

impl Waits {
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.waiting.values().map(|waiter| waiter.slot)
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.ends.first().map(|(until, _)| *until)
    }

    fn add(&mut self, slot: Slot, wait: Wait, until: Duration) {
        let id = self.next;
        self.next += 1;
        match &wait {
            Wait::Ended(job) => self.for_job.entry(*job).or_default().push(id),
            _ => self.others.push(id),
        }
        self.ends.insert((until, id));
        self.waiting.insert(
            id,
            Waiter {
                slot,
                wait,
                until,
                reading: None,
                look: false,
            },
        );
        self.look(id);
    }

    fn look(&mut self, id: u64) {
        if let Some(waiter) = self.waiting.get_mut(&id)
            && !waiter.look
        {
            waiter.look = true;
            self.looks.push(id);
        }
    }

    fn remove(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.waiting.remove(&id)?;
        self.ends.remove(&(waiter.until, id));
        match &waiter.wait {
            Wait::Ended(job) => {
                if let Some(ids) = self.for_job.get_mut(job) {
                    ids.retain(|other| *other != id);
                    if ids.is_empty() {
                        self.for_job.remove(job);
                    }
                }
            }
            _ => self.others.retain(|other| *other != id),
        }
        Some(waiter)
    }

    /// Nobody waits for this any more.
    pub(super) fn leave(&mut self, slot: Slot) {
        let found = self.waiting.iter().find(|(_, it)| it.slot == slot);
        if let Some(id) = found.map(|(id, _)| *id) {
            self.remove(id);
        }
    }

    /// A reading failed; its caller is told by whoever says so.
    pub(super) fn forget_reading(&mut self, op: OpId) {
        if let Some(id) = self.reading.remove(&op) {
            self.remove(id);
        }
    }

    /// Something was read: what to reply to whom, if that is it.
    pub(super) fn read(&mut self, op: OpId, waited: Waited, now: Duration) -> Option<(Slot, Told)> {
        let id = self.reading.remove(&op)?;
        let waiter = self.waiting.get_mut(&id)?;
        waiter.reading = None;
        let satisfied = match &waited {
            Waited::Job(state, _) => state.is_ended(),
            Waited::Jobs(jobs) => !jobs.is_empty(),
            Waited::Events(events) => !events.is_empty(),
            Waited::Log(page) => page.ended || !page.text.is_empty(),
        };
        if !satisfied && waiter.until > now {
            if waiter.look {
                self.looks.push(id);
            }
            return None;
        }
        let told = match waited {
            Waited::Job(_, job) => Told::Job(job),
            Waited::Jobs(jobs) => Told::Jobs(jobs),
            Waited::Events(events) => Told::Events(events),
            Waited::Log(page) => Told::Log(page),
        };
        self.remove(id).map(|waiter| (waiter.slot, told))
    }
}

impl Core {
    pub(super) fn wait(&mut self, slot: Slot, wait: Wait, wait_for: Duration, now: Now) {
        self.waits.add(slot, wait, now.mono + wait_for);
        self.read_waits(now);
    }

    /// Reads for those that want it.
    pub(super) fn read_waits(&mut self, now: Now) {
        for id in std::mem::take(&mut self.waits.looks) {
            let Some(waiter) = self.waits.waiting.get(&id) else {
                continue;
            };
            if waiter.reading.is_some() {
                // It is read again when that is done.
                continue;
            }
            let (wait, slot) = (waiter.wait.clone(), waiter.slot);
            let op = self.op(Op::ReadWait(wait), Some(slot), now);
            self.waits.reading.insert(op, id);
            if let Some(waiter) = self.waits.waiting.get_mut(&id) {
                waiter.reading = Some(op);
                waiter.look = false;
            }
        }
    }

    /// A commit concerns some of those who wait.
    pub(super) fn wake_waits(&mut self, changes: &Changes, now: Now) {
        if self.waits.waiting.is_empty() {
            return;
        }
        for job in changes.jobs.iter().filter(|job| job.state.is_ended()) {
            // The commit says it all.
            for id in self.waits.for_job.remove(&job.id).unwrap_or_default() {
                if let Some(waiter) = self.waits.waiting.remove(&id) {
                    self.waits.ends.remove(&(waiter.until, id));
                    let view = Box::new(job.view(None));
                    self.reply(waiter.slot, Ok(Told::Job(view)));
                }
            }
        }
        let kept = changes
            .events
            .iter()
            .any(|event| EventKind::is_kept(event.kind));
        let concerned = |waiter: &Waiter| match &waiter.wait {
            Wait::Ended(_) => false,
            Wait::Events { .. } => kept,
            Wait::Log { job, .. } => {
                let logged =
                    |event: &Event| event.kind == EventKind::Log && event.job_id == Some(*job);
                changes.events.iter().any(logged) || changes.ended.iter().any(|(id, _)| id == job)
            }
            Wait::Dispatchable(addon) => changes.jobs.iter().any(|job| {
                job.state == JobState::Dispatching
                    && addon
                        .as_ref()
                        .is_none_or(|addon| *addon == job.intent.addon_id)
            }),
        };
        let ids: Vec<u64> = self
            .waits
            .others
            .iter()
            .copied()
            .filter(|id| self.waits.waiting.get(id).is_some_and(concerned))
            .collect();
        for id in ids {
            self.waits.look(id);
        }
        self.read_waits(now);
    }

    /// Others have changed these jobs.
    pub(super) fn wake_hinted(&mut self, jobs: &[JobId], now: Now) {
        if self.waits.waiting.is_empty() {
            return;
        }
        let of_job = |job| self.waits.for_job.get(job).into_iter().flatten();
        let ended = jobs.iter().flat_map(of_job);
        let ids: Vec<u64> = ended.chain(&self.waits.others).copied().collect();
        for id in ids {
            self.waits.look(id);
        }
        self.read_waits(now);
    }

    /// Others may have done what somebody waits for.
    pub(super) fn read_all_waits(&mut self, now: Now) {
        let all: Vec<u64> = self.waits.waiting.keys().copied().collect();
        for id in all {
            self.waits.look(id);
        }
        self.read_waits(now);
    }

    /// Reads a last time for those whose time is over.
    pub(super) fn end_waits(&mut self, now: Now) {
        while let Some((until, id)) = self.waits.ends.first().copied()
            && until <= now.mono
        {
            self.waits.ends.remove(&(until, id));
            self.waits.look(id);
        }
        self.read_waits(now);
    }
}
