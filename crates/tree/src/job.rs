//! A job as all code but its body sees it: a handle that keeps it alive, asks it and cancels it.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::body::{Body, error_of};
use crate::cancel;
use crate::cell::attach_beside;
use crate::clock;
use crate::error::{CancelReason, Cancelled, JobError, JobId};
use crate::locals::JobLocal;
use crate::node::Node;
use crate::options::{JobOptions, ParentEnded};
use crate::path;
use crate::stack;
use crate::sync::{Ordering, model_has_failed};
use crate::wait::{CancelCallback, CancelRequested, Ended};
use crate::waiting::WaitingFor;
use crate::word::{Cause, JobState, Phase, Word};

/// A handle to a job. Clones are handles to the same job; dropping one changes nothing.
pub struct Job {
    node: NonNull<Node>,
}

// SAFETY: a reference to a node, which may be used from any thread.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    /// # Safety
    /// The caller gives away one reference to `node`.
    pub(crate) unsafe fn from_reference(node: NonNull<Node>) -> Job {
        Job { node }
    }

    /// A handle more.
    ///
    /// # Safety
    /// `node` is alive, and the pointer one that its allocation gave.
    pub(crate) unsafe fn of_node(node: NonNull<Node>) -> Job {
        // SAFETY: alive by contract.
        unsafe { node.as_ref() }.word.add_reference();
        Job { node }
    }

    #[inline]
    pub(crate) fn pointer(&self) -> NonNull<Node> {
        self.node
    }

    /// A handle to the job at `address`, which [`Job::as_ptr`] gave.
    ///
    /// # Safety
    /// The job is alive: the caller holds a handle or its body during the call.
    pub unsafe fn from_ptr(address: *const ()) -> Option<Job> {
        let node = NonNull::new(address.cast::<Node>().cast_mut())?;
        // SAFETY: alive by contract, and from `as_ptr`.
        Some(unsafe { Job::of_node(node) })
    }

    /// The job's address, for runners that carry it along.
    #[inline]
    pub fn as_ptr(&self) -> *const () {
        self.node.as_ptr().cast_const().cast()
    }

    #[inline]
    pub(crate) fn node(&self) -> &Node {
        // SAFETY: the reference keeps it alive.
        unsafe { self.node.as_ref() }
    }

    /// Makes a job under this one.
    ///
    /// Under a job that is cancelling it is born cancelled, and must not run.
    ///
    /// # Errors
    /// If this job has ended.
    #[inline]
    pub fn attach(&self, options: JobOptions) -> Result<(Job, Body), ParentEnded> {
        match attach_beside(self, options, ()) {
            Ok(attached) => Ok((attached.job, attached.body)),
            Err((ended, ())) => Err(ended),
        }
    }

    /// Returns `true` if the job was made under `parent` and a cancellation of `parent` cancels it, too.
    #[inline]
    pub fn is_cancelled_with(&self, parent: &Job) -> bool {
        let node = self.node();
        node.parent == Some(parent.node) && !node.word.load().is_shielded()
    }

    /// Returns the job's id, which is unique for as long as the program runs.
    pub fn id(&self) -> JobId {
        JobId(self.node().id)
    }

    /// Returns the job's state.
    pub fn state(&self) -> JobState {
        stack::state_of(self.node())
    }

    /// Returns `true` if the job has ended; what its body has written is then visible.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.node().word.load().is_terminal()
    }

    /// Returns `true` if the job was asked to end.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.node().word.load().is_cancelling_or_was()
    }

    /// Asks it, and everything below it, to end; `false` if it was asked before or has ended.
    ///
    /// The first reason stays the reason.
    ///
    /// ```
    /// use jobtree_tree::{JobOptions, JobState, Tree};
    ///
    /// let tree = Tree::new();
    /// let (parent, _body) = tree.root().attach(JobOptions::new())?;
    /// let (child, _child_body) = parent.attach(JobOptions::new())?;
    /// assert!(parent.cancel("nobody needs it any more"));
    /// assert_eq!(child.state(), JobState::Cancelling);
    /// let cancelled = child.cancellation().unwrap();
    /// assert_eq!(cancelled.reason().message(), Some("nobody needs it any more"));
    /// # Ok::<(), jobtree_tree::ParentEnded>(())
    /// ```
    pub fn cancel(&self, reason: impl Into<CancelReason>) -> bool {
        cancel::cancel(self, reason.into())
    }

    /// Returns the job's cancellation as an error, if it was asked to end: what a body returns through `?`.
    pub fn cancellation(&self) -> Option<Cancelled> {
        cancel::cancellation(self)
    }

    pub(crate) fn cancel_reason_or_none(&self) -> CancelReason {
        match self.cancellation() {
            Some(cancelled) => cancelled.reason,
            None => Cause::Parent.into(),
        }
    }

    /// Returns the reason why the job did not end with a value; `None` if it did, or has not ended.
    pub fn error(&self) -> Option<JobError> {
        match self.node().word.load().phase() {
            Phase::Failed | Phase::TimedOut => error_of(self.node()),
            Phase::Cancelled => self.cancellation().map(JobError::Cancelled),
            Phase::Pending | Phase::Active | Phase::Cancelling | Phase::Completed => None,
        }
    }

    /// The job above it; `None` for a root, and when the job has ended.
    pub fn parent(&self) -> Option<Job> {
        let node = self.node();
        let _locked = node.lock();
        // From here on the end would have to be decided under the lock; if it was not yet, the parent is
        // alive as long as we hold it.
        let word = node.word.change(Word::involve).ok()?.after;
        if word.is_ending() {
            return None;
        }
        // SAFETY: alive, see above.
        node.parent.map(|parent| unsafe { Job::of_node(parent) })
    }

    /// Returns the name that reports and dumps use; they escape control characters.
    pub fn label(&self) -> String {
        path::label_of(self.node())
    }

    /// The labels from the root to this job, with slashes between them, for people: control characters are escaped. Of a job that
    /// has ended only its own is known.
    pub fn path(&self) -> String {
        let mut labels = vec![self.label()];
        let mut above = self.parent();
        while let Some(job) = above {
            labels.push(job.label());
            above = job.parent();
        }
        labels.reverse();
        path::join(&labels)
    }

    /// Returns the time since the job was made, to the nearest few milliseconds.
    pub fn age(&self) -> Duration {
        clock::since(self.node().created)
    }

    /// The nearest deadline: its own, or one of a job above it, as far as a cancellation comes down from there.
    pub fn deadline(&self) -> Option<Instant> {
        let own = |job: &Job| {
            job.node()
                .lock()
                .side
                .as_ref()
                .and_then(|side| side.deadline)
        };
        let above = |job: &Job| match job.node().word.load().is_shielded() {
            true => None,
            false => job.parent(),
        };
        let mut nearest = own(self);
        let mut next = above(self);
        while let Some(job) = next {
            nearest = match (nearest, own(&job)) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            next = above(&job);
        }
        nearest
    }

    /// The value under `key` that it inherits or was made with.
    pub fn local<T: Send + Sync + 'static>(&self, key: &'static JobLocal<T>) -> Option<Arc<T>> {
        self.node().locals.get(key)
    }

    /// A future that is ready when the job has ended. Any number may wait; giving up costs as much as
    /// waiting.
    pub fn ended(&self) -> Ended {
        Ended::new(self.clone())
    }

    /// A future that is ready when the job is asked to end.
    pub fn cancel_requested(&self) -> CancelRequested {
        CancelRequested::new(self.clone(), None)
    }

    /// Calls `callback` when the job is asked to end: at once, if it was already. On whatever thread asks; so it
    /// should be short, and must not wait.
    ///
    /// Dropping what is returned takes the callback back, unless it is being called at that moment. So a callback that the body of
    /// the job itself keeps may never be called: the cancellation wakes the body, too, which may drop it first. Keep it outside of the
    /// body if it has to be called, or do in the body what follows from its cancellation.
    pub fn on_cancel(
        &self,
        callback: impl FnOnce(&CancelReason) + Send + 'static,
    ) -> CancelCallback {
        CancelCallback::new(self.clone(), Box::new(callback))
    }

    /// Returns the thing that the job's body waits for, if the body said so.
    pub fn waiting_for(&self) -> Option<WaitingFor> {
        WaitingFor::decode(self.node().waiting.load(Ordering::Relaxed))
    }

    /// For runners: the body, or a fork of it, begins to wait for something.
    #[inline]
    pub fn begin_waiting(&self, waiting: WaitingFor) {
        let word = WaitingFor::encode(Some(waiting));
        self.node().waiting.store(word, Ordering::Relaxed);
    }

    /// For runners: what was waited for has come, or is not waited for any more. If another fork of the body has begun
    /// to wait meanwhile, that is what is shown.
    #[inline]
    pub fn end_waiting(&self, waiting: WaitingFor) {
        let word = WaitingFor::encode(Some(waiting));
        let shown = &self.node().waiting;
        // Not at one go: a fork that begins to wait between the two is not shown, which is not worth a locked instruction.
        if shown.load(Ordering::Relaxed) == word {
            shown.store(0, Ordering::Relaxed);
        }
    }

    /// The jobs directly below it that have not ended.
    pub fn children(&self) -> Vec<Job> {
        let mut children = Vec::new();
        let locked = self.node().lock();
        // SAFETY: a child in the list is alive.
        locked.for_each_child(|child| children.push(unsafe { Job::of_node(child) }));
        drop(locked);
        // Ids grow on each thread, and mostly over all.
        children.sort_by_key(Job::id);
        children
    }
}

/// Gives back a reference to `node`, and frees it with the last one.
///
/// # Safety
/// The caller gives away one reference.
#[inline]
pub(crate) unsafe fn release(node: NonNull<Node>) {
    // SAFETY: alive by the reference that is given away.
    let this = unsafe { node.as_ref() };
    if this.word.drop_reference() {
        // SAFETY: the last reference. A job with references has a body or has ended; after the end, the
        // value was discarded, or taken or dropped by the handle that wanted it.
        unsafe { (this.kind.free)(node) };
    }
}

impl Clone for Job {
    fn clone(&self) -> Job {
        // SAFETY: alive by our own reference.
        unsafe { Job::of_node(self.node) }
    }
}

impl Drop for Job {
    #[inline]
    fn drop(&mut self) {
        if model_has_failed() {
            return;
        }
        // SAFETY: our own reference, once.
        unsafe { release(self.node) };
    }
}

impl PartialEq for Job {
    fn eq(&self, other: &Job) -> bool {
        self.node == other.node
    }
}

impl Eq for Job {}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.node().id)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
