//! The steps of the protocol that tests leave out one at a time, to see that the tests notice.
//!
//! Models leave out steps that order threads; the property test of the runtime (feature `planted-bugs`) leaves
//! out rules, too. Otherwise nothing is ever left out, and the question costs nothing.

/// Makes the list of all steps beside the steps.
macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident,)*) => {
        /// A step that a test can leave out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Step {
            $($(#[$doc])* $step,)*
        }

        #[cfg(feature = "planted-bugs")]
        impl Step {
            const ALL: &'static [Step] = &[$(Step::$step),*];
        }
    };
}

steps! {
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
    /// A cancellation goes on to the children's children.
    BroadcastGoesDeep,
    /// A shielded job is not told of a cancellation above it.
    ShieldHolds,
    /// A job that was asked to end stays asked for the first reason.
    FirstCauseStays,
    /// A job that was cancelled and has failed is Failed.
    FailureBeatsCancellation,
    /// A job that timed out and failed later is TimedOut.
    TimeoutStays,
    /// A body that returns its own job's cancellation has not failed.
    OwnCancellationIsNoFailure,
    /// A supervisor does not mind a child's failure.
    SupervisorShrugs,
    /// The parent does not hear of the failure of a job that is contained.
    ContainedFailsAlone,
    /// A body says that it waits on its stack before it first does.
    WaitIsAnnounced,
    /// A cancellation wakes the body on its stack.
    BodyIsWoken,
    /// The stack of a body is looked for under the job's lock.
    StackIsLocked,
    /// All who wait are woken, and not only the one who came last.
    EveryWaiterIsWoken,
    /// A job forgets the address of the job that its cancellation began at when its own end is decided.
    OriginIsSettled,
    /// The pointer is replaced after the end was decided: a cancellation from above may arrive until then.
    OriginIsSettledLast,
}

#[cfg(not(any(all(loom, test), feature = "planted-bugs")))]
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

#[cfg(all(feature = "planted-bugs", not(all(loom, test))))]
mod planted {
    use super::Step;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const NOTHING: usize = usize::MAX;

    static LEFT_OUT: AtomicUsize = AtomicUsize::new(NOTHING);

    pub(crate) fn left_out(step: Step) -> bool {
        LEFT_OUT.load(Ordering::Relaxed) == step as usize
    }

    /// Leaves out the step of that name from now on; `false` if there is none.
    pub fn plant_bug(step: &str) -> bool {
        let mut all = Step::ALL.iter();
        match all.find(|known| format!("{known:?}") == step) {
            Some(known) => {
                LEFT_OUT.store(*known as usize, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }
}

#[cfg(all(feature = "planted-bugs", not(all(loom, test))))]
pub(crate) use planted::left_out;
#[cfg(all(feature = "planted-bugs", not(all(loom, test))))]
pub use planted::plant_bug;
