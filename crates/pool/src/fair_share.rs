//! Fair shares: which jobs get a worker in turn with all others, and which only get what the others leave.
//!
//! Jobs in a profile with budgets have a [`Share`] each, found through the meter of their context. A worker measures the
//! *bursts* of these jobs: the time from getting the thread to giving it up, and the operations burnt in it. Each burst is
//! one of three kinds:
//!
//! | burst | condition | the job's allowance |
//! | --- | --- | --- |
//! | excessive | a quarter of the operations of a time slice, or more | less the time of the burst |
//! | empty | fewer than [`FEW_OPS`] operations, and shorter than [`SHORT`] | less the time of the burst and a [`DISPATCH`] |
//! | useful | between these | more by as much, once for each [`FEW_OPS`] operations, at most four times |
//!
//! The allowance also grows with time, by one part in [`REFILL`]. A job whose allowance is used up is *over its share*: as
//! soon as it gives way, it waits with the preempted fibers (`preempted.rs`), as if what it owes, and [`ADVANCE`], had been one time
//! slice; then it owes nothing. The preempted together get one part in [`REFILL`] of a worker that others want, and all of a
//! worker that no other work wants. So a job is slowed down only if it takes more than that part of the time in bursts
//! that are excessive or empty. Modest jobs never notice. A slice that is used up is paid for in the same way, at once.
//!
//! Empty bursts count because a worker that switches between two fibers without work does nothing else: a job that
//! yields or passes values to itself in a loop would otherwise take as many bursts as its neighbours have. What a child
//! does usefully also counts for its parent, which may do nothing but spawn children and wait for them.
//!
//! Time without operations proves nothing: the code may be useful and not instrumented, or the operating system may
//! have had the processor. Such bursts are neither charged nor credited; so are long ones with few operations.
//!
//! # Families
//!
//! A job that spawns many jobs must not get many shares. Shares form the tree that the accounts form. All jobs below a job
//! have an allowance in common, too; when they have used it up, the allowance of each grows only by its equal part. So a
//! family gets no more than a single job, and a modest job keeps what it needs, whatever its siblings do.
//!
//! Among the preempted, each share remembers when it was last served, itself or any share below it. Of two preempted fibers, the one comes
//! first whose family, the branch below the closest common ancestor, has been served longer ago ([`Share::precedes`]).
//!
//! # Sharing
//!
//! A share is read and written by all workers, without a lock. Updates may get lost; then a burst was not charged or not
//! credited, which the next ones make up for. Nothing else depends on the numbers.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::raw::fuel::Meter;
use crate::raw::ticks;
use crate::strand::Strand;
use crate::worker::WorkerThread;

/// About a microsecond, in [`ticks`].
const MICROSECOND: u64 = 3_000;

/// A burst with fewer operations is empty, if it is also [`SHORT`].
const FEW_OPS: u32 = 64;

/// A burst that takes longer is not empty.
const SHORT: u64 = 5 * MICROSECOND;

/// The cost of a dispatch to the others besides the time that is measured, in ticks: finding the work, switching to it and back,
/// and the shorter ways that a worker with several things to do cannot take. Measured; unoptimized code is ten times slower.
const DISPATCH: i64 = if cfg!(debug_assertions) {
    18_000
} else {
    1_800
};

/// A job may spend one part in so many of the time in bursts that are excessive or empty.
const REFILL: u64 = 20;

/// The factor by which the others have the worker for longer than the preempted fibers of jobs with a share.
pub(crate) const OTHERS: u64 = REFILL - 1;

/// The advance that a job gets when it pays its debt, so that it does not have to wait after each burst again.
const ADVANCE: i64 = 20 * MICROSECOND as i64;

/// The same factor as [`OTHERS`], of jobs without a share: nothing limits them, so no job is protected from them.
pub(crate) const OTHERS_IF_UNLIMITED: u64 = 2;

/// The most a job can save up.
const MOST_ALLOWANCE: i64 = 50 * MICROSECOND as i64;

/// The most a job can owe: it is back in turn after [`REFILL`] times as much.
const LEAST_ALLOWANCE: i64 = -5_000 * MICROSECOND as i64;

/// An amount of time that may be spent, and grows by one part in [`REFILL`] of the time that passes, up to a limit.
#[derive(Debug)]
struct Allowance {
    /// The amount in ticks. Negative: used up.
    ticks: AtomicI64,
    /// The time of the last update.
    updated: AtomicU64,
}

impl Allowance {
    fn new(ticks: i64) -> Allowance {
        Allowance {
            ticks: AtomicI64::new(ticks),
            updated: AtomicU64::new(0),
        }
    }

    /// Returns the amount that is left at `now`, if it has been growing by the part of one in `divisor` that is its own.
    fn at(&self, now: u64, divisor: u64) -> i64 {
        let passed = now.saturating_sub(self.updated.load(Ordering::Relaxed));
        let refill = i64::try_from(passed / REFILL / divisor).unwrap_or(i64::MAX);
        let left = self.ticks.load(Ordering::Relaxed);
        left.saturating_add(refill).min(MOST_ALLOWANCE)
    }

    fn add(&self, more: i64, now: u64, divisor: u64) {
        let left = self.at(now, divisor).saturating_add(more);
        let left = left.clamp(LEAST_ALLOWANCE, MOST_ALLOWANCE);
        self.ticks.store(left, Ordering::Relaxed);
        self.updated.fetch_max(now, Ordering::Relaxed);
    }
}

/// The share of one job, as a node of the tree of accounts.
#[derive(Debug)]
pub struct Share {
    parent: Option<Arc<Share>>,
    depth: u32,
    children: AtomicU64,
    /// The amount that the job may spend.
    own: Allowance,
    /// The amount that all jobs below it may spend together.
    below: Allowance,
    /// The time at which a preempted fiber of the job, or of one below, last had a worker.
    served: AtomicU64,
    /// The number of fibers of the job that are preempted now.
    preempted: AtomicU32,
    /// `true` if the job has given way before, of its own accord or not.
    gave_way: AtomicBool,
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(parent) = &self.parent {
            parent.children.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The time from getting the thread to giving it up.
#[derive(Clone, Copy, Debug)]
struct Burst {
    ticks: u64,
    ops: u32,
    /// The operations of a whole time slice.
    slice_ops: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BurstKind {
    Excessive,
    Empty,
    Useful,
    Unknown,
}

impl Burst {
    fn kind(&self) -> BurstKind {
        if self.ops >= self.slice_ops.div_ceil(4) {
            BurstKind::Excessive
        } else if self.ops >= FEW_OPS {
            BurstKind::Useful
        } else if self.ticks < SHORT {
            BurstKind::Empty
        } else {
            BurstKind::Unknown
        }
    }
}

impl Share {
    /// The share of a job whose account came out of no other.
    pub fn outermost() -> Arc<Share> {
        Arc::new(Share {
            parent: None,
            depth: 0,
            children: AtomicU64::new(0),
            own: Allowance::new(MOST_ALLOWANCE),
            below: Allowance::new(MOST_ALLOWANCE),
            served: AtomicU64::new(0),
            preempted: AtomicU32::new(0),
            gave_way: AtomicBool::new(false),
        })
    }

    /// The share of a job whose account came out of that of `parent`. It owes what its parent owes, or a job could get rid of
    /// its debts by spawning.
    pub fn child_of(parent: &Arc<Share>) -> Arc<Share> {
        parent.children.fetch_add(1, Ordering::Relaxed);
        Arc::new(Share {
            depth: parent.depth + 1,
            children: AtomicU64::new(0),
            own: Allowance {
                ticks: AtomicI64::new(parent.own.ticks.load(Ordering::Relaxed)),
                updated: AtomicU64::new(parent.own.updated.load(Ordering::Relaxed)),
            },
            below: Allowance::new(MOST_ALLOWANCE),
            served: AtomicU64::new(parent.served.load(Ordering::Relaxed)),
            preempted: AtomicU32::new(0),
            gave_way: AtomicBool::new(false),
            parent: Some(Arc::clone(parent)),
        })
    }

    fn ancestors(&self) -> impl Iterator<Item = &Share> {
        std::iter::successors(self.parent.as_deref(), |share| share.parent.as_deref())
    }

    /// Into how many parts the growth of an allowance is divided: where the jobs below an ancestor together have used up
    /// theirs, each has its equal part.
    fn divisor(&self, now: u64) -> u64 {
        let over = self
            .ancestors()
            .filter(|ancestor| ancestor.below.at(now, 1) < 0);
        over.fold(1, |divisor, ancestor| {
            let children = ancestor.children.load(Ordering::Relaxed).max(1);
            divisor.saturating_mul(children)
        })
    }

    /// Returns `true` if the job has used up its allowance.
    fn is_over(&self, now: u64) -> bool {
        self.own.at(now, 1) < 0 || self.own.at(now, self.divisor(now)) < 0
    }

    /// Charges or credits a burst that ended at `now`.
    fn count(&self, burst: &Burst, now: u64) {
        self.gave_way.store(true, Ordering::Relaxed);
        let time = i64::try_from(burst.ticks).unwrap_or(i64::MAX);
        let charge = match burst.kind() {
            BurstKind::Excessive => time,
            BurstKind::Empty => time.saturating_add(DISPATCH),
            BurstKind::Useful => {
                let times = i64::from((burst.ops / FEW_OPS).min(4));
                let credit = time.saturating_add(DISPATCH).saturating_mul(times);
                self.own.add(credit, now, self.divisor(now));
                if let Some(parent) = &self.parent {
                    parent.own.add(credit, now, parent.divisor(now));
                }
                return;
            }
            BurstKind::Unknown => return,
        };
        self.own.add(-charge, now, self.divisor(now));
        for ancestor in self.ancestors() {
            ancestor.below.add(-charge, now, 1);
        }
    }

    /// The job has used up a time slice, for which it pays by waiting. If it is its first one, its parent is charged for it: a job that
    /// spawns many jobs, each of which uses up a slice before it is known, would have a slice for each in turn with others.
    fn count_preemption(&self, took: u64, now: u64) {
        if self.gave_way.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(parent) = &self.parent {
            let time = i64::try_from(took).unwrap_or(i64::MAX);
            parent.own.add(-time, now, parent.divisor(now));
        }
    }

    /// Has the job pay its debt by waiting: returns for which time of its own it has to wait now, in ticks; 0 if it owes nothing.
    fn settle(&self, now: u64) -> u64 {
        let divisor = self.divisor(now);
        let left = self.own.at(now, divisor);
        if left >= 0 {
            return 0;
        }
        let owed = left.abs_diff(ADVANCE);
        self.own.add(ADVANCE - left, now, divisor);
        // Nothing grows while it waits: that is what it pays with.
        let paid = now.saturating_add(owed * REFILL);
        self.own.updated.store(paid, Ordering::Relaxed);
        owed
    }

    /// A fiber of the job begins to wait among the preempted.
    pub(crate) fn begin_preempted(&self) {
        self.preempted.fetch_add(1, Ordering::Relaxed);
    }

    /// A fiber of the job no longer waits among the preempted.
    pub(crate) fn end_preempted(&self) {
        self.preempted.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns `true` if a fiber of the job waits among the preempted.
    pub(crate) fn has_preempted(&self) -> bool {
        self.preempted.load(Ordering::Relaxed) > 0
    }

    /// A preempted fiber of the job had a worker until `now`, for `took`: the family comes later by as much.
    pub(crate) fn was_served(&self, now: u64, took: u64) {
        let mut next = Some(self);
        while let Some(share) = next {
            share
                .served
                .store(now.saturating_add(took), Ordering::Relaxed);
            next = share.parent.as_deref();
        }
    }

    fn ancestor_at(&self, depth: u32) -> &Share {
        let mut share = self;
        while share.depth > depth
            && let Some(parent) = &share.parent
        {
            share = parent;
        }
        share
    }

    /// Returns `true` if a preempted fiber of this job comes before one of `other`: its family was served longer ago.
    pub(crate) fn precedes(&self, other: &Share) -> bool {
        let depth = self.depth.min(other.depth);
        let (mut own, mut other) = (self.ancestor_at(depth), other.ancestor_at(depth));
        if ptr::eq(own, other) {
            // One is an ancestor of the other, or they are the same.
            return false;
        }
        while let (Some(own_parent), Some(other_parent)) = (&own.parent, &other.parent)
            && !ptr::eq(&raw const **own_parent, &raw const **other_parent)
        {
            (own, other) = (own_parent, other_parent);
        }
        own.served.load(Ordering::Relaxed) < other.served.load(Ordering::Relaxed)
    }
}

/// The burst that runs on a worker, if its job has a share.
pub(crate) struct RunningBurst {
    /// Null if there is none.
    strand: Cell<*const Strand>,
    /// Compared before it is used: see [`WorkerThread::end_burst_at`].
    share: Cell<*const Share>,
    slice_ops: Cell<u32>,
    began: Cell<u64>,
}

impl RunningBurst {
    pub(crate) fn none() -> RunningBurst {
        RunningBurst {
            strand: Cell::new(ptr::null()),
            share: Cell::new(ptr::null()),
            slice_ops: Cell::new(0),
            began: Cell::new(0),
        }
    }
}

impl WorkerThread {
    /// Begins a new time slice of `strand`, the running one, if its meter refills by itself.
    #[inline(always)]
    pub(crate) fn begin_slice(&self, strand: &Strand) {
        // SAFETY: a fiber's context is alive as long as it is the fiber's.
        let meter = unsafe { Meter::of(strand.context().get()) };
        if !meter.refills {
            return;
        }
        if meter.share.is_null() {
            strand.fuel.set(meter.turn);
        } else {
            self.begin_burst(strand, meter);
        }
    }

    /// Begins a burst of `strand`, the running one, with the time slice of `meter`, that of its context. A job that is over its
    /// share loses the operations of the slice, so it gives way when it next burns one.
    #[inline(never)]
    pub(crate) fn begin_burst(&self, strand: &Strand, meter: &Meter) {
        // Before the fuel changes, since it may have been this fiber that ran last.
        self.end_burst();
        strand.fuel.set(meter.turn);
        // SAFETY: the meter is that of the fiber's context, which is alive, and its share with it.
        let share = unsafe { meter.share.as_ref() };
        let Some(share) = share.filter(|_| meter.refills && !self.is_simulated) else {
            return;
        };
        let now = ticks();
        self.burst.strand.set(strand);
        self.burst.share.set(share);
        self.burst.slice_ops.set(meter.turn.ops);
        self.burst.began.set(now);
        if share.is_over(now) {
            strand.fuel.take_ops();
        }
    }

    /// Ends the running burst, if there is one: the worker finds nothing to do, or the body has ended.
    pub(crate) fn end_burst(&self) {
        if !self.burst.strand.get().is_null() {
            self.end_burst_at(ticks());
        }
    }

    /// Forgets the running burst, because its time slice was used up: the job pays for it by waiting now. Returns for which
    /// time besides it has to wait, in ticks.
    ///
    /// # Safety
    /// The share is null or alive.
    pub(crate) unsafe fn settle_share(&self, share: *const Share) -> u64 {
        let is_running = !self.burst.strand.replace(ptr::null()).is_null();
        // SAFETY: by contract.
        let share = unsafe { share.as_ref() };
        let Some(share) = share.filter(|_| !self.is_simulated) else {
            return 0;
        };
        let now = ticks();
        if is_running && ptr::eq(share, self.burst.share.get()) {
            share.count_preemption(now.saturating_sub(self.burst.began.get()), now);
        }
        share.settle(now)
    }

    fn end_burst_at(&self, now: u64) {
        // SAFETY: fibers live as long as their pool.
        let Some(strand) = (unsafe { self.burst.strand.replace(ptr::null()).as_ref() }) else {
            return;
        };
        // SAFETY: a fiber's context is alive as long as it is the fiber's.
        let share = unsafe { Meter::of(strand.context().get()) }.share;
        if !ptr::eq(share, self.burst.share.get()) {
            // What ran has ended, and its share may be gone with it.
            return;
        }
        // SAFETY: the share of a context that is alive.
        let Some(share) = (unsafe { share.as_ref() }) else {
            return;
        };
        let slice_ops = self.burst.slice_ops.get();
        let burst = Burst {
            ticks: now.saturating_sub(self.burst.began.get()),
            ops: slice_ops.saturating_sub(strand.fuel.get().ops),
            slice_ops,
        };
        share.count(&burst, now);
    }

    /// Returns `true` if tasks of the job that `meter` belongs to may run in turn with others.
    ///
    /// # Safety
    /// The meter is that of a context that is alive.
    pub(crate) unsafe fn may_run_in_turn(&self, meter: &Meter) -> bool {
        // SAFETY: by contract.
        let share = unsafe { meter.share.as_ref() };
        share.is_some_and(|share| !share.has_preempted() && !share.is_over(ticks()))
    }

    /// Returns `true` if the job that `meter` belongs to is over its share.
    ///
    /// # Safety
    /// The meter is that of a context that is alive.
    #[inline]
    pub(crate) unsafe fn is_over_share(&self, meter: &Meter) -> bool {
        // SAFETY: by contract.
        let share = unsafe { meter.share.as_ref() };
        share.is_some_and(|share| !self.is_simulated && share.is_over(ticks()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
