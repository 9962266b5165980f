//! A run as a span of `tracing`, with the feature of that name; without it, nothing.
//!
//! The span is below no other of this process: it begins where the job's trace was when it was submitted, which the field
//! `traceparent` tells, and with the feature `otel` OpenTelemetry is told, too.

use jobtree_protocol::{JobView, LeaseId};

/// The span of one run.
#[cfg(feature = "tracing")]
pub(crate) struct Trace(tracing::Span);

#[cfg(feature = "tracing")]
impl Trace {
    pub(crate) fn of(job: &JobView, lease: LeaseId) -> Self {
        let span = tracing::info_span!(
            target: "jobtree::worker",
            parent: None,
            "job",
            otel.name = format!("job {}", job.job_type),
            otel.kind = "consumer",
            job_id = %job.job_id,
            job_type = job.job_type.as_str(),
            addon = job.addon_id.as_str(),
            attempt = job.attempts + job.rescues + 1,
            lease_id = %lease,
            traceparent = %job.trace(),
            outcome = tracing::field::Empty,
            error = tracing::field::Empty,
        );
        #[cfg(feature = "otel")]
        {
            use tracing_opentelemetry::OpenTelemetrySpanExt;
            // An error says that nobody exports it.
            let _ = span.set_parent(job.trace().context());
        }
        Trace(span)
    }

    pub(crate) fn span(&self) -> &tracing::Span {
        &self.0
    }

    /// Runs the handler, as the job of the tree that this is called in: those below it are spans, too. If it has a thread
    /// of its own, the span is entered there.
    pub(crate) fn around<T>(&self, has_own_thread: bool, handler: impl FnOnce() -> T) -> T {
        if let Some(run) = jobtree_runtime::Job::current() {
            run.trace_below(&self.0);
        }
        if has_own_thread {
            self.0.in_scope(handler)
        } else {
            handler()
        }
    }

    pub(crate) fn ended(&self, outcome: &'static str, error: Option<&str>) {
        self.0.record("outcome", outcome);
        if let Some(error) = error {
            self.0.record("error", error);
        }
    }
}

/// Nothing.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Trace;

#[cfg(not(feature = "tracing"))]
impl Trace {
    pub(crate) fn of(_: &JobView, _: LeaseId) -> Self {
        Trace
    }

    pub(crate) fn around<T>(&self, _: bool, handler: impl FnOnce() -> T) -> T {
        handler()
    }

    pub(crate) fn ended(&self, _: &'static str, _: Option<&str>) {}
}
