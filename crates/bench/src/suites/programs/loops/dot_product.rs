//! The cost of an order: amounts times prices. All are whole numbers, so the sum is the same wherever it is cut.

use jobtree::par;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};

use crate::suites::programs::inputs::rng;
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    amounts: Vec<f64>,
    prices: Vec<f64>,
}

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(1_000_000, 5000);
    let mut rng = rng();
    let [amounts, prices] = [(); 2].map(|()| (0..count).map(|_| rng.below(1000) as f64).collect());
    Program::new("item", count, Input { amounts, prices })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

fn sequential(input: &mut Input) -> u64 {
    let items = input.amounts.iter().zip(&input.prices);
    items.map(|(amount, price)| amount * price).sum::<f64>() as u64
}

fn ours(input: &mut Input) -> u64 {
    let items = par::over(&input.amounts).zip(&input.prices);
    items.map(|(amount, price)| amount * price).sum::<f64>() as u64
}

fn by_rayon(input: &mut Input) -> u64 {
    let items = input.amounts.par_iter().zip(&input.prices);
    items.map(|(amount, price)| amount * price).sum::<f64>() as u64
}
