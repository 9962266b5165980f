//! A thread of the program's own that is worker 0 of a pool (`use_current_thread`).
//!
//! The thread is a worker only while it is inside a call of this crate: the outermost such call enters ([`OutermostCall`]),
//! and leaves when it returns. So it is known whether frames that hold the worker are below. The pool's handle may be
//! dropped in such a frame, or on another thread, or after the thread has ended; the thread's life as a worker ends
//!
//! * at once, if the handle is dropped on the thread itself and outside of all calls,
//! * else with the outermost call that is under way, or the next one,
//! * else with the thread.
//!
//! Until then the pool is held, and so does not end. Tasks that were sent to a worker that has left go to the others.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::shared::Shared;
use crate::context::Installed;
use crate::deque::Entry;
use crate::found::Work;
use crate::strand::Strand;
use crate::worker::{Attached, Worker, WorkerThread};

thread_local! {
    /// The state of this thread as worker 0 of some pool, or null.
    static ADOPTED: Cell<*const Adopted> = const { Cell::new(std::ptr::null()) };
    /// Has a destructor, so that the thread's end is seen.
    static AT_THREADS_END: AtThreadsEnd = const { AtThreadsEnd };
}

struct AtThreadsEnd;

impl Drop for AtThreadsEnd {
    fn drop(&mut self) {
        let adopted = ADOPTED.get();
        if !adopted.is_null() {
            // SAFETY: made by `adopt_current_thread` on this thread. A thread that ends is in no call.
            unsafe { leave(adopted) };
        }
    }
}

/// The thread's state as a worker.
struct Adopted {
    thread: WorkerThread,
    strand: *const Strand,
    /// The state of the call that is under way.
    outermost: Cell<Option<OutermostState>>,
}

/// The state that is put back when the outermost call ends, in this order.
#[expect(dead_code, reason = "they act when they are dropped")]
struct OutermostState {
    context: Installed<'static>,
    attached: Attached,
}

/// The state of a pool whose worker 0 is a thread of the program's own.
#[derive(Debug, Default)]
pub(crate) struct CurrentThread {
    state: Mutex<Presence>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Presence {
    /// Worker 0 has a thread of the pool's own.
    #[default]
    NotUsed,
    /// The thread is the worker.
    Here,
    /// The thread is to leave when it can: the pool's handle is gone, and the pool is held.
    ToLeave,
    /// The thread has left.
    Gone,
}

impl CurrentThread {
    fn lock(&self) -> MutexGuard<'_, Presence> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_to_leave(&self) -> bool {
        *self.lock() == Presence::ToLeave
    }

    /// Calls `send` unless worker 0 has left.
    pub(crate) fn unless_gone(&self, send: impl FnOnce()) -> bool {
        let presence = self.lock();
        if *presence == Presence::Gone {
            return false;
        }
        send();
        true
    }
}

/// Makes the calling thread worker 0 of `pool`.
pub(super) fn adopt_current_thread(pool: &Arc<Shared>) {
    AT_THREADS_END.with(|_| ());
    let thread = WorkerThread::new(pool.clone(), 0);
    let strand: *const Strand = thread.new_strand();
    *pool.current_thread.lock() = Presence::Here;
    let adopted = Adopted {
        thread,
        strand,
        outermost: Cell::new(None),
    };
    ADOPTED.set(Box::into_raw(Box::new(adopted)));
}

/// The handle of a pool with such a thread is gone: lets the pool end when the thread has left.
pub(super) fn give_up(pool: &Arc<Shared>) {
    {
        let mut presence = pool.current_thread.lock();
        if *presence == Presence::Here {
            pool.hold();
            *presence = Presence::ToLeave;
        }
    }
    pool.terminate();
    leave_if_asked();
}

/// A call in which such a thread is a worker; null is none. It ends when the value is dropped.
// One word: every call of the crate has one, most of them null.
pub(crate) struct OutermostCall(*const Adopted);

impl OutermostCall {
    pub(crate) const NONE: OutermostCall = OutermostCall(std::ptr::null());

    /// Makes the calling thread, which is in no call of this crate, the worker that it is in its calls, if it is one.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter() -> OutermostCall {
        let adopted = ADOPTED.get();
        if adopted.is_null() {
            return OutermostCall::NONE;
        }
        // SAFETY: made by `adopt_current_thread` on this thread, and freed only outside of all calls. Its fiber lives as
        // long as the pool.
        let (adopted, strand) = unsafe { (&*adopted, &*(*adopted).strand) };
        // What code outside of all calls runs in, it takes along.
        let outside = crate::context::outside();
        let attached = adopted.thread.attach();
        adopted.thread.set_current(strand);
        let context = Installed::new(Some(Worker::of_strand(strand)), outside);
        let outermost = OutermostState { context, attached };
        debug_assert!(adopted.outermost.take().is_none(), "a call in a call");
        adopted.outermost.set(Some(outermost));
        OutermostCall(adopted)
    }

    /// The worker that the thread is, unless this is none.
    #[inline]
    pub(crate) fn worker(&self) -> Option<&Worker> {
        // SAFETY: what is not null stays until the value is dropped; its fiber lives as long as the pool.
        let adopted = unsafe { self.0.as_ref() }?;
        // SAFETY: as above.
        Some(Worker::of_strand(unsafe { &*adopted.strand }))
    }

    /// Ends the call, and nothing else.
    fn end(&mut self) {
        // SAFETY: null, or alive until here.
        if let Some(adopted) = unsafe { self.0.as_ref() } {
            drop(adopted.outermost.take());
            self.0 = std::ptr::null();
        }
    }

    #[cold]
    #[inline(never)]
    fn end_and_leave_if_asked(&mut self) {
        self.end();
        leave_if_asked();
    }
}

impl Drop for OutermostCall {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.0.is_null() {
            self.end_and_leave_if_asked();
        }
    }
}

/// Puts this thread's life as a worker aside, and returns it; null is none.
pub(crate) fn put_aside() -> *const () {
    ADOPTED.replace(std::ptr::null()).cast()
}

/// Takes it up again, on the same thread.
pub(crate) fn take_up(adopted: *const ()) {
    ADOPTED.set(adopted.cast());
}

fn leave_if_asked() {
    let adopted = ADOPTED.get();
    // Null also inside of a call, which puts it aside.
    if adopted.is_null() {
        return;
    }
    // SAFETY: made by `adopt_current_thread` on this thread, and not yet freed.
    let pool = unsafe { &(*adopted).thread.pool };
    if pool.current_thread.is_to_leave() {
        // SAFETY: this thread's, and in no call.
        unsafe { leave(adopted) };
    }
}

/// Ends the thread's life as a worker. Runs what lies in its queues first: there may be no other thread to.
///
/// # Safety
/// `adopted` is this thread's, and in no call.
unsafe fn leave(adopted: *const Adopted) {
    // SAFETY: by contract; freed below, after the last use.
    let thread = unsafe { &(*adopted).thread };
    if thread.pool.current_thread.is_to_leave() {
        let mut last = OutermostCall::enter();
        if let Some(worker) = last.worker() {
            while let Some(found) = thread.find_work() {
                if !matches!(found.work(), Work::Ready(_)) {
                    thread.execute(worker, found);
                }
            }
        }
        last.end();
    }
    let pool = thread.pool.clone();
    let mut left_over: Vec<Entry> = Vec::new();
    let was_held = {
        let mut presence = pool.current_thread.lock();
        // Under the lock: what is sent later goes elsewhere.
        thread.read_mail();
        left_over.extend(thread.own_mail.borrow_mut().drain(..));
        std::mem::replace(&mut *presence, Presence::Gone) == Presence::ToLeave
    };
    for entry in left_over {
        pool.injector.push(entry);
        pool.sleep.new_work();
    }
    ADOPTED.set(std::ptr::null());
    // SAFETY: made by `Box::into_raw`; the thread has just forgotten it.
    drop(unsafe { Box::from_raw(adopted.cast_mut()) });
    if was_held {
        pool.release();
        pool.end_if_quiescent();
    }
}
