//! One comparison: the same input, several contenders, one row of the report.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::report::{Goal, Row, Tolerance};
use super::rounds::{Plan, Rounds};

/// What a contender is to the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No parallelism at all.
    Sequential,
    /// What is judged.
    Ours,
    /// The same as ours once more: what the machine's noise makes of a ratio of one.
    Control,
    /// Another way to call ours: shown, not judged.
    Variant,
    /// Somebody else's.
    Peer,
    /// What the machine could do at best: shown, not judged.
    Limit,
}

/// One side: runs the input a number of times; gives the time of all iterations, and the last one's result.
type Run<'a, I> = Box<dyn FnMut(&mut I, u64) -> (Duration, u64) + 'a>;

/// One side of a comparison.
pub struct Contender<'a, I> {
    name: &'static str,
    role: Role,
    run: Run<'a, I>,
}

impl<'a, I> Contender<'a, I> {
    /// A side that runs its input as often as it is told; gives the time of all iterations and the last one's result.
    pub fn new(
        name: &'static str,
        role: Role,
        run: impl FnMut(&mut I, u64) -> (Duration, u64) + 'a,
    ) -> Self {
        Self {
            name,
            role,
            run: Box::new(run),
        }
    }
}

/// A comparison that has not run yet.
pub struct Contest<'a, I> {
    /// The row's name in the report, and what `--filter` looks at.
    pub name: String,
    /// How many workers each pool has.
    pub workers: usize,
    /// What one unit is: a node, a call, an element.
    pub unit: &'static str,
    /// How many units one iteration has.
    pub units: f64,
    /// What ours should reach.
    pub goal: Option<Goal>,
    /// What each iteration works on.
    pub input: I,
    /// Turns an iteration's result, and what it left in the input, into a number that must be the same on every side.
    pub digest: fn(&I, u64) -> u64,
    /// Who takes part.
    pub contenders: Vec<Contender<'a, I>>,
}

/// How much longer a comparison may go on while its control is off: up to this many times the planned rounds.
///
/// It looks at the control alone, never at the ratio that is judged, so it cannot favour a side.
const LONGEST: usize = 3;

impl<I> Contest<'_, I> {
    /// Checks that all sides agree on the result, calibrates each of them, and runs the rounds.
    ///
    /// # Panics
    ///
    /// If two sides disagree on the result: then there is nothing to compare.
    pub fn run(self, plan: &Plan) -> Row {
        let Self {
            name,
            workers,
            unit,
            units,
            goal,
            mut input,
            digest,
            mut contenders,
        } = self;
        eprintln!("  {name}, {workers} worker(s)");
        agree(&name, &mut input, digest, &mut contenders);
        let iterations: Vec<u64> = contenders
            .iter_mut()
            .map(|side| calibrate(side, &mut input, plan.side_time))
            .collect();
        let sides: Vec<(&'static str, Role)> = contenders
            .iter()
            .map(|side| (side.name, side.role))
            .collect();

        let mut measure = |side: usize| {
            let run = &mut contenders[side].run;
            // The pool that is about to run fell asleep while the others ran; that is not what is measured here.
            if iterations[side] >= 10 {
                run(&mut input, iterations[side] / 10);
            }
            let (time, _) = run(&mut input, iterations[side]);
            time.as_nanos() as f64 / iterations[side] as f64 / units
        };
        let mut rounds = Rounds::take(plan, sides.len(), &mut measure);
        loop {
            let row = Row::new(
                name.clone(),
                workers,
                unit,
                goal,
                &sides,
                &rounds,
                Tolerance::Strict,
            );
            if !row.is_void() || rounds.len() >= plan.rounds * LONGEST {
                return row;
            }
            rounds.extend(plan, plan.rounds, &mut measure);
        }
    }
}

/// Runs each side once, which warms it up too, and compares the results.
fn agree<I>(
    name: &str,
    input: &mut I,
    digest: fn(&I, u64) -> u64,
    contenders: &mut [Contender<'_, I>],
) {
    let mut expected = None;
    for side in contenders {
        let (_, result) = (side.run)(input, 1);
        let result = digest(input, result);
        let (first, expected) = *expected.get_or_insert((side.name, result));
        assert_eq!(
            result, expected,
            "{name}: {} and {first} come to different results",
            side.name
        );
    }
}

/// How many iterations of this side take about `time`.
fn calibrate<I>(side: &mut Contender<'_, I>, input: &mut I, time: Duration) -> u64 {
    let mut iterations = 1;
    loop {
        let (taken, _) = (side.run)(input, iterations);
        if taken >= time / 4 {
            let wanted = iterations as f64 * time.as_secs_f64() / taken.as_secs_f64();
            return (wanted.round() as u64).max(1);
        }
        iterations *= 2;
    }
}

/// Runs `body` on `input` as often as told, and takes the time. For inputs that an iteration leaves as they were.
pub fn timed<I>(
    input: &mut I,
    iterations: u64,
    mut body: impl FnMut(&mut I) -> u64,
) -> (Duration, u64) {
    let mut result = 0;
    let start = Instant::now();
    for _ in 0..iterations {
        result = black_box(body(black_box(input)));
    }
    (start.elapsed(), result)
}

/// Like [`timed`], for inputs that an iteration uses up: `prepare` makes them anew, off the clock.
pub fn timed_with_preparation<I>(
    input: &mut I,
    iterations: u64,
    prepare: impl Fn(&mut I),
    mut body: impl FnMut(&mut I) -> u64,
) -> (Duration, u64) {
    let mut result = 0;
    let mut total = Duration::ZERO;
    for _ in 0..iterations {
        prepare(input);
        let start = Instant::now();
        result = black_box(body(black_box(input)));
        total += start.elapsed();
    }
    (total, result)
}

/// Like [`timed_with_preparation`], for what an iteration uses up altogether: `prepare` makes it, and `settle` looks at
/// what is left of it and gives the result, both off the clock.
pub fn timed_between<S>(
    iterations: u64,
    mut prepare: impl FnMut() -> S,
    mut body: impl FnMut(&mut S),
    mut settle: impl FnMut(S) -> u64,
) -> (Duration, u64) {
    let mut result = 0;
    let mut total = Duration::ZERO;
    for _ in 0..iterations {
        let mut state = prepare();
        let start = Instant::now();
        body(black_box(&mut state));
        total += start.elapsed();
        result = settle(state);
    }
    (total, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contest<'a>(results: [u64; 2]) -> Contest<'a, ()> {
        let side = |role, name, result| {
            Contender::new(name, role, move |_: &mut (), n| {
                (Duration::from_micros(n), result)
            })
        };
        Contest {
            name: "made up".into(),
            workers: 1,
            unit: "call",
            units: 1.0,
            goal: None,
            input: (),
            digest: |(), result| result,
            contenders: vec![
                side(Role::Ours, "ours", results[0]),
                side(Role::Peer, "peer", results[1]),
            ],
        }
    }

    #[test]
    #[should_panic(expected = "peer and ours come to different results")]
    fn sides_that_disagree_are_not_compared() {
        contest([1, 2]).run(&Plan::quick());
    }

    #[test]
    fn a_side_is_calibrated_to_the_time_it_is_given() {
        let mut side = contest([1, 1]).contenders.remove(0);
        assert_eq!(
            calibrate(&mut side, &mut (), Duration::from_millis(20)),
            20_000
        );
    }

    #[test]
    fn equal_sides_have_a_ratio_of_one() {
        let row = contest([1, 1]).run(&Plan::quick());
        assert_eq!(
            row.better_peer().map(|ratio| ratio.estimate.median),
            Some(1.0)
        );
    }

    #[test]
    fn preparation_is_off_the_clock() {
        let mut order = Vec::new();
        let (_, result) = timed_with_preparation(
            &mut order,
            2,
            |order| order.push('p'),
            |order| {
                order.push('b');
                order.len() as u64
            },
        );
        assert_eq!(result, 4);
        assert_eq!(order, ['p', 'b', 'p', 'b']);
    }

    #[test]
    fn each_iteration_gets_a_state_of_its_own_and_its_last_word_counts() {
        let mut made = 0;
        let (_, result) = timed_between(
            3,
            || {
                made += 1;
                vec![made]
            },
            |state| state.push(10),
            |state| state.into_iter().sum(),
        );
        assert_eq!(result, 13);
    }

    #[test]
    fn making_and_settling_are_off_the_clock() {
        let nap = || std::thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        let (time, _) = timed_between(
            2,
            nap,
            |()| (),
            |()| {
                nap();
                0
            },
        );
        assert!(time < start.elapsed() / 2, "{time:?}");
    }
}
