//! Run it overnight: a job that waits for the hours in which the machine is nobody's, and says so when asked.
//!
//! `cargo run -p jobtree --features durable --example overnight`

use std::time::Duration;

use jiff::{Timestamp, ToSpan};
use jobtree::durable::{JobState, NewJob, Policy, Queue, Sample};

/// A policy with one quiet window, from so many hours from now on, for two hours.
fn quiet_in(hours: i64) -> Result<Policy, Box<dyn std::error::Error>> {
    let clock = |hours: i64| {
        Timestamp::now()
            .checked_add(hours.hours())
            .map(|time| time.strftime("%H:%M").to_string())
    };
    let window = format!("{}-{} UTC", clock(hours)?, clock(hours + 2)?);
    // In earnest: `windows = ["22:00-06:00 Europe/Berlin"]`, and `enter_after` left alone.
    let text = format!("[quiet]\nwindows = [\"{window}\"]\nenter_after = \"0s\"");
    Ok(Policy::from_toml(&text)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The machine is idle, as far as this example is concerned. Without `without_measuring` it would be measured.
    let queue = Queue::builder()
        .policy(quiet_in(3)?)
        .without_measuring()
        .in_memory()?;
    queue.scheduler().sample(Sample::idle());
    let worker = queue
        .worker()
        .handle("index", |(), _| Ok("every page read"))
        .start()?;

    let job = queue.submit(NewJob::new("index", &())).wait()?.job_id;
    let explained = queue.scheduler().explain(job).wait()?;
    for reason in &explained.reasons {
        println!("waits: {} ({})", reason.message, reason.change);
    }
    assert!(!explained.reasons.is_empty());
    assert_eq!(queue.job(job).wait()?.state, JobState::Queued);

    // Night falls: here by another policy, without a restart.
    queue.scheduler().set_policy(quiet_in(-1)?)?;
    queue.scheduler().sample(Sample::idle());
    let result: String = queue.result_of(job).wait()?;
    println!("then: {result}");
    assert_eq!(result, "every page read");
    worker.drain(Duration::from_secs(10))?;
    Ok(())
}
