//! The limits of the layer above on starting tasks and threads.
//!
//! The pool knows nothing of budgets. A layer that limits what runs in a context puts a [`Gate`] beside its account into
//! the context's [`Meter`](super::fuel::Meter); the pool asks it before it starts a task or a thread for code in that
//! context. Without a gate nothing is asked, for the price of one comparison.
//!
//! Forks (`join`, parallel loops, `install`) are not asked for: they are computation of the code that forks, run in its
//! context and are over when it goes on.

use std::error::Error;
use std::sync::Arc;

use crate::context::{self, ContextRef};
use crate::raw::fuel::Meter;

/// The reason of a refusal. Its message says which capability or budget is missing, and what to do.
pub type Refused = Box<dyn Error + Send + Sync>;

/// The answer to a request: the right to run, to be kept by the tasks, or why they must not be started.
pub type Answer = Result<Arc<dyn TaskPermit>, Refused>;

/// The decisions of the layer above, for all code with the same kind of account.
#[derive(Debug)]
pub struct Gate {
    /// Decides whether the code of an account may start tasks.
    ///
    /// # Safety
    /// The account is that of a meter with this gate, and is alive during the call.
    pub admit: unsafe fn(*const (), TaskRequest) -> Answer,
    /// Decides whether the code of an account may start threads of its own.
    ///
    /// # Safety
    /// As for `admit`.
    pub start_threads: unsafe fn(*const ()) -> Result<(), Refused>,
}

/// The tasks that some code wants to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRequest {
    /// The number of tasks. They are allowed all together or not at all.
    pub tasks: u64,
    /// The context in which they will run.
    pub place: TaskPlace,
}

/// The context of a task, seen from the account that has to allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskPlace {
    /// A context with the account's own meter, whose owner waits for the task.
    Inside,
    /// Another context: the task may outlive the code that starts it, and only its permit keeps it within the limits.
    Outside,
}

/// The right of the tasks of one request to run. It is dropped when the last of them has ended.
pub trait TaskPermit: Send + Sync {
    /// Runs one of the tasks within its limits.
    fn run(&self, task: &mut dyn FnMut());
}

/// Runs `body` within the limits of `permit`.
pub(crate) fn run_within(permit: &dyn TaskPermit, body: impl FnOnce()) {
    let mut body = Some(body);
    permit.run(&mut || {
        if let Some(body) = body.take() {
            body();
        }
    });
}

/// Returns `true` if the calling code may start what it likes.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    context::with_current(|context| context.is_none_or(|context| context.meter().gate.is_none()))
}

/// [`is_open`], for tasks that will run in `context`.
///
/// # Safety
/// `context` must be null or alive.
#[inline(always)]
pub(crate) unsafe fn is_open_in(context: ContextRef) -> bool {
    // SAFETY: by contract.
    let is_open_there = unsafe { context.get() }.is_none_or(|there| there.meter().gate.is_none());
    is_open_there && is_open()
}

/// Asks the gate of `meter`; `None` if there is none.
///
/// # Safety
/// `meter` is that of a context that is alive during the call.
unsafe fn ask(meter: &Meter, tasks: usize, place: TaskPlace) -> Option<Answer> {
    let request = TaskRequest {
        tasks: tasks as u64,
        place,
    };
    // SAFETY: the account is beside its gate, and outlives the context.
    meter
        .gate
        .map(|gate| unsafe { (gate.admit)(meter.account, request) })
}

/// Asks for tasks that no code waits for. `None` if they must not be started and the calling code, or the code that waits for
/// it on another thread, unwinds, so that this cannot be said by another panic: then they are to be dropped.
///
/// # Panics
/// If they must not be started.
pub(crate) fn admit_detached(tasks: usize) -> Option<Arc<dyn TaskPermit>> {
    let asked = context::with_current(|context| {
        // SAFETY: the current context is alive.
        context.and_then(|context| unsafe { ask(context.meter(), tasks, TaskPlace::Outside) })
    });
    match asked {
        None => Some(Arc::new(NoLimits)),
        Some(Ok(permit)) => Some(permit),
        Some(Err(_)) if context::is_unwinding() => None,
        Some(Err(refused)) => refuse(&*refused),
    }
}

/// Asks for tasks of a scope, which will run in the scope's `context`: its account has to allow them, and so has that of
/// the calling code, if that is another one.
///
/// While the calling code, or the code that waits for it on another thread, unwinds, nothing is refused: the tasks end with
/// the scope, and a second panic would end the process.
///
/// # Safety
/// `context` must be null or alive.
///
/// # Panics
/// If they must not be started.
pub(crate) unsafe fn admit_in_scope(context: ContextRef, tasks: usize) -> Arc<dyn TaskPermit> {
    // SAFETY: by contract.
    let there = unsafe { Meter::of(context) };
    // SAFETY: by contract.
    let scope = unsafe { ask(there, tasks, TaskPlace::Inside) };
    let here = crate::raw::fuel::meter();
    let caller = match here.account == there.account {
        true => None,
        // SAFETY: the current context is alive.
        false => unsafe { ask(&here, tasks, TaskPlace::Outside) },
    };
    let mut permits: [Option<Arc<dyn TaskPermit>>; 2] = [None, None];
    for (permit, asked) in permits.iter_mut().zip([scope, caller]) {
        *permit = match asked {
            None => None,
            Some(Ok(permit)) => Some(permit),
            Some(Err(_)) if context::is_unwinding() => None,
            Some(Err(refused)) => refuse(&*refused),
        };
    }
    match permits {
        [None, None] => Arc::new(NoLimits),
        [Some(one), None] | [None, Some(one)] => one,
        [Some(scope), Some(caller)] => Arc::new(Both(scope, caller)),
    }
}

/// Asks whether the calling code may start threads of its own.
pub(crate) fn may_start_threads() -> Result<(), Refused> {
    context::with_current(|context| match context {
        None => Ok(()),
        Some(context) => match context.meter().gate {
            None => Ok(()),
            // SAFETY: the account is beside its gate, and the current context is alive.
            Some(gate) => unsafe { (gate.start_threads)(context.meter().account) },
        },
    })
}

#[cold]
#[inline(never)]
fn refuse(refused: &dyn Error) -> ! {
    panic!("jobtree: a task was not started: {refused}")
}

/// The permit of code that has no limits.
struct NoLimits;

impl TaskPermit for NoLimits {
    fn run(&self, task: &mut dyn FnMut()) {
        task();
    }
}

/// The permits of a scope and of another account whose code starts tasks there.
struct Both(Arc<dyn TaskPermit>, Arc<dyn TaskPermit>);

impl TaskPermit for Both {
    fn run(&self, task: &mut dyn FnMut()) {
        let Both(scope, caller) = self;
        scope.run(&mut || caller.run(task));
    }
}
