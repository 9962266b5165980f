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
    /// What a counterpart did is visible to whoever sees that it is done.
    DoneReleases,
    /// Permits that were handed to somebody who gave up are given back.
    PermitsReturned,
    /// Who gives up its place lets the next one look.
    NextLooks,
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
    use std::cell::Cell;

    thread_local! {
        // Not a loom object: it belongs to the run, not to the model. loom runs all threads of a model on one OS
        // thread, so this reaches all of them.
        static LEFT_OUT: Cell<Option<Step>> = const { Cell::new(None) };
    }

    pub(crate) fn left_out(step: Step) -> bool {
        LEFT_OUT.get() == Some(step)
    }

    impl jobtree_base::modelling::Step for Step {
        fn leave_out(step: Option<Step>) {
            LEFT_OUT.set(step);
        }
    }
}

#[cfg(all(loom, test))]
pub(crate) use modelled::left_out;
