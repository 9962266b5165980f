//! The tracker's snapshots as progress bars: one for each job, which appears, fills and ends with it.
//!
//! ```text
//! cargo run -p jobtree-lanes --example progress_bars
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jobtree_lanes::{JobManager, LaneJob, Progress, Step, TrackedState, Tracker};
use jobtree_runtime::{JobId, future};

/// Bars are as long as this; progress is a fraction of it.
const LENGTH: u64 = 1000;

/// The bars of all jobs that were ever seen.
struct Bars {
    drawn: MultiProgress,
    style: ProgressStyle,
    by_job: BTreeMap<JobId, ProgressBar>,
}

impl Bars {
    fn new() -> Result<Bars, Box<dyn Error>> {
        // Where there is no terminal, the bars are kept and not drawn.
        let target = match stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        Ok(Bars {
            drawn: MultiProgress::with_draw_target(target),
            style: ProgressStyle::with_template("{prefix:10} {bar:40} {percent:>3} % {msg}")?,
            by_job: BTreeMap::new(),
        })
    }

    /// Has them show how jobs are now; whether all have ended.
    fn show(&mut self, tracker: &Tracker) -> bool {
        let view = tracker.view();
        for job in &view.jobs {
            let bar = self.by_job.entry(job.id).or_insert_with(|| {
                let bar = self.drawn.add(ProgressBar::new(LENGTH));
                bar.with_style(self.style.clone())
                    .with_prefix(job.label.clone())
            });
            bar.set_position((job.progress * LENGTH as f32) as u64);
            match job.state {
                TrackedState::Completed => bar.finish_with_message("done"),
                TrackedState::Canceled => bar.abandon_with_message("canceled"),
                TrackedState::Faulted => bar.abandon_with_message("failed"),
                _ => bar.set_message(job.status.clone().unwrap_or_default()),
            }
        }
        !view.jobs.is_empty() && view.jobs.iter().all(|job| job.state.is_ended())
    }
}

/// So many files, a few milliseconds each.
fn copy(files: u64, fails_at: Option<u64>) -> impl Iterator<Item = Step> + Send {
    (0..files).flat_map(move |file| {
        let copied = Step::wait_with(async move || {
            future::sleep(Duration::from_millis(4)).await?;
            match fails_at == Some(file) {
                true => Err("the disk is full".into()),
                false => Ok(()),
            }
        });
        let name = format!("file {file}");
        let progress = Progress::from_range(file + 1, files).with_payload(name);
        [copied, progress.into()]
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let manager = JobManager::builder().build()?;
    let tracker = manager.tracker();
    let mut bars = Bars::new()?;
    let photos = manager.schedule(LaneJob::steps(copy(50, None)).label("photos"));
    let music = manager.schedule(LaneJob::steps(copy(20, None)).label("music"));
    let films = manager.schedule(LaneJob::steps(copy(40, Some(10))).label("films"));
    let mails = manager.schedule(LaneJob::steps(copy(1_000_000, None)).label("mails"));
    let mut looks = 0;
    while !bars.show(&tracker) {
        looks += 1;
        if photos.is_finished() {
            mails.cancel("that is enough");
        }
        std::thread::sleep(Duration::from_millis(5));
    }

    assert!(looks > 1, "there was something to see on the way");
    let shown = |handle: &jobtree_lanes::LaneHandle<()>| {
        let bar = &bars.by_job[&handle.id()];
        (
            bar.prefix(),
            bar.position(),
            bar.message(),
            bar.is_finished(),
        )
    };
    assert_eq!(
        shown(&photos),
        ("photos".into(), LENGTH, "done".into(), true)
    );
    assert_eq!(shown(&music), ("music".into(), LENGTH, "done".into(), true));
    assert_eq!(
        shown(&films),
        ("films".into(), LENGTH / 4, "failed".into(), true)
    );
    let (_, position, message, _) = shown(&mails);
    assert!(position < LENGTH && message == "canceled");
    println!("4 bars, looked at {looks} times");
    manager.shutdown(Duration::from_secs(5))?;
    Ok(())
}
