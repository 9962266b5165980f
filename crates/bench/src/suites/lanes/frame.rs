//! A frame loop: 120 times a second, 10 000 jobs over four lanes that one thread pumps one after the other.
//!
//! The thread schedules the frame's jobs itself, then pumps each lane for as long as is left of the frame's 4 ms. Jobs for which
//! there was no time stay for the next frame. What is told is how long the pumps took, and how many jobs were left behind.
//! There is no peer that does this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jobtree_lanes::{FrameLane, JobManager, Lane, LaneJob, Priority, PumpLimit};

use super::Options;
use crate::harness::{Fact, Report, quantile};
use crate::suites::shared::{end, our_runtime};

const NAME: &str = "frame of 10000 jobs over 4 lanes at 120 Hz";

const JOBS: u64 = 10_000;
const FRAME: Duration = Duration::from_nanos(1_000_000_000 / 120);
/// What jobs may take of a frame.
const BUDGET: Duration = Duration::from_millis(4);

/// How long one frame took, in milliseconds, and how many jobs it left behind.
struct Frame {
    pumps: f64,
    all: f64,
    left: usize,
}

/// Adds what there is to know.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    eprintln!("  {NAME}");
    let frames = frames(if options.quick { 60 } else { 600 });
    let all: Vec<f64> = frames.iter().map(|frame| frame.all).collect();
    let pumps: Vec<f64> = frames.iter().map(|frame| frame.pumps).collect();
    let left: Vec<f64> = frames.iter().map(|frame| frame.left as f64).collect();
    // The last job of a pump is not cut short.
    let budget = Some(BUDGET.as_secs_f64() * 1e3 * 1.01);
    for (what, figures, share, unit, at_most) in [
        ("pumped, typical", &pumps, 0.5, "ms", budget),
        ("pumped, p99", &pumps, 0.99, "ms", budget),
        // A frame that takes its time must be made up for by the next one.
        ("left behind, typical", &left, 0.5, "jobs", Some(0.0)),
        ("left behind, p99", &left, 0.99, "jobs", None),
        ("scheduled and pumped, typical", &all, 0.5, "ms", None),
        ("scheduled and pumped, p99", &all, 0.99, "ms", None),
    ] {
        report.facts.push(Fact {
            name: format!("{NAME}: {what}"),
            value: quantile(figures, share),
            unit,
            at_most,
        });
    }
}

fn lanes() -> [Lane; 4] {
    [
        Lane::Main,
        Lane::Frame(FrameLane::COLLECT_VISIBLE_SWAP),
        Lane::frame("physics"),
        Lane::frame("interface"),
    ]
}

fn frames(count: usize) -> Vec<Frame> {
    let runtime = our_runtime(1);
    let manager = JobManager::builder()
        .runtime(&runtime)
        .queue_limit(0)
        .frame_lane("physics")
        .frame_lane("interface")
        .build()
        .expect("a manager is made");
    let ran = Arc::new(AtomicU64::new(0));
    let mut next = Instant::now();
    let frames = (0..count).map(|number| {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next += FRAME;
        let frame = frame(&manager, &ran);
        let scheduled = (number as u64 + 1) * JOBS;
        assert_eq!(ran.load(Ordering::Relaxed) + frame.left as u64, scheduled);
        frame
    });
    let frames = frames.collect();
    drop(manager);
    end(&runtime);
    frames
}

fn frame(manager: &JobManager, ran: &Arc<AtomicU64>) -> Frame {
    let lanes = lanes();
    let start = Instant::now();
    for number in 0..JOBS as usize {
        let ran = Arc::clone(ran);
        let job = LaneJob::action(move || {
            ran.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let job = job
            .lane(lanes[number % lanes.len()].clone())
            .priority(Priority::ALL[number % Priority::COUNT]);
        drop(manager.schedule(job));
    }
    let scheduled = Instant::now();
    let mut left = 0;
    for lane in &lanes {
        let limit = PumpLimit::time(BUDGET.saturating_sub(scheduled.elapsed()));
        let report = manager.pump(lane, limit).expect("this thread pumps all");
        left += report.left;
    }
    let millis = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
    Frame {
        pumps: millis(scheduled),
        all: millis(start),
        left,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_job_of_a_frame_is_lost() {
        // Each frame counts.
        assert_eq!(frames(2).len(), 2);
    }
}
