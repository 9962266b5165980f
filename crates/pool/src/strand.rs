//! A fiber (type `Strand`): a stack that can be parked, and the forks that were made on it.
//!
//! A worker's loop runs on a fiber. Tasks run right on top of it. When one of them has to wait, the
//! whole fiber is parked and the worker goes on, on another. So a worker has one current fiber and
//! any number of parked ones; forks belong to the fiber they were made on, because they are taken
//! back in the order of its frames.
//!
//! A fiber belongs to one worker for ever (its frames may hold addresses of that thread's locals).
//! Fibers are never freed before their pool: thieves and setters of latches may look at one at any
//! time.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;

use crate::context::ContextRef;
use crate::deque::{Deque, Entry, Steal};
use crate::fork::ForkHeader;
use crate::inbox::{Mail, Trail};
use crate::latch::Wake;
use crate::pool::shared::Shared;
use crate::raw::bell::StrandBell;
use crate::raw::fuel::Fuel;
use crate::raw::park_hook::Hooked;
#[cfg(jobtree_stacks)]
use crate::stack::{StackClass, switch::StackInUse};
use crate::sync::AtomicBool;
use crate::sync::step::Step;
use crate::worker::Worker;

/// See the module's head.
///
/// Three cache lines, since there may be a million that are parked: what others look at while the fiber runs or waits,
/// what a switch needs, and what its owner writes all the time. The first and the last are never fetched as a pair.
#[repr(C, align(64))]
pub(crate) struct Strand {
    /// First: see [`Mail::of_strand`].
    pub(crate) mail: Mail,
    pool: *const Shared,
    /// Rings when what the fiber waits for may have happened.
    pub(crate) bell: StrandBell,
    worker: u32,
    /// Beside the mail: see [`Trail`].
    pub(crate) mail_trail: Trail,
    /// Is told when the fiber begins to wait, and when it goes on; see `raw::with_park_hook`. Owner only.
    pub(crate) park_hook: Cell<*const Hooked>,
    /// The end of the first line, all of the second, and the beginning of the third.
    pub(crate) forks: Deque<OfSwitch>,
    /// The amount that work on the fiber may still burn. Owner only.
    pub(crate) fuel: Fuel,
    /// The number of forks that are public without a steal request.
    eager_public: u8,
    /// `true` if fibers of this worker may have been woken since this one last checked at a tick; see `woken.rs`.
    pub(crate) woken_mark: AtomicBool,
    /// See `sim/mod.rs`.
    is_simulated: bool,
    /// The size of the fiber's stack. Owner only.
    #[cfg(jobtree_stacks)]
    pub(crate) stack_class: Cell<StackClass>,
    /// The place on its stack where the fiber was suspended, about. Owner only.
    #[cfg(jobtree_stacks)]
    pub(crate) suspended_at: Cell<*const u8>,
}

/// The data that a fiber needs when it is switched to, or when work begins or ends on it. Owner only.
#[repr(C)]
pub(crate) struct OfSwitch {
    /// The context of the work on the fiber.
    context: Cell<ContextRef>,
    /// The target of the waker of the future that is polled on the fiber; see `raw::polled_waker`.
    polled_waker: Cell<*const ()>,
    #[cfg(jobtree_stacks)]
    stack: StackInUse,
}

#[cfg(all(
    jobtree_stacks,
    target_pointer_width = "64",
    not(feature = "sanitizer")
))]
const _: () = {
    assert!(size_of::<Strand>() == 192);
    // Its first two words, which thieves look at, are on the first line; what its owner writes begins the third.
    assert!(std::mem::offset_of!(Strand, forks) == 48 && size_of::<OfSwitch>() == 64);
};

// SAFETY: `forks`, `mail`, `mail_trail` and `bell` are made for sharing: the mail is touched by the thread that wakes the fiber,
// once per wait, and by the worker after taking it out of its inbox; the link and the trail, which are atomic, may be looked
// at by others who send letters to the same worker. `park_hook`, `suspended_at`, `fuel`, `stack_class` and all of `OfSwitch`
// are touched only by the worker the fiber belongs to. The others are never written.
unsafe impl Sync for Strand {}
// SAFETY: a fiber is made by its worker and freed with the pool after that worker's end.
unsafe impl Send for Strand {}

impl Strand {
    /// Fibers of worker number `worker` of `pool`, which keeps and frees them. A raw pointer, since they are
    /// handed around by address from the first moment on.
    pub(crate) fn allocate(pool: &Arc<Shared>, worker: usize, count: usize) -> *mut [Strand] {
        let strands: Box<[Strand]> = (0..count).map(|_| Strand::new(pool, worker)).collect();
        Box::into_raw(strands)
    }

    fn new(pool: &Arc<Shared>, worker: usize) -> Strand {
        let between = OfSwitch {
            context: Cell::new(ContextRef::OUTERMOST),
            polled_waker: Cell::new(ptr::null()),
            #[cfg(jobtree_stacks)]
            stack: StackInUse::none(),
        };
        Strand {
            mail: Mail::new(),
            // Not from a reference: the bell counts references with it.
            pool: Arc::as_ptr(pool),
            bell: StrandBell::new(),
            worker: u32::try_from(worker).expect("there are fewer workers"),
            mail_trail: Trail::none(),
            park_hook: Cell::new(ptr::null()),
            forks: Deque::without_room(pool.tuning.private_forks, between),
            fuel: Fuel::new(),
            // More than this many is without end.
            eager_public: u8::try_from(pool.tuning.eager_public_forks).unwrap_or(u8::MAX),
            woken_mark: AtomicBool::new(false),
            is_simulated: pool.tuning.is_simulated,
            #[cfg(jobtree_stacks)]
            stack_class: Cell::new(StackClass::Default),
            #[cfg(jobtree_stacks)]
            suspended_at: Cell::new(ptr::null()),
        }
    }

    /// Returns the context of the work on the fiber. Owner only.
    #[inline(always)]
    pub(crate) fn context(&self) -> &Cell<ContextRef> {
        &self.forks.between.context
    }

    /// See `raw::polled_waker`. Owner only.
    #[inline(always)]
    pub(crate) fn polled_waker(&self) -> &Cell<*const ()> {
        &self.forks.between.polled_waker
    }

    /// Returns the fiber's stack. Owner only.
    #[cfg(jobtree_stacks)]
    #[inline(always)]
    pub(crate) fn stack(&self) -> &StackInUse {
        &self.forks.between.stack
    }

    /// Returns the number of the worker that the fiber belongs to.
    #[inline]
    pub(crate) fn worker_index(&self) -> usize {
        self.worker as usize
    }

    /// Returns `true` if other work may run on top of a frame that waits: not on a small stack.
    pub(crate) fn has_room_to_help(&self) -> bool {
        #[cfg(jobtree_stacks)]
        return self.stack_class.get() == StackClass::Default;
        #[cfg(not(jobtree_stacks))]
        true
    }

    /// A place where, in a simulation, others may act first.
    #[inline(always)]
    pub(crate) fn sim_point(&self) {
        if self.is_simulated {
            crate::sim::point();
        }
    }

    /// The pool it belongs to, as code that counts references to it wants to know it.
    pub(crate) fn pool_address(&self) -> *const Shared {
        self.pool
    }

    /// The pool it belongs to.
    #[inline]
    pub(crate) fn pool(&self) -> &Shared {
        // SAFETY: the pool owns its fibers.
        unsafe { &*self.pool }
    }

    /// Returns `true` if the next fork should be offered at once because too little is on offer.
    ///
    /// # Safety
    /// Owner only.
    #[inline(always)]
    pub(crate) unsafe fn offers_too_little(&self) -> bool {
        // SAFETY: the caller is the owner.
        unsafe { self.forks.outstanding() < usize::from(self.eager_public) }
    }

    /// Lets others take the oldest fork that they cannot take yet, and wakes one if all sleep.
    ///
    /// # Safety
    /// Owner only.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn share_oldest(&self) {
        // SAFETY: the caller is the owner; what lies in a fork deque is a fork.
        unsafe {
            let Some(oldest) = self.forks.private_jobs().next() else {
                return;
            };
            ForkHeader::prepare_for_theft(oldest);
            self.forks.publish_oldest();
        }
        self.tell_of_forks();
    }

    /// Lets others take all forks: the fiber is about to wait, so no other thread will run them.
    ///
    /// # Safety
    /// Owner only.
    pub(crate) unsafe fn share_all(&self) {
        // SAFETY: the caller is the owner; what lies in a fork deque is a fork.
        unsafe {
            if self.forks.private_len() == 0 {
                return;
            }
            for fork in self.forks.private_jobs() {
                ForkHeader::prepare_for_theft(fork);
            }
            self.forks.publish_all();
        }
        self.tell_of_forks();
    }

    /// After publishing. There is a full fence in telling others, which the look after it needs.
    fn tell_of_forks(&self) {
        self.pool().sleep.new_work();
        // SAFETY: only the owner publishes.
        unsafe { self.stay_interrupted(Step::InterruptPublishLook) };
        self.stay_woken(Step::WokenPublishLook);
    }

    /// Takes the oldest public fork whose context `suits`, in the name of worker `thief`.
    pub(crate) fn steal(&self, thief: usize, suits: impl Fn(ContextRef) -> bool) -> Option<Entry> {
        loop {
            match self.forks.steal(&suits) {
                Steal::Taken(entry) => {
                    // SAFETY: we own the entry now, it came from a fork deque, and it was made ready
                    // before it was published.
                    unsafe { ForkHeader::note_thief(entry.job, thief) };
                    return Some(entry);
                }
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }

    /// Wakes the fiber if the calling thread is its own worker, which is then awake: no message and no notice. Returns `true` if
    /// so.
    #[inline]
    fn wake_on_own_thread(&self) -> bool {
        Worker::with_running(|worker| {
            let Some(worker) = worker else { return false };
            let is_own = worker.index() == self.worker_index() && ptr::eq(worker.pool(), self.pool);
            if is_own {
                worker.thread().ready.borrow_mut().push_back(self);
                // What runs here gives way at its next fork or tick: see `woken.rs`.
                worker.strand().ask_for_woken();
            }
            is_own
        })
    }

    /// Tells the fiber's worker that what it waits for has happened.
    ///
    /// # Safety
    /// The fiber is registered as a waiter with `wake`, and this is the only call for that wait.
    pub(crate) unsafe fn wake(&self, wake: Wake) {
        let pool = self.pool();
        if wake == Wake::ByMail {
            if self.wake_on_own_thread() {
                return;
            }
            // SAFETY: one wake per wait, so the letter is in no inbox; fibers outlive their use.
            unsafe {
                pool.workers[self.worker_index()]
                    .inbox
                    .push(Mail::of_strand(self))
            };
            self.interrupt_worker();
        }
        pool.sleep.notify(self.worker_index());
    }
}
