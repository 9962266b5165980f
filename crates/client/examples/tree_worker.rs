//! A worker whose jobs have a tree below them: each runs on a lane, opens a nursery and forks a parallel loop, which ends when the
//! job is cancelled. The dashboard shows the tree on the page of the job.
//!
//! ```sh
//! jobtree serve --demo
//! JOBTREE_URL=http://127.0.0.1:7717 cargo run -p jobtree-client --example tree_worker
//! jobtree submit photos index
//! ```
//!
//! Each level prints a line when it begins and ends, with the milliseconds since 1970: the browser's tests read them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use jobtree_client::{Client, Run, Worker};
use jobtree_lanes::{JobManager, LaneJob};
use jobtree_runtime::{BoxError, Runtime, labelled_nursery};

fn main() -> Result<(), BoxError> {
    let Ok(url) = std::env::var("JOBTREE_URL") else {
        println!("set JOBTREE_URL to a daemon's address, and JOBTREE_TOKEN if it asks for one");
        return Ok(());
    };
    let client = Client::builder(&url);
    let client = match std::env::var("JOBTREE_TOKEN") {
        Ok(token) => client.token(&token),
        Err(_) => client,
    };
    let runtime = Runtime::builder().workers(2).build()?;
    let manager = JobManager::builder().runtime(&runtime).build()?;
    let index = move |(), run: &Run| -> Result<(), BoxError> {
        let _level = Level::begin("run");
        let run = run.clone();
        let on_lane = LaneJob::action(move || {
            let _level = Level::begin("lane");
            Ok(labelled_nursery("nursery", |n| {
                let _level = Level::begin("nursery");
                let run = &run;
                n.job_options().label("loop").launch(move || {
                    let _level = Level::begin("loop");
                    run.progress(0.5, "the loop has begun");
                    let pieces = AtomicU64::new(0);
                    jobtree_par::for_each(0..u64::MAX / 2, |_| {
                        pieces.fetch_add(1, Ordering::Relaxed);
                        // Work that leaves the machine to others.
                        std::thread::sleep(Duration::from_micros(500));
                    });
                    Ok(())
                });
                Ok(())
            })?)
        });
        Ok(manager.schedule_child(on_lane.label("lane")).join()?)
    };
    let worker = Worker::new(client.build()?)
        .addon("photos")
        .on(&runtime)
        .program("tree_worker")
        .handle("index", index)
        .start()?;
    println!("ready");
    loop {
        // Until it is interrupted. The worker ends with this process.
        let _ = &worker;
        std::thread::park();
    }
}

/// Says when a part of the job begins, and when it has ended, however that comes.
struct Level(&'static str);

impl Level {
    fn begin(name: &'static str) -> Self {
        println!("began {name} {}", millis());
        Self(name)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        println!("ended {} {}", self.0, millis());
    }
}

fn millis() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_millis()
}
