//! Two tenants on one machine: one floods the queue, and the other still gets its share.
//!
//! `cargo run -p jobtree --features durable --example two_tenants`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree::durable::{AddonId, NewJob, Queue};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = Queue::in_memory();
    let flood = queue.for_addon(AddonId::new("flood")?);
    let modest = queue.for_addon(AddonId::new("modest")?);

    // Each job takes half of the machine, so two run at a time. The flood comes first, and is twenty times as much.
    let half = || NewJob::new("render", &()).cost(50);
    flood.submit_many((0..200).map(|_| half())).wait()?;
    let own = modest.submit_many((0..10).map(|_| half())).wait()?;
    assert_eq!(own.jobs.len(), 10);

    let (flooded, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (done, last) = jobtree::channel::bounded(1);
    let by_flood = Arc::clone(&flooded);
    let flood_worker = flood.worker().handle("render", move |(), _| {
        jobtree::sleep(Duration::from_millis(2))?;
        by_flood.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let by_flood = Arc::clone(&flooded);
    let modest_worker = modest.worker().handle("render", move |(), _| {
        jobtree::sleep(Duration::from_millis(2))?;
        if finished.fetch_add(1, Ordering::SeqCst) == 9 {
            done.send(by_flood.load(Ordering::SeqCst))?;
        }
        Ok(())
    });
    let _workers = (flood_worker.start()?, modest_worker.start()?);

    let meanwhile = last.recv()?;
    println!("while modest ran its 10 jobs, the flood ran {meanwhile} of its 200");
    // In the order in which they came it would have been all of them.
    assert!(meanwhile < 60, "the flood had {meanwhile}");
    queue.drain(Duration::from_secs(10))?;
    Ok(())
}
