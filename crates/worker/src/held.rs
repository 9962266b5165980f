//! A lease that this worker holds, and until when it may believe so.
//!
//! The fence. A renewal that the scheduler has granted holds for the TTL from when it was granted, which was after it was
//! *asked* for. So `asked + TTL` by this worker's clock is a moment at which the lease surely still held if it was
//! renewed, and may have ended if not. A margin before that moment the worker stops its job by itself, whether or
//! not anybody answers: then nobody else runs it yet.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jobtree_protocol::{Advice, Heartbeat, HeartbeatAnswer, JobId, LeaseId, Progress};
use jobtree_runtime::{CancelReason, Job};

/// What is told of progress is passed on this often at most.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

pub(crate) struct Held {
    pub(crate) lease: LeaseId,
    state: Mutex<State>,
    /// Rung when there is something to send.
    ring: Box<dyn Fn() + Send + Sync>,
}

struct State {
    ttl: Duration,
    /// When the renewal was asked for that holds.
    asked: Duration,
    /// When the next one is to be asked for.
    beat_at: Duration,
    in_flight: bool,
    /// What it told of progress: told again if it is not answered.
    telling: Option<(JobId, Progress)>,
    /// Nothing is asked before this: the last one was not answered.
    not_before: Duration,
    /// Something happened since the last one was sent: the next goes at once.
    hurried: bool,
    current: Option<Current>,
    /// Jobs that somebody wants stopped.
    wanted_stopped: Vec<JobId>,
    advice: Advice,
    progress: Option<(JobId, Progress)>,
    lost: Option<String>,
}

/// The job that runs.
struct Current {
    id: JobId,
    tree: Job,
}

impl Held {
    /// A lease that was granted at `granted` or later, by the worker's own clock.
    pub(crate) fn new(
        lease: LeaseId,
        ttl: Duration,
        granted: Duration,
        ring: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            ttl,
            asked: granted,
            beat_at: granted + ttl / 3,
            in_flight: false,
            telling: None,
            not_before: Duration::ZERO,
            hurried: false,
            current: None,
            wanted_stopped: Vec::new(),
            advice: Advice::Continue,
            progress: None,
            lost: None,
        };
        Held {
            lease,
            state: Mutex::new(state),
            ring: Box::new(ring),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn advice(&self) -> Advice {
        self.lock().advice
    }

    /// Why the lease is lost, if it is.
    pub(crate) fn lost(&self) -> Option<String> {
        self.lock().lost.clone()
    }

    pub(crate) fn is_wanted_stopped(&self, job: JobId) -> bool {
        self.lock().wanted_stopped.contains(&job)
    }

    /// A job begins. Whatever was found out meanwhile reaches it at once. After `limit` its scheduler ends it, which is to
    /// be heard then and not a third of the TTL later.
    pub(crate) fn begin(&self, id: JobId, tree: Job, now: Duration, limit: Option<Duration>) {
        let stop = {
            let mut state = self.lock();
            let stop = state.stop_reason(id);
            state.current = Some(Current {
                id,
                tree: tree.clone(),
            });
            if let Some(limit) = limit {
                state.beat_at = state.beat_at.min(now + limit + PROGRESS_EVERY);
            }
            stop
        };
        if let Some(reason) = stop {
            tree.cancel(reason);
        }
        if limit.is_some() {
            (self.ring)();
        }
    }

    /// The job has ended.
    pub(crate) fn end(&self) {
        self.lock().current = None;
    }

    pub(crate) fn tell(&self, job: JobId, progress: Progress) {
        let waiting = self.lock().progress.replace((job, progress)).is_some();
        if !waiting {
            (self.ring)();
        }
    }

    /// Somebody changed the lease: ask at once.
    pub(crate) fn hurry(&self) {
        self.lock().hurried = true;
        (self.ring)();
    }

    /// The lease is gone: nothing that was done under it counts any more, so it stops.
    pub(crate) fn lose(&self, why: &str) {
        let job = {
            let mut state = self.lock();
            if state.lost.is_some() {
                return;
            }
            state.lost = Some(why.to_owned());
            state.current.as_ref().map(|current| current.tree.clone())
        };
        if let Some(job) = job {
            job.cancel(CancelReason::from(format!("the lease is lost: {why}")));
        }
    }

    /// The heartbeat to send now, if one is due; it is then in flight.
    pub(crate) fn due(&self, now: Duration) -> Option<Heartbeat> {
        let mut state = self.lock();
        let told = state.progress.is_some() && now >= state.asked + PROGRESS_EVERY;
        let due = told || state.hurried || now >= state.beat_at;
        let held_off = state.in_flight || now < state.not_before;
        if held_off || state.lost.is_some() || !due {
            return None;
        }
        state.in_flight = true;
        state.hurried = false;
        let telling = state.progress.take();
        state.telling.clone_from(&telling);
        let (told_of, progress) = telling.unzip();
        let current = state.current.as_ref().map(|current| current.id);
        Some(Heartbeat {
            job_id: told_of.or(current),
            progress,
            ..Heartbeat::of(self.lease)
        })
    }

    /// The fence is here: stop by one's own clock.
    pub(crate) fn watch(&self, now: Duration) {
        let overdue = {
            let state = self.lock();
            now >= state.fence() && state.lost.is_none()
        };
        if overdue {
            self.lose("it could not be renewed in time");
        }
    }

    /// When something is to be done again.
    pub(crate) fn next(&self) -> Option<Duration> {
        let state = self.lock();
        if state.lost.is_some() {
            return None;
        }
        let beat = match (state.in_flight, &state.progress) {
            (true, _) => Duration::MAX,
            (false, _) if state.hurried => Duration::ZERO,
            (false, None) => state.beat_at,
            (false, Some(_)) => state.beat_at.min(state.asked + PROGRESS_EVERY),
        };
        Some(beat.max(state.not_before).min(state.fence()))
    }

    /// The heartbeat that was sent at `asked` was answered.
    pub(crate) fn renewed(&self, asked: Duration, answer: &HeartbeatAnswer) {
        let stop = {
            let mut state = self.lock();
            state.in_flight = false;
            state.telling = None;
            state.ttl = Duration::from_secs(answer.ttl_sec.into());
            state.asked = asked;
            state.beat_at = asked + state.ttl / 3;
            state.advice = answer.advice;
            state.wanted_stopped.clone_from(&answer.cancel);
            let current = state.current.as_ref();
            current.and_then(|current| {
                let reason = state.stop_reason(current.id)?;
                Some((current.tree.clone(), reason))
            })
        };
        if let Some((job, reason)) = stop {
            job.cancel(reason);
        }
    }

    /// The heartbeat was not answered: soon again, and what it told, unless there is newer.
    pub(crate) fn unanswered(&self, now: Duration) {
        let mut state = self.lock();
        state.in_flight = false;
        let untold = state.telling.take();
        state.progress = state.progress.take().or(untold);
        state.beat_at = now + (state.ttl / 30).min(Duration::from_secs(1));
        state.not_before = state.beat_at;
    }
}

impl State {
    /// A sixth of the TTL is left for the job to stop in.
    fn fence(&self) -> Duration {
        self.asked + self.ttl - self.ttl / 6
    }

    fn stop_reason(&self, job: JobId) -> Option<CancelReason> {
        if let Some(why) = &self.lost {
            return Some(CancelReason::from(format!("the lease is lost: {why}")));
        }
        let wanted = self.wanted_stopped.contains(&job);
        wanted.then(|| CancelReason::from("somebody canceled the job"))
    }
}
