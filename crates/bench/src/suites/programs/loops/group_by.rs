//! Orders by customer: a map from each customer to its orders, and of each group the largest order.

use std::collections::HashMap;

use jobtree::par;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::suites::programs::inputs::rng;
use crate::suites::programs::program::{Program, Scale};

pub struct Order {
    customer: u32,
    cents: u64,
}

pub struct Input {
    orders: Vec<Order>,
}

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(200_000, 3000);
    let mut rng = rng();
    let orders = (0..count)
        .map(|_| Order {
            customer: rng.below(count / 100) as u32,
            cents: rng.below(1_000_000) as u64,
        })
        .collect();
    Program::new("order", count, Input { orders })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

type Groups<'o> = HashMap<u32, Vec<&'o Order>>;

fn add<'o>(mut groups: Groups<'o>, order: &'o Order) -> Groups<'o> {
    groups.entry(order.customer).or_default().push(order);
    groups
}

fn merge<'o>(mut left: Groups<'o>, right: Groups<'o>) -> Groups<'o> {
    for (customer, mut orders) in right {
        left.entry(customer).or_default().append(&mut orders);
    }
    left
}

fn answer(groups: &Groups<'_>) -> u64 {
    let largest = groups.iter().map(|(customer, orders)| {
        let cents = orders.iter().map(|order| order.cents).max().unwrap_or(0);
        cents.wrapping_mul(u64::from(*customer) + 1)
    });
    largest.fold(0, u64::wrapping_add)
}

fn sequential(input: &mut Input) -> u64 {
    answer(&input.orders.iter().fold(HashMap::new(), add))
}

fn ours(input: &mut Input) -> u64 {
    answer(&par::over(&input.orders).fold(HashMap::new, add, merge))
}

fn by_rayon(input: &mut Input) -> u64 {
    let orders = input.orders.par_iter();
    answer(&orders.fold(HashMap::new, add).reduce(HashMap::new, merge))
}
