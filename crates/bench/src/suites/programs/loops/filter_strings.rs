//! The lines of a log that tell of an error, copied into a new vector.

use jobtree::par;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::suites::programs::inputs::{Words, digest};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    lines: Vec<String>,
}

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(50_000, 500);
    let mut words = Words::new();
    let lines = (0..count)
        .map(|number| match number % 7 {
            0 => format!("{number} error: {}", words.line(6)),
            _ => format!("{number} info: {}", words.line(6)),
        })
        .collect();
    Program::new("line", count, Input { lines })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

fn is_error(line: &str) -> bool {
    line.contains(" error: ")
}

fn answer(errors: &[String]) -> u64 {
    digest(errors.iter().map(|line| line.len() as u64))
}

fn sequential(input: &mut Input) -> u64 {
    let lines = input.lines.iter().filter(|line| is_error(line));
    answer(&lines.cloned().collect::<Vec<_>>())
}

fn ours(input: &mut Input) -> u64 {
    let lines = par::over(&input.lines).filter(|line| is_error(line));
    answer(&lines.cloned().collect())
}

fn by_rayon(input: &mut Input) -> u64 {
    let lines = input.lines.par_iter().filter(|line| is_error(line));
    answer(&lines.cloned().collect::<Vec<_>>())
}
