//! What the runtime has counted, and what happened to its jobs, one event after the other.
//!
//! The runtime keeps the newest events in a ring and gives all of them at once. A program takes as many as it has room for,
//! so those that were taken out of the ring and not given yet wait in [`WAITING`]; it is filled again only when it
//! is empty, and so holds no more than the ring does.

use std::collections::VecDeque;
use std::ffi::c_char;
use std::mem::{offset_of, size_of};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jobtree_base::user_code::caught_panics;
use jobtree_runtime::{Cause, Event, EventKind, JobId, Lacking};

use crate::border::{put, required, running};
use crate::growing::{self, Growing};
use crate::job::{jt_cause_t, number_of_cause, number_of_state};
use crate::runtime::handle;
use crate::status::jt_status::{self, *};

/// What the runtime has counted since it was started. Set `size` to sizeof(jt_counters_t).
///
/// Each number is exact, but they are not read at one moment. Even so, no more jobs have ended than were created, and no
/// more waiters were woken than registered.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jt_counters_t {
    /// sizeof(jt_counters_t).
    pub size: usize,
    /// Jobs made; scopes and nurseries are jobs, too.
    pub created: u64,
    /// Jobs asked to end, those below a canceled or failed job too; each counts once.
    pub cancel_requests: u64,
    /// Jobs that ended well.
    pub completed: u64,
    /// Jobs that ended because they or a job below failed.
    pub failed: u64,
    /// Jobs that ended because they were cancelled.
    pub canceled: u64,
    /// Jobs that ended because their time was over.
    pub timed_out: u64,
    /// Times a caller began to wait for a job.
    pub waiters_registered: u64,
    /// Times a caller that waited for a job was woken.
    pub waiters_woken: u64,
    /// Tasks that workers ran.
    pub executed: u64,
    /// Times a stack was parked because it had to wait.
    pub blocked: u64,
    /// Tasks that workers took from others.
    pub steals: u64,
    /// Tasks that were run where they were made, or came from outside.
    pub local_pops: u64,
    /// Times a worker fell asleep for want of work.
    pub idle: u64,
    /// Times a job had used up its budget.
    pub exhaustions: u64,
    /// Spawns, channels and executors that were not allowed.
    pub refusals: u64,
    /// Times a job got more from its supervisor.
    pub recharges: u64,
    /// Panics of callbacks and destructors that no caller received, in this process.
    pub caught_panics: u64,
    /// Times the thread that keeps deadlines could not be started.
    pub timer_thread_failures: u64,
    /// Times a thread for a job that blocks could not be started.
    pub blocking_thread_failures: u64,
    /// Times the system refused a stack for a job that waits.
    pub stack_failures: u64,
    /// Times a callback that was called because a deadline had come blocked its thread for so long that another thread took over.
    pub blocked_callbacks: u64,
    /// Times a shutdown found no thread to call callbacks on: the calling thread called them, outside of its time limit.
    pub shutdown_thread_failures: u64,
    /// Times no thread could be started to set the panic hook, which notes where jobs panic.
    pub hook_thread_failures: u64,
}

// SAFETY: `repr(C)`, begins with its size, and consists of numbers.
unsafe impl Growing for jt_counters_t {
    const NAME: &'static str = "jt_counters_t";
    const EARLIER: &'static [usize] = &[offset_of!(jt_counters_t, blocked_callbacks)];
}

/// What happened to a job.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_event_kind_t {
    /// Something that this version of the header does not name.
    JT_EVENT_OTHER = -1,
    /// It was made; `other` is the job above it.
    JT_EVENT_CREATE = 0,
    /// It went into `state`, which is not an end.
    JT_EVENT_STATE = 1,
    /// It was asked to end, because of `cause`.
    JT_EVENT_CANCEL_REQUEST = 2,
    /// It ended, as `state` says.
    JT_EVENT_FINALIZE = 3,
    /// It got a child: `other`.
    JT_EVENT_CHILD_ATTACH = 4,
    /// A caller began to wait for it.
    JT_EVENT_WAIT_REGISTER = 5,
    /// A caller that waited for it was woken.
    JT_EVENT_WAIT_WAKE = 6,
    /// The runtime could not get something from the system, and goes on with less: `lacking` says what. `job` is the root.
    JT_EVENT_DEGRADED = 7,
}

/// What the runtime could not get from the system.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_lacking_t {
    /// Something that this version of the header does not name.
    JT_LACKING_OTHER = -1,
    /// Nothing.
    JT_LACKING_NONE = 0,
    /// The thread that keeps deadlines: workers keep them, and they may be late.
    JT_LACKING_TIMER_THREAD = 1,
    /// A thread for a job that blocks: the job waits for another thread, or blocks a worker.
    JT_LACKING_BLOCKING_THREAD = 2,
    /// A stack for a job that waits: its worker runs other jobs on top.
    JT_LACKING_STACK = 3,
    /// The thread that calls callbacks for deadlines: a callback blocks it, and another thread takes its place.
    JT_LACKING_CALLBACK_THREAD = 4,
    /// The thread that calls callbacks for a shutdown: the thread that shuts down calls them, outside of its time limit.
    JT_LACKING_SHUTDOWN_THREAD = 5,
    /// The thread that sets the panic hook: where jobs panic is unknown meanwhile.
    JT_LACKING_HOOK_THREAD = 6,
}

fn number_of_lacking(lacking: Lacking) -> jt_lacking_t {
    use jt_lacking_t::*;
    match lacking {
        Lacking::TimerThread => JT_LACKING_TIMER_THREAD,
        Lacking::BlockingThread => JT_LACKING_BLOCKING_THREAD,
        Lacking::Stack => JT_LACKING_STACK,
        Lacking::CallbackThread => JT_LACKING_CALLBACK_THREAD,
        Lacking::ShutdownThread => JT_LACKING_SHUTDOWN_THREAD,
        Lacking::HookThread => JT_LACKING_HOOK_THREAD,
        _ => JT_LACKING_OTHER,
    }
}

/// Something that happened to a job.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jt_event_t {
    /// Its place among all events of this runtime, from 0; a gap means that some were lost.
    pub sequence: u64,
    /// The job, by the number that jt_job_id gives.
    pub job: u64,
    /// The other job that takes part, by its number; 0 for none.
    pub other: u64,
    /// A jt_event_kind_t.
    pub kind: i32,
    /// A jt_job_state_t; -1 if the event has none.
    pub state: i32,
    /// A jt_cause_t; -1 if the event has none.
    pub cause: i32,
    /// A jt_lacking_t: 0 unless `kind` is JT_EVENT_DEGRADED.
    pub lacking: i32,
}

impl From<Event> for jt_event_t {
    fn from(event: Event) -> jt_event_t {
        use jt_event_kind_t::*;
        let number = |cause: Cause| -> i32 {
            let cause: jt_cause_t = number_of_cause(cause);
            cause as i32
        };
        let (mut other, mut state, mut cause) = (None, -1, -1);
        let mut lacking = jt_lacking_t::JT_LACKING_NONE;
        let kind = match event.kind {
            EventKind::Create { parent } => {
                other = parent;
                JT_EVENT_CREATE
            }
            EventKind::State { to } => {
                state = number_of_state(to) as i32;
                JT_EVENT_STATE
            }
            EventKind::CancelRequest { cause: asked } => {
                cause = number(asked);
                JT_EVENT_CANCEL_REQUEST
            }
            EventKind::Finalize { state: ended } => {
                state = number_of_state(ended) as i32;
                JT_EVENT_FINALIZE
            }
            EventKind::ChildAttach { child } => {
                other = Some(child);
                JT_EVENT_CHILD_ATTACH
            }
            EventKind::WaitRegister => JT_EVENT_WAIT_REGISTER,
            EventKind::WaitWake => JT_EVENT_WAIT_WAKE,
            EventKind::Degraded { lacking: what } => {
                lacking = number_of_lacking(what);
                JT_EVENT_DEGRADED
            }
            _ => JT_EVENT_OTHER,
        };
        jt_event_t {
            sequence: event.sequence,
            job: event.job.as_u64(),
            other: other.map_or(0, JobId::as_u64),
            kind: kind as i32,
            state,
            cause,
            lacking: lacking as i32,
        }
    }
}

/// Events that were taken out of the ring and not given to the program yet.
static WAITING: Mutex<VecDeque<Event>> = Mutex::new(VecDeque::new());

fn waiting() -> MutexGuard<'static, VecDeque<Event>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets all events: the runtime that they belong to is gone.
pub(crate) fn forget_events() {
    waiting().clear();
}

/// Gives what the runtime has counted so far. Set `size` of what `counters_out` points to before.
///
/// Returns JT_EINVAL if `size` is wrong.
///
/// # Safety
/// `counters_out` is NULL, or points to as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_counters(counters_out: *mut jt_counters_t) -> jt_status {
    running(|| {
        let counters_out = required(counters_out, "counters_out")?;
        let runtime = handle()?;
        let (jobs, all) = (runtime.counters(), runtime.statistics());
        let counters = jt_counters_t {
            size: size_of::<jt_counters_t>(),
            created: jobs.created,
            cancel_requests: jobs.cancel_requests,
            completed: jobs.completed,
            failed: jobs.failed,
            canceled: jobs.cancelled,
            timed_out: jobs.timed_out,
            waiters_registered: jobs.waiters_registered,
            waiters_woken: jobs.waiters_woken,
            executed: all.executed,
            blocked: all.blocked,
            steals: all.steals,
            local_pops: all.local_pops,
            idle: all.idle,
            exhaustions: all.exhaustions,
            refusals: all.refusals,
            recharges: all.recharges,
            caught_panics: caught_panics(),
            timer_thread_failures: all.timer_thread_failures,
            blocking_thread_failures: all.blocking_thread_failures,
            stack_failures: all.stack_failures,
            blocked_callbacks: all.blocked_callbacks,
            shutdown_thread_failures: all.shutdown_thread_failures,
            hook_thread_failures: all.hook_thread_failures,
        };
        // SAFETY: as this function's contract.
        unsafe { growing::write(counters_out.as_ptr(), counters) }
    })
}

/// Keeps the newest `capacity` events of jobs from now on; 0 stops it, and what was kept can still be taken.
#[unsafe(no_mangle)]
pub extern "C" fn jt_events_record(capacity: usize) -> jt_status {
    running(|| {
        handle()?.record_events(capacity);
        Ok(())
    })
}

/// Takes up to `capacity` of the oldest events that were kept and not taken yet. `count_out` gets how many there were; if it
/// is `capacity`, call again. `lost_out`, if not NULL, gets how many found no room since the last call.
///
/// Returns JT_EINVAL if `capacity` is 0.
///
/// # Safety
/// `events` is NULL or has room for `capacity` events; the other pointers are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_events_take(
    events: *mut jt_event_t,
    capacity: usize,
    count_out: *mut usize,
    lost_out: *mut u64,
) -> jt_status {
    running(|| {
        let events = required(events, "events")?;
        let count_out = required(count_out, "count_out")?;
        if capacity == 0 {
            return Err(JT_EINVAL.because("there is no room for an event"));
        }
        let runtime = handle()?;
        let mut lost = 0;
        let taken: Vec<Event> = {
            let mut waiting = waiting();
            if waiting.is_empty() {
                let recorded = runtime.take_events();
                lost = recorded.lost;
                waiting.extend(recorded.events);
            }
            let count = waiting.len().min(capacity);
            waiting.drain(..count).collect()
        };
        for (at, event) in taken.iter().enumerate() {
            // SAFETY: as this function's contract; no more than `capacity`.
            unsafe { events.add(at).write((*event).into()) };
        }
        // SAFETY: as this function's contract.
        unsafe {
            count_out.write(taken.len());
            put(lost_out, lost);
        }
        Ok(())
    })
}

/// The name under which logs show a jt_event_kind_t, "JOB_CREATE" for instance; "JOB_OTHER" for any other number. The text
/// is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn jt_event_name(kind: i32) -> *const c_char {
    use jt_event_kind_t::*;
    const NAMES: [(jt_event_kind_t, &std::ffi::CStr); 8] = [
        (JT_EVENT_CREATE, c"JOB_CREATE"),
        (JT_EVENT_STATE, c"JOB_STATE"),
        (JT_EVENT_CANCEL_REQUEST, c"JOB_CANCEL_REQ"),
        (JT_EVENT_FINALIZE, c"JOB_FINALIZE"),
        (JT_EVENT_CHILD_ATTACH, c"JOB_CHILD_ATTACH"),
        (JT_EVENT_WAIT_REGISTER, c"JOB_WAIT_REGISTER"),
        (JT_EVENT_WAIT_WAKE, c"JOB_WAIT_WAKE"),
        (JT_EVENT_DEGRADED, c"RUNTIME_DEGRADED"),
    ];
    let known = NAMES.iter().find(|(known, _)| *known as i32 == kind);
    known.map_or(c"JOB_OTHER", |(_, name)| name).as_ptr()
}
