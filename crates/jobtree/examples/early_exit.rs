//! Loops that end before their items do: searches, and loops that can fail.
//!
//! `cargo run -p jobtree --example early_exit`

use jobtree::par;

fn is_prime(number: u64) -> bool {
    number > 1
        && (2..)
            .take_while(|d| d * d <= number)
            .all(|d| !number.is_multiple_of(d))
}

fn main() {
    // The first one by position, whichever worker comes across which one first.
    let first = par::over(1_000_000..u64::MAX).find_first(|n| is_prime(*n));
    assert_eq!(first, Some(1_000_003));

    // Any one: the quickest way to an answer.
    let any = par::over(0..1_000_000_u64).find_any(|n| *n > 900_000 && is_prime(*n));
    assert!(any.is_some_and(is_prime));

    // The error is that of the first line that is wrong, as in a sequential loop.
    let lines = ["10", "20", "x", "40", "y"];
    let numbers = par::over(&lines)
        .map(|line| line.parse::<u32>().map_err(|_| *line))
        .try_collect();
    assert_eq!(numbers, Err("x"));

    println!("the first prime above a million is 1000003; `x` is no number");
}
