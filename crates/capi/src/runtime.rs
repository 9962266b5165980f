//! The one runtime of the interface, from its start to its end.
//!
//! ```text
//!            init                shutdown                 all jobs have ended, or the time is over
//!   Down ───────────▶ Up ───────────────────▶ Closing ────────────────────────────────────────────▶ Down
//! ```
//!
//! In Closing every job is cancelled; only jobs may still use the interface, to put things in order. Back in Down every
//! handle is stale. A nursery that a thread outside of jobs has made would keep the tree from ending, so Closing
//! abandons it; making one and going to Closing exclude each other by the lock on the state, so none is overlooked.
//!
//! A thread outside of jobs waits as a job of its own under the root (see [`waiting`]): its deadlines are those of this
//! runtime, and the shutdown wakes it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use jobtree_runtime::binding::{BuildError, end_threads};
use jobtree_runtime::{Cancelled, Cause, Job, Runtime, RuntimeBuilder};

use crate::border::{call, is_in_callback};
use crate::leftovers;
use crate::monitor::forget_events;
use crate::objects::{OBJECTS, Object};
use crate::status::CallError;
use crate::status::jt_status::{self, *};

enum State {
    Down,
    Up(Runtime),
    Closing(Runtime),
}

static STATE: RwLock<State> = RwLock::new(State::Down);

/// The state once more, for those who only want to know which it is. Written under the lock.
static PHASE: AtomicU8 = AtomicU8::new(DOWN);
const DOWN: u8 = 0;
const UP: u8 = 1;
const CLOSING: u8 = 2;

fn read() -> RwLockReadGuard<'static, State> {
    STATE.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, State> {
    STATE.write().unwrap_or_else(PoisonError::into_inner)
}

fn enter(state: &mut State, next: State) {
    let phase = match &next {
        State::Down => DOWN,
        State::Up(_) => UP,
        State::Closing(_) => CLOSING,
    };
    *state = next;
    PHASE.store(phase, Ordering::Release);
}

fn is_down() -> CallError {
    JT_ESHUTDOWN
        .because("there is no runtime: jt_runtime_init was not called, or jt_runtime_shutdown was")
}

/// Whether the caller may use the interface now.
pub(crate) fn check_is_up() -> Result<(), CallError> {
    match PHASE.load(Ordering::Acquire) {
        UP => Ok(()),
        CLOSING if Job::current().is_some() => Ok(()),
        _ => Err(is_down()),
    }
}

/// Runs `body` so that no shutdown begins meanwhile. It must not wait, and must not call the caller's functions.
pub(crate) fn while_up<R>(
    body: impl FnOnce(&Runtime) -> Result<R, CallError>,
) -> Result<R, CallError> {
    match &*read() {
        State::Up(runtime) => body(runtime),
        State::Closing(runtime) if Job::current().is_some() => body(runtime),
        State::Closing(_) | State::Down => Err(is_down()),
    }
}

/// The runtime, for as long as the caller needs it.
pub(crate) fn handle() -> Result<Runtime, CallError> {
    while_up(|runtime| Ok(runtime.clone()))
}

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A job: a cancellation is its own.
    Job,
    /// A thread outside of jobs: only the shutdown cancels it.
    Thread,
}

impl Waiter {
    pub(crate) fn is_cancelled(self, cancelled: &Cancelled) -> CallError {
        match self {
            Waiter::Job => JT_ECANCELED.because(cancelled.to_string()),
            Waiter::Thread => JT_ESHUTDOWN.because("the runtime was shut down during the call"),
        }
    }
}

/// Runs `body`, which waits or runs a function of the caller's, in a job of this runtime.
pub(crate) fn waiting<R>(
    body: impl FnOnce(Waiter) -> Result<R, CallError>,
) -> Result<R, CallError> {
    if Job::current().is_some() {
        return body(Waiter::Job);
    }
    let runtime = handle()?;
    let mut result = None;
    // The outcome of that job says nothing that the result does not.
    let _ = runtime.nursery(|_| {
        result = Some(body(Waiter::Thread));
        Ok(())
    });
    result.unwrap_or_else(|| Err(is_down()))
}

/// A number of milliseconds; negative is for ever.
pub(crate) fn limit(milliseconds: i64) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

/// Starts the runtime with so many worker threads; with 0, as many as the variable JOBTREE_WORKERS says, or else as there
/// are CPUs.
///
/// Returns JT_EBUSY if there is one already, and in a callback, JT_EINVAL if the number is too large, JT_ENOMEM if the system gives no
/// threads. After jt_runtime_shutdown it may be started again.
#[unsafe(no_mangle)]
pub extern "C" fn jt_runtime_init(workers: u32) -> jt_status {
    call(|| {
        let mut builder = Runtime::builder();
        if workers > 0 {
            builder = builder.workers(workers as usize);
        }
        start(builder, 0)
    })
}

/// Starts the runtime that `builder` describes, which keeps so many events.
pub(crate) fn start(builder: RuntimeBuilder, events: usize) -> Result<(), CallError> {
    if is_in_callback() {
        return Err(
            JT_EBUSY.because("a callback cannot start a runtime: the last one may be ending")
        );
    }
    // Objects that were put in by calls that the last shutdown overtook.
    let left = {
        let mut state = write();
        if !matches!(*state, State::Down) {
            return Err(JT_EBUSY.because("there is a runtime already; shut it down first"));
        }
        let runtime = builder.build().map_err(|error| {
            let status = match error {
                BuildError::Thread(_) => JT_ENOMEM,
                _ => JT_EINVAL,
            };
            status.because(error.to_string())
        })?;
        if events > 0 {
            runtime.record_events(events);
        }
        let left = OBJECTS.clear();
        forget_events();
        enter(&mut state, State::Up(runtime));
        left
    };
    // Without the lock: what goes with them may be the program's.
    abandon_all(left, Duration::ZERO);
    Ok(())
}

/// Cancels all jobs, waits for them up to `timeout_ms` milliseconds (for ever if that is negative), and ends the
/// threads. Threads that wait in a function of this interface return from it. Afterwards every handle is stale.
///
/// Returns JT_ETIMEDOUT if jobs were still running; jt_last_error names them. They go on, and what they
/// use must stay there; every function they call returns JT_ESHUTDOWN or JT_ECANCELED. Returns JT_EBUSY
/// inside of a job or callback, or if another thread is at it, and JT_ESHUTDOWN if there is no runtime.
#[unsafe(no_mangle)]
pub extern "C" fn jt_runtime_shutdown(timeout_ms: i64) -> jt_status {
    call(|| {
        if Job::current().is_some() || is_in_callback() {
            return Err(JT_EBUSY.because("a job or callback cannot wait for the end of all jobs"));
        }
        let runtime = begin_to_close()?;
        abandon_those_of_threads();
        let (began, limit) = (Instant::now(), limit(timeout_ms).unwrap_or(Duration::MAX));
        let result = runtime.shutdown(limit);
        enter(&mut write(), State::Down);
        abandon_all(OBJECTS.clear(), limit.saturating_sub(began.elapsed()));
        leftovers::clear();
        forget_events();
        result.map_err(|stragglers| JT_ETIMEDOUT.because(stragglers.to_string()))
    })
}

fn begin_to_close() -> Result<Runtime, CallError> {
    let mut state = write();
    let runtime = match &*state {
        State::Down => return Err(is_down()),
        State::Closing(_) => return Err(JT_EBUSY.because("another thread shuts it down")),
        State::Up(runtime) => runtime.clone(),
    };
    enter(&mut state, State::Closing(runtime.clone()));
    Ok(runtime)
}

fn abandon_those_of_threads() {
    for object in OBJECTS.all() {
        if let Object::Nursery(nursery) = object
            && nursery.owner.is_none()
        {
            nursery.scope.job().cancel(Cause::Shutdown);
            nursery.scope.abandon();
        }
    }
}

/// Lets go of objects; without this, a nursery would wait for its jobs. Threads have until `limit` to end: what runs on them
/// are jobs, so nothing does if all of those have ended.
fn abandon_all(objects: Vec<Object>, limit: Duration) {
    for object in objects {
        match object {
            Object::Nursery(nursery) => nursery.scope.abandon(),
            Object::Channel(channel) => {
                channel.sender.close();
            }
            Object::Dispatcher(dispatcher) => {
                end_threads(&dispatcher, limit);
            }
            Object::Scope(_) | Object::Job(_) | Object::Deferred(_) => {}
        }
    }
}
