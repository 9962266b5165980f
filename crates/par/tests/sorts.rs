//! Every sort gives what the standard library gives, and loses nothing when a comparison panics.

mod common;

use std::cmp::Ordering;
use std::sync::atomic::{AtomicUsize, Ordering as Memory};

use common::{Alive, Random, Tracked, on_every_pool, panic_message, quiet_panics};
use jobtree_par as par;

/// Lengths below and above that at which sorts begin to be cut.
const LENGTHS: [usize; 8] = [0, 1, 2, 20, 700, 4096, 4501, 9001];

/// Inputs of all kinds, of `(key, position)`.
fn inputs(len: usize) -> Vec<Vec<(u64, usize)>> {
    let mut random = Random(len as u64);
    let number = len as u64;
    let kinds: [Vec<u64>; 9] = [
        random.numbers(len, u64::MAX),
        random.numbers(len, 3),
        vec![5; len],
        (0..number).collect(),
        (0..number).rev().collect(),
        (0..number).map(|n| n / 10).collect(),
        (0..number).map(|n| (number - n) / 10).collect(),
        (0..number).map(|n| n.min(number - n)).collect(),
        (0..number)
            .map(|n| if n % 100 == 99 { n / 2 } else { n })
            .collect(),
    ];
    let with_positions = |keys: Vec<u64>| {
        keys.into_iter()
            .enumerate()
            .map(|(i, key)| (key, i))
            .collect()
    };
    kinds.map(with_positions).into()
}

fn for_all_inputs(check: impl Fn(&[(u64, usize)]) + Sync) {
    on_every_pool(|| {
        for len in LENGTHS {
            for input in inputs(len) {
                check(&input);
            }
        }
    });
}

#[test]
fn stable_sorts() {
    for_all_inputs(|input| {
        let mut expected = input.to_vec();
        expected.sort_by_key(|pair| pair.0);
        let mut sorted = input.to_vec();
        par::sort_by_key(&mut sorted, |pair| pair.0);
        assert_eq!(sorted, expected);
        let mut sorted = input.to_vec();
        par::sort_by(&mut sorted, |a, b| a.0.cmp(&b.0));
        assert_eq!(sorted, expected);
        let mut sorted = input.to_vec();
        par::sort_by_cached_key(&mut sorted, |pair| pair.0.to_string().len());
        let mut expected = input.to_vec();
        expected.sort_by_key(|pair| pair.0.to_string().len());
        assert_eq!(sorted, expected);
        let mut sorted = input.to_vec();
        par::sort(&mut sorted);
        expected.sort();
        assert_eq!(sorted, expected);
    });
}

#[test]
fn unstable_sorts() {
    for_all_inputs(|input| {
        let mut expected = input.to_vec();
        expected.sort_unstable();
        let mut sorted = input.to_vec();
        par::sort_unstable(&mut sorted);
        assert_eq!(sorted, expected);
        let mut sorted = input.to_vec();
        par::sort_unstable_by(&mut sorted, |a, b| b.cmp(a));
        assert!(sorted.iter().rev().eq(&expected));
        let mut sorted = input.to_vec();
        par::sort_unstable_by_key(&mut sorted, |pair| pair.0);
        assert!(sorted.is_sorted_by_key(|pair| pair.0));
        sorted.sort_unstable();
        assert_eq!(sorted, expected);
    });
}

#[test]
fn values_that_own_memory() {
    on_every_pool(|| {
        let mut words: Vec<String> = Random(1)
            .numbers(20_000, 5000)
            .iter()
            .map(u64::to_string)
            .collect();
        let mut expected = words.clone();
        expected.sort();
        par::sort(&mut words);
        assert_eq!(words, expected);
        par::sort_by_cached_key(&mut words, |word| word.chars().rev().collect::<String>());
        expected.sort_by_cached_key(|word| word.chars().rev().collect::<String>());
        assert_eq!(words, expected);
    });
}

#[test]
fn values_without_size() {
    let mut units = vec![(); 10_000];
    par::sort(&mut units);
    par::sort_unstable_by(&mut units, |_, _| Ordering::Less);
    par::sort_by_cached_key(&mut units, |_| 0);
    assert_eq!(units.len(), 10_000);
}

#[test]
fn the_key_is_taken_once_for_each_item() {
    on_every_pool(|| {
        let taken = AtomicUsize::new(0);
        let mut numbers = Random(2).numbers(10_000, 100);
        par::sort_by_cached_key(&mut numbers, |n| {
            taken.fetch_add(1, Memory::Relaxed);
            *n
        });
        assert_eq!(taken.into_inner(), 10_000);
        assert!(numbers.is_sorted());
    });
}

/// Sorts `len` tracked values with a comparison that panics after `limit` calls; checks that all are still there.
fn sort_until_panic(
    len: usize,
    limit: usize,
    sort: impl Fn(&mut [Tracked<'_, u64>], &(dyn Fn(&u64, &u64) -> Ordering + Sync)),
) -> bool {
    let alive = Alive::default();
    let numbers = Random(limit as u64).numbers(len, 1000);
    let mut values: Vec<_> = numbers.iter().map(|n| alive.track(*n)).collect();
    let calls = AtomicUsize::new(0);
    let compare = |a: &u64, b: &u64| {
        if calls.fetch_add(1, Memory::Relaxed) == limit {
            panic!("on purpose");
        }
        a.cmp(b)
    };
    let outcome =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sort(&mut values, &compare)));
    assert_eq!(alive.count(), len as isize);
    let mut left: Vec<u64> = values.iter().map(|tracked| tracked.value).collect();
    let mut expected = numbers;
    left.sort_unstable();
    expected.sort_unstable();
    assert_eq!(left, expected, "after {limit} comparisons");
    drop(values);
    assert_eq!(alive.count(), 0);
    outcome.is_err()
}

#[test]
fn a_panicking_comparison_loses_nothing() {
    quiet_panics();
    on_every_pool(|| {
        let len = 9000;
        let mut limit = 0;
        // Goes through the looks for order, the sorting of pieces and the merges, until a sort gets through.
        while sort_until_panic(len, limit, |values, compare| {
            par::sort_by(values, |a, b| compare(&a.value, &b.value));
        }) {
            limit = limit * 3 / 2 + 1;
        }
        let mut limit = 0;
        while sort_until_panic(len, limit, |values, compare| {
            par::sort_unstable_by(values, |a, b| compare(&a.value, &b.value));
        }) {
            limit = limit * 2 + 1;
        }
    });
}

#[test]
fn an_order_that_is_none_loses_nothing() {
    on_every_pool(|| {
        for seed in 0..5 {
            let numbers = Random(seed).numbers(10_000, 1000);
            let mut sorted = numbers.clone();
            let nonsense = |a: &u64, b: &u64| (a ^ b).wrapping_mul(seed | 1).cmp(&(a | b));
            // The standard library may panic here, and then so do we; either is fine.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                par::sort_by(&mut sorted, nonsense);
            }));
            let (mut before, mut after) = (numbers, sorted);
            before.sort_unstable();
            after.sort_unstable();
            assert_eq!(before, after);
        }
    });
}

#[test]
fn a_panicking_key_changes_nothing() {
    quiet_panics();
    on_every_pool(|| {
        let numbers = Random(9).numbers(10_000, 1000);
        let mut sorted = numbers.clone();
        let message = panic_message(|| {
            par::sort_by_cached_key(&mut sorted, |n| {
                if *n == 500 { panic!("on purpose") } else { *n }
            });
        });
        assert_eq!(message, "on purpose");
        assert_eq!(sorted, numbers);
    });
}
