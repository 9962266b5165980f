//! Futures of the library that are dropped by an unwinding, each with the last clone of a waker whose destructor panics.
#![cfg(all(unix, not(miri)))]

mod support;

use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use jobtree_runtime::channel::{bounded, rendezvous};
use jobtree_runtime::sync::{Mutex, Semaphore};
use jobtree_runtime::{CancelToken, Runtime, future, select_async, sleep};
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
