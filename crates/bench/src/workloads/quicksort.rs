//! Quicksort in place down to single elements: much work at the top, where nothing can be shared yet, and a fork for
//! each handful of elements at the bottom.

use std::sync::Arc;

use crate::harness::SplitMix64;
use crate::sides::on_every_side;

/// Random numbers, and the copy of them that gets sorted.
#[derive(Clone, Debug)]
pub struct Numbers {
    shuffled: Arc<[u64]>,
    work: Vec<u64>,
}

impl Numbers {
    /// So many random numbers.
    pub fn random(count: usize, rng: &mut SplitMix64) -> Self {
        let shuffled: Arc<[u64]> = (0..count).map(|_| rng.next()).collect();
        Self {
            work: shuffled.to_vec(),
            shuffled,
        }
    }

    /// Makes the copy random again.
    pub fn reset(&mut self) {
        self.work.copy_from_slice(&self.shuffled);
    }

    /// A number that depends on the order of all elements; zero if they are not sorted.
    pub fn digest(&self) -> u64 {
        if !self.work.is_sorted() {
            return 0;
        }
        self.work.iter().fold(1, |digest: u64, &value| {
            digest.wrapping_mul(31).wrapping_add(value)
        })
    }
}

/// Puts the smaller elements to the left; gives the pivot's place. The pivot is the middle of three.
fn partition(numbers: &mut [u64]) -> usize {
    let last = numbers.len() - 1;
    let middle = numbers.len() / 2;
    if numbers[middle] < numbers[0] {
        numbers.swap(middle, 0);
    }
    if numbers[last] < numbers[0] {
        numbers.swap(last, 0);
    }
    if numbers[middle] < numbers[last] {
        numbers.swap(middle, last);
    }
    let pivot = numbers[last];
    let mut boundary = 0;
    for index in 0..last {
        if numbers[index] < pivot {
            numbers.swap(index, boundary);
            boundary += 1;
        }
    }
    numbers.swap(boundary, last);
    boundary
}

on_every_side! {
    input Numbers;

    fn run(context, input: &mut Numbers) -> u64 {
        sort(context, &mut input.work);
        0
    }

    fn sort(context, numbers: &mut [u64]) {
        if numbers.len() <= 1 {
            return;
        }
        let middle = partition(numbers);
        let (smaller, rest) = numbers.split_at_mut(middle);
        join(context, |context| sort(context, smaller), |context| sort(context, &mut rest[1..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sorts_and_can_be_reset() {
        let mut numbers = Numbers::random(5000, &mut SplitMix64::new(1));
        assert_eq!(numbers.digest(), 0);
        let mut expected = numbers.work.clone();
        expected.sort_unstable();
        sequential::run((), &mut numbers);
        assert_eq!(numbers.work, expected);
        assert_ne!(numbers.digest(), 0);
        numbers.reset();
        assert_eq!(numbers.work[..], numbers.shuffled[..]);
    }

    #[test]
    fn equal_and_few_elements_are_sorted_too() {
        for numbers in [
            vec![],
            vec![1],
            vec![2, 1],
            vec![3, 3, 3, 3],
            vec![1, 2, 3, 2, 1],
        ] {
            let mut sorted = numbers.clone();
            sequential::sort((), &mut sorted);
            assert!(sorted.is_sorted(), "{numbers:?} became {sorted:?}");
        }
    }
}
