//! What user interfaces see of jobs.

mod support;

use std::future::pending;
use std::time::Duration;

use jobtree_lanes::{JobManager, JobSnapshot, Lane, LaneJob, Priority, PumpLimit, Step};
use jobtree_lanes::{Progress, TrackedState, Tracker};
use jobtree_runtime::{Runtime, future, sim, sleep};
use support::{FAR, watch};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn only(tracker: &Tracker) -> JobSnapshot {
    let jobs = tracker.view().jobs;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs.into_iter().next().unwrap()
}

#[test]
fn a_snapshot_tells_id_label_progress_status_state_and_when_it_changed() {
    let _watchdog = watch();
    let report = sim::Runtime::new(3).run(|runtime: &Runtime| {
        let manager = JobManager::builder().runtime(runtime).build()?;
        let tracker = manager.tracker();
        let clock = runtime.clock();
        let steps = [
            Step::NextDispatch,
            Progress::from_range(1, 4)
                .with_payload("one of four")
                .into(),
            Step::wait_with(async || Ok(future::sleep(5 * SECOND).await?)),
            Step::payload(42),
        ];
        let job = LaneJob::steps(steps).label("load").kind("asset");
        let handle = manager.schedule(job.priority(Priority::High).lane(Lane::Main));
        let pump = || manager.pump(&Lane::Main, PumpLimit::unlimited());

        let shown = only(&tracker);
        assert_eq!((shown.id, &*shown.label), (handle.id(), "load"));
        assert_eq!((&*shown.kind, shown.lane), ("asset", Lane::Main));
        assert_eq!(shown.priority, Priority::High);
        assert_eq!(shown.state, TrackedState::Queued);
        assert_eq!((shown.progress, shown.determinate), (0.0, false));
        assert_eq!(shown.status, None);
        pump()?;
        assert_eq!(only(&tracker).state, TrackedState::Queued, "it comes back");
        sleep(SECOND)?;
        pump()?;
        let shown = only(&tracker);
        assert_eq!(shown.state, TrackedState::Waiting);
        assert_eq!((shown.progress, shown.determinate), (0.25, true));
        assert_eq!(shown.status.as_deref(), Some("one of four"));
        assert_eq!(shown.updated, clock.now());
        sleep(2 * SECOND)?;
        assert_eq!(only(&tracker).updated, shown.updated, "nothing has changed");
        sleep(4 * SECOND)?;
        pump()?;
        let shown = only(&tracker);
        assert_eq!(shown.state, TrackedState::Completed);
        assert_eq!(shown.progress, 1.0);
        assert_eq!(shown.status, None, "what it showed last is no text");
        assert_eq!(shown.updated, clock.now());
        manager.shutdown(FAR)?;
        Ok(())
    });
    report.outcome.unwrap();
}

#[test]
fn an_ended_job_is_shown_for_10_s() {
    let _watchdog = watch();
    let report = sim::Runtime::new(4).run(|runtime: &Runtime| {
        let manager = JobManager::builder().runtime(runtime).build()?;
        let tracker = manager.tracker();
        let completes = manager.schedule(LaneJob::action(|| Ok(())));
        let fails = manager.schedule(LaneJob::<()>::steps([Step::fail("no")]));
        let waits = manager.schedule(LaneJob::<()>::steps([Step::wait(pending())]));
        waits.cancel("enough");
        for handle in [&completes, &fails, &waits] {
            let _ = handle.wait();
        }
        let states = || -> Vec<_> {
            let jobs = tracker.view().jobs;
            jobs.iter().map(|job| (job.id, job.state)).collect()
        };
        let expected = [
            (completes.id(), TrackedState::Completed),
            (fails.id(), TrackedState::Faulted),
            (waits.id(), TrackedState::Canceled),
        ];
        assert_eq!(states(), expected);
        sleep(10 * SECOND)?;
        assert_eq!(states(), expected);
        sleep(MS)?;
        assert_eq!(states(), []);
        manager.shutdown(FAR)?;
        Ok(())
    });
    report.outcome.unwrap();
}

#[test]
fn a_running_job_is_shown_as_running_and_what_others_do_for_it_is_not_shown() {
    let _watchdog = watch();
    let report = sim::Runtime::new(5).run(|runtime: &Runtime| {
        let manager = JobManager::builder().runtime(runtime).build()?;
        let tracker = manager.tracker();
        let inside = tracker.clone();
        let job = LaneJob::future(async move |context| {
            let looks = inside.clone();
            let before = only(&inside).state;
            // A part of this job on another lane: no job of its own.
            let during = context
                .run_on(Lane::Any, move || only(&looks).state)
                .await?;
            Ok((before, during))
        });
        let (before, during) = manager.schedule(job).join()?;
        assert_eq!(before, TrackedState::Running);
        assert_eq!(during, TrackedState::Waiting);
        manager.shutdown(FAR)?;
        Ok(())
    });
    report.outcome.unwrap();
}
