//! Changes of jobs that wait: edits, and snoozes of jobs that come back.

use std::time::Duration;

use jobtree_protocol::{
    EditRequest, EventKind, JobQuery, JobState, Priority, ReleaseRequest, SubmitRequest,
};
use jobtree_queue::transitions::TransitionError;

use super::Case;
use super::world::{World, plain, refused};

pub(super) const CASES: &[Case] = &[
    ("an edit is kept and found", an_edit_is_kept_and_found),
    ("only what waits is edited", only_what_waits_is_edited),
    ("a snoozed job waits", a_snoozed_job_waits),
];

fn tagged(tags: &[&str]) -> SubmitRequest {
    SubmitRequest {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..plain()
    }
}

fn an_edit_is_kept_and_found(world: &World) {
    let (job, other) = (
        world.submit(tagged(&["a", "b"])),
        world.submit(tagged(&["a"])),
    );
    let start = world.now().wall + Duration::from_secs(3600);
    let request = EditRequest {
        priority: Some(Priority::High),
        earliest_start_at: Some(Some(start)),
        deadline_at: None,
        tags: Some(vec!["b".into(), "c".into()]),
    };
    let edit = || world.store.edit(world.stamp(), job, request.clone()).wait();
    let edited = edit().expect("it waits");
    assert_eq!(edited, world.record(job));
    assert_eq!(edited.intent.priority, Priority::High);
    assert_eq!(edited.not_before, Some(start));
    assert_eq!(edited.enqueued_at, edited.created_at, "its place stays");
    let of = |tag: &str| {
        world.list(JobQuery {
            tag: Some(tag.into()),
            ..JobQuery::default()
        })
    };
    assert_eq!(
        (of("a"), of("b"), of("c")),
        (vec![other], vec![job], vec![job])
    );
    let revision = edited.revision;
    assert_eq!(
        edit().expect("again").revision,
        revision,
        "nothing is written twice"
    );
    let events = world.store.events_of(job).wait().expect("its events");
    let kinds: Vec<_> = events.iter().map(|event| event.event.kind).collect();
    assert_eq!(kinds, [EventKind::Submitted, EventKind::Edited]);
    // What was changed stays with the job to its end.
    world.advance(3600);
    world.finish(job);
    assert_eq!(world.record(job).intent.priority, Priority::High);
    assert_eq!((of("a"), of("c")), (vec![other], vec![job]));
}

fn only_what_waits_is_edited(world: &World) {
    let request = EditRequest {
        priority: Some(Priority::Low),
        ..EditRequest::default()
    };
    let job = world.plain();
    let lease = world.claim(&[job]).id;
    let edit = || world.store.edit(world.stamp(), job, request.clone()).wait();
    let wrong = refused(edit().map(|_| ()));
    assert!(matches!(
        wrong,
        TransitionError::WrongState {
            state: JobState::Running,
            ..
        }
    ));
    let back = ReleaseRequest {
        return_jobs: true,
        ..ReleaseRequest::default()
    };
    world
        .store
        .release(world.stamp(), lease, back)
        .wait()
        .expect("it is held");
    assert_eq!(
        edit().expect("it waits again").intent.priority,
        Priority::Low
    );
    let late = EditRequest {
        earliest_start_at: Some(Some(world.now().wall + Duration::from_secs(60))),
        deadline_at: Some(Some(world.now().wall)),
        ..EditRequest::default()
    };
    let wrong = world.store.edit(world.stamp(), job, late).wait();
    assert!(matches!(
        refused(wrong.map(|_| ())),
        TransitionError::Invalid { .. }
    ));
}

fn a_snoozed_job_waits(world: &World) {
    let jobs = [world.plain(), world.plain()];
    let lease = world.claim(&jobs).id;
    let request = ReleaseRequest {
        return_jobs: true,
        snooze_sec: Some(600),
        ..ReleaseRequest::default()
    };
    world
        .store
        .release(world.stamp(), lease, request)
        .wait()
        .expect("it is held");
    let [snoozed, other] = jobs.map(|job| world.record(job));
    assert_eq!(
        (snoozed.state, snoozed.attempts, snoozed.rescues),
        (JobState::Queued, 0, 0)
    );
    assert_eq!(
        snoozed.not_before,
        Some(world.now().wall + Duration::from_secs(600))
    );
    assert_eq!(other.not_before, None, "only the job in hand waits");
    let early = refused(world.claim_as(&[jobs[0]], world.lease_id()));
    assert!(matches!(early, TransitionError::NothingToClaim { .. }));
    world.advance(600);
    world.finish(jobs[0]);
}
