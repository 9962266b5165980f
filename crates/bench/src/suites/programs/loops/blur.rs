//! A Gaussian blur of an image: one pass along the rows, one along the columns.

use jobtree::par;
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use crate::suites::programs::inputs::{digest, rng};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    image: Image,
}

pub struct Image {
    width: usize,
    height: usize,
    pixels: Vec<f32>,
}

const KERNEL: [f32; 7] = [0.03, 0.11, 0.22, 0.28, 0.22, 0.11, 0.03];
const REACH: usize = KERNEL.len() / 2;

pub fn program(scale: Scale) -> Program<Input> {
    let (width, height) = scale.pick((640, 480), (32, 24));
    let mut rng = rng();
    let pixels = (0..width * height).map(|_| rng.unit() as f32).collect();
    let image = Image {
        width,
        height,
        pixels,
    };
    Program::new("pixel", width * height, Input { image })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

fn along_row(image: &Image, from: &[f32], y: usize, row: &mut [f32]) {
    let line = &from[y * image.width..][..image.width];
    for (x, pixel) in row.iter_mut().enumerate() {
        let taps = KERNEL.iter().enumerate();
        *pixel = taps
            .map(|(tap, weight)| {
                let x = (x + tap).saturating_sub(REACH).min(image.width - 1);
                weight * line[x]
            })
            .sum();
    }
}

fn along_column(image: &Image, from: &[f32], y: usize, row: &mut [f32]) {
    row.fill(0.0);
    for (tap, weight) in KERNEL.iter().enumerate() {
        let y = (y + tap).saturating_sub(REACH).min(image.height - 1);
        let line = &from[y * image.width..][..image.width];
        for (pixel, value) in row.iter_mut().zip(line) {
            *pixel += weight * value;
        }
    }
}

fn answer(pixels: &[f32]) -> u64 {
    digest(
        pixels
            .iter()
            .step_by(17)
            .map(|pixel| pixel.to_bits().into()),
    )
}

fn sequential(input: &mut Input) -> u64 {
    let image = &input.image;
    let mut half = vec![0.0; image.pixels.len()];
    for (y, row) in half.chunks_mut(image.width).enumerate() {
        along_row(image, &image.pixels, y, row);
    }
    let mut blurred = vec![0.0; image.pixels.len()];
    for (y, row) in blurred.chunks_mut(image.width).enumerate() {
        along_column(image, &half, y, row);
    }
    answer(&blurred)
}

fn ours(input: &mut Input) -> u64 {
    let image = &input.image;
    let mut half = vec![0.0; image.pixels.len()];
    par::over(&mut half)
        .chunks(image.width)
        .enumerate()
        .for_each(|(y, row)| along_row(image, &image.pixels, y, row));
    let mut blurred = vec![0.0; image.pixels.len()];
    par::over(&mut blurred)
        .chunks(image.width)
        .enumerate()
        .for_each(|(y, row)| along_column(image, &half, y, row));
    answer(&blurred)
}

fn by_rayon(input: &mut Input) -> u64 {
    let image = &input.image;
    let mut half = vec![0.0; image.pixels.len()];
    half.par_chunks_mut(image.width)
        .enumerate()
        .for_each(|(y, row)| along_row(image, &image.pixels, y, row));
    let mut blurred = vec![0.0; image.pixels.len()];
    blurred
        .par_chunks_mut(image.width)
        .enumerate()
        .for_each(|(y, row)| along_column(image, &half, y, row));
    answer(&blurred)
}
