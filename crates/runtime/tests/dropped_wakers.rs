//! Futures of the library that are dropped by an unwinding, each with the last clone of a waker whose destructor panics.
#![cfg(all(unix, not(miri)))]

mod support;

use std::cell::Cell;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use jobtree_runtime::channel::{RecvError, bounded, broadcast, rendezvous, watch};
use jobtree_runtime::sync::{Barrier, Mutex, Notify, RwLock, Semaphore};
use jobtree_runtime::{CancelToken, JoinSet, Runtime, future, select_async, sleep};
use support::child::run_in_child;

const LIMIT: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(3600);

/// A waker whose destructor panics.
struct Hostile;

impl Wake for Hostile {
    fn wake(self: Arc<Hostile>) {}
}

impl Drop for Hostile {
    fn drop(&mut self) {
        panic!("the destructor of a waker");
    }
}

/// Polls `future`, and lets it be dropped by a panic, or as usual.
fn drop_with_waker<F: Future>(future: F, unwinds: bool) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut future = pin!(future);
        let waker: Waker = Arc::new(Hostile).into();
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        // Not the last one, unless the future has none.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(waker)));
        if unwinds {
            std::panic::resume_unwind(Box::new("unwinds"));
        }
    }));
    match outcome {
        Ok(()) => assert!(!unwinds),
        Err(payload) => assert_eq!(payload.downcast_ref(), Some(&"unwinds")),
    }
}

type Case = fn(bool);

const CASES: &[(&str, Case)] = &[
    ("recv", |unwinds| {
        let (_sender, receiver) = bounded::<u8>(1);
        drop_with_waker(receiver.recv_async(), unwinds);
    }),
    ("send", |unwinds| {
        let (sender, _receiver) = rendezvous();
        drop_with_waker(sender.send_async(2), unwinds);
    }),
    ("select", |unwinds| {
        let (_sender, receiver) = bounded::<u8>(1);
        let select = async {
            select_async! { recv(receiver) -> _x => {} }
        };
        drop_with_waker(select, unwinds);
    }),
    ("sleep", |unwinds| {
        drop_with_waker(future::sleep(LONG), unwinds)
    }),
    ("lock", |unwinds| {
        let mutex = Mutex::new(1);
        let _guard = mutex.lock().unwrap();
        drop_with_waker(mutex.lock_async(), unwinds);
    }),
    ("acquire", |unwinds| {
        drop_with_waker(Semaphore::new(0).acquire_async(1), unwinds);
    }),
    ("notified", |unwinds| {
        drop_with_waker(Notify::new().notified(), unwinds);
    }),
    ("barrier", |unwinds| {
        drop_with_waker(Barrier::new(2).wait_async(), unwinds);
    }),
    ("read", |unwinds| {
        let lock = RwLock::new(1);
        let _guard = lock.write().unwrap();
        drop_with_waker(lock.read_async(), unwinds);
    }),
    ("broadcast", |unwinds| {
        let (_sender, mut receiver) = broadcast::<u8>(1);
        drop_with_waker(receiver.recv_async(), unwinds);
    }),
    ("watch", |unwinds| {
        let (_sender, mut receiver) = watch(1);
        drop_with_waker(receiver.changed_async(), unwinds);
    }),
    ("join set", |unwinds| {
        let handle = Runtime::global().spawn(|| Ok(sleep(LONG)?));
        let job = handle.job().clone();
        let mut set = JoinSet::from_iter([handle]);
        drop_with_waker(set.join_next_async(), unwinds);
        job.cancel("the test is over");
    }),
    ("token", |unwinds| {
        drop_with_waker(CancelToken::new().cancelled(), unwinds)
    }),
    ("handle", |unwinds| {
        let handle = Runtime::global().spawn(|| Ok(sleep(LONG)?));
        let job = handle.job().clone();
        drop_with_waker(handle, unwinds);
        job.cancel("the test is over");
    }),
    ("cancel on drop", |unwinds| {
        let handle = Runtime::global().spawn(|| Ok(sleep(LONG)?));
        drop_with_waker(handle.cancel_on_drop(), unwinds);
    }),
    ("ended", |unwinds| {
        drop_with_waker(Runtime::global().root().ended(), unwinds)
    }),
    ("timeout", |unwinds| {
        let limited = future::with_timeout(LONG, async { Ok(pending::<u8>().await) });
        drop_with_waker(limited, unwinds);
    }),
    ("shield", |unwinds| {
        let shielded = future::shield(LONG, async { Ok(pending::<u8>().await) });
        drop_with_waker(shielded, unwinds);
    }),
    ("nursery", |unwinds| {
        let nursery = future::nursery(async |n| {
            n.launch(|| Ok(sleep(LONG)?));
            Ok(pending::<u8>().await)
        });
        drop_with_waker(nursery, unwinds);
    }),
    ("body of a nursery that waits for its jobs", |unwinds| {
        let nursery = future::nursery(async |n| {
            n.launch(|| Ok(sleep(LONG)?));
            Ok(())
        });
        drop_with_waker(nursery, unwinds);
    }),
];

#[test]
fn the_destructor_of_a_waker_that_a_future_kept_is_recorded() {
    for (index, (name, case)) in CASES.iter().enumerate() {
        for unwinds in [false, true] {
            let part = 2 * index + usize::from(unwinds);
            let ended = run_in_child(part, LIMIT, || case(unwinds));
            let result = catch_unwind(AssertUnwindSafe(|| ended.assert_success()));
            assert!(
                result.is_ok(),
                "{name}, {}",
                if unwinds { "unwinding" } else { "dropped" }
            );
        }
    }
}

/// Makes a waker each clone of which panics when it is dropped.
fn waker_with_hostile_clones() -> Waker {
    const VTABLE: RawWakerVTable = RawWakerVTable::new(
        |_| RawWaker::new(std::ptr::dangling(), &VTABLE),
        |_| (),
        |_| (),
        |pointer| assert!(pointer.is_null(), "the destructor of a clone"),
    );
    // SAFETY: the functions look at nothing but whether the pointer is null.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) }
}

/// What is taken at once needs no waker. A clone that was made for a wait is dropped then, and must not cost the caller what it took.
#[test]
fn the_destructor_of_a_clone_that_was_not_needed_is_recorded() {
    fn poll_once<F: Future>(future: F) -> F::Output {
        let waker = waker_with_hostile_clones();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            pin!(future).poll(&mut Context::from_waker(&waker))
        }));
        match polled {
            Ok(Poll::Ready(output)) => output,
            Ok(Poll::Pending) => panic!("it was there"),
            Err(_) => panic!("the panic of the clone got out"),
        }
    }
    let notify = Notify::new();
    notify.notify_one();
    poll_once(notify.notified()).unwrap();
    let semaphore = Semaphore::new(1);
    drop(poll_once(semaphore.acquire_async(1)).unwrap());
    semaphore.close();
    assert!(poll_once(semaphore.acquire_async(1)).is_err());
    drop(poll_once(Mutex::new(1).lock_async()).unwrap());
    drop(poll_once(RwLock::new(1).write_async()).unwrap());
    let (sender, receiver) = bounded(1);
    poll_once(sender.send_async(7)).unwrap();
    assert_eq!(poll_once(receiver.recv_async()).unwrap(), 7);
    assert_eq!(
        poll_once(async {
            select_async! { recv(receiver) -> _x => 1, default => 2 }
        })
        .unwrap(),
        2
    );
    assert_eq!(semaphore.available(), 1, "none is lost");
}

thread_local! {
    /// Called when the waker of [`poll_while_cloning`] is cloned.
    static ON_CLONE: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// Polls `future` once, with a waker that calls `on_clone` when it is cloned, and whose clone panics when it is dropped.
fn poll_while_cloning<F: Future>(future: F, on_clone: impl FnOnce() + 'static) -> F::Output {
    const VTABLE: RawWakerVTable = RawWakerVTable::new(
        |_| {
            if let Some(on_clone) = ON_CLONE.take() {
                on_clone();
            }
            RawWaker::new(std::ptr::dangling(), &VTABLE)
        },
        |_| (),
        |_| (),
        |pointer| assert!(pointer.is_null(), "the destructor of a clone"),
    );
    // SAFETY: the functions look at nothing but whether the pointer is null.
    let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) };
    ON_CLONE.set(Some(Box::new(on_clone)));
    let polled = catch_unwind(AssertUnwindSafe(|| {
        pin!(future).poll(&mut Context::from_waker(&waker))
    }));
    match polled {
        Ok(Poll::Ready(output)) => output,
        Ok(Poll::Pending) => panic!("the clone has ended the wait"),
        Err(_) => panic!("the panic of the clone got out"),
    }
}

/// What a wait is for may come while its waker is cloned.
#[test]
fn the_destructor_of_a_clone_during_which_the_wait_ended_is_recorded() {
    let (sender, receiver) = bounded(1);
    let sends = move || sender.send(7).unwrap();
    let received = poll_while_cloning(receiver.recv_async(), sends);
    assert_eq!(received.unwrap(), 7);

    let (sender, receiver) = bounded::<u8>(1);
    let received = poll_while_cloning(receiver.recv_async(), || drop(sender));
    assert!(matches!(received, Err(RecvError::Closed)));

    let (sender, receiver) = bounded(1);
    sender.send(1).unwrap();
    let other = receiver.clone();
    poll_while_cloning(sender.send_async(2), move || drop(other.recv())).unwrap();
    assert_eq!(receiver.recv().unwrap(), 2);
    sender.send(3).unwrap();
    let sent = poll_while_cloning(sender.send_async(4), || drop(receiver));
    assert_eq!(sent.unwrap_err().into_inner(), 4);

    let (sender, mut receiver) = broadcast(1);
    let sends = move || assert_eq!(sender.send(5), 1);
    let received = poll_while_cloning(receiver.recv_async(), sends);
    assert_eq!(*received.unwrap(), 5);

    let (sender, mut receiver) = watch(1);
    let changed = poll_while_cloning(receiver.changed_async(), move || sender.send(6));
    assert_eq!(*changed.unwrap(), 6);
}
