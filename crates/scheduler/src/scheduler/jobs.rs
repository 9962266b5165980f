//! Jobs: submitting them, asking for them, stopping them, bringing them back.

use std::time::Duration;

use jobtree_protocol::{
    AddonId, ApiError, BulkAnswer, BulkFailure, CancelRequest, Each, EditRequest, JobId, JobList,
    JobQuery, JobState, JobView, Limits, LogPage, RedriveRequest, SubmitAnswer, SubmitManyAnswer,
    SubmitManyRequest, SubmitRequest,
};
use jobtree_store::{Recorded, Submission};

use super::{Scheduler, bounded, checked};
use crate::Reply;
use crate::core::{Call, Dispatchable, Ended, Events, Log};
use crate::error::told;

/// Jobs on one page of a list, at most.
const MOST_ON_A_PAGE: u32 = 500;
const ON_A_PAGE: u32 = 50;

impl Scheduler {
    /// Submits a job. The answer comes when it is on disk.
    pub fn submit(&self, request: SubmitRequest) -> Reply<SubmitAnswer> {
        match checked(self.submission(request)) {
            Err(wrong) => wrong,
            Ok(submission) => {
                let answer = self.store().submit(self.stamp(), submission);
                self.reply(answer, |answer| answer)
            }
        }
    }

    /// Submits many in one commit, each answered for itself. They may depend on ones before them.
    pub fn submit_many(&self, request: SubmitManyRequest) -> Reply<SubmitManyAnswer> {
        let mut refused: Vec<Option<ApiError>> = Vec::with_capacity(request.jobs.len());
        let mut sound = Vec::with_capacity(request.jobs.len());
        for job in request.jobs {
            match self.submission(job) {
                Ok(submission) => {
                    sound.push(submission);
                    refused.push(None);
                }
                Err(fields) => refused.push(Some(ApiError::invalid(fields))),
            }
        }
        let answer = self.store().submit_many(self.stamp(), sound);
        self.reply(answer, move |answers| {
            let mut answers = answers.into_iter();
            let each = refused.into_iter().map(|error| match error {
                Some(error) => Each::Refused { error },
                None => match answers.next() {
                    Some(Ok(answer)) => Each::Done(answer),
                    Some(Err(why)) => Each::Refused {
                        error: ApiError::from(&why),
                    },
                    None => unreachable!("one answer for each submission"),
                },
            });
            SubmitManyAnswer {
                jobs: each.collect(),
            }
        })
    }

    fn submission(
        &self,
        request: SubmitRequest,
    ) -> Result<Submission, Vec<jobtree_protocol::FieldError>> {
        let published = self.engine.published();
        let limits = Limits {
            cost_units: published.policy.largest_cost(&request.addon_id),
            ..self.limits().clone()
        };
        let id = request.job_id;
        let intent = request.validate(&limits)?;
        Ok(match id {
            Some(id) => Submission::with_id(id, intent),
            None => Submission::new(intent),
        })
    }

    /// A job.
    pub fn job(&self, id: JobId) -> Reply<JobView> {
        let answer = self.store().job(id);
        self.reply(answer, |told| told.job.view(told.lease.as_ref()))
    }

    /// Jobs that a query finds, page by page.
    pub fn jobs(&self, query: JobQuery) -> Reply<JobList> {
        let limit = query.limit.unwrap_or(ON_A_PAGE).clamp(1, MOST_ON_A_PAGE);
        let answer = self.store().list(query, limit as usize);
        self.reply(answer, |page| JobList {
            jobs: page.jobs.iter().map(|job| job.view(None)).collect(),
            next: page.next,
        })
    }

    /// The trail of a job.
    pub fn job_events(&self, id: JobId) -> Reply<Vec<Recorded>> {
        let answer = self.store().events_of(id);
        self.reply(answer, |events| events)
    }

    /// The trail of everything after a place; 0 is before the first. If there is nothing, it waits so long for something.
    pub fn events(&self, after: u64, limit: usize, wait_for: Duration) -> Reply<Vec<Recorded>> {
        let limit = limit.clamp(1, 10_000);
        let poll = Events { after, limit };
        self.call(|caller| Call::Events(poll, bounded(wait_for), caller))
    }

    /// What a job printed after a place; 0 is its beginning. If that is nothing and the job goes on, it waits so long for
    /// more.
    pub fn log(&self, id: JobId, after: u64, wait_for: Duration) -> Reply<LogPage> {
        let poll = Log { job: id, after };
        self.call(|caller| Call::Log(poll, bounded(wait_for), caller))
    }

    /// A job, when it has ended or so much time has passed: look at its state.
    pub fn wait_for(&self, id: JobId, wait_for: Duration) -> Reply<JobView> {
        self.call(|caller| Call::Ended(Ended(id), bounded(wait_for), caller))
    }

    /// Dispatches that wait to be taken up, of an addon or of all. If there is none, it waits so long for one.
    pub fn dispatchable(&self, addon: Option<AddonId>, wait_for: Duration) -> Reply<Vec<JobView>> {
        let poll = Dispatchable(addon);
        self.call(|caller| Call::Dispatchable(poll, bounded(wait_for), caller))
    }

    /// Stops a job: at once if nobody runs it, else its worker is asked to.
    pub fn cancel(&self, id: JobId, request: CancelRequest) -> Reply<JobState> {
        let answer = self.store().cancel(self.stamp(), id, request);
        self.reply(answer, |state| state)
    }

    /// Stops all jobs that a query finds and that have not ended.
    pub fn cancel_many(&self, query: JobQuery, request: CancelRequest) -> Reply<BulkAnswer> {
        let query = JobQuery {
            state: if query.state.is_empty() {
                vec![JobState::Queued, JobState::Dispatching, JobState::Running]
            } else {
                query.state
            },
            ..query
        };
        self.bulk(Which::Found(query), move |scheduler, id| {
            scheduler.cancel(id, request.clone())
        })
    }

    /// Brings a job to its next attempt now: one that waits for a time no longer waits for it, a dead letter is queued
    /// again.
    pub fn retry(&self, id: JobId, reason: Option<String>) -> Reply<JobState> {
        let this = self.clone();
        let looked = self.store().job(id);
        Reply::new(async move {
            let found = looked.await.map_err(|error| told(&error))?;
            if found.job.state == JobState::Queued {
                let hastened = this.store().hasten(this.stamp(), id);
                return this.reply(hastened, |()| JobState::Queued).await;
            }
            let answer = this.store().redrive(this.stamp(), id, reason);
            this.reply(answer, |state| state).await
        })
    }

    /// Changes priority, start, deadline or tags of a job that waits.
    pub fn edit(&self, id: JobId, request: EditRequest) -> Reply<JobView> {
        match checked(request.validate(self.limits())) {
            Err(wrong) => wrong,
            Ok(request) => {
                let answer = self.store().edit(self.stamp(), id, request);
                self.reply(answer, |job| job.view(None))
            }
        }
    }

    /// Queues dead letters again: those listed, or all that a query finds.
    pub fn redrive(&self, request: RedriveRequest) -> Reply<BulkAnswer> {
        let RedriveRequest {
            job_ids,
            query,
            reason,
        } = request;
        let which = match query {
            Some(query) if job_ids.is_empty() => Which::Found(JobQuery {
                state: if query.state.is_empty() {
                    vec![JobState::Failed]
                } else {
                    query.state
                },
                ..query
            }),
            _ => Which::Listed(job_ids),
        };
        self.bulk(which, move |scheduler, id| {
            let answer = scheduler
                .store()
                .redrive(scheduler.stamp(), id, reason.clone());
            scheduler.reply(answer, |state| state)
        })
    }

    /// Does something to many jobs, page by page, in the order of their ids.
    fn bulk<F>(&self, which: Which, act: F) -> Reply<BulkAnswer>
    where
        F: Fn(&Scheduler, JobId) -> Reply<JobState> + Send + 'static,
    {
        let this = self.clone();
        Reply::new(async move {
            let mut answer = BulkAnswer::default();
            let (mut listed, mut query) = match which {
                Which::Listed(ids) => (Some(ids), None),
                Which::Found(query) => (None, Some(query)),
            };
            loop {
                let ids = match (listed.take(), &mut query) {
                    (Some(ids), _) => ids,
                    (None, None) => return Ok(answer),
                    (None, Some(found)) => {
                        let limit = MOST_ON_A_PAGE as usize;
                        let page = this.store().list(found.clone(), limit).await;
                        let page = page.map_err(|error| told(&error))?;
                        found.after = page.next;
                        if page.next.is_none() {
                            query = None;
                        }
                        page.jobs.iter().map(|job| job.id).collect()
                    }
                };
                // All at once: they share a commit.
                let acts: Vec<_> = ids.iter().map(|id| (*id, act(&this, *id))).collect();
                for (job_id, reply) in acts {
                    match reply.await {
                        Ok(_) => answer.done.push(job_id),
                        Err(error) => answer.failed.push(BulkFailure { job_id, error }),
                    }
                }
            }
        })
    }
}

enum Which {
    Listed(Vec<JobId>),
    Found(JobQuery),
}
