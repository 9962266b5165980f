//! `join`: run two closures, possibly at the same time.
//!
//! # What a fork costs
//!
//! The second closure lies in a record in the frame of `join`. If enough forks are already private and
//! no thief requests work, there is no record at all: both closures are called one after the other. If
//! there is a record, pushing and popping it is plain memory access as long as it is private. Latch
//! and thief's name are written only when it is published, the result only when it was stolen.
//!
//! # Protocol
//!
//! A published record belongs to the thread that wins its deque index. If the owner wins it back, it calls the
//! closure itself. If a thief wins, it runs the closure, writes the result, sets the latch; after that
//! it does not touch the record. The owner does not leave the frame before the latch is set, on any
//! way out: a panic of the first closure is caught, the record settled, and the panic resumed.
//!
//! A fork that makes a record looks first whether its context was told to stop, and again when it has taken
//! its record back or has been waiting for it; then it unwinds (`stop.rs`). Before that it lets fibers of its worker run whose
//! wait is over, if it was interrupted for them (`woken.rs`).

use std::any::Any;
use std::cell::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;

use jobtree_base::user_code::{Place, discard_payload, drop_user};
use jobtree_base::user_owned::UserOwned;

use crate::context::{Context, Installed};
use crate::deque::Entry;
use crate::job::{Job, JobKind};
use crate::latch::Latch;
use crate::pool::Pool;
use crate::stack::StackClass;
use crate::stop::{self, Stopped};
use crate::sync::step::{Step, left_out};
use crate::sync::{AtomicU32, Ordering};
use crate::wait::WaitFor;
use crate::worker::Worker;

/// No thief has given its name yet.
const NOBODY: u32 = u32::MAX;

/// The message between a thief and the owner; written when a fork is published.
pub(crate) struct TheftNote {
    thief: AtomicU32,
    latch: Latch,
}

/// The beginning of every fork.
#[repr(C)]
pub(crate) struct ForkHeader {
    job: Job,
    note: UnsafeCell<MaybeUninit<TheftNote>>,
}

impl ForkHeader {
    /// Writes what a thief will need. Must come before publication.
    ///
    /// # Safety
    /// `job` is a live, private fork.
    pub(crate) unsafe fn prepare_for_theft(job: NonNull<Job>) {
        // SAFETY: forks begin with a `ForkHeader`; it is private, so no other thread looks at the note.
        unsafe {
            let header = job.cast::<ForkHeader>().as_ref();
            (*header.note.get()).write(TheftNote {
                thief: AtomicU32::new(NOBODY),
                latch: Latch::new(),
            });
        }
    }

    /// Leaves the thief's name, so that the owner can help it.
    ///
    /// # Safety
    /// The caller owns the fork and has not run it.
    pub(crate) unsafe fn note_thief(job: NonNull<Job>, thief: usize) {
        // SAFETY: published, so the note is written; the owner waits for us before it goes.
        let note = unsafe { (*job.cast::<ForkHeader>().as_ref().note.get()).assume_init_ref() };
        note.thief.store(thief as u32, Ordering::Relaxed);
    }

    /// # Safety
    /// The fork was published.
    unsafe fn note(&self) -> &TheftNote {
        // SAFETY: written by `prepare_for_theft` before publication.
        unsafe { (*self.note.get()).assume_init_ref() }
    }
}

impl TheftNote {
    /// Returns the worker that runs the fork, if it has left its number already.
    pub(crate) fn thief(&self) -> Option<usize> {
        let thief = self.thief.load(Ordering::Relaxed);
        (thief != NOBODY).then_some(thief as usize)
    }

    /// Set when the fork has run.
    pub(crate) fn latch(&self) -> &Latch {
        &self.latch
    }
}

/// A fork's second closure in the frame of its `join`.
#[repr(C)]
struct ForkRecord<B, R> {
    header: ForkHeader,
    body: UnsafeCell<ManuallyDrop<B>>,
    result: UnsafeCell<MaybeUninit<std::thread::Result<R>>>,
}

impl<B, R> ForkRecord<B, R>
where
    B: FnOnce(&Worker, bool) -> R + Send,
    R: Send,
{
    const KIND: JobKind = JobKind {
        execute: Self::execute_stolen,
        stack: StackClass::Default,
        name: std::any::type_name::<B>,
    };

    #[inline(always)]
    fn new(body: B) -> ForkRecord<B, R> {
        ForkRecord {
            header: ForkHeader {
                job: Job { kind: &Self::KIND },
                note: UnsafeCell::new(MaybeUninit::uninit()),
            },
            body: UnsafeCell::new(ManuallyDrop::new(body)),
            result: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// # Safety
    /// The caller owns the fork.
    #[inline(always)]
    unsafe fn take_body(&self) -> B {
        // SAFETY: owning the fork means that no other thread reads or takes the body.
        unsafe { ManuallyDrop::take(&mut *self.body.get()) }
    }

    unsafe fn execute_stolen(job: NonNull<Job>, worker: &Worker) {
        // SAFETY: the pointer was made from a record of this type, whose owner waits for its latch.
        let record = unsafe { job.cast::<ForkRecord<B, R>>().as_ref() };
        // SAFETY: we own the fork by having won its index.
        let body = unsafe { record.take_body() };
        let result = panic::catch_unwind(AssertUnwindSafe(|| body(worker, true)));
        // SAFETY: the owner reads the result only after the latch is set.
        unsafe { (*record.result.get()).write(result) };
        // SAFETY: the record lives until the latch is set, and the owner's pool is this worker's own.
        unsafe { Latch::set(record.header.note().latch()) };
    }
}

impl Worker {
    /// Runs `a` and `b`, possibly in parallel, and returns both results.
    ///
    /// The same as [`join`](crate::join()), without looking up the current worker. Each closure gets
    /// the worker it really runs on.
    ///
    /// ```
    /// fn fib(w: &jobtree_pool::Worker, n: u64) -> u64 {
    ///     if n < 2 {
    ///         return n;
    ///     }
    ///     let (a, b) = w.join(|w| fib(w, n - 1), |w| fib(w, n - 2));
    ///     a + b
    /// }
    /// assert_eq!(jobtree_pool::with_worker(|w| fib(w, 20)), 6765);
    /// ```
    ///
    /// # Panics
    /// If a closure panics, so does `join`, after both have ended. If both do, the panic of `a` wins. A panic in a destructor of
    /// what is dropped because of that is recorded and goes no further. In a context
    /// that was told to stop ([`with_user_context`](crate::with_user_context)) it may unwind with [`Stopped`].
    #[inline(always)]
    pub fn join<A, B, RA, RB>(&self, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&Worker) -> RA + Send,
        B: FnOnce(&Worker) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        self.join_context(
            #[inline(always)]
            |worker, _| a(worker),
            #[inline(always)]
            |worker, _| b(worker),
        )
    }

    /// [`Worker::join`] whose closures also learn whether they were taken by another worker.
    ///
    /// ```
    /// jobtree_pool::with_worker(|w| {
    ///     let (first_moved, _) = w.join_context(|_, moved| moved, |_, moved| moved);
    ///     assert!(!first_moved, "the first closure stays with its caller");
    /// });
    /// ```
    #[inline(always)]
    pub fn join_context<A, B, RA, RB>(&self, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&Worker, bool) -> RA + Send,
        B: FnOnce(&Worker, bool) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        // SAFETY: a `&Worker` is only to be had on the fiber's own stack.
        if unsafe { self.strand().forks.private_is_full() } {
            let b = UserOwned::captured(b);
            let a = UserOwned::value(a(self, false));
            let b = b.into_inner()(self, false);
            return (a.into_inner(), b);
        }
        self.fork(a, b)
    }

    /// The part of `join` that makes a record. A function of its own, so that the plain call above
    /// needs no more of the caller's frame and registers than a call does.
    #[cold]
    #[inline(never)]
    fn fork<A, B, RA, RB>(&self, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&Worker, bool) -> RA + Send,
        B: FnOnce(&Worker, bool) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        let strand = self.strand();
        // Before the look at the signal, which may be set meanwhile. It does not unwind.
        if strand.forks.is_asked() {
            self.give_way_if_woken();
        }
        // SAFETY: we are on the fiber's stack, so the owner.
        if let Some(context) = unsafe { strand.watched_context() } {
            if std::thread::panicking() {
                return self.fork_shielded(context, a, b);
            }
            // SAFETY: as above.
            if unsafe { strand.is_stopped() } {
                drop_user(Place::Captured, a);
                drop_user(Place::Captured, b);
                stop::unwind();
            }
        }
        let record = ForkRecord::<B, RB>::new(b);
        // SAFETY: we are on the fiber's stack, so the owner; the record stays in this frame until
        // it was popped below or its latch is set.
        unsafe {
            let share = strand.forks.is_asked() || strand.offers_too_little();
            strand.forks.push_private(Entry {
                job: NonNull::from(&record).cast(),
                context: strand.context().get(),
            });
            if share {
                strand.share_oldest();
            }
        }
        strand.sim_point();
        let a = match panic::catch_unwind(AssertUnwindSafe(|| a(self, false))) {
            Ok(a) => a,
            Err(payload) => self.settle_after_panic(&record, payload),
        };
        strand.sim_point();
        // SAFETY: owner; every fork made since has been settled, and so is this one's turn.
        if unsafe { strand.forks.pop_own() } {
            strand.stay_woken(Step::WokenTakenBackLook);
            // SAFETY: popped, so ours.
            let body = unsafe { record.take_body() };
            // SAFETY: owner.
            if !left_out(Step::InterruptTakenBackLook) && unsafe { strand.is_stopped() } {
                drop_user(Place::Value, a);
                drop_user(Place::Captured, body);
                stop::unwind();
            }
            let a = UserOwned::value(a);
            let b = body(self, false);
            (a.into_inner(), b)
        } else {
            self.wait_for_stolen(&record.header);
            // SAFETY: the latch is set, so the thief has written the result and is done with it.
            match unsafe { (*record.result.get()).assume_init_read() } {
                Ok(b) => {
                    // SAFETY: owner.
                    if unsafe { strand.is_stopped() } {
                        drop_user(Place::Value, a);
                        drop_user(Place::Value, b);
                        stop::unwind();
                    }
                    (a, b)
                }
                Err(payload) => {
                    drop_user(Place::Value, a);
                    panic::resume_unwind(payload)
                }
            }
        }
    }

    /// [`Worker::fork`] in a destructor that runs because of a panic: what runs elsewhere must neither be stopped nor
    /// be refused anything, since another panic here would end the process.
    #[cold]
    #[inline(never)]
    fn fork_shielded<A, B, RA, RB>(&self, context: &Context, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&Worker, bool) -> RA + Send,
        B: FnOnce(&Worker, bool) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        let shield = context.shielding();
        let outer = self.strand().context().get();
        let _installed = Installed::new(Some(self), outer.nesting(&shield));
        self.fork(a, b)
    }

    #[cold]
    #[inline(never)]
    fn wait_for_stolen(&self, header: &ForkHeader) {
        // SAFETY: only a published fork can have been stolen.
        let note = unsafe { header.note() };
        self.wait_until(note.latch(), WaitFor::Fork(note));
    }

    /// The first closure has panicked: ends the second one, then lets the panic go on.
    #[cold]
    #[inline(never)]
    fn settle_after_panic<B, R>(&self, record: &ForkRecord<B, R>, payload: Box<dyn Any + Send>) -> !
    where
        B: FnOnce(&Worker, bool) -> R + Send,
        R: Send,
    {
        // SAFETY: owner, and this fork's turn.
        if unsafe { self.strand().forks.pop_own() } {
            // SAFETY: owner.
            unsafe { self.strand().stay_interrupted(Step::InterruptTakenBackLook) };
            self.strand().stay_woken(Step::WokenTakenBackLook);
            // SAFETY: popped, so ours.
            drop_user(Place::Captured, unsafe { record.take_body() });
        } else {
            self.wait_for_stolen(&record.header);
            // SAFETY: the latch is set, so the thief has written the result and is done with it.
            match unsafe { (*record.result.get()).assume_init_read() } {
                // The first one was only stopped.
                Err(second) if is_worse(&*second, &*payload) => {
                    discard_payload(payload);
                    panic::resume_unwind(second)
                }
                // The first one wins.
                Err(second) => discard_payload(second),
                Ok(result) => drop_user(Place::Value, result),
            }
        }
        panic::resume_unwind(payload)
    }
}

/// Returns `true` if the second panic is to be passed on instead of the first.
fn is_worse(second: &(dyn Any + Send), first: &(dyn Any + Send)) -> bool {
    Stopped::is_payload(first) && !Stopped::is_payload(second)
}

/// Runs `a` and `b`, possibly in parallel, and returns both results.
///
/// On a worker of any pool, it forks there; elsewhere on the global pool. The first closure runs on
/// the calling worker; the second does too unless an idle worker takes it.
///
/// ```
/// fn sum(numbers: &[u64]) -> u64 {
///     if numbers.len() <= 1000 {
///         return numbers.iter().sum();
///     }
///     let (left, right) = numbers.split_at(numbers.len() / 2);
///     let (left, right) = jobtree_pool::join(|| sum(left), || sum(right));
///     left + right
/// }
/// let numbers: Vec<u64> = (0..10_000).collect();
/// assert_eq!(sum(&numbers), 49_995_000);
/// ```
///
/// # Panics
/// If a closure panics, so does `join`, after both have ended. If both do, the panic of `a` wins. A panic in a destructor of
/// what is dropped because of that (the result of the other closure, or that closure itself if it has not begun) is recorded
/// and goes no further. In a context that was told to stop ([`with_user_context`](crate::with_user_context)) it may unwind with
/// [`Stopped`]. Panics if the global pool is needed and cannot be made (see [`Pool::try_global`]).
#[inline]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    Worker::with_running(
        #[inline(always)]
        |worker| match worker {
            Some(worker) => worker.join_context(
                #[inline(always)]
                |_, _| a(),
                #[inline(always)]
                |_, _| b(),
            ),
            None => join_from_outside(a, b),
        },
    )
}

#[cold]
#[inline(never)]
fn join_from_outside<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    // There may be no global pool.
    let (a, b) = (UserOwned::captured(a), UserOwned::captured(b));
    let join = |worker: &Worker| worker.join(|_| a.into_inner()(), |_| b.into_inner()());
    Worker::with_current(|worker| match worker {
        Some(worker) => join(worker),
        None => Pool::global().install_on_worker(join),
    })
}
