//! The reference model: the rules of the lifecycle, one after the other, on a plain list of jobs.
//!
//! It is written from the rules and not from the code that it is compared with: no locks, no bits, no lists
//! of children; a job's children are those that name it as their parent. The rules:
//!
//! * A job ends when its body has returned and no child is active.
//! * Cancelling a job cancels everything below it, except what is shielded. The first request counts. A request
//!   goes down from job to job, and others may act meanwhile: [`Tree::pass_on`] is one of its steps.
//! * A child under a cancelled job is born cancelled and never runs, unless it is shielded.
//! * A job that failed or timed out fails its parent, unless the parent is a supervisor or the job's outcome
//!   goes to the code that waits for it. A cancelled child leaves its parent alone.
//! * A failure beats a cancellation, in either order; a timeout that came first stays one.
//! * An error that holds the job's own cancellation is no failure, even if the request is still on its way down.
//! * The first failure is the job's error; later ones are kept with it, the first few in full.

use std::collections::BTreeSet;

use jobtree_runtime::{Cause, JobState};

use crate::told::{Id, Told, What};

/// Later errors that a job keeps in full.
const MOST_LATER: usize = 8;

/// What a job is from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Nature {
    pub supervisor: bool,
    pub shielded: bool,
    /// Its outcome goes to the code that opened it, not to its parent.
    pub contained: bool,
}

/// That a job was asked to end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub cause: Cause,
    /// The job at which it was asked for.
    pub origin: Id,
    pub message: Option<u32>,
}

/// How a body ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Return {
    Value,
    Fault(What),
    /// It saw its own cancellation, or never began.
    Cancelled,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Job {
    /// `None` is the root of the runtime.
    pub parent: Option<Id>,
    pub nature: Nature,
    pub exists: bool,
    pub began: bool,
    pub returned: bool,
    pub request: Option<Request>,
    pub errors: Vec<Told>,
    pub end: Option<JobState>,
}

impl Job {
    pub fn state(&self) -> JobState {
        match (self.end, &self.request) {
            (Some(end), _) => end,
            (None, Some(_)) => JobState::Cancelling,
            (None, None) if !self.began => JobState::Pending,
            (None, None) if self.returned => JobState::Completing,
            (None, None) => JobState::Active,
        }
    }
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Awaited {
    End,
    /// The end, with the handle that gives the outcome.
    Outcome,
    Cancellation,
}

/// Somebody outside of the tree who waits for a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    pub job: Id,
    pub awaited: Awaited,
    pub is_registered: bool,
    /// How often each of the wakers was woken that it had one after the other.
    pub wakes: Vec<u32>,
}

/// A number that is known, or known but for a few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    pub certain: u64,
    pub uncertain: u64,
}

/// What the runtime counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Totals {
    pub created: u64,
    pub cancel_requests: u64,
    pub registered: Tally,
    pub woken: Tally,
}

/// A tree of jobs, and who waits for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tree {
    pub jobs: Vec<Job>,
    pub waiters: Vec<Waiter>,
    /// The jobs that were asked to end and have not passed it on to their children yet.
    pub passing_on: BTreeSet<Id>,
    pub totals: Totals,
}

impl Tree {
    pub fn has_ended(&self, job: Id) -> bool {
        self.jobs[job].end.is_some()
    }

    pub fn is_cancelled(&self, job: Id) -> bool {
        self.jobs[job].request.is_some()
    }

    /// The children of a job, or of the root, that have not ended.
    pub fn active_children(&self, parent: Option<Id>) -> impl Iterator<Item = Id> {
        let is_child = move |job: &Job| job.exists && job.parent == parent;
        (0..self.jobs.len())
            .filter(move |id| is_child(&self.jobs[*id]) && self.jobs[*id].end.is_none())
    }

    pub fn attach(&mut self, job: Id, parent: Option<Id>, nature: Nature) {
        if self.jobs.len() <= job {
            self.jobs.resize_with(job + 1, Job::default);
        }
        let above = parent.and_then(|parent| self.jobs[parent].request.clone());
        let request = above.filter(|_| !nature.shielded).map(from_above);
        self.totals.cancel_requests += u64::from(request.is_some());
        self.jobs[job] = Job {
            parent,
            nature,
            exists: true,
            request,
            ..Job::default()
        };
        self.totals.created += 1;
    }

    pub fn begin(&mut self, job: Id) {
        self.jobs[job].began = true;
    }

    /// Somebody asks the job to end; `false` if it was asked before or has ended.
    pub fn cancel(&mut self, job: Id, cause: Cause, message: Option<u32>) -> bool {
        if self.has_ended(job) || self.is_cancelled(job) {
            return false;
        }
        self.begin_cancelling(
            job,
            Request {
                cause,
                origin: job,
                message,
            },
        );
        true
    }

    fn begin_cancelling(&mut self, job: Id, request: Request) {
        if self.has_ended(job) || self.is_cancelled(job) {
            return;
        }
        // A job that fails asks the jobs below it, and not itself.
        self.totals.cancel_requests += u64::from(request.cause != Cause::Failure);
        self.jobs[job].request = Some(request);
        self.wake(job, &[Awaited::Cancellation]);
        self.passing_on.insert(job);
    }

    /// The request that `job` got goes on to its children.
    pub fn pass_on(&mut self, job: Id) {
        self.passing_on.remove(&job);
        let request = self.jobs[job].request.clone().expect("it got one");
        let children: Vec<Id> = self.active_children(Some(job)).collect();
        for child in children {
            if !self.jobs[child].nature.shielded {
                self.begin_cancelling(child, from_above(request.clone()));
            }
        }
    }

    /// The jobs above `job`, the nearest first, as far as a cancellation comes down from them.
    fn above(&self, job: Id) -> impl Iterator<Item = Id> {
        std::iter::successors(Some(job), |job| {
            let job = &self.jobs[*job];
            job.parent.filter(|_| !job.nature.shielded)
        })
        .skip(1)
    }

    fn fail(&mut self, job: Id, error: Told) {
        // Passing on what is known tells nothing new.
        let errors = &mut self.jobs[job].errors;
        if !errors.iter().any(|known| known.what == error.what) {
            errors.push(error);
        }
        self.begin_cancelling(
            job,
            Request {
                cause: Cause::Failure,
                origin: job,
                message: None,
            },
        );
    }

    pub fn return_body(&mut self, job: Id, how: Return) {
        self.jobs[job].returned = true;
        if let Return::Fault(what) = how {
            let error = Told::new(what);
            let on_its_way = self
                .above(job)
                .find(|above| error.comes_from_cancellation(*above));
            if let Some(origin) = on_its_way {
                // Has no effect if it was asked before.
                self.begin_cancelling(
                    job,
                    Request {
                        cause: Cause::Parent,
                        origin,
                        message: None,
                    },
                );
            }
            let request = self.jobs[job].request.as_ref();
            if !request.is_some_and(|own| error.comes_from_cancellation(own.origin)) {
                self.fail(job, error.unless_passed_on());
            }
        }
        self.end_if_done(job);
    }

    fn end_if_done(&mut self, job: Id) {
        if !self.jobs[job].returned || self.active_children(Some(job)).next().is_some() {
            return;
        }
        let this = &self.jobs[job];
        let timed_out = this.request.as_ref().map(|request| request.cause) == Some(Cause::Timeout);
        let end = match (timed_out, this.errors.is_empty(), &this.request) {
            (true, _, _) => JobState::TimedOut,
            (false, false, _) => JobState::Failed,
            (false, true, Some(_)) => JobState::Cancelled,
            (false, true, None) => JobState::Completed,
        };
        self.jobs[job].end = Some(end);
        self.wake(job, &[Awaited::End, Awaited::Outcome]);
        let Some(parent) = self.jobs[job].parent else {
            return;
        };
        let is_told = !self.jobs[job].nature.contained && !self.jobs[parent].nature.supervisor;
        if matches!(end, JobState::Failed | JobState::TimedOut) && is_told {
            let error = self.error(job).expect("it did not complete");
            self.fail(parent, error);
        }
        self.end_if_done(parent);
    }

    /// Why a job that has ended has no value.
    pub fn error(&self, job: Id) -> Option<Told> {
        let this = &self.jobs[job];
        let with_later = |mut first: Told, later: &[Told]| {
            // An error from below comes with what followed it there; what followed it here replaces that.
            if !later.is_empty() {
                first.more = later.len();
                first.later = later.iter().take(MOST_LATER).cloned().collect();
            }
            first
        };
        match this.end? {
            JobState::Failed => Some(with_later(this.errors[0].clone(), &this.errors[1..])),
            JobState::TimedOut => Some(with_later(Told::new(What::TimedOut(job)), &this.errors)),
            JobState::Cancelled => self.cancellation(job).map(Told::new),
            _ => None,
        }
    }

    pub fn cancellation(&self, job: Id) -> Option<What> {
        let origin = self.jobs[job].request.as_ref()?.origin;
        Some(What::Cancelled { job, origin })
    }

    /// The value's maker, or the error.
    pub fn outcome(&self, job: Id) -> Result<Id, Told> {
        self.error(job).map_or(Ok(job), Err)
    }

    /// The reason that a job gives for its cancellation: as long as it runs, the one given where it began.
    pub fn reason(&self, job: Id) -> Option<(Cause, Option<u32>)> {
        let own = self.jobs[job].request.as_ref()?;
        let given = match &self.jobs[own.origin].request {
            Some(first) if !self.has_ended(job) => first,
            _ => own,
        };
        Some((given.cause, given.message))
    }

    pub fn add_waiter(&mut self, waiter: usize, job: Id, awaited: Awaited) {
        let has_come = match awaited {
            Awaited::End | Awaited::Outcome => self.has_ended(job),
            Awaited::Cancellation => self.is_cancelled(job),
        };
        // Who wants to be called at a cancellation that has come is called at once.
        let is_called = has_come && awaited == Awaited::Cancellation;
        let is_registered = !has_come && !self.has_ended(job);
        if is_registered && awaited != Awaited::Cancellation {
            self.totals.registered.certain += 1;
        }
        assert_eq!(waiter, self.waiters.len(), "waiters come in order");
        self.waiters.push(Waiter {
            job,
            awaited,
            is_registered,
            wakes: vec![u32::from(is_called)],
        });
    }

    /// The waiter comes with a new waker.
    pub fn renew_waiter(&mut self, waiter: usize) {
        self.waiters[waiter].wakes.push(0);
    }

    pub fn remove_waiter(&mut self, waiter: usize) {
        self.waiters[waiter].is_registered = false;
    }

    fn wake(&mut self, job: Id, awaited: &[Awaited]) {
        for waiter in &mut self.waiters {
            if waiter.is_registered && waiter.job == job && awaited.contains(&waiter.awaited) {
                waiter.is_registered = false;
                *waiter.wakes.last_mut().expect("it has a waker") += 1;
                if waiter.awaited != Awaited::Cancellation {
                    self.totals.woken.certain += 1;
                }
            }
        }
    }

    pub fn ended_as(&self, state: JobState) -> u64 {
        let ended = self.jobs.iter().filter(|job| job.end == Some(state));
        ended.count() as u64
    }
}

/// A request as the jobs below the one that got it see it.
fn from_above(request: Request) -> Request {
    Request {
        cause: Cause::Parent,
        message: None,
        ..request
    }
}
