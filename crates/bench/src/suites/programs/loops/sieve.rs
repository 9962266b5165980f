//! The number of primes below a bound: the sieve of Eratosthenes, segment by segment.

use jobtree::par;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    bound: usize,
}

/// As many numbers as fit into the nearest cache, a byte each.
const SEGMENT: usize = 32 * 1024;

pub fn program(scale: Scale) -> Program<Input> {
    let bound = scale.pick(4_000_000, 200_000);
    Program::new("number", bound, Input { bound })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

/// The primes up to the root of `bound`, by which all others are sieved.
fn small_primes(bound: usize) -> Vec<usize> {
    let root = bound.isqrt();
    let mut composite = vec![false; root + 1];
    let mut primes = Vec::new();
    for number in 2..=root {
        if !composite[number] {
            primes.push(number);
            for multiple in (number * number..=root).step_by(number) {
                composite[multiple] = true;
            }
        }
    }
    primes
}

fn primes_in(segment: usize, bound: usize, small: &[usize]) -> usize {
    let start = segment * SEGMENT;
    let len = SEGMENT.min(bound - start);
    let mut composite = [false; SEGMENT];
    for prime in small {
        let first = (prime * prime).max(start.next_multiple_of(*prime));
        for multiple in (first..start + len).step_by(*prime) {
            composite[multiple - start] = true;
        }
    }
    let below_two = 2_usize.saturating_sub(start);
    composite[below_two..len].iter().filter(|c| !**c).count()
}

fn sequential(input: &mut Input) -> u64 {
    let (bound, small) = (input.bound, small_primes(input.bound));
    let segments = 0..bound.div_ceil(SEGMENT);
    let counts = segments.map(|segment| primes_in(segment, bound, &small));
    counts.sum::<usize>() as u64
}

fn ours(input: &mut Input) -> u64 {
    let (bound, small) = (input.bound, small_primes(input.bound));
    let segments = par::over(0..bound.div_ceil(SEGMENT));
    let counts = segments.map(|segment| primes_in(segment, bound, &small));
    counts.sum::<usize>() as u64
}

fn by_rayon(input: &mut Input) -> u64 {
    let (bound, small) = (input.bound, small_primes(input.bound));
    let segments = (0..bound.div_ceil(SEGMENT)).into_par_iter();
    let counts = segments.map(|segment| primes_in(segment, bound, &small));
    counts.sum::<usize>() as u64
}
