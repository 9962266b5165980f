//! A job in memory: what it consists of, who may touch which part, and how long it lives.
//!
//! # Who may touch what
//!
//! * `word`: any thread, through the transitions of [`word`](crate::word).
//! * `guarded`: the thread that holds `lock`. No lock is taken while another one is held, except a child's word,
//!   which is not a lock.
//! * `links`: the thread that holds the *parent's* lock.
//! * `parent`, `tree`, `kind`, `id`, `created`, `locals`: written once, before any other thread knows the job.
//! * `stack`: the thread that runs the body, when it begins; any thread may look.
//! * `origin`: see [`origin`](crate::origin).
//! * `waiting`: the thread that runs the body; any thread may look.
//!
//! # How long it lives
//!
//! Pointers to a job are never made from a reference to it, but copied from the one that its allocation
//! gave: the thread that drops the last reference frees the whole cell through it.
//!
//! A job is freed with its last reference. Each handle is one, and its execution is one, which is given
//! back when the job has ended and its parent knows. A parent cannot end before its children, so a child
//! that has not ended may use `parent` without a reference; one that has, may not.

use std::ptr::{self, NonNull};

use jobtree_base::user_code::{Place, drop_user};

use crate::locals::Locals;
use crate::origin::OriginCell;
use crate::side::Side;
use crate::sync::{AtomicPtr, AtomicU64, SpinLock, UnsafeCell};
use crate::tree::TreeShared;
use crate::waiters::WaitList;
use crate::word::{AtomicWord, Beginning, Word};

/// The properties that all jobs of one type have in common.
pub(crate) struct Kind {
    /// Frees the memory that the job lies in, and drops what else is in it.
    ///
    /// # Safety
    /// No other thread has a reference, and the value was discarded or taken.
    pub(crate) free: unsafe fn(NonNull<Node>),
    /// Drops the value that the body left, if it left one.
    ///
    /// # Safety
    /// The body has returned, and no other thread looks at the value.
    pub(crate) discard_value: unsafe fn(NonNull<Node>),
    /// To be called when the job is asked to end, if its runner wants that.
    ///
    /// # Safety
    /// The caller holds a reference.
    pub(crate) cancelled: Option<unsafe fn(NonNull<Node>)>,
    /// To be called when the body of the parent has returned, if the runner wants that.
    ///
    /// # Safety
    /// The caller holds a reference.
    pub(crate) parent_returned: Option<unsafe fn(NonNull<Node>)>,
}

/// The part of a child that its parent's lock guards.
#[derive(Clone, Copy)]
pub(crate) struct Links {
    pub(crate) previous: Option<NonNull<Node>>,
    pub(crate) next: Option<NonNull<Node>>,
}

/// The part of a job that its own lock guards.
pub(crate) struct Guarded {
    /// One that has not ended, if there is any.
    pub(crate) first_child: Option<NonNull<Node>>,
    /// The waiters for the end.
    pub(crate) waiters: WaitList,
    /// The waiters for cancellation.
    pub(crate) cancel_waiters: WaitList,
    pub(crate) side: Option<Box<Side>>,
}

/// See the module's head.
///
/// In this order what changes while children come and go is in one cache line, together with what a job needs from its
/// beginning to its end if nothing special happens to it; and what others need to find it is in the other.
#[repr(C)]
pub(crate) struct Node {
    pub(crate) kind: &'static Kind,
    pub(crate) word: AtomicWord,
    lock: SpinLock,
    pub(crate) created: u32,
    guarded: UnsafeCell<Guarded>,
    pub(crate) locals: Locals,
    pub(crate) parent: Option<NonNull<Node>>,
    links: UnsafeCell<Links>,
    pub(crate) tree: *const TreeShared,
    pub(crate) id: u64,
    /// The job at which the cancellation began that reached this one from above.
    pub(crate) origin: OriginCell,
    /// The thing that the body waits for; see [`waiting`](crate::waiting).
    pub(crate) waiting: AtomicU64,
    /// Names the stack on which the body has begun; null if it has not, or its runner does not tell. See
    /// [`stack`](crate::stack).
    pub(crate) stack: AtomicPtr<()>,
}

// A job is two cache lines and nothing more: programs have millions of them.
#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = {
    assert!(size_of::<Node>() <= 128);
    // What a child's end touches of its parent is on the first.
    assert!(std::mem::offset_of!(Node, locals) < 64);
};

// SAFETY: see "Who may touch what": every field is atomic, written before sharing, or behind a lock. What
// the side block holds is `Send`.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

/// The parts that a new job is made of.
pub(crate) struct Origin {
    pub(crate) beginning: Beginning,
    pub(crate) parent: Option<NonNull<Node>>,
    pub(crate) tree: *const TreeShared,
    pub(crate) id: u64,
    pub(crate) created: u32,
    pub(crate) locals: Locals,
    pub(crate) side: Option<Box<Side>>,
}

impl Node {
    /// Writes a new job to `place`, field by field: a job that is put together elsewhere and then copied costs a
    /// tenth more.
    ///
    /// # Safety
    /// There is room for one at `place`, and no other thread looks.
    #[inline(always)]
    pub(crate) unsafe fn write(place: NonNull<Node>, origin: Origin, kind: &'static Kind) {
        let place = place.as_ptr();
        // SAFETY: by contract; each field is written once.
        unsafe {
            (&raw mut (*place).word).write(AtomicWord::new(Word::new(origin.beginning)));
            (&raw mut (*place).lock).write(SpinLock::new());
            (&raw mut (*place).created).write(origin.created);
            (&raw mut (*place).guarded).write(UnsafeCell::new(Guarded {
                first_child: None,
                waiters: WaitList::new(),
                cancel_waiters: WaitList::new(),
                side: origin.side,
            }));
            (&raw mut (*place).parent).write(origin.parent);
            (&raw mut (*place).links).write(UnsafeCell::new(Links {
                previous: None,
                next: None,
            }));
            (&raw mut (*place).kind).write(kind);
            (&raw mut (*place).tree).write(origin.tree);
            (&raw mut (*place).id).write(origin.id);
            (&raw mut (*place).locals).write(origin.locals);
            (&raw mut (*place).origin).write(OriginCell::new());
            (&raw mut (*place).waiting).write(AtomicU64::new(0));
            (&raw mut (*place).stack).write(AtomicPtr::new(ptr::null_mut()));
        }
    }

    /// Takes the job's lock.
    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_> {
        self.lock.acquire();
        Locked {
            node: self,
            // Asked for now: under loom this is where the access is looked at.
            guarded: self.guarded.get(),
        }
    }

    /// The links among the parent's children.
    ///
    /// # Safety
    /// The caller holds the parent's lock, and uses the reference only as long.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the parent's lock makes it unique")]
    pub(crate) unsafe fn links(&self) -> &mut Links {
        // SAFETY: the parent's lock is held, and every other access is made under it.
        unsafe { &mut *self.links.get() }
    }
}

/// Returns `true` if the user has something in a job that is about to be freed: errors or locals, whose destructors may do
/// anything.
///
/// # Safety
/// The job is alive, and no other thread has a reference to it.
#[inline]
pub(crate) unsafe fn has_user_parts(node: NonNull<Node>) -> bool {
    // SAFETY: alive by contract.
    let this = unsafe { node.as_ref() };
    // SAFETY: no other thread has a reference, so the lock is free and no thread takes it.
    !this.locals.is_empty() || unsafe { (*this.guarded.get()).side.is_some() }
}

/// Drops what the user has in a job that is about to be freed. To be called in the outermost context.
///
/// # Safety
/// As for [`has_user_parts`].
pub(crate) unsafe fn drop_user_parts(mut node: NonNull<Node>) {
    // SAFETY: alive, and no other thread has a reference, by contract.
    let this = unsafe { node.as_mut() };
    // Each error and each local guards its own destructor.
    let side = this.lock().side.take();
    drop_user(Place::Error, side);
    drop(std::mem::take(&mut this.locals));
}

/// A job whose lock is held.
pub(crate) struct Locked<'a> {
    pub(crate) node: &'a Node,
    guarded: *mut Guarded,
}

impl std::ops::Deref for Locked<'_> {
    type Target = Guarded;

    #[inline]
    fn deref(&self) -> &Guarded {
        // SAFETY: the lock is held, so no other thread has a reference.
        unsafe { &*self.guarded }
    }
}

impl std::ops::DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Guarded {
        // SAFETY: the lock is held, so no other thread has a reference; `self` is borrowed uniquely.
        unsafe { &mut *self.guarded }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.node.lock.release();
    }
}

impl Locked<'_> {
    /// Adds a child at the head of the list.
    ///
    /// # Safety
    /// `child` is alive, in no list, and stays alive until the call of [`Locked::unlink_child`] or shortly before, under the
    /// same hold of the lock.
    #[inline]
    pub(crate) unsafe fn link_child(&mut self, child: NonNull<Node>) {
        let first = self.first_child;
        // SAFETY: this lock is the one that guards the links of all children of this job; those in the
        // list are alive.
        unsafe {
            child.as_ref().links().next = first;
            if let Some(first) = first {
                first.as_ref().links().previous = Some(child);
            }
        }
        self.first_child = Some(child);
    }

    /// Takes the child with these links out of the list; the child itself is not touched.
    ///
    /// # Safety
    /// The links are those of a child that was in this job's list when the lock was taken, and have not changed since.
    #[inline]
    pub(crate) unsafe fn unlink_child(&mut self, Links { previous, next }: Links) {
        // SAFETY: as in `link_child`; the neighbours are in the list, so alive.
        unsafe {
            match previous {
                Some(previous) => previous.as_ref().links().next = next,
                None => self.first_child = next,
            }
            if let Some(next) = next {
                next.as_ref().links().previous = previous;
            }
        }
    }

    /// Returns `true` if two children or more have not ended.
    pub(crate) fn has_many_children(&self) -> bool {
        // SAFETY: a child in the list is alive; its links are guarded by this lock.
        self.first_child
            .is_some_and(|child| unsafe { child.as_ref().links().next.is_some() })
    }

    /// The side block, made if there is none.
    pub(crate) fn side(&mut self) -> &mut Side {
        self.side.get_or_insert_default()
    }

    /// Calls `visit` with each active child, which is alive. `visit` must take no lock.
    pub(crate) fn for_each_child(&self, mut visit: impl FnMut(NonNull<Node>)) {
        let mut next = self.first_child;
        while let Some(child) = next {
            visit(child);
            // SAFETY: a child is in the list only while it is alive, and the lock keeps it there; it is the
            // lock that guards these links.
            next = unsafe { child.as_ref().links().next };
        }
    }
}
