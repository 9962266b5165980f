//! Jobs: submitting them, looking at them, stopping them, bringing them back.

use std::time::{Duration, Instant};

use jobtree_protocol::operations::{
    AppendJobOutput, CancelJob, CancelJobs, GetJob, GetJobLog, GetJobOutput, JobEventQuery,
    JobWait, ListJobEvents, LogQuery, OutputQuery, PauseJob, ResumeJob, RetryJob, SubmitJob,
    SubmitJobs,
};
use jobtree_protocol::{
    BulkAnswer, CancelManyRequest, CancelRequest, EventPage, JobId, JobQuery, JobState, JobView,
    LogPage, OutputAppend, OutputAppendAnswer, OutputPage, PauseRunRequest, RetryRequest,
    StateAnswer, SubmitAnswer, SubmitManyAnswer, SubmitManyRequest, SubmitRequest,
};

use crate::call::Result;
use crate::client::Client;

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
        let call = self.prepare::<SubmitJob>((), &(), &request)?;
        call.repeated_if(true).answer()
    }

    /// Submits many in one commit, each answered for itself. They may depend on ones before them.
    ///
    /// # Errors
    /// If the daemon takes none of them, or does not answer.
    pub fn submit_many(&self, request: SubmitManyRequest) -> Result<SubmitManyAnswer> {
        let jobs = request.jobs.into_iter().map(recognizable).collect();
        let request = SubmitManyRequest { jobs };
        let call = self.prepare::<SubmitJobs>((), &(), &request)?;
        call.repeated_if(true).answer()
    }

    /// A job as it is now.
    ///
    /// # Errors
    /// If there is no such job, or the daemon does not answer.
    pub fn job(&self, id: JobId) -> Result<JobView> {
        self.call::<GetJob>(id, &JobWait::default(), &())
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
            let seconds = wait.as_secs() as u32 + u32::from(wait.subsec_nanos() > 0);
            let wait_sec = Some(seconds);
            let call = self.prepare::<GetJob>(id, &JobWait { wait_sec }, &())?;
            let job = call.waits(Duration::from_secs(seconds.into())).answer()?;
            if job.state.is_ended() || begun.elapsed() >= limit {
                return Ok(job);
            }
        }
    }

    /// Stops a job: at once if nobody runs it, else its worker is asked to.
    ///
    /// # Errors
    /// If there is no such job, it has ended, or the daemon does not answer.
    pub fn cancel(&self, id: JobId, reason: Option<&str>) -> Result<JobState> {
        let request = CancelRequest {
            reason: reason.map(str::to_owned),
        };
        Ok(self.call::<CancelJob>(id, &(), &request)?.state)
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
        self.call::<CancelJobs>((), &(), &request)
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
        Ok(self.call::<RetryJob>(id, &(), &request)?.state)
    }

    /// Pauses the run of a job until it is resumed: its program stands still.
    ///
    /// # Errors
    /// If there is no such job, it does not run on the machine of this daemon, or the daemon does not answer.
    pub fn pause_job(&self, id: JobId, reason: Option<&str>) -> Result<StateAnswer> {
        let request = PauseRunRequest {
            reason: reason.map(str::to_owned),
        };
        self.call::<PauseJob>(id, &(), &request)
    }

    /// Resumes the run of a job that was paused.
    ///
    /// # Errors
    /// As [`pause_job`](Client::pause_job).
    pub fn resume_job(&self, id: JobId, reason: Option<&str>) -> Result<StateAnswer> {
        let request = PauseRunRequest {
            reason: reason.map(str::to_owned),
        };
        self.call::<ResumeJob>(id, &(), &request)
    }

    /// A page of a job's trail, from its beginning or after a place.
    ///
    /// # Errors
    /// If there is no such job, or the daemon does not answer.
    pub fn job_events(&self, id: JobId, after: Option<u64>) -> Result<EventPage> {
        let query = JobEventQuery { after, limit: None };
        self.call::<ListJobEvents>(id, &query, &())
    }

    /// What a job printed, from its beginning or after a place. If there is nothing new, the daemon waits so long for
    /// something.
    ///
    /// # Errors
    /// If there is no such job, or the daemon does not answer.
    pub fn log(&self, id: JobId, after: Option<u64>, wait: Duration) -> Result<LogPage> {
        let seconds = wait.min(AT_A_TIME).as_secs() as u32;
        let wait_sec = (seconds > 0).then_some(seconds);
        let call = self.prepare::<GetJobLog>(id, &LogQuery { after, wait_sec }, &())?;
        call.waits(Duration::from_secs(seconds.into())).answer()
    }

    /// Output of a command that was not read yet, for the one that waits for it. What `after` counts is confirmed and forgotten.
    /// If there is nothing, the daemon waits so long for something.
    ///
    /// # Errors
    /// If there is no such job, or the daemon does not answer.
    pub fn output(&self, id: JobId, after: u64, wait: Duration) -> Result<OutputPage> {
        let seconds = wait.min(AT_A_TIME).as_secs() as u32;
        let query = OutputQuery {
            after: Some(after),
            wait_sec: Some(seconds),
        };
        let call = self.prepare::<GetJobOutput>(id, &query, &())?;
        call.waits(Duration::from_secs(seconds.into())).answer()
    }

    /// Passes output of a running command on to the one that waits for it. The daemon waits for room.
    ///
    /// # Errors
    /// If the lease is not the job's, or the daemon does not answer.
    pub fn append_output(&self, id: JobId, append: &OutputAppend) -> Result<OutputAppendAnswer> {
        let call = self.prepare::<AppendJobOutput>(id, &(), append)?;
        call.waits(AT_A_TIME).answer()
    }
}

/// With an id or a key, by which the daemon knows it again.
fn recognizable(mut request: SubmitRequest) -> SubmitRequest {
    if request.idempotency_key.is_none() {
        request.job_id.get_or_insert_with(JobId::generate);
    }
    request
}
