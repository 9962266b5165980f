//! The product of two matrices by Strassen: seven products of half the size, all at the same time.
//!
//! Seven forks of one kind are `join_each` in jobtree, and a parallel iterator over the seven in rayon.

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::suites::programs::inputs::{digest, numbers};
use crate::suites::programs::program::{Program, Scale};

#[derive(Clone)]
pub struct Matrix {
    size: usize,
    /// Whole numbers that wrap, so that the order of additions does not matter.
    values: Vec<u64>,
}

pub struct Input {
    a: Matrix,
    b: Matrix,
}

/// Smaller matrices are multiplied the usual way.
const SMALL: usize = 32;

pub fn program(scale: Scale) -> Program<Input> {
    let size = scale.pick(256, 64);
    let values = numbers(size * size, 1000);
    let a = Matrix { size, values };
    let mut b = a.clone();
    b.values.reverse();
    Program::new("row", size, Input { a, b })
        .sequential(|input| answer(&sequential(&input.a, &input.b)))
        .ours(|input| answer(&ours(&input.a, &input.b)))
        .rayon(|input| answer(&by_rayon(&input.a, &input.b)))
}

fn answer(product: &Matrix) -> u64 {
    digest(product.values.iter().copied())
}

impl Matrix {
    fn quarter(&self, down: usize, right: usize) -> Self {
        let size = self.size / 2;
        let rows = self.values.chunks(self.size).skip(down * size).take(size);
        let values = rows.flat_map(|row| &row[right * size..][..size]);
        Self {
            size,
            values: values.copied().collect(),
        }
    }

    fn quarters(&self) -> [[Self; 2]; 2] {
        [0, 1].map(|down| [0, 1].map(|right| self.quarter(down, right)))
    }

    fn with(&self, other: &Self, operation: fn(u64, u64) -> u64) -> Self {
        let pairs = self.values.iter().zip(&other.values);
        Self {
            size: self.size,
            values: pairs.map(|(a, b)| operation(*a, *b)).collect(),
        }
    }

    fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::wrapping_add)
    }

    fn minus(&self, other: &Self) -> Self {
        self.with(other, u64::wrapping_sub)
    }

    fn times(&self, other: &Self) -> Self {
        let mut values = vec![0_u64; self.values.len()];
        for (row, line) in values
            .chunks_mut(self.size)
            .zip(self.values.chunks(self.size))
        {
            for (factor, other_row) in line.iter().zip(other.values.chunks(self.size)) {
                for (sum, value) in row.iter_mut().zip(other_row) {
                    *sum = sum.wrapping_add(factor.wrapping_mul(*value));
                }
            }
        }
        Self {
            size: self.size,
            values,
        }
    }
}

/// The pairs whose products are needed.
fn pairs(a: &Matrix, b: &Matrix) -> [(Matrix, Matrix); 7] {
    let [[a11, a12], [a21, a22]] = a.quarters();
    let [[b11, b12], [b21, b22]] = b.quarters();
    [
        (a11.plus(&a22), b11.plus(&b22)),
        (a21.plus(&a22), b11.clone()),
        (a11.clone(), b12.minus(&b22)),
        (a22.clone(), b21.minus(&b11)),
        (a11.plus(&a12), b22.clone()),
        (a21.minus(&a11), b11.plus(&b12)),
        (a12.minus(&a22), b21.plus(&b22)),
    ]
}

/// The product, out of the seven.
fn combined(products: &[Matrix]) -> Matrix {
    let [m1, m2, m3, m4, m5, m6, m7] = products else {
        unreachable!("there are seven products");
    };
    let quarters = [
        [m1.plus(m4).minus(m5).plus(m7), m3.plus(m5)],
        [m2.plus(m4), m1.minus(m2).plus(m3).plus(m6)],
    ];
    let half = m1.size;
    let mut values = Vec::with_capacity(4 * half * half);
    for [left, right] in &quarters {
        for (left, right) in left.values.chunks(half).zip(right.values.chunks(half)) {
            values.extend_from_slice(left);
            values.extend_from_slice(right);
        }
    }
    Matrix {
        size: 2 * half,
        values,
    }
}

fn sequential(a: &Matrix, b: &Matrix) -> Matrix {
    if a.size <= SMALL {
        return a.times(b);
    }
    combined(&pairs(a, b).map(|(a, b)| sequential(&a, &b)))
}

fn ours(a: &Matrix, b: &Matrix) -> Matrix {
    if a.size <= SMALL {
        return a.times(b);
    }
    combined(&jobtree::join_each(
        pairs(a, b).map(|(a, b)| move || ours(&a, &b)),
    ))
}

fn by_rayon(a: &Matrix, b: &Matrix) -> Matrix {
    if a.size <= SMALL {
        return a.times(b);
    }
    let pairs = pairs(a, b);
    let products: Vec<Matrix> = pairs.par_iter().map(|(a, b)| by_rayon(a, b)).collect();
    combined(&products)
}
