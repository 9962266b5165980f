//! The budgets of jobs: asking for them, charging them, and deciding about jobs that have used theirs up.

use std::ffi::c_void;
use std::mem::size_of;

use jobtree_base::user_code::Place;
use jobtree_runtime::binding::{recharge, supervise_budgets, within_limits};
use jobtree_runtime::budget::{self, Budget, Decision, Exhausted, JobBudget, RechargeError};

use crate::border::{callback, is_null, put, required, running};
use crate::current;
use crate::growing::{self, Growing};
use crate::job::deciding_about;
use crate::launch::Target;
use crate::limits::{
    counter_number, jt_budget_t, jt_capabilities_t, number_of_profile, read_budget,
};
use crate::objects::{self, OBJECTS, Object, jt_job_t, jt_scope_t};
use crate::status::CallError;
use crate::status::jt_status::{self, *};
use crate::task::{Argument, jt_release_fn};

/// A picture of a job's budget. Set `size` to sizeof(jt_job_budget_t).
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jt_job_budget_t {
    /// sizeof(jt_job_budget_t).
    pub size: usize,
    /// The profile of its runtime: a jt_profile_t.
    pub profile: i32,
    /// What it has used up and waits for: a jt_counter_t, or -1 if it does not.
    pub exhausted: i32,
    /// What it was given when it was spawned.
    pub granted: jt_budget_t,
    /// What is left.
    pub remaining: jt_budget_t,
    /// How often it has used up a counter that is refilled.
    pub exhaustions: u64,
    /// How often it was given more.
    pub recharges: u64,
    /// Jobs spawned out of it that have not ended.
    pub tasks: u64,
    /// Channels made in it that are still there.
    pub channels: u64,
    /// Bytes that count for it and the jobs below.
    pub memory_used: u64,
}

// SAFETY: `repr(C)`, begins with its size, and consists of numbers.
unsafe impl Growing for jt_job_budget_t {
    const NAME: &'static str = "jt_job_budget_t";
}

/// What becomes of a job that has used up its budget.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_decision_t {
    /// It waits until jt_recharge gives it more, or it is cancelled.
    JT_DECISION_IGNORE = 0,
    /// It gets what the handler wrote to `more`, or as much of it as the supervisor still has, and goes on.
    JT_DECISION_RECHARGE = 1,
    /// It is cancelled.
    JT_DECISION_CANCEL = 2,
}

/// Decides about a job that has used up its budget: returns a jt_decision_t. `lacking` is the jt_counter_t that is used up.
/// `more` is a budget of zeros, to be filled for JT_DECISION_RECHARGE. `job` is a handle that is valid during the call.
///
/// It is called on the stack of that job, but outside of all jobs, by several threads at once if several jobs have used up
/// theirs. It may call every function of this interface but jt_runtime_shutdown, which returns JT_EBUSY, as does waiting for
/// that job. It must return: nothing may jump
/// out of it. A number that is no jt_decision_t cancels the job, as does a Rust panic.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_exhausted_fn = Option<
    unsafe extern "C-unwind" fn(
        job: jt_job_t,
        lacking: i32,
        more: *mut jt_budget_t,
        arg: *mut c_void,
    ) -> i32,
>;

/// A handler of the program's, with its argument.
pub(crate) struct Handler {
    function: unsafe extern "C-unwind" fn(jt_job_t, i32, *mut jt_budget_t, *mut c_void) -> i32,
    argument: Argument,
}

impl Handler {
    /// # Safety
    /// `function` may be called with `arg` on any thread, by several at once, until `release` was called.
    pub(crate) unsafe fn new(
        function: jt_exhausted_fn,
        arg: *mut c_void,
        release: jt_release_fn,
    ) -> Option<Handler> {
        Some(Handler {
            function: function?,
            argument: Argument::new(arg, release),
        })
    }

    pub(crate) fn decide(&self, exhausted: &Exhausted) -> Decision {
        let lacking = counter_number(exhausted.lacking());
        let Ok(job) = objects::insert(Object::Job(exhausted.job().clone())) else {
            return Decision::Cancel;
        };
        let mut more = jt_budget_t::default();
        let decision = deciding_about(exhausted.job(), || {
            callback(Place::Handler, || {
                // SAFETY: by the contract of `new`; `more` is a local.
                unsafe { (self.function)(job, lacking, &raw mut more, self.argument.pointer()) }
            })
        });
        OBJECTS.remove(job);
        const IGNORE: i32 = jt_decision_t::JT_DECISION_IGNORE as i32;
        const RECHARGE: i32 = jt_decision_t::JT_DECISION_RECHARGE as i32;
        match decision {
            Some(IGNORE) => Decision::Ignore,
            Some(RECHARGE) => Decision::Recharge(more.into()),
            _ => Decision::Cancel,
        }
    }
}

/// Gives what the caller may still use: what is left of its turn and its quotas. Outside of jobs, everything is
/// JT_UNLIMITED.
///
/// # Safety
/// `budget_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_budget_remaining(budget_out: *mut jt_budget_t) -> jt_status {
    running(|| {
        let budget_out = required(budget_out, "budget_out")?;
        // SAFETY: as this function's contract.
        unsafe { budget_out.write(budget::remaining().into()) };
        Ok(())
    })
}

/// Gives the budget of a job, a deferred, a nursery or a scope; with 0, of the current job. A scope or nursery has that of
/// the job it is part of. Set `size` of what `budget_out` points to before.
///
/// Returns JT_EEMPTY if nothing limits it but fairness; with 0 also outside of jobs.
///
/// # Safety
/// `budget_out` is NULL, or points to as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_job_budget(handle: u64, budget_out: *mut jt_job_budget_t) -> jt_status {
    running(|| {
        let budget_out = required(budget_out, "budget_out")?;
        let picture = picture_of(handle)?;
        let picture = jt_job_budget_t {
            size: size_of::<jt_job_budget_t>(),
            profile: number_of_profile(picture.profile) as i32,
            exhausted: picture.exhausted.map_or(-1, counter_number),
            granted: picture.granted.into(),
            remaining: picture.remaining.into(),
            exhaustions: picture.exhaustions,
            recharges: picture.recharges,
            tasks: picture.tasks,
            channels: picture.channels,
            memory_used: picture.memory_used,
        };
        // SAFETY: as this function's contract.
        unsafe { growing::write(budget_out.as_ptr(), picture) }
    })
}

/// Gives what a job, a deferred, a nursery or a scope may ask for; with 0, the current job. Set `size` of what
/// `capabilities_out` points to before.
///
/// Returns JT_EEMPTY if nothing limits it but fairness; with 0 also outside of jobs.
///
/// # Safety
/// `capabilities_out` is NULL, or points to as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_job_capabilities(
    handle: u64,
    capabilities_out: *mut jt_capabilities_t,
) -> jt_status {
    running(|| {
        let capabilities_out = required(capabilities_out, "capabilities_out")?;
        let picture = picture_of(handle)?;
        // SAFETY: as this function's contract.
        unsafe { growing::write(capabilities_out.as_ptr(), picture.capabilities.into()) }
    })
}

fn picture_of(handle: u64) -> Result<JobBudget, CallError> {
    let job = objects::job_or_current(handle)?;
    budget::of(&job).ok_or_else(|| JT_EEMPTY.because("the job has no budget: nothing limits it"))
}

/// Pays so many operations at once: as many calls of jt_tick. If as many are not left, others run first, or the job waits
/// for its supervisor. Returns what jt_checkpoint does.
#[unsafe(no_mangle)]
pub extern "C" fn jt_charge(ops: u32) -> jt_status {
    running(|| {
        current::look()?;
        budget::charge(ops);
        current::look()
    })
}

/// Pays for a call of the system that the caller makes: one operation and one system call. Returns what jt_checkpoint does.
#[unsafe(no_mangle)]
pub extern "C" fn jt_charge_syscall() -> jt_status {
    running(|| {
        current::look()?;
        budget::charge_syscall();
        current::look()
    })
}

/// Has `function` decide about jobs that were started in a nursery or scope, or under a job, and have used up their
/// budget, where that is for a supervisor to decide: in the profiles cluster and sovereign. With 0: those under the
/// current job. All scopes and nurseries of one job have one handler; a new one replaces it. What it gives comes out of
/// the budget of that job. Without a handler exhausted jobs wait for jt_recharge.
///
/// `release`, if not NULL, is called with `arg` when the handler was replaced or nothing can call it any more; not if this
/// does not return JT_OK.
///
/// Returns JT_EEMPTY if nothing is limited there, and JT_EEMPTY with 0 outside of jobs: see `on_exhausted` in
/// jt_runtime_opts.
///
/// # Safety
/// `function` may be called with `arg` on any thread, by several at once, until `release` is called or the runtime is
/// shut down.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_supervise_budgets(
    scope: jt_scope_t,
    function: jt_exhausted_fn,
    arg: *mut c_void,
    release: jt_release_fn,
) -> jt_status {
    running(|| {
        if function.is_none() {
            return Err(is_null("function"));
        }
        let nursery = supervised(scope)?;
        // Looked at before the handler is made: made, it calls `release` when it is dropped.
        if budget::of(nursery.job()).is_none() {
            return Err(is_unlimited());
        }
        // SAFETY: as this function's contract.
        let Some(handler) = (unsafe { Handler::new(function, arg, release) }) else {
            return Err(is_null("function"));
        };
        supervise_budgets(&nursery, move |exhausted| handler.decide(exhausted));
        Ok(())
    })
}

/// Gives a job that has used up its budget up to `more` and lets it go on. It comes out of the budget of `scope`, in which
/// the job was started; with 0, out of that of the current job. `given_out`, if not NULL, gets how much it was.
///
/// Returns JT_EBUSY if the job has not used up its budget, JT_EEMPTY if the supervisor has nothing left of what the job
/// lacks, JT_EINVAL if the job was not started in `scope`.
///
/// # Safety
/// `more` is NULL or points to a budget; `given_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_recharge(
    scope: jt_scope_t,
    job: jt_job_t,
    more: *const jt_budget_t,
    given_out: *mut jt_budget_t,
) -> jt_status {
    running(|| {
        // SAFETY: as this function's contract.
        let more: Budget = unsafe { read_budget(more) }.ok_or_else(|| is_null("more"))?;
        let nursery = supervised(scope)?;
        let job = objects::job(job)?;
        let given = recharge(&nursery, &job, more).map_err(|error| {
            let status = match error {
                RechargeError::NotExhausted => JT_EBUSY,
                RechargeError::PoolEmpty { .. } => JT_EEMPTY,
                _ => JT_EINVAL,
            };
            status.because(error.to_string())
        })?;
        // SAFETY: as this function's contract.
        unsafe { put(given_out, given.into()) };
        Ok(())
    })
}

/// The scope whose jobs are supervised through `handle`.
fn supervised(handle: jt_scope_t) -> Result<jobtree_runtime::future::Nursery, CallError> {
    if handle == 0 {
        // Outside of jobs there is nothing to supervise.
        objects::job_or_current(0)?;
    }
    Ok(within_limits(Target::of(handle)?.nursery().clone()))
}

fn is_unlimited() -> CallError {
    JT_EEMPTY.because("nothing is limited there, so there is nothing to supervise")
}
