//! What runs of a type used, beside what their jobs declared.
//!
//! The measured cost of a run is the part of its machine's CPU that it used on average, in units of the whole machine. What
//! is learnt of a type is a factor, measured by declared cost: jobs of one type may declare different costs. Memory is
//! bounded as it is for durations, by buckets.

use std::time::Duration;

use jobtree_protocol::{Usage, UsageStats};
use serde::{Deserialize, Serialize};

use crate::history::{ENOUGH, Quantiles};
use crate::policy::CostPolicy;

/// A run that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The resources that the run used.
    pub usage: Usage,
    /// The declared cost units of its job.
    pub declared: u32,
    /// The units of the whole machine.
    pub capacity: u32,
}

impl Measured {
    /// Returns the measured cost units of a run that took so long; none if its CPU time is not known.
    pub fn cost(&self, ran: Duration) -> Option<f64> {
        let cpu = self.usage.cpu_ms? as f64 / 1000.0;
        let processors = f64::from(self.usage.processors?.max(1));
        let machine = ran.as_secs_f64() * processors;
        (machine > 0.0).then(|| f64::from(self.capacity) * (cpu / machine).min(1.0))
    }
}

// Quantiles are right from 1 on: small values are kept as multiples.
const COST: f64 = 100.0;
const FACTOR: f64 = 1000.0;
const BYTES: f64 = 1.0 / 1024.0;

/// See the module's head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageHistory {
    declared: Quantiles,
    measured: Quantiles,
    factor: Quantiles,
    cpu_ms: Quantiles,
    memory: Quantiles,
    io: Quantiles,
}

impl UsageHistory {
    /// Returns `true` if no run was measured.
    pub fn is_empty(&self) -> bool {
        self.declared.count() == 0
    }

    pub(crate) fn add(&mut self, run: &Measured, ran: Duration) {
        if run.usage == Usage::default() {
            return;
        }
        let declared = f64::from(run.declared.max(1));
        self.declared.add(declared * COST);
        if let Some(cost) = run.cost(ran) {
            self.measured.add(cost * COST);
            self.factor.add(cost / declared * FACTOR);
        }
        let parts = [
            (&mut self.cpu_ms, run.usage.cpu_ms, 1.0),
            (&mut self.memory, run.usage.peak_memory_bytes, BYTES),
            (&mut self.io, run.usage.io_bytes, BYTES),
        ];
        for (quantiles, value, unit) in parts {
            if let Some(value) = value {
                quantiles.add(value as f64 * unit);
            }
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.declared.join(&other.declared);
        self.measured.join(&other.measured);
        self.factor.join(&other.factor);
        self.cpu_ms.join(&other.cpu_ms);
        self.memory.join(&other.memory);
        self.io.join(&other.io);
    }

    /// Returns what admission may charge for each declared unit, within the bounds of [`CostPolicy`]; none while too few runs
    /// were measured.
    pub fn factor(&self) -> Option<f64> {
        let learnt = self.factor.quantile(0.95)? / FACTOR;
        (self.factor.count() >= ENOUGH).then(|| CostPolicy::bounded(learnt))
    }

    /// Returns all of it as it is shown; none if no run was measured.
    pub fn stats(&self) -> Option<UsageStats> {
        let p95 = |quantiles: &Quantiles, unit: f64| quantiles.quantile(0.95).map(|it| it / unit);
        (!self.is_empty()).then(|| UsageStats {
            runs: self.declared.count(),
            declared_cost: self.declared.quantile(0.5).map(|it| it / COST),
            measured_cost: p95(&self.measured, COST),
            cost_factor: self.factor(),
            cpu_sec: p95(&self.cpu_ms, 1000.0),
            peak_memory_bytes: p95(&self.memory, BYTES),
            io_bytes: p95(&self.io, BYTES),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of ten seconds on a machine with two processors and 100 units.
    fn run(declared: u32, cpu_ms: u64) -> Measured {
        let usage = Usage {
            cpu_ms: Some(cpu_ms),
            processors: Some(2),
            peak_memory_bytes: Some(64 << 20),
            io_bytes: None,
        };
        Measured {
            usage,
            declared,
            capacity: 100,
        }
    }

    const TEN: Duration = Duration::from_secs(10);

    fn history(runs: u64, declared: u32, cpu_ms: u64) -> UsageHistory {
        let mut history = UsageHistory::default();
        for _ in 0..runs {
            history.add(&run(declared, cpu_ms), TEN);
        }
        history
    }

    #[test]
    fn the_measured_cost_is_the_part_of_the_machine() {
        assert_eq!(run(10, 10_000).cost(TEN), Some(50.0));
        assert_eq!(
            run(10, 90_000).cost(TEN),
            Some(100.0),
            "never more than all"
        );
        assert_eq!(run(10, 5).cost(Duration::ZERO), None);
        let unknown = Measured {
            usage: Usage::default(),
            ..run(10, 0)
        };
        assert_eq!(unknown.cost(TEN), None);
    }

    #[test]
    fn declared_and_measured_stand_side_by_side() {
        let stats = history(30, 10, 3_000).stats().unwrap();
        let near = |value: Option<f64>, expected: f64| {
            value.is_some_and(|value| (value / expected - 1.0).abs() < 0.03)
        };
        assert_eq!(stats.runs, 30);
        assert!(near(stats.declared_cost, 10.0), "{stats:?}");
        assert!(near(stats.measured_cost, 15.0), "{stats:?}");
        assert!(near(stats.cost_factor, 1.5), "{stats:?}");
        assert!(near(stats.cpu_sec, 3.0), "{stats:?}");
        assert!(
            near(stats.peak_memory_bytes, f64::from(64 << 20)),
            "{stats:?}"
        );
        assert_eq!(stats.io_bytes, None);
    }

    #[test]
    fn a_few_runs_and_runs_without_a_measurement_teach_nothing() {
        assert_eq!(history(ENOUGH - 1, 10, 3_000).factor(), None);
        assert!(history(ENOUGH, 10, 3_000).factor().is_some());
        let mut history = UsageHistory::default();
        let unknown = Measured {
            usage: Usage::default(),
            ..run(10, 0)
        };
        history.add(&unknown, TEN);
        assert!(history.is_empty() && history.stats().is_none());
    }

    #[test]
    fn the_factor_is_bounded() {
        assert_eq!(history(30, 1, 20_000).factor(), Some(CostPolicy::MOST));
        assert_eq!(history(30, 100, 1).factor(), Some(CostPolicy::LEAST));
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = UsageHistory::default();
        for number in 0..100_000_u64 {
            history.add(&run(1 + (number % 100) as u32, number * 7919 % 20_000), TEN);
        }
        let text = serde_json::to_string(&history).unwrap();
        assert!(text.len() < 32 << 10, "{} bytes", text.len());
    }
}
