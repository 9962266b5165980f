//! Takes times within a fixed budget, so that the whole command ends when it promised to.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Divides the time that is left evenly over the measurements that are left.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    left: Duration,
    measurements: usize,
}

impl Clock {
    /// A clock for so many measurements in so much time.
    pub fn new(budget: Duration, measurements: usize) -> Self {
        Self {
            started: Instant::now(),
            left: budget,
            measurements,
        }
    }

    /// How long everything has taken so far.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The time of one run of `body`: the fastest of as many runs as fit into this measurement's share of the
    /// budget, and of two at least. Whatever disturbs a run makes it slower, so the fastest says most.
    pub fn fastest<T>(&mut self, mut body: impl FnMut() -> T) -> Duration {
        self.fastest_from(|| (), |()| body())
    }

    /// The same for a body that uses up what `prepare` makes. Making it and dropping the result are not timed, but
    /// count towards the budget.
    pub fn fastest_from<I, T>(
        &mut self,
        mut prepare: impl FnMut() -> I,
        mut body: impl FnMut(I) -> T,
    ) -> Duration {
        let share = self.left / self.measurements.max(1) as u32;
        let began = Instant::now();
        let mut fastest = Duration::MAX;
        let mut runs = 0;
        while runs < 2 || began.elapsed() < share {
            let input = prepare();
            let start = Instant::now();
            let result = black_box(body(black_box(input)));
            fastest = fastest.min(start.elapsed());
            drop(result);
            runs += 1;
        }
        self.left = self.left.saturating_sub(began.elapsed());
        self.measurements = self.measurements.saturating_sub(1);
        fastest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_measurement_runs_at_least_twice_even_with_no_time_left() {
        let mut clock = Clock::new(Duration::ZERO, 1);
        for _ in 0..3 {
            let mut runs = 0;
            clock.fastest(|| runs += 1);
            assert_eq!(runs, 2);
        }
    }

    #[test]
    fn preparation_and_cleaning_up_are_not_timed() {
        const PAUSE: Duration = Duration::from_millis(10);
        struct Slow;
        impl Drop for Slow {
            fn drop(&mut self) {
                std::thread::sleep(PAUSE);
            }
        }
        let prepare = || {
            std::thread::sleep(PAUSE);
            Slow
        };
        let mut clock = Clock::new(Duration::ZERO, 1);
        let fastest = clock.fastest_from(prepare, |slow| slow);
        // Two runs, each at least as long as the fastest and with a pause before and after it, however slow the machine.
        assert!(clock.elapsed() >= 2 * fastest + 4 * PAUSE, "{fastest:?}");
    }

    #[test]
    fn a_measurement_uses_up_its_share_of_the_budget() {
        let mut clock = Clock::new(Duration::from_millis(20), 2);
        let mut runs = 0;
        clock.fastest(|| runs += 1);
        assert!(runs >= 2);
        assert!(clock.left <= Duration::from_millis(10), "{clock:?}");
        assert_eq!(clock.measurements, 1);
    }
}
