//! A panic in any item reaches the caller, and no value is lost or dropped twice.

mod common;

use std::ops::ControlFlow;

use common::{Alive, on_every_pool, panic_message, quiet_panics};
use jobtree_par::{self as par, Grain};
use jobtree_pool::{OnceLatch, Pool};

const LENGTHS: [usize; 6] = [1, 2, 3, 17, 64, 300];

/// Runs `body` for some lengths, and for positions to panic at.
fn at_every_position(body: impl Fn(usize, usize) + Sync) {
    quiet_panics();
    on_every_pool(|| {
        for len in LENGTHS {
            for position in (0..len).step_by(len.div_ceil(40)) {
                body(len, position);
            }
        }
    });
}

fn panic_at(position: usize, index: usize) {
    if position == index {
        panic!("on purpose at {index}");
    }
}

#[test]
fn panics_reach_the_caller_from_every_kind_of_loop() {
    at_every_position(|len, position| {
        let expected = format!("on purpose at {position}");
        let check = |body: &dyn Fn()| assert_eq!(panic_message(body), expected);
        let over = || par::over(0..len).grain(Grain::of(1));
        check(&|| over().for_each(|index| panic_at(position, index)));
        check(&|| {
            over().map(|index| panic_at(position, index)).count();
        });
        check(&|| {
            over().any(|index| {
                panic_at(position, index);
                false
            });
        });
        check(&|| {
            over()
                .filter(|index| {
                    panic_at(position, *index);
                    true
                })
                .collect();
        });
        check(&|| {
            let _ = over().try_for_each(|index| {
                panic_at(position, index);
                Ok::<(), ()>(())
            });
        });
    });
}

#[test]
fn a_panic_while_collecting_drops_what_was_made() {
    at_every_position(|len, position| {
        let alive = Alive::default();
        let mut collected = vec![alive.track(7)];
        let message = panic_message(|| {
            par::over(0..len)
                .grain(Grain::of(2))
                .map(|index| {
                    panic_at(position, index);
                    alive.track(index)
                })
                .collect_into(&mut collected);
        });
        assert_eq!(message, format!("on purpose at {position}"));
        assert_eq!((collected.len(), alive.count()), (1, 1));

        panic_message(|| {
            par::over(0..len)
                .map(|index| {
                    panic_at(position, index);
                    alive.track(index)
                })
                .filter(|tracked| tracked.value % 3 != 0)
                .collect_into(&mut collected);
        });
        assert_eq!((collected.len(), alive.count()), (1, 1));
    });
}

#[test]
fn a_panic_while_draining_drops_the_rest() {
    at_every_position(|len, position| {
        let alive = Alive::default();
        let mut values: Vec<_> = (0..len).map(|index| alive.track(index)).collect();
        panic_message(|| {
            par::drain(&mut values)
                .grain(Grain::of(1))
                .for_each(|tracked| panic_at(position, tracked.value));
        });
        assert!(values.is_empty());
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn what_is_collected_and_drained_is_dropped_once() {
    on_every_pool(|| {
        for len in common::lengths() {
            let alive = Alive::default();
            let mut values = par::map(0..len, |index| alive.track(index));
            assert_eq!(alive.count(), len as isize);
            let (even, odd) = par::drain(&mut values).partition(|tracked| tracked.value % 2 == 0);
            assert_eq!((even.len(), odd.len()), (len.div_ceil(2), len / 2));
            assert_eq!(alive.count(), len as isize);
            drop(odd);
            let mut even = even;
            let found = par::drain(&mut even).find_any(|tracked| tracked.value * 2 >= len);
            assert_eq!(alive.count(), isize::from(found.is_some()));
            drop(found);

            let mut places = par::map(0..len, |_| alive.track(0));
            par::over(0..len)
                .map(|index| alive.track(index))
                .write_to(&mut places);
            assert_eq!(alive.count(), len as isize);
            let backwards: Vec<usize> = (0..len).rev().collect();
            par::over(0..len)
                .map(|index| alive.track(index))
                .scatter_to(&backwards, &mut places)
                .unwrap();
            assert_eq!(alive.count(), len as isize);
            drop(places);
            assert_eq!(alive.count(), 0);
        }
    });
}

#[test]
fn an_unfinished_loop_over_values_drops_them() {
    let alive = Alive::default();
    let mut values: Vec<_> = (0..10).map(|index| alive.track(index)).collect();
    let unused = par::drain(&mut values).map(|tracked| tracked.value);
    drop(unused);
    assert_eq!(alive.count(), 0);
}

#[test]
fn a_source_that_lies_about_its_length_is_caught() {
    /// Says that it has more items than it gives.
    struct Liar(u8);

    impl par::Source for Liar {
        type Item = u8;
        fn len(&self) -> usize {
            usize::from(self.0)
        }
        fn split_at(self, index: usize) -> (Self, Self) {
            (Liar(index as u8), Liar(self.0 - index as u8))
        }
        fn items(self) -> impl Iterator<Item = u8> {
            0..self.0 / 2
        }
        fn items_from_back(self) -> impl Iterator<Item = u8> {
            (0..self.0 / 2).rev()
        }
    }

    quiet_panics();
    let message = panic_message(|| {
        par::over(Liar(100)).collect();
    });
    assert!(message.contains("fewer items than it said"), "{message}");
}

/// Panics when it is dropped.
#[derive(PartialEq, Eq)]
struct Bomb(usize);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose in a destructor");
    }
}

impl PartialOrd for Bomb {
    fn partial_cmp(&self, other: &Bomb) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bomb {
    fn cmp(&self, other: &Bomb) -> std::cmp::Ordering {
        panic_at(100, self.0);
        self.0.cmp(&other.0)
    }
}

#[test]
fn values_dropped_because_of_a_panic_may_panic_in_their_destructors() {
    quiet_panics();
    const LEN: usize = 300;
    on_every_pool(|| {
        for position in [0, 7, 100, LEN - 1] {
            let expected = format!("on purpose at {position}");
            let check = |body: &dyn Fn()| assert_eq!(panic_message(body), expected);
            let over = || par::over(0..LEN).grain(Grain::of(1));
            let make = |index| {
                panic_at(position, index);
                Bomb(index)
            };
            let bombs = || (0..LEN).map(Bomb).collect::<Vec<_>>();
            check(&|| drop(over().map(make).collect()));
            check(&|| drop(over().flat_map(|index| Some(make(index))).collect()));
            check(&|| drop(over().map(make).partition(|bomb| bomb.0 % 2 == 0)));
            check(&|| {
                let all = over().map(Bomb);
                drop(all.partition(|bomb| {
                    panic_at(position, bomb.0);
                    true
                }));
            });
            check(&|| {
                par::drain(&mut bombs())
                    .grain(Grain::of(1))
                    .for_each(|bomb| {
                        let index = bomb.0;
                        std::mem::forget(bomb);
                        panic_at(position, index);
                    });
            });
            check(&|| {
                let operation = |left: Bomb, right: Bomb| {
                    let index = right.0;
                    std::mem::forget(right);
                    if index == position.max(1) {
                        // In a frame of the program's it would end the process.
                        std::mem::forget(left);
                        panic!("on purpose at {position}");
                    }
                    left
                };
                drop(over().map(Bomb).reduce(operation));
            });
            let captured = || Bomb(0);
            check(&|| {
                let captured = captured();
                let uses = move |index| {
                    let whole = &captured;
                    (index, whole.0)
                };
                over()
                    .map(uses)
                    .for_each(|(index, _)| panic_at(position, index));
            });
        }
        // A comparison of keys.
        let mut items: Vec<usize> = (0..LEN).rev().collect();
        let sort = || par::sort_by_cached_key(&mut items, |item| Bomb(*item));
        assert_eq!(panic_message(sort), "on purpose at 100");
    });
}

#[test]
fn values_dropped_because_of_an_error_may_panic_in_their_destructors() {
    quiet_panics();
    on_every_pool(|| {
        let make = |index| {
            if index == 100 {
                Err(index)
            } else {
                Ok(Bomb(index))
            }
        };
        let collected = par::over(0..300_usize)
            .grain(Grain::of(1))
            .map(make)
            .try_collect();
        assert_eq!(collected.err(), Some(100));
        assert_eq!(par::try_join(|| make(100), || make(1)).err(), Some(100));
        assert_eq!(par::try_join(|| make(1), || make(100)).err(), Some(100));
        let each = par::try_join_each([1, 2, 100, 3, 100].map(|index| move || make(index)));
        assert_eq!(each.err(), Some(100));
    });
}

#[test]
fn the_items_of_an_iterator_may_panic_in_their_destructors() {
    quiet_panics();
    on_every_pool(|| {
        for position in [0, 7, 100, 299] {
            let expected = format!("on purpose at {position}");
            let check = |body: &dyn Fn()| assert_eq!(panic_message(body), expected);
            let bombs = || (0..300).map(Bomb);
            let handle = |bomb: Bomb| {
                let index = bomb.0;
                std::mem::forget(bomb);
                panic_at(position, index);
            };
            check(&|| par::bridge(bombs()).for_each(handle));
            check(&|| {
                // In a frame of the program's a bomb would end the process.
                let results = par::bridge(bombs()).map(|bomb| {
                    handle(bomb);
                    Bomb(0)
                });
                drop(results);
            });
            check(&|| {
                let ends = (0..300).map(|index| {
                    panic_at(position, index);
                    Bomb(index)
                });
                par::bridge(ends).for_each(std::mem::forget);
            });
            check(&|| {
                struct Collection;
                impl FromIterator<Bomb> for Collection {
                    fn from_iter<I: IntoIterator<Item = Bomb>>(bombs: I) -> Collection {
                        for bomb in bombs {
                            let index = bomb.0;
                            std::mem::forget(bomb);
                            panic_at(7, index);
                        }
                        Collection
                    }
                }
                let collect = || {
                    let _: Collection = par::over(0..300_usize).map(Bomb).collect_as();
                };
                assert_eq!(panic_message(collect), "on purpose at 7");
                panic_at(position, position);
            });
        }
    });
}

/// Makes both halves of a loop over two items end with a value, whatever the scheduler does: each handles its item only when the
/// other one has begun, too.
struct BothHalves {
    pool: Pool,
}

impl BothHalves {
    fn new() -> BothHalves {
        quiet_panics();
        let pool = Pool::builder().workers(2).build().unwrap();
        BothHalves { pool }
    }

    /// Runs `body` with a loop over 0 and 1.
    fn run<R: Send>(
        &self,
        body: impl FnOnce(
            par::Loop<std::ops::Range<usize>, par::Map<par::AsIs, &(dyn Fn(usize) -> usize + Sync)>>,
        ) -> R
        + Send,
    ) -> R {
        let begun = [OnceLatch::new(), OnceLatch::new()];
        let meet: &(dyn Fn(usize) -> usize + Sync) = &|index| {
            begun[index].set();
            begun[1 - index].wait();
            index
        };
        self.pool
            .install(|| body(par::over(0..2).grain(Grain::of(1)).map(meet)))
    }
}

#[test]
fn the_losers_of_a_search_may_panic_in_their_destructors() {
    let halves = BothHalves::new();
    let found = halves.run(|both| both.map(Bomb).find_any(|_| true));
    assert_eq!(found.map(defuse), Some(0));
    let found = halves.run(|both| both.map(Bomb).find_first(|_| true));
    assert_eq!(found.map(defuse), Some(0));
    let found = halves.run(|both| both.map(Bomb).find_last(|_| true));
    assert_eq!(found.map(defuse), Some(1));
    let ended = halves.run(|both| both.for_each_until(|index| ControlFlow::Break(Bomb(index))));
    assert_eq!(ended.break_value().map(defuse), Some(0));
    let ended = halves.run(|both| both.try_for_each(|index| Err(Bomb(index))));
    assert_eq!(ended.map_err(defuse), Err(0));
    let ended = halves.run(|both| both.map(|index| Err::<(), _>(Bomb(index))).try_collect());
    assert_eq!(ended.map_err(defuse), Err(0));
}

/// Returns the number of a bomb, which does not explode.
fn defuse(bomb: Bomb) -> usize {
    let index = bomb.0;
    std::mem::forget(bomb);
    index
}

#[test]
fn the_losers_of_a_comparison_may_panic_in_their_destructors() {
    quiet_panics();
    on_every_pool(|| {
        // A comparison with 100 panics.
        let bombs = || par::over(0..90_usize).map(Bomb);
        assert_eq!(bombs().min().map(defuse), Some(0));
        assert_eq!(bombs().max().map(defuse), Some(89));
        assert_eq!(bombs().min_by(Ord::cmp).map(defuse), Some(0));
        assert_eq!(bombs().max_by(Ord::cmp).map(defuse), Some(89));
        let key = |bomb: &Bomb| Bomb(89 - bomb.0);
        assert_eq!(bombs().min_by_key(key).map(defuse), Some(89));
        assert_eq!(bombs().max_by_key(key).map(defuse), Some(0));
    });
}

#[test]
fn items_that_a_closure_looks_at_may_panic_in_their_destructors() {
    quiet_panics();
    on_every_pool(|| {
        for position in [0, 7, 100, 299] {
            let expected = format!("on purpose at {position}");
            let check = |body: &dyn Fn()| assert_eq!(panic_message(body), expected);
            let bombs = || par::over(0..300_usize).grain(Grain::of(1)).map(Bomb);
            let look = |bomb: &Bomb| {
                panic_at(position, bomb.0);
                // The others stay: a destructor's panic would come out, as that of any closure.
                false
            };
            let only = || {
                par::over(position..position + 1)
                    .grain(Grain::of(1))
                    .map(Bomb)
            };
            check(&|| assert!(only().find_any(look).is_none()));
            check(&|| assert!(only().find_first(look).is_none()));
            check(&|| assert!(only().find_last(look).is_none()));
            let compare = |a: &Bomb, b: &Bomb| {
                panic_at(position.max(1), b.0.max(a.0));
                a.0.cmp(&b.0)
            };
            if position > 0 {
                check(&|| assert!(bombs().min_by(compare).is_none()));
                check(&|| assert!(bombs().max_by(compare).is_none()));
            }
            let key = |bomb: &Bomb| panic_at(position, bomb.0);
            check(&|| assert!(bombs().min_by_key(key).is_none()));
            check(&|| assert!(bombs().max_by_key(key).is_none()));
        }
    });
}

#[test]
fn the_state_of_a_mapped_loop_may_panic_in_its_destructor() {
    quiet_panics();
    on_every_pool(|| {
        for position in [0, 7, 100, 299] {
            let expected = format!("on purpose at {position}");
            let loops = || par::over(0..300_usize).grain(Grain::of(1));
            let handle = |_: &mut Bomb, index| {
                panic_at(position, index);
                Bomb(index)
            };
            let check = |body: &dyn Fn()| assert_eq!(panic_message(body), expected);
            check(&|| drop(loops().map_init(|| Bomb(0), handle).collect()));
            let look = |_: &mut Bomb, index| panic_at(position, index);
            check(&|| loops().map_init(|| Bomb(0), look).for_each(|()| ()));
            let keep = |state: &mut Bomb, index| state.0 + index;
            let sum = loops().map_init(|| Bomb(1), keep).sum::<usize>();
            assert_eq!(sum, 300 + 299 * 150);
            let first = loops().map_init(|| Bomb(0), |_, index| Bomb(index)).first();
            assert_eq!(first.map(defuse), Some(0));
        }
    });
}
