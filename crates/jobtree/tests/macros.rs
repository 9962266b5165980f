//! The macros in a program that has nothing but `jobtree`.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use jobtree::budget::Budget;
use jobtree::{BoxError, JobError, Nursery, Runtime, budgeted, nursery};

/// Watches the calling test, which the thread is named after.
fn watch() -> watchdog::Watchdog {
    watchdog::Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

fn runtime() -> Runtime {
    Runtime::builder().workers(1).build().unwrap()
}

#[budgeted]
fn until_set(flag: &AtomicBool) -> usize {
    let mut rounds = 0;
    loop {
        if flag.load(Ordering::Acquire) {
            break rounds;
        }
        rounds += 1;
    }
}

struct Counter {
    count: usize,
}

impl Counter {
    #[budgeted]
    fn count_to(&mut self, most: usize) {
        while self.count < most {
            self.count += 1;
        }
    }

    #[budgeted]
    async fn count_slowly(&mut self, most: usize) -> usize {
        for _ in self.count..most {
            self.count += 1;
        }
        self.count
    }
}

/// On one worker, who does not give way would wait for ever.
#[test]
fn a_budgeted_loop_gives_way() {
    let _watch = watch();
    let runtime = runtime();
    let flag = &AtomicBool::new(false);
    let rounds = runtime.nursery(|n: &Nursery<'_, '_>| {
        let waiting = n.spawn(|| Ok(until_set(flag)));
        n.launch(|| {
            flag.store(true, Ordering::Release);
            Ok(())
        });
        Ok(waiting.join()?)
    });
    rounds.unwrap();
}

#[test]
fn methods_and_async_functions_are_charged_a_round_each() {
    let _watch = watch();
    let outcome = nursery! {
        |n|
        let plain = n.job_options().budget(Budget::OPEN).spawn(|| {
            let before = jobtree::budget::remaining().ops;
            let mut counter = Counter { count: 0 };
            counter.count_to(50);
            Ok(before - jobtree::budget::remaining().ops)
        });
        let awaiting = n.job_options().budget(Budget::OPEN).spawn(|| {
            let before = jobtree::budget::remaining().ops;
            let mut counter = Counter { count: 0 };
            jobtree::block_on(counter.count_slowly(50))?;
            Ok(before - jobtree::budget::remaining().ops)
        });
        (plain.join()?, awaiting.join()?)
    };
    // One for the call.
    assert_eq!(outcome.unwrap(), (51, 51));
}

fn add(sum: &AtomicUsize, number: usize) {
    sum.fetch_add(number, Ordering::Relaxed);
}

fn fallible(number: usize) -> Result<usize, BoxError> {
    if number > 3 {
        return Err(format!("{number} is too much").into());
    }
    Ok(number)
}

#[test]
fn a_block_ends_with_all_that_was_spawned_in_it() {
    let _watch = watch();
    let sum = AtomicUsize::new(0);
    let numbers = vec![1, 2, 3];
    let outcome = nursery! {
        for number in numbers {
            spawn add(&sum, number);
            if number == 2 {
                spawn { add(&sum, 100); }
            }
        }
    };
    outcome.unwrap();
    assert_eq!(sum.into_inner(), 106);
}

#[test]
fn values_come_from_handles_and_the_block_has_the_last_one() {
    let _watch = watch();
    let outcome = nursery! {
        let one = async fallible(1)?;
        let two: jobtree::JobHandle<Result<usize, BoxError>> = async fallible(2);
        let offset = { 10 };
        offset + one.join()? + two.join()??
    };
    assert_eq!(outcome.unwrap(), 13);
}

#[test]
fn an_error_of_a_job_is_the_scopes() {
    let _watch = watch();
    let outcome: Result<(), _> = nursery! {
        spawn fallible(7)?;
    };
    let error = outcome.unwrap_err();
    assert!(matches!(error, JobError::Failed(_)));
    assert!(error.to_string().contains("7 is too much"), "{error}");
    // A job whose value is wanted fails the scope, too.
    let outcome: Result<(), _> = nursery! {
        let _handle = async fallible(8)?;
    };
    assert!(outcome.unwrap_err().to_string().contains("8 is too much"));
}

#[test]
fn an_error_of_the_block_is_the_scopes() {
    let _watch = watch();
    let outcome: Result<usize, _> = nursery! { fallible(9)? };
    assert!(outcome.unwrap_err().to_string().contains("9 is too much"));
}

#[test]
fn scopes_nest() {
    let _watch = watch();
    let sum = &AtomicUsize::new(0);
    let outcome = nursery! {
        spawn {
            nursery! {
                spawn add(sum, 1);
                spawn add(sum, 2);
            }?;
            add(sum, 4);
        }
    };
    outcome.unwrap();
    assert_eq!(sum.load(Ordering::Relaxed), 7);
}
