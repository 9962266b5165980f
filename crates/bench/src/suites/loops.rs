//! Loops, searches and sorts: our `par` against rayon's iterators, and against the plain loop.
//!
//! On one worker a loop should be the plain loop. On more, the goal is a ratio to rayon; where all that can be had is
//! the memory's bandwidth, one is the best that there is. `orx-parallel` on our pool is shown beside them: its
//! iterators come with the feature `iter`, so this says for what they are good.

use std::sync::Arc;

use jobtree_par as par;
use jobtree_par::iter::{self, prelude::*};
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};

use super::Options;
use crate::harness::{
    Contender, Contest, Goal, Report, Role, Row, SplitMix64, Standing, timed,
    timed_with_preparation,
};
use crate::sides::Pools;

/// Where the inputs' random numbers come from.
const INPUT_SEED: u64 = 42;
/// How many numbers the long loops go over.
const MANY: usize = 10_000_000;
/// How many numbers are sorted, mapped and cut into chunks.
const SOME: usize = 1_000_000;
/// How many items one chunk has.
const CHUNK: usize = 1000;
/// Where the number that an early search looks for is.
const EARLY: usize = 200;

/// Runs every row that was asked for.
pub fn run(options: &Options) -> Report {
    let mut report = Report {
        suite: "loops",
        seed: options.plan.seed,
        ..Report::default()
    };
    for workers in options.worker_counts() {
        let pools = Pools::new(workers);
        let mut bench = Bench {
            options,
            pools: &pools,
            rows: &mut report.rows,
        };
        bench.sums();
        bench.maps();
        bench.searches();
        bench.chunks();
        bench.sorts();
    }
    report.standings = standings(&report.rows);
    report
}

/// Numbers, and a copy of them to work on.
#[derive(Clone, Debug)]
struct Numbers {
    given: Arc<[u64]>,
    work: Vec<u64>,
}

impl Numbers {
    fn new(numbers: impl Iterator<Item = u64>) -> Numbers {
        let given: Arc<[u64]> = numbers.collect();
        Numbers {
            work: given.to_vec(),
            given,
        }
    }

    fn random(count: usize) -> Numbers {
        let mut rng = SplitMix64::new(INPUT_SEED);
        Numbers::new((0..count).map(|_| rng.next()))
    }

    fn reset(&mut self) {
        self.work.copy_from_slice(&self.given);
    }

    fn digest(&self) -> u64 {
        self.work.iter().fold(1, |digest: u64, &value| {
            digest.wrapping_mul(31).wrapping_add(value)
        })
    }
}

/// One side's way to do the work.
type Way = fn(&mut Numbers) -> u64;

/// One row.
#[derive(Clone)]
struct Spec {
    name: String,
    unit: &'static str,
    units: usize,
    /// The goal on one worker, as a ratio to the plain loop.
    alone: f64,
    /// The goal on several, as a ratio to rayon.
    shared: f64,
    sequential: Way,
    ours: Way,
    rayon: Way,
    orx: Option<Way>,
    /// Whether an iteration changes the numbers, so that they have to be made anew, and the result is in them.
    changes: bool,
}

/// The rows on one number of workers.
struct Bench<'a> {
    options: &'a Options,
    pools: &'a Pools,
    rows: &'a mut Vec<Row>,
}

impl Bench<'_> {
    fn add(&mut self, spec: Spec, input: impl FnOnce() -> Numbers) {
        if !self.options.wants(&spec.name) {
            return;
        }
        let pools = self.pools;
        let repeat = move |input: &mut Numbers, iterations, way: Way| {
            if spec.changes {
                timed_with_preparation(input, iterations, Numbers::reset, way)
            } else {
                timed(input, iterations, way)
            }
        };
        let on_ours = move |way: Way| {
            move |input: &mut Numbers, iterations| {
                pools.ours.install(|| repeat(input, iterations, way))
            }
        };
        let mut contenders = vec![
            Contender::new("sequential", Role::Sequential, move |input, iterations| {
                repeat(input, iterations, spec.sequential)
            }),
            Contender::new("ours", Role::Ours, on_ours(spec.ours)),
            Contender::new("ours again", Role::Control, on_ours(spec.ours)),
            Contender::new("rayon", Role::Peer, move |input, iterations| {
                pools
                    .rayon
                    .install(|| repeat(input, iterations, spec.rayon))
            }),
        ];
        if let Some(orx) = spec.orx {
            contenders.push(Contender::new("orx on ours", Role::Variant, on_ours(orx)));
        }
        let contest = Contest {
            name: spec.name,
            workers: pools.workers,
            unit: spec.unit,
            units: spec.units as f64,
            goal: if pools.workers == 1 {
                Goal::sequential(spec.alone)
            } else {
                Goal::side("rayon", spec.shared)
            },
            input: input(),
            digest: if spec.changes {
                |numbers, _| numbers.digest()
            } else {
                |_, result| result
            },
            contenders,
        };
        self.rows.push(contest.run(&self.options.plan));
    }

    fn sums(&mut self) {
        // The short one is about the cost of the loop itself, and of waking nobody for nothing.
        for (name, count, alone, shared) in
            [("sum", MANY, 1.05, 1.02), ("short sum", 1000, 1.5, 1.02)]
        {
            let spec = Spec {
                name: format!("{name} of {count}"),
                unit: "item",
                units: count,
                alone,
                shared,
                sequential: |numbers| numbers.given.iter().sum(),
                ours: |numbers| par::over(&*numbers.given).sum(),
                rayon: |numbers| numbers.given.par_iter().sum(),
                orx: Some(|numbers| {
                    let slice = &*numbers.given;
                    slice.par().runner(iter::runner()).sum()
                }),
                changes: false,
            };
            // Small, so that the sum fits.
            self.add(spec, || Numbers::new((0..count as u64).map(|n| n % 1000)));
        }
    }

    fn maps(&mut self) {
        const ADD: u64 = 0x9E37_79B9_7F4A_7C15;
        fn mix(number: u64) -> u64 {
            (number ^ (number >> 30)).wrapping_add(ADD)
        }
        let spec = Spec {
            name: format!("map of {SOME} into a new vector"),
            unit: "item",
            units: SOME,
            alone: 1.05,
            shared: 1.02,
            sequential: |numbers| {
                let mapped: Vec<u64> = numbers.given.iter().map(|n| mix(*n)).collect();
                mapped[SOME / 3]
            },
            ours: |numbers| {
                let mapped = par::over(&*numbers.given).map(|n| mix(*n)).collect();
                mapped[SOME / 3]
            },
            rayon: |numbers| {
                let mapped: Vec<u64> = numbers.given.par_iter().map(|n| mix(*n)).collect();
                mapped[SOME / 3]
            },
            orx: Some(|numbers| {
                let slice = &*numbers.given;
                let mapped: Vec<u64> = slice
                    .par()
                    .runner(iter::runner())
                    .map(|n| mix(*n))
                    .collect();
                mapped[SOME / 3]
            }),
            changes: false,
        };
        self.add(spec, || Numbers::random(SOME));

        let spec = Spec {
            name: format!("map of {SOME} in place"),
            unit: "item",
            units: SOME,
            alone: 1.05,
            shared: 1.02,
            sequential: |numbers| {
                numbers.work.iter_mut().for_each(|n| *n = mix(*n));
                0
            },
            ours: |numbers| {
                par::map_in_place(&mut numbers.work, |n| mix(*n));
                0
            },
            rayon: |numbers| {
                use rayon::iter::IntoParallelRefMutIterator;
                numbers.work.par_iter_mut().for_each(|n| *n = mix(*n));
                0
            },
            orx: None,
            changes: true,
        };
        self.add(spec, || Numbers::random(SOME));
    }

    fn searches(&mut self) {
        /// The only zero is what is looked for.
        fn with_zero_at(place: usize) -> Numbers {
            Numbers::new((0..MANY).map(|n| u64::from(n != place)))
        }
        for (when, place, alone, shared) in [
            ("early", EARLY, 1.5, 0.9),
            ("late", MANY - EARLY, 1.05, 1.02),
        ] {
            let spec = Spec {
                name: format!("find any, {when}"),
                unit: "search",
                units: 1,
                alone,
                shared,
                sequential: |numbers| numbers.given.iter().any(is_zero).into(),
                ours: |numbers| par::over(&*numbers.given).any(is_zero).into(),
                rayon: |numbers| numbers.given.par_iter().any(is_zero).into(),
                orx: Some(|numbers| {
                    let slice = &*numbers.given;
                    slice
                        .par()
                        .runner(iter::runner())
                        .any(|n| is_zero(n))
                        .into()
                }),
                changes: false,
            };
            self.add(spec, || with_zero_at(place));
            let spec = Spec {
                name: format!("find first, {when}"),
                unit: "search",
                units: 1,
                alone,
                shared,
                sequential: |numbers| index(numbers.given.iter().position(|n| *n == 0)),
                ours: |numbers| index(par::over(&*numbers.given).position(|n| *n == 0)),
                rayon: |numbers| index(numbers.given.par_iter().position_first(|n| *n == 0)),
                orx: None,
                changes: false,
            };
            self.add(spec, || with_zero_at(place));
        }
    }

    fn chunks(&mut self) {
        let spec = Spec {
            name: format!("sums of {} chunks", SOME / CHUNK),
            unit: "chunk",
            units: SOME / CHUNK,
            alone: 1.05,
            shared: 1.02,
            sequential: |numbers| numbers.given.chunks(CHUNK).map(sum_of).max().unwrap_or(0),
            ours: |numbers| {
                let chunks = par::over(&*numbers.given).chunks(CHUNK);
                chunks.map(sum_of).max().unwrap_or(0)
            },
            rayon: |numbers| {
                let chunks = numbers.given.par_chunks(CHUNK);
                chunks.map(sum_of).max().unwrap_or(0)
            },
            orx: None,
            changes: false,
        };
        self.add(spec, || Numbers::random(SOME));
    }

    fn sorts(&mut self) {
        for kind in SORT_INPUTS {
            let stable = Spec {
                name: format!("stable sort of {SOME}, {}", kind.name),
                unit: "item",
                units: SOME,
                alone: 1.05,
                shared: kind.shared,
                sequential: |numbers| {
                    numbers.work.sort();
                    0
                },
                ours: |numbers| {
                    par::sort(&mut numbers.work);
                    0
                },
                rayon: |numbers| {
                    numbers.work.par_sort();
                    0
                },
                orx: None,
                changes: true,
            };
            let unstable = Spec {
                name: format!("unstable sort of {SOME}, {}", kind.name),
                sequential: |numbers| {
                    numbers.work.sort_unstable();
                    0
                },
                ours: |numbers| {
                    par::sort_unstable(&mut numbers.work);
                    0
                },
                rayon: |numbers| {
                    numbers.work.par_sort_unstable();
                    0
                },
                ..stable.clone()
            };
            self.add(stable, kind.input);
            self.add(unstable, kind.input);
        }
    }
}

/// What is sorted.
struct SortInput {
    name: &'static str,
    /// The goal on several workers, as a ratio to rayon.
    shared: f64,
    input: fn() -> Numbers,
}

const SORT_INPUTS: [SortInput; 4] = [
    SortInput {
        name: "random",
        shared: 0.9,
        input: || Numbers::random(SOME),
    },
    SortInput {
        name: "sorted",
        shared: 1.0,
        input: || Numbers::new(0..SOME as u64),
    },
    SortInput {
        name: "reversed",
        shared: 1.0,
        input: || Numbers::new((0..SOME as u64).rev()),
    },
    SortInput {
        name: "equal",
        shared: 1.0,
        input: || Numbers::new((0..SOME).map(|_| 7)),
    },
];

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn index(found: Option<usize>) -> u64 {
    found.map_or(u64::MAX, |index| index as u64)
}

fn sum_of(chunk: &[u64]) -> u64 {
    chunk.iter().fold(0, |sum, n| sum.wrapping_add(*n))
}

/// The last lines: how we stand over all rows.
fn standings(rows: &[Row]) -> Vec<Standing> {
    let mut counts: Vec<usize> = rows.iter().map(|row| row.workers).collect();
    counts.dedup();
    counts
        .into_iter()
        .flat_map(|workers| {
            ["sequential", "rayon"].map(|side| {
                let ratios: Vec<(String, f64)> = rows
                    .iter()
                    .filter(|row| row.workers == workers)
                    .filter_map(|row| Some((row.name.clone(), row.ratio_to(side)?.estimate.median)))
                    .collect();
                Standing::over(format!("{workers} worker(s), to {side}"), &ratios)
            })
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::harness::Plan;

    #[test]
    fn all_sides_agree_on_every_row_and_every_row_is_judged() {
        let plan = Plan {
            rounds: 1,
            side_time: Duration::from_micros(1),
            ..Plan::quick()
        };
        let options = |filter: &str| Options {
            plan: plan.clone(),
            quick: true,
            workers: Some(2),
            filter: Some(filter.into()),
            on_postgres: false,
        };
        // Without the random sorts and the late searches, which take long where nothing is optimised.
        for (filter, rows) in [
            ("short sum", 1),
            ("map", 2),
            ("early", 2),
            ("chunks", 1),
            ("sorted", 2),
            ("equal", 2),
        ] {
            let report = run(&options(filter));
            assert_eq!(report.rows.len(), rows, "{filter}");
            assert!(report.rows.iter().all(|row| row.judged().is_some()));
            assert_eq!(report.standings.len(), 2);
        }
    }
}
