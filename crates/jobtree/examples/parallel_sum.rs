//! The same sum in three ways: by forks, by an explicit worker, by a loop.
//!
//! `cargo run -p jobtree --example parallel_sum`

use jobtree::{Worker, join, par, with_worker};

/// Forks down to single numbers; a fork that nobody takes costs about as much as a call.
fn by_forks(numbers: &[u64]) -> u64 {
    match numbers {
        [] => 0,
        [number] => *number,
        _ => {
            let (left, right) = numbers.split_at(numbers.len() / 2);
            let (left, right) = join(|| by_forks(left), || by_forks(right));
            left + right
        }
    }
}

/// The same with the worker handed down, which saves looking it up.
fn by_worker(worker: &Worker, numbers: &[u64]) -> u64 {
    match numbers {
        [] => 0,
        [number] => *number,
        _ => {
            let (left, right) = numbers.split_at(numbers.len() / 2);
            let (left, right) = worker.join(
                |worker| by_worker(worker, left),
                |worker| by_worker(worker, right),
            );
            left + right
        }
    }
}

fn main() {
    let numbers: Vec<u64> = (1..=100_000).collect();
    let expected = 100_000 * 100_001 / 2;

    assert_eq!(by_forks(&numbers), expected);
    assert_eq!(with_worker(|worker| by_worker(worker, &numbers)), expected);
    assert_eq!(par::over(&numbers).sum::<u64>(), expected);

    println!("the numbers from 1 to 100000 make {expected}, in three ways");
}
