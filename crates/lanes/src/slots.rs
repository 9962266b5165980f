//! Slots: how many jobs may be scheduled and not ended.
//!
//! A job has its slot from scheduling to its end, however often it comes back to its queue. Who finds none free waits by
//! the runtime's semaphore, in the order of coming, and nobody polls. Shutdown closes it: then there are no slots any
//! more, and all who wait are told.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_runtime::Clock;
use jobtree_runtime::sync::{AcquireError, Semaphore, TryAcquireError};

use crate::metrics::Slots;

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

pub(crate) enum SlotKeeper {
    Limited {
        free: Semaphore,
        capacity: usize,
    },
    Unlimited {
        in_use: AtomicUsize,
        is_closed: AtomicBool,
    },
}

impl SlotKeeper {
    pub(crate) fn new(limit: Option<NonZeroUsize>) -> SlotKeeper {
        match limit.map(NonZeroUsize::get) {
            Some(capacity) => SlotKeeper::Limited {
                free: Semaphore::new(capacity),
                capacity,
            },
            None => SlotKeeper::Unlimited {
                in_use: AtomicUsize::new(0),
                is_closed: AtomicBool::new(false),
            },
        }
    }

    /// Takes a slot if one is free.
    #[inline]
    pub(crate) fn try_take(&self) -> Result<(), NoSlot> {
        match self {
            SlotKeeper::Limited { free, .. } => match free.try_acquire(1) {
                Ok(permit) => {
                    permit.forget();
                    Ok(())
                }
                Err(TryAcquireError::NoPermits) => Err(NoSlot::Full),
                Err(TryAcquireError::Closed) => Err(NoSlot::Closed),
            },
            SlotKeeper::Unlimited { is_closed, .. } if is_closed.load(Ordering::Acquire) => {
                Err(NoSlot::Closed)
            }
            SlotKeeper::Unlimited { in_use, .. } => {
                in_use.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Takes a slot, and waits for it if need be; `notice` is called once a second meanwhile, with the
    /// number of slots.
    pub(crate) fn take(&self, clock: &Clock, mut notice: impl FnMut(usize)) -> Result<(), NoSlot> {
        let SlotKeeper::Limited { free, capacity } = self else {
            return self.try_take();
        };
        match self.try_take() {
            Err(NoSlot::Full) => {}
            decided => return decided,
        }
        let mut waiting = std::pin::pin!(free.acquire_async(1));
        loop {
            match clock.wait_at_most(NOTICE_EVERY, waiting.as_mut()) {
                Ok(Some(acquired)) => return taken(acquired),
                Ok(None) => notice(*capacity),
                Err(_) => return Err(NoSlot::Cancelled),
            }
        }
    }

    /// Takes a slot as a future does it.
    pub(crate) async fn take_async(&self) -> Result<(), NoSlot> {
        match self {
            SlotKeeper::Limited { free, .. } => taken(free.acquire_async(1).await),
            SlotKeeper::Unlimited { .. } => self.try_take(),
        }
    }

    /// Gives a slot back.
    #[inline]
    pub(crate) fn give(&self) {
        match self {
            SlotKeeper::Limited { free, .. } => free.add_permits(1),
            SlotKeeper::Unlimited { in_use, .. } => {
                in_use.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// No slots any more.
    pub(crate) fn close(&self) {
        match self {
            SlotKeeper::Limited { free, .. } => {
                free.close();
            }
            SlotKeeper::Unlimited { is_closed, .. } => is_closed.store(true, Ordering::Release),
        }
    }

    pub(crate) fn count(&self) -> Slots {
        match self {
            SlotKeeper::Limited { free, capacity } => {
                let available = free.available();
                Slots {
                    in_use: capacity.saturating_sub(available),
                    available: Some(available),
                    capacity: Some(*capacity),
                }
            }
            SlotKeeper::Unlimited { in_use, .. } => Slots {
                in_use: in_use.load(Ordering::Relaxed),
                available: None,
                capacity: None,
            },
        }
    }
}

fn taken(acquired: Result<jobtree_runtime::sync::Permit<'_>, AcquireError>) -> Result<(), NoSlot> {
    match acquired {
        Ok(permit) => {
            permit.forget();
            Ok(())
        }
        Err(AcquireError::Closed) => Err(NoSlot::Closed),
        Err(AcquireError::Cancelled(_)) => Err(NoSlot::Cancelled),
    }
}
