//! Stopping: a layer above sets a bit, and every fork made in a context that looks at this bit unwinds.
//!
//! A context can have a [`StopSignal`]. Where a fork makes a record ([`Worker::fork`](crate::worker::Worker)),
//! it looks at the signal of the context it runs in, and if that is set, it unwinds with [`Stopped`]. Nearly
//! all forks make no record, though: they are plain calls, and look at nothing but the push limit of their
//! fiber's deque. So the thread that sets a signal then calls `interrupt_forks`, which makes every worker of the
//! pool look at its next fork, in the way in which a thief asks for one: it writes `ASKED` into the limit.
//!
//! # Protocol
//!
//! ```text
//!   who stops                            the owner of the fiber
//!     set the signal                       write the limit
//!     full fence                           full fence
//!     read the worker's current fiber      look at the signal of the context; if it is set, ask
//!     write ASKED into its limit
//! ```
//!
//! The owner may write its limit at the very moment when it is interrupted, or switch to a fiber that the
//! interrupter does not see. Then the interrupt would be lost, and a stopped job would go on for as long as
//! its forks are plain calls. Therefore:
//!
//! * After each write of a lower limit than `ASKED` the owner executes a full fence. It stands in
//!   `Sleep::new_work` after publishing, and in `Deque::pop_public` after taking back.
//! * A fiber that becomes the current one asks itself (`WorkerShared::show_current`). So its next fork is
//!   published, and there is the fence.
//! * After each such fence, and after each change of the fiber's context, the owner looks at the signal of
//!   the context that it is in. If it is set, it asks itself ([`Strand::stay_interrupted`]), so that the next
//!   fork looks again.
//!
//! Suppose a fiber's last look found its signal unset, and the signal was set all the same. Then the owner's
//! last fence came before the interrupter's: in the other order the look would have seen the signal. So the
//! interrupter sees the owner's last change of fiber, writes `ASKED` into the right limit, and after the
//! owner's last write to it. No thread takes it away again without another look.
//!
//! A fiber that is parked cannot be interrupted: it is not the current one. It asks itself when it becomes
//! so. (In a pool of several workers its next fork makes a record anyway, because it published all its forks
//! when it parked, so that none is private.)
//!
//! `ASKED` without a reason does no harm: the next fork makes a record and is offered to others.
//!
//! # No second panic
//!
//! A destructor that runs while its thread unwinds may fork too, and a second panic there would end the
//! process. So nothing that is forked, spawned or installed while panicking can be stopped: it gets a
//! context without the signal (`context::shielded`).

use std::any::Any;
use std::fmt;
use std::panic;

use crate::context::{self, Context};
use crate::pool::Pool;
use crate::pool::shared::Shared;
use crate::strand::Strand;
use crate::sync::step::{Step, fence_at, left_out};
use crate::sync::{AtomicU64, Ordering};

/// Bits that say to the forks of a context, when one of them is set, that they shall unwind.
///
/// After setting one, call [`Pool::interrupt_forks`]: else the forks may notice it late or never.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use jobtree_pool::StopSignal;
///
/// let word = AtomicU64::new(1);
/// let stop = StopSignal::new(&word, 2);
/// assert!(!stop.is_set(), "bit 0 is somebody else's");
/// word.fetch_or(2, Ordering::Relaxed);
/// assert!(stop.is_set());
/// ```
#[derive(Clone, Copy)]
pub struct StopSignal<'a> {
    word: &'a AtomicU64,
    mask: u64,
}

impl<'a> StopSignal<'a> {
    /// A signal that is set when `word` has any of the bits of `mask`.
    pub const fn new(word: &'a AtomicU64, mask: u64) -> StopSignal<'a> {
        StopSignal { word, mask }
    }

    /// Returns `true` if the signal is set. A relaxed read: it says nothing about what was written before.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.word.load(Ordering::Relaxed) & self.mask != 0
    }

    pub(crate) fn into_parts(self) -> (*const AtomicU64, u64) {
        (self.word, self.mask)
    }
}

impl fmt::Debug for StopSignal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopSignal")
            .field("mask", &format_args!("{:#x}", self.mask))
            .field("is_set", &self.is_set())
            .finish()
    }
}

/// The payload that a fork unwinds with when its context was stopped; see [`with_user_context`](crate::with_user_context).
///
/// It is the payload of a panic that is no failure: no panic hook has been called. The thread that set the
/// [`StopSignal`] catches it with [`catch_unwind`](std::panic::catch_unwind) and knows it by its type. Others
/// that catch panics should pass it on with [`resume_unwind`](std::panic::resume_unwind); if they go on
/// instead, the next fork unwinds again.
///
/// A panic of another closure of the same `join` or scope takes precedence over it.
///
/// To code that it passes through it is a panic like any other: a `Mutex` that is held is poisoned, and so are a `LazyLock` and
/// a `Once` whose initialiser it leaves, for good. Such an initialiser forks inside a context that cannot be stopped (the
/// runtime's `shield`).
///
/// Only the pool makes values of this type. In programs that abort on panic it makes none: there forks in a
/// stopped context go on, and only [`stop_requested`] tells of it.
pub struct Stopped {
    _made_by_the_pool_alone: (),
}

impl fmt::Debug for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopped")
    }
}

impl Stopped {
    /// Returns `true` if a panic with this payload is no failure.
    pub(crate) fn is_payload(payload: &(dyn Any + Send)) -> bool {
        payload.is::<Stopped>()
    }
}

/// Returns `true` if the context that the calling code runs in was told to stop: the innermost
/// [`with_user_context`](crate::with_user_context) around it has a [`StopSignal`], and that is set.
///
/// Long stretches of code without a fork can ask now and then, and end early.
///
/// ```
/// use std::sync::atomic::AtomicU64;
/// use jobtree_pool::{StopSignal, UserContext, stop_requested, with_user_context};
///
/// let word = AtomicU64::new(1);
/// let context = UserContext {
///     user: std::ptr::null(),
///     stop: Some(StopSignal::new(&word, 1)),
/// };
/// // SAFETY: no code follows the pointer.
/// assert!(unsafe { with_user_context(context, stop_requested) });
/// assert!(!stop_requested());
/// ```
pub fn stop_requested() -> bool {
    context::with_current(|context| context.is_some_and(Context::is_stopped))
}

/// Returns `true` if the current context can ever be told to stop.
pub fn can_be_stopped() -> bool {
    context::with_current(|context| context.is_some_and(Context::has_stop))
}

/// Unwinds with [`Stopped`] if the current context was told to stop: what a fork does, for code between
/// forks, such as loops. Does nothing while the thread is panicking.
pub fn unwind_if_stopped() {
    if must_unwind() {
        unwind();
    }
}

/// Returns `true` if the calling code has to unwind because its context was told to stop. It then drops the values of other
/// owners that it holds by `drop_user`, and calls [`unwind`].
pub(crate) fn must_unwind() -> bool {
    stop_requested() && can_unwind()
}

/// Returns `true` if unwinding would not end the process.
fn can_unwind() -> bool {
    cfg!(panic = "unwind") && !std::thread::panicking()
}

/// Unwinds with [`Stopped`]. What the caller holds of other people's values, it drops before: their destructors
/// may wait, and a thread that panics cannot park.
#[cold]
#[inline(never)]
pub(crate) fn unwind() -> ! {
    panic::resume_unwind(Box::new(Stopped {
        _made_by_the_pool_alone: (),
    }))
}

impl Strand {
    /// The context that the running code is in, if it can be stopped or has limits.
    ///
    /// # Safety
    /// Owner only.
    #[inline(always)]
    pub(crate) unsafe fn watched_context(&self) -> Option<&Context> {
        // SAFETY: a fiber's current context is alive while code runs in it.
        let context = unsafe { self.context().get().get() };
        context.filter(|context| context.is_watched())
    }

    /// Returns `true` if the running code has to unwind because its context was told to stop. The next fork is made to check,
    /// too: the code may catch the panic and continue.
    ///
    /// # Safety
    /// Owner only.
    #[inline(always)]
    pub(crate) unsafe fn is_stopped(&self) -> bool {
        // SAFETY: the caller is the owner.
        match unsafe { self.watched_context() } {
            Some(context) if context.is_stopped() => self.heed_stop(),
            _ => false,
        }
    }

    #[cold]
    #[inline(never)]
    fn heed_stop(&self) -> bool {
        self.forks.ask();
        can_unwind()
    }

    /// Has the next fork look at the signal of its context, if that is set: to be called after whatever may
    /// have swallowed an interrupt. `step` says which of these places it is.
    ///
    /// # Safety
    /// Owner only.
    #[inline(always)]
    pub(crate) unsafe fn stay_interrupted(&self, step: Step) {
        // SAFETY: the caller is the owner.
        if let Some(context) = unsafe { self.watched_context() }
            && context.is_stopped()
            && !left_out(step)
        {
            self.forks.ask();
        }
    }
}

impl Shared {
    /// Makes every worker look at its context's signal when it next forks. To be called after it was set.
    pub(crate) fn interrupt_forks(&self) {
        fence_at(Step::InterruptFence);
        for worker in &self.workers {
            if let Some(strand) = worker.current() {
                strand.forks.ask();
            }
        }
    }
}

impl Pool {
    /// Makes every worker of this pool look at the [`StopSignal`] of its context when it next forks, or between
    /// two blocks of a parallel loop. To be called by the thread that has set one, after that.
    ///
    /// Work of a context that went to another pool, by `install`, is interrupted by that pool.
    #[doc(hidden)]
    pub fn interrupt_forks(&self) {
        self.shared().interrupt_forks();
    }
}

#[cfg(all(test, loom))]
#[path = "stop_models.rs"]
pub(crate) mod models;
