//! Threads for work that blocks its thread: system calls, foreign code that waits. The workers must not do that, so it
//! runs here: on a bounded number of threads, which come when there is work and go when there has been none for a while.
//!
//! What runs is a queue first in, first out, without a bound. What it runs on are its *carriers*: threads of its own; or,
//! where there must be no other threads (a simulation), tasks of a pool, as many at once as there would be threads.
//!
//! # Protocol
//!
//! One lock guards the queue and two counts: `carriers`, those that were started and have not left, and `idle`, those of
//! them that sleep on the condition variable or have been woken and do not hold the lock yet. A carrier takes from the
//! queue until that is empty, then sleeps; it leaves when it has slept for `keep`, or at once if the queue is closed.
//! Sleeping, waking, taking and leaving are decided under the lock.
//!
//! * The thread that pushes looks, under the same hold of the lock, whether the queue is now longer than `idle`. If not, there is
//!   a sleeper for each entry, and one more is woken. If it is longer, every sleeper has been woken already, and a new
//!   carrier is started if the limit allows; else all carriers are busy, and each looks at the queue before it sleeps.
//! * No wake-up is lost to the idle timeout: a sleeper whose time is over takes the lock and looks at the queue before it
//!   leaves. If the push came first, it finds the entry, whether the wake-up was meant for it or not. If it
//!   left first, the push does not count it any more.
//! * A carrier that cannot be started is taken back out of the count. If it was the only one, no thread would ever look at
//!   the queue; then all of it goes back to the thread that has pushed, to be run elsewhere.
//!
//! So each entry is run once, or was withdrawn, or handed back. Entries are kept by number, so that withdrawing one costs
//! little however long the queue is.
//!
//! # Isolations
//!
//! An entry that was made inside `isolate` says so by itself (`isolation.rs`), and what it forks on the workers is inside, too:
//! the worker that waits there for the entry may run nothing else, and can be the pool's only worker. A carrier that is a task
//! of a pool starts inside the isolation of the entry that it was started for, for the same reason, and runs only entries that
//! were made inside. When it leaves, it starts another for what is left.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jobtree_base::user_code::{Place, call_user};

use crate::context::{ContextRef, Installed};
use crate::isolation::Isolation;
use crate::raw::task::RawContext;
use crate::raw::{PoolRef, start_service_thread};
use crate::worker::Worker;

/// A piece of work. A panic of it is recorded, and goes no further.
pub struct BlockingJob {
    code: Box<dyn FnOnce() + Send>,
    isolation: Isolation,
}

impl BlockingJob {
    /// A piece of work that belongs to the isolation of `context`, and to nothing else of it: the isolation must not end before
    /// the work has.
    pub fn inside(context: RawContext, code: Box<dyn FnOnce() + Send>) -> BlockingJob {
        BlockingJob {
            code,
            isolation: context.isolation(),
        }
    }

    /// A piece of work that code inside an isolation does not wait for.
    pub fn new(code: Box<dyn FnOnce() + Send>) -> BlockingJob {
        BlockingJob::inside(RawContext::outermost(), code)
    }

    /// Has a worker of `pool` run it some time.
    pub fn run_on(self, pool: &PoolRef) {
        pool.spawn_inside(self.isolation, self.code);
    }

    /// Runs it now, on the calling thread.
    fn run(self) {
        let BlockingJob { code, isolation } = self;
        Worker::with_current(|worker| {
            let _installed = Installed::new(worker, ContextRef::outermost_inside(isolation));
            // The next one is not to blame.
            call_user(Place::Callback, code);
        });
    }
}

/// The threads or workers that a queue runs on.
#[derive(Clone, Debug)]
pub enum Carriers {
    /// Threads of its own, which have this name with a number behind it.
    Threads(String),
    /// Tasks of a pool. They do not stay idle: a new one is made for new work.
    Workers(PoolRef),
}

/// An entry of a queue, for those who may want to take it back.
#[derive(Clone)]
pub struct Ticket {
    number: u64,
    shared: Arc<Shared>,
}

/// The entries of a queue that no thread can work on.
pub struct HandedBack {
    /// The entries, first come first.
    pub jobs: Vec<BlockingJob>,
    /// The reason why no thread could be started.
    pub error: io::Error,
}

/// See the module's head. Dropping it closes it.
pub struct BlockingThreads {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// There is something in the queue, or it was closed.
    work: Condvar,
    /// A carrier has left.
    left: Condvar,
    limit: usize,
    /// The time for which a carrier without work stays; `None` is for ever.
    keep: Option<Duration>,
    carriers: Carriers,
}

#[derive(Default)]
struct State {
    queue: BTreeMap<u64, BlockingJob>,
    next_ticket: u64,
    carriers: usize,
    idle: usize,
    started: usize,
    is_closed: bool,
}

thread_local! {
    /// The queue that this thread is a carrier of, or null. Never followed.
    static CARRIED: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

impl BlockingThreads {
    /// Returns `true` if the calling thread is one of its threads. A pool's task that is its carrier shares the thread with
    /// others, and does not count.
    pub fn carries_caller(&self) -> bool {
        CARRIED.get() == Arc::as_ptr(&self.shared)
    }

    /// A queue that runs up to `limit` entries at once. Its carriers stay for `keep` when there is nothing to do; for ever
    /// if that is `None`.
    ///
    /// # Panics
    /// If `limit` is 0.
    pub fn new(limit: usize, keep: Option<Duration>, carriers: Carriers) -> BlockingThreads {
        assert!(limit > 0, "a queue that nobody works on would never end");
        BlockingThreads {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                work: Condvar::new(),
                left: Condvar::new(),
                limit,
                keep,
                carriers,
            }),
        }
    }

    /// Starts all threads now, instead of when they are needed. Tasks of a pool are made when they are needed anyway.
    ///
    /// # Errors
    /// If the system does not have that many. Those that were started end with the queue.
    pub fn start_all(&self) -> io::Result<()> {
        if let Carriers::Workers(_) = self.shared.carriers {
            return Ok(());
        }
        loop {
            let mut state = self.shared.lock();
            if state.carriers == self.shared.limit {
                return Ok(());
            }
            let number = state.count_new_carrier();
            drop(state);
            if let Err(error) = Shared::start_carrier(&self.shared, number, Isolation::NONE) {
                self.shared.lock().carriers -= 1;
                return Err(error);
            }
        }
    }

    /// A place in the queue, for [`push`](BlockingThreads::push). Places come in the order of their making.
    pub fn ticket(&self) -> Ticket {
        let mut state = self.shared.lock();
        state.next_ticket += 1;
        Ticket {
            number: state.next_ticket,
            shared: Arc::clone(&self.shared),
        }
    }

    /// Puts `job` into the queue, with a ticket of this queue that was not used before. Also into one that is closed.
    /// Returns an error that does not matter to the job, if a further thread was wanted and could not be started: the job
    /// waits for one of those that are there.
    ///
    /// # Errors
    /// If there is no carrier and none can be started: with everything in the queue, which is the caller's to run.
    pub fn push(&self, ticket: &Ticket, job: BlockingJob) -> Result<Option<io::Error>, HandedBack> {
        let shared = &self.shared;
        debug_assert!(
            Arc::ptr_eq(shared, &ticket.shared),
            "a ticket of this queue"
        );
        let isolation = job.isolation;
        let mut state = shared.lock();
        let before = state.queue.insert(ticket.number, job);
        debug_assert!(before.is_none(), "a ticket is used once");
        if state.queue.len() <= state.idle {
            drop(state);
            shared.work.notify_one();
            return Ok(None);
        }
        if state.carriers == shared.limit {
            return Ok(None);
        }
        let number = state.count_new_carrier();
        drop(state);
        let Err(error) = Shared::start_carrier(shared, number, isolation) else {
            return Ok(None);
        };
        let mut state = shared.lock();
        state.carriers -= 1;
        if state.carriers > 0 {
            return Ok(Some(error));
        }
        let jobs = std::mem::take(&mut state.queue);
        Err(HandedBack {
            jobs: jobs.into_values().collect(),
            error,
        })
    }

    /// Carriers that have nothing to do leave from now on. What is in the queue is run.
    pub fn close(&self) {
        self.shared.lock().is_closed = true;
        self.shared.work.notify_all();
    }

    /// Waits until no carrier is left; `false` if `limit` was over first. Only a closed queue comes that far for sure.
    pub fn wait_until_gone(&self, limit: Duration) -> bool {
        let until = Instant::now().checked_add(limit);
        let mut state = self.shared.lock();
        while state.carriers > 0 {
            state = match until {
                None => {
                    let waited = self.shared.left.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    let waited = self.shared.left.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    /// Returns the pool whose tasks carry the entries; `None` if threads do.
    pub fn pool(&self) -> Option<&PoolRef> {
        match &self.shared.carriers {
            Carriers::Threads(_) => None,
            Carriers::Workers(pool) => Some(pool),
        }
    }

    /// Returns the number of carriers that were started and have not left.
    pub fn carriers(&self) -> usize {
        self.shared.lock().carriers
    }

    /// Returns the number of entries that can run at once.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }
}

impl Ticket {
    /// Takes the entry out of the queue, unless a carrier has taken it, or it is not there yet.
    pub fn withdraw(&self) -> Option<BlockingJob> {
        self.shared.lock().queue.remove(&self.number)
    }
}

impl Drop for BlockingThreads {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    /// One more, which is to be started without the lock; returns its number.
    fn count_new_carrier(&mut self) -> usize {
        self.carriers += 1;
        self.started += 1;
        self.started
    }

    /// Takes the oldest entry that was made inside `isolation`.
    fn take_inside(&mut self, isolation: Isolation) -> Option<BlockingJob> {
        if isolation.is_none() {
            return self.queue.pop_first().map(|(_, job)| job);
        }
        let is_inside = |job: &BlockingJob| job.isolation.is_within(isolation);
        let (number, _) = self.queue.iter().find(|(_, job)| is_inside(job))?;
        let number = *number;
        self.queue.remove(&number)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a carrier, which has been counted, for an entry that was made inside `isolation`.
    fn start_carrier(this: &Arc<Shared>, number: usize, isolation: Isolation) -> io::Result<()> {
        let shared = Arc::clone(this);
        match &this.carriers {
            Carriers::Threads(name) => {
                start_service_thread(format!("{name}-{number}"), move || {
                    shared.carry(shared.keep, Isolation::NONE);
                })
            }
            Carriers::Workers(pool) => {
                // A worker has other things to do than to be idle here.
                let carry = move || {
                    shared.carry(Some(Duration::ZERO), isolation);
                    Shared::replace_carrier(&shared);
                };
                pool.spawn_inside(isolation, carry);
                Ok(())
            }
        }
    }

    /// Starts a carrier for what is left in the queue, after one has left that could not run it.
    fn replace_carrier(this: &Arc<Shared>) {
        let mut state = this.lock();
        let Some(isolation) = state.queue.values().next().map(|job| job.isolation) else {
            return;
        };
        if state.carriers < this.limit {
            let number = state.count_new_carrier();
            drop(state);
            // Only a thread can fail to start, and threads leave nothing.
            let _ = Shared::start_carrier(this, number, isolation);
        }
    }

    /// The life of a carrier, which runs what was made inside `isolation`.
    fn carry(&self, keep: Option<Duration>, isolation: Isolation) {
        let is_thread = matches!(self.carriers, Carriers::Threads(_));
        if is_thread {
            CARRIED.set(self);
        }
        let mut state = self.lock();
        loop {
            while let Some(job) = state.take_inside(isolation) {
                drop(state);
                job.run();
                state = self.lock();
            }
            if state.is_closed || keep == Some(Duration::ZERO) {
                break;
            }
            state.idle += 1;
            let is_over;
            (state, is_over) = match keep {
                None => {
                    let waited = self.work.wait(state);
                    (waited.unwrap_or_else(PoisonError::into_inner), false)
                }
                Some(keep) => {
                    let waited = self.work.wait_timeout(state, keep);
                    let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    (state, timeout.timed_out())
                }
            };
            state.idle -= 1;
            if is_over && state.queue.is_empty() {
                break;
            }
        }
        state.carriers -= 1;
        drop(state);
        self.left.notify_all();
    }
}

impl fmt::Debug for BlockingThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("BlockingThreads")
            .field("limit", &self.shared.limit)
            .field("carriers", &state.carriers)
            .field("idle", &state.idle)
            .field("queued", &state.queue.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.number).finish()
    }
}

impl fmt::Debug for BlockingJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingJob")
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for HandedBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandedBack")
            .field("jobs", &self.jobs.len())
            .field("error", &self.error)
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    const FAR: Duration = Duration::from_secs(3600);

    fn threads(limit: usize, keep: Option<Duration>) -> BlockingThreads {
        BlockingThreads::new(limit, keep, Carriers::Threads("test".to_owned()))
    }

    fn push(threads: &BlockingThreads, job: impl FnOnce() + Send + 'static) -> Ticket {
        let ticket = threads.ticket();
        let job = BlockingJob::new(Box::new(job));
        threads.push(&ticket, job).unwrap();
        ticket
    }

    /// Returns a body that says that it runs, and the sender on whose drop it ends.
    fn gate(began: &Sender<usize>, number: usize) -> (Sender<()>, impl FnOnce() + Send + 'static) {
        let (open, opened) = channel::<()>();
        let began = began.clone();
        (open, move || {
            began.send(number).unwrap();
            let _ = opened.recv();
        })
    }

    #[test]
    fn threads_come_with_the_work_up_to_the_limit_and_the_rest_waits_in_order() {
        let threads = threads(2, None);
        assert_eq!(threads.carriers(), 0);
        let (began, begun) = channel();
        let mut gates = Vec::new();
        for number in 0..4 {
            let (open, job) = gate(&began, number);
            push(&threads, job);
            gates.push(open);
        }
        let mut first = [begun.recv().unwrap(), begun.recv().unwrap()];
        first.sort_unstable();
        assert_eq!((first, threads.carriers()), ([0, 1], 2));
        assert!(begun.try_recv().is_err());
        drop(gates.remove(1));
        assert_eq!(begun.recv().unwrap(), 2);
        drop(gates.remove(0));
        assert_eq!(begun.recv().unwrap(), 3);
    }

    #[test]
    fn idle_threads_are_used_again_and_leave_when_their_time_is_over() {
        let threads = threads(8, Some(Duration::from_millis(1)));
        let rounds = if cfg!(miri) { 20 } else { 200 };
        for _ in 0..rounds {
            let (done, finished) = channel();
            push(&threads, move || done.send(()).unwrap());
            finished.recv().unwrap();
        }
        assert!(threads.wait_until_gone(FAR));
        // A job that comes at the moment of leaving is run, too.
        for round in 0..rounds {
            let (done, finished) = channel();
            std::thread::sleep(Duration::from_micros(900 + round));
            push(&threads, move || done.send(()).unwrap());
            finished.recv().unwrap();
        }
    }

    #[test]
    fn what_is_withdrawn_never_runs() {
        let threads = threads(1, None);
        let (began, begun) = channel();
        let (open, job) = gate(&began, 0);
        let running = push(&threads, job);
        assert_eq!(begun.recv().unwrap(), 0);
        let queued = push(&threads, || panic!("withdrawn"));
        assert!(queued.withdraw().is_some());
        assert!(queued.withdraw().is_none() && running.withdraw().is_none());
        drop(open);
        threads.close();
        assert!(threads.wait_until_gone(FAR));
    }

    #[test]
    fn a_closed_queue_runs_what_is_in_it_and_what_still_comes() {
        let threads = threads(1, None);
        let (began, begun) = channel();
        let (open, job) = gate(&began, 0);
        push(&threads, job);
        for number in 1..3 {
            let began = began.clone();
            push(&threads, move || began.send(number).unwrap());
        }
        threads.close();
        drop(open);
        assert!(threads.wait_until_gone(FAR));
        push(&threads, move || began.send(3).unwrap());
        drop(threads);
        assert_eq!(begun.iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_panic_ends_neither_the_thread_nor_the_queue() {
        let threads = threads(1, None);
        let (done, finished) = channel();
        push(&threads, || std::panic::resume_unwind(Box::new("expected")));
        push(&threads, move || done.send(()).unwrap());
        finished.recv().unwrap();
        assert_eq!(threads.carriers(), 1);
    }

    #[test]
    fn all_threads_can_be_started_at_once() {
        let threads = threads(3, None);
        threads.start_all().unwrap();
        assert_eq!(threads.carriers(), 3);
        threads.close();
        assert!(threads.wait_until_gone(FAR));
    }

    #[test]
    fn on_a_pool_as_many_run_at_once_as_there_would_be_threads() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let pool = crate::Pool::builder().workers(4).build().unwrap();
        let threads = BlockingThreads::new(2, None, Carriers::Workers(PoolRef::of(&pool)));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let done = Arc::new(crate::CountLatch::new(100));
        for _ in 0..100 {
            let (running, most, done) = (running.clone(), most.clone(), done.clone());
            push(&threads, move || {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                crate::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                done.count_down();
            });
        }
        done.wait();
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
        pool.shutdown(FAR).unwrap();
        assert_eq!(threads.carriers(), 0);
    }
}
