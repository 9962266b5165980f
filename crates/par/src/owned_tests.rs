//! Items that the library owns for a while, without stacks that switch: what Miri can run.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use jobtree_pool::raw::OwnedItems;
use jobtree_pool::{Pool, join};

use crate::{bridge, over};

const COUNT: usize = if cfg!(miri) { 40 } else { 5000 };

fn on_workers<R: Send>(workers: usize, body: impl FnOnce() -> R + Send) -> R {
    let pool = Pool::builder().workers(workers).build().unwrap();
    pool.install(body)
}

/// An item with memory of its own, which counts its end.
struct Item<'a>(Box<usize>, &'a AtomicUsize);

impl Drop for Item<'_> {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

fn items(gone: &AtomicUsize) -> impl Iterator<Item = Item<'_>> + Send {
    (0..COUNT).map(|number| Item(Box::new(number), gone))
}

#[test]
fn a_bridge_hands_each_item_to_one_worker() {
    for workers in [1, 3] {
        let (gone, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let squares = on_workers(workers, || {
            bridge(items(&gone)).for_each(|item| {
                sum.fetch_add(*item.0, Ordering::Relaxed);
            });
            bridge(0..COUNT).map(|number| Box::new(number * number))
        });
        assert_eq!(
            (sum.into_inner(), gone.into_inner()),
            (COUNT * (COUNT - 1) / 2, COUNT)
        );
        assert!(
            squares
                .iter()
                .enumerate()
                .all(|(number, square)| **square == number * number)
        );
    }
}

#[test]
fn a_bridge_that_unwinds_drops_each_item_once() {
    for workers in [1, 3] {
        let (made, gone) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let counted = items(&gone).inspect(|_| {
            made.fetch_add(1, Ordering::Relaxed);
        });
        let result = on_workers(workers, || {
            catch_unwind(AssertUnwindSafe(|| {
                bridge(counted).for_each(|item| assert!(*item.0 != COUNT / 2, "the test panics"));
            }))
        });
        assert!(result.is_err());
        assert_eq!(made.into_inner(), gone.into_inner());
        // And one whose iterator panics.
        let (made, gone) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let counted = items(&gone).inspect(|item| {
            made.fetch_add(1, Ordering::Relaxed);
            assert!(*item.0 != COUNT / 2, "the test panics");
        });
        let result = on_workers(workers, || {
            catch_unwind(AssertUnwindSafe(|| bridge(counted).map(|item| item).len()))
        });
        assert!(result.is_err());
        assert_eq!(made.into_inner(), gone.into_inner());
    }
}

#[test]
fn an_item_of_a_bridge_may_be_forked_over() {
    let sums = on_workers(3, || {
        bridge(0..COUNT / 10).map(|number| {
            let (left, right) = join(|| Box::new(number), || Box::new(number + 1));
            *left + *right
        })
    });
    assert!(
        sums.iter()
            .enumerate()
            .all(|(number, sum)| *sum == 2 * number + 1)
    );
}

#[test]
fn owned_items_are_taken_from_both_ends_and_the_rest_is_dropped() {
    let gone = AtomicUsize::new(0);
    let mut all = OwnedItems::new(items(&gone).collect());
    assert_eq!(all.len(), COUNT);
    assert_eq!(all.next().map(|item| *item.0), Some(0));
    assert_eq!(all.next_back().map(|item| *item.0), Some(COUNT - 1));
    let (mut left, right) = all.split_at(COUNT / 3);
    // The memory is that of both halves, and lives as long as one of them does.
    drop(right);
    assert_eq!(gone.load(Ordering::Relaxed), 2 + COUNT - 2 - COUNT / 3);
    assert_eq!(left.next().map(|item| *item.0), Some(1));
    let kept = left.next().unwrap();
    drop(left);
    assert_eq!((*kept.0, gone.load(Ordering::Relaxed)), (2, COUNT - 1));
    drop(kept);
    assert_eq!(gone.into_inner(), COUNT);
    // Without memory at all.
    assert_eq!(OwnedItems::new(Vec::<Box<u8>>::new()).count(), 0);
    let (none, nothing) = OwnedItems::new(vec![(); 3]).split_at(0);
    assert_eq!((none.count(), nothing.count()), (0, 3));
}

#[test]
fn halves_of_owned_items_may_go_on_other_threads() {
    let gone = AtomicUsize::new(0);
    let sum = on_workers(3, || {
        let (left, right) = OwnedItems::new(items(&gone).collect()).split_at(COUNT / 2);
        let (left, right) = join(
            || left.map(|item| *item.0).sum::<usize>(),
            || right.rev().map(|item| *item.0).sum::<usize>(),
        );
        left + right
    });
    assert_eq!((sum, gone.into_inner()), (COUNT * (COUNT - 1) / 2, COUNT));
}

/// Panics in its destructor.
struct Bomb<'a>(&'a Mutex<Vec<usize>>, usize);

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(self.1);
        panic!("a destructor of the test panics");
    }
}

#[test]
fn a_destructor_that_panics_keeps_no_other_item_from_its_end() {
    let gone = Mutex::new(Vec::new());
    let items = OwnedItems::new((0..3).map(|number| Bomb(&gone, number)).collect());
    // The first panic has a receiver; those of the others are recorded.
    assert!(catch_unwind(AssertUnwindSafe(|| drop(items))).is_err());
    let mut numbers = gone.into_inner().unwrap();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn a_loop_over_a_vector_that_unwinds_drops_each_item_once() {
    let gone = AtomicUsize::new(0);
    let vec: Vec<Item<'_>> = items(&gone).collect();
    let result = on_workers(3, || {
        catch_unwind(AssertUnwindSafe(|| {
            over(vec).for_each(|item| assert!(*item.0 != COUNT / 2, "the test panics"));
        }))
    });
    assert!(result.is_err());
    assert_eq!(gone.into_inner(), COUNT);
    // A collection that panics while it is made of items.
    thread_local! {
        static LEFT: RefCell<usize> = const { RefCell::new(3) };
    }
    struct Few;
    impl<'a> FromIterator<Item<'a>> for Few {
        fn from_iter<I: IntoIterator<Item = Item<'a>>>(items: I) -> Few {
            for _ in items {
                LEFT.with_borrow_mut(|left| *left = left.checked_sub(1).expect("the test panics"));
            }
            Few
        }
    }
    let gone = AtomicUsize::new(0);
    let vec: Vec<Item<'_>> = items(&gone).collect();
    let collected = catch_unwind(AssertUnwindSafe(|| over(vec).collect_as::<Few>()));
    assert!(collected.is_err());
    assert_eq!(gone.into_inner(), COUNT);
}
