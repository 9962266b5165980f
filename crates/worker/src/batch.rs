//! The jobs of one lease, as its worker has them: those that have not begun, the one in hand, and those that go back.
//!
//! Whether a job begins here or goes back is decided under one lock, once: a job that was given back is never begun, and one
//! that was begun is never given back. The scheduler hears of both in a later call, and again until it has answered.
//!
//! A begin is told at once if the scheduler times the run, with the completion before it or by a heartbeat; else a moment
//! later, since most short jobs have ended by then, and their completions tell both times. A scheduler that does not
//! know begins is told nothing of them.

use std::collections::VecDeque;
use std::time::Duration;

use jobtree_protocol::{InHand, JobId, JobState, JobView};

use crate::planted::{Bug, Planted};

/// A run without a time limit that is over within this is told by its completion alone.
const TOLD_AFTER: Duration = Duration::from_secs(1);

pub(crate) struct Batch {
    /// The scheduler knows begins and jobs that are given back.
    reports: bool,
    planted: Planted,
    waiting: VecDeque<JobView>,
    in_hand: Option<Begun>,
    /// Jobs that go back, until the scheduler has answered to that.
    given_back: Vec<JobId>,
    /// Those of them that the heartbeat under way names.
    confirming: Vec<JobId>,
    /// The begin that the heartbeat under way tells.
    beating: Option<JobId>,
}

/// The job in hand.
struct Begun {
    id: JobId,
    at: Duration,
    told: Told,
    /// It is to be known soon that it runs.
    is_urgent: bool,
}

/// Whether the scheduler knows of a begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    No,
    UnderWay,
    Yes,
}

impl Batch {
    /// The jobs of a new lease.
    pub(crate) fn new(jobs: Vec<JobView>, reports: bool, planted: Planted) -> Self {
        Batch {
            reports,
            planted,
            waiting: jobs.into(),
            in_hand: None,
            given_back: Vec::new(),
            confirming: Vec::new(),
            beating: None,
        }
    }

    /// Returns `true` if the scheduler knows begins.
    pub(crate) fn reports(&self) -> bool {
        self.reports
    }

    /// Returns `true` if a job has not begun.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the next job in hand. `short` says that jobs probably end within a moment.
    pub(crate) fn take(&mut self, now: Duration, short: bool) -> Option<JobView> {
        let job = self.waiting.pop_front()?;
        let known = !self.reports || job.state == JobState::Running;
        self.in_hand = Some(Begun {
            id: job.job_id,
            at: now,
            told: if known { Told::Yes } else { Told::No },
            is_urgent: job.max_runtime_sec.is_some() || !short,
        });
        Some(job)
    }

    /// The job in hand has ended. Returns when it began.
    pub(crate) fn ended(&mut self) -> Option<Duration> {
        self.in_hand.take().map(|begun| begun.at)
    }

    /// The job in hand, as a call tells it.
    pub(crate) fn in_hand(&self, now: Duration) -> Option<InHand> {
        self.in_hand.as_ref().map(|begun| InHand {
            job_id: begun.id,
            began_ms_ago: millis(now.saturating_sub(begun.at)),
        })
    }

    /// The begin that goes with a completion, if there is one to tell: it is then under way.
    pub(crate) fn tell_begin(&mut self, now: Duration) -> Option<InHand> {
        let begun = self.in_hand.as_mut()?;
        if begun.told != Told::No || !begun.is_urgent {
            return None;
        }
        begun.told = Told::UnderWay;
        self.in_hand(now)
    }

    /// The call that told a begin was answered, or was not.
    pub(crate) fn begin_told(&mut self, job: JobId, answered: bool) {
        let told = if answered { Told::Yes } else { Told::No };
        if let Some(begun) = self.in_hand.as_mut().filter(|begun| begun.id == job)
            && begun.told != Told::Yes
        {
            begun.told = told;
        }
    }

    /// When the begin of the job in hand is to be told by a heartbeat, if it is.
    pub(crate) fn tell_at(&self) -> Option<Duration> {
        let begun = self.in_hand.as_ref()?;
        let delay = match begun.is_urgent {
            true => Duration::ZERO,
            false => TOLD_AFTER,
        };
        (begun.told == Told::No).then_some(begun.at + delay)
    }

    /// Gives back those of the jobs that have not begun. Returns `true` if there was one.
    pub(crate) fn give_back(&mut self, asked: &[JobId]) -> bool {
        let before = self.given_back.len();
        let given_back = &mut self.given_back;
        let kept = self.planted.has(Bug::BeginsGivenBack);
        self.waiting.retain(|job| {
            let back = asked.contains(&job.job_id);
            if back {
                given_back.push(job.job_id);
            }
            !back || kept
        });
        self.given_back.len() > before
    }

    /// Returns `true` if a job was given back and the scheduler has not answered to that.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        !self.given_back.is_empty()
    }

    /// What a heartbeat tells that is about `job`: how long ago that began, and which jobs go back.
    pub(crate) fn beat(&mut self, job: Option<JobId>, now: Duration) -> (Option<u64>, Vec<JobId>) {
        self.confirming.clone_from(&self.given_back);
        let in_hand = self
            .in_hand(now)
            .filter(|it| self.reports && Some(it.job_id) == job);
        self.beating = in_hand.map(|it| it.job_id);
        (in_hand.map(|it| it.began_ms_ago), self.confirming.clone())
    }

    /// The heartbeat was answered, or was not.
    pub(crate) fn beaten(&mut self, answered: bool) {
        let confirmed = std::mem::take(&mut self.confirming);
        let beating = self.beating.take();
        if answered {
            self.given_back.retain(|id| !confirmed.contains(id));
            if let Some(job) = beating {
                self.begin_told(job, true);
            }
        }
    }
}

/// Whole milliseconds, as they are told.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
