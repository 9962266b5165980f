//! The Mandelbrot set, row by row: rows take very different times.

use jobtree::par;
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use crate::suites::programs::inputs::digest;
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    width: usize,
    height: usize,
}

const MOST_STEPS: u16 = 200;

pub fn program(scale: Scale) -> Program<Input> {
    let (width, height) = scale.pick((240, 180), (24, 18));
    Program::new("pixel", width * height, Input { width, height })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

fn steps(re: f64, im: f64) -> u16 {
    let (mut x, mut y) = (0.0, 0.0);
    for step in 0..MOST_STEPS {
        let (xx, yy) = (x * x, y * y);
        if xx + yy > 4.0 {
            return step;
        }
        y = 2.0 * x * y + im;
        x = xx - yy + re;
    }
    MOST_STEPS
}

fn render(input: &Input, y: usize, row: &mut [u16]) {
    let im = 2.4 * (y as f64 / input.height as f64) - 1.2;
    for (x, pixel) in row.iter_mut().enumerate() {
        let re = 3.2 * (x as f64 / input.width as f64) - 2.2;
        *pixel = steps(re, im);
    }
}

fn answer(pixels: &[u16]) -> u64 {
    digest(pixels.iter().map(|steps| u64::from(*steps)))
}

fn sequential(input: &mut Input) -> u64 {
    let mut pixels = vec![0; input.width * input.height];
    for (y, row) in pixels.chunks_mut(input.width).enumerate() {
        render(input, y, row);
    }
    answer(&pixels)
}

fn ours(input: &mut Input) -> u64 {
    let mut pixels = vec![0; input.width * input.height];
    par::over(&mut pixels)
        .chunks(input.width)
        .enumerate()
        .for_each(|(y, row)| render(input, y, row));
    answer(&pixels)
}

fn by_rayon(input: &mut Input) -> u64 {
    let mut pixels = vec![0; input.width * input.height];
    pixels
        .par_chunks_mut(input.width)
        .enumerate()
        .for_each(|(y, row)| render(input, y, row));
    answer(&pixels)
}
