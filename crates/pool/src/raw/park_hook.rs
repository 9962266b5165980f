//! The hook that is told that the calling stack waits.
//!
//! A layer that lets at most so many of its pieces of work run at a time counts those that run. One that waits does not
//! run: its worker does something else. If it still counted, then work that waits for other work of the same layer
//! could wait for ever, since no worker may start that. So the layer runs its work inside of [`with_park_hook`], and is
//! told. A hook hears of every wait on the stack that it was set on, the thread that waits there, until the call is over:
//! tasks that were run on top to help a waiting frame keep that frame from going on just as well.
//!
//! What is put on top of a stack that waits already is not heard: the hook is put aside for the time of the wait.

use std::ptr::NonNull;

use crate::strand::Strand;
use crate::worker::Worker;

/// Is told when a stack waits; see the module's head. Neither function may wait or unwind.
pub trait ParkHook: Sync {
    /// The stack begins to wait.
    fn leaves(&self);

    /// The stack goes on. As many times as it has left.
    fn returns(&self);
}

/// A hook in the frame of [`with_park_hook`]: a fiber has room for one word.
pub(crate) struct Hooked(NonNull<dyn ParkHook>);

/// Calls `body`, and `hook` whenever the calling stack waits meanwhile. On threads that are no workers it is not called.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use jobtree_pool::{OnceLatch, Pool, raw::{ParkHook, with_park_hook}};
///
/// struct Count(AtomicUsize);
/// impl ParkHook for Count {
///     fn leaves(&self) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
///     fn returns(&self) {}
/// }
///
/// let (count, latch) = (Count(AtomicUsize::new(0)), OnceLatch::new());
/// let pool = Pool::builder().workers(1).build()?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| pool.install(|| with_park_hook(&count, || latch.wait())));
///     while count.0.load(Ordering::Relaxed) == 0 {
///         std::thread::yield_now();
///     }
///     latch.set();
/// });
/// # Ok::<(), jobtree_pool::BuildError>(())
/// ```
pub fn with_park_hook<R>(hook: &dyn ParkHook, body: impl FnOnce() -> R) -> R {
    struct Restore<'w>(&'w Worker, *const Hooked);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            self.0.strand().park_hook.set(self.1);
        }
    }
    Worker::with_current(|worker| {
        let Some(worker) = worker else {
            return body();
        };
        // SAFETY: only the lifetime changes. The fiber forgets the hook before this call is over, on every way out, and
        // a stack that was started is never dropped; so the hook is there whenever the fiber looks.
        let hooked = Hooked(unsafe {
            std::mem::transmute::<NonNull<dyn ParkHook + '_>, NonNull<dyn ParkHook + 'static>>(
                NonNull::from(hook),
            )
        });
        let outer = worker.strand().park_hook.replace(&hooked);
        let _restore = Restore(worker, outer);
        body()
    })
}

/// A fiber that does not go on, from [`Away::leave`] to [`Away::come_back`].
#[must_use = "the hook waits for the strand to come back"]
pub(crate) struct Away(*const Hooked);

impl Away {
    /// `strand`, the calling one, begins to wait.
    #[inline(always)]
    pub(crate) fn leave(strand: &Strand) -> Away {
        let hooked = strand.park_hook.get();
        if !hooked.is_null() {
            leave_with(strand, hooked);
        }
        Away(hooked)
    }

    /// Says that the fiber continues.
    #[inline(always)]
    pub(crate) fn come_back(self, strand: &Strand) {
        if !self.0.is_null() {
            come_back_with(strand, self.0);
        }
    }
}

#[cold]
#[inline(never)]
fn leave_with(strand: &Strand, hooked: *const Hooked) {
    strand.park_hook.set(std::ptr::null());
    // SAFETY: set by `with_park_hook`, whose frame is below this one on the same stack, so the hook is there.
    unsafe { (*hooked).0.as_ref() }.leaves();
}

#[cold]
#[inline(never)]
fn come_back_with(strand: &Strand, hooked: *const Hooked) {
    // SAFETY: as in `leave_with`.
    unsafe { (*hooked).0.as_ref() }.returns();
    strand.park_hook.set(hooked);
}
