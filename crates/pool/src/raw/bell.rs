//! Waiting for a future: a waker for the calling stack that costs nothing to have.
//!
//! Every fiber has one bell, and so has every other thread. The thread that waits
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
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::task::{RawWaker, RawWakerVTable, Wake, Waker};

use crate::latch::{Latch, ThreadLatch};
use crate::strand::Strand;
use crate::sync::{AtomicU32, Ordering};
use crate::wait::WaitFor;
use crate::worker::Worker;

/// The bell of a fiber, and part of it.
///
/// Wakers are counted, and the count as a whole has one reference to the pool, which keeps the fiber: from the fiber's
/// first wait on, when the worker takes the first count, until the worker's end and that of the last waker.
pub(crate) struct StrandBell {
    rung: Latch,
    references: AtomicU32,
    /// The number of nested waits of the fiber. Only the fiber reads it.
    waits: Cell<u32>,
}

/// More wakers of one fiber than fit into memory: the program leaks them.
const MOST_REFERENCES: u32 = u32::MAX / 2;

impl StrandBell {
    pub(crate) fn new() -> StrandBell {
        StrandBell {
            rung: Latch::new(),
            references: AtomicU32::new(0),
            waits: Cell::new(0),
        }
    }
}

/// The functions by which a waker wakes the fiber that it points to.
static VTABLE: RawWakerVTable = RawWakerVTable::new(clone_waker, wake, wake_by_ref, drop_waker);

unsafe fn clone_waker(data: *const ()) -> RawWaker {
    // SAFETY: a waker points to a fiber, which its count keeps.
    let bell = unsafe { &(*data.cast::<Strand>()).bell };
    // Relaxed: the thread that adds one has one.
    if bell.references.fetch_add(1, Ordering::Relaxed) >= MOST_REFERENCES {
        eprintln!("jobtree: a stack has more than 2^31 wakers; aborting");
        std::process::abort();
    }
    RawWaker::new(data, &VTABLE)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the waker's count is given back after its last use.
    unsafe {
        wake_by_ref(data);
        drop_waker(data);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: a waker points to a fiber, which its count keeps with its pool, also during the call.
    unsafe { Latch::set(&raw const (*data.cast::<Strand>()).bell.rung) };
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker's count keeps fiber and pool, and is given back once.
    unsafe { Strand::release_bell(data.cast()) };
}

impl Strand {
    /// The waker that rings this fiber's bell, without a count of its own.
    #[inline]
    fn lend_waker(&self) -> ManuallyDrop<Waker> {
        self.ensure_bell();
        let waker = RawWaker::new(ptr::from_ref(self).cast(), &VTABLE);
        // SAFETY: the functions keep to the contract of wakers: fiber and pool are there as long as some code has a
        // count, latches are set from any thread, and this one is never dropped, which would give a count back.
        ManuallyDrop::new(unsafe { Waker::from_raw(waker) })
    }

    /// Sees to it that the bell can be rung. Owner only.
    #[inline]
    fn ensure_bell(&self) {
        if self.bell.references.load(Ordering::Relaxed) == 0 {
            self.hang_bell();
        }
    }

    /// The worker's own count, and with it the pool's reference.
    #[cold]
    #[inline(never)]
    fn hang_bell(&self) {
        // SAFETY: the pool is kept by its own worker, which is here, in an `Arc`.
        unsafe { Arc::increment_strong_count(self.pool_address()) };
        self.bell.references.store(1, Ordering::Relaxed);
    }

    /// Gives a count back; with the last one, the reference to the pool, and maybe the fiber with it.
    ///
    /// Not of a reference, which would have to be good until this returns.
    ///
    /// # Safety
    /// The count is the caller's. The fiber is not used by the caller afterwards.
    unsafe fn release_bell(this: *const Strand) {
        // SAFETY: the count keeps it until it is given back; the pool's address is read before.
        let (pool, references) = unsafe { ((*this).pool_address(), &(*this).bell.references) };
        // Release and acquire: what others did with the fiber comes before its end.
        if references.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: taken by `hang_bell`, and given back once, by the last.
            unsafe { Arc::decrement_strong_count(pool) };
        }
    }

    /// Gives back the worker's own count, if it has one. At the worker's end: no code waits any more.
    pub(crate) fn take_bell_down(&self) {
        if self.bell.references.load(Ordering::Relaxed) > 0 {
            // SAFETY: taken by `hang_bell`, on this thread, and given back once. The caller keeps the pool.
            unsafe { Strand::release_bell(self) };
        }
    }
}

/// The vtable of the bells of threads, from when the first is made: all are made in one place.
static THREAD_VTABLE: OnceLock<&'static RawWakerVTable> = OnceLock::new();

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
    Worker::with_running(|worker| {
        worker.map_or(std::ptr::null(), |worker| {
            std::ptr::from_ref(worker.strand()).cast()
        })
    })
}

/// Names the stack that `worker` runs on, as [`current_stack`] does, for code that wants to wake it.
#[inline]
pub fn stack_with_bell(worker: &Worker) -> *const () {
    let strand = worker.strand();
    strand.ensure_bell();
    ptr::from_ref(strand).cast()
}

/// [`stack_with_bell`] of the calling code; null on threads that are no workers.
#[inline]
pub fn current_stack_with_bell() -> *const () {
    Worker::with_current(|worker| worker.map_or(ptr::null(), stack_with_bell))
}

/// Returns `true` if `waker` rings the bell of a stack: it runs no code of the program's.
pub fn is_stack_waker(waker: &Waker) -> bool {
    ptr::eq(waker.vtable(), &VTABLE)
}

/// Returns `true` if `waker` rings the bell of a stack or of a thread: it runs no code of the program's, and does not block.
pub fn is_bell(waker: &Waker) -> bool {
    let is_of_thread = |vtable: &&RawWakerVTable| ptr::eq(*vtable, waker.vtable());
    is_stack_waker(waker) || THREAD_VTABLE.get().is_some_and(is_of_thread)
}

/// A waker that rings the bell of a stack.
///
/// # Safety
/// `stack` was named by [`stack_with_bell`], and what ran there then has not returned, nor does it during the call.
pub unsafe fn waker_of_stack(stack: *const ()) -> Waker {
    // SAFETY: the fiber's worker has a count of its own, and keeps it at least as long as something runs on the fiber.
    unsafe { Waker::from_raw(clone_waker(stack)) }
}

/// Notes on the calling stack which future of the layer above is being polled there, by what its waker points to; returns
/// what was noted before, to be put back.
#[inline]
pub fn replace_polled_waker(data: *const ()) -> *const () {
    Worker::with_running(|worker| {
        worker.map_or(std::ptr::null(), |worker| {
            worker.strand().polled_waker().replace(data)
        })
    })
}

/// Returns the waker that was noted last; null if there is none.
#[inline]
pub fn polled_waker() -> *const () {
    Worker::with_running(|worker| {
        worker.map_or(std::ptr::null(), |worker| {
            worker.strand().polled_waker().get()
        })
    })
}

/// The bell of the calling stack, or of the calling thread if it is no worker.
pub struct Bell<'a> {
    hung: Hung<'a>,
    /// Of a fiber it is lent without a reference of its own, and so never dropped; that of a thread is.
    waker: ManuallyDrop<Waker>,
}

/// The place of a fiber waker.
enum Hung<'a> {
    Strand(&'a Worker, &'a StrandBell),
    Thread(Arc<ThreadBell>),
}

/// Lends the bell of the calling stack or thread.
#[inline]
pub fn with_bell<R>(use_it: impl FnOnce(&Bell<'_>) -> R) -> R {
    Worker::with_current(|worker| {
        let bell = match worker {
            Some(worker) => Bell::of_strand(worker),
            None => Bell::of_thread(),
        };
        use_it(&bell)
    })
}

impl<'a> Bell<'a> {
    #[inline]
    fn of_strand(worker: &'a Worker) -> Bell<'a> {
        let strand = worker.strand();
        Bell {
            waker: strand.lend_waker(),
            hung: Hung::Strand(worker, &strand.bell),
        }
    }
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
        let waker = Waker::from(Arc::clone(&bell));
        THREAD_VTABLE.get_or_init(|| waker.vtable());
        Bell {
            waker: ManuallyDrop::new(waker),
            hung: Hung::Thread(bell),
        }
    }

    /// Names the stack whose bell it is, as [`stack_with_bell`] does; null if it is that of a thread.
    #[inline]
    pub fn stack(&self) -> *const () {
        match self.hung {
            Hung::Strand(worker, _) => ptr::from_ref(worker.strand()).cast(),
            Hung::Thread(_) => ptr::null(),
        }
    }

    /// Returns the waker. Wakes that come between two waits are in vain, and do no harm.
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
                    // The latch is counted, so others may know it already.
                    crate::sim::refuse_to_sleep();
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

/// [`wait_with_waker`] for a wait that the end of a simulation may break off: the calling stack is unwound then, with
/// [`Stopped`](crate::Stopped).
pub fn wait_with_waker_breakably<R>(mut attempt: impl FnMut(&Waker) -> Option<R>) -> R {
    let is_simulated = crate::sim::is_simulated() && !current_stack().is_null();
    if !is_simulated {
        return wait_with_waker(None, attempt);
    }
    with_bell(|bell| {
        let is_broken = Cell::new(false);
        let break_off = || {
            is_broken.set(true);
            bell.waker().wake_by_ref();
            true
        };
        let result = crate::sim::wait_breakably(&break_off, || {
            bell.wait(None, || match attempt(bell.waker()) {
                None => is_broken.get().then_some(None),
                result => Some(result),
            })
        });
        result.expect("a wait that was broken off unwinds")
    })
}

/// On every way out.
struct OnExit<F: Fn()>(F);

impl<F: Fn()> Drop for OnExit<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::Pool;
    use crate::pool::shared::Shared;

    /// A waker of a fiber of a pool's that has ended, and what is left of the pool.
    fn waker_of_an_ended_pool() -> (Waker, Weak<Shared>) {
        let pool = Pool::builder().workers(2).build().unwrap();
        let shared = Arc::downgrade(pool.shared());
        let mut kept = None;
        pool.install(|| {
            wait_with_waker(None, |waker| match kept {
                Some(_) => Some(()),
                None => {
                    kept = Some(waker.clone());
                    waker.wake_by_ref();
                    None
                }
            });
        });
        drop(pool);
        (kept.expect("it was polled"), shared)
    }

    #[test]
    fn wakers_keep_what_they_ring_and_the_last_one_lets_it_go() {
        let (waker, pool) = waker_of_an_ended_pool();
        // Worker threads may still be on their way out.
        let others = || pool.strong_count().saturating_sub(1);
        while others() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(pool.strong_count(), 1, "the wakers together have one");
        let copies: Vec<Waker> = (0..4).map(|_| waker.clone()).collect();
        assert!(copies.iter().all(|copy| copy.will_wake(&waker)));
        waker.wake();
        assert_eq!(pool.strong_count(), 1);
        let threads = copies
            .into_iter()
            .map(|copy| std::thread::spawn(move || copy.wake()));
        for thread in threads.collect::<Vec<_>>() {
            thread.join().unwrap();
        }
        assert_eq!(pool.strong_count(), 0, "nobody is left to ring it");
    }

    #[test]
    fn a_pool_whose_strands_have_waited_ends_when_no_waker_is_left() {
        let (waker, pool) = waker_of_an_ended_pool();
        drop(waker);
        while pool.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
