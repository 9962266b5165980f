//! Where the ends of jobs run: outside of every job, on a stack that knows which ends it is responsible for.
//!
//! The last child of a job ends the job, and that may end the job above, and so on, on the child's own thread. By then the
//! frames of those jobs may be gone, and with them the context that the thread still has installed. User code that runs
//! because of such an end (destructors of values, errors and locals, wakers, subscribers) must not see that context. The
//! tree knows nothing of contexts; the runner tells it how to leave one ([`set_surroundings`]).
//!
//! User code that runs because of an end may also wait for that very end, which would then never come: the job ends when the
//! code has returned. [`Ending`] marks the job with the stack that ends it, and a wait on the same stack is refused.

use std::sync::OnceLock;

use crate::node::Node;
use crate::sync::Ordering;

/// How the runner connects stacks and contexts with the tree.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Calls the function in the outermost context. The context that is installed around the call is put back afterwards, but
    /// not looked at: it may be gone.
    pub outermost: fn(&mut dyn FnMut()),
    /// Returns a name of the stack that the calling code runs on: aligned to two bytes, not null.
    pub stack: fn() -> *const (),
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

/// Marks a job whose end depends on the calling code, as long as this lives.
pub(crate) struct Ending<'a>(&'a Node);

/// The lowest bit of the name in a job's `stack` says that the stack ends the job; without it, the body runs there.
const ENDS: usize = 1;

fn mark() -> Option<*mut ()> {
    let stack = (SURROUNDINGS.get()?.stack)();
    Some(stack.map_addr(|address| address | ENDS).cast_mut())
}

impl<'a> Ending<'a> {
    /// Marks `node`, whose body has returned. Only the thread that decides over the end may call this.
    pub(crate) fn here(node: &'a Node) -> Ending<'a> {
        if let Some(mark) = mark() {
            node.stack.store(mark, Ordering::Relaxed);
        }
        Ending(node)
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.stack.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Panics if the calling code is part of the end of `node`: then a wait for it would never end.
#[inline]
pub(crate) fn refuse_to_wait_for_own_end(node: &Node) {
    let stack = node.stack.load(Ordering::Relaxed);
    if stack.addr() & ENDS != 0 {
        refuse_if_same_stack(node, stack);
    }
}

#[cold]
fn refuse_if_same_stack(node: &Node, ended_by: *mut ()) {
    if mark() == Some(ended_by) {
        panic!(
            "job #{} waits for its own end: a destructor or callback that runs while the job ends must not wait for \
             it. Drop the handle instead, or wait in another job.",
            node.id
        );
    }
}
