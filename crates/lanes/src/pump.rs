//! Emptying a lane on a thread of the program's own.
//!
//! A pump runs what was queued when it began, each job once: what comes meanwhile, or comes back, is for the next one. It
//! stops early when its time is over or it has run as many jobs as it may.
//!
//! A lane is pumped by one thread for ever, the one that was bound to it or pumped it first, and never from inside of a
//! pump. The lane of the workers has no thread and can be pumped by any, a bounded number of times on one stack (`nesting.rs`).

use std::error::Error;
use std::fmt;
use std::sync::atomic::Ordering;
use std::thread::{self, ThreadId};
use std::time::Duration;

use jobtree_runtime::Job;

use crate::cells::{LaneCell, LaneRef};
use crate::header::JobTurn;
use crate::lane::Lane;
use crate::lock::lock;
use crate::nesting::NestedPump;
use crate::notes::label_of;
use crate::notices::{SLOW, STALLED};
use crate::queue::Picked;
use crate::shared::Shared;

/// The time for a pump in each frame, if nothing else is said.
const FRAME_TIME: Duration = Duration::from_millis(4);

/// When a pump ends although there is more to run.
///
/// ```
/// use std::time::Duration;
/// use jobtree_lanes::PumpLimit;
///
/// assert_eq!(PumpLimit::default(), PumpLimit::time(Duration::from_millis(4)));
/// let both = PumpLimit::jobs(100).and_time(Duration::from_millis(1));
/// # let _ = both;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PumpLimit {
    jobs: Option<usize>,
    time: Option<Duration>,
}

impl PumpLimit {
    /// After so many jobs.
    pub const fn jobs(count: usize) -> PumpLimit {
        PumpLimit {
            jobs: Some(count),
            time: None,
        }
    }

    /// After so long: no job is begun after it.
    pub const fn time(limit: Duration) -> PumpLimit {
        PumpLimit {
            jobs: None,
            time: Some(limit),
        }
    }

    /// Not before all has run that was queued when it began.
    pub const fn unlimited() -> PumpLimit {
        PumpLimit {
            jobs: None,
            time: None,
        }
    }

    /// And after so many jobs.
    pub const fn and_jobs(mut self, count: usize) -> PumpLimit {
        self.jobs = Some(count);
        self
    }

    /// And after so long.
    pub const fn and_time(mut self, limit: Duration) -> PumpLimit {
        self.time = Some(limit);
        self
    }
}

impl Default for PumpLimit {
    /// 4 ms: what a frame can spare.
    fn default() -> PumpLimit {
        PumpLimit::time(FRAME_TIME)
    }
}

/// What a pump did.
///
/// ```
/// use jobtree_lanes::{JobManager, Lane, LaneJob, Next, PumpLimit};
///
/// let manager = JobManager::builder().build()?;
/// drop(manager.schedule(LaneJob::action(|| Ok(())).lane(Lane::Main)));
/// drop(manager.schedule(LaneJob::coroutine(|_| Ok(Next::<()>::NextDispatch)).lane(Lane::Main)));
/// let report = manager.pump(&Lane::Main, PumpLimit::unlimited())?;
/// assert_eq!((report.ran, report.ended, report.left), (2, 1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PumpReport {
    /// Jobs that had a dispatch.
    pub ran: usize,
    /// Those of them that do not come back by themselves: they have ended, or wait for something.
    pub ended: usize,
    /// Jobs that are queued now.
    pub left: usize,
    /// Jobs whose dispatch took 1 ms or more.
    pub slow: Vec<SlowJob>,
    /// How long it took.
    pub took: Duration,
}

/// A job that kept its thread for long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowJob {
    /// What it is called; empty if it has no label.
    pub label: String,
    /// What sort of job it is.
    pub kind: String,
    /// How long its dispatch took.
    pub took: Duration,
    /// Whether that was 250 ms or more.
    pub stalled: bool,
}

/// Why a lane cannot be pumped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PumpError {
    /// Another thread pumps this lane.
    WrongThread {
        /// Which lane.
        lane: Lane,
        /// The thread that it is bound to.
        bound: ThreadId,
    },
    /// A pump is under way on this thread: its jobs cannot pump.
    Nested,
    /// As many pumps as may nest are under way on the calling stack, each run by a job or callback of the one below.
    TooDeep {
        /// How many.
        pumps: usize,
    },
    /// The lane is emptied by the manager itself.
    NotPumped(Lane),
}

impl fmt::Display for PumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PumpError::WrongThread { lane, bound } => write!(
                f,
                "the lane `{lane}` belongs to another thread ({bound:?}); pump it there, or use a lane of another name"
            ),
            PumpError::Nested => f.write_str(
                "a job that a pump runs cannot pump; await what it waits for, or let it go on in its next dispatch",
            ),
            PumpError::TooDeep { pumps } => write!(
                f,
                "{pumps} pumps run on top of each other on this stack, so that another one is refused; do not call `process` or \
                 `pump` in jobs and callbacks: await what they wait for, or let them go on in their next dispatch"
            ),
            PumpError::NotPumped(lane) => {
                write!(f, "the lane `{lane}` is emptied by the manager itself")
            }
        }
    }
}

impl Error for PumpError {}

impl Shared {
    /// Makes the calling thread the one that pumps `lane`.
    pub(crate) fn bind(&self, lane: &LaneRef) -> Result<(), PumpError> {
        let cell = self.cell(lane);
        if cell.visits.is_some() {
            return Err(PumpError::NotPumped(cell.lane.clone()));
        }
        let mut pumping = lock(&cell.pumping);
        let bound = *pumping.thread.get_or_insert(thread::current().id());
        if bound != thread::current().id() {
            let lane = cell.lane.clone();
            return Err(PumpError::WrongThread { lane, bound });
        }
        Ok(())
    }

    pub(crate) fn pump(&self, lane: &LaneRef, limit: PumpLimit) -> Result<PumpReport, PumpError> {
        if self.is_inside_pump() {
            return Err(PumpError::Nested);
        }
        self.bind(lane)?;
        let cell = self.cell(lane);
        let _under_way = UnderWay::new(cell)?;
        self.run_nested(cell, limit)
    }

    /// Runs what is queued in a lane, unless too many pumps are under way on the calling stack.
    pub(crate) fn run_nested(
        &self,
        cell: &LaneCell,
        limit: PumpLimit,
    ) -> Result<PumpReport, PumpError> {
        let _nested = NestedPump::enter()?;
        Ok(self.run_queued(cell, limit))
    }

    fn run_queued(&self, cell: &LaneCell, limit: PumpLimit) -> PumpReport {
        let mut report = PumpReport::default();
        let began = self.now();
        let mut now = began;
        let mark = cell.lock().mark();
        let mut comes_back: Option<JobTurn> = None;
        loop {
            let is_over = limit.jobs.is_some_and(|most| report.ran >= most)
                || limit.time.is_some_and(|most| now.since(began) >= most);
            let mut state = cell.lock();
            if let Some(turn) = comes_back.take() {
                if state.is_closed() {
                    drop(state);
                    drop(turn);
                    state = cell.lock();
                } else {
                    // Whether its bucket is too long is said when something new comes.
                    state.put(turn, now, None);
                }
            }
            let picked = match is_over {
                true => None,
                false => state.take(Some(&mark), now),
            };
            let Some(picked) = picked else {
                report.left = state.len();
                let to_post = cell.call_worker(&mut state);
                drop(state);
                cell.post(to_post);
                break;
            };
            drop(state);
            self.note_wait(cell, &picked, now);
            comes_back = self.run_one(cell, picked, &mut now, &mut report);
        }
        report.took = now.since(began);
        report
    }

    fn run_one(
        &self,
        cell: &LaneCell,
        picked: Picked<JobTurn>,
        now: &mut crate::moment::Moment,
        report: &mut PumpReport,
    ) -> Option<JobTurn> {
        let turn = picked.job;
        // Few have a name of their own; only those are needed after their end.
        let named = turn.has_name().then(|| turn.header());
        let kind = turn.static_kind();
        cell.pumped.store(turn.id().as_u64(), Ordering::Relaxed);
        let comes_back = self.dispatch(turn);
        cell.pumped.store(0, Ordering::Relaxed);
        let began = std::mem::replace(now, self.now());
        let took = now.since(began);
        report.ran += 1;
        report.ended += usize::from(comes_back.is_none());
        if took >= SLOW {
            let label = named.as_ref().map(label_of).unwrap_or_default();
            let kind = named.as_ref().map_or(kind, |header| header.kind());
            self.notices.pumped(&label, kind, &cell.lane, took, *now);
            report.slow.push(SlowJob {
                label,
                kind: kind.to_owned(),
                took,
                stalled: took >= STALLED,
            });
        }
        comes_back
    }

    /// Whether the calling code is part of a job that some pump runs.
    fn is_inside_pump(&self) -> bool {
        let mut above = Job::current();
        if above.is_none() {
            return false;
        }
        let frames = self.frames.read().unwrap_or_else(|e| e.into_inner());
        let running: Vec<_> = frames
            .iter()
            .map(|frame| &**frame)
            .chain([&self.main])
            .map(|cell| cell.pumped.load(Ordering::Relaxed))
            .collect();
        drop(frames);
        while let Some(job) = above {
            if running.contains(&job.id().as_u64()) {
                return true;
            }
            above = job.parent();
        }
        false
    }
}

impl LaneCell {
    /// Whether the calling thread is the one that pumps the lane, and does so just now.
    pub(crate) fn pumps_here(&self) -> bool {
        let pumping = lock(&self.pumping);
        pumping.is_under_way && pumping.thread == Some(thread::current().id())
    }
}

/// A pump, until it is dropped.
struct UnderWay<'a>(&'a LaneCell);

impl<'a> UnderWay<'a> {
    fn new(cell: &'a LaneCell) -> Result<UnderWay<'a>, PumpError> {
        let mut pumping = lock(&cell.pumping);
        if std::mem::replace(&mut pumping.is_under_way, true) {
            return Err(PumpError::Nested);
        }
        Ok(UnderWay(cell))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut pumping = lock(&self.0.pumping);
        pumping.is_under_way = false;
        self.0.pumped.store(0, Ordering::Relaxed);
    }
}
