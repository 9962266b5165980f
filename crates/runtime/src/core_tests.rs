//! Channels, `select!` and permits without jobs and pools: what Miri can run, with threads that wait by hand.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::budget::ChannelPermit;
use crate::channel::core::Overflow;
use crate::channel::operation::{RecvOperation, SendOperation};
use crate::channel::shared::Shared;
use crate::select::{RecvClause, Selecting, SendClause};
use crate::sync::permits::{Permits, Taking};
use crate::withdraw::Operation;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn block<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// How many values a test sends.
const COUNT: usize = if cfg!(miri) { 20 } else { 2000 };

#[test]
fn values_cross_threads_through_waiting_ends() {
    for room in [0, 1, 3] {
        let shared = Shared::new(room, Overflow::Wait, ChannelPermit::unlimited());
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for number in 0..COUNT {
                        let sending = SendOperation::tried(&shared, Box::new(number));
                        assert!(block(pin!(sending)).is_ok());
                    }
                });
            }
            let mut sum = 0;
            for _ in 0..2 * COUNT {
                sum += *block(pin!(RecvOperation::tried(&shared))).unwrap();
            }
            assert_eq!(sum, COUNT * (COUNT - 1));
        });
    }
}

#[test]
fn operations_that_give_up_leave_the_lists_in_order() {
    let shared = Shared::new(0, Overflow::Wait, ChannelPermit::unlimited());
    let mut operations: Vec<_> = (0..5)
        .map(|number| Box::pin(SendOperation::tried(&shared, Box::new(number))))
        .collect();
    for operation in &mut operations {
        assert!(poll_once(operation.as_mut()).is_pending());
    }
    // From the middle, the end and the beginning.
    drop(operations.remove(2));
    assert!(operations[3].as_mut().withdraw().is_none());
    assert_eq!(
        operations[3].as_mut().take_value().as_deref(),
        Some(&4),
        "the sender keeps it"
    );
    drop(operations.remove(0));
    assert_eq!(shared.try_recv().ok().as_deref(), Some(&1));
    assert_eq!(shared.try_recv().ok().as_deref(), Some(&3));
    assert!(shared.try_recv().is_err());
    assert!(operations.iter_mut().take(2).all(|operation| {
        matches!(operation.as_mut().withdraw(), Some(Ok(())))
            && operation.as_mut().take_value().is_none()
    }));

    let mut told = Box::pin(RecvOperation::tried(&shared));
    assert!(poll_once(told.as_mut()).is_pending());
    assert!(shared.try_send(Box::new(7)).is_ok());
    drop(told);
    assert_eq!(shared.try_recv().ok().as_deref(), Some(&7), "handed back");
}

#[test]
fn closing_ends_every_wait() {
    let shared = Shared::<Box<u8>>::new(0, Overflow::Wait, ChannelPermit::unlimited());
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| assert!(block(pin!(RecvOperation::tried(&shared))).is_err()));
        }
        while shared.stats().receivers_waiting < 3 {
            thread::yield_now();
        }
        assert!(shared.close());
    });
}

#[test]
fn selects_meet_in_pairs() {
    let channels: [Arc<Shared<Box<usize>>>; 2] =
        std::array::from_fn(|_| Shared::new(0, Overflow::Wait, ChannelPermit::unlimited()));
    let play = |a: &Shared<Box<usize>>, b: &Shared<Box<usize>>, start: usize| {
        let mut received = 0;
        for round in 0..COUNT {
            let mut sends = pin!(SendClause::new(a, Some(Box::new(round + start)), None));
            let mut receives = pin!(RecvClause::new(b));
            let set = (sends.as_mut(), (receives.as_mut(), ()));
            let winner = block(pin!(Selecting::new(set, round % 2)));
            received += match winner {
                0 => 0,
                _ => *receives.take_output().unwrap().unwrap(),
            };
        }
        received
    };
    let [a, b] = &channels;
    let (first, second) = thread::scope(|s| {
        let other = s.spawn(|| play(b, a, COUNT));
        (play(a, b, 0), other.join().unwrap())
    });
    let met = a.stats().sent + b.stats().sent;
    assert_eq!(met, COUNT as u64, "each round of each has one effect");
    assert_eq!(
        a.stats().received + b.stats().received,
        met,
        "{first} {second}"
    );
}

#[test]
fn permits_are_never_in_two_hands() {
    let permits = Permits::new(1);
    let count = std::cell::UnsafeCell::new(0);
    struct Shareable<T>(T);
    // SAFETY: the permit guards what is inside; that is what the test is about, and Miri would see a race.
    unsafe impl<T> Sync for Shareable<T> {}
    let shared = Shareable((&permits, &count));
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let shared = &shared;
                let (permits, count) = shared.0;
                for _ in 0..COUNT {
                    assert!(block(pin!(Taking::new(permits, 1))));
                    // SAFETY: we have the only permit.
                    unsafe { *count.get() += 1 };
                    permits.give(1);
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 3 * COUNT);
    assert_eq!((permits.free(), permits.waiting()), (1, 0));
}
