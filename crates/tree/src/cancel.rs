//! Asking a job, and everything below it, to end.
//!
//! A cancellation first changes the job's own word, then goes through its children under its lock and
//! changes theirs, and goes on with those that have somebody who wants to know: children, waiters,
//! callbacks. It holds one lock at a time and no recursion: trees may be a hundred thousand deep. Whoever
//! attaches a child or enters a callback does so under the same lock, and looks at the word there: it is
//! either found by the cancellation or sees it.

use std::error::Error;
use std::ptr::NonNull;

use crate::error::{CancelReason, Cancelled, JobId, cancellations_in};
use crate::job::Job;
use crate::monitor::{Counter, EventKind, trace};
use crate::node::Node;
use crate::stack;
use crate::step::{Step, left_out};
use crate::sync::Ordering;
use crate::waiters::Wake;
use crate::word::{Cause, JobState, Word};

pub(crate) const BEGINS: EventKind = EventKind::State {
    to: JobState::Cancelling,
};

/// Asks `job` to end; `false` if it was asked before or has ended.
pub(crate) fn cancel(job: &Job, reason: CancelReason) -> bool {
    let node = job.node();
    let cause = reason.cause();
    let hook = {
        // The lock, and being involved, keep the job from ending meanwhile; and with it its tree, which
        // counts.
        let mut locked = node.lock();
        let may_cancel = |word: Word| word.cancel(cause).and_then(Word::involve);
        if may_cancel(node.word.load()).is_none() {
            return false;
        }
        // Before the change that lets others read it.
        let message = reason.into_message();
        let had_message = message.is_some();
        if had_message {
            locked.side().cancel_message = message;
        }
        if node.word.change(may_cancel).is_err() {
            if had_message {
                locked.side().cancel_message = None;
            }
            return false;
        }
        // SAFETY: the job cannot end while its lock is held, so its tree is alive.
        let tree = unsafe { &*node.tree };
        tree.monitor.count(Counter::CancelRequests);
        for kind in [EventKind::CancelRequest { cause }, BEGINS] {
            tree.monitor.record(job.id(), kind);
        }
        tree.cancelled_hook()
    };
    trace(job.id(), EventKind::CancelRequest { cause });
    trace(job.id(), BEGINS);
    broadcast(job.clone());
    if let Some(hook) = hook {
        hook();
    }
    true
}

/// `job` is cancelling: tells everybody below it, and everybody who asked to be told.
pub(crate) fn broadcast(job: Job) {
    if left_out(Step::Broadcast) {
        return;
    }
    // As the first one sees it now: those below may have ended, and know nothing any more, when they are called.
    let reason = job.cancel_reason_or_none();
    let mut told = Some(job);
    let mut to_tell: Vec<Job> = Vec::new();
    while let Some(job) = told {
        let node = job.node();
        let mut begun: Vec<JobId> = Vec::new();
        {
            let locked = node.lock();
            let origin = origin_of(node, node.word.load()).as_u64();
            locked.for_each_child(|child| {
                // SAFETY: a child in the list is alive.
                let node = unsafe { child.as_ref() };
                let Some(word) = tell_child(node, origin) else {
                    return;
                };
                let is_known =
                    word.is_involved() || word.is_on_stack() || node.kind.cancelled.is_some();
                if is_known && !left_out(Step::BroadcastGoesDeep) {
                    // SAFETY: a child in the list is alive.
                    to_tell.push(unsafe { Job::of_node(child) });
                }
                if cfg!(feature = "tracing") {
                    begun.push(JobId(node.id));
                }
            });
        }
        for child in begun {
            trace(child, BEGINS);
        }
        call_waiters(&job, &reason);
        told = to_tell.pop();
    }
}

/// Under the parent's lock: makes the child cancel, unless it does already or has ended.
fn tell_child(child: &Node, origin: u64) -> Option<Word> {
    let word = child.word.load();
    let is_shielded = word.is_shielded() && !left_out(Step::ShieldHolds);
    if is_shielded || word.cancel(Cause::Parent).is_none() {
        return None;
    }
    // Before the change that lets others read it. Nobody else writes it: only a parent's cancellation
    // does, and that is here, under its lock. Should the change fail, nobody reads it.
    child.origin.store(origin, Ordering::Relaxed);
    let changed = child.word.change(|word| word.cancel(Cause::Parent)).ok()?;
    // SAFETY: a job with an active child has not ended, so its tree is alive.
    let monitor = unsafe { &(*child.tree).monitor };
    monitor.record(JobId(child.id), BEGINS);
    Some(changed.after)
}

/// An error of a body may tell of a request at a job above that is still on its way down to `job`: then it arrives now,
/// so that the body counts as cancelled.
pub(crate) fn hasten(job: NonNull<Node>, error: &(dyn Error + 'static)) {
    // SAFETY: the caller holds the execution's reference, so it has not ended, and all jobs above are alive.
    let node = unsafe { job.as_ref() };
    let Some(parent) = node.parent else { return };
    if node.word.load().is_cancelling_or_was() || cancellations_in(error).next().is_none() {
        return;
    }
    let mut below = node;
    while !below.word.load().is_shielded() {
        // SAFETY: as above.
        let Some(above) = below.parent.map(|above| unsafe { above.as_ref() }) else {
            return;
        };
        if cancellations_in(error).any(|cancelled| cancelled.origin() == JobId(above.id)) {
            let told = {
                // SAFETY: as above.
                let _locked = unsafe { parent.as_ref() }.lock();
                tell_child(node, above.id)
            };
            if told.is_some() {
                // SAFETY: as above.
                broadcast(unsafe { Job::of_node(job) });
            }
            return;
        }
        below = above;
    }
}

/// Calls those who wait for the cancellation of `job`, and its body wherever that waits.
fn call_waiters(job: &Job, reason: &CancelReason) {
    if let Some(cancelled) = job.node().kind.cancelled {
        // SAFETY: the handle is a reference.
        unsafe { cancelled(job.pointer()) };
    }
    stack::wake_body(job);
    loop {
        let batch = job.node().lock().cancel_waiters.take_batch();
        let mut was_last = false;
        for wake in batch {
            match wake {
                Some(Wake::Task(waker)) => waker.wake(),
                Some(Wake::Call(call)) => call(reason),
                Some(Wake::Lent(_)) => unreachable!("taken out as a waker of its own"),
                None => was_last = true,
            }
        }
        if was_last {
            return;
        }
    }
}

/// The job at which the cancellation of `node` began.
pub(crate) fn origin_of(node: &Node, word: Word) -> JobId {
    match word.cause() {
        Some(Cause::Parent) => JobId(node.origin.load(Ordering::Relaxed)),
        _ => JobId(node.id),
    }
}

/// The cancellation of `job`, if it was asked to end, with the reason given where it began as far as that
/// is still known.
pub(crate) fn cancellation(job: &Job) -> Option<Cancelled> {
    let node = job.node();
    let word = node.word.load();
    let cause = word.cause()?;
    let origin = origin_of(node, word);
    let mut reason = CancelReason::new(cause, own_message(node));
    // A job that has ended does not know those above it any more.
    let mut above = job.parent();
    while let (Cause::Parent, Some(job)) = (reason.cause(), &above) {
        if job.id() == origin {
            let node = job.node();
            let cause = node.word.load().cause().unwrap_or(Cause::Parent);
            reason = CancelReason::new(cause, own_message(node));
            break;
        }
        above = job.parent();
    }
    Some(Cancelled {
        job: job.id(),
        origin,
        reason,
    })
}

fn own_message(node: &Node) -> Option<std::borrow::Cow<'static, str>> {
    let locked = node.lock();
    locked.side.as_ref()?.cancel_message.clone()
}
