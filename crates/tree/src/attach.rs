//! A child gets its parent.
//!
//! Attaching happens under the parent's lock, and makes the parent end under its lock from then on. So
//! either the child is there before the parent's end is decided, and the end waits for it, or it is
//! refused. And either the child is there when a cancellation goes through the parent's children, or it
//! sees under the lock that the parent is cancelling, and is born cancelled.

use std::ptr::NonNull;

use crate::error::JobId;
use crate::monitor::{Counter, EventKind, Monitor};
use crate::node::Node;
use crate::options::ParentEnded;
use crate::origin::origin_for_children;
use crate::step::{Step, left_out};
use crate::word::{Cause, Word};

/// Puts `child` among the children of `parent`.
///
/// # Safety
/// `parent` is alive. `child` is alive, known to no other thread and in no list; it stays alive until its end was told to
/// the parent. Both pointers are those that the allocations gave.
#[inline]
pub(crate) unsafe fn link(
    parent_pointer: NonNull<Node>,
    child: NonNull<Node>,
    shielded: bool,
) -> Result<(), ParentEnded> {
    // SAFETY: alive by contract.
    let parent = unsafe { parent_pointer.as_ref() };
    let mut locked = parent.lock();
    let mut word = parent.word.load();
    if !word.is_involved() && !left_out(Step::AttachInvolves) {
        word = match parent.word.change(|word| word.adopt()) {
            Ok(changed) => changed.after,
            Err(_) => return Err(ParentEnded),
        };
    } else if word.is_ending() {
        // Cannot change while the lock is held: an involved job ends under it.
        return Err(ParentEnded);
    }
    let born_cancelled = word.is_cancelling_or_was() && !shielded && !left_out(Step::BornCancelled);
    if born_cancelled {
        // SAFETY: by contract.
        let child = unsafe { child.as_ref() };
        let came_from_above = word.cause() == Some(Cause::Parent);
        let origin = origin_for_children(&locked, parent_pointer, came_from_above);
        child.origin.set(origin);
        let _ = child.word.change(|word| word.cancel(Cause::Parent));
        // SAFETY: the tree lives as long as a job that has not told its parent of its end; `child` has not even begun.
        let monitor = unsafe { &(*child.tree).monitor };
        monitor.count(Counter::CancelRequests);
    }
    // SAFETY: by contract.
    let is_scope = unsafe { child.as_ref() }.kind.parent_returned.is_some();
    if is_scope && !word.has_scopes() {
        parent.word.change_always(Word::add_scope);
    }
    // SAFETY: by contract.
    unsafe { locked.link_child(child) };
    drop(locked);
    // SAFETY: by contract.
    let child = unsafe { child.as_ref() };
    // SAFETY: the tree lives as long as a job that has not told its parent of its end; `child` has not
    // even begun.
    let monitor = unsafe { &(*child.tree).monitor };
    monitor.count(Counter::Created);
    if monitor.is_watched() {
        tell_of(monitor, child, JobId(parent.id));
    }
    Ok(())
}

#[cold]
fn tell_of(monitor: &Monitor, child: &Node, parent: JobId) {
    #[cfg(feature = "tracing")]
    crate::monitor::spans::created(child, parent);
    let child = JobId(child.id);
    let above = Some(parent);
    monitor.event(child, EventKind::Create { parent: above });
    monitor.event(parent, EventKind::ChildAttach { child });
}
