//! A worker: an OS thread, what it keeps to itself, and its loop.
//!
//! [`Worker`] is the face that user code gets: the fiber it runs on. [`WorkerThread`] is what the
//! thread keeps for all its fibers. What other threads may touch is in `pool::shared::WorkerShared`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use jobtree_base::user_owned::UserOwned;

use crate::context::Installed;
use crate::deque::Entry;
use crate::fair_share::RunningBurst;
use crate::found::{Found, Work};
use crate::isolation::{Isolation, KeptNumbers};
use crate::job::{AbortOnUnwind, Job, JobName};
use crate::offer::Measured;
use crate::pool::Pool;
use crate::pool::adopted::{self, OutermostCall};
use crate::pool::shared::{Shared, WorkerShared};
use crate::preempted::PreemptedQueue;
use crate::random::Random;
use crate::raw::fuel::Meter;
use crate::search::Watched;
use crate::sim;
use crate::sleep::SpinMemory;
use crate::strand::Strand;
use crate::theft::StolenTasks;

/// The worker that code runs on: lends what `join` needs without looking it up.
///
/// It cannot be sent or shared; closures that may move to another worker are handed that one's.
///
/// ```
/// let workers = jobtree_pool::with_worker(|worker| worker.workers());
/// assert!(workers >= 1);
/// ```
///
/// It stays where it is:
///
/// ```compile_fail
/// jobtree_pool::with_worker(|here| {
///     here.join(|_| (), |_| here.index());
/// });
/// ```
#[repr(transparent)]
pub struct Worker {
    strand: Strand,
    stays_on_its_thread: PhantomData<*const ()>,
}

thread_local! {
    /// The fiber that runs on this thread, or null.
    static CURRENT: Cell<*const Strand> = const { Cell::new(std::ptr::null()) };
    /// This worker thread's own state, or null.
    static THREAD: Cell<*const WorkerThread> = const { Cell::new(std::ptr::null()) };
}

impl Worker {
    pub(crate) fn of_strand(strand: &Strand) -> &Worker {
        // SAFETY: `Worker` is a transparent wrapper of `Strand`.
        unsafe { &*std::ptr::from_ref(strand).cast::<Worker>() }
    }

    /// Lends the worker that runs the calling code, if a call of this crate is under way. A thread of the program's own that
    /// is a worker (`pool/adopted.rs`) is none outside of such calls: for that, there is [`Worker::with_current`].
    #[inline(always)]
    pub(crate) fn with_running<R>(body: impl FnOnce(Option<&Worker>) -> R) -> R {
        // SAFETY: set only while that fiber runs on this thread, and fibers outlive the frames on
        // them; the reference does not leave `body`, whose frame lies on the fiber.
        body(unsafe { CURRENT.get().cast::<Worker>().as_ref() })
    }

    /// Lends the worker that runs the calling code, if it is on one.
    #[inline(always)]
    pub(crate) fn with_current<R>(body: impl FnOnce(Option<&Worker>) -> R) -> R {
        let strand = CURRENT.get();
        let call = match strand.is_null() {
            true => OutermostCall::enter(),
            false => OutermostCall::NONE,
        };
        // SAFETY: as above.
        let worker = unsafe { strand.cast::<Worker>().as_ref() };
        // Called in one place only, or it would not be inlined.
        body(worker.or_else(|| call.worker()))
    }

    #[inline(always)]
    pub(crate) fn strand(&self) -> &Strand {
        &self.strand
    }

    /// The state of the thread that this worker is.
    #[inline]
    pub(crate) fn thread(&self) -> &WorkerThread {
        // SAFETY: a `&Worker` exists only on its own thread, between the start and the end of that
        // thread's worker state.
        unsafe { &*THREAD.get() }
    }

    /// The pool the worker belongs to.
    #[inline]
    pub(crate) fn pool(&self) -> &Shared {
        self.strand.pool()
    }

    /// Returns the worker's number in the pool, from 0.
    #[inline]
    pub fn index(&self) -> usize {
        self.strand.worker_index()
    }

    /// Returns the number of workers of the pool.
    #[inline]
    pub fn workers(&self) -> usize {
        self.pool().workers.len()
    }

    /// Returns `true` if a thief has searched here in vain since this worker last forked.
    ///
    /// A loop that could be split should be split now. Costs one load. Who stops what runs in a context asks too
    /// ([`with_user_context`](crate::with_user_context)): splitting by [`Worker::join`] then ends the loop. And a
    /// stack that has waited is asked once, whether or not a thief wants work.
    ///
    /// ```
    /// use jobtree_pool::Worker;
    ///
    /// fn sum_of(w: &Worker, mut numbers: &[u64]) -> u64 {
    ///     let mut sum = 0;
    ///     while let Some((first, rest)) = numbers.split_first() {
    ///         if w.wants_work() && rest.len() > 1 {
    ///             let (left, right) = numbers.split_at(numbers.len() / 2);
    ///             let (left, right) = w.join(|w| sum_of(w, left), |w| sum_of(w, right));
    ///             return sum + left + right;
    ///         }
    ///         sum += first;
    ///         numbers = rest;
    ///     }
    ///     sum
    /// }
    /// let numbers: Vec<u64> = (0..1000).collect();
    /// assert_eq!(jobtree_pool::with_worker(|w| sum_of(w, &numbers)), 499_500);
    /// ```
    #[inline(always)]
    pub fn wants_work(&self) -> bool {
        self.strand.forks.is_asked() && sim::answers_for_thieves()
    }
}

/// Runs `body` with the current worker; outside of any pool, on a worker of the global pool.
///
/// ```
/// let (a, b) = jobtree_pool::with_worker(|w| w.join(|_| 1, |_| 2));
/// assert_eq!(a + b, 3);
/// ```
///
/// # Panics
/// If the global pool is needed and cannot be made (see [`Pool::try_global`]), or if `body` panics.
pub fn with_worker<F, R>(body: F) -> R
where
    F: FnOnce(&Worker) -> R + Send,
    R: Send,
{
    Worker::with_current(|worker| match worker {
        Some(worker) => body(worker),
        None => {
            let body = UserOwned::captured(body);
            let pool = Pool::global();
            pool.install_on_worker(body.into_inner())
        }
    })
}

/// The data that a worker thread keeps to itself.
pub(crate) struct WorkerThread {
    pub(crate) pool: Arc<Shared>,
    /// `pool.workers[index]`, which every search for work looks at several times.
    own: NonNull<WorkerShared>,
    pub(crate) index: usize,
    /// `true` if the worker is one of several that take turns on one thread (`sim/mod.rs`).
    pub(crate) is_simulated: bool,
    pub(crate) random: Random,
    pub(crate) dispatches: Cell<u32>,
    /// The number of times that this worker's fibers may still yield to each other without a scan.
    #[cfg(jobtree_stacks)]
    pub(crate) quick_yields: Cell<u32>,
    pub(crate) spin_memory: SpinMemory,
    /// The oldest fork of each worker, by its number, as the last scan saw it.
    pub(crate) watches: Box<[Cell<Option<Watched>>]>,
    pub(crate) stolen: StolenTasks,
    /// The innermost isolation that some frame on this thread's running fiber waits or runs inside of. Not that of a task
    /// which runs at the bottom of a fiber and has not waited yet.
    pub(crate) isolation: Cell<Isolation>,
    /// The numbers for its next calls of `isolate`.
    pub(crate) numbers: KeptNumbers,
    /// Fibers whose wait is over, oldest first.
    pub(crate) ready: RefCell<VecDeque<*const Strand>>,
    /// The task that has just run and gave way, between its end and its place in a queue.
    pub(crate) gave_way: Cell<Option<Entry>>,
    /// All fibers that were ever made for this worker.
    strands: RefCell<Vec<*const [Strand]>>,
    /// Fibers that have used up a time slice.
    pub(crate) preempted: PreemptedQueue,
    /// The current work, if its job has a share.
    pub(crate) burst: RunningBurst,
    /// The task that runs now, if it is measured.
    pub(crate) measured: Cell<Option<Measured>>,
    /// The time at which a computation last gave way to woken fibers and got the thread again.
    pub(crate) gave_way_at: Cell<u64>,
    /// Tasks out of the inbox, oldest first.
    pub(crate) own_mail: RefCell<VecDeque<Entry>>,
    #[cfg(jobtree_stacks)]
    pub(crate) parking: crate::parking::ParkingLot,
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        for strands in self.strands.get_mut() {
            // SAFETY: fibers live as long as their pool, which this thread still keeps.
            let strands = unsafe { &**strands };
            strands.iter().for_each(Strand::take_bell_down);
        }
    }
}

/// The result of giving away the work that a loop has found.
#[cfg_attr(not(jobtree_stacks), allow(dead_code))]
#[derive(Clone, Copy)]
pub(crate) enum Settled {
    /// The work is to be run on this fiber.
    Here,
    /// Another fiber ran it, and this one goes on.
    Elsewhere,
    /// Another fiber runs it, and this one is not needed any more.
    LoopIsOver,
}

impl WorkerThread {
    pub(crate) fn new(pool: Arc<Shared>, index: usize) -> WorkerThread {
        WorkerThread {
            own: NonNull::from(&pool.workers[index]),
            index,
            is_simulated: pool.tuning.is_simulated,
            random: Random::new(pool.seed, index),
            dispatches: Cell::new(0),
            #[cfg(jobtree_stacks)]
            quick_yields: Cell::new(0),
            spin_memory: SpinMemory::new(),
            watches: pool.workers.iter().map(|_| Cell::new(None)).collect(),
            stolen: StolenTasks::new(),
            isolation: Cell::new(Isolation::NONE),
            numbers: KeptNumbers::default(),
            ready: RefCell::new(VecDeque::new()),
            gave_way: Cell::new(None),
            strands: RefCell::new(Vec::new()),
            preempted: PreemptedQueue::new(),
            burst: RunningBurst::none(),
            measured: Cell::new(None),
            gave_way_at: Cell::new(0),
            own_mail: RefCell::new(VecDeque::new()),
            #[cfg(jobtree_stacks)]
            parking: crate::parking::ParkingLot::new(&pool),
            pool,
        }
    }

    /// Returns the part of this worker that other threads may touch.
    #[inline]
    pub(crate) fn shared(&self) -> &WorkerShared {
        // SAFETY: `own` points into the boxed slice of the pool, which never changes and which `self.pool` keeps.
        unsafe { self.own.as_ref() }
    }

    /// Makes a fiber for this worker, which the pool keeps until its end.
    pub(crate) fn new_strand(&self) -> &Strand {
        // SAFETY: made for this, with one element.
        unsafe { &*self.new_strands(1).cast::<Strand>() }
    }

    /// Makes fibers for this worker, which the pool keeps until its end.
    pub(crate) fn new_strands(&self, count: usize) -> *mut [Strand] {
        let strands = Strand::allocate(&self.pool, self.index, count);
        self.pool.keep_strands(strands);
        self.strands.borrow_mut().push(strands);
        strands
    }

    /// Makes `strand` the one that runs on this thread.
    pub(crate) fn set_current(&self, strand: &Strand) {
        CURRENT.set(strand);
        // SAFETY: this is the worker's own thread, and only its fibers come here.
        unsafe { self.shared().show_current(strand) };
    }

    /// Runs the calling thread's life as a worker: `body` gets its first fiber.
    pub(crate) fn enter<R>(&self, body: impl FnOnce(&Strand) -> R) -> R {
        let _entered = self.attach();
        let strand = self.new_strand();
        self.set_current(strand);
        body(strand)
    }

    /// Makes this the calling thread's worker state until the value is dropped.
    pub(crate) fn attach(&self) -> Attached {
        let outer = (THREAD.replace(self), CURRENT.replace(std::ptr::null()));
        let adopted = adopted::put_aside();
        Attached { outer, adopted }
    }

    /// Makes this the worker whose fibers run on the calling thread, in a simulation.
    #[cfg(jobtree_stacks)]
    pub(crate) fn take_over_thread(&self) {
        THREAD.set(self);
    }

    /// The main loop of a fiber: runs what is found until the pool ends or this fiber is no longer needed.
    pub(crate) fn work_loop(&self, worker: &Worker, first: Option<Found>) {
        let mut next = first;
        loop {
            let found = match next.take() {
                Some(found) => Some(found),
                None => match self.newest_task_at_a_glance() {
                    Some(entry) => Some(Found::task(entry)),
                    None => self.next_work(),
                },
            };
            let Some(found) = found else { return };
            if self.passes_on(found, 0) {
                continue;
            }
            match found.work() {
                Work::Ready(strand) => {
                    if !self.give_way(worker.strand(), strand) {
                        return;
                    }
                    next = self.take_handoff();
                }
                Work::Fork(_) | Work::Task(_) => match self.settle(worker.strand(), found) {
                    Settled::Here => {
                        self.begin_measurement();
                        self.run(worker, found);
                        self.end_measurement();
                        if let Some(entry) = self.gave_way.take() {
                            next = self.exchange_requeued(entry);
                        }
                    }
                    Settled::Elsewhere => next = self.take_handoff(),
                    Settled::LoopIsOver => return,
                },
            }
        }
    }

    /// Work that was given to this fiber when the thread was handed over to it.
    fn take_handoff(&self) -> Option<Found> {
        #[cfg(jobtree_stacks)]
        return self.parking.take_handoff();
        #[cfg(not(jobtree_stacks))]
        None
    }

    /// Finds work, sleeping if there is none; `None` when the pool has ended.
    fn next_work(&self) -> Option<Found> {
        if let Some(found) = self.find_work() {
            return Some(found);
        }
        let mut searching = self.start_searching();
        self.stand_by();
        let found = loop {
            if self.pool.has_ended() || self.shared().offers.has_task() {
                break None;
            }
            if let Some(found) = self.look_again(&searching) {
                break Some(found);
            }
            if self.pool.end_if_quiescent() {
                break None;
            }
            self.nothing_found(&mut searching);
        };
        let found = self.stop_standing_by(found);
        self.stop_searching(searching);
        found
    }

    /// Runs a fork or a task on the current fiber, on top of a frame that waits.
    pub(crate) fn execute(&self, worker: &Worker, found: Found) {
        self.begin_measurement();
        self.run(worker, found);
        self.end_measurement();
        if let Some(entry) = self.gave_way.take() {
            self.put_behind(entry);
        }
    }

    /// Runs a fork or a task on the current fiber, in its own context.
    // Part of the loop: a task that waited returns here after a switch, and would be mispredicted once more.
    #[inline(always)]
    fn run(&self, worker: &Worker, found: Found) {
        let (entry, is_task) = match found.work() {
            Work::Fork(entry) => (entry, false),
            Work::Task(entry) => (entry, true),
            Work::Ready(_) => unreachable!("a ready strand is resumed, not executed"),
        };
        worker.strand().sim_point();
        let stats = &self.shared().stats;
        // Before it runs: the thread that waits for it may read the count as soon as it has.
        stats.executed.add(1);
        let installed = Installed::new(Some(worker), entry.context);
        let fuel = &worker.strand().fuel;
        // SAFETY: the entry is ours, so its context is alive.
        let put_aside = fuel.replace(unsafe { Meter::of(entry.context) }.turn);
        let guard = AbortOnUnwind("a job's own frame");
        // SAFETY: not yet run.
        let named = TaskName::set(unsafe { Job::name(entry.job) });
        // SAFETY: taken out of a queue by us, so ours to run, once.
        unsafe { Job::execute(entry.job, worker) };
        drop(named);
        guard.disarm();
        fuel.set(put_aside);
        drop(installed);
        if is_task {
            stats.finished_tasks.add_release(1);
        }
    }
}

/// The name of the running task, for the report of a stack overflow, until this value is dropped.
pub(crate) struct TaskName {
    #[cfg(jobtree_stacks)]
    outer: Option<JobName>,
}

#[cfg(jobtree_stacks)]
impl TaskName {
    fn set(name: JobName) -> TaskName {
        let outer = crate::stack::overflow::set_task_name(Some(name));
        TaskName { outer }
    }

    /// No name while another fiber runs; the old one again when the value is dropped.
    #[inline(always)]
    pub(crate) fn put_aside() -> TaskName {
        let outer = crate::stack::overflow::set_task_name(None);
        TaskName { outer }
    }
}

#[cfg(jobtree_stacks)]
impl Drop for TaskName {
    #[inline(always)]
    fn drop(&mut self) {
        crate::stack::overflow::set_task_name(self.outer);
    }
}

#[cfg(not(jobtree_stacks))]
impl TaskName {
    fn set(_name: JobName) -> TaskName {
        TaskName {}
    }
}

/// See [`WorkerThread::attach`].
pub(crate) struct Attached {
    outer: (*const WorkerThread, *const Strand),
    adopted: *const (),
}

impl Drop for Attached {
    fn drop(&mut self) {
        adopted::take_up(self.adopted);
        THREAD.set(self.outer.0);
        CURRENT.set(self.outer.1);
    }
}

/// Sets the thread's current fiber; for the hub, between two fibers.
#[cfg(jobtree_stacks)]
pub(crate) fn no_strand_is_current() {
    CURRENT.set(std::ptr::null());
}
