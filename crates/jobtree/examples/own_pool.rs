//! A pool of one's own: how many workers, what they are called, and what they have done.
//!
//! `cargo run -p jobtree --example own_pool`

use std::time::Duration;

use jobtree::{Pool, current_workers, par};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::builder()
        .workers(3)
        .worker_name(|index| format!("sums-{index}"))
        .build()?;

    // Everything inside runs on that pool: forks, loops, tasks.
    let (workers, sum) =
        pool.install(|| (current_workers(), par::over(0..1_000_000_u64).sum::<u64>()));
    assert_eq!((workers, sum), (3, 499_999_500_000));

    for (index, worker) in pool.stats().workers.iter().enumerate() {
        println!(
            "worker {index}: ran {} pieces, {} of them stolen",
            worker.executed, worker.stolen
        );
    }
    pool.shutdown(Duration::from_secs(10))?;
    Ok(())
}
