//! The stack and context in which the ends of jobs run: outside of every job, on a stack that knows which ends it is responsible
//! for.
//!
//! The last child of a job ends the job, and that may end the job above, and so on, on the child's own thread. By then the
//! frames of those jobs may be gone, and with them the context that the thread still has installed. User code that runs
//! because of such an end (destructors of values, errors and locals, wakers, subscribers) must not see that context. The
//! tree knows nothing of contexts; the runner tells it how to leave one ([`set_surroundings`]).
//!
//! User code that runs because of an end may also wait for that very end, or for the end of a job above, which would then
//! never come: these jobs end when the code has returned. [`Ending`] notes in the thread which job the stack ends, and a wait on
//! the same stack for that job or one above is refused. A stack stays with its thread, so the note does, too.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::OnceLock;
use std::task::Waker;

use crate::job::Job;
use crate::node::Node;
use crate::raw::with_current;
use crate::sync::Ordering;

/// The functions by which the runner connects stacks and contexts with the tree.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Calls the function in the outermost context. The context that is installed around the call is put back afterwards, but
    /// not looked at: it may be gone.
    pub outermost: fn(&mut dyn FnMut()),
    /// Returns a name of the stack that the calling code runs on. Two stacks of a thread have different ones.
    pub stack: fn() -> *const (),
    /// Returns the limits of a job, or of the calling code; `None` if there are none.
    pub limits: fn(Option<&Job>) -> Option<Box<dyn Within>>,
    /// Clones a waker that is to be woken later, with the limits of the calling code.
    pub waker: fn(&Waker) -> Waker,
}

/// The limits of some code, which hold for what it leaves to be called later: callbacks, wakers, destructors.
pub trait Within: Send + Sync {
    /// Calls `code` within the limits.
    fn run(&self, code: &mut dyn FnMut());
}

/// Calls `code` within `limits`, if there are any.
pub(crate) fn within<R>(limits: Option<&dyn Within>, code: impl FnOnce() -> R) -> R {
    let Some(limits) = limits else {
        return code();
    };
    let mut code = Some(code);
    let mut result = None;
    limits.run(&mut || {
        if let Some(code) = code.take() {
            result = Some(code());
        }
    });
    match result {
        Some(result) => result,
        None => unreachable!("the runner calls the function before it returns"),
    }
}

/// Returns the limits of the calling code.
pub(crate) fn limits_of_caller() -> Option<Box<dyn Within>> {
    (SURROUNDINGS.get()?.limits)(None)
}

/// Returns the limits of a job. One without locals has none: the runner keeps them there.
///
/// # Safety
/// `node` is alive during the call.
#[inline]
pub(crate) unsafe fn limits_of(node: ptr::NonNull<Node>) -> Option<Box<dyn Within>> {
    // SAFETY: by contract.
    if unsafe { node.as_ref() }.locals.is_empty() {
        return None;
    }
    // SAFETY: alive by contract; the handle is lent, and gives back no reference.
    let job = ManuallyDrop::new(unsafe { Job::from_reference(node) });
    (SURROUNDINGS.get()?.limits)(Some(&job))
}

/// Clones a waker that is to be woken later, with the limits of the calling code.
#[inline]
pub(crate) fn waker_for_later(waker: &Waker) -> Waker {
    match SURROUNDINGS.get() {
        Some(surroundings) => (surroundings.waker)(waker),
        None => waker.clone(),
    }
}

static SURROUNDINGS: OnceLock<Surroundings> = OnceLock::new();

/// Tells the tree how to leave a context and how to name a stack. The first call counts.
pub fn set_surroundings(surroundings: Surroundings) {
    let _ = SURROUNDINGS.set(surroundings);
}

/// Calls `code` in the outermost context.
pub(crate) fn outermost<R>(code: impl FnOnce() -> R) -> R {
    let Some(surroundings) = SURROUNDINGS.get() else {
        // Without a runner there are no contexts.
        return code();
    };
    let mut code = Some(code);
    let mut result = None;
    (surroundings.outermost)(&mut || {
        if let Some(code) = code.take() {
            result = Some(code());
        }
    });
    match result {
        Some(result) => result,
        None => unreachable!("the runner calls the function before it returns"),
    }
}

thread_local! {
    /// The number of notes in `ENDINGS`: the wait of a thread that ends no job looks no further.
    static NUMBER_OF_ENDINGS: Cell<usize> = const { Cell::new(0) };
    /// The jobs that stacks of this thread are ending, each with the name of its stack, newest last.
    static ENDINGS: RefCell<Vec<(*const (), *const Node)>> = const { RefCell::new(Vec::new()) };
}

/// Notes that the end of a job depends on the calling code, as long as this lives.
pub(crate) struct Ending<'a> {
    node: &'a Node,
    /// The name of the stack; `None` if there is no note.
    stack: Option<*const ()>,
}

impl<'a> Ending<'a> {
    /// Notes `node`, whose body has returned. Only the thread that decides over the end may call this.
    pub(crate) fn here(node: &'a Node) -> Ending<'a> {
        let stack = SURROUNDINGS.get().and_then(|surroundings| {
            let stack = (surroundings.stack)();
            // Not if the thread's locals are gone.
            let noted = ENDINGS.try_with(|all| all.borrow_mut().push((stack, node)));
            noted.ok()?;
            NUMBER_OF_ENDINGS.set(NUMBER_OF_ENDINGS.get() + 1);
            Some(stack)
        });
        Ending { node, stack }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let Some(stack) = self.stack else { return };
        let own = (stack, ptr::from_ref(self.node));
        let _ = ENDINGS.try_with(|all| {
            let mut all = all.borrow_mut();
            // Other stacks of the thread may have noted ends since.
            if let Some(index) = all.iter().rposition(|ending| *ending == own) {
                all.swap_remove(index);
            }
        });
        NUMBER_OF_ENDINGS.set(NUMBER_OF_ENDINGS.get() - 1);
    }
}

/// Calls `code`, which has to return before `job` can end: it drops what the job's body captured, or decides over the job in
/// its place. A wait for the end of the job, or of one above, is refused there.
pub fn as_part_of_end<R>(job: &Job, code: impl FnOnce() -> R) -> R {
    let _ending = Ending::here(job.node());
    code()
}

/// Panics if the calling code is part of the end of `node`, or of a job below it: then a wait for it would never end.
#[inline]
pub(crate) fn refuse_to_wait_for_own_end(node: &Node) {
    if has_to_return_first(node) {
        refuse(node);
    }
}

#[inline]
fn has_to_return_first(node: &Node) -> bool {
    NUMBER_OF_ENDINGS.get() > 0 && is_ended_here(node) || is_body_below(node)
}

/// Returns `true` if `job` cannot end before the calling code has returned, so that a wait for its end is refused.
pub fn is_part_of_end(job: &Job) -> bool {
    has_to_return_first(job.node())
}

/// Returns `true` if the body of `node` is on the calling stack, below code that belongs to no job: destructors that run in
/// the outermost context. The code of a job may wait there, since its wait ends when the job is cancelled.
#[inline]
fn is_body_below(node: &Node) -> bool {
    let of_body = node.stack.load(Ordering::Relaxed);
    if of_body.is_null() || with_current(|job| job.is_some()) {
        return false;
    }
    let is_here = |surroundings: &Surroundings| (surroundings.stack)() == of_body.cast_const();
    SURROUNDINGS.get().is_some_and(is_here) && !node.word.load().body_returned()
}

#[cold]
#[inline(never)]
fn is_ended_here(node: &Node) -> bool {
    let Some(surroundings) = SURROUNDINGS.get() else {
        return false;
    };
    let stack = (surroundings.stack)();
    let ended_here = |ending: &&(*const (), *const Node)| ending.0 == stack;
    let is_ended = ENDINGS.try_with(|all| {
        let all = all.borrow();
        // SAFETY: the note was made on this stack, below the calling code, and is taken back before the job is given up.
        let mut jobs = all
            .iter()
            .filter(ended_here)
            .map(|ending| unsafe { &*ending.1 });
        jobs.any(|ended| is_at_or_above(node, ended))
    });
    is_ended == Ok(true)
}

#[cold]
#[inline(never)]
fn refuse(node: &Node) -> ! {
    panic!(
        "job #{} waits for its own end: the waiting code (a destructor, callback or handler) has to return before this job \
         can end. Drop the handle instead, or wait in another job.",
        node.id
    );
}

/// Returns `true` if `node` is `ended` or above it. `ended` has not told its parent of its end.
fn is_at_or_above(node: &Node, ended: &Node) -> bool {
    let mut next = Some(ptr::NonNull::from(ended));
    while let Some(job) = next {
        if ptr::eq(job.as_ptr(), node) {
            return true;
        }
        // SAFETY: the first job has not told its parent of its end, so all jobs above it are alive.
        next = unsafe { job.as_ref() }.parent;
    }
    false
}
