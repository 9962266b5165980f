//! What a fork costs: that nobody takes, and that wakes a worker.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use jobtree_pool::with_worker;

use super::clock::Clock;
use super::machine::{Machine, start_pool};
use super::work::{Node, fib, fib_forking, fib_forks, tree_forks};
use crate::error::CliError;

/// How many costs [`costs`] finds out, for the clock.
pub const COSTS: usize = 2;

/// One thing with and without forks, on one worker, where nobody can take any of them.
#[derive(Clone, Debug)]
pub struct Cost {
    pub name: &'static str,
    pub forks: u64,
    pub plain: Duration,
    pub forking: Duration,
}

impl Cost {
    /// What one fork adds, in nanoseconds.
    pub fn nanoseconds_a_fork(&self) -> f64 {
        (self.forking.as_nanos() as f64 - self.plain.as_nanos() as f64) / self.forks as f64
    }

    /// How much slower the thing becomes.
    pub fn ratio(&self) -> f64 {
        self.forking.as_secs_f64() / self.plain.as_secs_f64()
    }
}

/// Measures a fork that does next to nothing, and one beside a little work in memory.
pub fn costs(clock: &mut Clock) -> Result<Vec<Cost>, CliError> {
    const NUMBER: u32 = 27;
    const LEVELS: u32 = 18;
    let pool = start_pool(Some(1))?;
    // Both sides run on the worker, so that neither has the better stack or core.
    let calls = pool.install(|| {
        with_worker(|worker| Cost {
            name: "fib(27): a fork and nothing else",
            forks: fib_forks(NUMBER),
            plain: clock.fastest(|| fib(std::hint::black_box(NUMBER))),
            forking: clock.fastest(|| fib_forking(worker, std::hint::black_box(NUMBER))),
        })
    });
    let tree = Node::full(LEVELS);
    let sums = pool.install(|| {
        with_worker(|worker| Cost {
            name: "sum over a tree of 262143 nodes",
            forks: tree_forks(LEVELS),
            plain: clock.fastest(|| tree.sum()),
            forking: clock.fastest(|| tree.sum_forking(worker)),
        })
    });
    Ok(vec![calls, sums])
}

/// How long a sleeping worker takes to run what is spawned from outside.
#[derive(Clone, Debug)]
pub struct Wake {
    pub samples: usize,
    pub median: Duration,
    pub slowest_tenth: Duration,
}

/// Lets the pool fall asleep and spawns, some dozens of times.
pub fn wake(machine: &Machine, quick: bool) -> Result<Wake, CliError> {
    let pool = start_pool(Some(machine.workers))?;
    let samples = if quick { 20 } else { 100 };
    let mut times: Vec<Duration> = (0..samples)
        .map(|_| {
            // Workers look around for some microseconds before they sleep.
            thread::sleep(Duration::from_millis(5));
            let (answer, answers) = mpsc::sync_channel(1);
            let posted = Instant::now();
            pool.spawn(move || {
                let _ = answer.send(posted.elapsed());
            });
            answers.recv().expect("a spawned job runs")
        })
        .collect();
    times.sort_unstable();
    Ok(Wake {
        samples,
        median: times[samples / 2],
        slowest_tenth: times[samples * 9 / 10],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_costs_what_forking_adds() {
        let micros = Duration::from_micros;
        let cost = Cost {
            name: "made up",
            forks: 1000,
            plain: micros(10),
            forking: micros(15),
        };
        assert_eq!(cost.nanoseconds_a_fork(), 5.0);
        assert_eq!(cost.ratio(), 1.5);
    }
}
