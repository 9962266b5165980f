//! Waiting for a future: a waker for the calling stack that costs nothing to have.
//!
//! Every strand has one bell, made when it first waits, and so has every other thread. Whoever waits
//! silences it, polls, and sleeps until it rings. A waker of an older wait may ring it at any time: then
//! one polls in vain, which every future allows.
//!
//! # Nested waits
//!
//! What is polled may itself wait on the same stack, and where stacks cannot be parked, other work runs on
//! top of the waiting frame and may wait there. All of them share the bell, so a ring that was meant for
//! an outer one may be heard by an inner one alone. Therefore an inner wait leaves the bell ringing when it
//! is over: the outer one polls once more.

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::latch::{Latch, ThreadLatch};
use crate::pool::shared::Shared;
use crate::strand::Strand;
use crate::wait::WaitFor;
use crate::worker::{Worker, WorkerThread};

/// The bell of a strand. The worker's thread keeps it for the strand.
pub(crate) struct StrandBell {
    rung: Latch,
    /// How many waits of the strand are nested now. Only the strand looks.
    waits: Cell<u32>,
    /// Kept so that the strand that the latch names is there when somebody rings.
    _pool: Arc<Shared>,
}

// SAFETY: the latch is made for sharing; the count is touched by the strand alone, that is on one thread.
unsafe impl Sync for StrandBell {}
// SAFETY: as above.
unsafe impl Send for StrandBell {}

impl Wake for StrandBell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // SAFETY: alive by `self`, and the waiter's pool by the bell.
        unsafe { Latch::set(&self.rung) };
    }
}

/// The bell of a thread that is no worker.
struct ThreadBell {
    rung: ThreadLatch,
}

impl Wake for ThreadBell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // SAFETY: alive by `self`.
        unsafe { ThreadLatch::set(&self.rung) };
    }
}

/// A name for the stack that the calling code runs on, as long as it runs; null on threads that are no workers.
#[inline]
pub fn current_stack() -> *const () {
    Worker::with_current(|worker| {
        worker.map_or(std::ptr::null(), |worker| {
            std::ptr::from_ref(worker.strand()).cast()
        })
    })
}

/// Notes on the calling stack which future of the layer above is being polled there, by what its waker points to; returns
/// what was noted before, to be put back.
#[inline]
pub fn replace_polled_waker(data: *const ()) -> *const () {
    Worker::with_current(|worker| {
        worker.map_or(std::ptr::null(), |worker| {
            worker.strand().polled_waker.replace(data)
        })
    })
}

/// What was noted last; null if nothing is.
#[inline]
pub fn polled_waker() -> *const () {
    Worker::with_current(|worker| {
        worker.map_or(std::ptr::null(), |worker| {
            worker.strand().polled_waker.get()
        })
    })
}

/// The bell of the calling stack, or of the calling thread if it is no worker.
pub struct Bell<'a> {
    hung: Hung<'a>,
    /// Of a strand it is lent without a reference of its own, and so never dropped; that of a thread is.
    waker: ManuallyDrop<Waker>,
}

/// Where a bell hangs.
enum Hung<'a> {
    Strand(&'a Worker, &'a StrandBell),
    Thread(Arc<ThreadBell>),
}

/// Lends the bell of the calling stack or thread.
#[inline]
pub fn with_bell<R>(use_it: impl FnOnce(&Bell<'_>) -> R) -> R {
    Worker::with_current(|worker| match worker {
        Some(worker) => {
            let address = worker.thread().bell_of(worker.strand());
            // SAFETY: the address is an `Arc`'s, whose reference is not given back.
            let waker = ManuallyDrop::new(Waker::from(unsafe { Arc::from_raw(address) }));
            // SAFETY: the thread keeps the bell until its end, and this frame is on it.
            let hung = Hung::Strand(worker, unsafe { &*address });
            use_it(&Bell { hung, waker })
        }
        None => use_it(&Bell::of_thread()),
    })
}

impl Bell<'_> {
    fn of_thread() -> Bell<'static> {
        thread_local! {
            static BELL: Arc<ThreadBell> = Arc::new(ThreadBell { rung: ThreadLatch::new() });
        }
        // Another one, if the thread's locals have gone before it waits for the last time.
        let bell = BELL.try_with(Arc::clone).unwrap_or_else(|_| {
            Arc::new(ThreadBell {
                rung: ThreadLatch::new(),
            })
        });
        Bell {
            waker: ManuallyDrop::new(Waker::from(Arc::clone(&bell))),
            hung: Hung::Thread(bell),
        }
    }

    /// What rings it. Rings that come between two waits are in vain, and do no harm.
    #[inline]
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Calls `attempt` until it returns something. It leaves [`waker`](Bell::waker) somewhere before it returns nothing;
    /// then the calling stack is parked, or the thread sleeps, until that has been woken.
    ///
    /// A worker that waits first runs tasks of `helped`, if given: only for tasks without whose end the wait cannot
    /// be over (see [`wait_helping`](super::task::wait_helping)).
    #[inline]
    pub fn wait<R>(&self, helped: Option<*const ()>, mut attempt: impl FnMut() -> Option<R>) -> R {
        match &self.hung {
            Hung::Strand(worker, bell) => {
                let what = helped.map_or(WaitFor::Latch, WaitFor::TasksOf);
                bell.waits.update(|waits| waits + 1);
                let _rings_on = OnExit(|| {
                    bell.waits.update(|waits| waits - 1);
                    if bell.waits.get() > 0 {
                        bell.rung.leave_set();
                    }
                });
                loop {
                    bell.rung.reset();
                    if let Some(result) = attempt() {
                        return result;
                    }
                    worker.wait_until(&bell.rung, what);
                }
            }
            Hung::Thread(bell) => {
                let _rings_on = OnExit(|| bell.rung.leave_set());
                loop {
                    bell.rung.reset();
                    if let Some(result) = attempt() {
                        return result;
                    }
                    bell.rung.wait();
                }
            }
        }
    }
}

impl Drop for Bell<'_> {
    fn drop(&mut self) {
        if let Hung::Thread(_) = self.hung {
            // SAFETY: once, and with a reference of its own.
            unsafe { ManuallyDrop::drop(&mut self.waker) };
        }
    }
}

impl fmt::Debug for Bell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").finish_non_exhaustive()
    }
}

/// Calls `attempt` until it returns something, each time with a waker that it may leave somewhere: [`Bell::wait`].
///
/// ```
/// use std::task::{Context, Poll};
/// use jobtree_pool::raw::wait_with_waker;
///
/// let mut future = Box::pin(async { 42 });
/// let value = wait_with_waker(None, |waker| {
///     match future.as_mut().poll(&mut Context::from_waker(waker)) {
///         Poll::Ready(value) => Some(value),
///         Poll::Pending => None,
///     }
/// });
/// assert_eq!(value, 42);
/// ```
pub fn wait_with_waker<R>(
    helped: Option<*const ()>,
    mut attempt: impl FnMut(&Waker) -> Option<R>,
) -> R {
    with_bell(|bell| bell.wait(helped, || attempt(bell.waker())))
}

/// On every way out.
struct OnExit<F: Fn()>(F);

impl<F: Fn()> Drop for OnExit<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl WorkerThread {
    /// The bell of `strand`, one of this thread's.
    fn bell_of(&self, strand: &Strand) -> *const StrandBell {
        let known = strand.bell.get();
        if !known.is_null() {
            return known;
        }
        let bell = Arc::new(StrandBell {
            rung: Latch::new(),
            waits: Cell::new(0),
            _pool: Arc::clone(&self.pool),
        });
        let address = Arc::as_ptr(&bell);
        self.bells.borrow_mut().push(bell);
        strand.bell.set(address);
        address
    }
}
