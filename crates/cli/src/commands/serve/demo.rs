//! `jobtree serve --demo`: two addons that submit and run jobs of all kinds, so that a newcomer sees it live.
//!
//! They come over HTTP as anybody's would: short jobs and long ones with progress and a tree below them, some that fail and
//! are tried again, some that are cancelled on their way, some with a deadline, and one for the night.

use std::thread;
use std::time::Duration;

use jiff::{Timestamp, ToSpan, Zoned};
use jobtree_client::{Client, Worker};
use jobtree_protocol::{Backoff, JobState, Json, Priority, SubmitRequest};
use jobtree_queue::policy::Policy;
use jobtree_runtime::{BoxError, nursery, sleep};
use jobtree_scheduler::workers::{self, Run};
use serde::{Deserialize, Serialize};

use crate::error::CliError;

/// Between two rounds of submissions.
const ROUND: Duration = Duration::from_secs(4);

/// No more is submitted while so many wait: on a machine that stays busy for days the list must stay readable.
const MOST_WAITING: u64 = 30;

/// Quiet comes sooner than in real life: nobody watches a demo for a minute before anything happens.
pub fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.quiet.enter_after = Duration::from_secs(5);
    policy.quiet.calm_after = Duration::from_secs(2);
    policy.quiet.panic_cooldown = Duration::from_secs(5);
    policy.quiet.allow_one_after = Duration::from_secs(20);
    // The compiler that built this may have left the machine busy: jobs that do not wait for quiet run all the same.
    policy.busy.cpu.high = 1.6;
    policy.busy.load_per_core.weight = 0.0;
    (policy.busy.psi_cpu.low, policy.busy.psi_cpu.high) = (30.0, 300.0);
    (policy.busy.psi_io.low, policy.busy.psi_io.high) = (30.0, 300.0);
    policy.quiet.normal_max = 7.0;
    policy.quiet.busy_max = 9.0;
    policy
}

/// What a job of the demo is to do.
#[derive(Serialize, Deserialize)]
struct Work {
    steps: u32,
    step_ms: u64,
    #[serde(default)]
    fails: bool,
}

/// Starts both addons.
///
/// # Errors
/// If a worker does not start.
pub fn start(client: Client) -> Result<Vec<workers::Worker>, CliError> {
    let photos = Worker::new(client.clone())
        .addon("photos")
        .concurrency(3)
        .program("demo: photos")
        .handle("thumbnail", steps)
        .handle("index", album)
        .start();
    let reports = Worker::new(client.clone())
        .addon("reports")
        .concurrency(2)
        .program("demo: reports")
        .handle("mail", steps)
        .handle("nightly", steps)
        .start();
    let failed = |error: jobtree_client::WorkError| CliError::failed(error.to_string());
    let workers = vec![photos.map_err(failed)?, reports.map_err(failed)?];
    thread::spawn(move || submit_for_ever(&client));
    Ok(workers)
}

/// One thing after the other.
fn steps(work: Work, run: &Run) -> Result<u32, BoxError> {
    for step in 0..work.steps {
        let share = f64::from(step) / f64::from(work.steps);
        run.progress(share, format!("step {} of {}", step + 1, work.steps));
        sleep(Duration::from_millis(work.step_ms))?;
        if work.fails && step * 2 >= work.steps {
            run.log("the server hung up");
            return Err("the server hung up: try again later".into());
        }
    }
    run.log(format!("{} steps are done", work.steps));
    Ok(work.steps)
}

/// Several things at a time, as jobs below this one: `jobtree show --tree` shows them.
fn album(work: Work, run: &Run) -> Result<u32, BoxError> {
    let rounds = work.steps.div_ceil(4);
    for round in 0..rounds {
        run.progress(
            f64::from(round) / f64::from(rounds),
            format!("album {round}"),
        );
        nursery(|n| -> Result<(), BoxError> {
            for picture in 0..4 {
                let millis = work.step_ms * (picture + 1) / 2;
                n.launch(move || -> Result<(), BoxError> {
                    Ok(sleep(Duration::from_millis(millis))?)
                });
            }
            Ok(())
        })?;
    }
    run.log(format!("{} albums are indexed", rounds));
    Ok(rounds)
}

/// Until the daemon is gone.
fn submit_for_ever(client: &Client) {
    for round in 0_u32.. {
        match submit(client, round) {
            Ok(()) => thread::sleep(ROUND),
            Err(error) if error.is_passing() => return,
            Err(error) => {
                eprintln!("demo: {error}");
                thread::sleep(ROUND);
            }
        }
    }
}

fn job(addon: &str, job_type: &str, cost: u32, work: &Work) -> SubmitRequest {
    SubmitRequest {
        payload: Json::of(work).ok(),
        tags: vec!["demo".into()],
        time_sensitive: true,
        ..SubmitRequest::new(addon, job_type, cost)
    }
}

fn submit(client: &Client, round: u32) -> Result<(), jobtree_client::ClientError> {
    let waiting = client.status()?.jobs.get(&JobState::Queued).copied();
    if waiting.unwrap_or(0) > MOST_WAITING {
        return Ok(());
    }
    let work = |steps, step_ms| Work {
        steps,
        step_ms,
        fails: false,
    };
    // Short, many.
    for _ in 0..3 {
        client.submit(job("photos", "thumbnail", 5, &work(4, 150)))?;
    }
    if round.is_multiple_of(2) {
        // Long, with a tree below it.
        client.submit(SubmitRequest {
            expected_duration_sec: Some(20),
            ..job("photos", "index", 30, &work(40, 900))
        })?;
    }
    if round % 3 == 1 {
        // Fails, and is tried again.
        let fails = Work {
            fails: true,
            ..work(6, 250)
        };
        client.submit(SubmitRequest {
            max_attempts: Some(3),
            backoff: Some(Backoff {
                initial_sec: 2.0,
                ..Backoff::default()
            }),
            ..job("reports", "mail", 10, &fails)
        })?;
    }
    if round % 3 == 2 {
        // Somebody changes their mind.
        let answer = client.submit(job("photos", "index", 20, &work(200, 500)))?;
        let canceller = client.clone();
        thread::spawn(move || {
            thread::sleep(ROUND);
            canceller.cancel(answer.job_id, Some("no longer needed"))
        });
    }
    if round % 4 == 3 {
        // Wanted soon.
        client.submit(SubmitRequest {
            deadline_at: Some(Timestamp::now() + 90.seconds()),
            expected_duration_sec: Some(10),
            priority: Priority::High,
            ..job("reports", "mail", 10, &work(10, 400))
        })?;
    }
    if round == 0 {
        // For the night.
        client.submit(SubmitRequest {
            earliest_start_at: tonight(),
            time_sensitive: false,
            priority: Priority::Low,
            unique_key: Some("nightly".into()),
            ..job("reports", "nightly", 60, &work(100, 1000))
        })?;
    }
    Ok(())
}

/// The next 22 o'clock.
fn tonight() -> Option<Timestamp> {
    crate::when::time("22:00", &Zoned::now()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demos_policy_is_one() {
        let text = toml::to_string(&policy()).unwrap();
        assert_eq!(Policy::from_toml(&text).unwrap(), policy());
    }
}
