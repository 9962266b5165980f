//! The product of two matrices, row by row.

use jobtree::par;
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};

use crate::suites::programs::inputs::{digest, rng};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    size: usize,
    a: Vec<f64>,
    b: Vec<f64>,
}

pub fn program(scale: Scale) -> Program<Input> {
    let size = scale.pick(192, 24);
    let mut rng = rng();
    let [a, b] = [(); 2].map(|()| (0..size * size).map(|_| rng.unit()).collect());
    Program::new("row", size, Input { size, a, b })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

/// Adds to `row` of the product what `line`, the same row of the left matrix, gives.
fn multiply(line: &[f64], b: &[f64], row: &mut [f64]) {
    for (factor, b_row) in line.iter().zip(b.chunks(row.len())) {
        for (sum, value) in row.iter_mut().zip(b_row) {
            *sum += factor * value;
        }
    }
}

fn answer(product: &[f64]) -> u64 {
    digest(product.iter().map(|value| value.to_bits()))
}

fn sequential(input: &mut Input) -> u64 {
    let Input { size, a, b } = input;
    let mut product = vec![0.0; a.len()];
    for (row, line) in product.chunks_mut(*size).zip(a.chunks(*size)) {
        multiply(line, b, row);
    }
    answer(&product)
}

fn ours(input: &mut Input) -> u64 {
    let Input { size, a, b } = &*input;
    let mut product = vec![0.0; a.len()];
    par::over(&mut product)
        .chunks(*size)
        .zip(par::over(a).chunks(*size))
        .for_each(|(row, line)| multiply(line, b, row));
    answer(&product)
}

fn by_rayon(input: &mut Input) -> u64 {
    let Input { size, a, b } = &*input;
    let mut product = vec![0.0; a.len()];
    product
        .par_chunks_mut(*size)
        .zip(a.par_chunks(*size))
        .for_each(|(row, line)| multiply(line, b, row));
    answer(&product)
}
