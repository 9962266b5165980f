//! What forks and tasks inherit.

use jobtree_pool::{Pool, join, scope, spawn, user_context, with_user_context, yield_now};

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
                let user = std::ptr::without_provenance(address);
                // SAFETY: the pointer is only compared.
                unsafe { with_user_context(user, || everywhere(depth, address)) };
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
        let user: *const () = std::ptr::without_provenance(64);
        let in_context = || {
            scope(|s| {
                // SAFETY: the pointer is only compared.
                unsafe {
                    with_user_context(std::ptr::without_provenance(128), || {
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
        unsafe { with_user_context(user, in_context) };
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
                with_user_context(std::ptr::without_provenance(64), || {
                    std::panic::resume_unwind(Box::new(()))
                })
            }
        });
        assert!(caught.is_err() && user_context().is_null());
    });
}

#[test]
fn outside_of_a_pool_there_is_none() {
    assert!(user_context().is_null());
}
