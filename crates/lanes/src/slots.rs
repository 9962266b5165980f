//! Slots: how many jobs may be scheduled and not ended.
//!
//! A job has its slot from scheduling to its end, however often it comes back to its queue. Who finds none free waits by
//! the runtime's semaphore, in the order of coming, and nobody polls. Shutdown closes it: then there are no slots any
//! more, and all who wait are told.
//!
//! # Protocol
//!
//! Taking and giving back are one atomic operation each, as long as nobody waits. `free` counts slots that anybody may take;
//! those that are meant for waiters are permits of the semaphore. Whoever waits says so first (`waiters`), and looks at
//! `free` once more. Whoever gives back adds to `free` first, and then looks at `waiters`: one of the two sees the other.
//! If somebody waits, the slot is moved from `free` to the semaphore, and nobody takes from `free` meanwhile. A permit
//! whose waiter has given up stays with the semaphore, and is taken from there.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_runtime::Clock;
use jobtree_runtime::sync::{AcquireError, Permit, Semaphore};

use crate::metrics::Slots;
use crate::remote::{First, first_of};

/// Why there is no slot.
#[derive(Debug)]
pub(crate) enum NoSlot {
    /// All are taken.
    Full,
    /// The manager was shut down.
    Closed,
    /// The job that wanted to schedule is cancelled.
    Cancelled,
}

/// How long one waits before one is told of, again and again.
const NOTICE_EVERY: Duration = Duration::from_secs(1);

/// See the module's head.
pub(crate) struct SlotKeeper {
    is_closed: AtomicBool,
    /// `None` is any number.
    capacity: Option<usize>,
    /// How many may be taken; without a limit, how many can be counted.
    free: AtomicUsize,
    waiters: AtomicUsize,
    for_waiters: Semaphore,
}

impl SlotKeeper {
    pub(crate) fn new(limit: Option<NonZeroUsize>) -> SlotKeeper {
        let capacity = limit.map(NonZeroUsize::get);
        SlotKeeper {
            is_closed: AtomicBool::new(false),
            capacity,
            free: AtomicUsize::new(capacity.unwrap_or(usize::MAX)),
            waiters: AtomicUsize::new(0),
            for_waiters: Semaphore::new(0),
        }
    }

    /// Takes a slot if one is free and nobody waits.
    #[inline]
    pub(crate) fn try_take(&self) -> Result<(), NoSlot> {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            return Err(self.none_free());
        }
        self.take_free()
    }

    #[inline]
    fn take_free(&self) -> Result<(), NoSlot> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(NoSlot::Closed);
        }
        if self.take_from_free() {
            return Ok(());
        }
        match self.for_waiters.try_acquire(1) {
            Ok(permit) => {
                permit.forget();
                Ok(())
            }
            Err(_) => Err(self.none_free()),
        }
    }

    #[inline]
    fn take_from_free(&self) -> bool {
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        self.free
            .fetch_update(success, failure, |free| free.checked_sub(1))
            .is_ok()
    }

    fn none_free(&self) -> NoSlot {
        match self.is_closed.load(Ordering::Acquire) {
            true => NoSlot::Closed,
            false => NoSlot::Full,
        }
    }

    /// Takes a slot, and waits for it if need be; `notice` is called once a second meanwhile, with the number of slots and
    /// how long one waits already.
    pub(crate) fn take(
        &self,
        clock: &Clock,
        mut notice: impl FnMut(usize, Duration),
    ) -> Result<(), NoSlot> {
        match self.try_take() {
            Err(NoSlot::Full) => {}
            decided => return decided,
        }
        let _waits = Waits::new(self);
        match self.take_free() {
            Err(NoSlot::Full) => {}
            decided => return decided,
        }
        let began = clock.now();
        let mut waiting = std::pin::pin!(self.for_waiters.acquire_async(1));
        loop {
            match clock.wait_at_most(NOTICE_EVERY, waiting.as_mut()) {
                Ok(Some(acquired)) => return taken(acquired),
                Ok(None) => notice(self.capacity.unwrap_or(usize::MAX), clock.now() - began),
                Err(_) => return Err(NoSlot::Cancelled),
            }
        }
    }

    /// [`take`](SlotKeeper::take) as a future does it.
    pub(crate) async fn take_async(
        &self,
        clock: &Clock,
        mut notice: impl FnMut(usize, Duration),
    ) -> Result<(), NoSlot> {
        match self.try_take() {
            Err(NoSlot::Full) => {}
            decided => return decided,
        }
        let _waits = Waits::new(self);
        match self.take_free() {
            Err(NoSlot::Full) => {}
            decided => return decided,
        }
        let began = clock.now();
        let mut waiting = std::pin::pin!(self.for_waiters.acquire_async(1));
        loop {
            match first_of(waiting.as_mut(), clock.sleep(NOTICE_EVERY)).await {
                First::One(acquired) => return taken(acquired),
                First::Other(()) => {
                    notice(self.capacity.unwrap_or(usize::MAX), clock.now() - began);
                }
            }
        }
    }

    /// Gives a slot back.
    #[inline]
    pub(crate) fn give(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.give_to_waiter();
        }
    }

    #[cold]
    fn give_to_waiter(&self) {
        // Else a waiter who looked once more has it.
        if self.take_from_free() {
            self.for_waiters.add_permits(1);
        }
    }

    /// No slots any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.for_waiters.close();
    }

    pub(crate) fn count(&self) -> Slots {
        let free = self.free.load(Ordering::SeqCst);
        match self.capacity {
            Some(capacity) => {
                let available = free.saturating_add(self.for_waiters.available());
                Slots {
                    in_use: capacity.saturating_sub(available),
                    available: Some(available),
                    capacity: Some(capacity),
                }
            }
            None => Slots {
                in_use: usize::MAX - free,
                available: None,
                capacity: None,
            },
        }
    }
}

/// Somebody waits, until this is dropped.
struct Waits<'a>(&'a SlotKeeper);

impl<'a> Waits<'a> {
    fn new(slots: &'a SlotKeeper) -> Waits<'a> {
        slots.waiters.fetch_add(1, Ordering::SeqCst);
        Waits(slots)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

fn taken(acquired: Result<Permit<'_>, AcquireError>) -> Result<(), NoSlot> {
    match acquired {
        Ok(permit) => {
            permit.forget();
            Ok(())
        }
        Err(AcquireError::Closed) => Err(NoSlot::Closed),
        Err(AcquireError::Cancelled(_)) => Err(NoSlot::Cancelled),
    }
}
