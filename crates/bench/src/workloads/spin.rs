//! Two loops of a millisecond each: so coarse that a fork costs nothing, and only how soon the other worker starts
//! counts.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::sides::on_every_side;

/// Arithmetic that takes time and nothing else: each step needs the one before.
#[inline(never)]
pub fn spin(steps: u64) -> u64 {
    let mut state = black_box(1u64);
    for _ in 0..steps {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
    }
    state
}

/// How many steps take about `time` on this machine; the fastest of some trials, since noise only adds.
pub fn steps_for(time: Duration) -> u64 {
    const STEPS: u64 = 1_000_000;
    let trial = |_| {
        let start = Instant::now();
        black_box(spin(black_box(STEPS)));
        start.elapsed()
    };
    let fastest = (0..5)
        .map(trial)
        .min()
        .unwrap_or(time)
        .max(Duration::from_nanos(1));
    (STEPS as f64 * time.as_secs_f64() / fastest.as_secs_f64()) as u64
}

on_every_side! {
    input u64;

    fn run(context, input: &mut u64) -> u64 {
        let steps = *input;
        let (one, other) = join(context, |_| spin(steps), |_| spin(steps));
        one.wrapping_add(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_time_means_more_steps() {
        assert!(steps_for(Duration::from_millis(100)) > steps_for(Duration::from_millis(1)));
    }

    #[test]
    fn the_loop_is_not_optimised_to_a_constant_number_of_steps() {
        assert_ne!(spin(1), spin(2));
    }
}
