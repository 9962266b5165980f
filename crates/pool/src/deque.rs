//! The split deque: forks and spawned tasks wait here until their owner takes them back or a thief
//! takes them away.
//!
//! # Protocol
//!
//! ```text
//!        top            public_end             bottom
//!         |                 |                    |
//!   ......[ p  p  p  p  p  p][ q  q  q  q  q  q  q]......     indices grow to the right
//!   gone   public: thieves    private: the owner
//!          take from the left  pushes and pops on the right
//! ```
//!
//! * `bottom` belongs to the owner. Pushing and popping in the private part is plain memory access:
//!   no fence, no read-modify-write.
//! * `public_end` is written by the owner only. Moving it right publishes (release store, so a thief
//!   that reads it sees the slots and what they point to). Moving it left takes back.
//! * `top` only grows. The thread that moves it from `i` to `i + 1` with a compare-and-swap owns entry `i`.
//! * Taking back the last public entries is the Chase-Lev dance: the owner retracts `public_end`, then
//!   a sequentially consistent fence, then reads `top`; a thief reads `top`, then the fence, then
//!   reads `public_end`. At least one of the two sees the other, so an entry is never taken twice. The
//!   last entry is decided by the compare-and-swap on `top`.
//! * The owner may also take the oldest entry, by the same compare-and-swap as thieves.
//! * A slot's contents at index `top` do not change until `top` moves: the owner would have to win the
//!   same compare-and-swap first. So a thief may read the slot before it has won it.
//! * Growth copies into a larger buffer and retires the old one. Thieves count themselves in `readers`
//!   before they load the buffer's address; the owner frees retired buffers only after it has, behind
//!   a fence, seen no reader.
//! * What thieves read and write is a [`Ring`] apart, made with the first entry and kept until the deque's end: there
//!   may be a million deques that never have an entry. Who finds no ring has found an empty deque. Its address is
//!   published by a release store before the first entry can be.
//!
//! # Where it lies
//!
//! A deque is two words that thieves look at, the ring's address and what they ask by, and apart from them what its owner
//! writes at every fork. These must not be on one cache line, nor on two that the processor fetches as a pair. So a deque
//! has room for a line of another owner's between: [`Strand`](crate::strand::Strand) and
//! [`Padded`](crate::padded::Padded) see to the rest.
//!
//! Everything marked `owner` in a method's `# Safety` must be called from one thread at a time.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::context::ContextRef;
use crate::job::Job;
#[cfg(not(loom))]
use crate::raw::prefetch;
use crate::sync::step::{Step, fence_at, left_out, order_at};
use crate::sync::{AtomicPtr, AtomicUsize, Ordering};

mod ring;

use ring::{Buffer, Ring, Slot};

/// A piece of work and the context it runs in. The thread that takes it must run it exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) job: NonNull<Job>,
    pub(crate) context: ContextRef,
}

// SAFETY: an entry is a right to run a job once; jobs are made from `Send` closures, and contexts
// outlive the jobs that carry them and are read-only.
unsafe impl Send for Entry {}

/// The result of a thief's attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Steal {
    /// The oldest public entry.
    Taken(Entry),
    /// There was nothing public, or what there was did not suit.
    Empty,
    /// Another thread was faster; another try may succeed.
    Retry,
}

/// The part that the owner alone touches.
#[repr(C)]
struct OwnerSide {
    bottom: Cell<usize>,
    /// The owner's copy of `public_end`.
    public_end: Cell<usize>,
    /// A lower bound of `top`, from the last time the owner looked.
    known_top: Cell<usize>,
    /// The slots of the buffer in use, which the ring owns; null without a ring.
    slots: Cell<*const Slot>,
    /// The number of slots.
    capacity: Cell<u32>,
    private_limit: PrivateLimit,
}

/// The most entries that may be private.
#[derive(Clone, Copy, PartialEq)]
struct PrivateLimit(u16);

impl PrivateLimit {
    const NONE: PrivateLimit = PrivateLimit(u16::MAX);

    fn new(limit: usize) -> PrivateLimit {
        u16::try_from(limit).map_or(PrivateLimit::NONE, PrivateLimit)
    }

    /// The index from which on enough is private; without a limit it is [`ASKED`], which no index reaches.
    #[inline(always)]
    fn beyond(self, public_end: usize) -> usize {
        match self {
            PrivateLimit::NONE => ASKED,
            // Saturating: an index that high is out of reach, and a limit above all indices never wraps.
            PrivateLimit(limit) => public_end.saturating_add(usize::from(limit)),
        }
    }
}

/// The number of entries that the owner prefetches ahead of the oldest one: as far as memory is away.
const AHEAD: usize = 2;

/// Room in a deque that was made without any.
const FIRST_CAPACITY: usize = 16;

/// A push limit that no index reaches: a thief requests work, or interrupts the owner (`stop.rs`).
const ASKED: usize = usize::MAX;

/// See the module's head.
#[repr(C)]
pub(crate) struct Deque<Between = [usize; 16]> {
    /// Null before the first entry. Written by the owner only.
    ring: AtomicPtr<Ring>,
    /// The index from which on enough is private: `public_end + private_limit`, or [`ASKED`]. The owner reads it at every
    /// fork, thieves write it when they find nothing.
    push_limit: AtomicUsize,
    /// None of the deque's business.
    pub(crate) between: Between,
    owner: OwnerSide,
}

// SAFETY: the owner side is touched only by methods whose contract names one owner at a time; the
// shared side is atomics. Entries are `Send`.
unsafe impl Send for Deque {}
// SAFETY: as above.
unsafe impl Sync for Deque {}

impl Deque {
    /// [`Deque::without_room`] with nothing of another owner's between.
    #[cfg(all(test, not(loom)))]
    fn empty(private_limit: usize) -> Deque {
        Deque::without_room(private_limit, Default::default())
    }

    /// A deque that keeps at most `private_limit` entries to itself and has room for `capacity`
    /// (rounded up to a power of two) before it grows.
    pub(crate) fn new(private_limit: usize, capacity: usize) -> Deque {
        // In a model every slot is two objects that loom follows: few are enough to wrap and to grow.
        let capacity = if cfg!(loom) {
            capacity.min(2)
        } else {
            capacity
        };
        let deque = Deque::without_room(private_limit, Default::default());
        deque.make_ring(capacity.next_power_of_two());
        deque
    }
}

impl<Between> Deque<Between> {
    /// A deque that takes memory for its entries with the first one: there may be a million that never have any.
    pub(crate) fn without_room(private_limit: usize, between: Between) -> Deque<Between> {
        let private_limit = PrivateLimit::new(private_limit);
        Deque {
            ring: AtomicPtr::new(std::ptr::null_mut()),
            owner: OwnerSide {
                bottom: Cell::new(0),
                public_end: Cell::new(0),
                known_top: Cell::new(0),
                slots: Cell::new(std::ptr::null()),
                capacity: Cell::new(0),
                private_limit,
            },
            push_limit: AtomicUsize::new(private_limit.beyond(0)),
            between,
        }
    }

    /// Returns the part that thieves read, if there was ever an entry.
    #[inline(always)]
    fn ring(&self) -> Option<&Ring> {
        let ring = self.ring.load(Ordering::Acquire);
        // SAFETY: null, or made by `make_ring` and kept until the deque's end.
        let ring = unsafe { ring.as_ref() };
        #[cfg(loom)]
        if let Some(ring) = ring {
            // SAFETY: loom itself checks that no other thread writes meanwhile.
            ring.is_made
                .with(|made| unsafe { assert!(*made, "a ring is made before it is seen") });
        }
        ring
    }

    /// Returns the part that thieves read.
    ///
    /// # Safety
    /// Owner only, and there was an entry.
    #[inline(always)]
    unsafe fn own_ring(&self) -> &Ring {
        let ring = self.ring.load(Ordering::Relaxed);
        debug_assert!(!ring.is_null());
        // SAFETY: made with the first entry by the owner, which is here, and kept until the deque's end.
        unsafe { &*ring }
    }

    /// The owner's way to a slot, whose index must be of an entry that was pushed, or the one before.
    ///
    /// # Safety
    /// Owner only, and there was an entry.
    #[inline(always)]
    unsafe fn own_slot(&self, index: usize) -> &Slot {
        let position = index & (self.owner.capacity.get() as usize - 1);
        // SAFETY: the buffer in use is freed only by the owner, which is here; its capacity is a power
        // of two, so the masked position is inside.
        unsafe { &*self.owner.slots.get().add(position) }
    }

    /// Returns `true` if as many entries are private as may be and no thief requests one.
    ///
    /// # Safety
    /// Owner only.
    #[inline(always)]
    pub(crate) unsafe fn private_is_full(&self) -> bool {
        self.owner.bottom.get() >= self.push_limit.load(Ordering::Relaxed)
    }

    /// Asks the owner to publish an entry when it next pushes one. Any thread; may be forgotten if the
    /// owner publishes at the same moment, so who still finds nothing asks again. (How an interrupt, which comes
    /// by the same way, is not forgotten: `stop.rs`.)
    #[inline]
    pub(crate) fn ask(&self) {
        if !self.is_asked() {
            self.push_limit.store(ASKED, Ordering::Relaxed);
        }
    }

    /// Asks unless there is something public already.
    pub(crate) fn ask_unless_public(&self) {
        if self.looks_empty_to_thief() {
            self.ask();
        }
    }

    /// Returns `true` if a thief has made a steal request since the owner last published.
    #[inline(always)]
    pub(crate) fn is_asked(&self) -> bool {
        self.push_limit.load(Ordering::Relaxed) == ASKED
    }

    /// Returns the number of entries, private or public, that the owner does not know to be gone (an upper bound).
    ///
    /// # Safety
    /// Owner only.
    #[inline(always)]
    pub(crate) unsafe fn outstanding(&self) -> usize {
        self.owner
            .bottom
            .get()
            .wrapping_sub(self.owner.known_top.get())
    }

    /// Returns the number of private entries.
    ///
    /// # Safety
    /// Owner only.
    #[inline]
    pub(crate) unsafe fn private_len(&self) -> usize {
        self.owner
            .bottom
            .get()
            .wrapping_sub(self.owner.public_end.get())
    }

    /// Adds an entry to the private part.
    ///
    /// # Safety
    /// Owner only. The entry's job must stay valid until it has been popped, or run by the thread that takes
    /// it.
    #[inline(always)]
    pub(crate) unsafe fn push_private(&self, entry: Entry) {
        let owner = &self.owner;
        let bottom = owner.bottom.get();
        if bottom.wrapping_sub(owner.known_top.get()) >= owner.capacity.get() as usize {
            // SAFETY: the caller is the owner.
            unsafe { self.make_room() };
        }
        // SAFETY: the caller is the owner, and there is room now.
        unsafe { self.own_slot(bottom) }.write(entry);
        owner.bottom.set(bottom.wrapping_add(1));
    }

    /// Lets thieves take the oldest private entry, and says which it is.
    ///
    /// # Safety
    /// Owner only.
    pub(crate) unsafe fn publish_oldest(&self) {
        let end = self.owner.public_end.get();
        if end != self.owner.bottom.get() {
            // SAFETY: the caller is the owner, and there is an entry.
            unsafe { self.move_public_end(end.wrapping_add(1)) };
        }
    }

    /// Lets thieves take all entries.
    ///
    /// # Safety
    /// Owner only.
    pub(crate) unsafe fn publish_all(&self) {
        let bottom = self.owner.bottom.get();
        if self.owner.public_end.get() != bottom {
            // SAFETY: the caller is the owner, and there is an entry.
            unsafe { self.move_public_end(bottom) };
        }
    }

    /// The oldest private entry's job, so that it can be made ready for strangers before it is published.
    ///
    /// # Safety
    /// Owner only.
    #[inline]
    pub(crate) unsafe fn private_jobs(&self) -> impl Iterator<Item = NonNull<Job>> {
        let mut index = self.owner.public_end.get();
        let bottom = self.owner.bottom.get();
        std::iter::from_fn(move || {
            if index == bottom {
                return None;
            }
            // SAFETY: the caller is the owner, and there is an entry.
            let (job, _) = unsafe { self.own_slot(index) }.read();
            index = index.wrapping_add(1);
            NonNull::new(job)
        })
    }

    /// # Safety
    /// Owner only, and there was an entry.
    unsafe fn move_public_end(&self, end: usize) {
        self.owner.public_end.set(end);
        self.limit_pushes(end);
        let order = order_at(Step::DequePublishRelease, Ordering::Release);
        // SAFETY: by contract.
        unsafe { self.own_ring() }.public_end.store(end, order);
    }

    /// Follows the end of the public part. A question that comes at the same moment may be lost; a full fence must
    /// follow, by which the owner can find out.
    fn limit_pushes(&self, public_end: usize) {
        let limit = self.owner.private_limit.beyond(public_end);
        // Without a limit it stays as it is, and the thread that looks at the word keeps it in its cache.
        if limit != ASKED {
            self.push_limit.store(limit, Ordering::Relaxed);
        }
    }

    /// Takes back the newest entry, which the owner knows it pushed: `false` says that it was stolen
    /// (and with it all older ones).
    ///
    /// # Safety
    /// Owner only; every entry pushed since the one in question has been popped or found stolen.
    #[inline(always)]
    pub(crate) unsafe fn pop_own(&self) -> bool {
        let newest = self.owner.bottom.get().wrapping_sub(1);
        // One comparison serves: with nothing private, `bottom == public_end`.
        if self.owner.bottom.get() != self.owner.public_end.get() {
            self.owner.bottom.set(newest);
            true
        } else {
            // SAFETY: the caller is the owner.
            unsafe { self.pop_public() }
        }
    }

    /// Takes the newest entry, if there is one.
    ///
    /// # Safety
    /// Owner only.
    pub(crate) unsafe fn pop_newest(&self) -> Option<Entry> {
        if self.owner.bottom.get() == self.owner.known_top.get() {
            return None;
        }
        let newest = self.owner.bottom.get().wrapping_sub(1);
        // SAFETY: the caller is the owner, and there was an entry.
        let (job, context) = unsafe { self.own_slot(newest) }.read();
        // SAFETY: as above.
        unsafe { self.prefetch_entry(newest.wrapping_sub(1)) };
        // SAFETY: the caller is the owner.
        if !unsafe { self.pop_own() } {
            return None;
        }
        NonNull::new(job).map(|job| Entry { job, context })
    }

    /// Prefetches an entry: an owner that takes one has many, as a rule, and the memory of one that comes soon is fetched while
    /// this one runs. The entry may be gone; an address is all that is needed. The memory of a task lies before and behind the
    /// address.
    ///
    /// # Safety
    /// Owner only, and there was an entry.
    #[inline(always)]
    unsafe fn prefetch_entry(&self, index: usize) {
        #[cfg(not(loom))]
        {
            // SAFETY: by contract; every slot can be read.
            let (soon, _) = unsafe { self.own_slot(index) }.read();
            for line in -2..2 {
                prefetch(soon.cast_const().cast::<u8>().wrapping_offset(64 * line));
            }
        }
        #[cfg(loom)]
        let _ = index;
    }

    /// The slow half of [`Deque::pop_own`]: nothing is private, so the newest entry is public.
    #[cold]
    #[inline(never)]
    unsafe fn pop_public(&self) -> bool {
        // SAFETY: the caller is the owner, and there is or was an entry.
        let ring = unsafe { self.own_ring() };
        let newest = self.owner.bottom.get().wrapping_sub(1);
        let mut top = self.owner.known_top.get();
        if top != newest {
            // Acquire, here and below: what the owner learns of `top` lets it use slots again.
            top = ring.top.load(Ordering::Acquire);
        }
        if top == newest {
            // The only one left: decided by the index alone, as among thieves. The ends stay where they
            // are, since the thread that wins, there is nothing between them any more.
            let won = ring.win(newest);
            self.owner.known_top.set(newest.wrapping_add(1));
            return won;
        }
        // Release, not relaxed: a thief that reads this value may go on to read older slots.
        ring.public_end.store(newest, Ordering::Release);
        // Before the fence: who looks after it whether the owner was interrupted (`stop.rs`) relies on that.
        if !self.is_asked() {
            self.limit_pushes(newest);
        }
        fence_at(Step::DequePopFence);
        let top = ring.top.load(Ordering::Acquire);
        if (top.wrapping_sub(newest) as isize) < 0 {
            // At least one older entry is left, so no thief can be after this one.
            self.owner.bottom.set(newest);
            self.owner.public_end.set(newest);
            self.owner.known_top.set(top);
            return true;
        }
        let won = top == newest && ring.win(newest);
        // Empty either way: everything up to `newest` is gone.
        let end = newest.wrapping_add(1);
        self.owner.known_top.set(end);
        self.owner.bottom.set(end);
        self.owner.public_end.set(end);
        ring.public_end.store(end, Ordering::Release);
        // Thieves take whatever is there, so they want more. And the limit above, one too low now, need not be
        // written again, which would take another fence.
        self.ask();
        won
    }

    /// Takes the oldest public entry if it is this job; `None` if it is another one, or a thief was faster.
    ///
    /// The owner takes it as a thief would, by the index alone; but it need not be counted as a reader, since it is the one
    /// who frees buffers, nor look where the public part ends.
    ///
    /// # Safety
    /// Owner only.
    #[inline]
    pub(crate) unsafe fn take_oldest_if(&self, job: NonNull<Job>) -> Option<Entry> {
        let owner = &self.owner;
        if owner.public_end.get() == owner.known_top.get() {
            return None;
        }
        // SAFETY: the caller is the owner, and there was an entry.
        let ring = unsafe { self.own_ring() };
        let top = ring.top.load(Ordering::Acquire);
        owner.known_top.set(top);
        if top == owner.public_end.get() {
            return None;
        }
        // SAFETY: as above.
        let (oldest, context) = unsafe { self.own_slot(top) }.read();
        // SAFETY: as above.
        unsafe { self.prefetch_entry(top.wrapping_add(AHEAD)) };
        if oldest != job.as_ptr() || !ring.win(top) {
            return None;
        }
        owner.known_top.set(top.wrapping_add(1));
        // The pointer that was pushed: the caller's may be no more than an address.
        NonNull::new(oldest).map(|job| Entry { job, context })
    }

    /// Takes the oldest public entry if `suits` says so of its context. Any thread may call this.
    pub(crate) fn steal(&self, suits: impl Fn(ContextRef) -> bool) -> Steal {
        let Some(ring) = self.ring().filter(|ring| !ring.looks_empty()) else {
            return Steal::Empty;
        };
        ring.readers.fetch_add(1, Ordering::SeqCst);
        let result = Self::steal_while_counted(ring, suits);
        ring.readers.fetch_sub(1, Ordering::Release);
        result
    }

    fn steal_while_counted(ring: &Ring, suits: impl Fn(ContextRef) -> bool) -> Steal {
        let top = ring.top.load(Ordering::Acquire);
        // Between `top` and `public_end` for the owner's pop; between counting ourselves as a reader
        // and loading the buffer for the owner's reclaim.
        fence_at(Step::DequeStealFence);
        let end = ring.public_end.load(Ordering::Acquire);
        if top.wrapping_sub(end) as isize >= 0 {
            return Steal::Empty;
        }
        let buffer = ring.buffer.load(Ordering::Acquire);
        // SAFETY: we are counted in `readers`, and the owner frees a replaced buffer only after it
        // has seen no reader since it replaced it.
        let (job, context) = unsafe { &*buffer }.read(top);
        if !suits(context) {
            return Steal::Empty;
        }
        match ring.top.compare_exchange(
            top,
            top.wrapping_add(1),
            Ordering::SeqCst,
            Ordering::Relaxed,
        ) {
            Ok(_) => match NonNull::new(job) {
                Some(job) => Steal::Taken(Entry { job, context }),
                None => Steal::Empty,
            },
            Err(_) => Steal::Retry,
        }
    }

    /// A glance without any promise, cheap enough to poll.
    #[inline]
    pub(crate) fn looks_empty_to_thief(&self) -> bool {
        self.ring().is_none_or(Ring::looks_empty)
    }

    /// The index of the oldest public entry, if there seems to be one; as cheap as a glance.
    #[inline]
    pub(crate) fn oldest_public_index(&self) -> Option<usize> {
        let (top, _) = self.ring()?.public_ends_at()?;
        Some(top)
    }

    /// Returns the number of entries that a thief would see.
    pub(crate) fn public_len(&self) -> usize {
        let public = self.ring().and_then(Ring::public_ends_at);
        public.map_or(0, |(top, end)| end.wrapping_sub(top))
    }

    /// Looks whether thieves have made room, else doubles the buffer.
    #[cold]
    #[inline(never)]
    unsafe fn make_room(&self) {
        let owner = &self.owner;
        if owner.slots.get().is_null() {
            // In a model few slots are enough to wrap and to grow.
            return self.make_ring(if cfg!(loom) { 2 } else { FIRST_CAPACITY });
        }
        // SAFETY: the caller is the owner, and there is a buffer, so there is a ring.
        let ring = unsafe { self.own_ring() };
        let top = ring.top.load(Ordering::Acquire);
        owner.known_top.set(top);
        let bottom = owner.bottom.get();
        let capacity = owner.capacity.get() as usize;
        if bottom.wrapping_sub(top) < capacity {
            return;
        }
        let old = ring.buffer.load(Ordering::Relaxed);
        let new = Buffer::allocate(capacity * 2);
        // SAFETY: both buffers are alive: `old` until it is reclaimed below, `new` until replaced.
        let (old_buffer, new_buffer) = unsafe { (&*old, &*new) };
        let mut index = top;
        while index != bottom {
            let (job, context) = old_buffer.read(index);
            if let Some(job) = NonNull::new(job) {
                new_buffer.write(index, Entry { job, context });
            }
            index = index.wrapping_add(1);
        }
        self.use_buffer(new);
        let order = order_at(Step::DequeBufferRelease, Ordering::Release);
        ring.buffer.store(new, order);
        // SAFETY: the retired list is the owner's.
        unsafe { (*ring.retired.get()).push(old) };
        // SAFETY: the caller is the owner.
        unsafe { self.reclaim() };
    }

    /// By the owner, or the one who makes the deque.
    fn make_ring(&self, capacity: usize) {
        let buffer = Buffer::allocate(capacity);
        self.use_buffer(buffer);
        let order = order_at(Step::DequeRingRelease, Ordering::Release);
        self.ring.store(Ring::allocate(buffer), order);
    }

    /// The owner goes on with a buffer of the ring's, which has all entries.
    fn use_buffer(&self, buffer: *mut Buffer) {
        // SAFETY: alive until it is replaced.
        let slots = unsafe { &(*buffer).slots };
        let capacity =
            u32::try_from(slots.len()).expect("a deque of four thousand million entries");
        self.owner.slots.set(slots.as_ptr());
        self.owner.capacity.set(capacity);
    }

    /// Frees replaced buffers if no thief can be reading them.
    ///
    /// # Safety
    /// Owner only.
    pub(crate) unsafe fn reclaim(&self) {
        let Some(ring) = self.ring() else { return };
        // SAFETY: the retired list is the owner's.
        let retired = unsafe { &mut *ring.retired.get() };
        if retired.is_empty() {
            return;
        }
        // Pairs with the fence in `steal_while_counted`: a thief that counts itself after we have
        // looked will load the new buffer.
        fence_at(Step::DequeReclaimFence);
        if !left_out(Step::DequeReclaimCheck) && ring.readers.load(Ordering::Acquire) != 0 {
            return;
        }
        for buffer in retired.drain(..) {
            // SAFETY: made by `Box::into_raw`, replaced before the fence, and no thief that could
            // have loaded its address is still reading.
            #[cfg(not(loom))]
            drop(unsafe { Box::from_raw(buffer) });
            // SAFETY: as above; the list of freed buffers is the owner's, and they are alive until
            // the deque ends.
            #[cfg(loom)]
            unsafe {
                (*buffer).is_alive.with_mut(|alive| *alive = false);
                (*ring.freed.get()).push(buffer);
            }
        }
    }
}

impl<Between> Drop for Deque<Between> {
    fn drop(&mut self) {
        // A model that fails unwinds: one that was asked once more would panic again, and hide what failed.
        if cfg!(loom) && std::thread::panicking() {
            return;
        }
        let ring = self.ring.load(Ordering::Acquire);
        if ring.is_null() {
            return;
        }
        // SAFETY: `&mut self` means no thief is left; the ring, and the current and the retired buffers, are ours and
        // were made by `Box::into_raw`.
        unsafe {
            let ring = Box::from_raw(ring);
            drop(Box::from_raw(ring.buffer.load(Ordering::Relaxed)));
            for buffer in (*ring.retired.get()).drain(..) {
                drop(Box::from_raw(buffer));
            }
            #[cfg(loom)]
            for buffer in (*ring.freed.get()).drain(..) {
                drop(Box::from_raw(buffer));
            }
        }
    }
}

#[cfg(all(test, loom))]
#[path = "deque_models.rs"]
pub(crate) mod models;
#[cfg(all(test, not(loom)))]
#[path = "deque_tests.rs"]
mod tests;
