//! The eight colours that represent an image best, by a few rounds of k-means. All in whole numbers, so that the answer does
//! not depend on the order in which pixels are added up.

use jobtree::par;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::suites::programs::inputs::{digest, rng};
use crate::suites::programs::program::{Program, Scale};

type Pixel = [u8; 3];
type Centre = [i64; 3];

const CENTRES: usize = 8;
const ROUNDS: usize = 4;

pub struct Input {
    pixels: Vec<Pixel>,
}

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(100_000, 2000);
    let mut rng = rng();
    let pixels = (0..count)
        .map(|_| {
            let bright = rng.below(200);
            [(); 3].map(|()| (bright + rng.below(56)) as u8)
        })
        .collect();
    Program::new("pixel", count, Input { pixels })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

/// For each centre the sums of the pixels that are nearest to it, and their number.
type Sums = [[i64; 4]; CENTRES];

const NOTHING: Sums = [[0; 4]; CENTRES];

fn nearest(centres: &[Centre; CENTRES], pixel: &Pixel) -> usize {
    let distance = |centre: &Centre| -> i64 {
        let differences = centre.iter().zip(pixel).map(|(c, p)| c - i64::from(*p));
        differences.map(|difference| difference * difference).sum()
    };
    let mut best = (i64::MAX, 0);
    for (index, centre) in centres.iter().enumerate() {
        best = best.min((distance(centre), index));
    }
    best.1
}

fn add(centres: &[Centre; CENTRES], mut sums: Sums, pixel: &Pixel) -> Sums {
    let sum = &mut sums[nearest(centres, pixel)];
    for (sum, value) in sum.iter_mut().zip(pixel) {
        *sum += i64::from(*value);
    }
    sum[3] += 1;
    sums
}

fn merge(mut left: Sums, right: Sums) -> Sums {
    for (left, right) in left.as_flattened_mut().iter_mut().zip(right.as_flattened()) {
        *left += right;
    }
    left
}

fn in_rounds(pixels: &[Pixel], sums_around: impl Fn(&[Centre; CENTRES]) -> Sums) -> u64 {
    let mut centres: [Centre; CENTRES] =
        std::array::from_fn(|index| pixels[index * pixels.len() / CENTRES].map(i64::from));
    for _ in 0..ROUNDS {
        let sums = sums_around(&centres);
        for (centre, [r, g, b, count]) in centres.iter_mut().zip(sums) {
            if count > 0 {
                *centre = [r, g, b].map(|sum| sum / count);
            }
        }
    }
    digest(centres.as_flattened().iter().map(|value| *value as u64))
}

fn sequential(input: &mut Input) -> u64 {
    in_rounds(&input.pixels, |centres| {
        let pixels = input.pixels.iter();
        pixels.fold(NOTHING, |sums, pixel| add(centres, sums, pixel))
    })
}

fn ours(input: &mut Input) -> u64 {
    in_rounds(&input.pixels, |centres| {
        par::over(&input.pixels).fold(|| NOTHING, |sums, pixel| add(centres, sums, pixel), merge)
    })
}

fn by_rayon(input: &mut Input) -> u64 {
    in_rounds(&input.pixels, |centres| {
        let pixels = input.pixels.par_iter();
        pixels
            .fold(|| NOTHING, |sums, pixel| add(centres, sums, pixel))
            .reduce(|| NOTHING, merge)
    })
}
