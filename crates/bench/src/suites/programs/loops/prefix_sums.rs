//! Prefix sums in two passes: the sums of the chunks, then the sums within each chunk. No library has them ready.

use jobtree::par;
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};

use crate::suites::programs::inputs::numbers;
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    numbers: Vec<u64>,
}

/// The number of numbers in one chunk.
const CHUNK: usize = 16 * 1024;

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(3_000_000, 100_000);
    let numbers = numbers(count, 1000);
    Program::new("number", count, Input { numbers })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().sum()
}

/// Writes the sums of `numbers` up to each place, which begin at `offset`.
fn scan(mut offset: u64, numbers: &[u64], sums: &mut [u64]) {
    for (sum, number) in sums.iter_mut().zip(numbers) {
        offset += number;
        *sum = offset;
    }
}

/// Returns the sum of everything before each chunk.
fn offsets(sums: &[u64]) -> Vec<u64> {
    let mut offset = 0;
    sums.iter()
        .map(|sum| {
            let before = offset;
            offset += sum;
            before
        })
        .collect()
}

fn answer(sums: &[u64]) -> u64 {
    sums.iter().step_by(1001).sum()
}

fn sequential(input: &mut Input) -> u64 {
    let mut sums = vec![0; input.numbers.len()];
    scan(0, &input.numbers, &mut sums);
    answer(&sums)
}

fn ours(input: &mut Input) -> u64 {
    let numbers = &input.numbers;
    let offsets = offsets(&par::over(numbers).chunks(CHUNK).map(sum).collect());
    let mut sums = vec![0; numbers.len()];
    par::over(&mut sums)
        .chunks(CHUNK)
        .zip(par::over(numbers).chunks(CHUNK))
        .zip(&offsets)
        .for_each(|((sums, numbers), offset)| scan(*offset, numbers, sums));
    answer(&sums)
}

fn by_rayon(input: &mut Input) -> u64 {
    let numbers = &input.numbers;
    let offsets = offsets(&numbers.par_chunks(CHUNK).map(sum).collect::<Vec<_>>());
    let mut sums = vec![0; numbers.len()];
    sums.par_chunks_mut(CHUNK)
        .zip(numbers.par_chunks(CHUNK))
        .zip(&offsets)
        .for_each(|((sums, numbers), offset)| scan(*offset, numbers, sums));
    answer(&sums)
}
