//! A submission: what somebody wrote, and the check that makes an [`Intent`] of it.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::time::whole_micros;
use crate::{
    AddonId, Backoff, Constraints, FieldError, Intent, JobId, JobType, Json, Late, Limits, NodeId,
    OnDependencyFailure, Priority, Start, TraceParent,
};

/// `POST …/queue/jobs/submit`. Only `addon_id`, `job_type` and `cost_units` are needed.
///
/// ```
/// use jobtree_protocol::{Json, Limits, SubmitRequest};
///
/// let request = SubmitRequest {
///     payload: Some(Json::of(&["a", "b"])?),
///     max_attempts: Some(5),
///     ..SubmitRequest::new("visuals", "indexing", 30)
/// };
/// assert!(request.validate(&Limits::default()).is_ok());
///
/// let wrong = SubmitRequest::new("visuals", "", 101).validate(&Limits::default()).unwrap_err();
/// assert_eq!(wrong[0].field, "job_type");
/// assert_eq!(wrong[1].to_string(), "cost_units: is 101: write a whole number from 1 to 100");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct SubmitRequest {
    /// The id that the job shall have (version 7), for a program that noted it before; a new one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Who submits.
    pub addon_id: String,
    /// Which handler runs it.
    pub job_type: String,
    /// Its share of the capacity while it runs, 1 to 100.
    pub cost_units: i64,
    /// Its class; NORMAL if absent.
    pub priority: Priority,
    /// What it leans on.
    pub constraints: Constraints,
    /// How long it probably runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_duration_sec: Option<i64>,
    /// Its input.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Json))]
    pub payload: Option<Json>,
    /// Without a deadline: it does not wait for QUIET in NORMAL.
    pub time_sensitive: bool,
    /// The load that it waits for: `when_quiet` (the default), `now` (every state but PANIC) or `ignore_load` (any; needs an
    /// admin's token).
    #[serde(skip_serializing_if = "Start::is_default")]
    pub start: Start,
    /// Not before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest_start_at: Option<Timestamp>,
    /// Not before so many seconds from now; over HTTP alone, and instead of `earliest_start_at`. A second submission with
    /// the same idempotency key and delay is the same job, and its time is that of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest_start_in_sec: Option<i64>,
    /// When it should be done, in seconds from now; as `earliest_start_in_sec`, instead of `deadline_at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_in_sec: Option<i64>,
    /// When it should be done. The nearer this comes, the more quiet conditions are waived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// What happens after it: `run` (the default) or `fail`.
    pub late: Late,
    /// The hard limit of one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runtime_sec: Option<i64>,
    /// To find it by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A second submission with this key and the same body is this job; with another body it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// While a job of this addon, type and key has not ended, a second submission is that job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    /// Of jobs of this addon and key, `concurrency_limit` at a time are dispatched or running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    /// How many at a time; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency_limit: Option<i64>,
    /// How many runs may fail before the job does; 1 if absent, since not every job may be run twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    /// How long it waits in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Jobs that must be DONE before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<JobId>,
    /// What happens if one of them is not: `cancel` (the default) or `run`.
    pub on_dependency_failure: OnDependencyFailure,
    /// The one machine that may run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_node: Option<String>,
    /// Labels that a machine must have to run it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_labels: Vec<String>,
    /// The trace that the job is a part of, as the W3C's Trace Context writes it. Over HTTP, the header `traceparent` of
    /// the request counts if this is absent. A repeated submission may have another one; the first counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl SubmitRequest {
    /// What is needed, and defaults for the rest.
    pub fn new(addon_id: impl Into<String>, job_type: impl Into<String>, cost_units: u32) -> Self {
        Self {
            addon_id: addon_id.into(),
            job_type: job_type.into(),
            cost_units: cost_units.into(),
            ..Self::default()
        }
    }

    /// Whether a time is given as a delay.
    pub fn has_delays(&self) -> bool {
        self.earliest_start_in_sec.is_some() || self.deadline_in_sec.is_some()
    }

    /// Turns delays into times. `first` are the times of the job that was submitted with the same key before, if there is
    /// one: a repeated submission means that job.
    ///
    /// # Errors
    /// If a delay is no sensible one, or stands beside the time that it stands for.
    pub fn resolve_delays(
        &mut self,
        now: Timestamp,
        first: Option<[Option<Timestamp>; 2]>,
    ) -> Result<(), Vec<FieldError>> {
        let [first_start, first_deadline] = first.unwrap_or_default();
        let mut check = Check::default();
        let mut resolve = |name: &str,
                           delay: &mut Option<i64>,
                           at: &mut Option<Timestamp>,
                           first: Option<Timestamp>| {
            let field = format!("{name}_in_sec");
            let Some(seconds) = check.seconds(&field, delay.take()) else {
                return;
            };
            if at.is_some() {
                check.refuse(field, format!("stands beside {name}_at: write one of them"));
                return;
            }
            let later = now.checked_add(SignedDuration::from_secs(seconds.into()));
            *at = first.or(later.ok());
        };
        let (start, deadline) = (&mut self.earliest_start_at, &mut self.deadline_at);
        resolve(
            "earliest_start",
            &mut self.earliest_start_in_sec,
            start,
            first_start,
        );
        resolve(
            "deadline",
            &mut self.deadline_in_sec,
            deadline,
            first_deadline,
        );
        check.finish(())
    }

    /// Checks every field, and fills in the defaults.
    ///
    /// # Errors
    /// One message for each field that is wrong.
    pub fn validate(self, limits: &Limits) -> Result<Intent, Vec<FieldError>> {
        let mut check = Check::default();
        let addon_id = check.or_note("addon_id", AddonId::new(&self.addon_id));
        let job_type = check.or_note("job_type", JobType::new(&self.job_type));
        let cost_units = check_cost(&mut check, self.cost_units, limits);
        let expected_duration_sec =
            check.seconds("expected_duration_sec", self.expected_duration_sec);
        let max_runtime_sec = check.seconds("max_runtime_sec", self.max_runtime_sec);
        if let Some(payload) = &self.payload {
            check.json("payload", payload, limits.payload_bytes, limits.json_depth);
        }
        self.check_times(&mut check);
        self.check_keys(&mut check, limits);
        let concurrency_limit = self
            .concurrency_limit
            .map(|limit| check.number("concurrency_limit", limit, 1, u32::MAX));
        let max_attempts = self
            .max_attempts
            .map(|most| check.number("max_attempts", most, 1, limits.attempts));
        let backoff = self.backoff.unwrap_or_default();
        check_backoff(&mut check, &backoff);
        self.check_dependencies(&mut check, limits);
        let required_node = match &self.required_node {
            Some(node) => check.or_note("required_node", NodeId::new(node)),
            None => None,
        };
        let required_labels = check.texts(
            "required_labels",
            self.required_labels,
            limits.labels,
            limits.tag_bytes,
        );
        let traceparent = match &self.traceparent {
            Some(text) => check.or_note("traceparent", text.parse::<TraceParent>()),
            None => None,
        };
        let tags = check.texts("tags", self.tags, limits.tags, limits.tag_bytes);
        let mut depends_on = self.depends_on;
        depends_on.sort_unstable();
        depends_on.dedup();

        let (Some(addon_id), Some(job_type), true) = (addon_id, job_type, check.is_clean()) else {
            return Err(check.into_errors());
        };
        Ok(Intent {
            addon_id,
            job_type,
            cost_units,
            priority: self.priority,
            constraints: self.constraints,
            expected_duration_sec,
            payload: self.payload,
            time_sensitive: self.time_sensitive,
            start: self.start,
            earliest_start_at: self.earliest_start_at.map(whole_micros),
            deadline_at: self.deadline_at.map(whole_micros),
            late: self.late,
            max_runtime_sec,
            tags,
            idempotency_key: self.idempotency_key,
            unique_key: self.unique_key,
            concurrency_key: self.concurrency_key,
            concurrency_limit: concurrency_limit.unwrap_or(1),
            max_attempts: max_attempts.unwrap_or(1),
            backoff,
            depends_on,
            on_dependency_failure: self.on_dependency_failure,
            required_node,
            required_labels,
            schedule_id: None,
            traceparent,
        })
    }

    fn check_times(&self, check: &mut Check) {
        let delays = [
            ("earliest_start", self.earliest_start_in_sec),
            ("deadline", self.deadline_in_sec),
        ];
        for (name, _) in delays.iter().filter(|(_, delay)| delay.is_some()) {
            let message = format!("counts for jobs that are submitted over HTTP: write {name}_at");
            check.refuse(format!("{name}_in_sec"), message);
        }
        if let (Some(earliest), Some(deadline)) = (self.earliest_start_at, self.deadline_at)
            && deadline <= earliest
        {
            let message =
                format!("is not after earliest_start_at ({earliest}): write a later time");
            check.refuse("deadline_at", message);
        }
        if self.late == Late::Fail && self.deadline_at.is_none() {
            check.refuse(
                "late",
                "is \"fail\" without a deadline: write deadline_at, or leave this out",
            );
        }
    }

    fn check_keys(&self, check: &mut Check, limits: &Limits) {
        let keys = [
            ("idempotency_key", &self.idempotency_key),
            ("unique_key", &self.unique_key),
            ("concurrency_key", &self.concurrency_key),
        ];
        for (field, key) in keys {
            if let Some(key) = key {
                check.text(field, key, limits.key_bytes);
            }
        }
        if self.concurrency_limit.is_some() && self.concurrency_key.is_none() {
            check.refuse(
                "concurrency_limit",
                "limits nothing without concurrency_key: write that too, or leave this out",
            );
        }
    }

    fn check_dependencies(&self, check: &mut Check, limits: &Limits) {
        let (count, most) = (self.depends_on.len(), limits.dependencies);
        if count > most {
            let advice = "let a job in between join them";
            check.refuse(
                "depends_on",
                format!("has {count} entries, and {most} are allowed: {advice}"),
            );
        } else if let Some(own) = self.job_id
            && self.depends_on.contains(&own)
        {
            check.refuse("depends_on", "holds the job itself: leave it out");
        }
        if let Some(own) = self.job_id
            && own.0.get_version_num() != 7
        {
            check.refuse(
                "job_id",
                "is no UUID of version 7: ids sort by time; draw a new one, or leave this out",
            );
        }
    }
}

pub(crate) fn check_cost(check: &mut Check, cost: i64, limits: &Limits) -> u32 {
    let most = limits.cost_units;
    if most < 100 && (i64::from(most) + 1..=100).contains(&cost) {
        let message = format!(
            "is {cost}, and the policy leaves {most} at most: it could never run; write less"
        );
        check.refuse("cost_units", message);
        return 1;
    }
    check.number("cost_units", cost, 1, most.min(100))
}

fn check_backoff(check: &mut Check, backoff: &Backoff) {
    let Backoff {
        initial_sec,
        factor,
        max_sec,
        jitter,
    } = *backoff;
    const DAY: f64 = 86_400.0;
    if !(0.0..=DAY).contains(&initial_sec) {
        check.refuse(
            "backoff.initial_sec",
            format!("is {initial_sec}: write 0 to {DAY}"),
        );
    }
    if !(1.0..=10.0).contains(&factor) {
        check.refuse(
            "backoff.factor",
            format!("is {factor}: write 1 (always the same wait) to 10"),
        );
    }
    if !(initial_sec..=7.0 * DAY).contains(&max_sec) {
        let most = 7.0 * DAY;
        check.refuse(
            "backoff.max_sec",
            format!("is {max_sec}: write initial_sec ({initial_sec}) to {most}"),
        );
    }
    check.share("backoff.jitter", jitter);
}
