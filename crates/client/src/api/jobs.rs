//! Jobs: submitting them, looking at them, stopping them, bringing them back.

use std::time::{Duration, Instant};

use jobtree_protocol::{
    BulkAnswer, CancelManyRequest, CancelRequest, EventPage, Explain, JobId, JobList, JobQuery,
    JobState, JobView, LogAppend, LogAppendAnswer, LogPage, RedriveRequest, RetryRequest,
    StateAnswer, SubmitAnswer, SubmitManyAnswer, SubmitManyRequest, SubmitRequest, TreeView, paths,
};

use crate::call::Result;
use crate::client::Client;
use crate::query::Query;

/// How long the daemon is asked to wait at a time: shorter than what gives up on silent connections.
const AT_A_TIME: Duration = Duration::from_secs(25);

impl Client {
    /// Submits a job. When this returns, it is on the daemon's disk.
    ///
    /// A job without an id or key gets an id here, so that the call can be repeated over a broken connection and there is
    /// one job all the same.
    ///
    /// # Errors
    /// If the job is refused, or the daemon does not answer.
    pub fn submit(&self, request: SubmitRequest) -> Result<SubmitAnswer> {
        let request = recognizable(request);
        self.post(paths::SUBMIT).json(&request)?.repeated().read()
    }

    /// Submits many in one commit, each answered for itself. They may depend on ones before them.
    ///
    /// # Errors
    /// If the daemon takes none of them, or does not answer.
    pub fn submit_many(&self, request: SubmitManyRequest) -> Result<SubmitManyAnswer> {
        let jobs = request.jobs.into_iter().map(recognizable).collect();
        let request = SubmitManyRequest { jobs };
        let call = self.post(paths::SUBMIT_MANY).json(&request)?;
        call.repeated().read()
    }

    /// A job as it is now.
    ///
    /// # Errors
    /// If there is no such job, or the daemon does not answer.
    pub fn job(&self, id: JobId) -> Result<JobView> {
        self.get(paths::at(paths::JOB, id)).read()
    }

    /// A job, when it has ended or so much time has passed: look at its state.
    ///
    /// # Errors
    /// If there is no such job, or the daemon does not answer.
    pub fn wait_for(&self, id: JobId, limit: Duration) -> Result<JobView> {
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let wait = left.min(AT_A_TIME);
            // Whole seconds, and rather one too many: the answer comes as soon as the job has ended.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let query = Query::default().with("wait_sec", seconds);
            let call = self.get(paths::at(paths::JOB, id)).query(query);
            let job: JobView = call.waits(Duration::from_secs(seconds)).read()?;
            if job.state.is_ended() || begun.elapsed() >= limit {
                return Ok(job);
            }
        }
    }

    /// One page of the jobs that a query finds; [`all_jobs`](Client::all_jobs) gives all.
    ///
    /// # Errors
    /// If the query is refused, or the daemon does not answer.
    pub fn jobs(&self, query: &JobQuery) -> Result<JobList> {
        let parameters = Query::default()
            .with_each("state", query.state.iter().map(|state| state.as_str()))
            .with_some("addon_id", query.addon_id.as_ref())
            .with_some("job_type", query.job_type.as_ref())
            .with_some("tag", query.tag.as_ref())
            .with_some("text", query.text.as_ref())
            .with_some("quarantined", query.quarantined.then_some(true))
            .with_some("after", query.after)
            .with_some("limit", query.limit);
        self.get(paths::JOBS).query(parameters).read()
    }

    /// Stops a job: at once if nobody runs it, else its worker is asked to.
    ///
    /// # Errors
    /// If there is no such job, it has ended, or the daemon does not answer.
    pub fn cancel(&self, id: JobId, reason: Option<&str>) -> Result<JobState> {
        let request = CancelRequest {
            reason: reason.map(str::to_owned),
        };
        let call = self.post(paths::at(paths::CANCEL, id)).json(&request)?;
        let answer: StateAnswer = call.repeated().read()?;
        Ok(answer.state)
    }

    /// Stops all jobs that a query finds and that have not ended.
    ///
    /// # Errors
    /// If the query is refused, or the daemon does not answer.
    pub fn cancel_many(&self, query: JobQuery, reason: Option<&str>) -> Result<BulkAnswer> {
        let request = CancelManyRequest {
            query,
            reason: reason.map(str::to_owned),
        };
        let call = self.post(paths::CANCEL_MANY).json(&request)?;
        call.repeated().read()
    }

    /// Brings a job to its next attempt now: one that waits for a time no longer waits for it, a dead letter is queued
    /// again.
    ///
    /// # Errors
    /// If there is no such job, its state does not allow it, or the daemon does not answer.
    pub fn retry(&self, id: JobId, reason: Option<&str>) -> Result<JobState> {
        let request = RetryRequest {
            reason: reason.map(str::to_owned),
        };
        let call = self.post(paths::at(paths::RETRY, id)).json(&request)?;
        let answer: StateAnswer = call.read()?;
        Ok(answer.state)
    }

    /// Queues dead letters again: those listed, or all that a query finds.
    ///
    /// # Errors
    /// If the query is refused, or the daemon does not answer.
    pub fn redrive(&self, request: &RedriveRequest) -> Result<BulkAnswer> {
        self.post(paths::REDRIVE).json(request)?.read()
    }

    /// Why a job waits, each reason with what would have to change, and when it will probably start.
    ///
    /// # Errors
    /// If there is no such job, or the daemon does not answer.
    pub fn explain(&self, id: JobId) -> Result<Explain> {
        self.get(paths::at(paths::EXPLAIN, id)).read()
    }

    /// A page of a job's trail, from its beginning or after a place.
    ///
    /// # Errors
    /// If there is no such job, or the daemon does not answer.
    pub fn job_events(&self, id: JobId, after: Option<u64>) -> Result<EventPage> {
        let query = Query::default().with_some("after", after);
        self.get(paths::at(paths::JOB_EVENTS, id))
            .query(query)
            .read()
    }

    /// What a job printed, from its beginning or after a place. If there is nothing new, the daemon waits so long for
    /// something.
    ///
    /// # Errors
    /// If there is no such job, or the daemon does not answer.
    pub fn log(&self, id: JobId, after: Option<u64>, wait: Duration) -> Result<LogPage> {
        let seconds = wait.min(AT_A_TIME).as_secs();
        let query = Query::default()
            .with_some("after", after)
            .with_some("wait_sec", (seconds > 0).then_some(seconds));
        let call = self.get(paths::at(paths::LOG, id)).query(query);
        call.waits(Duration::from_secs(seconds)).read()
    }

    /// Keeps more of what a running job printed.
    ///
    /// # Errors
    /// If the lease is lost, or the daemon does not answer.
    pub fn append_log(&self, id: JobId, request: &LogAppend) -> Result<LogAppendAnswer> {
        let call = self.post(paths::at(paths::LOG, id)).json(request)?;
        call.repeated().read()
    }

    /// The jobs under a running job in its worker's process, as the worker told last.
    ///
    /// # Errors
    /// If there is no such job, its worker told nothing, or the daemon does not answer.
    pub fn tree(&self, id: JobId) -> Result<TreeView> {
        self.get(paths::at(paths::TREE, id)).read()
    }
}

/// With an id or a key, by which the daemon knows it again.
fn recognizable(mut request: SubmitRequest) -> SubmitRequest {
    if request.idempotency_key.is_none() {
        request.job_id.get_or_insert_with(JobId::generate);
    }
    request
}
