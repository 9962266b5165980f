//! Completions of one lease on their way.
//!
//! One request is under way at a time, and what ends meanwhile goes together in the next: an idle worker answers for a job
//! at once, and a busy one shares commits without anybody waiting for it. The requests are moved on by whoever is there:
//! the lease's own job when it has something new, or waits for the last; else the thread of the heartbeats, which is
//! rung when an answer is there.
//!
//! A completion tells when its run began and ended, as distances from its sending: so the times are kept here until then.
//! With it goes the begin of the job that was taken in hand meanwhile.
//!
//! Nobody may hold the lock while the grantor is called or a reply polled: either may call back.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jobtree_base::user_code::wake_user;
use jobtree_protocol::{
    ApiError, CompleteManyAnswer, CompleteManyRequest, CompleteOne, CompleteStatus, Each,
    ErrorCode, InHand, JobId, LeaseId,
};

use crate::batch::millis;
use crate::grantor::Grantor;
use crate::planted::{Bug, Planted};
use crate::reply::Reply;

/// Completions in one request.
const MOST_AT_ONCE: usize = 500;
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A run that ended.
#[derive(Clone)]
pub(crate) struct EndedRun {
    /// The completion, without its times.
    pub(crate) told: CompleteOne,
    /// When it began and ended, if that is to be told.
    pub(crate) times: Option<(Duration, Duration)>,
}

/// The begins that go with completions.
pub(crate) trait Begins {
    /// The begin to tell now, if there is one.
    fn tell_begin(&self, now: Duration) -> Option<InHand>;

    /// The call that told it was answered, or was not.
    fn begin_told(&self, job: JobId, answered: bool);
}

/// What an outbox needs of its surroundings to be moved on.
pub(crate) struct Link<'a> {
    pub(crate) grantor: &'a dyn Grantor,
    /// Woken when an answer is there.
    pub(crate) waker: &'a Waker,
    /// Told what went wrong.
    pub(crate) note: &'a dyn Fn(&ApiError),
    pub(crate) begins: &'a dyn Begins,
}

pub(crate) struct Outbox {
    lease: LeaseId,
    planted: Planted,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    gathered: VecDeque<EndedRun>,
    flight: Option<Flight>,
    /// Somebody moves it on just now.
    moving: bool,
    /// Something happened meanwhile: move on once more.
    again: bool,
    not_before: Duration,
    pause: Option<Duration>,
    /// A request for many was refused as a whole: one of them may be to blame.
    one_by_one: bool,
    /// The lease is lost: what is said may still count, but it is said once.
    lost: bool,
    /// An answer is there, and nobody has looked.
    rung: bool,
    /// Who waits until all is answered for.
    settling: Option<Waker>,
}

struct Flight {
    jobs: Vec<EndedRun>,
    /// The job whose begin goes with it.
    begins: Option<JobId>,
    reply: Reply<CompleteManyAnswer>,
}

impl Outbox {
    pub(crate) fn new(lease: LeaseId, planted: Planted) -> Self {
        Outbox {
            lease,
            planted,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run ended. It is sent when somebody moves the box on.
    pub(crate) fn put(&self, ended: EndedRun) {
        self.lock().gathered.push_back(ended);
    }

    /// The lease is lost, as far as is known here. What was done is still told, since it may be known better there; but
    /// it is not told again.
    pub(crate) fn lose(&self) {
        self.lock().lost = true;
    }

    /// An answer is there. Whether nobody waits for it, so that somebody must be rung.
    pub(crate) fn ring(&self) -> bool {
        let settling = {
            let mut state = self.lock();
            state.rung = true;
            state.settling.take()
        };
        match settling {
            Some(settling) => {
                wake_user(settling);
                false
            }
            None => true,
        }
    }

    /// When it is to be moved on by somebody who only watches.
    pub(crate) fn next(&self) -> Option<Duration> {
        let state = self.lock();
        if state.rung {
            return Some(Duration::ZERO);
        }
        let waits = state.flight.is_none() && !state.moving && !state.gathered.is_empty();
        waits.then_some(state.not_before)
    }

    /// Looks at what was answered, and sends what is due.
    pub(crate) fn move_on(&self, link: &Link<'_>) {
        let mut state = self.lock();
        state.rung = false;
        if state.moving {
            state.again = true;
            return;
        }
        state.moving = true;
        loop {
            state.again = false;
            let flight = state.flight.take();
            drop(state);
            let flight = flight.and_then(|flight| self.look(flight, link));
            let flight = match flight {
                Some(flight) => Some((flight, false)),
                None => self.send(link).map(|flight| (flight, true)),
            };
            let (flight, new) = flight.unzip();
            state = self.lock();
            state.flight = flight;
            // A new one must be polled, so that its answer rings.
            if new != Some(true) && !state.again {
                break;
            }
        }
        state.moving = false;
        let settled = state.is_empty();
        let settling = if settled { state.settling.take() } else { None };
        drop(state);
        if let Some(settling) = settling {
            wake_user(settling);
        }
    }

    /// Ready when all is answered for. Moves on by itself.
    pub(crate) fn poll_settled(&self, context: &mut Context<'_>, link: &Link<'_>) -> Poll<()> {
        // Before the lock is taken: it may be the program's.
        let own = context.waker().clone();
        let before = self.lock().settling.replace(own);
        drop(before);
        self.move_on(link);
        let mut state = self.lock();
        if state.is_empty() {
            state.settling = None;
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn send(&self, link: &Link<'_>) -> Option<Flight> {
        let now = link.grantor.mono();
        let jobs: Vec<_> = {
            let mut state = self.lock();
            if now < state.not_before {
                return None;
            }
            let most = if state.one_by_one { 1 } else { MOST_AT_ONCE };
            let count = state.gathered.len().min(most);
            let jobs = state.gathered.drain(..count).collect();
            state.one_by_one &= !state.gathered.is_empty();
            jobs
        };
        if jobs.is_empty() {
            return None;
        }
        let in_hand = link.begins.tell_begin(now);
        let reply = link.grantor.complete_many(CompleteManyRequest {
            lease_id: self.lease,
            jobs: jobs.iter().map(|ended| ended.at(now)).collect(),
            in_hand,
        });
        let begins = in_hand.map(|it| it.job_id);
        Some(Flight {
            jobs,
            begins,
            reply,
        })
    }

    /// Polls a request that is under way; gives it back if it is not answered.
    fn look(&self, mut flight: Flight, link: &Link<'_>) -> Option<Flight> {
        let answer = Pin::new(&mut flight.reply).poll(&mut Context::from_waker(link.waker));
        if let (Some(job), Poll::Ready(answer)) = (flight.begins, &answer) {
            let took_effect = |each: &Each<_>| matches!(each, Each::Done(_));
            let answered = answer
                .as_ref()
                .is_ok_and(|answer| answer.jobs.iter().any(took_effect));
            link.begins.begin_told(job, answered);
        }
        let mut passing = false;
        let mut again = |job: EndedRun, error: &ApiError| {
            (link.note)(error);
            passing |= is_passing(error);
            again(job, error)
        };
        let again: Vec<_> = match answer {
            Poll::Pending => return Some(flight),
            Poll::Ready(Ok(answer)) => {
                let mut answers = answer.jobs.into_iter();
                let each = flight
                    .jobs
                    .into_iter()
                    .filter_map(|job| match answers.next() {
                        Some(Each::Refused { error }) => again(job, &error),
                        // One that was forgotten is asked for again: that is safe.
                        None => Some(job),
                        Some(Each::Done(_)) => None,
                    });
                each.collect()
            }
            Poll::Ready(Err(error)) if flight.jobs.len() > 1 && is_about_content(&error) => {
                self.lock().one_by_one = true;
                flight.jobs
            }
            Poll::Ready(Err(error)) => {
                let each = flight.jobs.into_iter();
                each.filter_map(|job| again(job, &error)).collect()
            }
        };
        let mut state = self.lock();
        let drops = self.planted.has(Bug::DropsUnanswered);
        if again.is_empty() || state.lost || drops {
            state.pause = None;
            return None;
        }
        if passing {
            let pause = state.pause.map_or(FIRST_PAUSE, |pause| pause * 2);
            let pause = pause.min(LONGEST_PAUSE);
            state.pause = Some(pause);
            state.not_before = link.grantor.mono() + pause;
        } else {
            // What is said now is something else.
            state.again = true;
        }
        for job in again.into_iter().rev() {
            state.gathered.push_front(job);
        }
        None
    }
}

impl EndedRun {
    /// As it is told by a call that is sent at `now`.
    fn at(&self, now: Duration) -> CompleteOne {
        let ago = |time: Duration| millis(now.saturating_sub(time));
        CompleteOne {
            began_ms_ago: self.times.map(|(began, _)| ago(began)),
            ended_ms_ago: self.times.map(|(_, ended)| ago(ended)),
            ..self.told.clone()
        }
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.flight.is_none() && self.gathered.is_empty() && !self.moving
    }
}

/// What to say instead, if saying something again may help: a completion that took effect may be repeated.
fn again(job: EndedRun, error: &ApiError) -> Option<EndedRun> {
    if is_passing(error) {
        return Some(job);
    }
    // A result that is too large, say: the job ran, but there is nothing to show for it.
    let result = is_about_content(error) && job.told.status == CompleteStatus::Done;
    result.then(|| EndedRun {
        told: CompleteOne {
            status: CompleteStatus::Failed,
            result: None,
            error: Some(format!("its result was refused: {}", error.message)),
            retry: false,
            ..job.told
        },
        ..job
    })
}

/// Returns `true` if the same call may succeed later.
pub(crate) fn is_passing(error: &ApiError) -> bool {
    matches!(
        error.code,
        ErrorCode::Unavailable | ErrorCode::NotNow | ErrorCode::TooMany
    )
}

fn is_about_content(error: &ApiError) -> bool {
    matches!(
        error.code,
        ErrorCode::Invalid | ErrorCode::Malformed | ErrorCode::TooLarge
    )
}
