//! What must be true in the end: of the trail, of the records, and of what the processes were told.

use std::collections::{HashMap, HashSet};

use jobtree_protocol::{EventKind, JobId, JobState, LeaseId, ScheduleId};
use jobtree_queue::JobRecord;
use jobtree_queue::replay::Story;
use jobtree_store::Recorded;

use crate::child::KEYS;
use crate::fleet::{Entry, FEWEST_FIRINGS, Fleet};

/// How many jobs were rescued.
pub fn compare(fleet: &Fleet, schedule: ScheduleId, ledgers: &[Vec<Entry>]) -> u32 {
    let trail = trail(fleet);
    let ids: HashSet<JobId> = trail.iter().filter_map(|it| it.event.job_id).collect();
    let ids: Vec<JobId> = ids.into_iter().collect();
    let records = fleet.store.read(move |tables| tables.jobs(&ids)).wait();
    let records = records.expect("the jobs");
    let jobs: HashMap<JobId, &JobRecord> = records.iter().map(|job| (job.id, &**job)).collect();

    let done = done_once(&trail, &jobs);
    as_acknowledged(ledgers, &jobs, &done);
    keys_hold(&trail, &jobs);
    fired_once(fleet, schedule, &jobs);
    one_lease_at_a_time(&trail, &jobs)
}

/// All events, in the order of their commits.
fn trail(fleet: &Fleet) -> Vec<Recorded> {
    let mut all: Vec<Recorded> = Vec::new();
    loop {
        let after = all.last().map_or(0, |last| last.cursor);
        let more = fleet.store.events_after(after, 1000).wait();
        let more = more.expect("the trail");
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

/// Each job ended well, once, and its trail says what its record says. Gives the leases under which they did.
fn done_once(trail: &[Recorded], jobs: &HashMap<JobId, &JobRecord>) -> HashMap<JobId, LeaseId> {
    let mut done = HashMap::new();
    let mut stories: HashMap<JobId, Vec<&jobtree_protocol::Event>> = HashMap::new();
    for Recorded { event, .. } in trail {
        let Some(job) = event.job_id else { continue };
        stories.entry(job).or_default().push(event);
        if event.kind == EventKind::Done {
            let lease = event.lease_id.expect("it ran under one");
            assert_eq!(done.insert(job, lease), None, "{job} was done twice");
        }
    }
    for (job, events) in stories {
        let record = jobs[&job];
        assert_eq!(record.state, JobState::Done, "{job}");
        let story = Story::of(events).unwrap_or_else(|why| panic!("{why}"));
        assert!(story.agrees(record), "{story:?} is not {record:?}");
    }
    done
}

/// What somebody was told is so.
fn as_acknowledged(
    ledgers: &[Vec<Entry>],
    jobs: &HashMap<JobId, &JobRecord>,
    done: &HashMap<JobId, LeaseId>,
) {
    let mut started = HashSet::new();
    let (mut submitted, mut completed) = (HashSet::new(), HashSet::new());
    for entry in ledgers.iter().flatten() {
        match entry {
            Entry::Submitted(job) => {
                assert!(
                    jobs.contains_key(job),
                    "{job} was acknowledged, and is lost"
                );
                submitted.insert(*job);
            }
            Entry::Start(job, lease) => {
                assert!(started.insert((*job, *lease)), "{job} twice under {lease}");
            }
            Entry::Done(job, lease) => {
                assert_eq!(done[job], *lease, "{job}, by the trail and by its worker");
                assert!(completed.insert(*job), "{job} was completed twice");
            }
            Entry::Refused(job, lease, code) => {
                assert_ne!(done[job], *lease, "{job} was done, and its worker refused");
                // It runs under another lease; or it does not run, and the error names its state.
                assert!(code == "LeaseLost" || code == "WrongState", "{code}");
            }
        }
    }
    assert!(submitted.len() > 50, "{} submitted", submitted.len());
    assert!(completed.len() > 50, "{} completed", completed.len());
}

/// Walks along the trail with the jobs that run at each moment, by the leases that they run under.
fn walk(trail: &[Recorded], mut each: impl FnMut(&HashMap<JobId, LeaseId>, JobId, LeaseId)) {
    let mut running: HashMap<JobId, LeaseId> = HashMap::new();
    for Recorded { event, .. } in trail {
        let Some(job) = event.job_id else { continue };
        match (event.kind, event.state) {
            (EventKind::Running, _) => {
                let lease = event.lease_id.expect("it runs under one");
                each(&running, job, lease);
                running.insert(job, lease);
            }
            (_, Some(JobState::Running)) | (_, None) => {}
            _ => drop(running.remove(&job)),
        }
    }
    assert!(running.is_empty(), "{running:?} run in the end");
}

fn one_lease_at_a_time(trail: &[Recorded], jobs: &HashMap<JobId, &JobRecord>) -> u32 {
    let mut runs = 0;
    walk(trail, |running, job, lease| {
        let before = running.get(&job);
        assert_eq!(before, None, "{job} runs, and is leased as {lease}");
        runs += 1;
    });
    let rescues: u32 = jobs.values().map(|job| job.rescues).sum();
    assert_eq!(runs, jobs.len() as u32 + rescues, "each run is counted");
    rescues
}

fn keys_hold(trail: &[Recorded], jobs: &HashMap<JobId, &JobRecord>) {
    let key_of = |job: &JobId| jobs[job].intent.concurrency_key.as_deref();
    for (key, limit) in KEYS {
        let mut most = 0;
        walk(trail, |running, job, _| {
            if key_of(&job) == Some(key) {
                let others = running.keys().filter(|it| key_of(it) == Some(key));
                most = most.max(others.count() + 1);
            }
        });
        assert!(most >= 1, "nothing ran with {key}");
        assert!(most <= limit as usize, "{most} ran at once with {key}");
    }
}

/// Each second since the schedule began has one firing, and each firing one job.
fn fired_once(fleet: &Fleet, schedule: ScheduleId, jobs: &HashMap<JobId, &JobRecord>) {
    let rows = fleet.sql("SELECT at / 1000000, job_id FROM scheduler_firings ORDER BY at");
    let firings: Vec<(i64, JobId)> = rows
        .lines()
        .map(|row| {
            let (at, job) = row.split_once('|').expect("two columns");
            (at.parse().expect("a second"), job.parse().expect("a job"))
        })
        .collect();
    assert!(firings.len() >= FEWEST_FIRINGS, "{firings:?}");
    for (earlier, later) in firings.iter().zip(&firings[1..]) {
        assert_eq!(earlier.0 + 1, later.0, "one was left out");
    }
    let fired: HashSet<JobId> = firings.iter().map(|(_, job)| *job).collect();
    let submitted: HashSet<JobId> = jobs
        .values()
        .filter(|job| job.intent.schedule_id == Some(schedule))
        .map(|job| job.id)
        .collect();
    assert_eq!(fired.len(), firings.len(), "one job for two times");
    assert_eq!(fired, submitted, "each firing's job, and no other");
}
