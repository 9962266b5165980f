//! Parking: how one OS thread runs many fibers in turn.
//!
//! ```text
//!   hub (the thread's own stack)
//!    |  resume
//!    +----> fiber A             A waits, work was found: A passes the thread to a spare
//!               |
//!               +----> fiber B             the spare's loop takes the work that A handed over
//!                          |
//!    +<--------------------+    the loop of B ends: the hub takes its stack, and resumes who is next
//! ```
//!
//! Every fiber with a stack runs the worker's loop at its bottom. A fiber that parks hands what it
//! found to a spare one; a loop that finds a fiber whose wait is over gives the thread to it and
//! becomes a spare itself. A parked fiber is fully suspended before any thread can resume it: only fibers of its own worker do,
//! and while one of them runs, it does not.
//!
//! The hub is there for the first fiber, for the stacks of loops that have ended, and for simulations, in which several
//! workers take turns. Where a stack cannot pass the thread on by itself (`stack/switch`), the hub does that, too.
//!
//! Fibers come in two classes, by the size of their stack. A task says which it needs; before the loop
//! starts one, it moves to a fiber of that class, and becomes a spare itself. What a waiting fiber does
//! on top of its frame must fit its stack, too: a small one does not help.
//!
//! A started stack is never dropped: it is resumed until its loop ends.
//!
//! # Panics
//!
//! The standard library counts the panics that are under way by thread, not by fiber. While a fiber is suspended that
//! unwinds, because one of its destructors waits, `std::thread::panicking()` says yes to the others, too, until its panic
//! is over. So such a fiber first waits for a moment without doing anything (`wait.rs`). Then it is parked all the same: what
//! it waits for may need another fiber of this worker, or a task that itself waits for this one. This is sound:
//!
//! * An unwinding has all its state on its stack and in its payload. The thread has a count, raised by each panic and lowered by
//!   each that is caught. A sum does not depend on the order of its parts, so it is right when all panics that began
//!   have ended, in whatever order, and no panic ends the process or is lost.
//! * What is wrong meanwhile is `panicking()` alone: a lock of the standard library that a fiber has held since before, and
//!   releases now, is poisoned; one that it takes now and loses by a panic of its own is not. Forks in a context that was
//!   stopped go on until the other panic is over.
//! * The one thing that may not happen is a panic while a panic *hook* runs: the standard library then aborts. So a hook
//!   that waits must not count on what runs on its worker meanwhile not to panic.
//!
//! Tried before: running other work on top of the waiting frame, and others' fibers never. Then what ran on top could wait
//! for the frame below it, and what was parked never went on: both hung for ever.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::time::Duration;

use crate::found::{Found, Work};
use crate::out_of_stacks;
use crate::pool::shared::Shared;
use crate::raw::prefetch;
use crate::stack::switch::{Hub, PASSES_DIRECTLY, stack_pointer};
use crate::stack::{StackCache, StackClass, StackError};
use crate::strand::Strand;
use crate::worker::{Settled, TaskName, Worker, WorkerThread, no_strand_is_current};

/// Loops kept ready for the next fiber that parks, of each class, however long nothing happens.
const FEW_SPARES: usize = 16;

/// Loops kept as long as the worker is busy. Programs park in waves: to end a loop and to give its stack's pages back
/// costs more than a wave costs otherwise. A worker that has slept for [`PATIENCE_WITH_SPARES`] ends what is too many.
const MOST_SPARES: usize = 1 << 17;

const PATIENCE_WITH_SPARES: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 1000 });

/// Loops ended at once, and how long the worker then sleeps before it ends more, so that new work need not wait.
const SPARES_ENDED_AT_ONCE: usize = 512;
const PAUSE_BETWEEN_ENDINGS: Duration = Duration::from_millis(2);

/// The lines that a fiber touches first when it continues, from where it was suspended: the frames between its switch and the
/// code that waited. No more: among many stacks, lines that are not needed drive out those that are.
const LINES_OF_READY: Range<isize> = 0..8;

/// The same for a spare: its loop is close, and what it will run begins below. As many as a processor fetches at once, some
/// 16; with more it waits for them.
const LINES_OF_SPARE: Range<isize> = -12..2;

/// Fibers made at once, each of three cache lines.
const STRANDS_AT_A_TIME: usize = 16;

/// Quick yields between two with care. Not a power of two less one, so that it keeps step with no loop of the program.
const MOST_QUICK_YIELDS: u32 = 12;

impl Strand {
    /// Has the processor fetch what the fiber, which is suspended, needs first of its stack when it goes on.
    #[inline(always)]
    fn prefetch_stack(&self, lines: Range<isize>) {
        let suspended_at = self.suspended_at.get();
        for line in lines {
            prefetch(suspended_at.wrapping_offset(line * 64));
        }
    }
}

/// Has the processor fetch a fiber, of which only the address is known.
#[inline(always)]
fn prefetch_strand(strand: *const Strand) {
    for line in 0..size_of::<Strand>() / 64 {
        prefetch(strand.cast::<u8>().wrapping_add(line * 64));
    }
}

/// A worker thread's fibers that are not running, as far as they are not waiting.
pub(crate) struct ParkingLot {
    stacks: StackCache,
    /// Loops that may be given work, by class.
    spares: RefCell<[Vec<*const Strand>; StackClass::ALL.len()]>,
    /// Fibers without a stack, to be used again.
    bare: RefCell<Vec<*const Strand>>,
    hub: Hub,
    /// The fiber that the hub resumes next.
    next: Cell<*const Strand>,
    /// The fiber whose loop has ended, until the hub has taken its stack.
    ended: Cell<*const Strand>,
    /// The fiber that resumes a spare only to have it end, or null: it gets the thread back.
    ends_spares: Cell<*const Strand>,
    /// `true` if the worker has begun to end spares, and none was needed since.
    is_ending_spares: Cell<bool>,
    /// The work that the next fiber's loop runs first.
    handoff: Cell<Option<Found>>,
    /// `true` if this thread has a hub: not so if it is the user's own.
    has_hub: Cell<bool>,
}

impl ParkingLot {
    pub(crate) fn new(pool: &Shared) -> ParkingLot {
        ParkingLot {
            stacks: StackCache::new(&pool.stacks),
            spares: RefCell::default(),
            bare: RefCell::new(Vec::new()),
            hub: Hub::new(),
            next: Cell::new(std::ptr::null()),
            ended: Cell::new(std::ptr::null()),
            ends_spares: Cell::new(std::ptr::null()),
            is_ending_spares: Cell::new(false),
            handoff: Cell::new(None),
            has_hub: Cell::new(false),
        }
    }

    pub(crate) fn take_handoff(&self) -> Option<Found> {
        self.handoff.take()
    }
}

impl WorkerThread {
    /// Returns `true` if the current fiber may be parked now: there is a hub, and a fiber to continue on.
    pub(crate) fn can_park(&self) -> bool {
        self.parking.has_hub.get() && self.has_spare_or_counts(StackClass::Default)
    }

    /// Returns `true` if the current fiber may be suspended in favour of one that is ready.
    pub(crate) fn can_give_way(&self) -> bool {
        self.parking.has_hub.get()
    }

    /// Returns `true` if there is a spare of the class; if not, counts that a task has to do without.
    fn has_spare_or_counts(&self, class: StackClass) -> bool {
        let has_spare = self.ensure_spare(class).is_ok();
        if !has_spare {
            self.shared().stats.without_stack.add(1);
            out_of_stacks::report(&self.pool);
        }
        has_spare
    }

    /// Returns `true` if so little of the current fiber's stack is in use that a task which has a right to a stack of its own may
    /// run on top: at most a quarter, however deep tasks join each other.
    pub(crate) fn has_room_for_another(&self, strand: &Strand) -> bool {
        let in_use = strand.stack().base().wrapping_sub(stack_pointer());
        in_use < self.pool.stacks.stack_size(StackClass::Default) / 4
    }

    /// Returns `true` if what was made inside an isolation may run on top of a frame that waits there: at most half of the
    /// stack is in use. A thread's own stack is not known, and has room.
    pub(crate) fn has_room_on_top(&self, strand: &Strand) -> bool {
        let in_use = strand.stack().base().wrapping_sub(stack_pointer());
        let size = self.pool.stacks.stack_size(strand.stack_class.get());
        in_use < size / 2 || in_use >= size
    }

    fn ensure_spare(&self, class: StackClass) -> Result<(), StackError> {
        if !self.parking.spares.borrow()[class.index()].is_empty() {
            return Ok(());
        }
        let stack = self.parking.stacks.take(class)?;
        // SAFETY: fibers live as long as their pool, which this thread keeps alive.
        let strand = unsafe { &*self.bare_strand() };
        let arguments = [
            std::ptr::from_ref(self).cast(),
            std::ptr::from_ref(strand).cast(),
        ];
        // SAFETY: a bare or new fiber has no stack in use. The hub, without which nothing runs on a stack, borrows the
        // thread's state for as long, and fibers live as long as their pool.
        unsafe {
            let in_use = strand.stack();
            in_use.prepare(stack, run_loop, arguments, &self.parking.hub);
        }
        strand.stack_class.set(class);
        self.add_spare(strand);
        Ok(())
    }

    /// A fiber without a stack. They are made some at a time, since there may be very many.
    fn bare_strand(&self) -> *const Strand {
        let mut bare = self.parking.bare.borrow_mut();
        bare.pop().unwrap_or_else(|| {
            let strands = self.new_strands(STRANDS_AT_A_TIME);
            let first = strands.cast::<Strand>().cast_const();
            bare.extend((1..STRANDS_AT_A_TIME).map(|index| first.wrapping_add(index)));
            first
        })
    }

    fn add_spare(&self, strand: &Strand) {
        let class = strand.stack_class.get().index();
        self.parking.spares.borrow_mut()[class].push(strand);
    }

    /// A loop of the class, made now if there is none; a larger one if there is no memory for it.
    fn take_spare(&self, class: StackClass) -> Option<*const Strand> {
        let made = self.ensure_spare(class);
        self.parking.is_ending_spares.set(false);
        let class = match made {
            Ok(()) => class,
            Err(_) => StackClass::Default,
        };
        let spares = &mut self.parking.spares.borrow_mut()[class.index()];
        let spare = spares.pop();
        if let Some(next) = spares.last() {
            // SAFETY: fibers live as long as their pool.
            unsafe { &**next }.prefetch_stack(LINES_OF_SPARE);
        }
        spare
    }

    /// The fiber whose wait was over first. A parked stack is cold, so the processor gets to know of the next ones early.
    #[inline(always)]
    pub(crate) fn next_ready(&self) -> Option<*const Strand> {
        let mut ready = self.ready.borrow_mut();
        let first = ready.pop_front()?;
        if let Some(second) = ready.front() {
            // SAFETY: fibers live as long as their pool.
            unsafe { &**second }.prefetch_stack(LINES_OF_READY);
            if let Some(third) = ready.get(1) {
                prefetch_strand(*third);
            }
        }
        Some(first)
    }

    /// Says that from now on there is a hub that passes the thread on.
    pub(crate) fn prepare_hub(&self) -> Result<(), StackError> {
        self.ensure_spare(StackClass::Default)?;
        self.parking.has_hub.set(true);
        Ok(())
    }

    /// Runs the fiber whose turn it is, and those to which it passes the thread, until one comes back to the hub; `false` if
    /// the worker has none left.
    // Part of the hub's loop: where the hub passes the thread on, a return after its switch would be mispredicted.
    #[inline(always)]
    pub(crate) fn give_turn(&self) -> bool {
        match self.next_strand() {
            Some(strand) => self.resume(strand),
            None => return false,
        }
        true
    }

    /// Runs the worker's loop on fibers until the pool ends.
    pub(crate) fn run_hub(&self) -> Result<(), StackError> {
        self.prepare_hub()?;
        // Spares are woken at the end, so that their loops see that the pool has ended.
        while self.give_turn() {}
        self.parking.has_hub.set(false);
        Ok(())
    }

    #[inline(always)]
    fn next_strand(&self) -> Option<*const Strand> {
        let next = self.parking.next.replace(std::ptr::null());
        if next.is_null() {
            let mut spares = self.parking.spares.borrow_mut();
            spares.iter_mut().find_map(Vec::pop)
        } else {
            Some(next)
        }
    }

    /// Goes from the hub to `strand`, and back when some fiber leaves or ends: the last one that had the thread.
    #[inline(always)]
    fn resume(&self, strand: *const Strand) {
        // SAFETY: fibers live as long as their pool.
        let strand = unsafe { &*strand };
        self.set_current(strand);
        // SAFETY: this is the hub, so all fibers are suspended; only those with a stack are resumed.
        unsafe { strand.stack().resume(&self.parking.hub) };
        no_strand_is_current();
        let ended = self.parking.ended.replace(std::ptr::null());
        if !ended.is_null() {
            self.take_stack_of(ended);
        }
    }

    fn take_stack_of(&self, ended: *const Strand) {
        // SAFETY: fibers live as long as their pool; its loop was at its end when it went to the hub.
        let stack = unsafe { (*ended).stack().take_stack() };
        self.parking
            .stacks
            .give(stack.expect("a loop runs on a stack"));
        self.parking.bare.borrow_mut().push(ended);
    }

    /// Suspends the running fiber in favour of `next`. Returns when it is resumed.
    ///
    /// While it is suspended, others can take its public forks from the list of parked fibers.
    #[inline(always)]
    fn switch(&self, from: &Strand, next: *const Strand) {
        // SAFETY: we are on the fiber.
        if unsafe { from.forks.outstanding() > 0 } {
            self.switch_with_forks(from, next);
        } else {
            self.suspend(from, next);
        }
    }

    #[cold]
    #[inline(never)]
    fn switch_with_forks(&self, from: &Strand, next: *const Strand) {
        self.shared().parked.list(from);
        self.suspend(from, next);
        self.shared().parked.unlist(from);
        if !from.forks.looks_empty_to_thief() {
            // Who looked at the running fiber before the switch and at the list after it has seen
            // the forks in neither place.
            self.pool.sleep.new_work();
        }
    }

    /// Gives the thread to `next`, until it comes back.
    #[inline(always)]
    fn suspend(&self, from: &Strand, next: *const Strand) {
        self.end_measurement();
        from.suspended_at
            .set(std::ptr::without_provenance(stack_pointer()));
        let named = TaskName::put_aside();
        if PASSES_DIRECTLY && !self.is_simulated {
            assert!(!std::ptr::eq(from, next), "a strand gives way to another");
            // SAFETY: fibers live as long as their pool.
            let next = unsafe { &*next };
            self.set_current(next);
            // SAFETY: we are running on `from`; `next` is another fiber of this worker, and so suspended.
            unsafe { from.stack().pass(next.stack()) };
        } else {
            self.parking.next.set(next);
            // SAFETY: we are running on `from`, on which the hub has put us.
            unsafe { from.stack().leave(&self.parking.hub) };
        }
        drop(named);
        self.begin_slice(from);
    }

    /// Suspends the running fiber in a simulation; it stays the one that this worker runs.
    pub(crate) fn suspend_to_hub(&self, strand: &Strand) {
        self.suspend(strand, strand);
    }

    /// Parks `strand`, which waits by mail, and has `found` run instead.
    #[inline(always)]
    pub(crate) fn park_in_favour_of(&self, strand: &Strand, found: Found) {
        let stats = &self.shared().stats;
        stats.parks.add(1);
        stats.waiting.add(1);
        self.stolen.one_waits();
        let next = match found.work() {
            Work::Ready(next) => next,
            Work::Fork(_) | Work::Task(_) => self.hand_to_spare(found),
        };
        self.switch(strand, next);
        stats.waiting.subtract(1);
    }

    /// The fiber whose loop runs `found` when it gets the thread.
    #[inline(never)]
    fn hand_to_spare(&self, found: Found) -> *const Strand {
        // SAFETY: found, so ours, and not yet run.
        let class = unsafe { found.stack_class() };
        self.parking.handoff.set(Some(found));
        let spare = self.take_spare(class);
        spare.expect("`can_park` has seen to a spare strand")
    }

    /// Lets `ready` have the thread; `strand` goes on after what is ready now.
    pub(crate) fn let_run(&self, strand: &Strand, ready: *const Strand) {
        if !self.parking.has_hub.get() {
            // No hub passes this thread on.
            self.ready.borrow_mut().push_back(ready);
            return crate::sync::spin_pause();
        }
        self.ready.borrow_mut().push_back(strand);
        self.switch(strand, ready);
    }

    /// The usual yield: the fiber that is next gets the thread, and no search follows. `false` if that is
    /// not enough: now and then others must have a chance, too.
    #[inline(always)]
    pub(crate) fn yield_to_next_ready(&self, strand: &Strand) -> bool {
        let quick_yields = self.quick_yields.get();
        if quick_yields == 0 || !self.shared().inbox.is_empty() || self.preempted.is_used() {
            self.quick_yields.set(MOST_QUICK_YIELDS);
            return false;
        }
        // SAFETY: we are on the fiber, so its owner.
        let has_forks = unsafe { strand.forks.outstanding() > 0 };
        let is_plain = strand.context().get().isolation().is_none() && !has_forks;
        let may_suspend = self.parking.has_hub.get() && !std::thread::panicking();
        if !is_plain || !may_suspend || self.is_simulated {
            return false;
        }
        let Some(next) = self.next_ready() else {
            return false;
        };
        self.ready.borrow_mut().push_back(strand);
        self.quick_yields.set(quick_yields - 1);
        self.suspend(strand, next);
        true
    }

    /// Runs `found` on another fiber, and this one again after what is ready now.
    pub(crate) fn yield_to(&self, strand: &Strand, found: Found) {
        match found.work() {
            Work::Ready(ready) => self.let_run(strand, ready),
            Work::Fork(_) | Work::Task(_) => {
                self.ready.borrow_mut().push_back(strand);
                self.park_in_favour_of(strand, found);
            }
        }
    }

    /// A loop without work hands the thread to `ready`, and becomes a spare, or ends if there are
    /// enough of them: then it returns `false`.
    #[inline(always)]
    pub(crate) fn give_way(&self, strand: &Strand, ready: *const Strand) -> bool {
        let class = strand.stack_class.get().index();
        let keep = self.parking.spares.borrow()[class].len() < MOST_SPARES;
        if keep {
            self.add_spare(strand);
            self.switch(strand, ready);
            !self.spare_shall_end()
        } else {
            self.parking.next.set(ready);
            false
        }
    }

    /// For a spare that was resumed: whether it was only to end.
    fn spare_shall_end(&self) -> bool {
        let ends_spares = self.parking.ends_spares.replace(std::ptr::null());
        if ends_spares.is_null() {
            return false;
        }
        self.parking.next.set(ends_spares);
        true
    }

    /// Returns the time that the worker may sleep before it checks its spares.
    pub(crate) fn patience_with_spares(&self) -> Option<Duration> {
        let spares = self.parking.spares.borrow();
        let is_surplus = spares.iter().any(|spares| spares.len() > FEW_SPARES);
        match is_surplus && self.parking.has_hub.get() {
            false => None,
            true if self.parking.is_ending_spares.get() => Some(PAUSE_BETWEEN_ENDINGS),
            true => Some(PATIENCE_WITH_SPARES),
        }
    }

    /// Ends loops that have not been needed for long, on the stack of an idle fiber.
    #[cold]
    pub(crate) fn end_surplus_spares(&self) {
        if !self.parking.has_hub.get() || std::thread::panicking() {
            return;
        }
        self.parking.is_ending_spares.set(true);
        for class in StackClass::ALL {
            let coldest: Vec<_> = {
                let spares = &mut self.parking.spares.borrow_mut()[class.index()];
                let surplus = spares.len().saturating_sub(FEW_SPARES);
                spares.drain(..surplus.min(SPARES_ENDED_AT_ONCE)).collect()
            };
            for spare in coldest {
                Worker::with_current(|worker| {
                    let idle = worker
                        .expect("a worker looks after its own spares")
                        .strand();
                    self.parking.ends_spares.set(idle);
                    self.suspend(idle, spare);
                });
            }
        }
    }

    /// Moves the loop to a fiber of the class that `found` needs, if it is on another: that one runs it.
    #[inline]
    pub(crate) fn settle(&self, strand: &Strand, found: Found) -> Settled {
        // SAFETY: found, so ours, and not yet run.
        let class = unsafe { found.stack_class() };
        if class == strand.stack_class.get() || !self.parking.has_hub.get() {
            return Settled::Here;
        }
        self.settle_elsewhere(strand, found, class)
    }

    #[inline(never)]
    fn settle_elsewhere(&self, strand: &Strand, found: Found, class: StackClass) -> Settled {
        if !self.has_spare_or_counts(class) {
            // No memory for another stack: this one has to do.
            return Settled::Here;
        }
        let spare = self.take_spare(class).expect("there is one");
        self.parking.handoff.set(Some(found));
        if self.give_way(strand, spare) {
            Settled::Elsewhere
        } else {
            Settled::LoopIsOver
        }
    }
}

/// Runs on a fiber's stack, at its bottom.
///
/// # Safety
/// The worker thread and the fiber, which is one of its own, are there as long as this runs.
unsafe extern "C" fn run_loop(thread: *const (), strand: *const ()) {
    // SAFETY: by contract.
    let (thread, strand) = unsafe { (&*thread.cast::<WorkerThread>(), &*strand.cast::<Strand>()) };
    if !thread.spare_shall_end() {
        let first = thread.parking.take_handoff();
        thread.work_loop(Worker::of_strand(strand), first);
    }
    thread.parking.ended.set(strand);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{CountLatch, OnceLatch, Pool};

    /// Has `count` tasks wait at once on a pool's only worker, and end.
    fn wave(pool: &Pool, count: usize) {
        let (arrived, gate) = (CountLatch::new(count), OnceLatch::new());
        pool.install(|| {
            crate::scope(|scope| {
                for _ in 0..count {
                    scope.spawn(|_| {
                        arrived.count_down();
                        gate.wait();
                    });
                }
                arrived.wait();
                gate.set();
            });
        });
    }

    #[test]
    fn strands_that_wait_are_counted_for_thieves() {
        let pool = Pool::builder().workers(1).build().unwrap();
        let (arrived, gate) = (CountLatch::new(5), OnceLatch::new());
        let before_the_worker = || pool.shared().workers[0].strands_and_tasks();
        pool.install(|| {
            crate::scope(|scope| {
                for _ in 0..5 {
                    scope.spawn(|_| {
                        arrived.count_down();
                        gate.wait();
                    });
                }
                arrived.wait();
                assert_eq!(before_the_worker(), 5);
                gate.set();
            });
            assert_eq!(before_the_worker(), 0);
        });
    }

    #[test]
    fn a_pool_without_stacks_goes_on_and_says_so() {
        let pool = Pool::builder().workers(1).build().unwrap();
        assert_eq!(pool.stats().degradation(), None);
        let error = StackError::NoAddressSpace {
            bytes: 1 << 20,
            os_error: 12,
        };
        pool.install(|| ());
        let stacks = &pool.shared().stacks;
        stacks.refuse_all(Some(error));
        // More than the worker has at hand wait, one on top of another; the last one lets them go.
        let (count, gate) = (40, OnceLatch::new());
        let left = std::sync::atomic::AtomicUsize::new(count);
        pool.scope(|scope| {
            for _ in 0..count {
                scope.spawn(|_| {
                    if left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1 {
                        gate.set();
                    }
                    gate.wait();
                });
            }
        });
        let stats = pool.stats();
        assert!(stats.total().without_stack > 0, "{stats:?}");
        assert!(stats.stacks.refused >= stats.total().without_stack);
        assert_eq!(stats.stacks.last_refusal, Some(error));
        let line = stats.degradation().unwrap();
        assert!(line.contains("out of stacks"), "{line}");
        // It recovers when there are stacks again.
        stacks.refuse_all(None);
        let before = stats.stacks.refused;
        wave(&pool, 100);
        assert_eq!(pool.stats().stacks.refused, before);
    }

    #[test]
    fn stacks_of_a_wave_are_given_back_when_the_worker_is_idle() {
        let count = 40 * FEW_SPARES;
        let pool = Pool::builder().workers(1).build().unwrap();
        let at_home = || pool.shared().stacks.at_home(StackClass::Default);
        wave(&pool, count);
        // What is left: the spares that are always kept, and a few in the worker's cache.
        let began = std::time::Instant::now();
        while at_home() < count - 4 * FEW_SPARES {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{} came home",
                at_home()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        // And they can be used again.
        wave(&pool, count);
    }
}
