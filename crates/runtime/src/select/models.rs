//! Loom models of `select!`: pairing, one winner, and giving up.

use std::pin::pin;
use std::task::Poll;

use loom::thread;

use crate::budget::ChannelPermit;
use crate::channel::core::Overflow;
use crate::channel::shared::Shared;
use crate::modelling::{Failure, Parked, block, check, poll_once};
use crate::select::channels::{RecvClause, SendClause};
use crate::select::selecting::Selecting;
use crate::step::Step;
use crate::withdraw::Operation;

fn rendezvous() -> std::sync::Arc<Shared<u32>> {
    Shared::new(0, Overflow::Wait, ChannelPermit::unlimited())
}

/// Two selects that could meet on either of two channels meet on one of them.
#[test]
fn loom_two_selects_that_face_each_other_meet_once() {
    check(5, &[(Step::OneHold, Failure::Deadlock)], || {
        let (a, b) = (rendezvous(), rendezvous());
        let other = {
            let (a, b) = (a.clone(), b.clone());
            thread::spawn(move || {
                let mut receives = pin!(RecvClause::new(&a));
                let mut sends = pin!(SendClause::new(&b, Some(2), None));
                let set = (sends.as_mut(), (receives.as_mut(), ()));
                let winner = block(pin!(Selecting::new(set, 0)), true);
                match winner {
                    0 => (2, 0),
                    _ => match receives.take_output() {
                        Some(Ok(value)) => (0, value),
                        _ => panic!("nobody has closed it"),
                    },
                }
            })
        };
        let mut sends = pin!(SendClause::new(&a, Some(1), None));
        let mut receives = pin!(RecvClause::new(&b));
        let set = (sends.as_mut(), (receives.as_mut(), ()));
        let winner = block(pin!(Selecting::new(set, 0)), false);
        let (sent, received) = match winner {
            0 => (1, 0),
            _ => match receives.take_output() {
                Some(Ok(value)) => (0, value),
                _ => panic!("nobody has closed it"),
            },
        };
        let theirs = other.join().expect("no panic");
        assert_eq!((sent, received), (theirs.1, theirs.0), "one effect each");
        let met = a.stats().sent + b.stats().sent;
        assert_eq!(met, 1);
    });
}

/// Two senders find the same select in two channels: one of them has won it, the other has not sent.
#[test]
fn loom_one_of_two_counterparts_wins() {
    check(5, &[(Step::ClaimFirst, Failure::Assertion)], || {
        let (a, b) = (rendezvous(), rendezvous());
        let mut from_a = pin!(RecvClause::new(&a));
        let mut from_b = pin!(RecvClause::new(&b));
        let won = {
            let set = (from_a.as_mut(), (from_b.as_mut(), ()));
            let mut selecting = pin!(Selecting::new(set, 0));
            let parked = Parked::silent();
            assert!(poll_once(selecting.as_mut(), &parked).is_pending());
            let senders = [(a.clone(), 1), (b.clone(), 2)]
                .map(|(shared, value)| thread::spawn(move || shared.try_send(value).is_ok()));
            let sent = senders.map(|sender| sender.join().expect("no panic"));
            assert_ne!(sent[0], sent[1], "one has won");
            match poll_once(selecting.as_mut(), &parked) {
                Poll::Ready(winner) => {
                    assert!(sent[winner], "the wrong one");
                    winner
                }
                Poll::Pending => panic!("it was won, but does not know it"),
            }
        };
        let output = match won {
            0 => from_a.take_output(),
            _ => from_b.take_output(),
        };
        assert_eq!(output.and_then(Result::ok), Some(won as u32 + 1));
        let waiting = a.stats().receivers_waiting + b.stats().receivers_waiting;
        assert_eq!(waiting, 0);
    });
}

/// A select that gives up knows whether it was won.
#[test]
fn loom_a_select_that_gives_up_knows_whether_it_was_won() {
    check(5, &[(Step::WithdrawFirst, Failure::Assertion)], || {
        let (a, b) = (rendezvous(), rendezvous());
        let mut from_a = pin!(RecvClause::new(&a));
        let mut from_b = pin!(RecvClause::new(&b));
        let sent;
        let winner = {
            let set = (from_a.as_mut(), (from_b.as_mut(), ()));
            let mut selecting = pin!(Selecting::new(set, 0));
            assert!(poll_once(selecting.as_mut(), &Parked::silent()).is_pending());
            let sender = {
                let b = b.clone();
                thread::spawn(move || b.try_send(2).is_ok())
            };
            let winner = selecting.as_mut().withdraw();
            sent = sender.join().expect("no panic");
            winner
        };
        assert_eq!(winner, sent.then_some(1), "lost, or made up");
        let received = from_b.take_output().and_then(Result::ok);
        assert_eq!(received, sent.then_some(2));
    });
}

/// A select that is woken for nothing begins anew, while a counterpart comes: it is found in either state.
#[test]
fn loom_a_select_that_begins_anew_is_not_missed() {
    check(5, &[(Step::OneHold, Failure::Deadlock)], || {
        let (a, b) = (rendezvous(), rendezvous());
        let sender = {
            let b = b.clone();
            thread::spawn(move || {
                let mut sends = pin!(SendClause::new(&b, Some(2), None));
                let set = (sends.as_mut(), ());
                assert_eq!(block(pin!(Selecting::new(set, 0)), false), 0);
            })
        };
        let mut from_a = pin!(RecvClause::new(&a));
        let mut from_b = pin!(RecvClause::new(&b));
        let set = (from_a.as_mut(), (from_b.as_mut(), ()));
        assert_eq!(block(pin!(Selecting::new(set, 0)), true), 1);
        assert_eq!(from_b.take_output().and_then(Result::ok), Some(2));
        sender.join().expect("no panic");
    });
}
