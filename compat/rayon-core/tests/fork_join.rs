//! What rayon promises of closures and jobtree alone would not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use rayon_core::{Scope, ScopeFifo, ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder, join};

fn pool_of(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap()
}

/// Forks a tree in which every leaf panics with its number, and counts the leaves that ran.
fn panicking_tree(first: usize, leaves: usize, ran: &AtomicUsize) {
    if leaves == 1 {
        ran.fetch_add(1, Ordering::Relaxed);
        std::panic::panic_any(first);
    }
    let left = leaves / 2;
    join(
        || panicking_tree(first, left, ran),
        || panicking_tree(first + left, leaves - left, ran),
    );
}

#[test]
fn both_closures_run_and_the_first_panic_wins_at_every_depth() {
    // Deep enough for forks that are shared, kept, and plain calls.
    const LEAVES: usize = 256;
    // Panics are meant to happen here; their messages would only bury others.
    std::panic::set_hook(Box::new(|_| ()));
    for threads in [1, 2, 5] {
        let pool = pool_of(threads);
        for _ in 0..20 {
            let ran = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.install(|| panicking_tree(0, LEAVES, &ran))
            }));
            assert_eq!(ran.into_inner(), LEAVES);
            assert_eq!(result.unwrap_err().downcast_ref::<usize>(), Some(&0));
        }
    }
}

#[test]
fn types_can_be_sent_and_shared_as_upstream() {
    fn is_send_and_sync<T: Send + Sync>() {}
    fn is_send<T: Send>() {}
    is_send_and_sync::<ThreadPool>();
    is_send_and_sync::<ThreadPoolBuildError>();
    is_send_and_sync::<Scope<'static>>();
    is_send_and_sync::<ScopeFifo<'static>>();
    is_send::<rayon_core::ThreadBuilder>();
}

#[test]
fn a_pool_says_what_the_calling_thread_is_to_it() {
    let (pool, other) = (pool_of(2), pool_of(1));
    assert_eq!(pool.current_thread_index(), None);
    assert_eq!(pool.yield_now(), None);
    assert_eq!(pool.current_thread_has_pending_tasks(), None);
    other.install(|| {
        assert_eq!(pool.current_thread_index(), None);
        assert_eq!(pool.yield_local(), None);
        assert_eq!(other.current_thread_index(), Some(0));
        assert_eq!(other.current_thread_has_pending_tasks(), Some(false));
        other.spawn(|| ());
        assert_eq!(other.current_thread_has_pending_tasks(), Some(true));
        assert_eq!(other.yield_local(), Some(rayon_core::Yield::Executed));
        assert_eq!(other.yield_local(), Some(rayon_core::Yield::Idle));
    });
}

#[test]
fn a_broadcast_comes_after_the_threads_own_tasks() {
    let pool = pool_of(1);
    let (sender, receiver) = channel();
    pool.install(|| {
        for name in ["own, older", "own, newer"] {
            let sender = sender.clone();
            rayon_core::spawn(move || sender.send(name).unwrap());
        }
        rayon_core::spawn_broadcast(move |_| sender.send("broadcast").unwrap());
    });
    let order: Vec<_> = receiver.into_iter().collect();
    assert_eq!(order, ["own, newer", "own, older", "broadcast"]);
}
