//! Two small things to wait with: the first of two futures, and a value that others change.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use jobtree_base::user_code::wake_user;

/// Which of two futures was ready.
pub(crate) enum First<A, B> {
    One(A),
    Other(B),
}

/// Waits for the first of two, with preference for `one`.
pub(crate) async fn first_of<A: Future, B: Future>(
    one: A,
    other: B,
) -> First<A::Output, B::Output> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        if let Poll::Ready(output) = one.as_mut().poll(context) {
            return Poll::Ready(First::One(output));
        }
        other.as_mut().poll(context).map(First::Other)
    })
    .await
}

/// A value under a lock, with those who wait for it to become another. The lock is never held while anything else runs,
/// so that a simulation does not stand still on it.
pub(super) struct Watched<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    value: T,
    waiting: Vec<Waker>,
}

impl<T> Watched<T> {
    pub(super) fn new(value: T) -> Watched<T> {
        Watched {
            state: Mutex::new(State {
                value,
                waiting: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the value.
    pub(super) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock().value)
    }

    /// Changes the value, and has all who wait look at it.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state.value);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(wake_user);
        result
    }

    /// Waits until `look` finds something; it may change the value, of which nobody is told.
    pub(super) async fn until<R>(&self, mut look: impl FnMut(&mut T) -> Option<R>) -> R {
        poll_fn(|context| {
            // Cloned without the lock: a waker may be the program's.
            let mut clone = None;
            loop {
                let mut state = self.lock();
                if let Some(found) = look(&mut state.value) {
                    return Poll::Ready(found);
                }
                let waker = context.waker();
                if state.waiting.iter().any(|known| known.will_wake(waker)) {
                    return Poll::Pending;
                }
                if let Some(clone) = clone.take() {
                    state.waiting.push(clone);
                    return Poll::Pending;
                }
                drop(state);
                clone = Some(waker.clone());
            }
        })
        .await
    }
}
