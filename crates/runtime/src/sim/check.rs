//! Trying many seeds.

use jobtree_tree::BoxError;

use super::run::Runtime;

/// The variable that names the only seed to be run.
const SEED_VARIABLE: &str = "JOBTREE_SIM_SEED";

/// Runs `program` in a simulation for each of `seeds`, and panics at the first one with which it panics, returns an
/// error, gets stuck or does not end.
///
/// The message has the seed, and says so if running it again takes another course. With `JOBTREE_SIM_SEED` set to it, only that one is run, whatever `seeds` are, and its trace
/// goes to standard error.
///
/// The program is given an ordinary [`Runtime`](crate::Runtime); and free functions such as [`nursery`](crate::nursery())
/// find it by themselves. What it makes should be made anew in each run: what is left from the last one would make a
/// seed depend on those before.
///
/// ```
/// use std::time::Duration;
/// use jobtree_runtime::{sim, sleep, with_timeout};
///
/// sim::check(0..50, |rt| {
///     let slow = rt.spawn(|| Ok(sleep(Duration::from_secs(60))?));
///     let outcome = with_timeout(Duration::from_secs(5), || Ok(slow.join()?));
///     assert!(outcome.is_err(), "a minute is longer than five seconds");
///     Ok(())
/// });
/// ```
///
/// The program may borrow from the caller: this returns or panics only when everything in the simulation has ended. If
/// something cannot be ended, the process aborts; see the [module](super#borrowing).
///
/// # Panics
/// If the program fails with one of the seeds, or the variable is not a number, or there are no simulations here
/// ([`SimError::Unavailable`](super::SimError::Unavailable)).
#[track_caller]
pub fn check<F>(seeds: impl IntoIterator<Item = u64>, program: F)
where
    F: Fn(&crate::Runtime) -> Result<(), BoxError> + Send + Sync,
{
    match std::env::var(SEED_VARIABLE) {
        Ok(value) => match value.trim().parse() {
            Ok(seed) => check_one(seed, true, &program),
            Err(_) => panic!(
                "the environment variable {SEED_VARIABLE} is `{value}`, which is not a seed (a whole number); correct \
                 it or unset it"
            ),
        },
        Err(_) => {
            for seed in seeds {
                check_one(seed, false, &program);
            }
        }
    }
}

#[track_caller]
fn check_one<F>(seed: u64, shows_trace: bool, program: &F)
where
    F: Fn(&crate::Runtime) -> Result<(), BoxError> + Send + Sync,
{
    let runtime = if shows_trace {
        Runtime::builder(seed).record_trace().build()
    } else {
        Runtime::new(seed)
    };
    let report = runtime.run(program);
    if shows_trace {
        eprint!("{}", report.trace);
    }
    if let Err(error) = report.outcome {
        let again = Runtime::new(seed).run(program);
        let doubt = if again.trace_hash == report.trace_hash {
            ""
        } else {
            "\nBut the same seed took another course just now: something in the program does not come from the seed (the \
             documentation of `jobtree::sim` names what escapes it), or is left from an earlier run"
        };
        panic!(
            "the program fails with seed {seed}: {error}\nafter {} steps and {:?} of its time. To see it again, with \
             every step: {SEED_VARIABLE}={seed}{doubt}",
            report.steps, report.elapsed,
        );
    }
}
