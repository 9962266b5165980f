//! A job to be submitted, with its payload as a value of the program's own.

use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, ApiError, Backoff, FieldError, JobId, Json, Late, Priority, SubmitRequest,
};
use serde::Serialize;

/// A job to be submitted.
///
/// ```
/// use std::time::Duration;
/// use jobtree_scheduler::durable::NewJob;
///
/// #[derive(serde::Serialize)]
/// struct Mail<'a> { to: &'a str, subject: &'a str }
///
/// let mail = Mail { to: "ada@example.org", subject: "Hello" };
/// let job = NewJob::new("mail", &mail)
///     .attempts(5)
///     .max_runtime(Duration::from_secs(60))
///     .idempotency_key("hello-ada");
/// # drop(job);
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is not submitted yet"]
pub struct NewJob {
    request: SubmitRequest,
    /// What is wrong with it already; `submit` tells.
    wrong: Option<FieldError>,
}

impl NewJob {
    /// A job for the handler of this type. It counts as one unit of the capacity, is NORMAL, and has one attempt.
    pub fn new<P: Serialize + ?Sized>(job_type: impl Into<String>, payload: &P) -> Self {
        let mut request = SubmitRequest::new("", job_type, 1);
        let mut wrong = None;
        match Json::of(payload) {
            Ok(payload) => request.payload = Some(payload).filter(|json| json.text() != "null"),
            Err(error) => {
                let message = format!("cannot be written as JSON: {error}");
                wrong = Some(FieldError::new("payload", message));
            }
        }
        NewJob { request, wrong }
    }

    /// Its share of the capacity while it runs, 1 to 100.
    pub fn cost(self, units: u32) -> Self {
        self.with(|request| request.cost_units = units.into())
    }

    /// Its class.
    pub fn priority(self, priority: Priority) -> Self {
        self.with(|request| request.priority = priority)
    }

    /// How many runs may fail before the job does.
    pub fn attempts(self, most: u32) -> Self {
        self.with(|request| request.max_attempts = Some(most.into()))
    }

    /// How long it waits between them.
    pub fn backoff(self, backoff: Backoff) -> Self {
        self.with(|request| request.backoff = Some(backoff))
    }

    /// Not before this.
    pub fn not_before(self, time: Timestamp) -> Self {
        self.with(|request| request.earliest_start_at = Some(time))
    }

    /// When it should be done, and what becomes of it if that passes while it waits.
    pub fn deadline(self, time: Timestamp, late: Late) -> Self {
        self.with(|request| {
            request.deadline_at = Some(time);
            request.late = late;
        })
    }

    /// How long it probably runs: short ones may go before a large one that waits for its place.
    pub fn expected_duration(self, time: Duration) -> Self {
        self.with(|request| request.expected_duration_sec = Some(whole_seconds(time)))
    }

    /// The hard limit of one run, in whole seconds.
    pub fn max_runtime(self, limit: Duration) -> Self {
        self.with(|request| request.max_runtime_sec = Some(whole_seconds(limit)))
    }

    /// A second submission with this key and the same content is this job; with another content it is refused.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        self.with(|request| request.idempotency_key = Some(key.into()))
    }

    /// While a job of this type and key has not ended, a second submission is that job.
    pub fn unique(self, key: impl Into<String>) -> Self {
        self.with(|request| request.unique_key = Some(key.into()))
    }

    /// Of jobs with this key, `limit` at a time run.
    pub fn concurrency(self, key: impl Into<String>, limit: u32) -> Self {
        self.with(|request| {
            request.concurrency_key = Some(key.into());
            request.concurrency_limit = Some(limit.into());
        })
    }

    /// It starts when this one is done, too.
    pub fn after(self, job: JobId) -> Self {
        self.with(|request| request.depends_on.push(job))
    }

    /// To find it by.
    pub fn tag(self, tag: impl Into<String>) -> Self {
        self.with(|request| request.tags.push(tag.into()))
    }

    /// The id that it shall have, for whoever wrote it down before; see [`JobId::generate`].
    pub fn id(self, id: JobId) -> Self {
        self.with(|request| request.job_id = Some(id))
    }

    /// Changes anything else of the submission.
    pub fn with(mut self, change: impl FnOnce(&mut SubmitRequest)) -> Self {
        change(&mut self.request);
        self
    }

    /// The submission, in the name of `addon` if it names none itself.
    pub(crate) fn into_request(self, addon: &AddonId) -> Result<SubmitRequest, ApiError> {
        if let Some(wrong) = self.wrong {
            return Err(ApiError::invalid(vec![wrong]));
        }
        let mut request = self.request;
        if request.addon_id.is_empty() {
            request.addon_id = addon.as_str().to_owned();
        }
        Ok(request)
    }
}

/// Rounded up: a limit of half a second is none of zero.
fn whole_seconds(time: Duration) -> i64 {
    let started = u64::from(time.subsec_nanos() > 0);
    let seconds = time.as_secs().saturating_add(started);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(job: NewJob) -> Result<SubmitRequest, ApiError> {
        job.into_request(&AddonId::new("app").unwrap())
    }

    #[test]
    fn what_is_said_is_in_the_request() {
        let other = JobId::generate();
        let job = NewJob::new("mail", &[1, 2])
            .cost(7)
            .attempts(3)
            .max_runtime(Duration::from_millis(1500))
            .concurrency("inbox", 2)
            .after(other)
            .tag("a");
        let request = request(job).unwrap();
        assert_eq!(
            (request.addon_id.as_str(), request.job_type.as_str()),
            ("app", "mail")
        );
        assert_eq!(request.payload.unwrap().text(), "[1,2]");
        assert_eq!((request.cost_units, request.max_attempts), (7, Some(3)));
        assert_eq!(request.max_runtime_sec, Some(2));
        assert_eq!(request.concurrency_limit, Some(2));
        assert_eq!(
            (request.depends_on, request.tags),
            (vec![other], vec!["a".to_owned()])
        );
    }

    #[test]
    fn nothing_is_no_payload_and_what_is_no_json_is_told() {
        assert_eq!(request(NewJob::new("tick", &())).unwrap().payload, None);
        let keys = std::collections::HashMap::from([((1, 2), 3)]);
        let error = request(NewJob::new("map", &keys)).unwrap_err();
        assert_eq!(error.fields[0].field, "payload");
    }
}
