//! Jobs as spans of `tracing`, below those that a subscriber wants to follow.
//!
//! A span for each job of a program would be too many. So none has one, unless [`Job::trace_below`] was called for a job
//! above it: then each job that is made below is a span below that of its parent, from when it is made until it has
//! ended. A program that follows no job pays a load for each job.
//!
//! Spans are not *entered*: a job may wait on a stack of its own while its thread does something else, and another
//! thread may go on with it. Who wants to say something in a job's span names it: `tracing::info!(parent: &span, …)` with
//! [`Job::span`].
//!
//! No lock of a job is held when a subscriber's code runs, nor is the map's. A panic of a subscriber is recorded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jobtree_base::user_code::{Place, call_user};
use tracing::Span;

use crate::error::JobId;
use crate::job::Job;
use crate::node::Node;
use crate::path::given_label;
use crate::word::JobState;

/// The number of jobs that have spans. Relaxed everywhere: a job is made below a followed one by a thread that knows that job,
/// and so after it was counted.
static FOLLOWED: AtomicUsize = AtomicUsize::new(0);

/// The spans of jobs that have not ended, by the jobs' ids, which are unique in a process.
static SPANS: Mutex<Option<HashMap<u64, Followed>>> = Mutex::new(None);

struct Followed {
    span: Span,
    /// `true` if the span was made here, for this job; else it is another job's.
    is_own: bool,
}

fn spans() -> MutexGuard<'static, Option<HashMap<u64, Followed>>> {
    // No thread runs foreign code under it.
    SPANS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_anybody_followed() -> bool {
    FOLLOWED.load(Ordering::Relaxed) > 0
}

fn span_of(job: u64) -> Option<Span> {
    let known = spans();
    known
        .as_ref()?
        .get(&job)
        .map(|followed| followed.span.clone())
}

fn keep(job: u64, span: Span, is_own: bool) {
    let followed = Followed { span, is_own };
    let before = spans().get_or_insert_default().insert(job, followed);
    if before.is_none() {
        FOLLOWED.fetch_add(1, Ordering::Relaxed);
    }
    // Here, where no lock is held: the last of a span closes it, which is the subscriber's to do.
    drop(before);
}

fn forget(job: u64) -> Option<Followed> {
    let followed = spans().as_mut()?.remove(&job)?;
    FOLLOWED.fetch_sub(1, Ordering::Relaxed);
    Some(followed)
}

/// A job was made, and nothing of it has run yet.
#[inline]
pub(crate) fn created(job: &Node, parent: JobId) {
    if is_anybody_followed() {
        call_user(Place::Handler, || follow(job, parent));
    }
}

#[cold]
fn follow(job: &Node, parent: JobId) {
    let Some(above) = span_of(parent.as_u64()) else {
        return;
    };
    let label = given_label(job);
    let span = tracing::debug_span!(
        target: "jobtree",
        parent: &above,
        "task",
        otel.name = label.as_deref().unwrap_or("task"),
        label = label.as_deref(),
        job = job.id,
        state = tracing::field::Empty,
    );
    // If no subscriber wants to hear of such small things, those below may still be wanted.
    match span.is_disabled() {
        true => keep(job.id, above, false),
        false => keep(job.id, span, true),
    }
}

/// A job has ended.
#[inline]
pub(crate) fn ended(job: JobId, state: JobState) {
    if is_anybody_followed()
        && let Some(followed) = forget(job.as_u64())
    {
        call_user(Place::Handler, move || {
            if followed.is_own {
                followed.span.record("state", state.name());
            }
        });
    }
}

impl Job {
    /// Has every job that is made below this one from now on be a span of `tracing` below `span`: of the name `task`,
    /// with the fields `label` (if it has one), `job` (its id) and, when it has ended, `state`, on level DEBUG, with the target `jobtree`.
    /// This job is `span` itself, until it has ended.
    ///
    /// A span that has no listener changes nothing.
    ///
    /// Spans that are known by [`Job::span`] are not entered: see there.
    pub fn trace_below(&self, span: &Span) {
        if span.is_disabled() {
            return;
        }
        let id = self.id().as_u64();
        keep(id, span.clone(), false);
        if self.is_ended() {
            drop(forget(id));
        }
    }

    /// The span of this job, if it or one above it is followed ([`trace_below`](Self::trace_below)).
    ///
    /// It is to be named (`tracing::info!(parent: &span, "…")`) and not to be entered, except around code that does
    /// not wait: a job that waits may go on elsewhere, while its thread does something else.
    pub fn span(&self) -> Option<Span> {
        if !is_anybody_followed() {
            return None;
        }
        span_of(self.id().as_u64())
    }
}
