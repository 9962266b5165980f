//! A lease that this worker holds, and until when it may believe so.
//!
//! The fence. A renewal that the scheduler has granted holds for the TTL from when it was granted, which was after it was
//! *asked* for. So `asked + TTL` by this worker's clock is a moment at which the lease surely still held if it was
//! renewed, and may have ended if not. A margin before that moment the worker stops its job by itself, whether or
//! not anybody answers: then nobody else runs it yet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::time::Duration;

use jobtree_protocol::{
    Advice, COMPLETION_GRACE, Heartbeat, HeartbeatAnswer, InHand, JobId, JobView, LeaseId,
    Progress, Usage,
};
use jobtree_runtime::{CancelReason, Job};

use crate::batch::Batch;
use crate::handler::Run;
use crate::outbox::{Begins, Outbox};
use crate::planted::{Bug, Planted};
use crate::reply::{Promise, Reply, promise};

/// What is told of progress is passed on this often at most.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// Why a job goes back that was asked to yield.
pub(crate) const YIELDED: &str = "asked to yield: its node is overloaded";

pub(crate) struct Held {
    pub(crate) lease: LeaseId,
    /// What is to be told of jobs that ended.
    pub(crate) outbox: Outbox,
    state: Mutex<State>,
    /// Rung when there is something to send.
    ring: Box<dyn Fn() + Send + Sync>,
}

struct State {
    planted: Planted,
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
    /// Its jobs.
    batch: Batch,
    /// The run of the one in hand.
    current: Option<Current>,
    /// The usage of that run, as its handler reported it.
    usage: Option<Usage>,
    /// Jobs that somebody wants stopped.
    wanted_stopped: Vec<JobId>,
    advice: Advice,
    /// The run in hand is to stand still.
    paused: bool,
    progress: Option<(JobId, Progress)>,
    /// Who waits until all of it is told, which then goes at once.
    telling_all: Option<Promise<()>>,
    /// The waiter for the answer to a renewal.
    confirming: Option<Promise<()>>,
    lost: Option<String>,
}

/// The job that runs.
struct Current {
    run: Run,
    tree: Job,
    /// When the run is stopped, since it was asked to yield and its handler can.
    yield_at: Option<Duration>,
    /// The run was stopped so.
    has_yielded: bool,
    /// The run stands still, as its handler said.
    stands_still: bool,
}

impl Held {
    /// A lease that was granted at `granted` or later, by the worker's own clock.
    pub(crate) fn new(
        lease: LeaseId,
        ttl: Duration,
        granted: Duration,
        batch: Batch,
        planted: Planted,
        ring: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            planted,
            ttl,
            asked: granted,
            beat_at: granted + ttl / 3,
            in_flight: false,
            telling: None,
            not_before: Duration::ZERO,
            hurried: false,
            batch,
            current: None,
            usage: None,
            wanted_stopped: Vec::new(),
            advice: Advice::Continue,
            paused: false,
            progress: None,
            telling_all: None,
            confirming: None,
            lost: None,
        };
        Held {
            lease,
            outbox: Outbox::new(lease, planted),
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

    /// Returns `true` if the run in hand is to stand still.
    pub(crate) fn is_paused(&self) -> bool {
        self.lock().paused
    }

    /// The run in hand stands still, or no longer. If that is what was asked for, it is told at once.
    pub(crate) fn stands_still(&self, still: bool) {
        let news = {
            let mut state = self.lock();
            let asked = state.paused;
            let Some(current) = &mut state.current else {
                return;
            };
            let was = std::mem::replace(&mut current.stands_still, still);
            let news = still && !was && asked;
            state.hurried |= news;
            news
        };
        if news {
            (self.ring)();
        }
    }

    /// Why the lease is lost, if it is.
    pub(crate) fn lost(&self) -> Option<String> {
        self.lock().lost.clone()
    }

    pub(crate) fn is_wanted_stopped(&self, job: JobId) -> bool {
        self.lock().wanted_stopped.contains(&job)
    }

    /// Takes the next job in hand, if there is one that was not given back.
    pub(crate) fn take(&self, now: Duration, short: bool) -> Option<JobView> {
        self.lock().batch.take(now, short)
    }

    /// Whether a job has not begun.
    pub(crate) fn has_waiting(&self) -> bool {
        self.lock().batch.has_waiting()
    }

    /// Whether jobs were given back and nobody answered to that yet.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.lock().batch.is_unconfirmed()
    }

    /// The job in hand has ended: when it began, if that is to be told.
    pub(crate) fn ended(&self) -> Option<Duration> {
        let batch = &mut self.lock().batch;
        batch.ended().filter(|_| batch.reports())
    }

    /// Keeps what the run of the job in hand used.
    pub(crate) fn put_usage(&self, usage: Usage) {
        self.lock().usage = Some(usage);
    }

    /// Takes what the run of the job that was in hand used.
    pub(crate) fn take_usage(&self) -> Option<Usage> {
        self.lock().usage.take()
    }

    /// A run begins. Whatever was found out meanwhile reaches it at once. If its time is limited, its scheduler ends it
    /// then, which is to be heard then and not a third of the TTL later; and that it began is told at once.
    pub(crate) fn begin(&self, run: Run, tree: Job, now: Duration) {
        let limit = run.job().max_runtime_sec.map(u64::from);
        let limit = limit.map(Duration::from_secs);
        let (stop, asked_to_yield) = {
            let mut state = self.lock();
            let stop = state.stop_reason(run.id());
            state.current = Some(Current {
                run,
                tree: tree.clone(),
                yield_at: None,
                has_yielded: false,
                stands_still: false,
            });
            if let Some(limit) = limit {
                let grace = match state.batch.reports() {
                    true => COMPLETION_GRACE,
                    false => Duration::ZERO,
                };
                let over = now + limit + grace + PROGRESS_EVERY;
                state.beat_at = state.beat_at.min(over);
            }
            (stop, state.advice == Advice::Yield)
        };
        if let Some(reason) = stop {
            tree.cancel(reason);
        }
        if limit.is_some() || asked_to_yield {
            (self.ring)();
        }
    }

    /// The run has ended. What it told and could not be passed on is of no use any more.
    pub(crate) fn end(&self) {
        let ended = {
            let mut state = self.lock();
            state.progress = None;
            (state.current.take(), state.telling_all.take())
        };
        // Not under the lock: it may be the last handle.
        drop(ended);
    }

    /// The run that is on.
    pub(crate) fn run(&self) -> Option<Run> {
        let state = self.lock();
        state.current.as_ref().map(|current| current.run.clone())
    }

    /// There is something to be sent.
    pub(crate) fn ring(&self) {
        (self.ring)();
    }

    pub(crate) fn tell(&self, job: JobId, progress: Progress) {
        let waiting = self.lock().progress.replace((job, progress)).is_some();
        if !waiting {
            (self.ring)();
        }
    }

    /// Ready when what was told of progress was passed on; nothing if it is already. To be rung for.
    pub(crate) fn tell_all(&self) -> Option<Reply<()>> {
        let mut state = self.lock();
        if state.is_all_told() || state.lost.is_some() {
            return None;
        }
        let (told, promised) = promise();
        state.telling_all = Some(told);
        Some(Reply::new(promised))
    }

    /// Ready when a renewal, which goes at once, was answered or the lease is lost.
    pub(crate) fn confirm(&self) -> Reply<()> {
        let (confirmed, promised) = promise();
        let broken = {
            let mut state = self.lock();
            state.hurried = true;
            match state.lost {
                None => state.confirming.replace(confirmed),
                Some(_) => Some(confirmed),
            }
        };
        // Not under the lock: it wakes the waiting job.
        drop(broken);
        (self.ring)();
        Reply::new(promised)
    }

    /// Somebody changed the lease: ask at once.
    pub(crate) fn hurry(&self) {
        self.lock().hurried = true;
        (self.ring)();
    }

    /// The lease is gone: nothing that was done under it counts any more, so it stops.
    pub(crate) fn lose(&self, why: &str) {
        let (job, waiting) = {
            let mut state = self.lock();
            if state.lost.is_some() {
                return;
            }
            state.lost = Some(why.to_owned());
            let current = state.current.as_ref();
            let job = current.map(|current| (current.tree.clone(), current.run.clone()));
            (job, (state.telling_all.take(), state.confirming.take()))
        };
        // There is nobody to tell.
        drop(waiting);
        self.outbox.lose();
        if let Some((job, run)) = job {
            run.give_up_log();
            job.cancel(CancelReason::from(format!("the lease is lost: {why}")));
        }
    }

    /// The heartbeat to send now, if one is due, or may go early; it is then in flight.
    pub(crate) fn due(&self, now: Duration, early: bool) -> Option<Heartbeat> {
        let mut state = self.lock();
        let told = state.news_at().is_some_and(|at| now >= at);
        let due = early || told || state.hurried || now >= state.beat_at;
        let held_off = state.in_flight || now < state.not_before || state.never_renews();
        if held_off || state.lost.is_some() || !due {
            return None;
        }
        state.in_flight = true;
        state.hurried = false;
        let telling = state.progress.take();
        state.telling.clone_from(&telling);
        let (told_of, progress) = telling.unzip();
        let in_hand = state.batch.in_hand(now).map(|it| it.job_id);
        let job_id = told_of.or(in_hand);
        let (began_ms_ago, given_back) = state.batch.beat(job_id, now);
        Some(Heartbeat {
            job_id,
            progress,
            began_ms_ago,
            given_back,
            paused: state.paused && state.current.as_ref().is_some_and(|it| it.stands_still),
            ..Heartbeat::of(self.lease)
        })
    }

    /// Stops the run if the fence is here, or if it was asked to yield and has used up its grace.
    pub(crate) fn watch(&self, now: Duration) {
        let (overdue, yields) = {
            let mut state = self.lock();
            let overdue = now >= state.fence() && state.lost.is_none();
            (overdue, state.yields(now))
        };
        if overdue {
            self.lose("it could not be renewed in time");
        }
        if let Some(job) = yields {
            job.cancel(CancelReason::from(YIELDED));
        }
    }

    /// Returns `true` if the run that is on was stopped since it was asked to yield.
    pub(crate) fn has_yielded(&self) -> bool {
        let state = self.lock();
        state.current.as_ref().is_some_and(|it| it.has_yielded)
    }

    /// When something is to be done again.
    pub(crate) fn next(&self) -> Option<Duration> {
        let state = self.lock();
        if state.lost.is_some() {
            return None;
        }
        let beat = match (state.in_flight, state.news_at()) {
            (true, _) => Duration::MAX,
            _ if state.never_renews() => Duration::MAX,
            (false, _) if state.hurried => Duration::ZERO,
            (false, None) => state.beat_at,
            (false, Some(at)) => state.beat_at.min(at),
        };
        let own = state.yield_next().unwrap_or(Duration::MAX);
        Some(beat.max(state.not_before).min(state.fence()).min(own))
    }

    /// The heartbeat that was sent at `asked` was answered at `now`.
    pub(crate) fn renewed(&self, asked: Duration, now: Duration, answer: &HeartbeatAnswer) {
        let (stop, waiting) = {
            let mut state = self.lock();
            let asked = match state.planted.has(Bug::CountsFromAnswer) {
                true => now,
                false => asked,
            };
            state.in_flight = false;
            state.telling = None;
            state.ttl = Duration::from_secs(answer.ttl_sec.into());
            state.asked = asked;
            state.beat_at = asked + state.ttl / 3;
            state.advice = answer.advice;
            state.paused = answer.paused;
            state.wanted_stopped.clone_from(&answer.cancel);
            state.batch.beaten(true);
            // Another worker waits for what goes back: it is confirmed at once.
            state.hurried |= state.batch.give_back(&answer.give_back);
            let current = state.current.as_ref();
            let stop = current.and_then(|current| {
                let reason = state.stop_reason(current.run.id())?;
                Some((current.tree.clone(), reason))
            });
            (stop, [state.told_all(), state.confirming.take()])
        };
        waiting.into_iter().for_each(keep);
        if let Some((job, reason)) = stop {
            job.cancel(reason);
        }
    }

    /// The heartbeat was not answered: soon again, and what it told, unless there is newer.
    pub(crate) fn unanswered(&self, now: Duration) {
        let mut state = self.lock();
        let untold = state.telling.take();
        state.progress = state.progress.take().or(untold);
        state.batch.beaten(false);
        state.ask_again(now);
    }

    /// The heartbeat was refused for what it told: soon again, without that.
    pub(crate) fn untellable(&self, now: Duration) {
        let told = {
            let mut state = self.lock();
            state.telling = None;
            state.batch.beaten(false);
            state.ask_again(now);
            state.told_all()
        };
        keep(told);
    }
}

impl Begins for Held {
    fn tell_begin(&self, now: Duration) -> Option<InHand> {
        self.lock().batch.tell_begin(now)
    }

    fn begin_told(&self, job: JobId, answered: bool) {
        self.lock().batch.begin_told(job, answered);
    }
}

/// Whoever is woken by an answer to the outbox.
impl Wake for Held {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.outbox.ring() {
            (self.ring)();
        }
    }
}

/// All is told. Not under the lock: it wakes somebody.
fn keep(told: Option<Promise<()>>) {
    if let Some(told) = told {
        // Whoever waited may have gone.
        let _ = told.keep(Ok(()));
    }
}

impl State {
    /// When progress is to be passed on, if there is any.
    fn progress_at(&self) -> Option<Duration> {
        self.progress.as_ref()?;
        Some(match self.telling_all {
            Some(_) => Duration::ZERO,
            None => self.asked + PROGRESS_EVERY,
        })
    }

    /// When something is to be told before the lease has to be renewed, if there is anything.
    fn news_at(&self) -> Option<Duration> {
        let told = [self.progress_at(), self.batch.tell_at()];
        told.into_iter().flatten().min()
    }

    fn is_all_told(&self) -> bool {
        self.progress.is_none() && self.telling.is_none()
    }

    /// Who waited for it, if all is told.
    fn told_all(&mut self) -> Option<Promise<()>> {
        self.is_all_told().then(|| self.telling_all.take())?
    }

    /// The tree of the run, if it is to be stopped now since it was asked to yield. Its grace begins here.
    fn yields(&mut self, now: Duration) -> Option<Job> {
        let current = self.current.as_mut()?;
        match self.advice {
            Advice::Yield => {}
            // Says nothing of the load.
            Advice::Cancel => return None,
            _ => {
                current.yield_at = None;
                return None;
            }
        }
        let grace = current.run.yield_grace()?;
        let at = *current.yield_at.get_or_insert(now.saturating_add(grace));
        if current.has_yielded || now < at {
            return None;
        }
        current.has_yielded = true;
        Some(current.tree.clone())
    }

    /// When [`State::yields`] is to be called again, if it is.
    fn yield_next(&self) -> Option<Duration> {
        let current = self.current.as_ref()?;
        current.run.yield_grace()?;
        let asked = self.advice == Advice::Yield && !current.has_yielded;
        asked.then(|| current.yield_at.unwrap_or(Duration::ZERO))
    }

    fn ask_again(&mut self, now: Duration) {
        self.in_flight = false;
        self.beat_at = now + (self.ttl / 30).min(Duration::from_secs(1));
        self.not_before = self.beat_at;
    }

    /// By a planted mistake.
    fn never_renews(&self) -> bool {
        self.planted.has(Bug::NoHeartbeats) && self.current.is_some()
    }

    /// A sixth of the TTL is left for the job to stop in.
    fn fence(&self) -> Duration {
        if self.planted.has(Bug::NoFence) {
            return Duration::MAX;
        }
        self.asked + self.ttl - self.ttl / 6
    }

    fn stop_reason(&self, job: JobId) -> Option<CancelReason> {
        if let Some(why) = &self.lost {
            return Some(CancelReason::from(format!("the lease is lost: {why}")));
        }
        let wanted = self.wanted_stopped.contains(&job);
        wanted.then(|| CancelReason::from("the job was canceled"))
    }
}
