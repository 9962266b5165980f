//! A file with an order in JSON on each line: parsed, and the amounts of those that were paid added up.
//!
//! As in the word count, jobtree's users collect the lines first.

use jobtree::par;
use rayon::iter::ParallelIterator;
use rayon::str::ParallelString;
use serde_json::Value;

use crate::suites::programs::inputs::{Words, rng};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    text: String,
}

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(4000, 50);
    let (mut words, mut rng) = (Words::new(), rng());
    let text = (0..count)
        .map(|number| {
            let order = serde_json::json!({
                "id": number,
                "item": words.line(3),
                "paid": rng.coin(),
                "cents": rng.below(100_000),
                "tags": [words.next(), "new"],
            });
            format!("{order}\n")
        })
        .collect();
    Program::new("line", count, Input { text })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

fn paid(line: &str) -> u64 {
    let order: Value = serde_json::from_str(line).expect("each line is an order");
    match (&order["paid"], &order["cents"]) {
        (Value::Bool(true), cents) => cents.as_u64().expect("cents are a number"),
        _ => 0,
    }
}

fn sequential(input: &mut Input) -> u64 {
    input.text.lines().map(paid).sum()
}

fn ours(input: &mut Input) -> u64 {
    let lines: Vec<&str> = input.text.lines().collect();
    par::over(&lines).map(|line| paid(line)).sum()
}

fn by_rayon(input: &mut Input) -> u64 {
    input.text.par_lines().map(paid).sum()
}
