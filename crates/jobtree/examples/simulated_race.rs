//! A transfer locks two accounts, first the one that pays. Two transfers in opposite directions can wait for each
//! other for ever: rarely in an ordinary run, and always with the seed that a simulation finds.
//!
//! `cargo run -p jobtree --example simulated_race`

use std::panic::{AssertUnwindSafe, catch_unwind};

use jobtree::sim::{self, SimError};
use jobtree::sync::Mutex;
use jobtree::{BoxError, Runtime};

/// Which of two accounts is locked first.
type Order = fn(usize, usize) -> [usize; 2];

/// The mistake: whoever pays comes first.
fn payer_first(from: usize, to: usize) -> [usize; 2] {
    [from, to]
}

/// The remedy: one order for all.
fn smaller_first(from: usize, to: usize) -> [usize; 2] {
    [from.min(to), from.max(to)]
}

/// Two transfers at once, in opposite directions.
fn transfers(rt: &Runtime, order: Order) -> Result<(), BoxError> {
    let accounts = [Mutex::new(100_i64), Mutex::new(100_i64)];
    let transfer = |from: usize, to: usize, amount: i64| {
        let [first, second] = order(from, to);
        let mut one = accounts[first].lock()?;
        let mut other = accounts[second].lock()?;
        let (payer, payee) = if first == from {
            (&mut *one, &mut *other)
        } else {
            (&mut *other, &mut *one)
        };
        *payer -= amount;
        *payee += amount;
        Ok(())
    };
    rt.nursery(|n| {
        n.job_options().label("rent").launch(|| transfer(0, 1, 70));
        n.job_options()
            .label("salary")
            .launch(|| transfer(1, 0, 90));
        Ok(())
    })?;
    let balances = accounts.map(Mutex::into_inner);
    assert_eq!(balances, [120, 80]);
    Ok(())
}

fn main() {
    // As a test would do it: it panics with the seed, and says who waits for what. Here that is what we want to see.
    let tried = catch_unwind(AssertUnwindSafe(|| {
        sim::check(0..1_000, |rt| transfers(rt, payer_first));
    }));
    let report = *tried
        .expect_err("some order of the two locks is a deadlock")
        .downcast::<String>()
        .expect("a message");
    println!("{report}\n");
    assert!(report.contains("stuck: everybody waits"));
    assert!(report.contains("rent") && report.contains("salary"));

    // The seed is in the message; it is the same deadlock every time.
    let seed = report
        .split_once("with seed ")
        .and_then(|(_, rest)| rest.split_once(':'))
        .and_then(|(seed, _)| seed.parse().ok())
        .expect("the message names the seed");
    let again = sim::Runtime::new(seed).run(|rt| transfers(rt, payer_first));
    match again.outcome {
        Err(SimError::Stuck { jobs }) => {
            let stuck: Vec<_> = jobs
                .iter()
                .filter(|job| job.path.ends_with("rent") || job.path.ends_with("salary"))
                .collect();
            for job in &stuck {
                println!("seed {seed}: {job}");
            }
            assert_eq!(stuck.len(), 2);
            assert!(stuck.iter().all(|job| job.waits_for.is_some()));
        }
        other => panic!("seed {seed} is a deadlock, and now: {other:?}"),
    }

    // With one order for all there is none to be found.
    sim::check(0..1_000, |rt| transfers(rt, smaller_first));
    println!("no deadlock in 1000 runs with one order for all");
}
