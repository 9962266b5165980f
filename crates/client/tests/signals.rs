//! A worker's process that is told to end. Alone in its program: a signal is for all of a process.

#![cfg(unix)]

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod daemon;
mod fake;

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use daemon::Daemon;
use jobtree_client::{Run, Worker};
use jobtree_runtime::{Runtime, sleep};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::raise;
use watchdog::Watchdog;

#[test]
fn the_first_signal_lets_jobs_finish_and_the_second_does_not_wait() {
    let _watch = Watchdog::watching("signals");
    let daemon = Daemon::start(30);
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let (told, tells) = mpsc::channel();
    let told = Mutex::new(told);
    let run_until_told = || {
        let (told, client) = (Mutex::new(told.lock().unwrap().clone()), daemon.client());
        let worker = Worker::new(client)
            .on(&runtime)
            .drain_for(Duration::from_secs(3600))
            .handle("sleeps", move |millis: u64, _: &Run| {
                told.lock().unwrap().send(())?;
                Ok(sleep(Duration::from_millis(millis))?)
            });
        std::thread::spawn(move || worker.run())
    };
    let running = run_until_told();
    let (_, ids) = daemon.offer(&[("sleeps", json!(300))]);
    tells.recv().unwrap();
    raise(SIGTERM).unwrap();
    running.join().unwrap().unwrap();
    let ended = daemon.until(|state| state.completed.first().cloned());
    assert_eq!(
        (&ended["job_id"], &ended["status"]),
        (&json!(ids[0]), &json!("DONE"))
    );

    let running = run_until_told();
    let (lease, _) = daemon.offer(&[("sleeps", json!(3_600_000))]);
    tells.recv().unwrap();
    raise(SIGINT).unwrap();
    raise(SIGTERM).unwrap();
    // Two that come at once may be one: then a third is the second.
    while !running.is_finished() {
        std::thread::sleep(Duration::from_millis(50));
        let _ = (!running.is_finished()).then(|| raise(SIGTERM));
    }
    running.join().unwrap().unwrap();
    let released = daemon.until(|state| state.released.first().cloned());
    assert_eq!(released, lease.to_string());
}
