//! The stack that a body runs on, and how a cancellation wakes the thread that waits there.
//!
//! A body that waits must hear of its job's cancellation. It could enter itself into the job's list for each wait, and leave
//! it afterwards: four locked instructions. A runner whose stacks have a bell each names the stack once instead, when the
//! body begins, and the body says once that it waits there. Then a wait only looks whether the job is cancelled. And a body
//! that never waits begins without a locked instruction: that it has begun is seen by the name.
//!
//! ```text
//!   runner      looks whether the job is cancelled; names the stack
//!   body        before its first wait: changes the word (ON_STACK)
//!               each time: silences the bell, looks for STOP, sleeps unless the bell has rung since
//!   canceller   changes the word (STOP); if it was ON_STACK, under the job's lock, unless the body has returned:
//!               makes a waker for the stack; rings
//! ```
//!
//! *Nothing is lost.* If the body did not see STOP, it was set after ON_STACK; so the thread that set it sees ON_STACK, and the
//! name, which was written before. And it was set after the body looked, so the ring comes later still: the bell is not
//! silenced any more before the body sleeps.
//!
//! *The stack is there.* The body of a job that was asked to end returns under its job's lock. As long as the canceller
//! holds that and the body has not returned, its stack is in use; afterwards the waker keeps what it rings.
//!
//! A ring that finds nobody waiting, or another thread, does no harm: the thread that waits looks around when it is woken.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::task::Waker;

use crate::body::Body;
use crate::job::Job;
use crate::node::Node;
use crate::step::{Step, left_out};
use crate::sync::Ordering;
use crate::word::{JobState, Word};

/// The name of a stack: whatever the runner likes, but not null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackName(NonNull<()>);

// SAFETY: a name. Who makes a waker of it promises the rest.
unsafe impl Send for StackName {}
// SAFETY: as above.
unsafe impl Sync for StackName {}

impl StackName {
    /// The stack of this name; `None` if that is null.
    #[inline]
    pub fn new(name: *const ()) -> Option<StackName> {
        NonNull::new(name.cast_mut()).map(StackName)
    }

    #[inline]
    pub(crate) fn as_ptr(self) -> *mut () {
        self.0.as_ptr()
    }
}

/// Makes a waker for the thread that waits on a stack.
type WakerOf = unsafe fn(*const ()) -> Waker;

static WAKER_OF: OnceLock<WakerOf> = OnceLock::new();

/// Tells how to make a waker for the thread that waits on a stack. The first one stays.
///
/// # Safety
/// It may be called from any thread with the name of a stack that a body was started on and has not returned from, nor does
/// so during the call. The job is locked then, so it must not use jobs.
pub unsafe fn set_waker_of_stack(waker_of: unsafe fn(*const ()) -> Waker) {
    let _ = WAKER_OF.set(waker_of);
}

/// [`Body::start`], for a body that runs on the stack of that name.
#[inline]
#[must_use]
pub fn start_on(body: &Body, stack: StackName) -> bool {
    if !body.job().node().word.load().may_start() {
        return false;
    }
    name_stack(body, stack);
    body.tell_of_start();
    true
}

/// Names the stack of a body that has begun there.
#[inline]
pub fn name_stack(body: &Body, stack: StackName) {
    // Release: what the runner did with the stack comes first.
    let name = &body.job().node().stack;
    name.store(stack.as_ptr(), Ordering::Release);
}

/// Returns the state of a job: one whose body has begun on a stack is no longer Pending, whatever its word says.
pub(crate) fn state_of(node: &Node) -> JobState {
    match node.word.load().state() {
        JobState::Pending if !node.stack.load(Ordering::Relaxed).is_null() => JobState::Active,
        state => state,
    }
}

/// Returns `true` if a cancellation of `job` wakes the code that waits on this stack: from now on, if it is where the job's body
/// runs. To be called on that stack.
#[inline]
pub fn is_woken_on(job: &Job, stack: Option<StackName>) -> bool {
    let node = job.node();
    // Relaxed: if it is the caller's own stack, the caller wrote it.
    let of_body = node.stack.load(Ordering::Relaxed);
    if stack.is_none_or(|stack| stack.as_ptr() != of_body) {
        return false;
    }
    if !node.word.load_relaxed().is_on_stack() && !left_out(Step::WaitIsAnnounced) {
        node.word.change_always(Word::wait_on_stack);
    }
    true
}

/// Wakes the body of `job`, which was asked to end, if it waits on its stack, or has once done so.
pub(crate) fn wake_body(job: &Job) {
    let waker = waker_of_body(job.node());
    if let Some(waker) = waker {
        // The runner's own waker: it does not panic.
        waker.wake();
    }
}

fn waker_of_body(node: &Node) -> Option<Waker> {
    if !node.word.load().is_on_stack() || left_out(Step::BodyIsWoken) {
        return None;
    }
    let _locked = (!left_out(Step::StackIsLocked)).then(|| node.lock());
    if node.word.load().body_returned() {
        return None;
    }
    let stack = node.stack.load(Ordering::Acquire);
    let waker_of = WAKER_OF.get()?;
    // SAFETY: the body has not returned, and does so only under the lock: the job was asked to end.
    Some(unsafe { waker_of(stack) })
}
