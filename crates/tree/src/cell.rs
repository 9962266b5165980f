//! Where jobs lie: a job together with what the layer that runs it keeps beside it, in one allocation.

use std::ptr::NonNull;

use crate::attach;
use crate::body::Body;
use crate::job::Job;
use crate::node::{Kind, Node, Origin};
use crate::options::{JobOptions, ParentEnded};

/// What a runner keeps beside a job.
///
/// # Safety
/// `discard_value` and dropping may happen on any thread, so what is inside must allow that, whatever its
/// type says: the runner who makes it answers for the lifetimes of what it borrows.
pub unsafe trait Beside: Sized {
    /// Drops the value that the body left, if there is one. Called at most once, after the body has
    /// returned, when nobody will take the value; nobody else looks at it then.
    fn discard_value(&self);
}

// SAFETY: there is nothing.
unsafe impl Beside for () {
    fn discard_value(&self) {}
}

/// A job and what lies beside it.
#[repr(C)]
struct JobCell<X> {
    node: Node,
    beside: X,
}

impl<X: Beside> JobCell<X> {
    const KIND: Kind = Kind {
        free: Self::free,
        discard_value: Self::discard_value,
    };

    unsafe fn free(node: NonNull<Node>) {
        // SAFETY: made by `Box::into_raw` of this type in `attach_beside`; nobody else has a reference.
        drop(unsafe { Box::from_raw(node.cast::<JobCell<X>>().as_ptr()) });
    }

    unsafe fn discard_value(node: NonNull<Node>) {
        // SAFETY: the job is alive, and its cell is of this type.
        unsafe { node.cast::<JobCell<X>>().as_ref() }
            .beside
            .discard_value();
    }
}

/// A new job with something beside it, whose address stays the same until the job is freed.
pub struct Attached<X> {
    /// A handle to the job.
    pub job: Job,
    /// The right and duty to run it.
    pub body: Body,
    /// What lies beside it; alive as long as any handle or the body is.
    pub beside: NonNull<X>,
}

/// Makes a job under `parent` with `beside` in the same allocation.
///
/// # Errors
/// If the parent has ended; `beside` comes back.
#[inline]
pub fn attach_beside<X: Beside>(
    parent: &Job,
    options: JobOptions,
    beside: X,
) -> Result<Attached<X>, (ParentEnded, X)> {
    let parent_pointer = parent.pointer();
    let parent = parent.node();
    let (beginning, side, locals) = options.into_parts(parent);
    let shielded = beginning.shielded;
    let node = Node::new(
        Origin {
            beginning,
            parent: Some(parent_pointer),
            tree: parent.tree,
            id: crate::monitor::next_id(),
            created: crate::clock::coarse_millis(),
            locals,
            side,
        },
        &JobCell::<X>::KIND,
    );
    let cell = Box::into_raw(Box::new(JobCell { node, beside }));
    // SAFETY: never null, and the node is the first field.
    let node = unsafe { NonNull::new_unchecked(cell) }.cast::<Node>();
    // SAFETY: just made, so alive and known to nobody else; in no list.
    match unsafe { attach::link(parent, node, shielded) } {
        Ok(()) => {
            // SAFETY: a new node has two references, one for each of these.
            unsafe {
                Ok(Attached {
                    job: Job::from_reference(node),
                    body: Body::from_reference(node),
                    beside: NonNull::new_unchecked(&raw mut (*cell).beside),
                })
            }
        }
        Err(ended) => {
            // SAFETY: made by `Box::into_raw` above, and not linked, so nobody else knows it.
            let cell = unsafe { Box::from_raw(cell) };
            Err((ended, cell.beside))
        }
    }
}
