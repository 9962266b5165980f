//! A supervisor restarts workers that fail, but not for ever: a worker that fails again and again is given up.
//!
//! `cargo run -p jobtree --example supervisor`

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree::{BoxError, JobError, Nursery, Outcome, sleep, supervisor};

/// How often a worker may be restarted.
const RESTARTS: usize = 5;

fn main() -> Result<(), BoxError> {
    let attempts = [const { AtomicUsize::new(0) }; 3];
    let [steady, flaky, broken] = &attempts;
    let outcomes = supervisor(|n| {
        // Each is kept by a job of its own, so that one that waits for its restart holds up nobody.
        let kept = [
            n.spawn(move || Ok(keep(n, "steady", move || work(steady, 0)))),
            n.spawn(move || Ok(keep(n, "flaky", move || work(flaky, 3)))),
            n.spawn(move || Ok(keep(n, "broken", move || work(broken, usize::MAX)))),
        ];
        let mut outcomes = Vec::new();
        for keeper in kept {
            outcomes.push(keeper.join()?);
        }
        Ok(outcomes)
    })?;

    let attempts = attempts.map(AtomicUsize::into_inner);
    println!("attempts: {attempts:?}");
    assert_eq!(attempts, [1, 4, 1 + RESTARTS]);
    assert!(matches!(outcomes[0], Ok(1)) && matches!(outcomes[1], Ok(4)));
    // A panic is an error like any other, and says where it happened.
    match &outcomes[2] {
        Err(error @ JobError::Panicked(panic)) => {
            println!("given up:\n{}", error.report());
            assert!(panic.path().ends_with("/broken") && panic.location().is_some());
        }
        other => panic!("the broken worker ended with {other:?}"),
    }
    Ok(())
}

/// Runs `worker` as a job of `scope`, and again when it fails, with a longer pause each time.
fn keep<'scope, T: Send + 'scope>(
    scope: &'scope Nursery<'scope, '_>,
    name: &'static str,
    worker: impl Fn() -> Result<T, BoxError> + Copy + Send + 'scope,
) -> Outcome<T> {
    for restart in 0..=RESTARTS {
        let outcome = scope.job_options().label(name).spawn(worker).join();
        match outcome {
            // Asked to end: not a reason to begin again.
            Ok(_) | Err(JobError::Cancelled(_)) => return outcome,
            Err(_) if restart == RESTARTS => return outcome,
            Err(error) => {
                println!("{error}; restart {} of {RESTARTS}", restart + 1);
                sleep(Duration::from_millis(1 << restart)).map_err(JobError::Cancelled)?;
            }
        }
    }
    unreachable!("the last restart returns")
}

/// Fails the first `failures` times, now by an error and now by a panic.
fn work(attempts: &AtomicUsize, failures: usize) -> Result<usize, BoxError> {
    let attempt = attempts.fetch_add(1, Ordering::Relaxed) + 1;
    match attempt {
        _ if attempt > failures => Ok(attempt),
        _ if attempt % 2 == 1 => Err(format!("attempt {attempt} failed").into()),
        _ => panic!("attempt {attempt} went badly wrong"),
    }
}
