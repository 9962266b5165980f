//! Initialisers of lazy statics in a job that is cancelled: what `docs/soundness.md` says of them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use jobtree::{Cancelled, Job, Runtime, checkpoint, join, par, shield};

/// Runs `body` as a job, which is cancelled before.
fn run_cancelled(body: impl FnOnce() + Send) {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let job = || {
        Job::current().expect("a job").cancel("enough");
        body();
        // The body may have come to its end; a cancelled job ends as cancelled all the same.
        checkpoint()?;
        Ok(())
    };
    let outcome = runtime.nursery(|n| Ok(n.spawn(job).join())).unwrap();
    assert!(outcome.unwrap_err().is_cancelled());
}

fn made_by_loop() -> u64 {
    par::over(0..1000_u64).sum()
}

#[test]
fn a_cancellation_that_unwinds_out_of_a_lazy_lock_poisons_it() {
    static LOOPS: LazyLock<u64> = LazyLock::new(made_by_loop);
    static FORKS: LazyLock<u64> = LazyLock::new(|| {
        let (left, right) = join(made_by_loop, made_by_loop);
        left + right
    });
    for lazy in [&LOOPS, &FORKS] {
        run_cancelled(|| {
            let _ = **lazy;
        });
        let poisoned = catch_unwind(AssertUnwindSafe(|| **lazy));
        assert!(poisoned.is_err(), "as after a panic");
    }
}

#[test]
fn a_shield_lets_the_initialiser_end() {
    static SHIELDED: LazyLock<u64> = LazyLock::new(|| {
        let made = shield(Duration::from_secs(60), || Ok(made_by_loop()));
        made.expect("a minute is enough")
    });
    run_cancelled(|| assert_eq!(*SHIELDED, 499_500));
    assert_eq!(*SHIELDED, 499_500);
}

#[test]
fn a_once_lock_is_initialised_by_the_next_job() {
    static ONCE: OnceLock<u64> = OnceLock::new();
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let get = || {
        *ONCE.get_or_init(|| {
            CALLS.fetch_add(1, Ordering::Relaxed);
            made_by_loop()
        })
    };
    run_cancelled(|| {
        let unwound = catch_unwind(get);
        assert!(ONCE.get().is_none());
        resume_unwind(unwound.expect_err("the job was cancelled"));
    });
    assert_eq!((get(), CALLS.load(Ordering::Relaxed)), (499_500, 2));
}

#[test]
fn an_initialiser_that_asks_by_checkpoint_can_return_the_cancellation() {
    static RESULT: LazyLock<Result<u64, Cancelled>> = LazyLock::new(|| {
        checkpoint()?;
        Ok(1)
    });
    run_cancelled(|| assert!(RESULT.is_err()));
    // It is not poisoned: what it holds says what happened.
    assert!(RESULT.is_err());
}
