//! The number of times that each word occurs in a text.
//!
//! rayon goes over the lines of a string by itself. jobtree has loops over slices and ranges, so its users collect the lines
//! first; that is on the clock.

use std::collections::HashMap;

use jobtree::par;
use rayon::iter::ParallelIterator;
use rayon::str::ParallelString;

use crate::suites::programs::inputs::{digest_of_text, text};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    text: String,
}

pub fn program(scale: Scale) -> Program<Input> {
    let lines = scale.pick(10_000, 100);
    Program::new("line", lines, Input { text: text(lines) })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

type Counts<'t> = HashMap<&'t str, u64>;

fn count<'t>(mut counts: Counts<'t>, line: &'t str) -> Counts<'t> {
    for word in line.split_whitespace() {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

fn merge<'t>(mut left: Counts<'t>, right: Counts<'t>) -> Counts<'t> {
    for (word, count) in right {
        *left.entry(word).or_default() += count;
    }
    left
}

fn answer(counts: &Counts<'_>) -> u64 {
    counts.iter().fold(0, |sum, (word, count)| {
        sum.wrapping_add(digest_of_text(word).wrapping_mul(*count))
    })
}

fn sequential(input: &mut Input) -> u64 {
    answer(&input.text.lines().fold(HashMap::new(), count))
}

fn ours(input: &mut Input) -> u64 {
    let lines: Vec<&str> = input.text.lines().collect();
    answer(&par::over(&lines).fold(HashMap::new, |counts, line| count(counts, line), merge))
}

fn by_rayon(input: &mut Input) -> u64 {
    let lines = input.text.par_lines();
    answer(&lines.fold(HashMap::new, count).reduce(HashMap::new, merge))
}
