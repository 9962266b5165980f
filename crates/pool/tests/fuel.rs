//! Fuel: what runs on a strand burns its own, and who has used up a turn comes after the others.

mod watchdog;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};

use jobtree_pool::raw::fuel::{self, Meter, Turn, burn, give_way, meter, with_meter};
use jobtree_pool::{Pool, Yield, join, scope, yield_now};
use watchdog::Watchdog;

fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

fn pool(workers: usize) -> Pool {
    Pool::builder().workers(workers).build().unwrap()
}

const OP: Turn = Turn {
    ops: 1,
    ..Turn::EMPTY
};

fn small(ops: u32) -> Turn {
    Turn {
        ops,
        channel_ops: 2,
        syscalls: 1,
    }
}

fn refilling(turn: Turn) -> Meter {
    Meter {
        turn,
        refills: true,
        account: std::ptr::null(),
        gate: None,
        share: std::ptr::null(),
    }
}

/// [`with_meter`] with a meter that points nowhere.
fn metered<R>(meter: Meter, body: impl FnOnce() -> R) -> R {
    assert!(meter.account.is_null());
    // SAFETY: nobody follows the pointer.
    unsafe { with_meter(meter, body) }
}

fn ops_left() -> u32 {
    fuel::fuel().unwrap().ops
}

#[test]
fn a_thread_that_is_no_worker_never_runs_out() {
    assert_eq!(fuel::fuel(), None);
    assert!(burn(small(u32::MAX)));
    assert_eq!(give_way(), None);
    metered(refilling(Turn::EMPTY), || assert!(burn(OP)));
}

#[test]
fn burning_is_all_or_nothing() {
    let _watch = watch();
    pool(1).install(|| {
        metered(refilling(small(10)), || {
            assert!(!burn(small(11)));
            assert_eq!(fuel::fuel(), Some(small(10)));
            assert!(burn(small(4)));
            assert_eq!(ops_left(), 6);
            // The others are used up.
            assert!(!burn(small(1)));
            assert!(burn(Turn { ops: 6, ..OP }));
            assert!(!burn(OP));
        });
        assert_eq!(fuel::fuel(), Some(Turn::OPEN), "as before");
    });
}

#[test]
fn a_panic_leaves_the_fuel_as_it_was() {
    let _watch = watch();
    pool(1).install(|| {
        let before = fuel::fuel();
        let panicked = std::panic::catch_unwind(|| {
            metered(refilling(Turn::EMPTY), || {
                std::panic::resume_unwind(Box::new(1))
            })
        });
        assert!(panicked.is_err());
        assert_eq!(fuel::fuel(), before);
        assert_eq!(meter().turn, Turn::OPEN);
    });
}

#[test]
fn stolen_forks_and_tasks_have_the_turn_of_their_context() {
    let _watch = watch();
    pool(2).install(|| {
        metered(refilling(small(10)), || {
            let both = Barrier::new(2);
            // Neither returns before the other has begun, and a barrier blocks its thread: so there are two.
            let side = || {
                both.wait();
                let left = ops_left();
                burn(Turn {
                    ops: left,
                    ..Turn::EMPTY
                });
                left
            };
            assert_eq!(join(side, side), (10, 10));
            assert_eq!(ops_left(), 0, "this side burnt its own");
            scope(|s| {
                s.spawn(|_| {
                    // On top of the waiting frame, which has nothing left.
                    assert_eq!(ops_left(), 10);
                    burn(OP);
                });
            });
        });
    });
}

#[test]
fn a_strand_that_goes_on_begins_a_new_turn_if_its_meter_refills() {
    let _watch = watch();
    let pool = pool(1);
    for refills in [true, false] {
        pool.install(|| {
            let (sender, ran) = mpsc::channel();
            let meter = Meter {
                refills,
                ..refilling(small(10))
            };
            metered(meter, || {
                burn(Turn { ops: 7, ..OP });
                jobtree_pool::spawn(move || sender.send(ops_left()).unwrap());
                while ran
                    .try_recv()
                    .map(|left| assert_eq!(left, Turn::OPEN.ops))
                    .is_err()
                {
                    yield_now();
                }
                assert_eq!(ops_left(), if refills { 10 } else { 3 });
            });
        });
    }
}

/// Two strands give way to each other for ever; a task in the deque must get its turn all the same.
#[test]
#[cfg_attr(
    not(jobtree_stacks),
    ignore = "where stacks cannot be switched, nobody gives way at the end of a turn"
)]
fn fresh_tasks_come_before_those_that_have_used_up_a_turn() {
    let _watch = watch();
    let pool = pool(1);
    let done = AtomicUsize::new(0);
    let order = std::sync::Mutex::new(Vec::new());
    pool.install(|| {
        scope(|s| {
            for task in 0..3 {
                let (order, done) = (&order, &done);
                s.spawn(move |_| {
                    order.lock().unwrap().push(task);
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
            // The newest ones, so they begin.
            for _ in 0..2 {
                s.spawn(|_| {
                    while done.load(Ordering::Relaxed) < 3 {
                        give_way();
                    }
                });
            }
        });
    });
    assert_eq!(
        order.into_inner().unwrap(),
        [2, 1, 0],
        "the owner's newest first"
    );
}

#[test]
fn giving_way_with_nobody_there_returns_at_once() {
    let _watch = watch();
    pool(1).install(|| {
        assert_eq!(give_way(), Some(Yield::Idle));
        jobtree_pool::isolate(|| {
            jobtree_pool::spawn(|| ());
            assert_eq!(
                give_way(),
                Some(Yield::Idle),
                "nobody may have the thread here"
            );
        });
    });
}

/// The exhausted wait behind a strand that yields all the time, but not for ever.
#[test]
#[cfg_attr(
    not(jobtree_stacks),
    ignore = "where stacks cannot be switched, nobody gives way at the end of a turn"
)]
fn neither_side_starves() {
    let _watch = watch();
    let pool = pool(1);
    let is_over = AtomicBool::new(false);
    let turns = AtomicUsize::new(0);
    let yields = AtomicUsize::new(0);
    pool.install(|| {
        scope(|s| {
            s.spawn(|_| {
                while !is_over.load(Ordering::Relaxed) {
                    yields.fetch_add(1, Ordering::Relaxed);
                    yield_now();
                }
            });
            for _ in 0..3 {
                s.spawn(|_| {
                    while turns.fetch_add(1, Ordering::Relaxed) < 100 {
                        give_way();
                    }
                    is_over.store(true, Ordering::Relaxed);
                });
            }
        });
    });
    assert!(yields.into_inner() > 0);
}
