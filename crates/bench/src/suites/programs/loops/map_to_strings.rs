//! A text for each number.

use jobtree::par;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::suites::programs::inputs::{digest, numbers};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    numbers: Vec<u64>,
}

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(100_000, 500);
    let numbers = numbers(count, 1_000_000_000);
    Program::new("number", count, Input { numbers })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

fn name(number: &u64) -> String {
    format!("item {number}")
}

fn answer(names: &[String]) -> u64 {
    digest(names.iter().map(|name| name.len() as u64))
}

fn sequential(input: &mut Input) -> u64 {
    answer(&input.numbers.iter().map(name).collect::<Vec<_>>())
}

fn ours(input: &mut Input) -> u64 {
    answer(&par::map(&input.numbers, name))
}

fn by_rayon(input: &mut Input) -> u64 {
    answer(&input.numbers.par_iter().map(name).collect::<Vec<_>>())
}
