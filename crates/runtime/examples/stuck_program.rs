//! A program that hangs: two jobs wait for each other. A dump of the tree shows it, for people and for programs, and
//! cancelling ends it.
//!
//! `cargo run -p jobtree-runtime --example stuck_program`

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use jobtree_runtime::{
    BoxError, Job, JobHandle, Runtime, WaitingFor, block_on, checkpoint, nursery, sleep,
};

fn main() -> Result<(), BoxError> {
    let runtime = Runtime::builder().workers(2).build()?;
    let (told, jobs) = channel();
    let program = runtime.spawn(|| run_program(told));
    let (kitchen, waiter): (Job, Job) = jobs.recv()?;

    // What a watchdog or a signal handler would do: look whether anything moves, and if not, tell why.
    while kitchen.waiting_for().is_none() || waiter.waiting_for().is_none() {
        sleep(Duration::from_millis(1))?;
    }
    let dump = runtime.dump_tree();
    println!("{dump}");
    println!("{}", dump.to_json());

    // Each of the two waits for the other one: that is the mistake.
    assert_eq!(kitchen.waiting_for(), Some(WaitingFor::Job(waiter.id())));
    assert_eq!(waiter.waiting_for(), Some(WaitingFor::Future));
    let text = dump.to_string();
    assert!(text.contains(&format!("waiting for job {}", waiter.id())));
    assert!(dump.to_json().contains(r#""label":"kitchen""#));

    assert!(program.cancel("it is stuck"));
    let error = program.join().unwrap_err();
    println!("{error}");
    assert!(error.is_cancelled());
    assert!(kitchen.is_ended() && waiter.is_ended());
    runtime.shutdown(Duration::from_secs(10))?;
    Ok(())
}

/// The kitchen cooks when the waiter is back; the waiter comes back when the kitchen has cooked.
fn run_program(told: Sender<(Job, Job)>) -> Result<(), BoxError> {
    nursery(|n| {
        let (kitchen_known, kitchen) = channel::<Job>();
        let waiter: JobHandle<()> = n.job_options().label("waiter").spawn(move || {
            let kitchen = kitchen.recv()?;
            Ok(block_on(kitchen.ended())?)
        });
        let waiters_job = waiter.job().clone();
        let kitchen: JobHandle<()> = n.job_options().label("kitchen").spawn(|| {
            waiter.join()?;
            checkpoint()?;
            Ok(())
        });
        told.send((kitchen.job().clone(), waiters_job))?;
        kitchen_known.send(kitchen.job().clone())?;
        Ok(kitchen.join()?)
    })?;
    Ok(())
}
