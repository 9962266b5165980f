//! Where things are: the paths of the HTTP interface, written once for the server, the client and the tests.
//!
//! A path with `{job_id}`, `{lease_id}`, `{schedule_id}`, `{webhook_id}` or `{token_id}` is a pattern; [`at`] fills it.

use std::fmt::Display;

/// What all paths of the queue begin with.
pub const BASE: &str = "/api/system/scheduler";

macro_rules! paths {
    ($($(#[$about:meta])* $name:ident = $path:literal;)*) => {
        $($(#[$about])* pub const $name: &str = concat!("/api/system/scheduler", $path);)*

        /// All of them, in the order of this file.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

paths! {
    /// POST: one job.
    SUBMIT = "/queue/jobs/submit";
    /// POST: many jobs.
    SUBMIT_MANY = "/queue/jobs/submit-many";
    /// GET: a page of jobs.
    JOBS = "/queue/jobs";
    /// GET: one job; with `wait_sec` it waits for its end.
    JOB = "/queue/jobs/{job_id}";
    /// POST: stop it.
    CANCEL = "/queue/jobs/{job_id}/cancel";
    /// POST: its dispatch is taken up.
    ACK = "/queue/jobs/{job_id}/ack";
    /// POST: its run has ended.
    COMPLETE = "/queue/jobs/{job_id}/complete";
    /// POST: try it again, now.
    RETRY = "/queue/jobs/{job_id}/retry";
    /// GET: why it waits.
    EXPLAIN = "/queue/jobs/{job_id}/explain";
    /// GET: its trail.
    JOB_EVENTS = "/queue/jobs/{job_id}/events";
    /// GET: what it printed; POST: more of it.
    LOG = "/queue/jobs/{job_id}/log";
    /// GET: the jobs in its worker's process, as last reported.
    TREE = "/queue/jobs/{job_id}/tree";
    /// POST: stop all that a query finds.
    CANCEL_MANY = "/queue/jobs/cancel-many";
    /// POST: queue dead letters again.
    REDRIVE = "/queue/jobs/redrive";
    /// POST: complete many jobs of one lease.
    COMPLETE_MANY = "/queue/jobs/complete-many";
    /// POST: jobs for a worker, in leases; with `wait_sec` it waits for some.
    CLAIM = "/queue/claim";
    /// GET: dispatches that wait to be taken up.
    DISPATCHABLE = "/queue/dispatchable";
    /// POST: look now.
    KICK = "/queue/kick";
    /// POST: skip an addon or a type.
    PAUSE = "/queue/pause";
    /// POST: skip it no longer.
    RESUME = "/queue/resume";
    /// GET: what is skipped.
    PAUSES = "/queue/pauses";
    /// POST: capacity, or the take-up of a dispatch.
    LEASE_REQUEST = "/lease/request";
    /// GET: leases that hold.
    LEASES = "/lease";
    /// GET: one lease.
    LEASE = "/lease/{lease_id}";
    /// POST: still here.
    HEARTBEAT = "/lease/{lease_id}/heartbeat";
    /// POST: still here, for many leases of one worker.
    HEARTBEAT_MANY = "/lease/heartbeat-many";
    /// POST: what a running job tells.
    REPORT = "/lease/{lease_id}/report";
    /// POST: give it back.
    RELEASE = "/lease/{lease_id}/release";
    /// POST: take it away.
    REVOKE = "/lease/{lease_id}/revoke";
    /// POST: the processes that work under it.
    PID = "/lease/{lease_id}/pid";
    /// GET: all schedules; POST: a new one.
    SCHEDULES = "/schedules";
    /// GET, PUT, DELETE: one schedule.
    SCHEDULE = "/schedules/{schedule_id}";
    /// POST: it fires no more.
    SCHEDULE_PAUSE = "/schedules/{schedule_id}/pause";
    /// POST: it fires again.
    SCHEDULE_RESUME = "/schedules/{schedule_id}/resume";
    /// GET: how things stand.
    STATUS = "/status";
    /// GET: counts and histograms since the start.
    STATS = "/stats";
    /// GET: how jobs did, by addon and type.
    HISTORY = "/history";
    /// GET: what was decided last.
    DECISIONS = "/decisions";
    /// GET: how busy the machine was.
    LOAD = "/load";
    /// POST: what the host measured of itself.
    SIGNALS = "/signals";
    /// GET: who works here.
    WORKERS = "/workers";
    /// GET: the policy; PUT: another.
    POLICY = "/policy";
    /// POST: is this a policy?
    POLICY_VALIDATE = "/policy/validate";
    /// POST: take no new jobs, or take them again.
    DRAIN = "/drain";
    /// POST: a copy of the database, while it is used.
    BACKUP = "/backup";
    /// GET: events as they happen (server-sent events).
    EVENTS = "/events";
    /// GET: all webhooks; POST: a new one.
    WEBHOOKS = "/webhooks";
    /// DELETE: one webhook.
    WEBHOOK = "/webhooks/{webhook_id}";
    /// GET: all tokens, without their secrets; POST: a new one.
    TOKENS = "/tokens";
    /// DELETE: one token.
    TOKEN = "/tokens/{token_id}";
}

/// GET, without a token: the process is alive.
pub const HEALTH: &str = "/healthz";
/// GET, without a token: it can take jobs.
pub const READY: &str = "/readyz";
/// GET: for Prometheus.
pub const METRICS: &str = "/metrics";
/// GET: the description of all this.
pub const OPENAPI: &str = "/openapi.json";

/// A pattern with its one hole filled.
///
/// ```
/// use jobtree_protocol::{JobId, paths};
///
/// let id: JobId = "019a0000-0000-7000-8000-000000000000".parse().unwrap();
/// assert_eq!(
///     paths::at(paths::CANCEL, id),
///     "/api/system/scheduler/queue/jobs/019a0000-0000-7000-8000-000000000000/cancel"
/// );
/// ```
pub fn at(pattern: &str, id: impl Display) -> String {
    match (pattern.find('{'), pattern.find('}')) {
        (Some(open), Some(close)) if open < close => {
            format!("{}{id}{}", &pattern[..open], &pattern[close + 1..])
        }
        _ => pattern.to_owned(),
    }
}
