//! A level's assets are streamed in: steps with progress, chunks that are awaited, callbacks on the main thread. The player
//! turns back before a second level is there, and its job is cancelled in the midst of a chunk.
//!
//! ```text
//! cargo run -p jobtree-lanes --example asset_streaming
//! ```

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_lanes::{
    Callbacks, JobManager, Lane, LaneHandle, LaneJob, Priority, Progress, PumpLimit, Step,
};
use jobtree_runtime::{BoxError, CancelToken, future};

/// What has arrived so far; only the main thread touches it.
type Scene = Arc<Mutex<Vec<String>>>;

const CHUNKS: [&str; 4] = ["terrain", "water", "trees", "birds"];

async fn fetch(chunk: &'static str) -> Result<(), BoxError> {
    // The birds of the second level are far away.
    let millis = if chunk == "phoenix" { 3_600_000 } else { 5 };
    Ok(future::sleep(Duration::from_millis(millis)).await?)
}

/// The routine: nothing of it runs before the job is dispatched, and each chunk is fetched when its step is reached.
fn download(chunks: &'static [&'static str]) -> impl Iterator<Item = Step> + Send {
    let total = chunks.len() as u64;
    let fetched = (1..).zip(chunks).flat_map(move |(done, chunk)| {
        [
            Step::wait_with(|| fetch(chunk)),
            Progress::from_range(done, total)
                .with_payload(*chunk)
                .into(),
        ]
    });
    std::iter::once(Step::progress(0.0)).chain(fetched)
}

fn stream(
    manager: &JobManager,
    level: &'static str,
    chunks: &'static [&'static str],
    scene: &Scene,
    token: &CancelToken,
) -> LaneHandle<()> {
    let note = |text: &'static str| {
        let scene = Arc::clone(scene);
        move || scene.lock().unwrap().push(format!("{level}: {text}"))
    };
    let main = std::thread::current().id();
    let job = LaneJob::steps_with(move || download(chunks))
        .label(level)
        .priority(Priority::High)
        .token(token.clone())
        .on_progress(move |progress| {
            assert_eq!(std::thread::current().id(), main);
            let chunk = progress.payload().and_then(|chunk| chunk.downcast_ref());
            let chunk: &str = chunk.copied().unwrap_or("");
            println!("{level}: {:3.0} % {chunk}", 100.0 * progress.fraction());
        })
        .on_completed(note("ready"))
        .on_canceled(note("canceled"))
        .on_faulted(|error| eprintln!("{error}"))
        .callbacks_on(Callbacks::Lane(Lane::Main));
    manager.schedule(job)
}

fn main() -> Result<(), Box<dyn Error>> {
    let manager = JobManager::builder().build()?;
    let scene = Scene::default();
    let (valley, volcano) = (CancelToken::new(), CancelToken::new());
    let first = stream(&manager, "valley", &CHUNKS, &scene, &valley);
    let second = stream(&manager, "volcano", &["lava", "phoenix"], &scene, &volcano);

    // The program's frames. Each callback runs in one of these pumps, on this thread.
    while scene.lock().unwrap().len() < 2 {
        manager.pump(&Lane::Main, PumpLimit::default())?;
        if first.is_finished() && second.progress() == 0.5 {
            volcano.cancel("the player turned back");
        }
        std::thread::sleep(Duration::from_millis(1));
    }

    assert_eq!(
        *scene.lock().unwrap(),
        ["valley: ready", "volcano: canceled"]
    );
    assert!(first.is_completed() && first.progress() == 1.0);
    let last = first.payload().ok_or("there were chunks")?;
    assert_eq!(last.downcast_ref(), Some(&"birds"));
    assert!(second.is_canceled() && second.progress() == 0.5);
    println!("{}", second.wait().unwrap_err());
    manager.shutdown(Duration::from_secs(5))?;
    Ok(())
}
