//! Loops that end early do end, and look at no more than they say.

mod common;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};

use common::{lengths, on_every_pool};
use jobtree_par::{self as par, Grain};
use jobtree_pool::Pool;

/// Runs `body` in a pool of two whose other worker is kept busy, so that what `body` does is the same each time.
fn with_the_other_worker_busy(body: impl FnOnce() + Send) {
    let pool = Pool::builder().workers(2).build().unwrap();
    let both_are_there = Barrier::new(2);
    let (done, wait_until_done) = mpsc::channel::<()>();
    pool.join(
        || {
            both_are_there.wait();
            let _done_even_if_it_panics = done;
            body();
        },
        {
            let both_are_there = &both_are_there;
            move || {
                both_are_there.wait();
                let _ = wait_until_done.recv();
            }
        },
    );
}

/// How many items `run` looks at when it searches among `len` for the one at `wanted`.
fn looked_at(run: impl FnOnce(&(dyn Fn(usize) -> bool + Sync)), wanted: usize) -> usize {
    let looked_at = AtomicUsize::new(0);
    run(&|index| {
        looked_at.fetch_add(1, Ordering::Relaxed);
        index == wanted
    });
    looked_at.into_inner()
}

#[test]
fn one_worker_looks_at_nothing_behind_the_end() {
    const LEN: usize = 100_000;
    with_the_other_worker_busy(|| {
        for wanted in [0, 1, 100, 5000, 49_999, 50_000, 99_999] {
            let seen = looked_at(|hit| assert!(par::over(0..LEN).any(hit)), wanted);
            assert_eq!(seen, wanted + 1, "any");
            let seen = looked_at(
                |hit| assert_eq!(par::over(0..LEN).find_first(|i| hit(*i)), Some(wanted)),
                wanted,
            );
            assert_eq!(seen, wanted + 1, "find_first");
            let seen = looked_at(
                |hit| assert_eq!(par::over(0..LEN).find_last(|i| hit(*i)), Some(wanted)),
                wanted,
            );
            assert_eq!(seen, LEN - wanted, "find_last");
            let seen = looked_at(
                |hit| {
                    let failed =
                        par::over(0..LEN).try_for_each(|i| if hit(i) { Err(i) } else { Ok(()) });
                    assert_eq!(failed, Err(wanted));
                },
                wanted,
            );
            assert_eq!(seen, wanted + 1, "try_for_each");
            let seen = looked_at(
                |hit| {
                    let failed = par::over(0..LEN)
                        .map(|i| if hit(i) { Err(i) } else { Ok(i) })
                        .try_collect();
                    assert_eq!(failed, Err(wanted));
                },
                wanted,
            );
            assert_eq!(seen, wanted + 1, "try_collect");
        }
    });
}

#[test]
fn another_worker_stops_within_a_block() {
    const LEN: usize = 100_000;
    let pool = Pool::builder().workers(2).build().unwrap();
    // The loop's end becomes known a few instructions after the item that ends it. Should the system take the worker
    // away just there, the other one goes on meanwhile; that does not happen every time.
    let stopped = (0..50).any(|_| {
        let ended = AtomicBool::new(false);
        let after_the_end = AtomicUsize::new(0);
        let outcome = pool.install(|| {
            par::over(0..LEN).for_each_until(|index| {
                if index == LEN - 1 {
                    ended.store(true, Ordering::SeqCst);
                    return ControlFlow::Break(index);
                }
                if index == LEN / 4 {
                    // Whoever has this one waits for the other worker to end the loop.
                    while !ended.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                }
                if ended.load(Ordering::SeqCst) {
                    after_the_end.fetch_add(1, Ordering::Relaxed);
                }
                ControlFlow::Continue(())
            })
        });
        assert_eq!(outcome, ControlFlow::Break(LEN - 1));
        after_the_end.into_inner() <= 64
    });
    assert!(stopped, "the other worker never stops");
}

#[test]
fn the_first_error_wins_even_if_a_later_one_comes_earlier() {
    on_every_pool(|| {
        for len in lengths() {
            for first in [0, len / 3, len.saturating_sub(1)] {
                let result = par::over(0..len)
                    .grain(Grain::of(1))
                    .try_for_each(|index| if index >= first { Err(index) } else { Ok(()) });
                assert_eq!(result, if first < len { Err(first) } else { Ok(()) });
                let result = par::over(0..len)
                    .map(|index| {
                        if index >= first {
                            Err(index)
                        } else {
                            Ok(index)
                        }
                    })
                    .try_collect();
                let expected = if first < len { Err(first) } else { Ok(vec![]) };
                assert_eq!(result, expected);
            }
            assert_eq!(
                par::over(0..len).map(Ok::<usize, ()>).try_collect(),
                Ok((0..len).collect())
            );
        }
    });
}

#[test]
fn everything_before_the_first_error_is_handled() {
    on_every_pool(|| {
        let handled: Vec<AtomicBool> = (0..5000).map(|_| AtomicBool::new(false)).collect();
        let result = par::over(&handled)
            .enumerate()
            .try_for_each(|(index, handled)| {
                handled.store(true, Ordering::Relaxed);
                if index % 1000 == 777 {
                    Err(index)
                } else {
                    Ok(())
                }
            });
        assert_eq!(result, Err(777));
        assert!(handled[..=777].iter().all(|h| h.load(Ordering::Relaxed)));
    });
}

#[test]
fn both_sides_end_before_an_error_is_returned() {
    on_every_pool(|| {
        let other_has_ended = AtomicBool::new(false);
        let result = par::try_join(
            || Err::<(), _>("left"),
            || {
                other_has_ended.store(true, Ordering::Relaxed);
                Err::<(), _>("right")
            },
        );
        assert_eq!(result, Err("left"));
        assert!(other_has_ended.into_inner());
        let each =
            par::try_join_each([1, 2, 3].map(|n| move || if n == 1 { Ok(n) } else { Err(n) }));
        assert_eq!(each, Err(2));
    });
}
