//! Loom models of permits, notifications and barriers: handing over, and giving up.

use std::pin::pin;
use std::task::Poll;

use loom::thread;

use crate::modelling::{Failure, Parked, block, check, poll_once};
use crate::step::Step;
use crate::sync::Barrier;
use crate::sync::barrier::Arriving;
use crate::sync::notify::{Notification, Notify};
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

/// A notification comes while the first one gives up: the next one has it.
#[test]
fn loom_a_notification_goes_to_the_next_if_the_first_gives_up() {
    check(
        3,
        &[(Step::NotificationPassedOn, Failure::Assertion)],
        || {
            let notify = std::sync::Arc::new(Notify::new());
            let parked = Parked::silent();
            let mut first = Box::pin(Notification::new(&notify));
            assert!(poll_once(first.as_mut(), &parked).is_pending());
            let mut second = pin!(Notification::new(&notify));
            assert!(poll_once(second.as_mut(), &parked).is_pending());
            let notifies = {
                let notify = notify.clone();
                thread::spawn(move || notify.notify_one())
            };
            drop(first);
            notifies.join().expect("no panic");
            assert!(poll_once(second.as_mut(), &parked).is_ready());
            assert_eq!(notify.waiting(), 0);
        },
    );
}

/// All are notified while one begins to wait: it had begun its wait before, so it is one of them.
#[test]
fn loom_a_wait_that_has_begun_does_not_miss_a_notification_of_all() {
    check(3, &[(Step::GenerationCounts, Failure::Deadlock)], || {
        let notify = std::sync::Arc::new(Notify::new());
        let wait = Notification::new(&notify);
        let notifies = {
            let notify = notify.clone();
            thread::spawn(move || notify.notify_all())
        };
        block(pin!(wait), true);
        notifies.join().expect("no panic");
    });
}

/// One is notified after all were, some of whom are not woken yet: it is another one that has it.
#[test]
fn loom_a_notification_of_one_is_not_spent_on_one_of_all() {
    check(3, &[(Step::EarlierFirst, Failure::Assertion)], || {
        let notify = std::sync::Arc::new(Notify::new());
        let parked = Parked::silent();
        let mut early = pin!(Notification::new(&notify));
        assert!(poll_once(early.as_mut(), &parked).is_pending());
        notify.begin_notify_all();
        let wakes = {
            let notify = notify.clone();
            thread::spawn(move || notify.wake_earlier())
        };
        notify.notify_one();
        wakes.join().expect("no panic");
        assert!(poll_once(early.as_mut(), &parked).is_ready());
        let mut late = pin!(Notification::new(&notify));
        assert!(poll_once(late.as_mut(), &parked).is_ready());
    });
}

/// The last one arrives while another one gives up: either both pass, or the last one waits for a third.
#[test]
fn loom_one_that_gives_up_at_a_barrier_has_passed_or_was_not_counted() {
    check(3, &[(Step::CountedStays, Failure::Assertion)], || {
        let barrier = std::sync::Arc::new(Barrier::new(2));
        let parked = Parked::silent();
        let mut first = Box::pin(Arriving::new(&barrier));
        assert!(poll_once(first.as_mut(), &parked).is_pending());
        let arrives = {
            let barrier = barrier.clone();
            thread::spawn(move || {
                let mut last = Box::pin(Arriving::new(&barrier));
                poll_once(last.as_mut(), &Parked::silent()).is_ready()
            })
        };
        drop(first);
        arrives.join().expect("no panic");
        // Nobody is there any more, so two can pass, and not one.
        let mut third = Box::pin(Arriving::new(&barrier));
        assert!(poll_once(third.as_mut(), &parked).is_pending());
        let mut fourth = Box::pin(Arriving::new(&barrier));
        assert!(poll_once(fourth.as_mut(), &parked).is_ready());
        assert!(poll_once(third.as_mut(), &parked).is_ready());
    });
}
