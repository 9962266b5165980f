//! The steps of the protocol that models leave out one at a time, to see that they are needed.
//!
//! Outside of models nothing is ever left out, and the question costs nothing.

/// A step that a model can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Taking a job's lock at all.
    Lock,
    /// Attaching a child makes the parent end under its lock from then on.
    AttachInvolves,
    /// A child attached under a cancelling parent is born cancelled.
    BornCancelled,
    /// Entering a waiter makes the job end under its lock from then on.
    WaiterInvolves,
    /// A job ends only when its body has returned, even if no child is active.
    EndAwaitsBody,
    /// A job ends only when no child is active, even if its body has returned.
    EndAwaitsChildren,
    /// Removing a waiter looks whether it was already taken to be woken.
    RemovalLooks,
    /// A cancellation goes on to the children.
    Broadcast,
}

#[cfg(not(all(loom, test)))]
#[inline(always)]
pub(crate) fn left_out(_: Step) -> bool {
    false
}

#[cfg(all(loom, test))]
mod left_out {
    use super::Step;
    use std::sync::Mutex;

    // Not a loom object: it belongs to the run, not to the model.
    static LEFT_OUT: Mutex<Option<Step>> = Mutex::new(None);

    pub(crate) fn left_out(step: Step) -> bool {
        *LEFT_OUT.lock().unwrap_or_else(|e| e.into_inner()) == Some(step)
    }

    /// Leaves out `step` from now on.
    pub(crate) fn leave_out(step: Option<Step>) {
        *LEFT_OUT.lock().unwrap_or_else(|e| e.into_inner()) = step;
    }
}

#[cfg(all(loom, test))]
pub(crate) use left_out::{leave_out, left_out};
