//! A merge sort as one writes it at school: both halves at the same time, then merged through a buffer.

use crate::suites::programs::inputs::{digest, numbers};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    given: Vec<u64>,
    work: Vec<u64>,
    buffer: Vec<u64>,
}

/// Fewer numbers are sorted by the standard library.
const SHORT: usize = 2000;

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(200_000, 10_000);
    let given = numbers(count, usize::MAX);
    let (work, buffer) = (given.clone(), vec![0; count]);
    let input = Input {
        given,
        work,
        buffer,
    };
    Program::new("number", count, input)
        .prepare(|input| input.work.copy_from_slice(&input.given))
        .sequential(|input| {
            sequential(&mut input.work, &mut input.buffer);
            digest(input.work.iter().copied())
        })
        .ours(|input| {
            ours(&mut input.work, &mut input.buffer);
            digest(input.work.iter().copied())
        })
        .rayon(|input| {
            by_rayon(&mut input.work, &mut input.buffer);
            digest(input.work.iter().copied())
        })
        .chili(|scope, input| {
            by_chili(scope, &mut input.work, &mut input.buffer);
            digest(input.work.iter().copied())
        })
}

fn merge(left: &[u64], right: &[u64], into: &mut [u64]) {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    for place in into {
        let take_left = match (left.peek(), right.peek()) {
            (Some(left), Some(right)) => left <= right,
            (left, _) => left.is_some(),
        };
        let next = if take_left { left.next() } else { right.next() };
        *place = *next.expect("as many places as numbers");
    }
}

fn merge_halves(numbers: &mut [u64], buffer: &mut [u64]) {
    let (left, right) = numbers.split_at(numbers.len() / 2);
    merge(left, right, buffer);
    numbers.copy_from_slice(buffer);
}

fn sequential(numbers: &mut [u64], buffer: &mut [u64]) {
    if numbers.len() <= SHORT {
        return numbers.sort();
    }
    let middle = numbers.len() / 2;
    let (left, right) = numbers.split_at_mut(middle);
    let (left_buffer, right_buffer) = buffer.split_at_mut(middle);
    sequential(left, left_buffer);
    sequential(right, right_buffer);
    merge_halves(numbers, buffer);
}

fn ours(numbers: &mut [u64], buffer: &mut [u64]) {
    if numbers.len() <= SHORT {
        return numbers.sort();
    }
    let middle = numbers.len() / 2;
    let (left, right) = numbers.split_at_mut(middle);
    let (left_buffer, right_buffer) = buffer.split_at_mut(middle);
    jobtree::join(|| ours(left, left_buffer), || ours(right, right_buffer));
    merge_halves(numbers, buffer);
}

fn by_rayon(numbers: &mut [u64], buffer: &mut [u64]) {
    if numbers.len() <= SHORT {
        return numbers.sort();
    }
    let middle = numbers.len() / 2;
    let (left, right) = numbers.split_at_mut(middle);
    let (left_buffer, right_buffer) = buffer.split_at_mut(middle);
    rayon::join(
        || by_rayon(left, left_buffer),
        || by_rayon(right, right_buffer),
    );
    merge_halves(numbers, buffer);
}

fn by_chili(scope: &mut chili::Scope<'_>, numbers: &mut [u64], buffer: &mut [u64]) {
    if numbers.len() <= SHORT {
        return numbers.sort();
    }
    let middle = numbers.len() / 2;
    let (left, right) = numbers.split_at_mut(middle);
    let (left_buffer, right_buffer) = buffer.split_at_mut(middle);
    scope.join(
        |scope| by_chili(scope, left, left_buffer),
        |scope| by_chili(scope, right, right_buffer),
    );
    merge_halves(numbers, buffer);
}
