//! Memory: how much a job uses, counted by an allocator that the program may put in place.
//!
//! # Whose bytes are whose
//!
//! An allocation counts for the job that makes it, and for every job above that has an account. When it is freed, the
//! job that frees it, and those above, have so much less, but never less than nothing: so a job that frees what it got
//! from another has no gain from it. Code outside of jobs counts for nobody. When a job ends, all that still counts for it
//! is taken off those above: what it gave away is then nobody's. So sums never drift, and a buffer that wanders from
//! job to job may go uncounted.
//!
//! # What follows
//!
//! Nothing fails where the allocation is made. If there is more than the quota, the running strand loses its fuel, so
//! that the job's next tick looks: it gives way as exhausted. Where a supervisor recharges, the job waits for that.
//! Elsewhere it goes on after the others, and gives way again after each further allocation; if it then uses twice
//! its quota, it is cancelled, with a reason that says so.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use jobtree_pool::raw::fuel;

use super::account::Account;

/// Above the quota by so much, small quotas are forgiven, too.
const SLACK: u64 = 64 * 1024;

/// Bytes in use, and how many may be.
pub(super) struct MemoryUse {
    limit: AtomicU64,
    used: AtomicU64,
}

impl MemoryUse {
    pub(super) fn new(limit: u64) -> MemoryUse {
        MemoryUse {
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn left(&self) -> u64 {
        match self.limit() {
            u64::MAX => u64::MAX,
            limit => limit.saturating_sub(self.used()),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.used() > self.limit()
    }

    /// Whether there is no more patience.
    pub(super) fn is_far_over(&self) -> bool {
        let limit = self.limit();
        self.used() > limit.saturating_mul(2).max(limit.saturating_add(SLACK))
    }

    pub(super) fn raise_limit(&self, by: u64) {
        update(&self.limit, |limit| limit.saturating_add(by));
    }

    fn take(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give(&self, bytes: u64) {
        update(&self.used, |used| used.saturating_sub(bytes));
    }

    /// The job has ended: what still counts for it is taken off its pool and those above.
    pub(super) fn give_back(&self, pool: &Account) {
        let rest = self.used.swap(0, Ordering::Relaxed);
        if rest > 0 {
            pool.and_above()
                .for_each(|account| account.memory.give(rest));
        }
    }
}

fn update(counter: &AtomicU64, change: impl Fn(u64) -> u64) {
    let relaxed = Ordering::Relaxed;
    let _ = counter.fetch_update(relaxed, relaxed, |value| Some(change(value)));
}

/// An allocator that counts what jobs use, so that [`Budget::memory`](super::Budget::memory) means something.
///
/// ```
/// use jobtree_runtime::budget::{self, Budget, CountingAllocator};
/// use jobtree_runtime::nursery;
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator::system();
///
/// nursery(|n| {
///     let limited = n.job_options().budget(Budget { memory: 1 << 20, ..Budget::OPEN });
///     limited.launch(|| {
///         let before = budget::remaining().memory;
///         let buffer = vec![0_u8; 1000];
///         assert_eq!(before - budget::remaining().memory, 1000);
///         drop(buffer);
///         assert_eq!(before, budget::remaining().memory);
///         Ok(())
///     });
///     Ok(())
/// })?;
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
///
/// Its price is a look at the current context for each call; jobs without a budget pay nothing more. Without it,
/// memory is not counted, and no quota is ever exceeded.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator<A = System> {
    inner: A,
}

impl CountingAllocator<System> {
    /// On top of the system's allocator.
    pub const fn system() -> CountingAllocator<System> {
        CountingAllocator { inner: System }
    }
}

impl<A> CountingAllocator<A> {
    /// On top of another allocator.
    pub const fn new(inner: A) -> CountingAllocator<A> {
        CountingAllocator { inner }
    }
}

// SAFETY: all memory is the inner allocator's, by the caller's own contract; counting touches no memory that is
// allocated here, does not allocate, and does not unwind.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        let pointer = unsafe { self.inner.alloc(layout) };
        if !pointer.is_null() {
            taken(layout.size());
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        let pointer = unsafe { self.inner.alloc_zeroed(layout) };
        if !pointer.is_null() {
            taken(layout.size());
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { self.inner.dealloc(pointer, layout) };
        given(layout.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: by the caller's contract.
        let moved = unsafe { self.inner.realloc(pointer, layout, new_size) };
        if !moved.is_null() {
            let old_size = layout.size();
            if new_size > old_size {
                taken(new_size - old_size);
            } else {
                given(old_size - new_size);
            }
        }
        moved
    }
}

/// The account that the calling code runs in. The thread-locals behind it have no destructors, so it may be asked at any
/// time in the life of a thread.
#[inline]
fn with_account(use_it: impl FnOnce(&Account)) {
    let meter = fuel::meter();
    if meter.share.is_null() {
        // No account, or code that runs later than its job and counts for no account: see `later.rs`.
        return;
    }
    let account = meter.account.cast::<Account>();
    // SAFETY: accounts are the only things that meters point to, and one lives longer than what it measures.
    if let Some(account) = unsafe { account.as_ref() } {
        use_it(account);
    }
}

#[inline]
fn taken(bytes: usize) {
    with_account(|account| {
        let mut is_over = false;
        for account in account.and_above() {
            account.memory.take(bytes as u64);
            is_over |= account.memory.is_over();
        }
        if is_over {
            end_turn(account);
        }
    });
}

#[inline]
fn given(bytes: usize) {
    with_account(|account| {
        account
            .and_above()
            .for_each(|account| account.memory.give(bytes as u64));
    });
}

/// Has the next tick look what is the matter.
#[cold]
fn end_turn(account: &Account) {
    if let Some(left) = fuel::fuel() {
        fuel::replace_fuel(fuel::Turn { ops: 0, ..left });
        account.put_back_stray(left.ops);
    }
}
