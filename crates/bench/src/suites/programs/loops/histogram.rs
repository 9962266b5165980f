//! The number of pixels of each brightness in a grey image.

use jobtree::par;
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;

use crate::suites::programs::inputs::{digest, rng};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    pixels: Vec<u8>,
}

/// The number of pixels that are counted into one array.
const CHUNK: usize = 64 * 1024;

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(4_000_000, 200_000);
    let mut rng = rng();
    let pixels = (0..count)
        .map(|_| (rng.below(256) & rng.below(256)) as u8)
        .collect();
    Program::new("pixel", count, Input { pixels })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

type Histogram = [u32; 256];

fn of_chunk(pixels: &[u8]) -> Histogram {
    let mut histogram = [0; 256];
    for pixel in pixels {
        histogram[usize::from(*pixel)] += 1;
    }
    histogram
}

fn add(mut left: Histogram, right: Histogram) -> Histogram {
    for (left, right) in left.iter_mut().zip(right) {
        *left += right;
    }
    left
}

fn answer(histogram: Histogram) -> u64 {
    digest(histogram.map(u64::from))
}

fn sequential(input: &mut Input) -> u64 {
    answer(of_chunk(&input.pixels))
}

fn ours(input: &mut Input) -> u64 {
    let chunks = par::over(&input.pixels).chunks(CHUNK);
    answer(chunks.map(of_chunk).reduce(add).unwrap_or([0; 256]))
}

fn by_rayon(input: &mut Input) -> u64 {
    let chunks = input.pixels.par_chunks(CHUNK);
    answer(chunks.map(of_chunk).reduce(|| [0; 256], add))
}
