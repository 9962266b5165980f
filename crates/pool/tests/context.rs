//! What forks and tasks inherit.

use jobtree_pool::{
    Pool, UserContext, broadcast, in_place_scope, isolate, join, scope, spawn, user_context,
    with_user_context, yield_now,
};

/// A context with this address for a pointer, and without a stop signal.
fn pointing_to(address: usize) -> UserContext<'static> {
    UserContext {
        user: std::ptr::without_provenance(address),
        stop: None,
    }
}

/// Forks until many of them were stolen; each must see the pointer.
fn everywhere(depth: u32, expected: usize) {
    assert_eq!(user_context().addr(), expected);
    if depth > 0 {
        join(
            || everywhere(depth - 1, expected),
            || everywhere(depth - 1, expected),
        );
        assert_eq!(user_context().addr(), expected, "a fork leaves no trace");
    }
}

#[test]
fn forks_inherit_the_pointer_wherever_they_run() {
    let pool = Pool::builder().workers(4).build().unwrap();
    let (first, second) = (1_u8, 2_u8);
    let depth = if cfg!(miri) { 4 } else { 12 };
    pool.scope(|s| {
        for user in [&raw const first, &raw const second] {
            let address = user.addr();
            s.spawn(move |_| {
                // SAFETY: the pointer is only compared.
                unsafe { with_user_context(pointing_to(address), || everywhere(depth, address)) };
                assert!(user_context().is_null(), "installed for the call only");
            });
        }
    });
}

#[test]
fn tasks_of_a_scope_inherit_the_scopes_pointer_and_detached_ones_none() {
    let pool = Pool::builder().workers(2).build().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    pool.install(|| {
        let in_context = || {
            scope(|s| {
                // SAFETY: the pointer is only compared.
                unsafe {
                    with_user_context(pointing_to(128), || {
                        s.spawn(|_| assert_eq!(user_context().addr(), 64));
                        assert_eq!(user_context().addr(), 128);
                    });
                }
            });
            spawn(move || sender.send(user_context().addr()).unwrap());
            yield_now();
            assert_eq!(user_context().addr(), 64, "other work leaves no trace");
        };
        // SAFETY: the pointer is only compared.
        unsafe { with_user_context(pointing_to(64), in_context) };
    });
    assert_eq!(receiver.recv().unwrap(), 0);
}

#[test]
fn a_panic_takes_the_pointer_away() {
    let pool = Pool::builder().workers(1).build().unwrap();
    pool.install(|| {
        let caught = std::panic::catch_unwind(|| {
            // SAFETY: the pointer is only compared.
            unsafe {
                with_user_context(pointing_to(64), || std::panic::resume_unwind(Box::new(())))
            }
        });
        assert!(caught.is_err() && user_context().is_null());
    });
}

#[test]
fn a_thread_outside_has_a_context_of_its_own_and_takes_it_along() {
    let pool = Pool::builder().workers(2).build().unwrap();
    assert!(user_context().is_null());
    let in_context = || {
        assert_eq!(user_context().addr(), 64);
        std::thread::scope(|threads| {
            threads.spawn(|| assert!(user_context().is_null(), "another thread has its own"));
        });
        pool.install(|| everywhere(5, 64));
        pool.join(|| everywhere(5, 64), || everywhere(5, 64));
        pool.in_place_scope(|s| s.spawn(|_| everywhere(5, 64)));
        // Who looks for leaks wants all threads to end, and those of the global pool do not.
        if !cfg!(miri) && !cfg!(feature = "sanitizer") {
            join(|| everywhere(5, 64), || everywhere(5, 64));
            in_place_scope(|s| s.spawn(|_| everywhere(5, 64)));
            let seen = broadcast(|_| user_context().addr());
            assert!(seen.into_iter().all(|address| address == 64));
        }
        isolate(|| assert_eq!(user_context().addr(), 64));
        // SAFETY: the pointer is only compared.
        unsafe { with_user_context(pointing_to(128), || pool.install(|| everywhere(5, 128))) };
        assert_eq!(user_context().addr(), 64);
    };
    // SAFETY: the pointer is only compared.
    unsafe { with_user_context(pointing_to(64), in_context) };
    assert!(user_context().is_null(), "installed for the call only");
    assert!(pool.install(user_context_is_null), "and for its own work");
}

fn user_context_is_null() -> bool {
    user_context().is_null()
}

#[test]
fn another_pool_and_isolated_code_inherit_the_pointer() {
    let (here, there) = (
        Pool::builder().workers(1).build().unwrap(),
        Pool::builder().workers(2).build().unwrap(),
    );
    here.install(|| {
        let in_context = || {
            there.install(|| everywhere(5, 64));
            isolate(|| {
                everywhere(5, 64);
                there.install(|| everywhere(5, 64));
            });
        };
        // SAFETY: the pointer is only compared.
        unsafe { with_user_context(pointing_to(64), in_context) };
    });
    assert!(there.install(user_context_is_null));
}
