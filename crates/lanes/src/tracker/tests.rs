//! The table with jobs that are nothing but a state; their ids are those of real ones, since there are no others.

use std::sync::Weak;
use std::sync::atomic::AtomicU32;

use jobtree_runtime::Runtime;

use super::*;

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

/// Ids in ascending order.
fn ids(count: usize) -> Vec<JobId> {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let handles = (0..count).map(|_| runtime.spawn(|| Ok(())));
    let mut ids: Vec<_> = handles.map(|handle| handle.job().id()).collect();
    runtime.shutdown(Duration::from_secs(60)).unwrap();
    ids.sort_unstable();
    ids
}

struct Fake {
    id: JobId,
    /// In hundredths; above 100 it has ended.
    progress: AtomicU32,
    beginning: Instant,
    table: Weak<Tracking<Arc<Fake>>>,
}

impl Tracked for Arc<Fake> {
    fn snapshot(&self) -> JobSnapshot {
        let progress = self.progress.load(Ordering::Relaxed);
        JobSnapshot {
            id: self.id,
            label: self.id.to_string(),
            kind: String::new(),
            lane: Lane::Any,
            priority: Priority::Normal,
            state: if progress > 100 {
                TrackedState::Completed
            } else {
                TrackedState::Running
            },
            progress: progress.min(100) as f32 / 100.0,
            determinate: progress > 0,
            status: None,
            updated: self.beginning,
        }
    }

    fn is_ended(&self) -> bool {
        self.progress.load(Ordering::Relaxed) > 100
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // What users drop may do anything: it must find the table unlocked.
        if let Some(table) = self.table.upgrade() {
            assert!(table.table.try_lock().is_ok());
        }
    }
}

type Fakes = Arc<Tracking<Arc<Fake>>>;

fn fake(tracking: &Fakes, id: JobId) -> Arc<Fake> {
    Arc::new(Fake {
        id,
        progress: AtomicU32::new(0),
        beginning: Instant::now(),
        table: Arc::downgrade(tracking),
    })
}

fn table() -> Fakes {
    let tracking = Tracking::new();
    tracking.switch_on();
    Arc::new(tracking)
}

fn shown(tracking: &Fakes, now: Moment) -> Vec<JobId> {
    let view = tracking.view(now);
    view.jobs.iter().map(|job| job.id).collect()
}

#[test]
fn nothing_is_tracked_until_somebody_asks() {
    let tracking: Tracking<Arc<Fake>> = Tracking::new();
    assert!(!tracking.is_on());
    tracking.switch_on();
    assert!(tracking.is_on());
    tracking.close();
    assert!(!tracking.is_on());
}

#[test]
fn progress_is_read_when_somebody_looks() {
    let tracking = table();
    let job = fake(&tracking, ids(1)[0]);
    assert!(tracking.enter(job.id, job.clone(), at(0)));
    let before = &tracking.view(at(0)).jobs[0];
    assert_eq!((before.progress, before.determinate), (0.0, false));
    job.progress.store(40, Ordering::Relaxed);
    let after = &tracking.view(at(0)).jobs[0];
    assert_eq!((after.progress, after.determinate), (0.4, true));
}

#[test]
fn a_job_is_shown_for_10_s_after_its_end_and_its_header_let_go_at_once() {
    let tracking = table();
    let ids = ids(2);
    let [first, second] = [ids[0], ids[1]].map(|id| fake(&tracking, id));
    for job in [&second, &first] {
        tracking.enter(job.id, job.clone(), at(0));
    }
    first.progress.store(101, Ordering::Relaxed);
    tracking.end(first.id, at(1000));
    assert_eq!(Arc::strong_count(&first), 1);
    let view = tracking.view(at(11_000));
    assert_eq!(view.jobs.len(), 2);
    assert_eq!(view.jobs[0].id, ids[0]);
    assert_eq!(view.jobs[0].state, TrackedState::Completed);
    assert_eq!(view.jobs[1].state, TrackedState::Running);
    assert_eq!(shown(&tracking, at(11_001)), [ids[1]]);
}

#[test]
fn the_end_of_a_job_that_was_not_entered_is_nothing() {
    let tracking = table();
    tracking.end(ids(1)[0], at(0));
    assert_eq!(tracking.view(at(0)), TrackerView::default());
}

#[test]
fn a_job_that_ended_before_it_was_entered_does_not_stay() {
    let tracking = table();
    let job = fake(&tracking, ids(1)[0]);
    job.progress.store(101, Ordering::Relaxed);
    tracking.end(job.id, at(0));
    tracking.enter(job.id, job.clone(), at(0));
    assert_eq!(shown(&tracking, at(5000)), [job.id]);
    assert_eq!(Arc::strong_count(&job), 1);
    assert!(shown(&tracking, at(15_001)).is_empty());
}

#[test]
fn the_table_is_bounded_and_counts_what_it_leaves_out() {
    let tracking = table();
    let ids = ids(MOST_LIVE + 10);
    let jobs: Vec<_> = ids.iter().map(|id| fake(&tracking, *id)).collect();
    for (index, job) in jobs.iter().enumerate() {
        assert_eq!(
            tracking.enter(job.id, job.clone(), at(0)),
            index < MOST_LIVE
        );
    }
    let view = tracking.view(at(0));
    assert_eq!((view.jobs.len(), view.omitted), (MOST_LIVE, 10));
    for job in &jobs[..MOST_LIVE] {
        job.progress.store(101, Ordering::Relaxed);
        tracking.end(job.id, at(1));
    }
    let view = tracking.view(at(1));
    let omitted = (MOST_LIVE - MOST_ENDED + 10) as u64;
    assert_eq!((view.jobs.len(), view.omitted), (MOST_ENDED, omitted));
    assert_eq!(view.jobs.last().unwrap().id, ids[MOST_LIVE - 1]);
}

#[test]
fn a_full_table_makes_room_by_what_ended_unheard() {
    let tracking = table();
    let ids = ids(MOST_LIVE + 1);
    for id in &ids[..MOST_LIVE] {
        let job = fake(&tracking, *id);
        job.progress.store(101, Ordering::Relaxed);
        tracking.enter(*id, job, at(0));
    }
    let last = fake(&tracking, ids[MOST_LIVE]);
    assert!(tracking.enter(last.id, last.clone(), at(0)));
    assert!(shown(&tracking, at(0)).contains(&last.id));
}

#[test]
fn when_the_manager_is_gone_no_header_is_held() {
    let tracking = table();
    let job = fake(&tracking, ids(1)[0]);
    tracking.enter(job.id, job.clone(), at(0));
    tracking.close();
    assert_eq!(Arc::strong_count(&job), 1);
    assert!(!tracking.is_on());
}
