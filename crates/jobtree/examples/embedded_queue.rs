//! A durable queue in a file, in this process: no server, and nothing is lost with the process.
//!
//! `cargo run -p jobtree --features durable --example embedded_queue`

use std::time::Duration;

use jobtree::durable::{NewJob, Queue};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("embedded-queue-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;

    // What is submitted is on disk. Nobody runs it yet, and this queue is closed again.
    let queue = Queue::open(folder.join("jobs.db"))?;
    let job = NewJob::new("thumbnail", &("cat.jpg", 64)).attempts(3);
    let job = queue.submit(job).wait()?.job_id;
    drop(queue);

    // As if after a crash: it is still there, and now somebody handles it.
    let queue = Queue::open(folder.join("jobs.db"))?;
    let worker = queue
        .worker()
        .handle("thumbnail", |(name, size): (String, u32), run| {
            run.progress(0.5, "decoded");
            Ok(format!("{name} at {size}×{size}"))
        })
        .start()?;
    let thumbnail: String = queue.result_of(job).wait()?;
    assert_eq!(thumbnail, "cat.jpg at 64×64");
    println!("{thumbnail}");

    // What runs may finish; what waits is still there next time.
    worker.drain(Duration::from_secs(10))?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
