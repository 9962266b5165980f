//! An answer that comes once, after the commit. A thread can block for it, a future can await it, on any executor: so
//! one trait serves programs with and without one.
//!
//! Protocol. A [`Promise`] and an [`Answer`] share one slot behind a lock. The promise fills it once; if it is dropped
//! empty, the answer says that the store has stopped, so nobody waits for ever. The waker is taken out under the lock
//! and called after it: no lock of ours is held while others' code runs.
//!
//! A call that shares a commit with others gets their [`Bell`] before its caller can ask for the answer. A thread waits
//! for that first, and for its own slot only if there is nothing in it yet.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::bell::Bell;
use crate::error::StoreError;

struct Slot<T> {
    value: Option<Result<T, StoreError>>,
    waker: Option<Waker>,
    blocked: bool,
}

struct Shared<T> {
    slot: Mutex<Slot<T>>,
    filled: Condvar,
    bell: OnceLock<Arc<Bell>>,
}

impl<T> Shared<T> {
    fn slot(&self) -> MutexGuard<'_, Slot<T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer of a store to one call. It comes when the call's effects are durable, or surely are not.
///
/// Dropping it does not take the call back.
///
/// ```
/// # use jobtree_store::Answer;
/// let answer = Answer::ready(Ok(3));
/// assert_eq!(answer.wait().unwrap(), 3);
/// ```
#[must_use = "whether the call took effect is only known from its answer"]
pub struct Answer<T> {
    shared: Arc<Shared<T>>,
}

/// The other end of an [`Answer`].
pub(crate) struct Promise<T> {
    shared: Option<Arc<Shared<T>>>,
}

/// A promise and its answer.
pub(crate) fn promise<T>() -> (Promise<T>, Answer<T>) {
    let shared = Arc::new(Shared {
        slot: Mutex::new(Slot {
            value: None,
            waker: None,
            blocked: false,
        }),
        filled: Condvar::new(),
        bell: OnceLock::new(),
    });
    let promise = Promise {
        shared: Some(Arc::clone(&shared)),
    };
    (promise, Answer { shared })
}

impl<T> Promise<T> {
    /// It will be kept together with others, and then this rings.
    pub(crate) fn gather(&self, bell: &Arc<Bell>) {
        if let Some(shared) = &self.shared {
            // A call is queued once; should it ever be twice, the first bell is still sure to ring.
            let _ = shared.bell.set(Arc::clone(bell));
        }
    }

    pub(crate) fn keep(mut self, value: Result<T, StoreError>) {
        self.fill(value);
    }

    fn fill(&mut self, value: Result<T, StoreError>) {
        let Some(shared) = self.shared.take() else {
            return;
        };
        let (waker, blocked) = {
            let mut slot = shared.slot();
            slot.value = Some(value);
            (slot.waker.take(), slot.blocked)
        };
        if blocked {
            shared.filled.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.fill(Err(StoreError::closed()));
    }
}

impl<T> Answer<T> {
    /// An answer that is already there.
    pub fn ready(value: Result<T, StoreError>) -> Self {
        let (promise, answer) = promise();
        promise.keep(value);
        answer
    }

    /// Blocks this thread until the answer is there. Not for a thread that others need, such as a worker of a pool:
    /// there, await it.
    pub fn wait(self) -> Result<T, StoreError> {
        let mut slot = self.shared.slot();
        if let (None, Some(bell)) = (&slot.value, self.shared.bell.get()) {
            drop(slot);
            bell.wait();
            slot = self.shared.slot();
        }
        loop {
            if let Some(value) = slot.value.take() {
                return value;
            }
            slot.blocked = true;
            slot = self
                .shared
                .filled
                .wait(slot)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The answer if it is there.
    pub fn try_take(&mut self) -> Option<Result<T, StoreError>> {
        self.shared.slot().value.take()
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.shared.slot();
        if let Some(value) = slot.value.take() {
            return Poll::Ready(value);
        }
        let changed = slot
            .waker
            .as_ref()
            .is_none_or(|waker| !waker.will_wake(context.waker()));
        let old = if changed {
            slot.waker.replace(context.waker().clone())
        } else {
            None
        };
        drop(slot);
        // Dropping a waker runs its owner's code.
        drop(old);
        Poll::Pending
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = self.shared.slot().value.is_some();
        f.debug_struct("Answer").field("there", &there).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_thread_and_a_future_get_it() {
        let (promise_a, answer_a) = promise::<u32>();
        let waiting = std::thread::spawn(move || answer_a.wait());
        promise_a.keep(Ok(1));
        assert_eq!(waiting.join().unwrap().unwrap(), 1);

        let (promise_b, mut answer_b) = promise::<u32>();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut answer_b).poll(&mut context).is_pending());
        promise_b.keep(Ok(2));
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        let Poll::Ready(value) = Pin::new(&mut answer_b).poll(&mut context) else {
            panic!("it was woken");
        };
        assert_eq!(value.unwrap(), 2);
    }

    #[test]
    fn a_broken_promise_is_an_error_and_not_a_hang() {
        let (promise, answer) = promise::<u32>();
        let waiting = std::thread::spawn(move || answer.wait());
        drop(promise);
        assert!(matches!(
            waiting.join().unwrap(),
            Err(StoreError::Stopped { .. })
        ));
    }
}
