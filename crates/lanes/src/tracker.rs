//! Which jobs there are and how far they are, for whoever shows it to people.
//!
//! Most programs never ask, so jobs cost nothing for it until somebody does: a manager looks at one flag when it
//! schedules or dispatches a job, and enters it into the table only if the flag is up. Jobs that were scheduled before it
//! went up are entered with their next dispatch.
//!
//! The table holds a job's header, not a copy of its state. So progress is reported where it is kept, and read
//! when somebody looks. When a job ends its last state is copied and its header let go; the copy is kept for 10 s.
//!
//! The table is bounded: at most [`MOST_LIVE`] live jobs and [`MOST_ENDED`] ended ones. What does not fit is counted. A job
//! that another thread ends just before it is entered is found to have ended when somebody looks, or when the table is
//! full.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, mem};

use jobtree_runtime::JobId;

use crate::lane::Lane;
use crate::moment::Moment;
use crate::priority::Priority;

/// How long a job is shown after its end.
pub(crate) const KEPT: Duration = Duration::from_secs(10);
/// How many live jobs are tracked at once.
pub(crate) const MOST_LIVE: usize = 16_384;
/// How many ended jobs are kept, of those that ended within [`KEPT`].
pub(crate) const MOST_ENDED: usize = 4096;

/// What a tracked job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrackedState {
    /// It waits in its lane's queue, or for jobs that come before it.
    Queued,
    /// It runs.
    Running,
    /// It waits for something, and holds no thread.
    Waiting,
    /// It ended well.
    Completed,
    /// It was cancelled.
    Canceled,
    /// It failed.
    Faulted,
}

impl TrackedState {
    /// Whether nothing comes after it.
    pub fn is_ended(self) -> bool {
        use TrackedState::{Canceled, Completed, Faulted};
        matches!(self, Completed | Canceled | Faulted)
    }
}

/// How a job is, or was when it ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobSnapshot {
    /// Which job.
    pub id: JobId,
    /// Its label; empty, if it has none.
    pub label: String,
    /// What kind of job it is; empty, if nothing was said.
    pub kind: String,
    /// Where it runs.
    pub lane: Lane,
    /// How urgent it is.
    pub priority: Priority,
    /// What it is doing.
    pub state: TrackedState,
    /// How far it is, from 0 to 1; 1 when it has completed.
    pub progress: f32,
    /// Whether it ever said how far it is, or is done: if not, show that it is alive, not how far.
    pub determinate: bool,
    /// The last payload that it gave out, if that was text.
    pub status: Option<String>,
    /// When any of this changed last.
    pub updated: Instant,
}

/// All tracked jobs at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TrackerView {
    /// Live jobs and those that ended in the last 10 seconds, in the order of their ids, which is about that in which they
    /// were scheduled.
    pub jobs: Vec<JobSnapshot>,
    /// How many jobs were never shown, or no longer shown, because there were too many.
    pub omitted: u64,
}

/// Shows a manager's jobs. See [`JobManager::tracker`](crate::JobManager::tracker).
#[derive(Clone)]
pub struct Tracker {
    look: Arc<dyn Fn() -> TrackerView + Send + Sync>,
}

impl Tracker {
    pub(crate) fn new(look: impl Fn() -> TrackerView + Send + Sync + 'static) -> Tracker {
        Tracker {
            look: Arc::new(look),
        }
    }

    /// All live jobs and those that ended in the last 10 seconds.
    ///
    /// ```
    /// # use jobtree_lanes::{JobManager, LaneJob, TrackedState};
    /// let manager = JobManager::builder().build()?;
    /// let tracker = manager.tracker();
    /// let handle = manager.schedule(LaneJob::action(|| Ok(())).label("hello"));
    /// handle.wait()?;
    /// let view = tracker.view();
    /// assert_eq!(view.jobs[0].label, "hello");
    /// assert_eq!(view.jobs[0].progress, 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn view(&self) -> TrackerView {
        (self.look)()
    }
}

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracker").finish_non_exhaustive()
    }
}

/// What the table holds of a live job: something that knows how it is. It is asked under the table's lock, so that it must
/// not enter or end a job.
pub(crate) trait Tracked {
    /// How it is now.
    fn snapshot(&self) -> JobSnapshot;

    /// Whether it has ended: cheap.
    fn is_ended(&self) -> bool;
}

/// A manager's tracked jobs: see the module's head.
pub(crate) struct Tracking<H> {
    is_on: AtomicBool,
    table: Mutex<Table<H>>,
}

struct Table<H> {
    live: BTreeMap<JobId, H>,
    /// In the order in which they ended.
    ended: VecDeque<(Moment, JobSnapshot)>,
    omitted: u64,
    /// How many live jobs make it worth while to look for ended ones among them.
    look_at: usize,
}

impl<H: Tracked> Tracking<H> {
    pub(crate) fn new() -> Tracking<H> {
        Tracking {
            is_on: AtomicBool::new(false),
            table: Mutex::new(Table {
                live: BTreeMap::new(),
                ended: VecDeque::new(),
                omitted: 0,
                look_at: MOST_LIVE,
            }),
        }
    }

    /// Has jobs be entered from now on.
    pub(crate) fn switch_on(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Whether jobs are to be entered.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Enters a live job; to be called once for each, if [`is_on`](Tracking::is_on), and best before it can end. Whether
    /// it was entered: only then its end has to be told.
    pub(crate) fn enter(&self, id: JobId, job: H, now: Moment) -> bool {
        let mut ended = Vec::new();
        let mut table = self.table();
        if table.live.len() >= table.look_at {
            ended = table.retire_ended(now);
            // As many have to come as stayed, or half of what fits: so that each pays for a constant part of the look.
            table.look_at = (table.live.len() * 2).clamp(MOST_LIVE / 2, MOST_LIVE);
        }
        let fits = table.live.len() < MOST_LIVE;
        let replaced = if fits {
            table.live.insert(id, job)
        } else {
            table.omitted += 1;
            Some(job)
        };
        drop(table);
        // A header may be the last of its job: nothing of users' is dropped under the lock.
        drop((ended, replaced));
        fits
    }

    /// A job has ended; if it was entered, its last state is kept for a while.
    pub(crate) fn end(&self, id: JobId, now: Moment) {
        let mut table = self.table();
        let job = table.live.remove(&id);
        if let Some(job) = &job {
            table.keep(job.snapshot(), now);
        }
        drop(table);
        drop(job);
    }

    /// All that are live, and that ended a short while ago.
    pub(crate) fn view(&self, now: Moment) -> TrackerView {
        let mut table = self.table();
        let gone = table.retire_ended(now);
        table.forget_old(now);
        let live = table.live.values().map(Tracked::snapshot);
        let ended = table.ended.iter().map(|(_, snapshot)| snapshot.clone());
        let mut jobs: Vec<JobSnapshot> = live.chain(ended).collect();
        let omitted = table.omitted;
        drop(table);
        drop(gone);
        jobs.sort_by_key(|job| job.id);
        TrackerView { jobs, omitted }
    }

    /// Lets go of everything and enters nothing more: the manager is gone.
    pub(crate) fn close(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        let live = mem::take(&mut self.table().live);
        drop(live);
    }

    fn table(&self) -> MutexGuard<'_, Table<H>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: Tracked> Table<H> {
    /// Moves those that have ended without anybody telling to the ended ones; gives their headers for dropping.
    fn retire_ended(&mut self, now: Moment) -> Vec<H> {
        let ended: Vec<H> = self
            .live
            .extract_if(.., |_, job| job.is_ended())
            .map(|(_, job)| job)
            .collect();
        for job in &ended {
            self.keep(job.snapshot(), now);
        }
        ended
    }

    fn keep(&mut self, snapshot: JobSnapshot, now: Moment) {
        self.forget_old(now);
        if self.ended.len() == MOST_ENDED {
            self.ended.pop_front();
            self.omitted += 1;
        }
        self.ended.push_back((now, snapshot));
    }

    fn forget_old(&mut self, now: Moment) {
        while let Some((ended, _)) = self.ended.front()
            && now.since(*ended) > KEPT
        {
            self.ended.pop_front();
        }
        if self.ended.is_empty() && self.ended.capacity() > 64 {
            self.ended = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests;
