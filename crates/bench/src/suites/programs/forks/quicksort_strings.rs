//! A quicksort of strings in place.

use crate::suites::programs::inputs::{Words, digest, digest_of_text};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    given: Vec<String>,
    work: Vec<String>,
}

/// Fewer strings are sorted by the standard library.
const SHORT: usize = 500;

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(30_000, 2000);
    let mut words = Words::new();
    let given: Vec<String> = (0..count).map(|_| words.line(2)).collect();
    let work = given.clone();
    Program::new("string", count, Input { given, work })
        .prepare(|input| input.work.clone_from(&input.given))
        .sequential(|input| {
            sequential(&mut input.work);
            answer(&input.work)
        })
        .ours(|input| {
            ours(&mut input.work);
            answer(&input.work)
        })
        .rayon(|input| {
            by_rayon(&mut input.work);
            answer(&input.work)
        })
        .chili(|scope, input| {
            by_chili(scope, &mut input.work);
            answer(&input.work)
        })
}

fn answer(strings: &[String]) -> u64 {
    digest(strings.iter().step_by(101).map(|text| digest_of_text(text)))
}

/// Puts what is smaller than the middle one before it, and returns its place.
fn partition(strings: &mut [String]) -> usize {
    let last = strings.len() - 1;
    strings.swap(strings.len() / 2, last);
    let mut place = 0;
    for index in 0..last {
        if strings[index] < strings[last] {
            strings.swap(index, place);
            place += 1;
        }
    }
    strings.swap(place, last);
    place
}

fn sequential(strings: &mut [String]) {
    if strings.len() <= SHORT {
        return strings.sort_unstable();
    }
    let place = partition(strings);
    let (left, right) = strings.split_at_mut(place);
    sequential(left);
    sequential(&mut right[1..]);
}

fn ours(strings: &mut [String]) {
    if strings.len() <= SHORT {
        return strings.sort_unstable();
    }
    let place = partition(strings);
    let (left, right) = strings.split_at_mut(place);
    jobtree::join(|| ours(left), || ours(&mut right[1..]));
}

fn by_rayon(strings: &mut [String]) {
    if strings.len() <= SHORT {
        return strings.sort_unstable();
    }
    let place = partition(strings);
    let (left, right) = strings.split_at_mut(place);
    rayon::join(|| by_rayon(left), || by_rayon(&mut right[1..]));
}

fn by_chili(scope: &mut chili::Scope<'_>, strings: &mut [String]) {
    if strings.len() <= SHORT {
        return strings.sort_unstable();
    }
    let place = partition(strings);
    let (left, right) = strings.split_at_mut(place);
    scope.join(
        |scope| by_chili(scope, left),
        |scope| by_chili(scope, &mut right[1..]),
    );
}
