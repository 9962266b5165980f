//! The steps of the protocols of this crate that a model leaves out one at a time, to see that it notices.

use crate::atomics::Ordering;

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
    /// `Notify::notify_one`: waking those first whom `notify_all` has notified already.
    EarlierFirst,
    /// `Notification`: comparing the generation with that in which the wait began.
    GenerationCounts,
    /// A notification that was handed to a waiter that gave up goes to the next one.
    NotificationPassedOn,
    /// `Arriving::take_back`: leaving the number as it is if the last one has counted the arrival.
    CountedStays,
    /// A select looks at all of its channels and enters them under one hold of all of their locks.
    OneHold,
    /// `TaskState::begin_run`: the acquire order, by which the poll sees what was written before a wake.
    TaskRunAcquires,
    /// `TaskState::comes_to_rest`: the release order, by which the next worker sees what this one wrote.
    TaskRestReleases,
    /// `TaskState::comes_to_rest`: checking whether the task was woken during the poll.
    TaskRestLooks,
    /// `TaskState::comes_to_rest`: checking whether the task was woken on its own stack.
    TaskSelfWakeCounts,
    /// `TaskState::comes_to_rest`: leaving the word as the waker wrote it when the task is queued again.
    TaskRequeueKeepsWord,
    /// `TaskState::wake`: the release order, which hands over what was written before the wake.
    TaskWakeReleases,
    /// `TaskState::wake`: the shortcut without a locked instruction is for the polled stack only.
    TaskOwnStackOnly,
    /// `TaskState::wake`: leaving it to the worker that runs the task to queue it again.
    TaskRunnerQueues,
    /// `TaskState::wake`: not queueing a task that is done.
    TaskDoneStays,
    /// `Account::draw`: taking the number of recharges under the same hold of the lock as the refusal.
    LackIsNumbered,
    /// `Account::recharge`: counting the recharge, which is what a waiting fiber waits for.
    RechargeCounts,
    /// `Account::recharge`: waking the fibers that wait.
    RechargeWakes,
    /// `Account::still_lacks`: entering the waker under the same hold of the lock as the check.
    RechargeEnters,
    /// `wait_for_recharge`: listing the job before the handler is asked for.
    ExhaustedListedFirst,
    /// `Supervision::set_handler`: deciding about the jobs that are listed already.
    HandlerSeesListed,
    /// `Supervision::unlist`: keeping a job that has run out again.
    UnlistLooks,
    /// `Waiting::drop`: a fiber that waits no more, for whatever reason, says so.
    WaitingEnds,
}

/// Returns `order`, or a relaxed one if `step` is left out.
#[inline(always)]
pub(crate) fn order_at(step: Step, order: Ordering) -> Ordering {
    if left_out(step) {
        Ordering::Relaxed
    } else {
        order
    }
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
