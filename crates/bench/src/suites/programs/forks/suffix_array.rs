//! The suffix array of a text by prefix doubling: each round sorts all suffixes by twice as many letters.

use jobtree::par;
use rayon::slice::ParallelSliceMut;

use crate::suites::programs::inputs::{digest, text};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    text: Vec<u8>,
}

pub fn program(scale: Scale) -> Program<Input> {
    let len = scale.pick(30_000, 500);
    let mut text = text(len / 20).into_bytes();
    text.truncate(len);
    Program::new("letter", text.len(), Input { text })
        .sequential(|input| {
            doubled(&input.text, |suffixes, key| {
                suffixes.sort_unstable_by_key(|suffix| key(*suffix));
            })
        })
        .ours(|input| {
            doubled(&input.text, |suffixes, key| {
                par::sort_unstable_by_key(suffixes, |suffix| key(*suffix));
            })
        })
        .rayon(|input| {
            doubled(&input.text, |suffixes, key| {
                suffixes.par_sort_unstable_by_key(|suffix| key(*suffix));
            })
        })
}

/// The key of a suffix in one round: the ranks of its first letters, and of those after them.
type Key<'k> = &'k (dyn Fn(u32) -> (u32, u32) + Sync);

fn doubled(text: &[u8], sort: impl Fn(&mut [u32], Key<'_>)) -> u64 {
    let mut suffixes: Vec<u32> = (0..text.len() as u32).collect();
    // From 1, so that 0 is what comes after the end.
    let mut ranks: Vec<u32> = text.iter().map(|letter| 1 + u32::from(*letter)).collect();
    let mut letters = 1;
    loop {
        let key = |suffix: u32| {
            let second = ranks.get(suffix as usize + letters);
            (ranks[suffix as usize], second.copied().unwrap_or(0))
        };
        sort(&mut suffixes, &key);
        let mut next = vec![0; ranks.len()];
        let mut rank = 1;
        next[suffixes[0] as usize] = rank;
        for pair in suffixes.windows(2) {
            rank += u32::from(key(pair[0]) != key(pair[1]));
            next[pair[1] as usize] = rank;
        }
        ranks = next;
        if rank as usize == text.len() {
            return digest(suffixes.iter().map(|suffix| u64::from(*suffix)));
        }
        letters *= 2;
    }
}
