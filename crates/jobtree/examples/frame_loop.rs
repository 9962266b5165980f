//! A frame loop at 120 Hz. Work of the background hands its results to the main thread; a render thread prepares what is
//! swapped in at its own point of the frame; and a job that holds the main thread up is reported by its label.
//!
//! ```text
//! cargo run -p jobtree --example frame_loop
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jobtree::JobManager;
use jobtree::lanes::{FrameLane, Lane, LaneHandle, LaneJob, Next, PumpLimit};

const FRAMES: u32 = 60;
const FRAME: Duration = Duration::from_nanos(1_000_000_000 / 120);
const SWAP: Lane = Lane::Frame(FrameLane::COLLECT_VISIBLE_SWAP);

fn main() -> Result<(), Box<dyn Error>> {
    let manager = JobManager::builder().build()?;
    manager.bind_lane(&Lane::Main)?;
    let scene = Arc::new(AtomicU32::new(0));
    let swapped = Arc::new(AtomicU32::new(0));
    let mut slow = Vec::new();

    // One step a frame, for as long as the program runs: it waits for its next dispatch, which is the next pump.
    let steps = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&steps);
    let animation = LaneJob::coroutine(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(Next::<()>::NextDispatch)
    });
    let animation = manager.schedule(animation.label("animation").lane(Lane::Main));

    thread::scope(|scope| {
        // The lane belongs to the thread that pumps it: nobody else can.
        let renderer = scope.spawn(|| {
            while !manager.is_shut_down() {
                if manager.pump(&SWAP, PumpLimit::jobs(16)).is_err() {
                    unreachable!("this thread was the first");
                }
                thread::sleep(FRAME / 4);
            }
        });
        let began = Instant::now();
        let mut rebuilding = None;
        let mut loading = Vec::new();
        for frame in 0..FRAMES {
            let (nodes, ready) = (Arc::clone(&scene), Arc::clone(&swapped));
            loading.push(manager.schedule(LaneJob::future(async move |context| {
                let mesh = (0..10_000u64).sum::<u64>();
                // Only the main thread may touch the scene, and only the renderer what it draws.
                context
                    .run_on(Lane::Main, move || nodes.fetch_add(1, Ordering::Relaxed))
                    .await?;
                context
                    .run_on(SWAP, move || ready.fetch_add(1, Ordering::Relaxed))
                    .await?;
                Ok(mesh)
            })));
            if frame == FRAMES / 2 {
                let rebuild = LaneJob::action(|| {
                    thread::sleep(Duration::from_millis(6));
                    Ok(())
                });
                let rebuild = rebuild.label("rebuild navigation").kind("navigation");
                rebuilding = Some(manager.schedule(rebuild.lane(Lane::Main)));
            }
            let report = manager.pump(&Lane::Main, PumpLimit::default())?;
            slow.extend(report.slow);
            let next = FRAME * (frame + 1);
            thread::sleep(next.saturating_sub(began.elapsed()));
        }
        let fps = f64::from(FRAMES) / began.elapsed().as_secs_f64();
        // Not more: a pump runs what was queued when it began, each job once.
        let steps = steps.load(Ordering::Relaxed);
        assert!((1..=FRAMES).contains(&steps), "{steps} steps");
        let has_ended = |job: &LaneHandle<()>| job.is_finished();
        while !loading.iter().all(|job| job.is_finished()) || !rebuilding.iter().all(has_ended) {
            slow.extend(manager.pump(&Lane::Main, PumpLimit::default())?.slow);
            thread::yield_now();
        }
        println!("{FRAMES} frames, {fps:.0} a second");
        animation.cancel("the program ends");
        manager.shutdown(Duration::from_secs(5))?;
        renderer.join().map_err(|_| "the renderer panicked")?;
        Ok::<(), Box<dyn Error>>(())
    })?;

    assert_eq!(scene.load(Ordering::Relaxed), FRAMES);
    assert_eq!(swapped.load(Ordering::Relaxed), FRAMES);
    let held_up = slow.iter().find(|job| job.label == "rebuild navigation");
    let held_up = held_up.ok_or("it took 6 ms")?;
    assert_eq!(held_up.kind, "navigation");
    assert!(held_up.took >= Duration::from_millis(6));
    println!(
        "{} ({}) took {:?}",
        held_up.label, held_up.kind, held_up.took
    );
    Ok(())
}
