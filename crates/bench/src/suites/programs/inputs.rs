//! The inputs of the programs, and the work of a small job. The same seed makes the same input on every machine.

use std::hint::black_box;

use crate::harness::SplitMix64;

/// The source of the inputs' random numbers.
const SEED: u64 = 0x70_72_6F_67;

pub fn rng() -> SplitMix64 {
    SplitMix64::new(SEED)
}

/// The number of steps of [`work`] that take about 0.3 µs on the machines that the suite was written on.
pub const SMALL_JOB: u32 = 220;

/// Computes something that the compiler can neither shorten nor run at once: some 1.4 ns a step.
pub fn work(seed: u64, steps: u32) -> u64 {
    let mut state = black_box(seed) | 1;
    for _ in 0..steps {
        state = (state ^ (state >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    state
}

/// One number of many, in which their order counts.
pub fn digest(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(17, |digest: u64, value| {
        digest.wrapping_mul(31).wrapping_add(value)
    })
}

/// One number of a text.
pub fn digest_of_text(text: &str) -> u64 {
    digest(text.bytes().map(u64::from))
}

/// Words of 2 to 11 letters, some of which come much more often than others.
pub struct Words {
    vocabulary: Vec<String>,
    rng: SplitMix64,
}

impl Words {
    pub fn new() -> Self {
        let mut rng = rng();
        let vocabulary = (0..2000)
            .map(|_| {
                let letters = 2 + rng.below(10);
                (0..letters)
                    .map(|_| char::from(b'a' + rng.below(26) as u8))
                    .collect()
            })
            .collect();
        Self { vocabulary, rng }
    }

    pub fn next(&mut self) -> &str {
        let bound = 1 + self.rng.below(self.vocabulary.len());
        let place = self.rng.below(bound);
        &self.vocabulary[place]
    }

    /// A line of so many words.
    pub fn line(&mut self, words: usize) -> String {
        let words: Vec<String> = (0..words).map(|_| self.next().to_owned()).collect();
        words.join(" ")
    }
}

/// A text of so many lines with ten words each.
pub fn text(lines: usize) -> String {
    let mut words = Words::new();
    (0..lines).map(|_| words.line(10) + "\n").collect()
}

/// So many random numbers below `bound`.
pub fn numbers(count: usize, bound: usize) -> Vec<u64> {
    let mut rng = rng();
    (0..count).map(|_| rng.below(bound) as u64).collect()
}

/// The neighbours of each node of a connected graph.
pub type Graph = Vec<Vec<u32>>;

/// A graph of so many nodes, each of which leads to the next one and to some random others.
pub fn graph(nodes: usize, others: usize) -> Graph {
    let mut rng = rng();
    (0..nodes)
        .map(|node| {
            let next = (node + 1) % nodes;
            (0..others)
                .map(|_| rng.below(nodes) as u32)
                .chain([next as u32])
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_repeat_themselves() {
        assert_eq!(text(3), text(3));
        assert_eq!(graph(10, 2), graph(10, 2));
        assert_eq!(text(3).lines().count(), 3);
    }

    #[test]
    fn the_order_counts_in_a_digest() {
        assert_ne!(digest([1, 2]), digest([2, 1]));
        assert_ne!(digest_of_text("ab"), digest_of_text("ba"));
    }

    #[test]
    fn work_depends_on_its_seed() {
        assert_ne!(work(2, SMALL_JOB), work(4, SMALL_JOB));
    }
}
