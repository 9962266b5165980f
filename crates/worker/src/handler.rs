//! What users write: a function for each type of job, and what it can say and ask while it runs.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jobtree_base::user_owned::UserOwned;
use jobtree_protocol::{Advice, JobId, JobView, Json, Progress, Usage};
use jobtree_runtime::{BoxError, block_on};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::held::Held;
use crate::log::RunLog;
use crate::trace::Trace;

/// One run of a job, as its handler sees it. Clones are the same run.
///
/// To learn that it shall stop, a handler uses what every job of a runtime uses: [`checkpoint`], or anything that
/// waits.
///
/// [`checkpoint`]: jobtree_runtime::checkpoint
#[derive(Clone)]
pub struct Run(Arc<Inner>);

struct Inner {
    job: JobView,
    held: Arc<Held>,
    log: RunLog,
    trace: Trace,
    /// How long it may go on after it was asked to yield, if it can yield.
    yield_grace: Mutex<Option<Duration>>,
}

impl Run {
    pub(crate) fn new(job: JobView, held: Arc<Held>) -> Self {
        let trace = Trace::of(&job, held.lease);
        let log = RunLog::default();
        Run(Arc::new(Inner {
            job,
            held,
            log,
            trace,
            yield_grace: Mutex::new(None),
        }))
    }

    /// The job, as it was when it was taken up.
    pub fn job(&self) -> &JobView {
        &self.0.job
    }

    /// Its id: the same for every run of it, so that what is done outside can be done once.
    pub fn id(&self) -> JobId {
        self.0.job.job_id
    }

    /// Which run this is, the first being 1. Runs that ended with a crash are counted, too.
    pub fn attempt(&self) -> u32 {
        self.0.job.attempts + self.0.job.rescues + 1
    }

    /// Tells how far it is, 0 to 1, and in words, of which the first kilobyte counts. It is passed on a few times a second
    /// at most, and before the run counts as ended; the newest counts.
    pub fn progress(&self, fraction: f64, message: impl Into<String>) {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(1024));
        let message = Some(message).filter(|message| !message.is_empty());
        let fraction = fraction.is_finite().then(|| fraction.clamp(0.0, 1.0));
        self.0.held.tell(self.id(), Progress { fraction, message });
    }

    /// Says what this run used, for its completion. What is said last counts. The scheduler compares it with the declared cost.
    /// Threads of a handler are not measured by the worker: a handler that starts processes, or measures itself, says so.
    pub fn report_usage(&self, usage: Usage) {
        self.0.held.put_usage(usage);
    }

    /// Adds a line to the job's log, which whoever may look at the job can read. It is passed on a few times a second,
    /// and before the run counts as ended. A quarter of a megabyte may wait for that; what is more is left out, and a
    /// line says so.
    pub fn log(&self, line: impl AsRef<str>) {
        if self.0.log.add(line.as_ref()) {
            self.0.held.ring();
        }
    }

    /// Returns `true` if a line of so many bytes can be logged now without being left out. It cannot while the daemon has not
    /// taken what was logged before.
    pub fn log_has_room(&self, bytes: usize) -> bool {
        self.0.log.has_room(bytes)
    }

    /// Returns how many bytes of the log the daemon has taken: it grows as long as waiting for room makes sense.
    pub fn logged_bytes(&self) -> u64 {
        self.0.log.sent()
    }

    /// The span of this run, which jobs below it are below, too; see `trace_below` of a `Job`.
    ///
    /// It is to be named (`tracing::info!(parent: run.span(), "…")`). A handler that blocks has a thread of its own, on
    /// which it is entered. Others must not do that around anything that waits: a job that waits may go on
    /// elsewhere, while its thread does something else.
    #[cfg(feature = "tracing")]
    pub fn span(&self) -> &tracing::Span {
        self.0.trace.span()
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.0.trace
    }

    pub(crate) fn run_log(&self) -> &RunLog {
        &self.0.log
    }

    pub(crate) fn give_up_log(&self) {
        self.0.log.give_up();
    }

    /// Whether the lease is lost: somebody else may run the job soon. The run was asked to stop, and what it does from now
    /// on does not count. For handlers that stop in steps, and must take the last one now.
    pub fn lease_is_lost(&self) -> bool {
        self.0.held.lost().is_some()
    }

    /// What the scheduler asks of this worker: to go slower, to save, to give the lease back ([`GiveBack`],
    /// [`can_yield`](Run::can_yield)).
    pub fn advice(&self) -> Advice {
        self.0.held.advice()
    }

    /// Returns `true` if a user has paused this run. A handler that can make its work stand still does so until this is `false`
    /// again, and says so by [`stands_still`](Run::stands_still).
    pub fn is_paused(&self) -> bool {
        self.0.held.is_paused()
    }

    /// Says that this run stands still, or goes on. Until it is said, `explain` tells that the run was asked to pause.
    pub fn stands_still(&self, still: bool) {
        self.0.held.stands_still(still);
    }

    /// Says that this run can be stopped and begun again without harm. When the scheduler asks to yield and has not taken
    /// that back within `grace`, the run and everything below it is cancelled, and the job waits again: nothing is counted,
    /// not even as a failure if the handler then returns an error, unless that is [`Permanent`]. What must not be
    /// interrupted goes into a `shield`.
    ///
    /// A handler that does not say so is only told, by [`advice`](Run::advice).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use jobtree_runtime::{BoxError, checkpoint};
    /// use jobtree_worker::Run;
    ///
    /// fn index(pages: Vec<String>, run: &Run) -> Result<(), BoxError> {
    ///     run.can_yield(Duration::from_secs(10));
    ///     for page in pages {
    ///         checkpoint()?;
    ///         // Index the page, unless an earlier run has.
    ///         # drop(page);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn can_yield(&self, grace: Duration) {
        let mut can = self
            .0
            .yield_grace
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *can = Some(grace);
        drop(can);
        if self.advice() == Advice::Yield {
            self.0.held.ring();
        }
    }

    /// How long the run may go on after it was asked to yield, if it can yield.
    pub(crate) fn yield_grace(&self) -> Option<Duration> {
        let can = self.0.yield_grace.lock();
        *can.unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("job", &self.id())
            .field("type", &self.0.job.job_type)
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

/// An error that no further attempt will mend: a handler that returns it ends the job as FAILED, whatever attempts are
/// left.
///
/// ```
/// use jobtree_worker::Permanent;
/// use jobtree_runtime::BoxError;
///
/// fn send(address: &str) -> Result<(), BoxError> {
///     if !address.contains('@') {
///         return Err(Permanent::new("no such address").into());
///     }
///     Ok(())
/// }
/// assert!(send("nobody").unwrap_err().is::<Permanent>());
/// ```
#[derive(Debug)]
pub struct Permanent(BoxError);

impl Permanent {
    /// Wraps an error.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Permanent(error.into())
    }
}

impl fmt::Display for Permanent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Permanent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Gives the job back: a handler that returns it has neither done the job nor failed. The job waits again, and nothing
/// is counted. For a run that was asked to yield and has saved what it has, or that finds that it is too early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GiveBack {
    reason: String,
    snooze: Option<Duration>,
}

impl GiveBack {
    /// With a reason, which the job's trail tells: one line, of which the first kilobyte counts.
    pub fn because(reason: impl Into<String>) -> Self {
        let mut reason = reason.into().replace(char::is_control, " ");
        reason.truncate(reason.floor_char_boundary(1024));
        GiveBack {
            reason,
            snooze: None,
        }
    }

    /// Snoozes the job: it is not started again before this time has passed. Parts of a second count as a whole one.
    #[must_use]
    pub fn snooze(mut self, delay: Duration) -> Self {
        self.snooze = Some(delay);
        self
    }

    pub(crate) fn snooze_sec(&self) -> Option<u32> {
        let delay = self.snooze?;
        let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
        Some(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for GiveBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "given back: {}", self.reason)
    }
}

impl std::error::Error for GiveBack {}

type Function = dyn Fn(&Run) -> Result<Option<Json>, BoxError> + Send + Sync;

/// A handler without its types.
#[derive(Clone)]
pub(crate) struct Handler {
    function: Arc<Function>,
    pub(crate) blocks: bool,
}

impl Handler {
    pub(crate) fn new<P, R, F>(blocks: bool, function: F) -> Self
    where
        P: DeserializeOwned,
        R: Serialize,
        F: Fn(P, &Run) -> Result<R, BoxError> + Send + Sync + 'static,
    {
        // Whatever drops the last handle of a worker drops this, too.
        let function = UserOwned::captured(function);
        let function = move |run: &Run| {
            let payload = payload_of(run.job())?;
            result_of(&function(payload, run)?)
        };
        Handler {
            function: Arc::new(function),
            blocks,
        }
    }

    pub(crate) fn of_future<P, R, F, Fut>(function: F) -> Self
    where
        P: DeserializeOwned,
        R: Serialize,
        F: Fn(P, Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, BoxError>>,
    {
        Handler::new(false, move |payload: P, run: &Run| {
            block_on(function(payload, run.clone()))?
        })
    }

    pub(crate) fn run(&self, run: &Run) -> Result<Option<Json>, BoxError> {
        (self.function)(run)
    }
}

/// A payload that is absent is `null`. One of another shape stays so, however often it is tried.
fn payload_of<P: DeserializeOwned>(job: &JobView) -> Result<P, Permanent> {
    let read = match &job.payload {
        Some(payload) => payload.read(),
        None => serde_json::from_str("null"),
    };
    read.map_err(|error| {
        let job_type = &job.job_type;
        Permanent::new(format!(
            "the payload is not what the handler of {job_type} takes: {error}"
        ))
    })
}

fn result_of<R: Serialize>(result: &R) -> Result<Option<Json>, BoxError> {
    let json = Json::of(result).map_err(|error| {
        Permanent::new(format!("the result cannot be written as JSON: {error}"))
    })?;
    Ok(Some(json).filter(|json| json.text() != "null"))
}
