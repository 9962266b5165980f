//! Channels, `select!`, locks and notifications without jobs and pools: what Miri can run, with threads that wait by hand.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::budget::ChannelPermit;
use crate::channel::core::Overflow;
use crate::channel::operation::{RecvOperation, SendOperation};
use crate::channel::shared::Shared;
use crate::channel::{BroadcastRecvError, broadcast, watch};
use crate::select::{RecvClause, Selecting, SendClause};
use crate::sync::permits::{Permits, Taking};
use crate::sync::{Barrier, Mutex, Notify, RwLock, Semaphore};
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

/// The number of threads that a test of locks, notifications and barriers uses.
const THREADS: usize = 3;

/// A value that only its guards protect: Miri sees a race if they do not.
fn add_one(count: &mut Box<usize>) {
    **count += 1;
}

#[test]
fn notifications_reach_each_waiter_once() {
    let notify = Notify::new();
    let told = AtomicUsize::new(0);
    thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                for _ in 0..COUNT {
                    block(pin!(notify.notified())).unwrap();
                    told.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // One that is given while nothing waits is kept, and a second one is not: so each waits until the last one was taken.
        for given in 0..THREADS * COUNT {
            notify.notify_one();
            while told.load(Ordering::Relaxed) <= given {
                thread::yield_now();
            }
        }
    });
    assert_eq!((told.into_inner(), notify.waiting()), (THREADS * COUNT, 0));
}

#[test]
fn notifications_that_are_given_up_go_to_others_and_all_means_all() {
    let notify = Notify::new();
    let mut waits: Vec<_> = (0..4).map(|_| Box::pin(notify.notified())).collect();
    for wait in &mut waits {
        assert!(poll_once(wait.as_mut()).is_pending());
    }
    assert_eq!(notify.waiting(), 4);
    // From the middle of the list; then one that was told goes without having looked, and the next one is told instead.
    drop(waits.remove(1));
    notify.notify_one();
    drop(waits.remove(0));
    assert!(poll_once(waits[0].as_mut()).is_ready());
    assert!(poll_once(waits[1].as_mut()).is_pending());
    notify.notify_all();
    assert!(poll_once(waits[1].as_mut()).is_ready());
    assert_eq!(notify.waiting(), 0);
}

#[test]
fn a_barrier_opens_when_all_have_come_and_has_one_leader() {
    let barrier = Barrier::new(THREADS);
    let (leaders, come) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let rounds = COUNT.min(200);
    thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                for round in 1..=rounds {
                    come.fetch_add(1, Ordering::Relaxed);
                    let arrival = block(pin!(barrier.wait_async())).unwrap();
                    leaders.fetch_add(usize::from(arrival.is_leader()), Ordering::Relaxed);
                    assert!(come.load(Ordering::Relaxed) >= round * THREADS);
                }
            });
        }
    });
    assert_eq!(leaders.into_inner(), rounds);
    // One that leaves has not come.
    let pair = Barrier::new(2);
    let mut gone = Box::pin(pair.wait_async());
    assert!(poll_once(gone.as_mut()).is_pending());
    drop(gone);
    let (mut first, mut second) = (Box::pin(pair.wait_async()), Box::pin(pair.wait_async()));
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_ready() && poll_once(first.as_mut()).is_ready());
}

#[test]
fn writers_are_alone_and_readers_see_whole_values() {
    let lock = RwLock::new((Box::new(0), Box::new(0)));
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..COUNT {
                    let mut pair = block(pin!(lock.write_async())).unwrap();
                    add_one(&mut pair.0);
                    add_one(&mut pair.1);
                }
            });
            s.spawn(|| {
                for _ in 0..COUNT {
                    let pair = block(pin!(lock.read_async())).unwrap();
                    assert_eq!(pair.0, pair.1);
                }
            });
        }
    });
    assert_eq!(*lock.into_inner().0, 2 * COUNT);
}

#[test]
fn owned_guards_keep_what_they_guard() {
    let mutex = Arc::new(Mutex::new(Box::new(0)));
    let lock = Arc::new(RwLock::new(Box::new(0)));
    let permits = Arc::new(Semaphore::new(1));
    let threads = (0..THREADS).map(|_| {
        let (mutex, lock, permits) = (mutex.clone(), lock.clone(), permits.clone());
        thread::spawn(move || {
            for _ in 0..COUNT {
                add_one(&mut block(pin!(mutex.clone().lock_owned_async())).unwrap());
                add_one(&mut block(pin!(lock.clone().write_owned_async())).unwrap());
                let seen = block(pin!(lock.clone().read_owned_async())).unwrap();
                assert!(**seen > 0);
                let permit = block(pin!(permits.clone().acquire_owned_async(1))).unwrap();
                assert_eq!((permit.count(), permits.available()), (1, 0));
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(permits.available(), 1);
    // The guards are the last to know of them.
    let mut guard = mutex.try_lock_owned().unwrap();
    drop(mutex);
    add_one(&mut guard);
    assert_eq!(**guard, THREADS * COUNT + 1);
    let guard = block(pin!(lock.read_owned_async())).unwrap();
    assert_eq!(**guard, THREADS * COUNT);
    // A wait for one that is given up.
    let mutex = Arc::new(Mutex::new(Box::new(0)));
    let held = mutex.try_lock_owned().unwrap();
    let mut waits = Box::pin(mutex.clone().lock_owned_async());
    assert!(poll_once(waits.as_mut()).is_pending());
    drop(waits);
    drop(held);
    assert_eq!(Arc::strong_count(&mutex), 1);
    assert!(!mutex.is_locked());
}

#[test]
fn broadcast_values_come_to_all_receivers_in_order() {
    let (sender, receiver) = broadcast::<Box<usize>>(THREADS * COUNT);
    thread::scope(|s| {
        for _ in 0..THREADS {
            let mut receiver = sender.subscribe();
            s.spawn(move || {
                for number in 0..COUNT {
                    assert_eq!(**block(pin!(receiver.recv_async())).unwrap(), number);
                }
                let end = block(pin!(receiver.recv_async()));
                assert!(matches!(end, Err(BroadcastRecvError::Closed)));
            });
        }
        drop(receiver);
        for number in 0..COUNT {
            sender.send(Box::new(number));
        }
        drop(sender);
    });
    // What no receiver has taken goes with the last end; one that is too slow is told how much it has missed.
    let (sender, mut receiver) = broadcast::<Box<usize>>(2);
    for number in 0..5 {
        sender.send(Box::new(number));
    }
    assert!(matches!(
        receiver.try_recv(),
        Some(Err(BroadcastRecvError::Lagged(3)))
    ));
    assert_eq!(**receiver.try_recv().unwrap().unwrap(), 3);
    drop(sender);
    drop(receiver);
}

#[test]
fn watchers_see_the_last_value_and_the_end() {
    let (sender, receiver) = watch(Box::new(0));
    thread::scope(|s| {
        for _ in 0..THREADS {
            let mut receiver = sender.subscribe();
            s.spawn(move || {
                let mut last = 0;
                while let Ok(value) = block(pin!(receiver.changed_async())) {
                    assert!(**value > last);
                    last = **value;
                }
                assert_eq!((last, **receiver.get()), (COUNT, COUNT));
            });
        }
        drop(receiver);
        for number in 1..=COUNT {
            sender.send(Box::new(number));
        }
        drop(sender);
    });
}
