//! What a fork costs: one join a node or call and no cutoff, on one worker and on two.
//!
//! On one worker the question is what the forks cost that nobody takes: the goal is a ratio to the same code without
//! them. On more it is what sharing gives: the goal is a ratio to the better of the peers.

use std::sync::Arc;
use std::time::Duration;

use super::Options;
use crate::harness::{Contest, Goal, Report, Row, SplitMix64, Standing};
use crate::sides::{Entries, Pools};
use crate::workloads::{fib, queens, quicksort, spin, ternary, tree};

/// The row that is limited by the machine and by nobody's forks: the best possible ratio is one.
const TWO_LOOPS: &str = "join of two 1 ms loops";
/// The row that none of the peers has an answer of its own to.
const THREE_WAY: &str = "join of three, ternary tree";

/// Where the inputs' random numbers come from: the same ones in every run.
fn rng() -> SplitMix64 {
    SplitMix64::new(42)
}

/// Runs every row that was asked for.
pub fn run(options: &Options) -> Report {
    let mut report = Report {
        suite: "forkjoin",
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
        bench.trees();
        bench.calls();
        bench.sort();
        bench.loops();
        bench.three_way();
    }
    report.standings = standings(&report.rows);
    report
}

/// The rows on one number of workers.
struct Bench<'a> {
    options: &'a Options,
    pools: &'a Pools,
    rows: &'a mut Vec<Row>,
}

/// What one row needs beside its input.
struct Spec<I> {
    name: String,
    unit: &'static str,
    units: u64,
    /// The goal on one worker.
    alone: Option<Goal>,
    /// The goal on several.
    shared: Option<Goal>,
    entries: Entries<I>,
    prepare: Option<fn(&mut I)>,
    digest: fn(&I, u64) -> u64,
}

impl<I> Spec<I> {
    fn new(name: impl Into<String>, unit: &'static str, units: u64, entries: Entries<I>) -> Self {
        Self {
            name: name.into(),
            unit,
            units,
            alone: Goal::sequential(1.2),
            shared: None,
            entries,
            prepare: None,
            digest: |_, result| result,
        }
    }

    fn alone(self, alone: Option<Goal>) -> Self {
        Self { alone, ..self }
    }

    fn shared(self, shared: Option<Goal>) -> Self {
        Self { shared, ..self }
    }
}

impl Bench<'_> {
    fn add<I: Clone + Send>(&mut self, spec: Spec<I>, input: impl FnOnce() -> I) {
        if !self.options.wants(&spec.name) {
            return;
        }
        let contest = Contest {
            name: spec.name,
            workers: self.pools.workers,
            unit: spec.unit,
            units: spec.units as f64,
            goal: if self.pools.workers == 1 {
                spec.alone
            } else {
                spec.shared
            },
            input: input(),
            digest: spec.digest,
            contenders: spec.entries.contenders(self.pools, spec.prepare),
        };
        self.rows.push(contest.run(&self.options.plan));
    }

    fn trees(&mut self) {
        let rows = [
            (10, Goal::sequential(2.0), Goal::sequential(1.3)),
            (20, Goal::sequential(1.2), Goal::better_peer(0.8)),
            (24, Goal::sequential(1.2), Goal::better_peer(0.9)),
        ];
        for (levels, alone, shared) in rows {
            let nodes = (1 << levels) - 1;
            let name = format!("tree sum, {nodes} nodes");
            let spec = Spec::new(name, "node", nodes, tree::entries());
            self.add(spec.alone(alone).shared(shared), || {
                Arc::new(tree::Node::full(levels, &mut rng()))
            });
        }
        let nodes = 4_000_000;
        let name = "unbalanced tree, 4000000 nodes";
        let spec = Spec::new(name, "node", nodes, tree::entries());
        self.add(spec.shared(Goal::better_peer(0.9)), || {
            Arc::new(tree::Node::unbalanced(nodes as usize, &mut rng()))
        });
    }

    fn calls(&mut self) {
        let spec = Spec::new("fib(32)", "call", fib::calls(32), fib::entries());
        let spec = spec.alone(Goal::sequential(2.0));
        self.add(spec.shared(Goal::better_peer(0.5)), || 32);

        let spec = Spec::new("n-queens(10)", "call", queens::calls(10), queens::entries());
        self.add(spec.shared(Goal::better_peer(0.75)), || 10);
    }

    fn sort(&mut self) {
        let count = 1_000_000;
        let name = "quicksort, 1000000";
        let mut spec = Spec::new(name, "element", count, quicksort::entries());
        spec.prepare = Some(quicksort::Numbers::reset);
        spec.digest = |numbers, _| numbers.digest();
        self.add(spec.shared(Goal::better_peer(0.97)), || {
            quicksort::Numbers::random(count as usize, &mut rng())
        });
    }

    fn loops(&mut self) {
        let spec = Spec::new(TWO_LOOPS, "join", 1, spin::entries());
        self.add(spec.shared(Goal::side("rayon", 1.01)), || {
            spin::steps_for(Duration::from_millis(1))
        });
    }

    fn three_way(&mut self) {
        const LEVELS: u32 = 13;
        let nodes = ternary::nodes(LEVELS);
        let spec = Spec::new(THREE_WAY, "node", nodes, ternary::entries());
        // Two forks a node and hardly any work: what they may cost alone, fib(32) says.
        let spec = spec.alone(None).shared(Goal::better_peer(0.97));
        self.add(spec, || Arc::new(ternary::Node::full(LEVELS, &mut rng())));
    }
}

/// The last lines: how we stand over all rows.
fn standings(rows: &[Row]) -> Vec<Standing> {
    let alone = rows.iter().filter(|row| row.workers == 1);
    let to_sequential: Vec<(String, f64)> = alone
        .filter_map(|row| {
            Some((
                row.name.clone(),
                row.ratio_to("sequential")?.estimate.median,
            ))
        })
        .collect();
    let mut standings: Vec<Standing> = Standing::over("one worker, to sequential", &to_sequential)
        .into_iter()
        .collect();

    let mut counts: Vec<usize> = rows
        .iter()
        .map(|row| row.workers)
        .filter(|&workers| workers > 1)
        .collect();
    counts.dedup();
    for workers in counts {
        let shared = rows.iter().filter(|row| row.workers == workers);
        let to_peer: Vec<(String, f64)> = shared
            .filter_map(|row| Some((row.name.clone(), row.better_peer()?.estimate.median)))
            .collect();
        let (bounded, forking): (Vec<_>, Vec<_>) = to_peer
            .iter()
            .cloned()
            .partition(|(name, _)| name == TWO_LOOPS);
        if !bounded.is_empty() {
            standings.extend(Standing::over(
                format!("{workers} workers, to the better peer, all rows"),
                &to_peer,
            ));
        }
        let title = format!(
            "{workers} workers, to the better peer, without the two 1 ms loops (at best 1.0)"
        );
        standings.extend(Standing::over(title, &forking));
    }
    standings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Plan;

    #[test]
    fn all_sides_agree_on_every_workload_and_every_row_is_judged() {
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
        // The two large trees are left out: built without optimisation they take minutes.
        for filter in ["1023 nodes", "queens", "1 ms loops", "three"] {
            let report = run(&options(filter));
            assert_eq!(report.rows.len(), 1, "{filter}");
            assert!(report.rows[0].judged().is_some(), "{filter}");
        }
    }

    #[test]
    fn the_standing_with_all_rows_and_the_one_without_the_bounded_row_are_kept_apart() {
        let plan = Plan {
            rounds: 1,
            side_time: Duration::from_micros(1),
            ..Plan::quick()
        };
        let options = Options {
            plan,
            quick: true,
            workers: Some(2),
            filter: Some("join of".into()),
            on_postgres: false,
        };
        let rows: Vec<usize> = run(&options)
            .standings
            .iter()
            .map(|standing| standing.rows)
            .collect();
        assert_eq!(rows, [2, 1]);
    }
}
