//! Loom models of permits: handing over, and giving up.

use std::pin::pin;
use std::task::Poll;

use loom::thread;

use crate::modelling::{Failure, Parked, block, check, poll_once};
use crate::step::Step;
use crate::sync::permits::{Permits, Taking};

/// Permits come back while the one who waits for them gives up: the next one gets them.
#[test]
fn loom_permits_go_to_the_next_if_the_first_gives_up() {
    check(
        4,
        &[
            (Step::PermitsReturned, Failure::Assertion),
            (Step::NextLooks, Failure::Assertion),
        ],
        || {
            let permits = std::sync::Arc::new(Permits::new(1));
            let parked = Parked::silent();
            let mut wants_many = Box::pin(Taking::new(&permits, 2));
            assert!(poll_once(wants_many.as_mut(), &parked).is_pending());
            let mut wants_two = pin!(Taking::new(&permits, 2));
            assert!(poll_once(wants_two.as_mut(), &parked).is_pending());
            let gives = {
                let permits = permits.clone();
                thread::spawn(move || permits.add(1))
            };
            drop(wants_many);
            gives.join().expect("no panic");
            assert_eq!(poll_once(wants_two.as_mut(), &parked), Poll::Ready(true));
            assert_eq!((permits.free(), permits.waiting()), (0, 0));

            // Who is behind one who wanted too much.
            let permits = Permits::new(1);
            let mut too_many = Box::pin(Taking::new(&permits, 3));
            assert!(poll_once(too_many.as_mut(), &parked).is_pending());
            let mut one = pin!(Taking::new(&permits, 1));
            assert!(poll_once(one.as_mut(), &parked).is_pending());
            drop(too_many);
            assert_eq!(poll_once(one.as_mut(), &parked), Poll::Ready(true));
        },
    );
}

/// Two who lock and unlock: neither is forgotten, and never both are in.
#[test]
fn loom_a_lock_is_held_by_one_and_given_to_the_other() {
    check(3, &[(Step::DoneReleases, Failure::Race)], || {
        let permits = std::sync::Arc::new(Permits::new(1));
        let inside = std::sync::Arc::new(loom::cell::UnsafeCell::new(0));
        let work = |permits: &Permits, inside: &loom::cell::UnsafeCell<u32>| {
            assert!(block(pin!(Taking::new(permits, 1)), true));
            // SAFETY: loom checks that nobody else is in.
            inside.with_mut(|count| unsafe { *count += 1 });
            permits.give(1);
        };
        let other = {
            let (permits, inside) = (permits.clone(), inside.clone());
            thread::spawn(move || work(&permits, &inside))
        };
        work(&permits, &inside);
        other.join().expect("no panic");
        assert_eq!((permits.free(), permits.waiting()), (1, 0));
    });
}
