//! Scopes: tasks that may borrow, because the scope does not end before they have.

use std::any::Any;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use jobtree_base::user_code::{Place, discard_payload, drop_user};
use jobtree_base::user_owned::UserOwned;

use crate::broadcast::BroadcastContext;
use crate::context::{self, ContextRef, shielded_if_panicking};
use crate::deque::Entry;
use crate::job::{Job, boxed_task};
use crate::latch::{Latch, ThreadLatch};
use crate::pool::Pool;
use crate::pool::shared::Shared;
use crate::raw::gate::{self, TaskPermit};
use crate::sim;
use crate::stop::{self, Stopped, must_unwind, unwind_if_stopped};
use crate::sync::{AtomicUsize, Ordering};
use crate::wait::WaitFor;
use crate::worker::Worker;

/// Spawns tasks that may borrow from outside the scope; see [`scope`].
pub struct Scope<'scope> {
    base: ScopeBase<'scope>,
}

/// A [`Scope`] whose tasks start in the order in which one worker spawned them; see [`scope_fifo`].
pub struct ScopeFifo<'scope> {
    base: ScopeBase<'scope>,
    /// By worker; tickets for these tasks are in the workers' deques.
    lanes: Box<[FifoLane]>,
}

type FifoLane = Mutex<VecDeque<Entry>>;

/// The part that both kinds have in common. Lives in the frame that waits for the scope.
struct ScopeBase<'scope> {
    /// Runs the tasks.
    pool: Arc<Shared>,
    /// The body, and each task that has not ended.
    pending: AtomicUsize,
    waiter: Waiter,
    /// The first panic; if some task was stopped, the first other one.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Tasks run in the context of the scope, which outlives them; not in that of the code that spawns.
    context: ContextRef,
    // Invariant in 'scope: a task may neither lengthen nor shorten what others may borrow.
    scope: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

// SAFETY: everything inside synchronises itself; the context is read-only and outlives the scope.
unsafe impl Sync for ScopeBase<'_> {}

/// The waiter of a scope.
enum Waiter {
    Worker(Latch, Arc<Shared>),
    Thread(ThreadLatch),
}

impl<'scope> ScopeBase<'scope> {
    fn new(pool: &Arc<Shared>, worker: Option<&Worker>) -> ScopeBase<'scope> {
        ScopeBase {
            pool: pool.clone(),
            pending: AtomicUsize::new(1),
            waiter: match worker {
                Some(worker) => Waiter::Worker(Latch::new(), worker.thread().pool.clone()),
                None => {
                    // Before tasks know the scope, which the caller's frame has to wait for.
                    sim::refuse_to_sleep();
                    Waiter::Thread(ThreadLatch::new())
                }
            },
            panic: Mutex::new(None),
            context: context::of(worker),
            scope: PhantomData,
        }
    }

    fn name(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Runs the scope's body and waits for its tasks.
    fn run<R>(&self, worker: Option<&Worker>, body: impl FnOnce() -> R) -> R {
        let result = match panic::catch_unwind(AssertUnwindSafe(body)) {
            Ok(result) => Some(result),
            Err(payload) => {
                self.keep_panic(payload);
                None
            }
        };
        // SAFETY: our own frame is alive; this ends the body's part.
        unsafe { ScopeBase::one_ended(self) };
        match (&self.waiter, worker) {
            (Waiter::Worker(latch, _), Some(worker)) => {
                worker.wait_until(latch, WaitFor::Scope(self.name()));
            }
            (Waiter::Thread(latch), _) => latch.wait(),
            (Waiter::Worker(..), None) => unreachable!("a worker made this scope"),
        }
        let panic = self
            .panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match (panic, result) {
            (None, Some(result)) => result,
            (Some(payload), result) => {
                drop_user(Place::Value, result);
                panic::resume_unwind(payload)
            }
            (None, None) => unreachable!("a body without a result has left a panic"),
        }
    }

    fn keep_panic(&self, payload: Box<dyn Any + Send>) {
        let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
        let unwanted = match &*first {
            // Being stopped is no failure, so a failure counts for more.
            Some(kept) if !Stopped::is_payload(&**kept) => Some(payload),
            _ => first.replace(payload),
        };
        drop(first);
        // Without the lock: it runs code of the program's.
        if let Some(unwanted) = unwanted {
            discard_payload(unwanted);
        }
    }

    /// Counts one task or the body as ended, and tells the waiter if it was the last.
    ///
    /// # Safety
    /// `this` is alive; after the call it may not be.
    unsafe fn one_ended(this: *const Self) {
        // SAFETY: alive while the count, which includes us, is above zero.
        if unsafe { (*this).pending.fetch_sub(1, Ordering::AcqRel) } != 1 {
            return;
        }
        // SAFETY: the waiter does not leave before it is told, which only we, the last, do.
        match unsafe { &(*this).waiter } {
            Waiter::Worker(latch, pool) => {
                let latch: *const Latch = latch;
                let keep_waiters_pool = pool.clone();
                // SAFETY: alive until set, and its pool is kept.
                unsafe { Latch::set(latch) };
                drop(keep_waiters_pool);
            }
            Waiter::Thread(latch) => {
                let latch: *const ThreadLatch = latch;
                // SAFETY: alive until set.
                unsafe { ThreadLatch::set(latch) };
            }
        }
    }

    /// Boxes `body` as a task of this scope, called after the type `Named`; it must then be queued.
    ///
    /// # Panics
    /// Unwinds instead if the caller's context was told to stop.
    fn task<Named>(&self, body: impl FnOnce(&Worker) + Send + 'scope) -> Entry {
        if must_unwind() {
            drop_user(Place::Captured, body);
            stop::unwind();
        }
        // SAFETY: the scope's context outlives it.
        if unsafe { gate::is_open_in(self.context) } {
            return self.entry::<Named>(body);
        }
        let body = UserOwned::captured(body);
        let permit = self.ask_for(1);
        self.entry_within::<Named>(permit, body.into_inner())
    }

    /// Asks for leave to start tasks in the scope.
    ///
    /// # Panics
    /// If the limits of the calling code, or of the scope, do not allow it.
    #[cold]
    fn ask_for(&self, tasks: usize) -> Arc<dyn TaskPermit> {
        // SAFETY: the scope's context outlives it.
        unsafe { gate::admit_in_scope(self.context, tasks) }
    }

    /// A task that keeps to the limits of `permit`.
    #[cold]
    #[inline(never)]
    fn entry_within<Named>(
        &self,
        permit: Arc<dyn TaskPermit>,
        body: impl FnOnce(&Worker) + Send + 'scope,
    ) -> Entry {
        self.entry::<Named>(move |worker| gate::run_within(&*permit, || body(worker)))
    }

    /// [`task`](ScopeBase::task), without any question.
    fn entry<Named>(&self, body: impl FnOnce(&Worker) + Send + 'scope) -> Entry {
        self.pending.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the scope ends, and with it 'scope may, only after the task has run.
        let job: NonNull<Job> =
            unsafe { boxed_task::<Named, _>(self.name(), ScopeBase::after_task, body) };
        Entry {
            job,
            context: self.context,
        }
    }

    /// # Safety
    /// `this` is the name of the scope of a task that has just run.
    unsafe fn after_task(this: *const (), _: &Worker, result: std::thread::Result<()>) {
        let this = this.cast::<ScopeBase<'_>>();
        if let Err(payload) = result {
            // SAFETY: the scope waits for this task.
            unsafe { (*this).keep_panic(payload) };
        }
        // SAFETY: alive until now.
        unsafe { ScopeBase::one_ended(this) };
    }
}

/// A pointer to something that outlives the task that carries it.
struct Alive<T>(*const T);

impl<T> Clone for Alive<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Alive<T> {}

// SAFETY: only made of scopes and their parts, which are `Sync` and wait for the task.
unsafe impl<T> Send for Alive<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Alive<T> {}

impl<T> Alive<T> {
    /// # Safety
    /// What it points to must be alive for `'a`.
    unsafe fn get<'a>(self) -> &'a T {
        // SAFETY: by contract.
        unsafe { &*self.0 }
    }
}

impl<'scope> Scope<'scope> {
    /// Spawns a task that the scope waits for. It may spawn further ones.
    ///
    /// # Panics
    /// Not here: a panic of `body` is passed on by the scope after all tasks have ended. But in a context that was
    /// told to stop ([`with_user_context`](crate::with_user_context)) it unwinds with [`Stopped`]. And if the calling
    /// code has limits that do not allow it, as in [`spawn`](crate::spawn()).
    pub fn spawn<F>(&self, body: F)
    where
        F: FnOnce(&Scope<'scope>) + Send + 'scope,
    {
        let this = Alive(self);
        // SAFETY: the scope waits for the task.
        let entry = self.base.task::<F>(move |_| body(unsafe { this.get() }));
        self.base.pool.submit(entry);
        sim::point();
    }

    /// [`spawn`](Scope::spawn) of a part of a computation, which is no more than a fork: limits are not asked.
    #[doc(hidden)]
    pub fn spawn_part<F>(&self, body: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        let body = UserOwned::captured(body);
        unwind_if_stopped();
        let body = body.into_inner();
        let entry = self.base.entry::<F>(move |_| body());
        self.base.pool.submit(entry);
        sim::point();
    }

    /// Spawns a task on every worker, which the scope waits for.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let pool = jobtree_pool::Pool::builder().workers(2).build()?;
    /// let ran = AtomicUsize::new(0);
    /// pool.scope(|s| s.spawn_broadcast(|_, _| { ran.fetch_add(1, Ordering::Relaxed); }));
    /// assert_eq!(ran.into_inner(), 2);
    /// # Ok::<(), jobtree_pool::BuildError>(())
    /// ```
    pub fn spawn_broadcast<F>(&self, body: F)
    where
        F: Fn(&Scope<'scope>, BroadcastContext<'_>) + Send + Sync + 'scope,
    {
        let this = Alive(self);
        broadcast_in::<F>(&self.base, move |context| {
            // SAFETY: the scope waits for the task.
            body(unsafe { this.get() }, context);
        });
    }
}

impl<'scope> ScopeFifo<'scope> {
    fn new(base: ScopeBase<'scope>) -> ScopeFifo<'scope> {
        let lanes = (0..base.pool.workers.len()).map(|_| FifoLane::default());
        ScopeFifo {
            lanes: lanes.collect(),
            base,
        }
    }

    /// Spawns a task that the scope waits for, behind those that this worker has spawned in it.
    pub fn spawn_fifo<F>(&self, body: F)
    where
        F: FnOnce(&ScopeFifo<'scope>) + Send + 'scope,
    {
        let this = Alive(self);
        // SAFETY: the scope waits for the task.
        let entry = self.base.task::<F>(move |_| body(unsafe { this.get() }));
        let name = self.base.name();
        let pool = &*self.base.pool;
        Worker::with_current(|worker| match worker {
            Some(worker) if std::ptr::eq(worker.pool(), pool) => {
                let lane = &self.lanes[worker.index()];
                // SAFETY: the lane lies in the scope, which waits for the task behind the ticket.
                unsafe { submit_through_lane(pool, worker, lane, entry, name) };
            }
            // The injector is first in, first out by itself.
            _ => pool.inject(entry),
        });
        sim::point();
    }

    /// Spawns a task on every worker, which the scope waits for.
    pub fn spawn_broadcast<F>(&self, body: F)
    where
        F: Fn(&ScopeFifo<'scope>, BroadcastContext<'_>) + Send + Sync + 'scope,
    {
        let this = Alive(self);
        broadcast_in::<F>(&self.base, move |context| {
            // SAFETY: the scope waits for the task.
            body(unsafe { this.get() }, context);
        });
    }
}

/// Queues `entry` in `lane` and a ticket for the lane's oldest entry on `worker`.
///
/// # Safety
/// `lane` outlives all tickets for it: its tasks are waited for.
pub(crate) unsafe fn submit_through_lane(
    pool: &Shared,
    worker: &Worker,
    lane: &FifoLane,
    entry: Entry,
    owner: *const (),
) {
    lane.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push_back(entry);
    /// The task behind the ticket has told its owner itself, and does not unwind.
    unsafe fn after_ticket(_: *const (), _: &Worker, _: std::thread::Result<()>) {}
    let lane = Alive(lane);
    let ticket = move |worker: &Worker| {
        // SAFETY: by contract; one entry a ticket, so there is one.
        let lane = unsafe { lane.get() };
        let oldest = lane
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        if let Some(entry) = oldest {
            // SAFETY: taken out of its queue, so ours to run; tasks do not unwind.
            unsafe { Job::execute(entry.job, worker) };
        }
    };
    // SAFETY: run once, by the thread that takes it, before the lane ends.
    let job = unsafe { boxed_task::<FifoLane, _>(owner, after_ticket, ticket) };
    let context = entry.context;
    pool.submit_from(worker, Entry { job, context });
}

fn broadcast_in<'scope, Named>(
    base: &ScopeBase<'scope>,
    body: impl Fn(BroadcastContext<'_>) + Send + Sync + 'scope,
) {
    let body = UserOwned::captured(body);
    unwind_if_stopped();
    let workers = base.pool.workers.len();
    let shared = Arc::new((body, base.ask_for(workers)));
    for index in 0..workers {
        let shared = shared.clone();
        let entry = base.entry::<Named>(move |worker| {
            let (body, permit) = &*shared;
            gate::run_within(&**permit, || body(BroadcastContext::new(worker, index)));
        });
        base.pool.send(index, entry);
    }
}

/// Runs `body`, which may spawn tasks that borrow from outside, and returns when all of them have
/// ended. The newest task of a worker starts first.
///
/// ```
/// let mut left = vec![1, 2, 3];
/// let mut right = vec![4, 5, 6];
/// jobtree_pool::scope(|s| {
///     s.spawn(|_| left.reverse());
///     s.spawn(|_| right.reverse());
/// });
/// assert_eq!((left, right), (vec![3, 2, 1], vec![6, 5, 4]));
/// ```
///
/// What a task borrows must live longer than the scope:
///
/// ```compile_fail
/// jobtree_pool::scope(|s| {
///     let inside = String::from("gone when the body returns");
///     s.spawn(|_| println!("{inside}"));
/// });
/// ```
///
/// # Panics
/// If the body or a task panics, with the first such panic, after all tasks have ended.
pub fn scope<'scope, F, R>(body: F) -> R
where
    F: FnOnce(&Scope<'scope>) -> R + Send,
    R: Send,
{
    crate::worker::with_worker(|worker| {
        let pool = worker.thread().pool.clone();
        shielded_if_panicking(|| {
            let scope = Scope {
                base: ScopeBase::new(&pool, Some(worker)),
            };
            scope.base.run(Some(worker), || body(&scope))
        })
    })
}

/// [`scope`] whose tasks start first in, first out, as far as one worker spawned them.
///
/// ```
/// let pool = jobtree_pool::Pool::builder().workers(1).build()?;
/// let order = std::sync::Mutex::new(Vec::new());
/// pool.scope_fifo(|s| {
///     for n in 0..3 {
///         let order = &order;
///         s.spawn_fifo(move |_| order.lock().unwrap().push(n));
///     }
/// });
/// assert_eq!(order.into_inner().unwrap(), [0, 1, 2]);
/// # Ok::<(), jobtree_pool::BuildError>(())
/// ```
pub fn scope_fifo<'scope, F, R>(body: F) -> R
where
    F: FnOnce(&ScopeFifo<'scope>) -> R + Send,
    R: Send,
{
    crate::worker::with_worker(|worker| {
        let pool = worker.thread().pool.clone();
        shielded_if_panicking(|| {
            let scope = ScopeFifo::new(ScopeBase::new(&pool, Some(worker)));
            scope.base.run(Some(worker), || body(&scope))
        })
    })
}

/// [`scope`] whose body runs on the calling thread, so that it need not be `Send`; its tasks run on
/// the current pool, or the global one.
///
/// ```
/// let not_send = std::rc::Rc::new(1);
/// let mut doubled = 0;
/// let result = &mut doubled;
/// jobtree_pool::in_place_scope(|s| {
///     let value = *not_send;
///     s.spawn(move |_| *result = 2 * value);
/// });
/// assert_eq!(doubled, 2);
/// ```
pub fn in_place_scope<'scope, F, R>(body: F) -> R
where
    F: FnOnce(&Scope<'scope>) -> R,
{
    let body = UserOwned::captured(body);
    let pool = current_pool();
    in_place_scope_of(&pool, body.into_inner())
}

/// [`in_place_scope`] whose tasks start first in, first out, as far as one worker spawned them.
pub fn in_place_scope_fifo<'scope, F, R>(body: F) -> R
where
    F: FnOnce(&ScopeFifo<'scope>) -> R,
{
    let body = UserOwned::captured(body);
    let pool = current_pool();
    in_place_scope_fifo_of(&pool, body.into_inner())
}

pub(crate) fn in_place_scope_of<'scope, R>(
    pool: &Arc<Shared>,
    body: impl FnOnce(&Scope<'scope>) -> R,
) -> R {
    let body = UserOwned::captured(body);
    sim::refuse_outside_work(pool);
    pool.refuse_without_workers();
    shielded_if_panicking(|| {
        Worker::with_current(|worker| {
            let scope = Scope {
                base: ScopeBase::new(pool, worker),
            };
            scope.base.run(worker, || body.into_inner()(&scope))
        })
    })
}

pub(crate) fn in_place_scope_fifo_of<'scope, R>(
    pool: &Arc<Shared>,
    body: impl FnOnce(&ScopeFifo<'scope>) -> R,
) -> R {
    let body = UserOwned::captured(body);
    sim::refuse_outside_work(pool);
    pool.refuse_without_workers();
    shielded_if_panicking(|| {
        Worker::with_current(|worker| {
            let scope = ScopeFifo::new(ScopeBase::new(pool, worker));
            scope.base.run(worker, || body.into_inner()(&scope))
        })
    })
}

/// The calling worker's pool, or the global one.
pub(crate) fn current_pool() -> Arc<Shared> {
    Worker::with_current(|worker| match worker {
        Some(worker) => worker.thread().pool.clone(),
        None => Pool::global().shared().clone(),
    })
}

impl std::fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.base.debug("Scope", f)
    }
}

impl std::fmt::Debug for ScopeFifo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.base.debug("ScopeFifo", f)
    }
}

impl ScopeBase<'_> {
    fn debug(&self, name: &str, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(name)
            .field("pending", &self.pending.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
