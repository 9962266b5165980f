//! How the same work speeds up with the number of workers.

use std::time::Duration;

use jobtree_pool::{Pool, Worker, with_worker};

use super::clock::Clock;
use super::machine::start_pool;
use super::work::{Node, mix, mix_forking, random_numbers};
use crate::error::CliError;

/// How many curves [`curves`] draws, for the clock.
pub const CURVES: usize = 3;

/// One kind of work on more and more workers.
#[derive(Clone, Debug)]
pub struct Curve {
    pub name: &'static str,
    /// Without any fork, on one thread.
    pub plain: Duration,
    pub points: Vec<Point>,
}

/// A curve's time on one number of workers.
#[derive(Clone, Debug)]
pub struct Point {
    pub workers: usize,
    pub time: Duration,
}

impl Curve {
    /// How many times faster than without forks.
    pub fn speed_up(&self, point: &Point) -> f64 {
        self.plain.as_secs_f64() / point.time.as_secs_f64()
    }
}

/// One, two, four and so on, and the last one exactly.
pub fn worker_counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..)
        .map(|power| 1 << power)
        .take_while(|&count| count < most)
        .collect();
    counts.push(most);
    counts
}

/// Measures every curve on every number of workers. In a hurry, what takes longest is made smaller.
pub fn curves(clock: &mut Clock, counts: &[usize], quick: bool) -> Result<Vec<Curve>, CliError> {
    let tree = Node::full(20);
    let numbers: Vec<u64> = (0..8_000_000).collect();
    let (sorting, shuffled) = if quick {
        ("sort of 100000 random numbers", random_numbers(100_000))
    } else {
        (
            "sort of a million random numbers",
            random_numbers(1_000_000),
        )
    };
    Ok(vec![
        curve(
            "sum over a tree of 1048575 nodes, a fork at each",
            clock,
            counts,
            || (),
            |()| tree.sum(),
            |worker, ()| tree.sum_forking(worker),
        )?,
        curve(
            "loop over 8 million numbers",
            clock,
            counts,
            || (),
            |()| mix(&numbers),
            |worker, ()| mix_forking(worker, &numbers),
        )?,
        curve(
            sorting,
            clock,
            counts,
            || shuffled.clone(),
            |mut numbers| {
                numbers.sort_unstable();
                numbers
            },
            |_, mut numbers| {
                jobtree_par::sort_unstable(&mut numbers);
                numbers
            },
        )?,
    ])
}

/// How often every point is measured: a disturbance of some seconds then spoils one time of several, for all alike.
pub const PASSES: usize = 3;

/// `prepare` makes what each run begins with, off the clock.
fn curve<I, T>(
    name: &'static str,
    clock: &mut Clock,
    counts: &[usize],
    prepare: impl Fn() -> I + Sync,
    plain: impl Fn(I) -> T + Sync,
    forking: impl Fn(&Worker, I) -> T + Sync,
) -> Result<Curve, CliError> {
    let alone = start_pool(Some(1))?;
    let pools: Vec<Pool> = counts
        .iter()
        .map(|&workers| start_pool(Some(workers)))
        .collect::<Result<_, _>>()?;
    let mut curve = Curve {
        name,
        plain: Duration::MAX,
        points: Vec::new(),
    };
    curve.points.extend(counts.iter().map(|&workers| Point {
        workers,
        time: Duration::MAX,
    }));
    for _ in 0..PASSES {
        let time = alone.install(|| clock.fastest_from(&prepare, &plain));
        curve.plain = curve.plain.min(time);
        for (point, pool) in curve.points.iter_mut().zip(&pools) {
            let time = pool.install(|| {
                with_worker(|worker| clock.fastest_from(&prepare, |input| forking(worker, input)))
            });
            point.time = point.time.min(time);
        }
    }
    Ok(curve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_counts_double_and_end_exactly() {
        assert_eq!(worker_counts(1), [1]);
        assert_eq!(worker_counts(2), [1, 2]);
        assert_eq!(worker_counts(6), [1, 2, 4, 6]);
        assert_eq!(worker_counts(8), [1, 2, 4, 8]);
    }

    #[test]
    fn the_speed_up_is_against_work_without_forks() {
        let point = Point {
            workers: 4,
            time: Duration::from_millis(5),
        };
        let curve = Curve {
            name: "made up",
            plain: Duration::from_millis(15),
            points: vec![point.clone()],
        };
        assert_eq!(curve.speed_up(&point), 3.0);
    }

    #[test]
    fn every_number_of_workers_gets_its_point() {
        let mut clock = Clock::new(Duration::ZERO, 3);
        let curve = curve(
            "made up",
            &mut clock,
            &[1, 2],
            || 6,
            |n| n + 1,
            |_, n| n + 1,
        )
        .unwrap();
        assert_eq!(
            curve
                .points
                .iter()
                .map(|point| point.workers)
                .collect::<Vec<_>>(),
            [1, 2]
        );
    }
}
