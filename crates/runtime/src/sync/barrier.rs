//! A point that a number of jobs pass together.
//!
//! # Protocol
//!
//! The number of those that have arrived is behind a lock of its own, and they wait for a [`Notify`]. The last one sets the number
//! to zero and notifies all, both under that lock. One that gives up takes its arrival back under the lock, unless the
//! generation of the `Notify` shows that the last one has come meanwhile and has counted it: then it has passed.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use jobtree_tree::{Cancelled, WaitingFor};

use crate::atomics::{Guarded, model_has_failed};
use crate::current::checkpoint;
use crate::step::{Step, left_out};
use crate::sync::notify::{Notification, Notify};
use crate::withdraw::{Operation, OrCancelled, wait_for};

/// A point at which jobs wait until so many have arrived. Then all of them go on, and it can be used again.
///
/// Waiting parks the stack of a job. A job that is cancelled while it waits has not arrived: the others wait for another one.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use jobtree_runtime::{nursery, sync::Barrier};
///
/// let (written, barrier) = (AtomicU32::new(0), Barrier::new(3));
/// nursery(|n| {
///     for _ in 0..3 {
///         n.launch(|| {
///             written.fetch_add(1, Ordering::Relaxed);
///             let arrival = barrier.wait()?;
///             // Nobody gets here before all have written.
///             assert_eq!(written.load(Ordering::Relaxed), 3);
///             if arrival.is_leader() {
///                 println!("said once");
///             }
///             Ok(())
///         });
///     }
///     Ok(())
/// })?;
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
///
/// A job that joins another one which waits here waits for all the others, too: it must not be one of them.
pub struct Barrier {
    parties: usize,
    /// The number of jobs that have arrived since the last time all went on.
    arrived: Guarded<usize>,
    notify: Notify,
}

impl Barrier {
    /// Makes a barrier for so many jobs. For none or one, nobody waits.
    pub fn new(parties: usize) -> Barrier {
        Barrier {
            parties,
            arrived: Guarded::new(0),
            notify: Notify::new(),
        }
    }

    /// Returns how many jobs it takes.
    pub fn parties(&self) -> usize {
        self.parties
    }

    /// Arrives, and waits until all others have.
    ///
    /// # Errors
    /// If the current job is cancelled first; it has not arrived then.
    pub fn wait(&self) -> Result<Arrival, Cancelled> {
        checkpoint()?;
        wait_for(Arriving::new(self), WaitingFor::Notification)
    }

    /// Arrives and waits as a future does it. It arrives when it is polled first; dropped before it is ready, it has not
    /// arrived.
    ///
    /// ```
    /// use jobtree_runtime::{nursery, sync::Barrier};
    ///
    /// let barrier = Barrier::new(2);
    /// let leaders = nursery(|n| {
    ///     let other = n.spawn_future(async { Ok(barrier.wait_async().await?.is_leader()) });
    ///     let this = barrier.wait()?.is_leader();
    ///     Ok([this, other.join()?])
    /// })?;
    /// assert!(leaders[0] != leaders[1]);
    /// # Ok::<(), jobtree_runtime::JobError>(())
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Barrier::wait).
    pub fn wait_async(&self) -> BarrierWait<'_> {
        BarrierWait {
            arriving: OrCancelled::new(Arriving::new(self)),
        }
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier")
            .field("parties", &self.parties)
            .field("arrived", &*self.arrived.lock())
            .finish()
    }
}

/// That all have arrived; see [`Barrier::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    is_leader: bool,
}

impl Arrival {
    /// Returns `true` for one of those that go on together: the one that came last.
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }
}

/// Waiting at a barrier as a future; see [`Barrier::wait_async`].
#[must_use = "nothing arrives unless it is awaited"]
pub struct BarrierWait<'a> {
    arriving: OrCancelled<Arriving<'a>>,
}

impl Future for BarrierWait<'_> {
    type Output = Result<Arrival, Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the field is pinned with the whole.
        unsafe { self.map_unchecked_mut(|this| &mut this.arriving) }.poll(context)
    }
}

impl fmt::Debug for BarrierWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWait").finish_non_exhaustive()
    }
}

/// The wait as an operation that can be withdrawn.
pub(crate) struct Arriving<'a> {
    barrier: &'a Barrier,
    /// There from the arrival until the wait is over.
    notification: Option<Notification<'a>>,
}

impl<'a> Arriving<'a> {
    pub(crate) fn new(barrier: &'a Barrier) -> Arriving<'a> {
        Arriving {
            barrier,
            notification: None,
        }
    }

    /// The wait for the others, where it lies.
    fn notification(self: Pin<&mut Self>) -> Option<Pin<&mut Notification<'a>>> {
        // SAFETY: the notification is pinned with the whole; it is replaced only in place.
        unsafe { self.map_unchecked_mut(|this| &mut this.notification) }.as_pin_mut()
    }

    /// Ends the wait, in place.
    fn end(self: Pin<&mut Self>) {
        // SAFETY: nothing is moved: what lies there is dropped in place.
        unsafe { self.get_unchecked_mut() }.notification = None;
    }

    /// Counts the caller; `true` if it was the last one, and all others have been notified.
    fn arrive(mut self: Pin<&mut Self>) -> bool {
        let barrier = self.barrier;
        let mut arrived = barrier.arrived.lock();
        // Wrapping, here and below: a model counts wrongly on purpose.
        let count = arrived.wrapping_add(1);
        if count < barrier.parties {
            *arrived = count;
            let notification = Notification::new(&barrier.notify);
            drop(arrived);
            // SAFETY: there was none, so nothing is moved that was pinned.
            unsafe { self.as_mut().get_unchecked_mut() }.notification = Some(notification);
            return false;
        }
        *arrived = 0;
        // Under the lock, so that one that gives up sees the new generation or is not counted.
        barrier.notify.begin_notify_all();
        drop(arrived);
        barrier.notify.wake_earlier();
        true
    }

    /// Takes the arrival back; `false` if the last one has counted it before.
    fn take_back(&self, since: u64) -> bool {
        let mut arrived = self.barrier.arrived.lock();
        let is_counted = self.barrier.notify.generation() > since;
        if !is_counted || left_out(Step::CountedStays) {
            *arrived = arrived.wrapping_sub(1);
        }
        !is_counted
    }
}

impl Future for Arriving<'_> {
    type Output = Arrival;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Arrival> {
        if self.notification.is_none() && self.as_mut().arrive() {
            return Poll::Ready(Arrival { is_leader: true });
        }
        if let Some(notification) = self.as_mut().notification() {
            ready!(notification.poll(context));
        }
        self.end();
        Poll::Ready(Arrival { is_leader: false })
    }
}

impl Operation for Arriving<'_> {
    fn withdraw(mut self: Pin<&mut Self>) -> Option<Arrival> {
        let since = self.notification.as_ref()?.since();
        self.as_mut().end();
        let has_left = self.take_back(since);
        (!has_left).then_some(Arrival { is_leader: false })
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        if let Some(notification) = &self.notification
            && !model_has_failed()
        {
            self.take_back(notification.since());
        }
    }
}
