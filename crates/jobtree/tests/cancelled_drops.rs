//! Loops in a job that is cancelled, over values whose destructors panic: the process lives, every value is dropped, and every
//! panic is recorded.

#[path = "../../par/tests/common/mod.rs"]
mod common;

use std::mem::forget;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use common::quiet_panics;
use jobtree::par::{self, Grain};
use jobtree::user_code::caught_panics;
use jobtree::{Job, Runtime};

const LEN: usize = 2000;

/// Counts the bombs that were made, and those that went off.
#[derive(Default)]
struct Arsenal {
    made: AtomicUsize,
    dropped: AtomicUsize,
}

/// Panics when it is dropped.
struct Bomb<'a>(&'a Arsenal);

impl Arsenal {
    fn bomb(&self) -> Bomb<'_> {
        self.made.fetch_add(1, Ordering::Relaxed);
        Bomb(self)
    }

    /// Ends a bomb that the program itself has; in a frame of the program's a second panic would end the process.
    fn defuse(&self, bomb: Bomb<'_>) {
        self.made.fetch_sub(1, Ordering::Relaxed);
        forget(bomb);
    }
}

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
        panic!("on purpose in a destructor");
    }
}

fn cancel_current() {
    Job::current().expect("a job").cancel("enough");
}

/// Runs `body` in jobs on pools of several sizes; `body` calls what it is given for each item, which cancels the job at one.
fn assert_all_recorded(body: impl Fn(&Arsenal, &(dyn Fn(usize) + Sync)) + Sync) {
    // The panics are counted for the whole process.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    quiet_panics();
    for workers in [1, 2, 4] {
        let runtime = Runtime::builder().workers(workers).build().unwrap();
        for cancel_at in [0, 1, LEN / 3, LEN / 2] {
            let arsenal = Arsenal::default();
            let before = caught_panics();
            let visit = |index: usize| {
                if index == cancel_at {
                    cancel_current();
                }
            };
            let job = || {
                body(&arsenal, &visit);
                // If the last block had begun before the cancellation, the loop has ended; the next does not begin.
                par::over(0..LEN).for_each(|_| ());
                Ok(())
            };
            let outcome = runtime.nursery(|n| Ok(n.spawn(job).join())).unwrap();
            let error = outcome.expect_err("the job was cancelled");
            assert!(error.is_cancelled(), "{error}");
            let (made, dropped) = (arsenal.made.into_inner(), arsenal.dropped.into_inner());
            assert_eq!(made, dropped, "{workers} workers, cancelled at {cancel_at}");
            assert_eq!(caught_panics() - before, dropped as u64);
        }
    }
}

#[test]
fn collect() {
    assert_all_recorded(|arsenal, visit| {
        let made = par::over(0..LEN).grain(Grain::of(1)).map(|index| {
            visit(index);
            arsenal.bomb()
        });
        made.collect().into_iter().for_each(|it| arsenal.defuse(it));
    });
}

#[test]
fn try_collect() {
    assert_all_recorded(|arsenal, visit| {
        let made = par::over(0..LEN).grain(Grain::of(1)).map(|index| {
            visit(index);
            Ok::<_, ()>(arsenal.bomb())
        });
        let made = made.try_collect().unwrap();
        made.into_iter().for_each(|it| arsenal.defuse(it));
    });
}

#[test]
fn flat_map_and_partition() {
    assert_all_recorded(|arsenal, visit| {
        let made = par::over(0..LEN).grain(Grain::of(1)).flat_map(|index| {
            visit(index);
            Some((index, arsenal.bomb()))
        });
        let (even, odd) = made.partition(|(index, _)| index % 2 == 0);
        let all = even.into_iter().chain(odd);
        all.for_each(|(_, it)| arsenal.defuse(it));
    });
}

#[test]
fn fold() {
    assert_all_recorded(|arsenal, visit| {
        let folded = par::over(0..LEN).grain(Grain::of(1)).fold(
            || arsenal.bomb(),
            |state, index| {
                visit(index);
                state
            },
            |left, right| {
                arsenal.defuse(right);
                left
            },
        );
        arsenal.defuse(folded);
    });
}

#[test]
fn reduce() {
    assert_all_recorded(|arsenal, visit| {
        let made = par::over(0..LEN).grain(Grain::of(1)).map(|index| {
            visit(index);
            arsenal.bomb()
        });
        let reduced = made.reduce(|left, right| {
            arsenal.defuse(right);
            left
        });
        reduced.into_iter().for_each(|it| arsenal.defuse(it));
    });
}

#[test]
fn for_each_over_what_is_drained_from_a_vec() {
    assert_all_recorded(|arsenal, visit| {
        let mut bombs: Vec<_> = (0..LEN).map(|index| (index, arsenal.bomb())).collect();
        let drained = par::drain(&mut bombs).grain(Grain::of(1));
        drained.for_each(|(index, bomb)| {
            arsenal.defuse(bomb);
            visit(index);
        });
    });
}

#[test]
fn a_sort_by_cached_keys() {
    assert_all_recorded(|arsenal, visit| {
        struct Key<'a>(usize, #[expect(dead_code, reason = "dropped")] Bomb<'a>);
        impl PartialEq for Key<'_> {
            fn eq(&self, other: &Self) -> bool {
                self.0 == other.0
            }
        }
        impl Eq for Key<'_> {}
        impl PartialOrd for Key<'_> {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Ord for Key<'_> {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.0.cmp(&other.0)
            }
        }
        let mut items: Vec<usize> = (0..LEN).rev().collect();
        par::sort_by_cached_key(&mut items, |item| {
            visit(*item);
            Key(*item, arsenal.bomb())
        });
    });
}
