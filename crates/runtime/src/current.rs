//! The job that code runs in, carried by the pool's context from thread to thread.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use jobtree_pool::raw::sim::unwind_if_ending;
use jobtree_pool::raw::{current_stack, outermost_at_end, waker_of_stack};
use jobtree_pool::{StopSignal, Stopped, UserContext, user_context, with_user_context};
use jobtree_tree::raw::{self, Surroundings};
use jobtree_tree::{BodyResult, BoxError, Cancelled, Job};

use crate::sim;
use crate::{budget, panics};

/// Connects the tree with the pool's contexts and stacks; to be called before the first job runs.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the only user contexts are those of `in_job`, whose job outlives what runs in it.
        unsafe { raw::set_current_source(user_context) };
        // SAFETY: the only stacks that bodies are started on are named by `stack_with_bell`, and run until the bodies return.
        unsafe { raw::set_waker_of_stack(waker_of_stack) };
        raw::set_surroundings(Surroundings {
            outermost: |code| outermost_at_end(code),
            stack: name_of_stack,
            limits: budget::later::limits_for_tree,
            waker: budget::later::waker_for_later,
        });
    });
}

/// Returns a name of the stack that the calling code runs on: that of its fiber, or that of its thread.
pub fn name_of_stack() -> *const () {
    thread_local! {
        static THREAD: u8 = const { 0 };
    }
    let fiber = current_stack();
    if fiber.is_null() {
        THREAD.with(|thread| std::ptr::from_ref(thread).cast())
    } else {
        fiber
    }
}

/// Runs `body` in `job`: whatever it forks belongs to the job, and unwinds when that is cancelled.
pub(crate) fn in_job<R>(job: &Job, body: impl FnOnce() -> R) -> R {
    let context = UserContext {
        user: job.as_ptr(),
        stop: Some(StopSignal::new(raw::stop_word(job), raw::STOP)),
    };
    // SAFETY: `job` is a handle that outlives the call, and with it all that `body` forks.
    unsafe { with_user_context(context, body) }
}

/// Runs the body of `job` and says how it ended.
pub(crate) fn run_body<T>(
    job: &Job,
    body: impl FnOnce() -> Result<T, BoxError>,
) -> (Option<T>, BodyResult) {
    result_of(
        job,
        panic::catch_unwind(AssertUnwindSafe(|| in_job(job, body))),
    )
}

/// What a body returned, or the panic that it ended with, as its value and what the tree shall know of it.
pub(crate) fn result_of<T>(
    job: &Job,
    result: std::thread::Result<Result<T, BoxError>>,
) -> (Option<T>, BodyResult) {
    match result {
        Ok(Ok(value)) => (Some(value), BodyResult::Value),
        Ok(Err(error)) => (None, BodyResult::Failed(error)),
        Err(payload) => (None, judge_panic(job, payload)),
    }
}

fn judge_panic(job: &Job, payload: Box<dyn Any + Send>) -> BodyResult {
    if payload.is::<Stopped>() && job.is_cancelled() {
        return BodyResult::Cancelled;
    }
    BodyResult::Panicked {
        payload,
        location: panics::take_location(job.id()),
    }
}

/// Whether the current job was cancelled, as an error for `?`.
///
/// For bodies that compute for long without a fork, a loop or a wait of ours. It costs an operation, as a
/// [`tick`](crate::tick) does. Outside of a job it is always fine.
///
/// A fork or parallel loop of a cancelled job cannot return an error: it unwinds, as by a panic, up to the job's body. Code that
/// must not be left so, such as the initialiser of a `LazyLock`, runs inside a [`shield`](crate::shield), or returns what this
/// function says.
///
/// ```
/// use jobtree_runtime::{JobError, checkpoint, nursery};
///
/// let outcome = nursery(|n| {
///     n.cancel("enough");
///     for _ in 0.. {
///         checkpoint()?;
///     }
///     Ok(())
/// });
/// assert!(matches!(outcome, Err(JobError::Cancelled(_))));
/// ```
///
/// # Errors
/// If the current job was cancelled, every time again.
#[inline]
pub fn checkpoint() -> Result<(), Cancelled> {
    budget::charge_op();
    sim::point();
    if jobtree_pool::stop_requested() {
        return Err(cancellation());
    }
    Ok(())
}

#[cold]
fn cancellation() -> Cancelled {
    unwind_if_ending();
    match Job::current().and_then(|job| job.cancellation()) {
        Some(cancelled) => cancelled,
        None => unreachable!("only a job that was cancelled sets its stop word"),
    }
}
