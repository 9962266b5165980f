//! A lock held across a parallel loop, without deadlock.
//!
//! A worker that waits for its loop runs other tasks meanwhile. If one of them wants the lock that the waiting one
//! holds, on the same thread, neither can go on. `isolate` makes the worker run only what belongs to the loop.
//!
//! `cargo run -p jobtree --example isolate`

use std::sync::Mutex;

use jobtree::{isolate, par, scope};

fn main() {
    let history = Mutex::new(Vec::new());
    scope(|s| {
        for round in 0..100_u64 {
            let history = &history;
            s.spawn(move |_| {
                let mut history = history.lock().expect("nobody panics while holding it");
                let sum: u64 = isolate(|| par::over(0..10_000_u64).map(|n| n * round).sum());
                history.push((round, sum));
            });
        }
    });

    let mut history = history.into_inner().expect("nobody has panicked");
    history.sort_unstable();
    assert!((0..100).eq(history.iter().map(|(round, _)| *round)));
    assert!(
        history
            .iter()
            .all(|(round, sum)| *sum == round * 49_995_000)
    );
    println!("100 tasks have each run a loop while holding the same lock");
}
