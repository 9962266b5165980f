//! Tests of the kernels by themselves; small enough for Miri.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::pool::Pool;
use crate::worker::with_worker;

/// The factor by which inputs may be larger where tests run at full speed.
const SCALE: usize = if cfg!(miri) { 1 } else { 40 };

fn on_every_pool(body: impl Fn() + Sync) {
    let counts: &[usize] = if cfg!(miri) { &[2] } else { &[1, 2, 3] };
    for &workers in counts {
        let pool = Pool::builder().workers(workers).build().unwrap();
        pool.install(&body);
    }
}

/// A seeded generator (SplitMix64).
fn random_numbers(seed: usize, len: usize, limit: u64) -> Vec<u64> {
    let mut state = seed as u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    (0..len).map(|_| next() % limit).collect()
}

/// Boxed, so that a value that is lost or doubled is seen by Miri or by the allocator.
fn boxed(numbers: impl IntoIterator<Item = usize>) -> impl Iterator<Item = Box<usize>> {
    numbers.into_iter().map(Box::new)
}

mod slots {
    use super::*;

    #[test]
    fn pieces_filled_in_any_order_become_the_whole() {
        let mut vec = vec![Box::new(100)];
        fill_vec(&mut vec, 6, |slots| {
            let (left, right) = slots.split_at(2);
            let (middle, right) = right.split_at(3);
            assert_eq!((left.len(), middle.len(), right.is_empty()), (2, 3, false));
            let right = right.fill(boxed([5]));
            let left = left.fill(boxed([0, 1]));
            let middle = middle.fill(boxed([2, 3, 4]));
            left.append(middle.append(right))
        });
        assert!(vec.iter().map(|n| **n).eq([100, 0, 1, 2, 3, 4, 5]));
    }

    #[test]
    fn nothing_at_all_is_fine() {
        let mut vec: Vec<Box<usize>> = Vec::new();
        fill_vec(&mut vec, 0, |slots| slots.fill(boxed([])));
        fill_vec(&mut vec, 0, |_| Filled::nothing());
        assert!(vec.is_empty());
        assert_eq!(Filled::drain(&mut vec).into_iter().len(), 0);
    }

    #[test]
    fn more_items_than_places_are_not_asked_for() {
        let mut vec = Vec::new();
        fill_vec(&mut vec, 2, |slots| slots.fill(boxed(0..)));
        assert_eq!(vec.len(), 2);
    }

    #[test]
    fn a_missing_item_is_noticed_and_the_others_are_dropped() {
        let missing_at = |missing: usize| {
            let mut vec = vec![Box::new(7)];
            let result = catch_unwind(AssertUnwindSafe(|| {
                fill_vec(&mut vec, 4, |slots| {
                    let (left, right) = slots.split_at(2);
                    let left = left.fill(boxed(0..if missing < 2 { missing } else { 2 }));
                    let right = right.fill(boxed(0..if missing < 2 { 2 } else { missing - 2 }));
                    left.append(right)
                });
            }));
            assert!(result.is_err());
            assert_eq!(vec.len(), 1);
        };
        (0..4).for_each(missing_at);
    }

    #[test]
    fn values_of_another_vector_do_not_pass_for_ours() {
        // Only something that lives for ever has the lifetime for it, so it is made to, for a while.
        let other = Box::into_raw(Box::new(boxed(0..3).collect::<Vec<_>>()));
        let mut vec: Vec<Box<usize>> = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: just made, and not freed before this has ended.
            fill_vec(&mut vec, 3, |_| Filled::drain(unsafe { &mut *other }));
        }));
        assert!(result.is_err());
        assert!(vec.is_empty());
        // SAFETY: it came out of a box, and it is no longer in use.
        drop(unsafe { Box::from_raw(other) });
    }

    #[test]
    fn a_panic_drops_what_was_filled() {
        for panics_at in 0..5 {
            let mut vec = Vec::new();
            let result = catch_unwind(AssertUnwindSafe(|| {
                fill_vec(&mut vec, 5, |slots| {
                    slots.fill(boxed(0..5).inspect(|n| assert_ne!(**n, panics_at, "on purpose")))
                });
            }));
            assert!(result.is_err());
            assert!(vec.is_empty());
        }
    }

    #[test]
    fn a_vector_is_taken_apart() {
        let mut vec: Vec<Box<usize>> = boxed(0..10).collect();
        let capacity = vec.capacity();
        {
            let (left, right) = Filled::drain(&mut vec).split_at(4);
            drop(left);
            let mut right = right.into_iter();
            assert_eq!(right.next().as_deref(), Some(&4));
            assert_eq!(right.next_back().as_deref(), Some(&9));
            assert_eq!(right.len(), 4);
        }
        assert_eq!((vec.len(), vec.capacity()), (0, capacity));
    }

    #[test]
    fn values_without_size_are_counted() {
        let mut vec = Vec::new();
        fill_vec(&mut vec, 5, |slots| {
            let (left, right) = slots.split_at(2);
            left.fill(std::iter::repeat(()))
                .append(right.fill(std::iter::repeat(())))
        });
        assert_eq!(vec.len(), 5);
        assert_eq!(Filled::drain(&mut vec).into_iter().count(), 5);
    }
}

mod claims {
    use super::*;

    #[test]
    fn a_place_is_given_out_once() {
        let mut values: Vec<Box<usize>> = boxed(0..70).collect();
        {
            let claims = Claims::new(&mut values);
            **claims.claim(3).unwrap() = 33;
            **claims.claim(69).unwrap() = 99;
            assert_eq!(claims.claim(3).unwrap_err(), ClaimError::Taken);
            assert_eq!(claims.claim(70).unwrap_err(), ClaimError::OutOfBounds);
        }
        assert_eq!((*values[3], *values[69], *values[4]), (33, 99, 4));
    }

    #[test]
    fn threads_never_get_the_same_place() {
        let mut values: Vec<Box<usize>> = boxed(0..100).collect();
        let won = AtomicUsize::new(0);
        let claims = Claims::new(&mut values);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for index in 0..100 {
                        if let Ok(place) = claims.claim(index) {
                            **place += 1;
                            won.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(won.into_inner(), 100);
        assert!(values.iter().map(|n| **n).eq(1..101));
    }
}

mod sorting {
    use super::*;

    /// Sorts pairs by their first part, in pieces.
    fn sort_pairs(pairs: &mut [(u64, Box<usize>)], halvings: u32) {
        with_worker(|worker| {
            merge_sort(
                worker,
                pairs,
                halvings,
                &|a: &(u64, _), b: &(u64, _)| a.0 < b.0,
                &|piece: &mut [(u64, _)]| piece.sort_by_key(|pair| pair.0),
            );
        });
    }

    #[test]
    fn merging_is_stable() {
        on_every_pool(|| {
            for len in [0, 1, 2, 7, 40, 300 * SCALE] {
                for halvings in 0..4 {
                    for limit in [2, u64::MAX] {
                        let numbers = random_numbers(len, len, limit);
                        let pairs = || numbers.iter().copied().zip(boxed(0..));
                        let mut sorted: Vec<_> = pairs().collect();
                        let mut expected: Vec<_> = pairs().collect();
                        sort_pairs(&mut sorted, halvings);
                        expected.sort_by_key(|pair| pair.0);
                        assert_eq!(sorted, expected, "{len} values, halved {halvings} times");
                    }
                }
            }
        });
    }

    #[test]
    fn order_between_the_pieces_is_made_use_of() {
        on_every_pool(|| {
            let len = 50 * SCALE;
            let comparisons = AtomicUsize::new(0);
            let is_less = |a: &usize, b: &usize| {
                comparisons.fetch_add(1, Ordering::Relaxed);
                a < b
            };
            let mut sorted: Vec<usize> = (0..len).collect();
            with_worker(|worker| merge_sort(worker, &mut sorted, 2, &is_less, &<[usize]>::sort));
            assert!(sorted.iter().copied().eq(0..len));

            let mut halves_swapped: Vec<usize> = (len / 2..len).chain(0..len / 2).collect();
            let swapped = &mut halves_swapped;
            with_worker(|worker| merge_sort(worker, swapped, 2, &is_less, &<[usize]>::sort));
            assert!(halves_swapped.iter().copied().eq(0..len));
            // At most two for each of the three merges, whatever the length.
            assert!(comparisons.into_inner() <= 12);
        });
    }

    #[test]
    #[allow(
        clippy::borrowed_box,
        reason = "the boxes are the values that are sorted"
    )]
    fn a_panicking_comparison_leaves_every_value_once() {
        on_every_pool(|| {
            let len = 10 * SCALE.min(20);
            for halvings in 1..4 {
                for limit in (0..).step_by(if cfg!(miri) { 11 } else { 3 }) {
                    let numbers = random_numbers(limit, len, 50);
                    let mut values: Vec<Box<u64>> = numbers.iter().copied().map(Box::new).collect();
                    let comparisons = AtomicUsize::new(0);
                    let is_less = |a: &Box<u64>, b: &Box<u64>| {
                        let count = comparisons.fetch_add(1, Ordering::Relaxed);
                        assert_ne!(count, limit, "on purpose");
                        a < b
                    };
                    let result = catch_unwind(AssertUnwindSafe(|| {
                        with_worker(|worker| {
                            let sort_piece = <[Box<u64>]>::sort;
                            merge_sort(worker, &mut values, halvings, &is_less, &sort_piece);
                        });
                    }));
                    let (mut before, mut after) = (numbers, values);
                    before.sort();
                    after.sort();
                    assert!(after.iter().map(|n| **n).eq(before), "{limit} comparisons");
                    if result.is_ok() {
                        break;
                    }
                }
            }
        });
    }

    #[test]
    fn a_panic_while_sorting_a_piece_leaves_every_value_once() {
        on_every_pool(|| {
            for panics_in in 0..4 {
                let mut values: Vec<Box<usize>> = boxed((0..64).rev()).collect();
                let piece_number = AtomicUsize::new(0);
                let result = catch_unwind(AssertUnwindSafe(|| {
                    with_worker(|worker| {
                        merge_sort(
                            worker,
                            &mut values,
                            2,
                            &|a, b| a < b,
                            &|piece: &mut [_]| {
                                let number = piece_number.fetch_add(1, Ordering::Relaxed);
                                assert_ne!(number, panics_in, "on purpose");
                                piece.sort();
                            },
                        );
                    });
                }));
                assert!(result.is_err());
                values.sort();
                assert!(values.iter().map(|n| **n).eq(0..64));
            }
        });
    }

    #[test]
    fn values_arrive_as_the_last_comparison_left_them() {
        /// Counts how often it has been compared.
        struct Counting(u64, Box<Cell<usize>>);

        on_every_pool(|| {
            let comparisons = AtomicUsize::new(0);
            let is_less = |a: &Counting, b: &Counting| {
                comparisons.fetch_add(1, Ordering::Relaxed);
                a.1.set(a.1.get() + 1);
                b.1.set(b.1.get() + 1);
                a.0 < b.0
            };
            let numbers = random_numbers(5, 60 * SCALE, 1000);
            let mut values: Vec<_> = numbers
                .iter()
                .map(|n| Counting(*n, Box::new(Cell::new(0))))
                .collect();
            with_worker(|worker| {
                let sort_piece = |piece: &mut [Counting]| piece.sort_by_key(|value| value.0);
                merge_sort(worker, &mut values, 3, &is_less, &sort_piece);
            });
            let counted: usize = values.iter().map(|value| value.1.get()).sum();
            assert_eq!(counted, 2 * comparisons.into_inner());
            assert!(values.is_sorted_by_key(|value| value.0));
        });
    }

    #[test]
    fn values_without_size_are_left_alone() {
        on_every_pool(|| {
            with_worker(|worker| {
                merge_sort(
                    worker,
                    &mut [(); 10],
                    2,
                    &|_, _| true,
                    &|piece: &mut [()]| {
                        assert_eq!(piece.len(), 10);
                    },
                );
            });
        });
    }
}

mod permuting {
    use super::*;

    #[test]
    fn values_go_where_the_order_says() {
        on_every_pool(|| {
            for len in [0, 1, 2, 10, 200, 500 * SCALE] {
                let keys = random_numbers(len, len, u64::MAX);
                let mut order: Vec<usize> = (0..len).collect();
                order.sort_by_key(|index| keys[*index]);
                let mut values: Vec<Box<usize>> = boxed(0..len).collect();
                with_worker(|worker| permute(worker, &mut values, &order));
                assert!(values.iter().map(|n| **n).eq(order));
            }
        });
    }

    #[test]
    fn what_is_no_permutation_is_refused() {
        on_every_pool(|| {
            for order in [&[0, 1][..], &[0, 1, 1], &[0, 1, 3], &[0, 1, 2, 3]] {
                let mut values: Vec<Box<usize>> = boxed(0..3).collect();
                let result = catch_unwind(AssertUnwindSafe(|| {
                    with_worker(|worker| permute(worker, &mut values, order));
                }));
                assert!(result.is_err());
                assert!(values.iter().map(|n| **n).eq(0..3));
            }
        });
    }
}
