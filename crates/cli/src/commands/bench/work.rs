//! What is measured: each thing once without forks, and once with a fork at every step.

use jobtree_pool::Worker;

/// A node of a full binary tree.
pub struct Node {
    value: u64,
    children: Option<(Box<Node>, Box<Node>)>,
}

impl Node {
    /// A full tree of that many levels.
    pub fn full(levels: u32) -> Self {
        let child = || Box::new(Self::full(levels - 1));
        Self {
            value: 1,
            children: (levels > 1).then(|| (child(), child())),
        }
    }

    /// The sum over all nodes.
    pub fn sum(&self) -> u64 {
        match &self.children {
            None => self.value,
            Some((left, right)) => self.value + left.sum() + right.sum(),
        }
    }

    /// The same with a fork at every inner node.
    pub fn sum_forking(&self, worker: &Worker) -> u64 {
        match &self.children {
            None => self.value,
            Some((left, right)) => {
                let (left, right) = worker.join(
                    |worker| left.sum_forking(worker),
                    |worker| right.sum_forking(worker),
                );
                self.value + left + right
            }
        }
    }
}

/// How many forks the sum over a full tree makes.
pub fn tree_forks(levels: u32) -> u64 {
    (1 << (levels - 1)) - 1
}

/// Fibonacci numbers the slow way: nothing but calls.
pub fn fib(n: u32) -> u64 {
    if n < 2 {
        u64::from(n)
    } else {
        fib(n - 1) + fib(n - 2)
    }
}

/// The same with a fork at every call that makes others.
pub fn fib_forking(worker: &Worker, n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (one, other) = worker.join(
        |worker| fib_forking(worker, n - 1),
        |worker| fib_forking(worker, n - 2),
    );
    one + other
}

/// How many forks `fib_forking` makes: one less than there are leaves.
pub fn fib_forks(n: u32) -> u64 {
    let (mut this, mut next) = (0, 0);
    for _ in 0..n {
        (this, next) = (next, this + next + 1);
    }
    this
}

/// A loop over numbers with some arithmetic for each.
pub fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum: u64, &number| {
        let mixed = (number ^ (number >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        sum.wrapping_add(mixed ^ (mixed >> 29))
    })
}

/// The same, halved down to pieces of a few microseconds.
pub fn mix_forking(worker: &Worker, numbers: &[u64]) -> u64 {
    const PIECE: usize = 4096;
    if numbers.len() <= PIECE {
        return mix(numbers);
    }
    let (left, right) = numbers.split_at(numbers.len() / 2);
    let (left, right) = worker.join(
        |worker| mix_forking(worker, left),
        |worker| mix_forking(worker, right),
    );
    left.wrapping_add(right)
}

/// As many numbers without any order; the same in every run.
pub fn random_numbers(count: usize) -> Vec<u64> {
    // xorshift64: more than good enough to be unsorted.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobtree_pool::with_worker;

    #[test]
    fn with_and_without_forks_the_results_are_the_same() {
        let tree = Node::full(10);
        assert_eq!(tree.sum(), 1023);
        assert_eq!(with_worker(|worker| tree.sum_forking(worker)), 1023);
        assert_eq!(fib(20), 6765);
        assert_eq!(with_worker(|worker| fib_forking(worker, 20)), 6765);
        let numbers: Vec<u64> = (0..100_000).collect();
        assert_eq!(
            with_worker(|worker| mix_forking(worker, &numbers)),
            mix(&numbers)
        );
    }

    #[test]
    fn random_numbers_rise_about_as_often_as_they_fall() {
        let numbers = random_numbers(10_000);
        let rises = numbers.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((4_500..5_500).contains(&rises), "{rises}");
    }

    #[test]
    fn forks_are_counted_right() {
        fn count(n: u32) -> u64 {
            if n < 2 {
                0
            } else {
                1 + count(n - 1) + count(n - 2)
            }
        }
        for n in 0..15 {
            assert_eq!(fib_forks(n), count(n), "fib({n})");
        }
        assert_eq!([1, 2, 3].map(tree_forks), [0, 1, 3]);
    }
}
