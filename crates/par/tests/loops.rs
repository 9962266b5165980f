//! Every loop gives what the sequential one gives, for all lengths and numbers of workers.

mod common;

use std::num::Wrapping;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Random, lengths, on_every_pool};
use jobtree_par::{self as par, Grain};

/// Runs `check` with random numbers of every length, on every pool.
fn with_numbers(check: impl Fn(&[u64]) + Sync) {
    on_every_pool(|| {
        for len in lengths() {
            check(&Random(len as u64).numbers(len, 100));
        }
    });
}

#[test]
fn for_each_visits_everything_once() {
    with_numbers(|numbers| {
        let visits: Vec<AtomicU64> = numbers.iter().map(|_| AtomicU64::new(0)).collect();
        par::for_each(0..numbers.len(), |index| {
            visits[index].fetch_add(1, Ordering::Relaxed);
        });
        assert!(visits.iter().all(|v| v.load(Ordering::Relaxed) == 1));

        let mut copy = numbers.to_vec();
        par::for_each(&mut copy, |number| *number += 1);
        assert!(copy.iter().zip(numbers).all(|(a, b)| *a == b + 1));
    });
}

#[test]
fn sums_and_their_like() {
    with_numbers(|numbers| {
        let over = || par::over(numbers);
        assert_eq!(over().sum::<u64>(), numbers.iter().sum());
        assert_eq!(over().count(), numbers.len());
        assert_eq!(
            over().filter(|n| **n % 3 == 0).count(),
            numbers.iter().filter(|n| **n % 3 == 0).count()
        );
        let odd = |n: &u64| Wrapping(n | 1);
        assert_eq!(
            over().map(odd).product::<Wrapping<u64>>(),
            numbers.iter().map(odd).product()
        );
        assert_eq!(
            over().cloned().reduce(u64::wrapping_add),
            numbers.iter().copied().reduce(u64::wrapping_add)
        );
    });
}

#[test]
fn folding_keeps_the_order() {
    with_numbers(|numbers| {
        let expected: String = numbers.iter().map(|n| format!("{n},")).collect();
        let folded = par::over(numbers).fold(
            String::new,
            |text, number| text + &format!("{number},"),
            |left, right| left + &right,
        );
        assert_eq!(folded, expected);
        let reduced = par::over(numbers)
            .map(|n| format!("{n},"))
            .reduce(|a, b| a + &b);
        assert_eq!(reduced.unwrap_or_default(), expected);
    });
}

#[test]
fn extremes_and_which_of_several() {
    with_numbers(|numbers| {
        // Few keys, so that there are always several with the same; the position tells them apart.
        let key = |pair: &(usize, &u64)| pair.1 % 4;
        let by_key = |a: &(usize, &u64), b: &(usize, &u64)| key(a).cmp(&key(b));
        let over = || par::over(numbers).enumerate();
        let iter = || numbers.iter().enumerate();
        assert_eq!(over().min_by_key(key), iter().min_by_key(key));
        assert_eq!(over().max_by_key(key), iter().max_by_key(key));
        assert_eq!(over().min_by(by_key), iter().min_by(by_key));
        assert_eq!(over().max_by(by_key), iter().max_by(by_key));
        assert_eq!(par::over(numbers).min(), numbers.iter().min());
        assert_eq!(par::over(numbers).max(), numbers.iter().max());
    });
}

#[test]
fn searches() {
    with_numbers(|numbers| {
        for wanted in [0, 7, 99, 100] {
            let over = || par::over(numbers).enumerate();
            let is_it = |pair: &(usize, &u64)| *pair.1 == wanted;
            let mut iter = numbers.iter().enumerate();
            assert_eq!(over().find_first(is_it), iter.clone().find(is_it));
            assert_eq!(over().find_last(is_it), iter.clone().rfind(is_it));
            assert_eq!(over().filter(is_it).first(), iter.clone().find(is_it));
            assert_eq!(over().filter(is_it).last(), iter.clone().rfind(is_it));
            let any = over().find_any(is_it);
            assert_eq!(any.is_some(), iter.clone().any(|pair| is_it(&pair)));
            assert!(any.is_none_or(|pair| is_it(&pair)));

            let over = || par::over(numbers);
            assert_eq!(
                over().position(|n| *n == wanted),
                numbers.iter().position(|n| *n == wanted)
            );
            assert_eq!(over().any(|n| *n == wanted), iter.any(|pair| is_it(&pair)));
            assert_eq!(
                over().all(|n| *n != wanted),
                numbers.iter().all(|n| *n != wanted)
            );
        }
    });
}

#[test]
fn collecting() {
    with_numbers(|numbers| {
        let over = || par::over(numbers);
        let doubled: Vec<String> = numbers.iter().map(|n| (n * 2).to_string()).collect();
        assert_eq!(over().map(|n| (n * 2).to_string()).collect(), doubled);
        assert_eq!(par::map(numbers, |n| (n * 2).to_string()), doubled);

        let mut written = vec![String::new(); numbers.len()];
        over().map(|n| (n * 2).to_string()).write_to(&mut written);
        assert_eq!(written, doubled);

        let some: Vec<u64> = numbers.iter().copied().filter(|n| n % 3 == 0).collect();
        assert_eq!(over().cloned().filter(|n| n % 3 == 0).collect(), some);
        assert_eq!(
            over().filter_map(|n| (n % 3 == 0).then_some(*n)).collect(),
            some
        );
        let others = numbers.iter().copied().filter(|n| n % 3 != 0).collect();
        assert_eq!(over().cloned().partition(|n| n % 3 == 0), (some, others));

        let steps = |n: &u64| 0..n % 4;
        let expected: Vec<u64> = numbers.iter().flat_map(steps).collect();
        assert_eq!(over().flat_map(steps).collect(), expected);
        assert_eq!(over().map(steps).flatten().collect(), expected);

        let mut appended = vec![1, 2, 3];
        over().cloned().collect_into(&mut appended);
        over()
            .cloned()
            .filter(|n| n % 2 == 0)
            .collect_into(&mut appended);
        let evens = numbers.iter().filter(|n| **n % 2 == 0);
        let expected: Vec<u64> = [1, 2, 3]
            .iter()
            .chain(numbers)
            .chain(evens)
            .copied()
            .collect();
        assert_eq!(appended, expected);
    });
}

#[test]
fn sources_combined() {
    with_numbers(|numbers| {
        let len = numbers.len();
        let half = &numbers[..len / 2];
        let chained: Vec<&u64> = numbers.iter().chain(half).chain(numbers).collect();
        assert_eq!(
            par::over(numbers).chain(half).chain(numbers).collect(),
            chained
        );
        let reversed: Vec<&u64> = chained.iter().copied().rev().collect();
        assert_eq!(
            par::over(numbers)
                .chain(half)
                .chain(numbers)
                .rev()
                .collect(),
            reversed
        );

        let zipped: Vec<(usize, (&u64, i32))> = half.iter().zip(-5..i32::MAX).enumerate().collect();
        assert_eq!(
            par::over(numbers)
                .zip(-5..i32::MAX)
                .zip(half)
                .enumerate()
                .map(|(i, (pair, _))| (i, pair))
                .collect(),
            zipped
        );
        let reversed: Vec<_> = zipped.iter().rev().copied().collect();
        assert_eq!(
            par::over(half)
                .zip(-5..i32::MAX)
                .enumerate()
                .rev()
                .collect(),
            reversed
        );
        for size in [1, 2, 3, 64, 1000] {
            let chunks: Vec<&[u64]> = numbers.chunks(size).collect();
            assert_eq!(par::over(numbers).chunks(size).collect(), chunks);
            let reversed: Vec<&[u64]> = numbers.chunks(size).rev().collect();
            assert_eq!(par::over(numbers).chunks(size).rev().collect(), reversed);
            let windows: Vec<&[u64]> = numbers.windows(size).collect();
            assert_eq!(par::over(numbers).windows(size).collect(), windows);

            let (mut ours, mut theirs) = (numbers.to_vec(), numbers.to_vec());
            par::over(&mut ours).chunks(size).for_each(<[u64]>::reverse);
            theirs.chunks_mut(size).for_each(<[u64]>::reverse);
            assert_eq!(ours, theirs);
        }
    });
}

#[test]
fn scattering_undoes_a_shuffle() {
    with_numbers(|numbers| {
        let mut random = Random(3);
        let mut indices: Vec<usize> = (0..numbers.len()).collect();
        for last in (1..numbers.len()).rev() {
            indices.swap(last, random.below(last as u64 + 1) as usize);
        }
        let shuffled = par::map(&indices, |&index| numbers[index]);
        let mut restored = vec![0; numbers.len()];
        par::over(&shuffled)
            .cloned()
            .scatter_to(&indices, &mut restored)
            .unwrap();
        assert_eq!(restored, numbers);
    });
}

#[test]
fn bad_indices_are_reported() {
    on_every_pool(|| {
        let scatter = |indices: &[usize], len| {
            par::over(0..indices.len()).scatter_to(indices, &mut vec![0; len])
        };
        let out = par::ScatterError::OutOfBounds {
            position: 1,
            index: 9,
            len: 3,
        };
        assert_eq!(scatter(&[2, 9, 10], 3), Err(out));
        assert!(out.to_string().contains("index 9 at position 1"));
        let mut indices: Vec<usize> = (0..10_000).collect();
        indices[7000] = 77;
        let twice = scatter(&indices, 10_000).unwrap_err();
        assert!(
            matches!(
                twice,
                par::ScatterError::Duplicate {
                    position: 77 | 7000,
                    index: 77
                }
            ),
            "{twice:?}"
        );
        let unequal = par::over(0..2).scatter_to(&[0], &mut [0]);
        assert_eq!(
            unequal,
            Err(par::ScatterError::Unequal {
                items: 2,
                indices: 1
            })
        );
    });
}

#[test]
fn any_grain_gives_the_same() {
    with_numbers(|numbers| {
        let expected: Vec<u64> = numbers.iter().map(|n| n + 1).collect();
        for grain in [
            Grain::AUTO,
            Grain::of(1),
            Grain::of(7),
            Grain::of(usize::MAX),
        ] {
            assert_eq!(
                par::over(numbers).grain(grain).map(|n| n + 1).collect(),
                expected
            );
            assert_eq!(
                par::over(numbers).grain(grain).sum::<u64>(),
                numbers.iter().sum()
            );
        }
    });
}

#[test]
fn ranges_of_all_types_and_at_their_limits() {
    on_every_pool(|| {
        assert_eq!(
            par::over(i8::MIN..i8::MAX).map(i64::from).sum::<i64>(),
            -255
        );
        assert_eq!(par::over(250_u8..255).collect(), [250, 251, 252, 253, 254]);
        assert_eq!(par::over(-3_i64..3).rev().collect(), [2, 1, 0, -1, -2, -3]);
        let last = u64::MAX - 1000..u64::MAX;
        assert_eq!(par::over(last.clone()).collect(), last.collect::<Vec<_>>());
        assert_eq!(
            par::over(i64::MIN..i64::MAX).find_first(|n| *n > i64::MIN),
            Some(i64::MIN + 1)
        );
    });
}

#[test]
fn values_without_size_are_counted_too() {
    on_every_pool(|| {
        assert_eq!(par::map(0..5000, |_| ()).len(), 5000);
        let mut units = vec![(); 5000];
        assert_eq!(par::drain(&mut units).collect().len(), 5000);
        assert!(units.is_empty());
    });
}

#[test]
fn loops_within_loops() {
    on_every_pool(|| {
        let table = par::map(0..50_u64, |row| {
            par::over(0..200_u64)
                .map(|column| row * column)
                .sum::<u64>()
        });
        let expected: Vec<u64> = (0..50).map(|row| row * 19_900).collect();
        assert_eq!(table, expected);
    });
}

#[test]
fn work_at_the_end_of_a_loop_is_shared() {
    // Nobody may be left with a piece that cannot be cut any more, although nearly all items were for nothing.
    let pool = jobtree_pool::Pool::builder().workers(2).build().unwrap();
    // Whether both come in time is up to the system, but not every time.
    let shared = (0..1000).any(|_| {
        let workers = [AtomicU64::new(0), AtomicU64::new(0)];
        pool.install(|| {
            par::over(0..1000).for_each(|index| {
                if index >= 980 {
                    let worker = jobtree_pool::current_worker_index().unwrap();
                    workers[worker].fetch_add(1, Ordering::Relaxed);
                    (0..20).for_each(|_| std::thread::yield_now());
                }
            });
        });
        workers
            .iter()
            .all(|items| items.load(Ordering::Relaxed) > 0)
    });
    assert!(shared);
}

#[test]
fn items_by_value_come_once_and_in_order() {
    with_numbers(|numbers| {
        let texts = || Vec::from_iter(numbers.iter().map(u64::to_string));
        assert_eq!(par::over(texts()).collect(), texts());
        let backwards = Vec::from_iter(texts().into_iter().rev());
        assert_eq!(par::over(texts()).rev().collect(), backwards);
        let long = |text: &String| text.len() > 1;
        assert_eq!(
            par::over(texts()).filter(long).count(),
            texts().iter().filter(|t| long(t)).count()
        );
        let boxed = texts().into_boxed_slice();
        assert_eq!(
            par::over(boxed).enumerate().map(|(at, _)| at).collect(),
            Vec::from_iter(0..numbers.len())
        );
    });
}

#[test]
fn items_that_a_loop_by_value_does_not_take_are_dropped_once() {
    on_every_pool(|| {
        for len in lengths() {
            let counted = std::sync::Arc::new(());
            let items = vec![counted.clone(); len];
            assert_eq!(par::over(items).take(len / 2).count(), len / 2);
            assert_eq!(std::sync::Arc::strong_count(&counted), 1);
            let mut with_room = Vec::with_capacity(2 * len);
            with_room.resize(len, counted.clone());
            let found = par::over(with_room)
                .enumerate()
                .find_any(|(at, _)| at * 3 > len);
            assert_eq!(found.is_some(), len > 1);
            drop(found);
            assert_eq!(std::sync::Arc::strong_count(&counted), 1);
        }
    });
}

#[test]
fn maps_and_sets_are_gone_over_as_their_iterators_do() {
    use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
    with_numbers(|numbers| {
        let mut map: HashMap<u64, usize> = numbers.iter().copied().zip(0..).collect();
        let tree: BTreeMap<u64, usize> = map.iter().map(|(key, value)| (*key, *value)).collect();
        let sum: usize = map.values().sum();
        assert_eq!(par::over(&map).map(|(_, value)| *value).sum::<usize>(), sum);
        par::over(&mut map).for_each(|(_, value)| *value += 1);
        assert_eq!(
            par::over(map).map(|(_, value)| value).sum::<usize>(),
            sum + tree.len()
        );
        assert_eq!(par::over(&tree).collect(), Vec::from_iter(&tree));
        let set: BTreeSet<u64> = tree.keys().copied().collect();
        assert_eq!(
            par::over(&set).cloned().collect(),
            Vec::from_iter(set.iter().copied())
        );
        let hashed: HashSet<u64> = par::over(set.clone()).collect_as();
        assert!(hashed.len() == set.len() && set.iter().all(|number| hashed.contains(number)));
        let queue: VecDeque<u64> = numbers.iter().copied().collect();
        assert_eq!(par::over(&queue).cloned().collect(), numbers);
        assert_eq!(par::over(tree.clone()).collect_as::<BTreeMap<_, _>>(), tree);
    });
}

#[test]
fn inclusive_ranges_end_with_their_last_number() {
    on_every_pool(|| {
        for len in lengths() {
            let expected = Vec::from_iter(1..=len as u64);
            assert_eq!(par::over(1..=len as u64).collect(), expected);
        }
        assert_eq!(par::over(i8::MIN..=i8::MAX).count(), 256);
        assert_eq!(par::over(i8::MIN..=i8::MAX).max(), Some(i8::MAX));
    });
}

#[test]
fn positions_beside_what_items_became() {
    with_numbers(|numbers| {
        let expected = Vec::from_iter(numbers.iter().map(|n| n + 1).enumerate());
        assert_eq!(
            par::over(numbers).map(|n| n + 1).enumerate().collect(),
            expected
        );
        let odd = |pair: &(usize, u64)| pair.0 % 2 == 1;
        assert_eq!(
            par::over(numbers)
                .cloned()
                .enumerate()
                .filter(odd)
                .collect(),
            Vec::from_iter(numbers.iter().copied().enumerate().filter(odd))
        );
        let middle = numbers.len() / 3;
        let part = par::over(numbers)
            .map(|n| n * 2)
            .skip(middle)
            .take(10)
            .enumerate()
            .collect();
        let expected = numbers
            .iter()
            .map(|n| n * 2)
            .skip(middle)
            .take(10)
            .enumerate();
        assert_eq!(part, Vec::from_iter(expected));
    });
}

#[test]
fn pairs_are_taken_apart_and_results_put_together() {
    with_numbers(|numbers| {
        let pair = |n: &u64| (*n, n.to_string());
        let expected: (Vec<_>, Vec<_>) = numbers.iter().map(pair).unzip();
        assert_eq!(par::over(numbers).map(pair).unzip(), expected);
        let checked = |n: &u64| if *n < 99 { Ok(*n) } else { Err(*n) };
        let expected: Result<Vec<u64>, u64> = numbers.iter().map(checked).collect();
        assert_eq!(
            par::over(numbers)
                .map(checked)
                .collect_as::<Result<Vec<_>, _>>(),
            expected
        );
        let text: String = par::over(numbers).map(u64::to_string).collect_as();
        assert_eq!(text, numbers.iter().map(u64::to_string).collect::<String>());
    });
}

#[test]
fn a_value_is_made_for_each_block_and_kept_within_it() {
    on_every_pool(|| {
        let made = AtomicU64::new(0);
        let init = || made.fetch_add(1, Ordering::Relaxed);
        let blocks = par::over(0..10_000_usize)
            .grain(Grain::AUTO)
            .map_init(init, |block, _: usize| *block)
            .collect();
        let made = made.load(Ordering::Relaxed);
        assert!((1..10_000).contains(&made), "{made} values");
        assert!(blocks.iter().all(|block| *block < made));
    });
}

#[test]
fn iterators_are_bridged_in_order() {
    with_numbers(|numbers| {
        let expected = Vec::from_iter(numbers.iter().map(|n| n + 1));
        assert_eq!(par::bridge(numbers).map(|n| n + 1), expected);
        // What cannot be cut.
        let (sender, receiver) = std::sync::mpsc::channel();
        numbers.iter().for_each(|n| sender.send(*n).unwrap());
        drop(sender);
        let sum = AtomicU64::new(0);
        par::bridge(receiver).for_each(|n| {
            sum.fetch_add(n, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), numbers.iter().sum());
    });
}

#[test]
fn an_iterator_is_not_asked_again_after_its_end() {
    on_every_pool(|| {
        for len in [0, 1, 7, 100, 1000] {
            let mut next = 0;
            let once = std::iter::from_fn(|| {
                assert!(next <= len, "it has ended");
                next += 1;
                (next <= len).then_some(next)
            });
            assert_eq!(par::bridge(once).map(|n| n), Vec::from_iter(1..=len));
        }
    });
}

/// An item is handled before the next one is waited for: here the next one exists only after that.
#[test]
fn no_item_waits_for_the_next_one() {
    on_every_pool(|| {
        let (sender, receiver) = std::sync::mpsc::channel();
        sender.send(0).unwrap();
        let handled = AtomicU64::new(0);
        let last = Mutex::new(Some(sender));
        par::bridge(receiver).for_each(|n| {
            handled.fetch_add(1, Ordering::Relaxed);
            let mut sender = last.lock().unwrap();
            match n {
                50 => *sender = None,
                _ => sender.as_ref().unwrap().send(n + 1).unwrap(),
            }
        });
        assert_eq!(handled.into_inner(), 51);
    });
}
