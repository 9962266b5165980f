//! The one reader of the trail, and who listens to it.
//!
//! An event is written as JSON once, however many listen. Events that are kept come from the trail, in its order, each
//! with its place; what is only told (progress, output, load) comes beside them, without one. The trail is followed only
//! while somebody listens: a daemon that nobody watches pays nothing.
//!
//! A listener that is too slow loses its place in the hub, not in the trail: it reads on from the last place it has seen.
//! [`Hub::listen`] gives a listener whose first event comes after everything that was in the trail at that moment;
//! [`Hub::page`] gives what was there before. Whoever needs both begins to listen first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use jobtree_protocol::{
    AddonId, ApiError, ErrorCode, Event, EventKind, JobId, JobType, LoadSample,
};
use jobtree_scheduler::Scheduler;
use jobtree_store::{Listening, Recorded, StoreError, Written};
use serde::Serialize;
use tokio::sync::{Notify, broadcast};

/// Events that a listener may be behind before it has to read the trail itself.
const BACKLOG: usize = 4096;
/// Events that are read at once.
const PAGE: usize = 1000;
/// Jobs whose addon is remembered.
const REMEMBERED: usize = 65_536;
/// How long one reading of the trail waits for something to happen.
const LOOK: Duration = Duration::from_secs(30);

/// The name of the events that tell the load.
pub const LOAD: &str = "LOAD";

/// An event on its way to listeners.
#[derive(Clone, Debug)]
pub struct Told {
    /// Its place in the trail; none for what is only told.
    pub cursor: Option<u64>,
    /// What.
    pub kind: &'static str,
    /// Whose job; none for what concerns no job, or one that is forgotten.
    pub addon_id: Option<AddonId>,
    /// Its type.
    pub job_type: Option<JobType>,
    /// Which.
    pub job_id: Option<JobId>,
    /// All of it, as JSON.
    pub data: Bytes,
}

/// Whose job an event is about.
type Whose = (AddonId, JobType);

/// Hands events to all who listen.
pub struct Hub {
    scheduler: Scheduler,
    sender: broadcast::Sender<Arc<Told>>,
    audience: Mutex<Audience>,
    /// Whether there is one, for those who only need to know that.
    heard: AtomicBool,
    /// Somebody came, and the place to begin at is known.
    came: Notify,
    whose: Mutex<HashMap<JobId, Whose>>,
    _listening: Listening,
}

#[derive(Default)]
struct Audience {
    listeners: usize,
    /// The place that they are told from. Known while somebody listens, except in the moment when the first one comes.
    head: Option<u64>,
}

/// Somebody who listens. Dropped, it does not any more.
pub struct Listener {
    hub: Arc<Hub>,
    /// Where the trail ended when it began to listen. What comes may begin before that.
    pub start: u64,
    /// What comes.
    pub receiver: broadcast::Receiver<Arc<Told>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut audience = self.hub.audience();
        audience.listeners -= 1;
        if audience.listeners == 0 {
            // The next one begins at the end of the trail as it is then.
            audience.head = None;
            self.hub.heard.store(false, Ordering::Release);
        }
    }
}

impl Hub {
    /// A hub of what this scheduler's store tells. [`follow`](Self::follow) is to be run beside it.
    pub fn new(scheduler: Scheduler) -> Arc<Self> {
        Arc::new_cyclic(|hub: &Weak<Hub>| {
            let hub = hub.clone();
            let listening = scheduler.store().listen(Arc::new(move |written| {
                if let Some(hub) = hub.upgrade()
                    && hub.is_heard()
                {
                    hub.pass_on(written);
                }
            }));
            Hub {
                sender: broadcast::Sender::new(BACKLOG),
                audience: Mutex::default(),
                heard: AtomicBool::new(false),
                came: Notify::new(),
                whose: Mutex::default(),
                _listening: listening,
                scheduler,
            }
        })
    }

    fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Acquire)
    }

    fn audience(&self) -> MutexGuard<'_, Audience> {
        self.audience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<JobId, Whose>> {
        self.whose.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// If the store cannot say where the trail ends.
    pub async fn listen(self: &Arc<Self>) -> Result<Listener, StoreError> {
        // It counts before the end is read: what is committed after that is told, or read by whoever follows.
        let mut listener = Listener {
            receiver: self.sender.subscribe(),
            start: 0,
            hub: Arc::clone(self),
        };
        {
            self.audience().listeners += 1;
            self.heard.store(true, Ordering::Release);
        }
        listener.start = self.end().await?;
        // Whoever came first decides where all begin; a later one passes over what was before its own start.
        self.audience().head.get_or_insert(listener.start);
        self.came.notify_one();
        Ok(listener)
    }

    /// What the trail has after a place, as listeners are told it; empty at its end.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn page(&self, after: u64, limit: usize) -> Result<Vec<Arc<Told>>, StoreError> {
        let events = self
            .scheduler
            .store()
            .events_after(after, limit.clamp(1, PAGE))
            .await?;
        self.dress(events).await
    }

    /// The same; at the trail's end it waits for something to happen.
    ///
    /// # Errors
    /// If the store cannot be read, or the scheduler has stopped.
    pub async fn next_page(
        &self,
        after: u64,
        limit: usize,
        wait_for: Duration,
    ) -> Result<Vec<Arc<Told>>, ApiError> {
        let events = self
            .scheduler
            .events(after, limit.clamp(1, PAGE), wait_for)
            .await?;
        let dressed = self.dress(events).await;
        dressed.map_err(|error| ApiError::new(ErrorCode::Unavailable, error.to_string()))
    }

    /// The place of the last event.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn end(&self) -> Result<u64, StoreError> {
        self.scheduler
            .store()
            .read(|tables| tables.last_event())
            .await
    }

    /// Tells how busy the machine is.
    pub fn tell_load(&self, load: &LoadSample) {
        if !self.is_heard() {
            return;
        }
        let Ok(data) = serde_json::to_vec(load) else {
            return;
        };
        self.send(Told {
            cursor: None,
            kind: LOAD,
            addon_id: None,
            job_type: None,
            job_id: None,
            data: data.into(),
        });
    }

    /// Follows the trail for as long as the daemon runs.
    pub async fn follow(self: Arc<Self>) {
        loop {
            let head = self.audience().head;
            let Some(after) = head else {
                self.came.notified().await;
                continue;
            };
            let events = match self.scheduler.events(after, PAGE, LOOK).await {
                Ok(events) => events,
                Err(error) => {
                    tracing::warn!(%error, "the trail cannot be read; trying again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            let Some(last) = events.last().map(|event| event.cursor) else {
                continue;
            };
            match self.dress(events).await {
                Ok(told) => {
                    for event in told {
                        // An error means that nobody listens any more.
                        let _ = self.sender.send(event);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the trail cannot be read; trying again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            }
            let mut audience = self.audience();
            // Unless all left, and others came: they begin later.
            if audience.head == Some(after) {
                audience.head = Some(last);
            }
        }
    }

    fn send(&self, told: Told) {
        // An error means that nobody listens any more.
        let _ = self.sender.send(Arc::new(told));
    }

    /// Called after each commit: remembers whose jobs these are, and passes on what is only told.
    fn pass_on(&self, written: &[Written]) {
        let mut untold = Vec::new();
        {
            let mut known = self.known();
            for written in written {
                for job in &written.changes.jobs {
                    remember(
                        &mut known,
                        job.id,
                        &job.intent.addon_id,
                        &job.intent.job_type,
                    );
                }
                let only_told = |event: &&Event| !EventKind::is_kept(event.kind);
                for event in written.changes.events.iter().filter(only_told) {
                    let whose = event.job_id.and_then(|job| known.get(&job).cloned());
                    untold.push(told(None, event, whose));
                }
            }
        }
        untold
            .into_iter()
            .flatten()
            .for_each(|told| self.send(told));
    }

    async fn dress(&self, events: Vec<Recorded>) -> Result<Vec<Arc<Told>>, StoreError> {
        let unknown: Vec<JobId> = {
            let known = self.known();
            let mut jobs: Vec<JobId> = events
                .iter()
                .filter_map(|recorded| recorded.event.job_id)
                .filter(|job| !known.contains_key(job))
                .collect();
            jobs.sort_unstable();
            jobs.dedup();
            jobs
        };
        if !unknown.is_empty() {
            let found = self
                .scheduler
                .store()
                .read(move |tables| tables.jobs(&unknown));
            let found = found.await?;
            let mut known = self.known();
            for job in found {
                remember(
                    &mut known,
                    job.id,
                    &job.intent.addon_id,
                    &job.intent.job_type,
                );
            }
        }
        let known = self.known();
        let dressed = events.into_iter().filter_map(|Recorded { cursor, event }| {
            let whose = event.job_id.and_then(|job| known.get(&job).cloned());
            told(Some(cursor), &event, whose).map(Arc::new)
        });
        Ok(dressed.collect())
    }
}

fn remember(known: &mut HashMap<JobId, Whose>, job: JobId, addon: &AddonId, job_type: &JobType) {
    if known.len() >= REMEMBERED {
        // Whoever is asked for again is read again.
        known.clear();
    }
    known
        .entry(job)
        .or_insert_with(|| (addon.clone(), job_type.clone()));
}

/// An event as listeners are told it: with its place, and whose job it is about.
#[derive(Serialize)]
struct Dressed<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<u64>,
    #[serde(flatten)]
    event: &'a Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    addon_id: Option<&'a AddonId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_type: Option<&'a JobType>,
}

fn told(cursor: Option<u64>, event: &Event, whose: Option<Whose>) -> Option<Told> {
    let (addon_id, job_type) = whose.unzip();
    let dressed = Dressed {
        cursor,
        event,
        addon_id: addon_id.as_ref(),
        job_type: job_type.as_ref(),
    };
    let data = serde_json::to_vec(&dressed).ok()?.into();
    Some(Told {
        cursor,
        kind: event.kind.as_str(),
        addon_id,
        job_type,
        job_id: event.job_id,
        data,
    })
}
