//! The state that all threads of a pool share, and the end of a pool.
//!
//! # How a pool ends
//!
//! `terminate` asks for it; what is queued is still run. The pool has ended when every task that was
//! ever made has finished: then no worker can make another. Each worker counts the tasks it made and
//! the tasks it finished in words that only it writes. The thread that is out of work reads all finished
//! counts first and all made counts after: since a task is made before it is finished, equal sums mean
//! that at the moment between the two readings nothing was left.

use std::any::Any;
use std::sync::atomic::AtomicU8;
use std::sync::{Condvar, Mutex as StdMutex};
use std::time::{Duration, Instant};

use jobtree_base::user_code::{Place, call_user, drop_user, record};

use super::adopted::CurrentThread;
use crate::context::ContextRef;
use crate::deque::{Deque, Entry};
use crate::forked::Process;
use crate::inbox::{Inbox, Mail};
use crate::injector::Injector;
use crate::offer::OfferSlot;
use crate::out_of_stacks::Listeners;
use crate::padded::Padded;
use crate::placement::Workplace;
use crate::requeued::Requeued;
use crate::sleep::Sleep;
use crate::stats::{PoolStats, WorkerCounters};
use crate::strand::Strand;
use crate::sync::step::{Step, left_out};
use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Mutex, Ordering, get_mut, lock};
use crate::task_lengths::TaskLengths;
use crate::worker::Worker;

/// Room in a task deque before it grows.
const TASK_CAPACITY: usize = 256;

pub(crate) type IndexHandler = dyn Fn(usize) + Send + Sync;
pub(crate) type PanicHandler = dyn Fn(Box<dyn Any + Send>) + Send + Sync;

/// The handlers that a pool's user wants called.
#[derive(Default)]
pub(crate) struct Handlers {
    pub(crate) on_start: Option<Box<IndexHandler>>,
    pub(crate) on_exit: Option<Box<IndexHandler>>,
    pub(crate) on_panic: Option<Box<PanicHandler>>,
}

/// The tuning of forks, by the number of workers.
pub(crate) struct Tuning {
    /// Forks a fiber keeps to itself before `join` becomes a plain call.
    pub(crate) private_forks: usize,
    /// Forks a fiber puts out before a thief asks.
    pub(crate) eager_public_forks: usize,
    /// `true` if the workers take turns on one thread.
    pub(crate) is_simulated: bool,
}

impl Tuning {
    fn for_workers(workers: usize) -> Tuning {
        let levels = workers.next_power_of_two().trailing_zeros() as usize;
        Tuning {
            // Alone there is no worker to share with. Otherwise enough to give every worker a share:
            // measured, see docs/lab-notebook.md.
            private_forks: levels,
            eager_public_forks: levels.max(1),
            is_simulated: false,
        }
    }

    /// Every fork makes a record and is offered to others: a limit beyond all indices is the mark of a question, which
    /// then stands for ever (`Deque::is_asked`).
    #[cfg(jobtree_stacks)]
    fn for_simulation() -> Tuning {
        Tuning {
            private_forks: usize::MAX,
            eager_public_forks: usize::MAX,
            is_simulated: true,
        }
    }
}

/// The part of a worker that other threads may touch.
pub(crate) struct WorkerShared {
    pub(crate) tasks: Padded<Deque>,
    /// Tasks that gave way.
    pub(crate) requeued: Requeued,
    pub(crate) inbox: Inbox,
    pub(crate) parked: ParkedForks,
    /// A task of another worker's, while this one is idle.
    pub(crate) offers: OfferSlot,
    pub(crate) stats: WorkerCounters,
    pub(crate) workplace: Padded<Workplace>,
    current: AtomicPtr<Strand>,
    /// While the worker waits inside `isolate`: one more than the stacks and tasks that it holds up. For the reports of
    /// debug builds.
    pub(crate) held_up_inside: std::sync::atomic::AtomicUsize,
    /// Tasks spawned first in, first out by this worker; tickets for them are in `tasks`.
    pub(crate) fifo: StdMutex<std::collections::VecDeque<Entry>>,
}

impl WorkerShared {
    fn new() -> WorkerShared {
        WorkerShared {
            // Tasks are public at once: their maker may run on for long.
            tasks: Padded(Deque::new(usize::MAX, TASK_CAPACITY)),
            requeued: Requeued::new(),
            inbox: Inbox::new(),
            parked: ParkedForks::new(),
            offers: OfferSlot::new(),
            stats: WorkerCounters::default(),
            workplace: Padded(Workplace::new()),
            current: AtomicPtr::new(std::ptr::null_mut()),
            held_up_inside: std::sync::atomic::AtomicUsize::new(0),
            fifo: StdMutex::default(),
        }
    }

    /// The fiber that runs on this worker, or did a moment ago.
    #[inline]
    pub(crate) fn current(&self) -> Option<&Strand> {
        // SAFETY: fibers live as long as their pool.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Makes `strand` the one that runs on this worker.
    ///
    /// # Safety
    /// Only the worker itself may call it, with a fiber of its own.
    pub(crate) unsafe fn show_current(&self, strand: &Strand) {
        self.current
            .store(std::ptr::from_ref(strand).cast_mut(), Ordering::Release);
        // Who interrupted the worker before has seen another fiber: see `stop.rs`.
        if !left_out(Step::InterruptSwitchAsk) {
            strand.ask_for_woken();
        }
    }

    /// Returns how much this worker has before it: fibers that wait, which only it can continue, and tasks that others may take.
    pub(crate) fn strands_and_tasks(&self) -> u64 {
        self.stats.waiting.read() + self.tasks.public_len() as u64
    }

    pub(crate) fn has_public_work(&self) -> bool {
        !self.tasks.looks_empty_to_thief()
            || !self.requeued.looks_empty()
            || self.parked.is_listed()
            || self
                .current()
                .is_some_and(|strand| !strand.forks.looks_empty_to_thief())
    }
}

/// The parked fibers of a worker that have forks to give away.
pub(crate) struct ParkedForks {
    listed: AtomicUsize,
    strands: Mutex<Vec<*const Strand>>,
}

impl ParkedForks {
    fn new() -> ParkedForks {
        ParkedForks {
            listed: AtomicUsize::new(0),
            strands: Mutex::new(Vec::new()),
        }
    }

    #[inline]
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire) != 0
    }

    /// Offers the forks of `strand`, which is about to be parked.
    #[cfg_attr(not(jobtree_stacks), allow(dead_code))]
    pub(crate) fn list(&self, strand: &Strand) {
        let mut strands = lock(&self.strands);
        strands.push(strand);
        self.listed.store(strands.len(), Ordering::Release);
    }

    /// `strand` goes on, and looks after its forks itself.
    #[cfg_attr(not(jobtree_stacks), allow(dead_code))]
    pub(crate) fn unlist(&self, strand: &Strand) {
        let mut strands = lock(&self.strands);
        if let Some(position) = strands
            .iter()
            .position(|listed| std::ptr::eq(*listed, strand))
        {
            strands.swap_remove(position);
        }
        self.listed.store(strands.len(), Ordering::Release);
    }

    pub(crate) fn steal(
        &self,
        thief: usize,
        suits: impl Fn(ContextRef) -> bool + Copy,
    ) -> Option<Entry> {
        if !self.is_listed() {
            return None;
        }
        let strands = lock(&self.strands);
        strands.iter().find_map(|strand| {
            // SAFETY: fibers live as long as their pool.
            unsafe { &**strand }.steal(thief, suits)
        })
    }
}

/// The ways in which workers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Waits {
    /// The fiber is parked, and the worker continues on another.
    Park,
    /// Waits of the pool's own operations (forks, scopes, `install`) run other work on top of the waiting frame; all others park.
    /// For a pool that programs use by two sets of functions, of which one promises that.
    NestForks,
    /// Every wait runs other work on top.
    Nest,
}

/// See the module's head.
pub(crate) struct Shared {
    pub(crate) workers: Box<[WorkerShared]>,
    pub(crate) injector: Injector,
    pub(crate) sleep: Sleep,
    pub(crate) tuning: Tuning,
    /// The way in which the workers wait: a [`Waits`]. Changed once, if at all.
    waits: AtomicU8,
    pub(crate) lengths: TaskLengths,
    pub(crate) handlers: Handlers,
    /// The process that has the threads.
    pub(crate) process: Process,
    pub(crate) seed: u64,
    pub(crate) stack_size: usize,
    #[cfg(jobtree_stacks)]
    pub(crate) stacks: crate::stack::StackSupply,
    pub(crate) out_of_stacks: Listeners,
    /// A task that calls these listeners was posted.
    #[cfg(jobtree_stacks)]
    pub(crate) posted_out_of_stacks: AtomicBool,
    /// Of a pool whose worker 0 is a thread of the program's own.
    pub(crate) current_thread: CurrentThread,
    /// Tasks made by threads that are not workers of this pool.
    made_outside: AtomicU64,
    /// Tasks that ended elsewhere than on a worker of this pool.
    finished_outside: AtomicU64,
    terminating: AtomicBool,
    ended: AtomicBool,
    gone: StdMutex<usize>,
    /// Workers whose start was dropped instead of run.
    pub(super) never_started: AtomicUsize,
    somebody_is_gone: Condvar,
    /// All fibers that were ever made for this pool; freed with it.
    strands: Mutex<Vec<*mut [Strand]>>,
}

// SAFETY: raw pointers inside point to fibers, which are `Sync` and owned by the pool.
unsafe impl Send for Shared {}
// SAFETY: as above; all other fields synchronise themselves.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn new(
        workers: usize,
        seed: u64,
        stack_size: usize,
        handlers: Handlers,
        #[cfg(jobtree_stacks)] stacks: crate::stack::StackSupply,
    ) -> Shared {
        Shared {
            workers: (0..workers).map(|_| WorkerShared::new()).collect(),
            injector: Injector::new(),
            sleep: Sleep::new(workers),
            tuning: Tuning::for_workers(workers),
            waits: AtomicU8::new(Waits::Park as u8),
            lengths: TaskLengths::new(),
            handlers,
            process: Process::current(),
            seed,
            stack_size,
            #[cfg(jobtree_stacks)]
            stacks,
            out_of_stacks: Listeners::default(),
            #[cfg(jobtree_stacks)]
            posted_out_of_stacks: AtomicBool::new(false),
            current_thread: CurrentThread::default(),
            made_outside: AtomicU64::new(0),
            finished_outside: AtomicU64::new(0),
            never_started: AtomicUsize::new(0),
            terminating: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            gone: StdMutex::new(0),
            somebody_is_gone: Condvar::new(),
            strands: Mutex::new(Vec::new()),
        }
    }

    /// A pool whose workers take turns on one thread.
    #[cfg(jobtree_stacks)]
    pub(crate) fn simulated(
        workers: usize,
        seed: u64,
        stack_size: usize,
        handlers: Handlers,
        stacks: crate::stack::StackSupply,
    ) -> Shared {
        let mut shared = Shared::new(workers, seed, stack_size, handlers, stacks);
        shared.tuning = Tuning::for_simulation();
        shared.sleep = Sleep::for_simulation(workers);
        shared
    }

    /// Returns how the workers wait.
    #[inline]
    pub(crate) fn waits(&self) -> Waits {
        match self.waits.load(std::sync::atomic::Ordering::Relaxed) {
            0 => Waits::Park,
            1 => Waits::NestForks,
            _ => Waits::Nest,
        }
    }

    /// Has the workers wait in another way; [`Waits::Nest`] only before they start.
    pub(crate) fn set_waits(&self, waits: Waits) {
        self.waits
            .store(waits as u8, std::sync::atomic::Ordering::Relaxed);
    }

    /// Takes over fibers, made by [`Strand::allocate`], until the pool's end.
    pub(crate) fn keep_strands(&self, strands: *mut [Strand]) {
        lock(&self.strands).push(strands);
    }

    /// Queues a task: on the calling worker if it is one of this pool's, else through the injector.
    pub(crate) fn submit(&self, entry: Entry) {
        Worker::with_current(|worker| match worker {
            Some(worker) if std::ptr::eq(worker.pool(), self) => self.submit_from(worker, entry),
            _ => self.inject(entry),
        });
    }

    /// Queues a task on `worker`, which is one of this pool's and the calling one.
    pub(crate) fn submit_from(&self, worker: &Worker, entry: Entry) {
        let own = &self.workers[worker.index()];
        own.stats.made_tasks.add_release(1);
        if !entry.context.isolation().is_none() {
            return self.post_isolated(entry);
        }
        // SAFETY: a `&Worker` means that this is the worker's own thread.
        unsafe {
            own.tasks.push_private(entry);
            own.tasks.publish_all();
        }
        self.sleep.new_work();
    }

    /// Queues a task for the thread that looks first, behind all that came from outside before.
    pub(crate) fn inject(&self, entry: Entry) {
        self.process.must_be_current();
        self.made_outside.fetch_add(1, Ordering::Release);
        if !entry.context.isolation().is_none() {
            return self.post_isolated(entry);
        }
        self.injector.push(entry);
        self.sleep.new_work();
    }

    /// Queues a task that was made inside an isolation, and has been counted, where a worker that waits inside finds it.
    #[cold]
    #[inline(never)]
    pub(crate) fn post_isolated(&self, entry: Entry) {
        self.injector.push(entry);
        self.sleep.wake_alone();
        self.sleep.new_work();
    }

    /// Queues a task for worker number `index` alone; if that was a thread of the program's own that has left, for any.
    pub(crate) fn send(&self, index: usize, entry: Entry) {
        self.process.must_be_current();
        self.made_outside.fetch_add(1, Ordering::Release);
        if self.has_ended() {
            // The worker does not look at its mail any more: who sends this is called at the end of another one.
            self.injector.push(entry);
            return;
        }
        let send = || {
            // SAFETY: a fresh letter, which the owner frees when it takes it out.
            unsafe { self.workers[index].inbox.push(Mail::with_task(entry)) };
            self.sleep.notify(index);
        };
        if index != 0 {
            return send();
        }
        if !self.current_thread.unless_gone(send) {
            self.injector.push(entry);
            self.sleep.new_work();
        }
    }

    /// Returns the counts of the workers so far.
    pub(crate) fn stats(&self) -> PoolStats {
        let reading = |(index, worker): (usize, &WorkerShared)| {
            worker.stats.snapshot(self.sleep.sleeps_and_wakes(index))
        };
        PoolStats {
            workers: self.workers.iter().enumerate().map(reading).collect(),
            #[cfg(jobtree_stacks)]
            stacks: self.stacks.stats(),
            #[cfg(not(jobtree_stacks))]
            stacks: Default::default(),
        }
    }

    /// Asks the pool to end once all its tasks have.
    pub(crate) fn terminate(&self) {
        self.terminating.store(true, Ordering::Release);
        self.notify_all();
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns `true` if the pool is to end once all its tasks have.
    pub(crate) fn is_terminating(&self) -> bool {
        self.terminating.load(Ordering::Acquire)
    }

    /// Ends the pool if it shall end and nothing is left to do; says whether it has ended.
    pub(crate) fn end_if_quiescent(&self) -> bool {
        if !self.terminating.load(Ordering::Acquire) {
            return false;
        }
        if self.unfinished_tasks() != 0 {
            return false;
        }
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.notify_all();
        }
        true
    }

    /// Tasks made and not finished: exact if it is 0, else a moment's estimate.
    pub(crate) fn unfinished_tasks(&self) -> u64 {
        let finished: u64 = self
            .workers
            .iter()
            .map(|worker| worker.stats.finished_tasks.read())
            .sum();
        let finished = finished + self.finished_outside.load(Ordering::Acquire);
        let made: u64 = self
            .workers
            .iter()
            .map(|worker| worker.stats.made_tasks.read())
            .sum();
        (made + self.made_outside.load(Ordering::Acquire)).saturating_sub(finished)
    }

    /// Keeps the pool from ending before a release: work that is in no queue now will be in one.
    pub(crate) fn hold(&self) {
        self.made_outside.fetch_add(1, Ordering::Release);
    }

    /// Takes back a hold.
    pub(crate) fn release(&self) {
        self.finished_outside.fetch_add(1, Ordering::Release);
        if self.terminating.load(Ordering::Acquire) {
            // Workers that found something left to do sleep, and no other thread tells them.
            self.notify_all();
        }
    }

    fn notify_all(&self) {
        for index in 0..self.workers.len() {
            self.sleep.notify(index);
        }
    }

    /// Panics if the pool has no worker that could run anything: the calling code would wait for ever.
    pub(crate) fn refuse_without_workers(&self) {
        let never_started = self.never_started.load(Ordering::Relaxed);
        assert!(
            never_started < self.workers.len(),
            "jobtree: this pool has no worker, since every `WorkerStart` that `spawn_with` was given has been dropped; have threads call \
             `WorkerStart::run`"
        );
    }

    /// A worker's thread is done with the pool.
    pub(crate) fn worker_is_gone(&self) {
        *self.gone.lock().unwrap_or_else(|e| e.into_inner()) += 1;
        self.somebody_is_gone.notify_all();
    }

    /// Waits until `expected` worker threads have gone; `false` if `limit` passes first.
    pub(crate) fn wait_until_gone(&self, expected: usize, limit: Duration) -> bool {
        let until = Instant::now().checked_add(limit);
        let mut gone = self.gone.lock().unwrap_or_else(|e| e.into_inner());
        while *gone < expected {
            let left = match until {
                Some(until) => match until.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => left,
                    _ => return false,
                },
                // Longer than the clock can count.
                None => Duration::from_secs(3600),
            };
            gone = self
                .somebody_is_gone
                .wait_timeout(gone, left)
                .unwrap_or_else(|e| e.into_inner())
                .0;
        }
        true
    }

    /// Tells the pool's user of a panic of a task that no code waits for; without a handler, records it.
    pub(crate) fn handle_panic(&self, payload: Box<dyn Any + Send>) {
        match &self.handlers.on_panic {
            Some(handler) => {
                call_user(Place::Handler, || handler(payload));
            }
            // The panic hook has reported it.
            None => record(Place::Task, payload),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What they captured has destructors, and this may be a worker's thread, which must end well.
        drop_user(Place::Captured, std::mem::take(&mut self.handlers));
        for strands in get_mut(&mut self.strands).drain(..) {
            // SAFETY: made by `Box::into_raw`; every worker thread held a reference to the pool, so all
            // of them are gone, and with them every thread that could look at a fiber.
            drop(unsafe { Box::from_raw(strands) });
        }
    }
}
