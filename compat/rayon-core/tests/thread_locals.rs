//! Thread-locals that are set for the time of a call are found as they were left: what begins on a thread during a wait ends before
//! the wait does.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use rayon_core::ThreadPoolBuilder;
use scoped_tls::scoped_thread_local;

scoped_thread_local!(static REQUEST: usize);

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static PATH: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Some work that others steal parts of, so that its callers wait.
fn work(depth: usize) -> usize {
    if depth == 0 {
        return std::hint::black_box(1);
    }
    let (a, b) = rayon_core::join(|| work(depth - 1), || work(depth - 1));
    a + b
}

/// Handles a request with the request in a thread-local, and looks at it after each wait.
fn handle(request: usize) -> usize {
    REQUEST.set(&request, || {
        let mut done = 0;
        for _ in 0..4 {
            done += work(6);
            assert_eq!(
                REQUEST.with(|found| *found),
                request,
                "somebody else's request"
            );
        }
        done
    })
}

/// Enters a span at each level, and leaves it after the forks below it.
fn nest(level: usize) {
    let outer = DEPTH.replace(level);
    let place = PATH.with_borrow_mut(|path| {
        path.push(level);
        path.len()
    });
    if level < 8 {
        rayon_core::join(|| nest(level + 1), || nest(level + 1));
    }
    let left = PATH.with_borrow_mut(|path| (path.len(), path.pop()));
    assert_eq!(
        left,
        (place, Some(level)),
        "spans are left in the order in which they were entered"
    );
    assert_eq!(DEPTH.replace(outer), level);
}

fn all_of_it() {
    for _ in 0..20 {
        let done: usize = (0..200_usize).into_par_iter().map(handle).sum();
        assert_eq!(done, 200 * 4 * 64);
        rayon_core::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|_| nest(1));
            }
        });
    }
}

#[test]
fn on_the_global_pool() {
    ThreadPoolBuilder::new()
        .num_threads(4)
        .build_global()
        .unwrap();
    rayon_core::scope(|_| all_of_it());
}

#[test]
fn on_a_pool_of_the_programs_own() {
    let pool = ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    pool.install(all_of_it);
}

#[test]
fn between_two_pools() {
    let [first, second] = [3, 2].map(|threads| {
        ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
    });
    let installed = AtomicUsize::new(0);
    first.install(|| {
        (0..100_usize).into_par_iter().for_each(|request| {
            REQUEST.set(&request, || {
                installed.fetch_add(second.install(|| work(4)), Ordering::Relaxed);
                assert_eq!(REQUEST.with(|found| *found), request);
            });
        });
    });
    assert_eq!(installed.into_inner(), 1600);
}
