//! What happens to jobs, as spans of `tracing`, and the trace that a request names.
//!
//! Each event of the trail, when it is durable, is a short span named `queue` (target `jobtree::queue`, level DEBUG) with
//! one line in it. Its fields tell the job and its trace, so that whoever collects them has one trace of a job, from its
//! submission on; a worker's span of the run and of each job below it belong to the same. With the feature `otel` they are
//! below the step of the trace that the job was submitted in for OpenTelemetry, too.
//!
//! If nobody listens, a commit costs one question.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::HeaderMap;
use jobtree_protocol::{Event, EventKind, JobId, SubmitRequest, TraceParent};
use jobtree_queue::JobRecord;
use jobtree_store::Written;
use tracing::Level;
use tracing::field::Empty;

/// The header `traceparent` of a request. One that is wrong is as good as none, as its standard wants it: it may come from
/// something on the way that the sender does not know of.
pub(crate) struct TraceHeader(Option<String>);

impl TraceHeader {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all("traceparent").iter();
        let text = match (given.next(), given.next()) {
            (Some(one), None) => one.to_str().ok().map(str::trim),
            _ => None,
        };
        let good = text.filter(|text| text.parse::<TraceParent>().is_ok());
        Self(good.map(str::to_owned))
    }

    /// For a job that names no trace itself.
    pub(crate) fn fill(&self, request: &mut SubmitRequest) {
        if request.traceparent.is_none() {
            request.traceparent.clone_from(&self.0);
        }
    }
}

/// Called after each commit.
pub(crate) fn tell(written: &[Written]) {
    if !tracing::span_enabled!(target: "jobtree::queue", Level::DEBUG) {
        return;
    }
    for written in written {
        let changes = &written.changes;
        let jobs: HashMap<JobId, &JobRecord> =
            changes.jobs.iter().map(|job| (job.id, &**job)).collect();
        for event in &changes.events {
            match (event.job_id, event.lease_id) {
                // That its log has grown is no step of a job.
                _ if event.kind == EventKind::Log => {}
                (Some(id), _) => {
                    if let Some(job) = jobs.get(&id) {
                        tell_of(event, job);
                    }
                }
                // What concerns a lease concerns the jobs under it.
                (None, Some(lease)) => {
                    let under = |job: &&Arc<JobRecord>| job.lease_id == Some(lease);
                    let under = changes.jobs.iter().filter(under);
                    under.for_each(|job| tell_of(event, job));
                }
                (None, None) => {}
            }
        }
    }
}

/// Whether the reason is the scheduler's own words. What jobs, workers and callers say may hold what does not belong into a log.
fn is_ours(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Admitted
            | EventKind::Denied
            | EventKind::Dispatching
            | EventKind::LeaseGranted
            | EventKind::LeaseExpired
            | EventKind::Timeout
            | EventKind::DeadlineAtRisk
    )
}

fn tell_of(event: &Event, job: &JobRecord) {
    let intent = &*job.intent;
    let trace = intent
        .traceparent
        .unwrap_or_else(|| TraceParent::of_job(job.id));
    let kind = event.kind.as_str();
    let span = tracing::debug_span!(
        target: "jobtree::queue",
        parent: None,
        "queue",
        otel.name = kind,
        event = kind,
        job_id = %job.id,
        job_type = intent.job_type.as_str(),
        addon = intent.addon_id.as_str(),
        traceparent = %trace,
        attempt = event.attempt,
        lease_id = Empty,
        node_id = Empty,
        reason = event.reason.as_deref().filter(|_| is_ours(event.kind)),
    );
    if let Some(lease) = &event.lease_id {
        span.record("lease_id", tracing::field::display(lease));
    }
    if let Some(node) = &event.node_id {
        span.record("node_id", tracing::field::display(node));
    }
    #[cfg(feature = "otel")]
    {
        use tracing_opentelemetry::OpenTelemetrySpanExt;
        // An error says that nobody exports it.
        let _ = span.set_parent(trace.context());
    }
    span.in_scope(|| tracing::debug!(target: "jobtree::queue", "{kind}"));
}
