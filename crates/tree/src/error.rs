//! The errors with which a job ends, told so that a person can act on them.
//!
//! All of these are cheap to clone: a failure is told to the job's own handle and to every job above it.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use jobtree_base::user_code::{Place, call_user, discard_payload, drop_user, message_of};

use crate::word::Cause;

/// The error that a body returns when it fails. `?` turns every error type into it.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// The outcome of a job: its value or its error.
pub type Outcome<T> = Result<T, JobError>;

/// Names a job for as long as the program runs; ids are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub(crate) u64);

impl JobId {
    /// The id as a number.
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The reason why a job did not end with a value.
#[derive(Clone)]
#[non_exhaustive]
pub enum JobError {
    /// The job's body, or a child's, returned an error.
    Failed(Failure),
    /// The job's body, or a child's, panicked.
    Panicked(Panic),
    /// The job's time limit was reached.
    TimedOut(TimedOut),
    /// The job was cancelled.
    Cancelled(Cancelled),
}

/// An error that a body returned.
#[derive(Clone, Debug)]
pub struct Failure {
    error: Arc<UserError>,
    path: Arc<str>,
    later: Later,
}

/// An error of the user's, whose destructor may panic: the library drops its clones in many places.
struct UserError(Option<BoxError>);

impl UserError {
    fn get(&self) -> &(dyn Error + Send + Sync + 'static) {
        match &self.0 {
            Some(error) => &**error,
            None => unreachable!("taken out by the destructor alone"),
        }
    }
}

impl Drop for UserError {
    fn drop(&mut self) {
        drop_user(Place::Error, self.0.take());
    }
}

impl fmt::Debug for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.get(), f)
    }
}

/// A panic that a body ended with.
#[derive(Clone)]
pub struct Panic {
    caught: Arc<Caught>,
    path: Arc<str>,
    later: Later,
}

struct Caught {
    message: String,
    location: Option<String>,
    /// Taken by the caller that lets the panic go on first.
    payload: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Drop for Caught {
    fn drop(&mut self) {
        let payload = self.payload.get_mut();
        if let Some(payload) = payload.unwrap_or_else(PoisonError::into_inner).take() {
            discard_payload(payload);
        }
    }
}

/// A deadline that came.
#[derive(Clone, Debug)]
pub struct TimedOut {
    job: JobId,
    path: Arc<str>,
    later: Later,
}

/// A cancellation, as the cancelled job sees it.
///
/// It names the job at which the cancellation was asked for. That is how a body that returns it through `?` is told
/// from one that failed: an error that holds this job's own cancellation is no failure of the job.
#[derive(Clone, Debug)]
pub struct Cancelled {
    pub(crate) job: JobId,
    pub(crate) origin: JobId,
    pub(crate) reason: CancelReason,
}

/// The reason of a cancellation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelReason {
    cause: Cause,
    message: Option<Cow<'static, str>>,
}

/// Errors that came after the first one: the first few, and how many there were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Later {
    kept: Option<Arc<[JobError]>>,
    count: usize,
}

impl CancelReason {
    pub(crate) fn new(cause: Cause, message: Option<Cow<'static, str>>) -> CancelReason {
        CancelReason { cause, message }
    }

    /// The kind of reason.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// Returns the message of the caller that cancelled, if it gave one.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    pub(crate) fn into_message(self) -> Option<Cow<'static, str>> {
        self.message
    }
}

impl From<&'static str> for CancelReason {
    fn from(message: &'static str) -> CancelReason {
        CancelReason::new(Cause::Explicit, Some(Cow::Borrowed(message)))
    }
}

impl From<String> for CancelReason {
    fn from(message: String) -> CancelReason {
        CancelReason::new(Cause::Explicit, Some(Cow::Owned(message)))
    }
}

impl From<Cause> for CancelReason {
    fn from(cause: Cause) -> CancelReason {
        CancelReason::new(cause, None)
    }
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.cause {
            Cause::Explicit => "cancelled",
            Cause::Timeout => "its time was over",
            Cause::Parent => "a job above was cancelled",
            Cause::Failure => "a job beside or below it failed",
            Cause::Shutdown => "the runtime ends",
            Cause::Abandoned => "nobody waits for it any more",
        };
        match &self.message {
            Some(message) => f.write_str(message),
            None => f.write_str(cause),
        }
    }
}

impl Cancelled {
    /// The job that was cancelled.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The job at which the cancellation was asked for: this one, or one above it.
    pub fn origin(&self) -> JobId {
        self.origin
    }

    /// Returns the reason of the cancellation.
    pub fn reason(&self) -> &CancelReason {
        &self.reason
    }
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} was cancelled: {}", self.job, self.reason)
    }
}

impl Error for Cancelled {}

impl Failure {
    pub(crate) fn new(error: BoxError, path: Arc<str>) -> Failure {
        Failure {
            error: Arc::new(UserError(Some(error))),
            path,
            later: Later::default(),
        }
    }

    /// The error.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self.error.get()
    }

    /// The labels from the root to the job that failed, with slashes between them.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Panic {
    /// A caught panic of the job at `path`; its location if the one who caught it knows it.
    pub(crate) fn new(
        payload: Box<dyn Any + Send>,
        location: Option<String>,
        path: Arc<str>,
    ) -> Panic {
        let message = message_of(payload.as_ref()).unwrap_or("a value that is no text");
        Panic {
            caught: Arc::new(Caught {
                message: message.to_owned(),
                location,
                payload: Mutex::new(Some(payload)),
            }),
            path,
            later: Later::default(),
        }
    }

    /// Returns the message of the panic.
    pub fn message(&self) -> &str {
        &self.caught.message
    }

    /// The place in the source where it happened, if it is known.
    pub fn location(&self) -> Option<&str> {
        self.caught.location.as_deref()
    }

    /// The labels from the root to the job that panicked.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Lets the panic go on here. The payload goes to the caller that asks first; others get the message.
    pub fn resume(&self) -> ! {
        let payload = self
            .caught
            .payload
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        std::panic::resume_unwind(payload.unwrap_or_else(|| Box::new(self.message().to_owned())))
    }
}

impl fmt::Debug for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Panic")
            .field("message", &self.message())
            .field("location", &self.location())
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl TimedOut {
    pub(crate) fn new(job: JobId, path: Arc<str>) -> TimedOut {
        TimedOut {
            job,
            path,
            later: Later::default(),
        }
    }

    /// The job whose deadline it was.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The labels from the root to the job whose deadline it was.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl JobError {
    fn later_errors(&self) -> Option<&Later> {
        match self {
            JobError::Failed(failure) => Some(&failure.later),
            JobError::Panicked(panic) => Some(&panic.later),
            JobError::TimedOut(timed_out) => Some(&timed_out.later),
            JobError::Cancelled(_) => None,
        }
    }

    /// Returns `true` if both errors tell of the same event.
    pub(crate) fn is_same_event(&self, other: &JobError) -> bool {
        match (self, other) {
            (JobError::Failed(a), JobError::Failed(b)) => Arc::ptr_eq(&a.error, &b.error),
            (JobError::Panicked(a), JobError::Panicked(b)) => Arc::ptr_eq(&a.caught, &b.caught),
            (JobError::TimedOut(a), JobError::TimedOut(b)) => a.job == b.job,
            _ => false,
        }
    }

    /// The same error with what came after it.
    pub(crate) fn with_later(mut self, kept: &[JobError], count: usize) -> JobError {
        if count > 0 {
            let later = Later {
                kept: Some(kept.into()),
                count,
            };
            match &mut self {
                JobError::Failed(failure) => failure.later = later,
                JobError::Panicked(panic) => panic.later = later,
                JobError::TimedOut(timed_out) => timed_out.later = later,
                JobError::Cancelled(_) => {}
            }
        }
        self
    }

    /// Further errors of the job and its children, in the order in which they came. Only the first few are kept; see
    /// [`JobError::more`].
    pub fn secondary(&self) -> &[JobError] {
        self.later_errors()
            .and_then(|later| later.kept.as_deref())
            .unwrap_or_default()
    }

    /// Returns the number of errors that came after this one, kept or not.
    pub fn more(&self) -> usize {
        self.later_errors().map_or(0, |later| later.count)
    }

    /// The labels from the root to the job where it happened; of a cancellation nothing is known.
    pub fn path(&self) -> Option<&str> {
        match self {
            JobError::Failed(failure) => Some(failure.path()),
            JobError::Panicked(panic) => Some(panic.path()),
            JobError::TimedOut(timed_out) => Some(timed_out.path()),
            JobError::Cancelled(_) => None,
        }
    }

    /// Returns `true` if the job was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, JobError::Cancelled(_))
    }

    /// Returns `true` if the job timed out.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, JobError::TimedOut(_))
    }

    /// Several lines for a person: what happened where, because of what, and what else.
    ///
    /// ```
    /// use jobtree_tree::{BodyResult, JobOptions, Tree};
    ///
    /// let tree = Tree::new();
    /// let options = JobOptions::new().label("download").started();
    /// let (job, body) = tree.root().attach(options)?;
    /// body.end(BodyResult::Failed("no route to host".into()));
    /// let report = job.error().unwrap().report().to_string();
    /// assert_eq!(report, "root/download failed: no route to host");
    /// # Ok::<(), jobtree_tree::ParentEnded>(())
    /// ```
    pub fn report(&self) -> impl fmt::Display {
        Report(self)
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Failed(failure) => write!(f, "{} failed: {}", failure.path, failure.error()),
            JobError::Panicked(panic) => {
                write!(f, "{} panicked: {}", panic.path, panic.message())?;
                match panic.location() {
                    Some(location) => write!(f, " (at {location})"),
                    None => Ok(()),
                }
            }
            JobError::TimedOut(timed_out) => write!(f, "{} ran out of time", timed_out.path),
            JobError::Cancelled(cancelled) => cancelled.fmt(f),
        }
    }
}

impl fmt::Debug for JobError {
    /// The message, after the kind of error: it is what `unwrap` shows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            JobError::Failed(_) => "Failed",
            JobError::Panicked(_) => "Panicked",
            JobError::TimedOut(_) => "TimedOut",
            JobError::Cancelled(_) => "Cancelled",
        };
        f.debug_tuple(kind).field(&format_args!("{self}")).finish()
    }
}

impl Error for JobError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            JobError::Failed(failure) => Some(failure.error()),
            JobError::Cancelled(cancelled) => Some(cancelled),
            JobError::Panicked(_) | JobError::TimedOut(_) => None,
        }
    }
}

struct Report<'a>(&'a JobError);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        // The error itself is part of the first line; what lies behind it gets a line each.
        let mut source = match self.0 {
            JobError::Failed(failure) => failure.error().source(),
            _ => None,
        };
        for _ in 0..MOST_SOURCES {
            let Some(error) = source else { break };
            write!(f, "\n  because: {error}")?;
            source = error.source();
        }
        for error in self.0.secondary() {
            write!(f, "\n  then: {error}")?;
        }
        match self.0.more() - self.0.secondary().len() {
            0 => Ok(()),
            1 => write!(f, "\n  and 1 more error"),
            more => write!(f, "\n  and {more} more errors"),
        }
    }
}

/// The most sources of an error that are followed: an error may name itself as its source. Picked by feel, far above what real
/// errors have.
const MOST_SOURCES: usize = 256;

/// Returns the origins of the cancellations that `error` is or that lie behind it. `source` is the user's code: if it
/// panics, the error tells of no cancellation.
pub(crate) fn origins_in(error: &(dyn Error + 'static)) -> Vec<JobId> {
    let origins = || cancellations_in(error).map(Cancelled::origin).collect();
    call_user(Place::Error, origins).unwrap_or_default()
}

fn cancellations_in<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e Cancelled> {
    let chain = std::iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| {
        behind(*error)
    });
    chain
        .take(MOST_SOURCES)
        .filter_map(|error| match error.downcast_ref::<JobError>() {
            Some(JobError::Cancelled(cancelled)) => Some(cancelled),
            _ => error.downcast_ref::<Cancelled>(),
        })
}

/// Returns the error behind an error. An `io::Error` that wraps another one names only that one's source as its own.
fn behind<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    match error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}
