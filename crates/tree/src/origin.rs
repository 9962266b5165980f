//! The job at which a cancellation began that reached a job from above.
//!
//! A job that was cancelled with its parent must name the origin of the cancellation and tell its reason, and a tree may
//! be a hundred thousand deep: walking up to the origin from every job below it would take a time that grows with the
//! square of the depth. So each job keeps a pointer to the origin.
//!
//! *The pointer is valid while the job's end is not decided*: the origin is a job above, and a job above ends after
//! those below it. When the end is decided, under the job's lock, the pointer is replaced by the origin's id, which is
//! all that is known from then on (on a 32-bit machine its lower 31 bits). A job that was asked to end always takes its
//! lock to end, so a thread that holds the lock may follow the pointer if it finds one.
//!
//! *First decided, then replaced*: a cancellation from above arrives under the parent's lock, so it may arrive between
//! any two steps of the end. Until the decision it leaves a pointer that the replacement finds; after the decision it
//! fails, and what it wrote is not read, since the job's word does not say that it was cancelled from above.

use std::ptr::{self, NonNull};

use crate::error::JobId;
use crate::job::Job;
use crate::node::{Locked, Node};
use crate::step::{Step, left_out};
use crate::sync::{AtomicPtr, Ordering};

/// Jobs are aligned to more than two bytes, so the lowest bit of their address is free to mark an id.
const IS_ID: usize = 1;

/// See the module's head.
pub(crate) struct OriginCell(AtomicPtr<Node>);

/// The content of an [`OriginCell`].
enum Origin {
    /// The job has not decided its end, and this one is above it.
    Above(NonNull<Node>),
    /// The id of a job that may be gone.
    Named(JobId),
}

impl OriginCell {
    pub(crate) fn new() -> OriginCell {
        OriginCell(AtomicPtr::new(ptr::null_mut()))
    }

    /// Names `origin`, which is above the job of this cell. To be called under the lock of the job's parent, before the
    /// change of the job's word that lets others read it.
    pub(crate) fn set(&self, origin: NonNull<Node>) {
        self.0.store(origin.as_ptr(), Ordering::Relaxed);
    }

    fn get(&self) -> Option<Origin> {
        let value = self.0.load(Ordering::Relaxed);
        if value.addr() & IS_ID != 0 {
            return Some(Origin::Named(JobId((value.addr() >> 1) as u64)));
        }
        NonNull::new(value).map(Origin::Above)
    }

    /// Returns the origin's id.
    ///
    /// # Safety
    /// The caller holds the lock of the job of this cell, or the job's end is not decided during the call.
    pub(crate) unsafe fn id(&self) -> Option<JobId> {
        Some(match self.get()? {
            // SAFETY: the end is not decided, so the job above is alive. By contract this stays so during the call, or a
            // decision, which is made under the lock, would have replaced the pointer.
            Origin::Above(origin) => JobId(unsafe { origin.as_ref() }.id),
            Origin::Named(id) => id,
        })
    }
}

/// Replaces the pointer by the id: to be called under the job's lock, when its end has just been decided.
pub(crate) fn settle(locked: &Locked<'_>) {
    let cell = &locked.node.origin;
    if left_out(Step::OriginIsSettled) {
        return;
    }
    // SAFETY: the lock is held.
    if let Some(id) = unsafe { cell.id() } {
        let marked = ((id.0 as usize) << 1) | IS_ID;
        cell.0
            .store(ptr::without_provenance_mut(marked), Ordering::Relaxed);
    }
}

/// Returns a pointer to the job at which the cancellation of the locked job began, for those below it. The job is
/// cancelling, and its end is not decided.
pub(crate) fn origin_for_children(
    locked: &Locked<'_>,
    job: NonNull<Node>,
    came_from_above: bool,
) -> NonNull<Node> {
    match locked.node.origin.get() {
        Some(Origin::Above(origin)) if came_from_above => origin,
        _ => job,
    }
}

/// Returns a handle to the job above at which the cancellation of the locked job began; `None` if the job has ended.
pub(crate) fn origin_handle(locked: &Locked<'_>) -> Option<Job> {
    match locked.node.origin.get()? {
        Origin::Above(origin) => {
            // SAFETY: the lock is held, and the pointer was not replaced: the end is not decided, so the job above is
            // alive. The pointer is the one that its allocation gave.
            let origin = unsafe { Job::of_node(origin) };
            debug_assert!(!origin.is_ended(), "a job ended before one below it");
            Some(origin)
        }
        Origin::Named(_) => None,
    }
}
