//! The steps of the protocols of channels and select that a model leaves out one at a time, to see that it notices.

/// A step that a model can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Who gives up looks, under the lock, whether it was told already.
    WithdrawalLooks,
    /// A value that was handed to somebody who gave up goes to the next one.
    HandedBack,
    /// Who has to wait looks again under the lock under which it enters.
    LooksBeforeEntering,
    /// Closing tells those who wait.
    CloseTells,
    /// A counterpart wins the claim of an operation before it takes effect on it.
    ClaimFirst,
    /// The claim of an operation that is given up is withdrawn before anything else.
    WithdrawFirst,
    /// The value lies in its place before the claim says so.
    ValueFirst,
    /// A select looks at all of its channels and enters them under one hold of all of their locks.
    OneHold,
}

#[cfg(not(all(loom, test)))]
#[inline(always)]
pub(crate) fn left_out(_: Step) -> bool {
    false
}

#[cfg(all(loom, test))]
mod modelled {
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
pub(crate) use modelled::{leave_out, left_out};
