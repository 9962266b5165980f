//! The right and duty to run a job, and what follows when its body has returned.
//!
//! The end of a job may be the end of its parent, and so on up to the root: a loop, not a recursion. It
//! touches each job only as long as it may: until the parent knows of its end, the tree and all jobs
//! above are alive; afterwards only those that the thread holds a reference to.
//!
//! User code that runs because of an end (destructors of values and errors, wakers, callbacks, subscribers) is called without
//! a lock, and its panics are recorded. As soon as a parent knows of the end of its last child, the frames behind the
//! thread's context may be gone: from there on user code runs in the outermost context (`outermost.rs`).

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::Waker;

use jobtree_base::user_code::{Place, drop_user, wake_all_users, wake_user};

use crate::cancel;
use crate::error::{BoxError, Failure, JobError, JobId, Panic, TimedOut, origins_in};
use crate::job::{Job, release};
use crate::monitor::{Counter, EventKind, trace};
use crate::node::{Locked, Node};
use crate::origin;
use crate::outermost::{Ending, limits_of, outermost, within};
use crate::path::path_of;
use crate::step::{Step, left_out};
use crate::sync::model_has_failed;
use crate::waiters::Wake;
use crate::word::{BodyEnd, Cause, JobState, Phase, Word};

/// The body has returned, and children still run.
const COMPLETING: EventKind = EventKind::State {
    to: JobState::Completing,
};

/// The way in which a body ended.
#[non_exhaustive]
pub enum BodyResult {
    /// The body returned a value, which lies where the runner keeps it.
    Value,
    /// The body returned an error. If it holds the cancellation of this very job, the job is cancelled and has not failed.
    Failed(BoxError),
    /// The body panicked, and where, if that is known.
    Panicked {
        /// The payload that was caught.
        payload: Box<dyn Any + Send>,
        /// `file:line:column`.
        location: Option<String>,
    },
    /// The body saw that its job is cancelled, or was never begun.
    Cancelled,
}

impl fmt::Debug for BodyResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyResult::Value => f.write_str("Value"),
            BodyResult::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
            BodyResult::Panicked { .. } => f.write_str("Panicked"),
            BodyResult::Cancelled => f.write_str("Cancelled"),
        }
    }
}

/// The right and duty to run a job. Dropped without an end, the job is cancelled as abandoned.
pub struct Body {
    /// The execution's reference: given back by the end, not by a destructor.
    job: ManuallyDrop<Job>,
}

impl Body {
    /// # Safety
    /// The caller gives away one reference to `node`, the one of its execution.
    pub(crate) unsafe fn from_reference(node: NonNull<Node>) -> Body {
        // SAFETY: by contract.
        let job = unsafe { Job::from_reference(node) };
        Body {
            job: ManuallyDrop::new(job),
        }
    }

    /// The job.
    #[inline]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Begins the body; `false` if it must not run because the job was cancelled first.
    #[inline]
    #[must_use]
    pub fn start(&self) -> bool {
        let node = self.job.node();
        if node.word.change(Word::start).is_err() {
            return false;
        }
        self.tell_of_start();
        true
    }

    #[inline]
    pub(crate) fn tell_of_start(&self) {
        let node = self.job.node();
        // SAFETY: the job has not ended, so its tree is alive.
        let monitor = unsafe { &(*node.tree).monitor };
        let to = JobState::Active;
        monitor.event(JobId(node.id), EventKind::State { to });
    }

    /// The body has returned. The job ends now, or when its last child does.
    #[inline]
    pub fn end(self, result: BodyResult) {
        let body = ManuallyDrop::new(self);
        // SAFETY: the execution's reference is given away, once.
        unsafe { end_body(body.job.pointer(), result) };
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if model_has_failed() {
            return;
        }
        self.job.cancel(Cause::Abandoned);
        // SAFETY: the execution's reference is given away, once: `end` forgets the body.
        unsafe { end_body(self.job.pointer(), BodyResult::Cancelled) };
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Body").field(&*self.job).finish()
    }
}

/// # Safety
/// The caller gives away the execution's reference to `node`.
#[inline]
unsafe fn end_body(node: NonNull<Node>, result: BodyResult) {
    // SAFETY: as by contract, in all of them.
    unsafe {
        match result {
            BodyResult::Value => {
                if !end_leaf(node) {
                    end_body_slowly(node, BodyResult::Value);
                }
            }
            result => end_body_slowly(node, result),
        }
    }
}

/// Ends a job that no thread but its body's knows, by one change under its parent's lock; `false`, and nothing has happened,
/// if it is not one.
///
/// # Safety
/// The caller gives away the execution's reference, if this returns `true`.
#[inline]
unsafe fn end_leaf(node: NonNull<Node>) -> bool {
    // SAFETY: alive by the reference that is given away.
    let this = unsafe { node.as_ref() };
    let Some(parent_pointer) = this.parent else {
        return false;
    };
    if this.word.load_relaxed().end_as_leaf().is_none() {
        return false;
    }
    // SAFETY: a parent does not end, and so is not freed, before its children have told it.
    let parent = unsafe { parent_pointer.as_ref() };
    let id = JobId(this.id);
    let state = JobState::Completed;
    let mut locked = parent.lock();
    // Read first: the change gives back the reference, and a handle may free the job the moment after.
    // SAFETY: the parent's lock is held.
    let links = unsafe { *this.links() };
    let ended = this.word.change(Word::end_as_leaf);
    let Ok(changed) = ended else {
        return false;
    };
    // SAFETY: a job with an active child has not ended, so its tree is alive.
    let monitor = unsafe { &(*parent.tree).monitor };
    monitor.count(Counter::Completed);
    monitor.record(id, EventKind::Finalize { state });
    // SAFETY: read above under the same hold of the lock.
    unsafe { locked.unlink_child(links) };
    let parent_ends = ends_with_last_child(&locked);
    drop(locked);
    if cfg!(feature = "tracing") {
        // A subscriber is user code, and the parent's frames may be gone.
        outermost(|| trace(id, EventKind::Finalize { state }));
    }
    if changed.after.references() == 0 {
        // SAFETY: no thread has a reference. There was no handle, or it was dropped, and its value with it: else the value
        // would not be wanted.
        let free = || unsafe { (this.kind.free)(node) };
        if parent_ends {
            // SAFETY: its end was decided here, so its execution's reference is ours.
            let _ending = Ending::here(unsafe { parent_pointer.as_ref() });
            free();
        } else {
            free();
        }
    }
    if parent_ends {
        // SAFETY: its end was decided here, which makes its execution's reference ours.
        unsafe { end_parents(parent_pointer) };
    }
    true
}

/// Ends a job whose end was decided when its last child ended, and those above it that end by that.
///
/// # Safety
/// Called once for the end of `node`; the caller gives away the execution's reference.
#[cold]
#[inline(never)]
unsafe fn end_parents(node: NonNull<Node>) {
    outermost(|| {
        let mut next = Some(node);
        while let Some(node) = next {
            // SAFETY: its end was decided, by contract or in `tell_parent`, which makes its execution's reference ours.
            next = unsafe { tell_parent(node, become_terminal(node)) };
        }
    });
}

/// Under the lock, after a child has left: whether the job ends by that, which is then decided.
#[inline]
fn ends_with_last_child(locked: &Locked<'_>) -> bool {
    let word = &locked.node.word;
    let ends = locked.first_child.is_none()
        && (word.load().body_returned() || left_out(Step::EndAwaitsBody));
    if ends {
        decide_end(locked);
    }
    ends
}

/// Under the lock: the job ends now.
#[inline]
fn decide_end(locked: &Locked<'_>) {
    if left_out(Step::OriginIsSettledLast) {
        origin::settle(locked);
        locked.node.word.change_always(Word::begin_end);
        return;
    }
    locked.node.word.change_always(Word::begin_end);
    // A cancellation from above arrives under the parent's lock, not this one: until the end was decided.
    origin::settle(locked);
}

#[cold]
#[inline(never)]
unsafe fn end_body_slowly(node: NonNull<Node>, result: BodyResult) {
    // SAFETY: alive by the reference that is given away.
    let this = unsafe { node.as_ref() };
    let Judgement {
        end,
        error,
        mut unkept,
    } = {
        // Asks the error for its sources, and they are the user's.
        let _ending = matches!(result, BodyResult::Failed(_)).then(|| Ending::here(this));
        judge(node, result)
    };
    let mut to_broadcast = None;
    let mut surplus = None;
    let mut scopes = Vec::new();
    // The last child may free the job as soon as the lock is free.
    let id = JobId(this.id);
    let mut is_completing = false;
    let ends_now = {
        let mut locked = this.lock();
        if let Some(error) = error {
            // Before the change that lets others read it.
            surplus = locked.side().errors.record(error);
        }
        let returned = |word: Word| word.return_body(end).involve();
        let changed = this.word.change(returned);
        debug_assert!(changed.is_ok(), "a job ended before its body");
        let ends_now = locked.first_child.is_none() || left_out(Step::EndAwaitsChildren);
        if ends_now {
            decide_end(&locked);
        } else if this.parent.is_some() && this.word.load().has_scopes() {
            locked.for_each_child(|child| {
                // SAFETY: a child in the list is alive.
                if unsafe { child.as_ref() }.kind.parent_returned.is_some() {
                    // SAFETY: as above.
                    scopes.push(unsafe { Job::of_node(child) });
                }
            });
        }
        if !ends_now && changed.is_ok_and(|c| c.after.state() == JobState::Completing) {
            is_completing = true;
            // SAFETY: the job cannot end while its lock is held, so its tree is alive.
            unsafe { &*this.tree }.monitor.record(id, COMPLETING);
        }
        let somebody_to_tell = !ends_now || !locked.cancel_waiters.is_empty();
        if end == BodyEnd::Failed
            && somebody_to_tell
            && changed.is_ok_and(|c| !c.before.is_cancelling_or_was())
        {
            // The last child may end the job as soon as the lock is free: a reference for what follows.
            // SAFETY: alive.
            to_broadcast = Some(broadcast_with(unsafe { Job::of_node(node) }));
        }
        ends_now
    };
    if cfg!(feature = "tracing") && is_completing {
        // A subscriber is user code, and the parent's frames may be gone.
        outermost(|| trace(id, COMPLETING));
    }
    if surplus.is_some() || unkept.is_some() || to_broadcast.is_some() {
        // If the end was not decided here, it does not wait for this code, and the last child may free the job.
        let _ending = ends_now.then(|| Ending::here(this));
        // SAFETY: alive by the reference that is given away.
        let limits = unsafe { limits_of(node) };
        within(limits.as_deref(), || {
            drop_user(Place::Error, unkept.take());
            drop(surplus);
        });
        if let Some(broadcast) = to_broadcast {
            broadcast();
        }
    }
    if ends_now {
        // SAFETY: its end was decided here, and the reference is given away.
        unsafe {
            let word = become_terminal(node);
            tell_parents(node, word);
        }
    }
    // The last of them may end this job, which is not touched any more.
    for scope in scopes {
        if let Some(parent_returned) = scope.node().kind.parent_returned {
            // SAFETY: the handle is a reference.
            unsafe { parent_returned(scope.pointer()) };
        }
    }
}

/// The meaning of a body's result for its job.
struct Judgement {
    end: BodyEnd,
    /// The error that the job is to record.
    error: Option<JobError>,
    /// An error that is no failure of the job, to be dropped when the body's end is known: its destructor is the user's.
    unkept: Option<BoxError>,
}

fn judge(node: NonNull<Node>, result: BodyResult) -> Judgement {
    // SAFETY: alive by the execution's reference, which the caller holds.
    let this = unsafe { node.as_ref() };
    let (end, error) = match result {
        BodyResult::Value => (BodyEnd::Value, None),
        BodyResult::Cancelled => (BodyEnd::Cancelled, None),
        BodyResult::Failed(error) => {
            let origins = origins_in(&*error);
            cancel::hasten(node, &origins);
            let word = this.word.load();
            // SAFETY: the caller holds the execution, so the end is not decided.
            let own_origin = || unsafe { cancel::origin_id(this, word) };
            if word.is_cancelling_or_was()
                && !left_out(Step::OwnCancellationIsNoFailure)
                && !origins.is_empty()
                && origins.contains(&own_origin())
            {
                return Judgement {
                    end: BodyEnd::Cancelled,
                    error: None,
                    unkept: Some(error),
                };
            }
            (BodyEnd::Failed, Some(passed_on_or_own(this, error)))
        }
        BodyResult::Panicked { payload, location } => {
            let panic = Panic::new(payload, location, path_of(this));
            (BodyEnd::Failed, Some(JobError::Panicked(panic)))
        }
    };
    Judgement {
        end,
        error,
        unkept: None,
    }
}

/// The error of another job that the body passes on is its own, and tells where it came from; others are told with the
/// path of this job. The cancellation of another job is no error of this one, but that it was passed on is.
fn passed_on_or_own(node: &Node, error: BoxError) -> JobError {
    match error.downcast::<JobError>() {
        Ok(passed_on) if !passed_on.is_cancelled() => *passed_on,
        Ok(cancelled) => JobError::Failed(Failure::new(cancelled, path_of(node))),
        Err(own) => JobError::Failed(Failure::new(own, path_of(node))),
    }
}

/// Returns the work that follows when `job` has begun to cancel because of a failure, to be done after its lock was released.
fn broadcast_with(job: Job) -> impl FnOnce() {
    // SAFETY: called under the lock of a job whose end is not decided, so its tree is alive; what is needed
    // of it later is taken now.
    let tree = unsafe { &*job.node().tree };
    let hook = tree.cancelled_hook();
    tree.monitor.record(job.id(), cancel::BEGINS);
    move || {
        trace(job.id(), cancel::BEGINS);
        cancel::broadcast(job, hook);
    }
}

/// Drops a value that no handle will take, and makes the end, which was decided, visible.
///
/// # Safety
/// Called once, by the one who decided the end, which holds the execution's reference.
unsafe fn become_terminal(node: NonNull<Node>) -> Word {
    // SAFETY: alive by the execution's reference.
    let this = unsafe { node.as_ref() };
    if this.word.load().cause() == Some(Cause::Timeout) {
        // Made while its path is still known, and before any thread can ask for it.
        let timed_out = JobError::TimedOut(TimedOut::new(JobId(this.id), path_of(this)));
        let mut locked = this.lock();
        let side = locked.side();
        side.ended_with = Some(side.errors.after(timed_out));
    }
    // Before any thread can see the end: who joins the job and passes its error on must not be heard first.
    if let (Some(parent), Some(error)) =
        (this.parent, error_for_parent(this, this.word.load().end()))
    {
        // It tells the jobs below the parent, whose callbacks run here.
        let _ending = Ending::here(this);
        fail_parent(parent, error);
    }
    let mut discarded = false;
    loop {
        if !discarded && this.word.load().drops_value() {
            let _ending = Ending::here(this);
            // SAFETY: alive by the execution's reference.
            let limits = unsafe { limits_of(node) };
            // SAFETY: the body has returned, and no handle takes a value that is to be dropped.
            within(limits.as_deref(), || unsafe {
                (this.kind.discard_value)(node)
            });
            discarded = true;
        }
        let ended = this
            .word
            .change(|word| (discarded || !word.drops_value()).then(|| word.end()));
        if let Ok(changed) = ended {
            return changed.after;
        }
    }
}

/// Tells the waiters of `node`, which has just ended with `word`, and its parent, which may end by that, and so on.
///
/// # Safety
/// Called once for the end of `node`; the caller gives away the execution's reference.
#[inline]
unsafe fn tell_parents(node: NonNull<Node>, word: Word) {
    // SAFETY: by contract.
    if let Some(parent) = unsafe { tell_parent(node, word) } {
        // SAFETY: its end was decided, which makes its execution's reference ours.
        unsafe { end_parents(parent) };
    }
}

/// Tells the waiters of `node`, which has just ended with `word`, and its parent; returns the parent if that ends now.
///
/// # Safety
/// Called once for the end of `node`; the caller gives away the execution's reference. The parent's comes to the caller.
#[inline]
unsafe fn tell_parent(node: NonNull<Node>, word: Word) -> Option<NonNull<Node>> {
    // SAFETY: alive by the execution's reference, which is given back below.
    let this = unsafe { node.as_ref() };
    // SAFETY: by contract.
    unsafe { tell_waiters(this, word) };
    // SAFETY: a child of this parent, and this is the one time that it tells its end.
    let ends = |parent: &NonNull<Node>| unsafe { child_ended(*parent, this) };
    let ended_parent = this.parent.filter(ends);
    // The errors and locals of the job may die here, before the parent that ends by it.
    // SAFETY: alive by its execution's reference, which came to the caller.
    let _ending = ended_parent.map(|parent| Ending::here(unsafe { parent.as_ref() }));
    // SAFETY: the execution's reference; from here on `this` may be gone.
    unsafe { release(node) };
    ended_parent
}

/// Counts and reports the end of `node`, and wakes those who wait for it.
///
/// # Safety
/// The parent does not know of the end yet, so the tree is alive.
#[inline]
unsafe fn tell_waiters(node: &Node, word: Word) {
    // SAFETY: by contract.
    let monitor = unsafe { &(*node.tree).monitor };
    let state = word.state();
    monitor.count(match word.phase() {
        Phase::Failed => Counter::Failed,
        Phase::Cancelled => Counter::Cancelled,
        Phase::TimedOut => Counter::TimedOut,
        _ => Counter::Completed,
    });
    monitor.event(JobId(node.id), EventKind::Finalize { state });
    if word.is_involved() {
        wake_waiters(node);
    }
}

/// Returns the error that the parent is given if a job that will end as `ended` failed or timed out.
fn error_for_parent(node: &Node, ended: Word) -> Option<JobError> {
    match ended.phase() {
        Phase::TimedOut | Phase::Failed
            if !ended.is_contained() || left_out(Step::ContainedFailsAlone) =>
        {
            error_of(node)
        }
        _ => None,
    }
}

/// Returns the error of a job that has ended, if it failed or timed out.
pub(crate) fn error_of(node: &Node) -> Option<JobError> {
    let locked = node.lock();
    let side = locked.side.as_ref()?;
    side.ended_with.clone().or_else(|| side.errors.combined())
}

fn wake_waiters(node: &Node) {
    let (first, mut are_more) = {
        let mut locked = node.lock();
        (locked.waiters.take_first(), !locked.waiters.is_empty())
    };
    if let Some(waker) = first.and_then(|wake| waker_of(node, wake)) {
        wake_user(waker);
    }
    // Usually there is but one.
    while are_more && !left_out(Step::EveryWaiterIsWoken) {
        let batch = node.lock().waiters.take_batch();
        let wakers = batch.into_iter().filter_map(|wake| {
            are_more &= wake.is_some();
            waker_of(node, wake?)
        });
        wake_all_users(wakers);
    }
}

/// Returns the waker of a waiter for the end of `node`, which is about to be woken.
#[inline]
fn waker_of(node: &Node, wake: Wake) -> Option<Waker> {
    // No waiter for an end has a function or lends a waker.
    let Wake::Task(waker) = wake else {
        return None;
    };
    // SAFETY: the parent does not know of the end yet, so the tree is alive.
    let monitor = unsafe { &(*node.tree).monitor };
    monitor.count(Counter::WaitersWoken);
    monitor.event(JobId(node.id), EventKind::WaitWake);
    Some(waker)
}

/// A child has ended; `true` if the parent ends by that, and with it the right to end it comes
/// to the caller.
///
/// # Safety
/// `child` is in the list of the parent, and this is the only call for it.
#[inline]
unsafe fn child_ended(parent: NonNull<Node>, child: &Node) -> bool {
    // SAFETY: a parent does not end, and so is not freed, before its children have told it.
    let mut locked = unsafe { parent.as_ref() }.lock();
    // SAFETY: by contract.
    unsafe { locked.unlink_child(*child.links()) };
    ends_with_last_child(&locked)
}

/// A child will end with `error`: fails the parent, unless that does not mind.
fn fail_parent(parent_pointer: NonNull<Node>, error: JobError) {
    // SAFETY: a parent does not end, and so is not freed, before its children have told it.
    let parent = unsafe { parent_pointer.as_ref() };
    let mut to_broadcast = None;
    let surplus;
    {
        let mut locked = parent.lock();
        if parent.word.load().is_supervisor() && !left_out(Step::SupervisorShrugs) {
            return;
        }
        // Before the change that lets others read it.
        surplus = locked.side().errors.record(error);
        let changed = parent.word.change_always(Word::child_failed);
        let somebody_to_tell = locked.has_many_children()
            || !changed.before.body_returned()
            || !locked.cancel_waiters.is_empty();
        if somebody_to_tell && !changed.before.is_cancelling_or_was() {
            // SAFETY: alive, since the child has not told it of its end.
            to_broadcast = Some(broadcast_with(unsafe { Job::of_node(parent_pointer) }));
        }
    }
    drop(surplus);
    if let Some(broadcast) = to_broadcast {
        broadcast();
    }
}
