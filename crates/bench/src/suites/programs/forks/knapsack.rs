//! The most valuable load that a knapsack can carry, by branch and bound. The branches know the best load that any of them
//! has found.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::suites::programs::inputs::rng;
use crate::suites::programs::program::{Program, Scale};

#[derive(Clone, Copy)]
pub struct Item {
    value: u64,
    weight: u64,
}

pub struct Input {
    /// The most valuable by weight first.
    items: Vec<Item>,
    capacity: u64,
}

/// Below so many decisions it forks.
const FORKS: usize = 12;

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(34, 14);
    let mut rng = rng();
    let mut items: Vec<Item> = (0..count)
        .map(|_| {
            let weight = 500 + rng.below(500) as u64;
            // Nearly as valuable as heavy, or it would be too easy.
            let value = weight + 50 + rng.below(20) as u64;
            Item { value, weight }
        })
        .collect();
    items.sort_by_key(|item| u64::MAX - item.value * 1_000_000 / item.weight);
    let capacity = items.iter().map(|item| item.weight).sum::<u64>() / 2;
    Program::new("item", count, Input { items, capacity })
        .sequential(|input| {
            let search = Search::new(input);
            search.sequential(0, 0, 0);
            search.best.into_inner()
        })
        .ours(|input| {
            let search = Search::new(input);
            search.ours(0, 0, 0);
            search.best.into_inner()
        })
        .rayon(|input| {
            let search = Search::new(input);
            search.by_rayon(0, 0, 0);
            search.best.into_inner()
        })
        .chili(|scope, input| {
            let search = Search::new(input);
            search.by_chili(scope, 0, 0, 0);
            search.best.into_inner()
        })
}

struct Search<'i> {
    items: &'i [Item],
    capacity: u64,
    best: AtomicU64,
}

impl<'i> Search<'i> {
    fn new(input: &'i Input) -> Self {
        Self {
            items: &input.items,
            capacity: input.capacity,
            best: AtomicU64::new(0),
        }
    }

    /// Returns the most that all further items could bring: as if the last one could be cut.
    fn bound(&self, next: usize, mut room: u64) -> u64 {
        let mut value = 0;
        for item in &self.items[next..] {
            if item.weight > room {
                return value + item.value * room / item.weight + 1;
            }
            room -= item.weight;
            value += item.value;
        }
        value
    }

    /// Returns `true` if item `next` is worth a decision.
    fn goes_on(&self, next: usize, value: u64, weight: u64) -> bool {
        let best = self.best.fetch_max(value, Ordering::Relaxed).max(value);
        next < self.items.len() && value + self.bound(next, self.capacity - weight) > best
    }

    /// Value and weight with item `next`, if it can be carried.
    fn with(&self, next: usize, value: u64, weight: u64) -> Option<(u64, u64)> {
        let item = self.items[next];
        (weight + item.weight <= self.capacity)
            .then_some((value + item.value, weight + item.weight))
    }

    fn sequential(&self, next: usize, value: u64, weight: u64) {
        if !self.goes_on(next, value, weight) {
            return;
        }
        if let Some((value, weight)) = self.with(next, value, weight) {
            self.sequential(next + 1, value, weight);
        }
        self.sequential(next + 1, value, weight);
    }

    fn ours(&self, next: usize, value: u64, weight: u64) {
        if next >= FORKS {
            return self.sequential(next, value, weight);
        }
        if !self.goes_on(next, value, weight) {
            return;
        }
        let with = || {
            if let Some((value, weight)) = self.with(next, value, weight) {
                self.ours(next + 1, value, weight);
            }
        };
        jobtree::join(with, || self.ours(next + 1, value, weight));
    }

    fn by_rayon(&self, next: usize, value: u64, weight: u64) {
        if next >= FORKS {
            return self.sequential(next, value, weight);
        }
        if !self.goes_on(next, value, weight) {
            return;
        }
        let with = || {
            if let Some((value, weight)) = self.with(next, value, weight) {
                self.by_rayon(next + 1, value, weight);
            }
        };
        rayon::join(with, || self.by_rayon(next + 1, value, weight));
    }

    fn by_chili(&self, scope: &mut chili::Scope<'_>, next: usize, value: u64, weight: u64) {
        if next >= FORKS {
            return self.sequential(next, value, weight);
        }
        if !self.goes_on(next, value, weight) {
            return;
        }
        let with = |scope: &mut chili::Scope<'_>| {
            if let Some((value, weight)) = self.with(next, value, weight) {
                self.by_chili(scope, next + 1, value, weight);
            }
        };
        scope.join(with, |scope| self.by_chili(scope, next + 1, value, weight));
    }
}
