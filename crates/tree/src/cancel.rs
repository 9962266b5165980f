//! Asking a job, and everything below it, to end.
//!
//! A cancellation first changes the job's own word, then goes through its children under its lock and
//! changes theirs, and goes on with those that have children, waiters or callbacks of their own. It holds one lock at a
//! time and is a loop, not a recursion: trees may be a hundred thousand deep, and chains of tokens a million. A thread that
//! attaches a child or enters a callback does so under the same lock, and looks at the word there: the entry is
//! either found by the cancellation or sees it.
//!
//! Callbacks and foreign wakers are user code: they are called without a lock, and a panic of one is recorded and does not
//! keep the others from being called. They are called when every job below has been told and its body woken, first the
//! wakers and then the callbacks: a callback may wait for any of these jobs.

use std::ptr::NonNull;
use std::task::Waker;

use jobtree_base::user_code::{Place, call_user, wake_all_users};

use crate::error::{CancelReason, Cancelled, JobId};
use crate::job::Job;
use crate::monitor::{Counter, EventKind, trace};
use crate::node::{Locked, Node};
use crate::origin::{origin_for_children, origin_handle};
use crate::stack;
use crate::step::{Step, left_out};
use crate::tree::CancelledHook;
use crate::waiters::{CancelFn, Wake};
use crate::word::{Cause, JobState, Word};

pub(crate) const BEGINS: EventKind = EventKind::State {
    to: JobState::Cancelling,
};

/// Asks `job` to end; `false` if it was asked before or has ended.
pub(crate) fn cancel(job: &Job, reason: CancelReason) -> bool {
    let Some(hook) = begin(job, reason) else {
        return false;
    };
    broadcast(job.clone(), hook);
    true
}

/// Makes `job` cancel, and tells no other thread; `None` if it was asked before or has ended. The hook is the broadcast's.
fn begin(job: &Job, reason: CancelReason) -> Option<Option<CancelledHook>> {
    let node = job.node();
    let cause = reason.cause();
    let hook = {
        // The lock, and being involved, keep the job from ending meanwhile; and with it its tree, which
        // counts.
        let mut locked = node.lock();
        let may_cancel = |word: Word| word.cancel(cause).and_then(Word::involve);
        may_cancel(node.word.load())?;
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
            return None;
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
    Some(hook)
}

/// Tells all jobs below `job`, which is cancelling, then calls `hook` and all waiters of the cancellations.
pub(crate) fn broadcast(job: Job, hook: Option<CancelledHook>) {
    if left_out(Step::Broadcast) {
        return;
    }
    // As the first one sees it now: those below may have ended, and know nothing any more, when they are called.
    let reason = job.cancel_reason_or_none();
    let mut next = Some(job);
    let mut to_tell: Vec<Job> = Vec::new();
    let mut hooks: Vec<CancelledHook> = hook.into_iter().collect();
    let mut user_code = UserCode::default();
    while let Some(job) = next {
        let node = job.node();
        let mut begun: Vec<JobId> = Vec::new();
        {
            let locked = node.lock();
            let came_from_above = node.word.load().cause() == Some(Cause::Parent);
            let origin = origin_for_children(&locked, job.pointer(), came_from_above);
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
        take_waiters(&job, &mut user_code, |follower| {
            if let Some(hook) = begin(&follower, reason.clone()) {
                to_tell.push(follower);
                hooks.extend(hook);
            }
        });
        next = to_tell.pop();
    }
    for hook in hooks {
        hook();
    }
    user_code.call(&reason);
}

/// The user code that a cancellation calls.
#[derive(Default)]
struct UserCode {
    wakers: Vec<Waker>,
    callbacks: Vec<CancelFn>,
}

impl UserCode {
    fn call(self, reason: &CancelReason) {
        wake_all_users(self.wakers.into_iter());
        for callback in self.callbacks {
            call_user(Place::CancelCallback, || callback(reason));
        }
    }
}

/// Under the parent's lock: makes the child cancel, unless it does already or has ended.
fn tell_child(child: &Node, origin: NonNull<Node>) -> Option<Word> {
    let word = child.word.load();
    let is_shielded = word.is_shielded() && !left_out(Step::ShieldHolds);
    if is_shielded || word.cancel(Cause::Parent).is_none() {
        return None;
    }
    // Before the change that lets others read it. No other thread writes it: only a parent's cancellation
    // does, and that is here, under its lock. Should the change fail, no thread reads it.
    child.origin.set(origin);
    let changed = child.word.change(|word| word.cancel(Cause::Parent)).ok()?;
    // SAFETY: a job with an active child has not ended, so its tree is alive.
    let monitor = unsafe { &(*child.tree).monitor };
    monitor.count(Counter::CancelRequests);
    monitor.record(JobId(child.id), BEGINS);
    Some(changed.after)
}

/// Lets a cancellation arrive at `job` now that its body's error tells of: one that began at a job of `origins` above it,
/// and is still on its way down. So the body counts as cancelled.
pub(crate) fn hasten(job: NonNull<Node>, origins: &[JobId]) {
    // SAFETY: the caller holds the execution's reference, so it has not ended, and all jobs above are alive.
    let node = unsafe { job.as_ref() };
    let Some(parent) = node.parent else { return };
    if origins.is_empty() || node.word.load().is_cancelling_or_was() {
        return;
    }
    let mut below = node;
    while !below.word.load().is_shielded() {
        let Some(above_pointer) = below.parent else {
            return;
        };
        // SAFETY: as above.
        let above = unsafe { above_pointer.as_ref() };
        if origins.contains(&JobId(above.id)) {
            let told = {
                // SAFETY: as above.
                let _locked = unsafe { parent.as_ref() }.lock();
                tell_child(node, above_pointer)
            };
            if told.is_some() {
                // SAFETY: as above.
                broadcast(unsafe { Job::of_node(job) }, None);
            }
            return;
        }
        below = above;
    }
}

/// Wakes the body of `job`, wherever it waits, and takes the waiters of the job's cancellation out of their list; jobs that
/// follow this one go to `follow`.
fn take_waiters(job: &Job, user_code: &mut UserCode, mut follow: impl FnMut(Job)) {
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
                // No user code: a job that is woken by it may be what a callback waits for.
                Some(Wake::Own(waker)) => waker.wake(),
                Some(Wake::OwnCall(callback)) => callback(),
                Some(Wake::Task(waker)) => user_code.wakers.push(waker),
                Some(Wake::Call(callback)) => user_code.callbacks.push(callback),
                Some(Wake::Cancel(follower)) => follow(follower),
                Some(Wake::Lent(_)) => unreachable!("taken out as a copy"),
                None => was_last = true,
            }
        }
        if was_last {
            return;
        }
    }
}

/// Returns the id of the job at which the cancellation of `node` began.
///
/// # Safety
/// The caller holds the lock of `node`, or its end is not decided during the call.
pub(crate) unsafe fn origin_id(node: &Node, word: Word) -> JobId {
    match word.cause() {
        // SAFETY: by contract.
        Some(Cause::Parent) => unsafe { node.origin.id() }.unwrap_or(JobId(node.id)),
        _ => JobId(node.id),
    }
}

/// Returns the cancellation of `job`, if it was asked to end, with the reason given where it began as far as that
/// is still known.
pub(crate) fn cancellation(job: &Job) -> Option<Cancelled> {
    let node = job.node();
    let (cause, origin, message, above) = {
        let locked = node.lock();
        let word = node.word.load();
        let cause = word.cause()?;
        // SAFETY: the lock is held.
        let origin = unsafe { origin_id(node, word) };
        let above = match cause {
            Cause::Parent => origin_handle(&locked),
            _ => None,
        };
        (cause, origin, message_of(&locked), above)
    };
    let reason = match above {
        Some(above) => {
            let node = above.node();
            let locked = node.lock();
            let cause = node.word.load().cause().unwrap_or(Cause::Parent);
            CancelReason::new(cause, message_of(&locked))
        }
        None => CancelReason::new(cause, message),
    };
    Some(Cancelled {
        job: job.id(),
        origin,
        reason,
    })
}

fn message_of(locked: &Locked<'_>) -> Option<std::borrow::Cow<'static, str>> {
    locked.side.as_ref()?.cancel_message.clone()
}
