//! Notifications: jobs wait until another one says that something has changed.
//!
//! # Protocol
//!
//! Waiters lie in a list in the order of arrival. `notify_one` takes the first one out and wakes it; if nobody waits, the
//! notification is kept for the next one, but never more than one. `notify_all` counts up the generation and wakes those whose
//! wait began under an earlier number, some with each hold of the lock; who comes meanwhile has the new number and stays. A
//! waiter learns its number when it is made, not when it enters the list: so a notification between the two is not lost.
//!
//! | race | closed by |
//! | --- | --- |
//! | a waiter was taken out by `notify_one` and gives up before it saw that | the notification goes to the next one |
//! | `notify_all` has counted, and a waiter gives up before it was taken out | it compares the numbers: it was notified |
//! | `notify_one` meets a waiter that `notify_all` has not reached yet | it wakes that one for `notify_all`, and looks again |

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use jobtree_base::user_code::{Place, drop_user, wake_user};
use jobtree_tree::{Cancelled, WaitingFor};

use crate::atomics::{Guarded, model_has_failed};
use crate::budget::later::waker_for_later;
use crate::claim::{Claim, Standing};
use crate::current::checkpoint;
use crate::step::{Step, left_out};
use crate::waiters::{WaitList, Waiter};
use crate::withdraw::{Operation, OrCancelled, wait_for};

/// The number of waiters that are woken after one hold of the lock.
const BATCH: usize = 8;

/// Wakes jobs that wait for a change.
///
/// It says nothing about what has changed: the program keeps that elsewhere, and looks there before and after it waits. For a
/// value that is handed over, take a [channel](crate::channel).
///
/// [`notify_one`](Notify::notify_one) is kept if nobody waits, so a consumer may look, find nothing and then wait:
///
/// ```
/// use std::collections::VecDeque;
/// use std::sync::Mutex;
/// use jobtree_runtime::{nursery, sync::Notify};
///
/// let (orders, arrived) = (Mutex::new(VecDeque::new()), Notify::new());
/// let sum = nursery(|n| {
///     n.launch(|| {
///         for order in 1..=10 {
///             orders.lock().unwrap().push_back(order);
///             arrived.notify_one();
///         }
///         Ok(())
///     });
///     let (mut sum, mut received) = (0, 0);
///     while received < 10 {
///         // In a statement of its own: no lock is held while it waits.
///         let order = orders.lock().unwrap().pop_front();
///         match order {
///             Some(order) => (sum, received) = (sum + order, received + 1),
///             None => arrived.wait()?,
///         }
///     }
///     Ok(sum)
/// })?;
/// assert_eq!(sum, 55);
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
///
/// [`notify_all`](Notify::notify_all) is not kept. Who waits for that makes the wait first and looks then:
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use jobtree_runtime::{nursery, sync::Notify};
///
/// let (is_open, opened) = (AtomicBool::new(false), Notify::new());
/// nursery(|n| {
///     for _ in 0..3 {
///         n.launch(|| {
///             let wait = opened.notified();
///             if !is_open.load(Ordering::Acquire) {
///                 wait.wait()?;
///             }
///             assert!(is_open.load(Ordering::Acquire));
///             Ok(())
///         });
///     }
///     is_open.store(true, Ordering::Release);
///     opened.notify_all();
///     Ok(())
/// })?;
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
pub struct Notify {
    state: Guarded<State>,
}

struct State {
    /// The number of calls of `notify_all`.
    generation: u64,
    /// `true` if a notification is kept for the next waiter.
    is_kept: bool,
    waiters: WaitList<Wait>,
}

/// The state of a waiter, which lies in its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Waiting since the generation of this number.
    Since(u64),
    /// `notify_one` has chosen it.
    NotifiedAlone,
    /// `notify_all` has woken it.
    NotifiedWithAll,
}

impl State {
    /// Takes out waiters that `notify_all` has to wake; some of them, and none after the last.
    fn take_earlier(&mut self) -> [Option<Waker>; BATCH] {
        std::array::from_fn(|_| {
            if !self.has_earlier() {
                return None;
            }
            self.waiters.claim_first()?.give(Wait::NotifiedWithAll)
        })
    }

    /// Returns `true` if the first waiter began to wait before the last `notify_all`.
    fn has_earlier(&self) -> bool {
        let first = self.waiters.peek();
        first.is_some_and(|wait| matches!(wait, Wait::Since(since) if *since < self.generation))
    }
}

impl Notify {
    /// Makes one for which nobody waits.
    pub fn new() -> Notify {
        Notify {
            state: Guarded::new(State {
                generation: 0,
                is_kept: false,
                waiters: WaitList::new(),
            }),
        }
    }

    /// Wakes the job that has waited longest. If none waits, the next one that waits does not have to; several such
    /// notifications count as one.
    pub fn notify_one(&self) {
        loop {
            let mut state = self.state.lock();
            if state.has_earlier() && !left_out(Step::EarlierFirst) {
                drop(state);
                self.wake_earlier();
                continue;
            }
            let waker = match state.waiters.claim_first() {
                Some(waiter) => waiter.give(Wait::NotifiedAlone),
                None => {
                    state.is_kept = true;
                    None
                }
            };
            drop(state);
            if let Some(waker) = waker {
                wake_user(waker);
            }
            return;
        }
    }

    /// Wakes all jobs that wait now, and those whose [`notified`](Notify::notified) was called before. Nothing is kept for
    /// later ones.
    pub fn notify_all(&self) {
        self.begin_notify_all();
        self.wake_earlier();
    }

    /// Notifies all who wait, and wakes none of them: [`wake_earlier`](Notify::wake_earlier) has to follow.
    pub(crate) fn begin_notify_all(&self) {
        self.state.lock().generation += 1;
    }

    /// Wakes those who were notified by [`begin_notify_all`](Notify::begin_notify_all).
    pub(crate) fn wake_earlier(&self) {
        loop {
            let wakers = self.state.lock().take_earlier();
            let is_last = wakers.iter().any(Option::is_none);
            wakers.into_iter().flatten().for_each(wake_user);
            if is_last {
                return;
            }
        }
    }

    /// Waits for a notification; the stack of a job is parked meanwhile.
    ///
    /// # Errors
    /// If the current job is cancelled; even if a notification is kept, which stays for others then.
    pub fn wait(&self) -> Result<(), Cancelled> {
        self.notified().wait()
    }

    /// Begins a wait: what is returned is ready with the first [`notify_all`](Notify::notify_all) after this call, or with a
    /// [`notify_one`](Notify::notify_one) after it was polled first. [`wait`](Notified::wait) for it, or await it:
    ///
    /// ```
    /// use jobtree_runtime::{block_on, sync::Notify};
    ///
    /// let changed = Notify::new();
    /// let wait = changed.notified();
    /// changed.notify_all();
    /// block_on(wait)??;
    /// # Ok::<(), jobtree_runtime::Cancelled>(())
    /// ```
    ///
    /// Dropped before it is ready, it leaves its notification to the next one.
    pub fn notified(&self) -> Notified<'_> {
        Notified {
            operation: OrCancelled::new(Notification::new(self)),
        }
    }

    /// Returns how many wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiters.len()
    }

    /// Returns how often `notify_all` was called.
    pub(crate) fn generation(&self) -> u64 {
        self.state.lock().generation
    }
}

impl Default for Notify {
    fn default() -> Notify {
        Notify::new()
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify")
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

/// A wait for a notification; see [`Notify::notified`].
#[must_use = "nothing is waited for unless it is awaited, or `wait` is called"]
pub struct Notified<'a> {
    operation: OrCancelled<Notification<'a>>,
}

impl Notified<'_> {
    /// Waits for the notification; the stack of a job is parked meanwhile.
    ///
    /// # Errors
    /// If the current job is cancelled; even if there is a notification.
    pub fn wait(self) -> Result<(), Cancelled> {
        checkpoint()?;
        wait_for(self.operation.into_operation(), WaitingFor::Notification)
    }
}

impl Future for Notified<'_> {
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the field is pinned with the whole.
        unsafe { self.map_unchecked_mut(|this| &mut this.operation) }.poll(context)
    }
}

impl fmt::Debug for Notified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Waiting,
    Over,
}

/// The wait as an operation that can be withdrawn.
pub(crate) struct Notification<'a> {
    notify: &'a Notify,
    /// The generation in which the wait began.
    since: u64,
    stage: Stage,
    waiter: Waiter<Wait>,
    claim: Claim,
}

impl<'a> Notification<'a> {
    pub(crate) fn new(notify: &'a Notify) -> Notification<'a> {
        let since = notify.generation();
        Notification {
            notify,
            since,
            stage: Stage::New,
            waiter: Waiter::new(Some(Wait::Since(since))),
            claim: Claim::new(),
        }
    }

    /// The generation in which the wait began.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// Takes a notification that is there, or enters.
    fn attempt(&mut self, context: &Context<'_>) -> Poll<()> {
        let waker = waker_for_later(context.waker());
        let mut state = self.notify.state.lock();
        let is_notified = state.generation > self.since && !left_out(Step::GenerationCounts);
        if is_notified || std::mem::take(&mut state.is_kept) {
            drop(state);
            self.stage = Stage::Over;
            drop_user(Place::Waker, waker);
            return Poll::Ready(());
        }
        self.stage = Stage::Waiting;
        // SAFETY: both are pinned with the operation, which leaves the list before it goes (`drop`).
        unsafe { state.waiters.enter(&self.waiter, waker, &self.claim, 0) };
        Poll::Pending
    }

    fn poll_waiting(&mut self, context: &Context<'_>) -> Poll<()> {
        if matches!(self.claim.standing(), Standing::Done(_)) {
            self.stage = Stage::Over;
            return Poll::Ready(());
        }
        let waker = waker_for_later(context.waker());
        let state = self.notify.state.lock();
        // SAFETY: the lock is held.
        let (is_waiting, unused) = unsafe {
            match self.waiter.is_linked() {
                true => (true, self.waiter.replace_waker(waker)),
                false => (false, Some(waker)),
            }
        };
        drop(state);
        drop_user(Place::Waker, unused);
        if is_waiting {
            return Poll::Pending;
        }
        self.stage = Stage::Over;
        Poll::Ready(())
    }

    /// Leaves the list, and returns how the wait stood then.
    fn leave(&mut self) -> Wait {
        let mut state = self.notify.state.lock();
        // SAFETY: the entry is in this list or in none.
        let has_left = unsafe { state.waiters.remove(&self.waiter) };
        let is_earlier = state.generation > self.since && !left_out(Step::GenerationCounts);
        drop(state);
        self.stage = Stage::Over;
        if has_left && is_earlier {
            return Wait::NotifiedWithAll;
        }
        // SAFETY: the entry is in no list any more, so it is ours alone.
        match unsafe { self.waiter.slot() } {
            Some(wait) => *wait,
            None => unreachable!("nobody takes what lies in the entry"),
        }
    }
}

impl Future for Notification<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: nothing pinned is moved.
        let this = unsafe { self.get_unchecked_mut() };
        match this.stage {
            Stage::New => this.attempt(context),
            Stage::Waiting => this.poll_waiting(context),
            Stage::Over => unreachable!("polled after it was ready"),
        }
    }
}

impl Operation for Notification<'_> {
    fn withdraw(self: Pin<&mut Self>) -> Option<()> {
        // SAFETY: nothing pinned is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if this.stage != Stage::Waiting {
            return None;
        }
        match this.leave() {
            Wait::Since(_) => None,
            Wait::NotifiedAlone | Wait::NotifiedWithAll => Some(()),
        }
    }
}

impl Drop for Notification<'_> {
    fn drop(&mut self) {
        if self.stage == Stage::Waiting
            && !model_has_failed()
            && self.leave() == Wait::NotifiedAlone
            && !left_out(Step::NotificationPassedOn)
        {
            self.notify.notify_one();
        }
    }
}
