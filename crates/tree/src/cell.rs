//! The memory of jobs: a job together with what the layer that runs it keeps beside it, in one allocation.

use std::alloc::Layout;
use std::ptr::NonNull;

use crate::attach;
use crate::body::Body;
use crate::deferred::put_aside;
use crate::job::Job;
use crate::locals::Locals;
use crate::memory;
use crate::node::{Kind, Node, Origin, drop_user_parts, has_user_parts};
use crate::options::{JobOptions, ParentEnded};
use crate::outermost::{limits_of, outermost, within};

/// The data that a runner keeps beside a job.
///
/// # Safety
/// `discard_value` and dropping may happen on any thread, so what is inside must allow that, whatever its
/// type says: the runner who makes it answers for the lifetimes of what it borrows.
pub unsafe trait Beside: Sized {
    /// Drops the value that the body left, if there is one. Called at most once, after the body has
    /// returned, when no handle will take the value; no other thread looks at it then.
    fn discard_value(&self);

    /// `true` if [`cancelled`](Beside::cancelled) is to be called.
    const WANTS_CANCELLATION: bool = false;

    /// The job was asked to end: called once, on any thread, without a lock, at any time of the job's life; even when its
    /// body has returned.
    fn cancelled(&self) {}

    /// `true` if [`parent_returned`](Beside::parent_returned) is to be called.
    const WANTS_PARENTS_RETURN: bool = false;

    /// The body of the job above has returned, and this job has not ended: called once, on the thread of that body, without a
    /// lock. Not called for the children of a root, whose body returns when its tree is closed.
    fn parent_returned(&self) {}
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
        cancelled: if X::WANTS_CANCELLATION {
            Some(Self::cancelled)
        } else {
            None
        },
        parent_returned: if X::WANTS_PARENTS_RETURN {
            Some(Self::parent_returned)
        } else {
            None
        },
    };

    unsafe fn free(node: NonNull<Node>) {
        let cell = node.cast::<JobCell<X>>();
        // SAFETY: made in `attach_beside` of this type and with its layout; no other thread has a reference. What the user has
        // in the node is gone or was never there, and nothing else in it has a destructor.
        let free = || unsafe {
            (&raw mut (*cell.as_ptr()).beside).drop_in_place();
            memory::free(cell.cast(), Layout::new::<JobCell<X>>());
        };
        // SAFETY: no other thread has a reference.
        if unsafe { has_user_parts(node) } {
            // SAFETY: this is the end of the last reference; put aside, the job is freed by the one who gets it.
            if unsafe { put_aside(node) } {
                return;
            }
            // Where its memory was taken: see `allocate`. What the user has in the node goes first: what is left runs no code
            // of the user's and cannot unwind.
            free_in_outermost(node, free);
        } else {
            free();
        }
    }

    /// Returns memory for a job with these locals. A job with locals may be in the account of a budget, which counts what is
    /// allocated in its context. The job itself is freed in the outermost context, so that is where its memory is taken, too.
    #[inline(always)]
    fn allocate(locals: &Locals) -> NonNull<JobCell<X>> {
        let layout = Layout::new::<JobCell<X>>();
        let memory = if locals.is_empty() {
            memory::allocate(layout)
        } else {
            outermost(|| memory::allocate(layout))
        };
        memory.cast()
    }

    unsafe fn cancelled(node: NonNull<Node>) {
        // SAFETY: the job is alive, and its cell is of this type.
        unsafe { node.cast::<JobCell<X>>().as_ref() }
            .beside
            .cancelled();
    }

    unsafe fn parent_returned(node: NonNull<Node>) {
        // SAFETY: the job is alive, and its cell is of this type.
        unsafe { node.cast::<JobCell<X>>().as_ref() }
            .beside
            .parent_returned();
    }

    unsafe fn discard_value(node: NonNull<Node>) {
        // SAFETY: the job is alive, and its cell is of this type.
        unsafe { node.cast::<JobCell<X>>().as_ref() }
            .beside
            .discard_value();
    }
}

#[cold]
#[inline(never)]
fn free_in_outermost(node: NonNull<Node>, free: impl FnOnce()) {
    outermost(|| {
        // SAFETY: called by the one who frees the job, so it is alive.
        let limits = unsafe { limits_of(node) };
        // SAFETY: called by the one who frees the job, to whom alone it is known.
        within(limits.as_deref(), || unsafe { drop_user_parts(node) });
        free();
    });
}

/// A new job with something beside it, whose address stays the same until the job is freed.
pub struct Attached<X> {
    /// A handle to the job.
    pub job: Job,
    /// The right and duty to run it.
    pub body: Body,
    /// The data beside the job; alive as long as any handle or the body is.
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
    // SAFETY: it writes a whole one.
    unsafe { attach_beside_with(parent, options, |place: NonNull<X>| place.write(beside)) }
}

/// [`attach_beside`] with something that is written where it will lie: what is put together elsewhere and then copied costs
/// some nanoseconds more.
///
/// # Errors
/// If the parent has ended; what was written comes back.
///
/// # Safety
/// `write` is given room for one, and has written a whole one when it returns.
#[inline(always)]
pub unsafe fn attach_beside_with<X: Beside>(
    parent: &Job,
    options: JobOptions,
    write: impl FnOnce(NonNull<X>),
) -> Result<Attached<X>, (ParentEnded, X)> {
    let parent_pointer = parent.pointer();
    let parent = parent.node();
    let (beginning, side, locals) = options.into_parts(parent);
    let shielded = beginning.is_shielded();
    let cell = JobCell::<X>::allocate(&locals);
    // The first field.
    let node = cell.cast::<Node>();
    let origin = Origin {
        beginning,
        parent: Some(parent_pointer),
        tree: parent.tree,
        id: crate::monitor::next_id(),
        created: crate::clock::coarse_millis(),
        locals,
        side,
    };
    // SAFETY: just allocated with the layout of this type; each field is written once.
    let beside = unsafe {
        Node::write(node, origin, &JobCell::<X>::KIND);
        NonNull::new_unchecked(&raw mut (*cell.as_ptr()).beside)
    };
    write(beside);
    // SAFETY: the parent is alive by its handle. The child was just made, so it is alive, known to no other thread and in no
    // list. Both pointers come from their allocations.
    match unsafe { attach::link(parent_pointer, node, shielded) } {
        Ok(()) => {
            // SAFETY: a new node has two references, one for each of these.
            unsafe {
                Ok(Attached {
                    job: Job::from_reference(node),
                    body: Body::from_reference(node),
                    beside,
                })
            }
        }
        Err(ended) => {
            // SAFETY: made above, and not linked, so no other thread knows it; each field is read once, and the memory
            // given back with the layout that it has.
            let JobCell { node, beside } = unsafe {
                let contents = cell.read();
                memory::free(cell.cast(), Layout::new::<JobCell<X>>());
                contents
            };
            drop(node);
            Err((ended, beside))
        }
    }
}
