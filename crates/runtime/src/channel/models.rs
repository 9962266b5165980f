//! Loom models of channels: the hand-over, giving up, and closing.

use std::pin::pin;
use std::task::Poll;

use loom::thread;

use crate::budget::ChannelPermit;
use crate::channel::core::Overflow;
use crate::channel::operation::{RecvOperation, SendOperation};
use crate::channel::shared::Shared;
use crate::modelling::{Failure, Parked, block, check, poll_once};
use crate::step::Step;

/// A receiver is handed a value and is dropped before it takes it: the other one, who waits behind it, must get it.
#[test]
fn loom_what_a_dropped_receiver_was_handed_goes_to_the_next() {
    check(
        5,
        &[
            (Step::HandedBack, Failure::Assertion),
            (Step::WithdrawalLooks, Failure::Assertion),
        ],
        || {
            let shared = Shared::new(1, Overflow::Wait, ChannelPermit::unlimited());
            let parked = Parked::silent();
            let mut gives_up = Box::pin(RecvOperation::tried(&shared));
            assert!(poll_once(gives_up.as_mut(), &parked).is_pending());
            let mut stays = pin!(RecvOperation::tried(&shared));
            assert!(poll_once(stays.as_mut(), &parked).is_pending());
            let sends = {
                let shared = shared.clone();
                thread::spawn(move || assert!(shared.try_send(1).is_ok()))
            };
            drop(gives_up);
            sends.join().expect("no panic");
            let received = poll_once(stays.as_mut(), &parked);
            assert!(matches!(received, Poll::Ready(Ok(1))), "lost");
            let stats = shared.stats();
            assert_eq!((stats.sent, stats.received, shared.len()), (1, 1, 0));
            assert_eq!((stats.senders_waiting, stats.receivers_waiting), (0, 0));
        },
    );
}

/// A sender that finds no room, against a receiver that makes some and then waits itself.
#[test]
fn loom_a_sender_and_a_receiver_that_both_wait_find_each_other() {
    check(5, &[(Step::LooksBeforeEntering, Failure::Deadlock)], || {
        let shared = Shared::new(1, Overflow::Wait, ChannelPermit::unlimited());
        assert!(shared.try_send(1).is_ok());
        let sends = {
            let shared = shared.clone();
            thread::spawn(move || {
                let sent = block(pin!(SendOperation::tried(&shared, 2)), false);
                assert!(sent.is_ok());
            })
        };
        let first = block(pin!(RecvOperation::tried(&shared)), true);
        let second = block(pin!(RecvOperation::tried(&shared)), true);
        assert_eq!((first.ok(), second.ok()), (Some(1), Some(2)));
        sends.join().expect("no panic");
    });
}

/// The same in a rendezvous, where the sender may be the one who is found.
#[test]
fn loom_a_rendezvous_hands_over() {
    check(5, &[(Step::LooksBeforeEntering, Failure::Deadlock)], || {
        let shared = Shared::new(0, Overflow::Wait, ChannelPermit::unlimited());
        let sends = {
            let shared = shared.clone();
            thread::spawn(move || {
                let sent = block(pin!(SendOperation::tried(&shared, 1)), true);
                assert!(sent.is_ok());
            })
        };
        let received = block(pin!(RecvOperation::tried(&shared)), true);
        assert_eq!(received.ok(), Some(1));
        sends.join().expect("no panic");
    });
}

/// Whoever waits hears of the close, and a sender has its value back.
#[test]
fn loom_close_against_waiting() {
    check(
        5,
        &[
            (Step::CloseTells, Failure::Deadlock),
            (Step::LooksBeforeEntering, Failure::Deadlock),
        ],
        || {
            let shared = Shared::new(1, Overflow::Wait, ChannelPermit::unlimited());
            assert!(shared.try_send(1).is_ok());
            let sends = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let mut sending = pin!(SendOperation::tried(&shared, 2));
                    let sent = block(sending.as_mut(), false);
                    assert!(sent.is_err(), "there was never room");
                    assert_eq!(sending.take_value(), Some(2));
                })
            };
            shared.close();
            sends.join().expect("no panic");
            assert_eq!(shared.stats().senders_waiting, 0);
            // What is there is drained.
            assert_eq!(shared.try_recv().ok(), Some(1));

            let shared = Shared::<u8>::new(1, Overflow::Wait, ChannelPermit::unlimited());
            let receives = {
                let shared = shared.clone();
                thread::spawn(move || {
                    assert!(block(pin!(RecvOperation::tried(&shared)), false).is_err());
                })
            };
            shared.close();
            receives.join().expect("no panic");
        },
    );
}

/// A sender that gives up knows whether it has sent: the value is with it, or with the receiver.
#[test]
fn loom_a_sender_that_gives_up_knows_whether_it_has_sent() {
    use crate::withdraw::Operation;
    check(5, &[(Step::WithdrawalLooks, Failure::Assertion)], || {
        let shared = Shared::new(0, Overflow::Wait, ChannelPermit::unlimited());
        let mut sending = pin!(SendOperation::tried(&shared, 1));
        assert!(poll_once(sending.as_mut(), &Parked::silent()).is_pending());
        let receives = {
            let shared = shared.clone();
            thread::spawn(move || shared.try_recv().ok())
        };
        let has_sent = match sending.as_mut().withdraw() {
            Some(result) => result.is_ok(),
            None => false,
        };
        let kept = sending.take_value();
        let received = receives.join().expect("no panic");
        assert_eq!(received.is_some(), has_sent);
        assert_eq!(kept.is_some(), !has_sent, "lost, or there twice");
        let polled = poll_once(pin!(RecvOperation::tried(&shared)), &Parked::silent());
        assert!(matches!(polled, Poll::Pending), "nothing is left behind");
    });
}

/// A receiver that looks by itself sees all of what the sender did, or nothing.
#[test]
fn loom_a_receiver_that_looks_by_itself_sees_the_value() {
    check(5, &[(Step::DoneReleases, Failure::Race)], || {
        let shared = Shared::new(0, Overflow::Wait, ChannelPermit::unlimited());
        let parked = Parked::silent();
        let mut receives = pin!(RecvOperation::tried(&shared));
        assert!(poll_once(receives.as_mut(), &parked).is_pending());
        let sends = {
            let shared = shared.clone();
            thread::spawn(move || assert!(shared.try_send(1).is_ok()))
        };
        let looked = poll_once(receives.as_mut(), &parked);
        assert!(matches!(looked, Poll::Pending | Poll::Ready(Ok(1))));
        sends.join().expect("no panic");
        if looked.is_pending() {
            let received = poll_once(receives.as_mut(), &parked);
            assert!(matches!(received, Poll::Ready(Ok(1))));
        }
    });
}
