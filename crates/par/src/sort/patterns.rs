//! Slices that are sorted already, or the other way round.
//!
//! Both are common, and both can be told and dealt with in one pass. On anything else the look costs next to nothing:
//! it ends where the order does.
//!
//! Each worker looks at parts of its own (an item that two workers look at would have to be `Sync`); the borders
//! between the parts come last.

use crate::looping::over;

/// The number of items of a part.
const PART: usize = if cfg!(miri) { 32 } else { 2048 };

/// The number of pairs compared before each decision whether to continue: so many that the compiler can make it a few
/// instructions, so few that nothing is lost on items in disorder.
const PAIRS: usize = if cfg!(miri) { 16 } else { 32 };

/// Sorts `items` if that can be done by leaving or reversing them; says whether it was.
pub(super) fn settle<T, L, D>(items: &mut [T], is_less: &L, descends: &D) -> bool
where
    T: Send,
    L: Fn(&T, &T) -> bool + Sync,
    D: Fn(&T, &T) -> bool + Sync,
{
    if !is_less(&items[1], &items[0]) {
        return holds_throughout(items, &|a, b| !is_less(b, a));
    }
    if holds_throughout(items, descends) {
        reverse(items);
        return true;
    }
    false
}

/// Returns `true` if `relation` holds between all neighbours.
fn holds_throughout<T, R>(items: &mut [T], relation: &R) -> bool
where
    T: Send,
    R: Fn(&T, &T) -> bool + Sync,
{
    let holds_within = over(&mut *items)
        .chunks(PART)
        .all(|part| holds_within(part, relation));
    holds_within
        && (PART..items.len())
            .step_by(PART)
            .all(|border| relation(&items[border - 1], &items[border]))
}

fn holds_within<T>(part: &[T], relation: &impl Fn(&T, &T) -> bool) -> bool {
    let earlier = part.chunks(PAIRS);
    let later = part[1..].chunks(PAIRS);
    earlier.zip(later).all(|(earlier, later)| {
        let pairs = earlier.iter().zip(later);
        // `&` and not `&&`: no branch within.
        pairs.fold(true, |holds, (a, b)| holds & relation(a, b))
    })
}

fn reverse<T: Send>(items: &mut [T]) {
    let len = items.len();
    let (front, rest) = items.split_at_mut(len / 2);
    let back = &mut rest[len % 2..];
    over(front)
        .zip(over(back).rev())
        .for_each(|(a, b)| std::mem::swap(a, b));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_two_workers(test: impl FnOnce() + Send) {
        let pool = jobtree_pool::Pool::builder().workers(2).build().unwrap();
        pool.install(test);
    }

    fn settle_numbers(numbers: &mut [u32]) -> bool {
        settle(numbers, &|a, b| a < b, &|a, b| a > b)
    }

    #[test]
    fn order_is_recognised_and_only_order() {
        on_two_workers(|| {
            for len in [2, 3, PART - 1, PART, PART + 1, 3 * PART, 5 * PART + 7] {
                let sorted: Vec<u32> = (0..len as u32).collect();
                let mut numbers = sorted.clone();
                assert!(settle_numbers(&mut numbers), "{len}");
                assert_eq!(numbers, sorted);

                numbers.reverse();
                assert!(settle_numbers(&mut numbers), "{len}, reversed");
                assert_eq!(numbers, sorted);

                assert!(settle_numbers(&mut vec![7; len]), "{len}, equal");
            }
        });
    }

    #[test]
    fn one_pair_out_of_order_is_enough_wherever_it_is() {
        on_two_workers(|| {
            let len = 3 * PART + 5;
            for place in [
                1,
                PAIRS - 1,
                PAIRS,
                PART - 2,
                PART - 1,
                PART,
                2 * PART,
                len - 2,
            ] {
                let mut numbers: Vec<u32> = (0..len as u32).collect();
                numbers.swap(place, place + 1);
                let before = numbers.clone();
                assert!(!settle_numbers(&mut numbers), "{place}");
                assert_eq!(numbers, before);

                numbers.reverse();
                let before = numbers.clone();
                assert!(!settle_numbers(&mut numbers), "{place}, reversed");
                assert_eq!(numbers, before);
            }
        });
    }
}
