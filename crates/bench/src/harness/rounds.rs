//! Runs the sides of one comparison in rounds, and keeps each round's figures side by side.

use std::time::Duration;

use super::rng::SplitMix64;
use super::stats::{Estimate, estimate, median};

/// How much time a comparison may take.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How often each side is measured.
    pub rounds: usize,
    /// How long one measurement should take: long enough to drown the clock and the wake-up of a sleeping pool.
    pub side_time: Duration,
    /// Where the order of the sides comes from.
    pub seed: u64,
}

impl Plan {
    /// Enough rounds for intervals of a few percent.
    pub fn full() -> Self {
        Self {
            rounds: 25,
            side_time: Duration::from_millis(30),
            seed: 0x6A6F_6274_7265_6531,
        }
    }

    /// A look in a hurry: the intervals are wide.
    pub fn quick() -> Self {
        Self {
            rounds: 7,
            side_time: Duration::from_millis(20),
            ..Self::full()
        }
    }
}

/// The figures of all sides, by round.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// `figures[side][round]`, all of one length.
    figures: Vec<Vec<f64>>,
}

impl Rounds {
    /// Asks `measure` for one figure a side and round; within a round the sides come in a random order.
    pub fn take(plan: &Plan, sides: usize, mut measure: impl FnMut(usize) -> f64) -> Self {
        let mut rounds = Self {
            figures: vec![Vec::new(); sides],
        };
        rounds.extend(plan, plan.rounds, &mut measure);
        rounds
    }

    /// Adds `count` rounds.
    pub fn extend(&mut self, plan: &Plan, count: usize, mut measure: impl FnMut(usize) -> f64) {
        let done = self.figures.first().map_or(0, Vec::len) as u64;
        let mut rng = SplitMix64::new(plan.seed ^ done);
        let mut order: Vec<usize> = (0..self.figures.len()).collect();
        for _ in 0..count {
            rng.shuffle(&mut order);
            for &side in &order {
                self.figures[side].push(measure(side));
            }
        }
    }

    /// Figures that were taken elsewhere, `figures[side][round]`.
    pub fn from_figures(figures: Vec<Vec<f64>>) -> Self {
        assert!(
            figures
                .windows(2)
                .all(|pair| pair[0].len() == pair[1].len()),
            "each side has one figure a round"
        );
        Self { figures }
    }

    /// The side's own median figure.
    pub fn typical(&self, side: usize) -> f64 {
        median(&self.figures[side])
    }

    /// The paired ratio of two sides: its median over the rounds, with the interval.
    pub fn ratio(&self, side: usize, to: usize) -> Estimate {
        let ratios: Vec<f64> = self.figures[side]
            .iter()
            .zip(&self.figures[to])
            .map(|(one, other)| one / other)
            .collect();
        estimate(&ratios)
    }

    /// How many rounds there are.
    pub fn len(&self) -> usize {
        self.figures.first().map_or(0, Vec::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rounds: usize) -> Plan {
        Plan {
            rounds,
            ..Plan::quick()
        }
    }

    #[test]
    fn each_side_is_measured_once_a_round_and_the_order_varies() {
        let mut order = Vec::new();
        let rounds = Rounds::take(&plan(20), 3, |side| {
            order.push(side);
            side as f64
        });
        assert_eq!(rounds.len(), 20);
        for round in order.chunks(3) {
            let mut sides = round.to_vec();
            sides.sort_unstable();
            assert_eq!(sides, [0, 1, 2]);
        }
        assert!(
            order.chunks(3).any(|round| round != &order[..3]),
            "twenty rounds in one order: {order:?}"
        );
    }

    #[test]
    fn a_machine_that_slows_down_between_rounds_does_not_change_the_ratio() {
        let mut speed = 0.0;
        let rounds = Rounds::take(&plan(9), 2, |side| {
            speed += 0.5;
            // Both sides of a round see about the same machine; later rounds see one many times slower.
            let slow = 1000.0 * f64::floor(speed);
            if side == 0 { slow } else { 2.0 * slow }
        });
        let ratio = rounds.ratio(1, 0);
        assert!((1.0..=4.0).contains(&ratio.median), "{ratio:?}");
    }

    #[test]
    fn more_rounds_can_be_added() {
        let mut rounds = Rounds::take(&plan(7), 1, |_| 1.0);
        rounds.extend(&plan(7), 5, |_| 3.0);
        assert_eq!(rounds.len(), 12);
        assert_eq!(rounds.typical(0), 1.0);
    }
}
