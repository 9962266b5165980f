//! The guards around user code that the library calls where nobody could handle a panic.
//!
//! User code is every closure, waker, destructor, comparator, error, panic payload and hook that a program hands to
//! the library. It may panic, wait, call back into the library, or drop the very object that calls it. So the library
//! calls it
//!
//! 1. without holding a lock of its own,
//! 2. with every structure that the code could reach complete,
//! 3. in a context that is alive, or in the outermost one,
//! 4. inside one of the functions of this module, if no caller receives the panic, and
//! 5. on a service thread (timers, dispatcher threads, a worker's loop) always inside one of them.
//!
//! The first three are the caller's duty; the rest is here. A panic that is caught here has already been reported by the
//! program's panic hook. It is counted and kept in a bounded list ([`caught_panics`], [`recent_panics`]), and the
//! caller goes on with the rest of its work.
//!
//! A panic that does have a receiver (a job's body, a fork, a scope) is not caught here: it becomes the outcome of the
//! job, or continues in the thread that joins. Only its payload ends here, by [`discard_payload`], when that thread has
//! no use for it: dropping a payload runs user code again.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

/// The kind of user code that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Place {
    /// A waker's `wake`, `clone` or `drop`.
    Waker,
    /// A function that is called when a job or token is cancelled.
    CancelCallback,
    /// A function that is called for an event, a progress report or an end.
    Callback,
    /// The destructor of a value that nobody takes.
    Value,
    /// The destructor of a closure or future, or of what it captured.
    Captured,
    /// The destructor of an error, or one of its methods.
    Error,
    /// The destructor of a panic payload.
    Payload,
    /// A task of a pool that no code waits for, and whose pool has no panic handler.
    Task,
    /// A handler that the program gave to a pool, a runtime or a manager.
    Handler,
}

impl Place {
    /// Returns the name that reports use.
    pub fn as_str(self) -> &'static str {
        match self {
            Place::Waker => "waker",
            Place::CancelCallback => "cancel callback",
            Place::Callback => "callback",
            Place::Value => "destructor of a value",
            Place::Captured => "destructor of a closure or future",
            Place::Error => "error",
            Place::Payload => "destructor of a panic payload",
            Place::Task => "detached task",
            Place::Handler => "handler",
        }
    }
}

/// A panic of user code that no caller received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaughtPanic {
    /// The kind of user code that panicked.
    pub place: Place,
    /// The panic's message, if its payload is text.
    pub message: Option<String>,
}

/// The number of panics that [`recent_panics`] keeps. Picked by feel: enough to see a pattern, and bounded.
const MOST_RECENT_PANICS: usize = 32;

/// Payloads whose destructor panics with another such payload, and so on, are leaked after this many.
const MOST_NESTED_PAYLOADS: usize = 8;

static CAUGHT: AtomicU64 = AtomicU64::new(0);
static RECENT: Mutex<VecDeque<CaughtPanic>> = Mutex::new(VecDeque::new());

/// Returns the number of panics of user code that no caller received, in this process.
pub fn caught_panics() -> u64 {
    CAUGHT.load(Ordering::Relaxed)
}

/// Returns the last panics of user code that no caller received, oldest first.
pub fn recent_panics() -> Vec<CaughtPanic> {
    let recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    recent.iter().cloned().collect()
}

thread_local! {
    /// The panics of user code on this thread, if it collects them.
    static COLLECTED: RefCell<Option<Vec<CaughtPanic>>> = const { RefCell::new(None) };
}

/// Collects the panics of user code that are caught on the calling thread from now on, up to a bound. For a thread that
/// reports them, such as that of a simulation.
pub fn collect_panics_of_thread() {
    COLLECTED.set(Some(Vec::new()));
}

/// Returns the panics that the calling thread has collected, oldest first, and collects no more.
pub fn take_collected_panics() -> Vec<CaughtPanic> {
    COLLECTED.take().unwrap_or_default()
}

/// Calls `code`; returns `None` if it panicked, which is recorded.
#[inline]
pub fn call_user<R>(place: Place, code: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(result) => Some(result),
        Err(payload) => {
            record(place, payload);
            None
        }
    }
}

/// Drops `value`; a panic of its destructor is recorded.
pub fn drop_user<T>(place: Place, value: T) {
    if std::mem::needs_drop::<T>() {
        call_user(place, move || drop(value));
    }
}

/// Wakes by `waker`, and consumes it; a panic is recorded.
#[inline]
pub fn wake_user(waker: Waker) {
    call_user(Place::Waker, move || waker.wake());
}

/// Wakes by all of `wakers`, and consumes them; the panic of one is recorded and does not keep the others from being woken.
#[inline]
pub fn wake_all_users(mut wakers: impl Iterator<Item = Waker>) {
    let mut wake_rest = || call_user(Place::Waker, || wakers.by_ref().for_each(Waker::wake));
    while wake_rest().is_none() {}
}

/// Wakes by `waker`; a panic is recorded.
#[inline]
pub fn wake_user_by_ref(waker: &Waker) {
    call_user(Place::Waker, || waker.wake_by_ref());
}

/// Drops the payload of a panic that no caller wants, whatever its destructor does.
#[cold]
pub fn discard_payload(payload: Box<dyn Any + Send>) {
    let mut payload = payload;
    for _ in 0..MOST_NESTED_PAYLOADS {
        match catch_unwind(AssertUnwindSafe(move || drop(payload))) {
            Ok(()) => return,
            Err(next) => {
                note(Place::Payload, next.as_ref());
                payload = next;
            }
        }
    }
    std::mem::forget(payload);
}

/// Records a panic that was caught elsewhere and that no caller receives.
#[cold]
pub fn record(place: Place, payload: Box<dyn Any + Send>) {
    note(place, payload.as_ref());
    discard_payload(payload);
}

#[cold]
fn note(place: Place, payload: &(dyn Any + Send)) {
    let message = message_of(payload).map(str::to_owned);
    CAUGHT.fetch_add(1, Ordering::Relaxed);
    let panic = CaughtPanic { place, message };
    // Not if the thread's locals are gone.
    let _ = COLLECTED.try_with(|collected| {
        if let Some(collected) = &mut *collected.borrow_mut()
            && collected.len() < MOST_RECENT_PANICS
        {
            collected.push(panic.clone());
        }
    });
    let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    if recent.len() == MOST_RECENT_PANICS {
        recent.pop_front();
    }
    recent.push_back(panic);
}

/// Returns the text of a panic's payload, if it is text.
pub fn message_of(payload: &(dyn Any + Send)) -> Option<&str> {
    match payload.downcast_ref::<&'static str>() {
        Some(text) => Some(text),
        None => payload.downcast_ref::<String>().map(String::as_str),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsOnDrop(usize);

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(PanicsOnDrop(self.0 - 1));
            }
        }
    }

    #[test]
    fn a_panic_is_recorded_and_does_not_escape() {
        let before = caught_panics();
        assert_eq!(call_user(Place::Callback, || 7), Some(7));
        assert_eq!(
            call_user(Place::Callback, || -> u8 { panic!("in a callback") }),
            None
        );
        assert!(caught_panics() > before);
        assert!(recent_panics().contains(&CaughtPanic {
            place: Place::Callback,
            message: Some("in a callback".to_owned()),
        }));
    }

    #[test]
    fn all_are_woken_though_one_panics() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};
        use std::task::Wake;

        struct Counting(Arc<AtomicUsize>, bool);
        impl Wake for Counting {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
                assert!(!self.1, "in a waker");
            }
        }

        let woken = Arc::new(AtomicUsize::new(0));
        let waker = |panics| Waker::from(Arc::new(Counting(Arc::clone(&woken), panics)));
        wake_all_users([waker(false), waker(true), waker(true), waker(false)].into_iter());
        assert_eq!(woken.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_thread_collects_its_own_panics_until_it_takes_them() {
        call_user(Place::Waker, || panic!("before"));
        collect_panics_of_thread();
        call_user(Place::Waker, || panic!("mine"));
        let other = || call_user(Place::Waker, || panic!("of another thread"));
        std::thread::spawn(other).join().unwrap();
        let expected = CaughtPanic {
            place: Place::Waker,
            message: Some("mine".to_owned()),
        };
        assert_eq!(take_collected_panics(), [expected]);
        call_user(Place::Waker, || panic!("after"));
        assert_eq!(take_collected_panics(), []);
    }

    #[test]
    fn payloads_whose_destructors_panic_end() {
        drop_user(Place::Value, PanicsOnDrop(3));
        // Longer than the library follows: the rest is leaked.
        drop_user(Place::Value, PanicsOnDrop(100));
    }

    #[test]
    fn a_panic_while_the_thread_panics_does_not_abort() {
        struct DropsInside;
        impl Drop for DropsInside {
            fn drop(&mut self) {
                drop_user(Place::Value, PanicsOnDrop(2));
            }
        }
        let caught = catch_unwind(|| {
            let _inside = DropsInside;
            panic!("the first panic");
        });
        let payload = caught.expect_err("the closure panics");
        assert_eq!(message_of(payload.as_ref()), Some("the first panic"));
    }

    #[test]
    fn the_list_of_recent_panics_is_bounded() {
        for _ in 0..2 * MOST_RECENT_PANICS {
            call_user(Place::Handler, || panic!("again"));
        }
        assert!(recent_panics().len() <= MOST_RECENT_PANICS);
    }
}
