//! Fibonacci numbers the slow way: nothing but calls, so a fork's cost stands alone.

use crate::sides::on_every_side;

/// How many calls `fib(n)` makes, itself included.
pub fn calls(n: u32) -> u64 {
    let (mut this, mut next) = (1, 1);
    for _ in 0..n {
        (this, next) = (next, this + next + 1);
    }
    this
}

on_every_side! {
    input u32;

    fn run(context, input: &mut u32) -> u64 {
        fib(context, *input)
    }

    fn fib(context, n: u32) -> u64 {
        if n < 2 {
            return u64::from(n);
        }
        let (one, other) = join(context, move |context| fib(context, n - 1), move |context| fib(context, n - 2));
        one + other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_its_calls() {
        assert_eq!([0, 1, 2, 3, 4].map(calls), [1, 1, 3, 5, 9]);
        assert_eq!(calls(32), 7_049_155);
    }

    #[test]
    fn it_gives_fibonacci_numbers() {
        assert_eq!(sequential::run((), &mut 20), 6765);
    }
}
