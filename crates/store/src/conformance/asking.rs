//! Questions: lists, pages, trails and counts; and what listeners are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::{
    AddonId, CompleteRequest, JobQuery, JobState, JobType, Json, SubmitRequest,
};

use super::Case;
use super::world::{World, refused};
use crate::backend::Written;

pub(super) const CASES: &[Case] = &[
    ("lists are filtered and paged", lists_are_filtered_and_paged),
    (
        "jobs are found by the time of their end",
        jobs_are_found_by_the_time_of_their_end,
    ),
    ("jobs are found by a text", jobs_are_found_by_a_text),
    (
        "a search looks at so much a page",
        a_search_looks_at_so_much_a_page,
    ),
    ("waiting jobs page by page", waiting_jobs_page_by_page),
    (
        "the trail goes on from a cursor",
        the_trail_goes_on_from_a_cursor,
    ),
    ("jobs are counted", jobs_are_counted),
    (
        "listeners hear of each commit",
        listeners_hear_of_each_commit,
    ),
    (
        "who listens no longer is not told",
        who_listens_no_longer_is_not_told,
    ),
    (
        "a refused command leaves no trace",
        a_refused_command_leaves_no_trace,
    ),
];

fn addon(name: &str) -> AddonId {
    AddonId::new(name).expect("a name")
}

fn lists_are_filtered_and_paged(world: &World) {
    let submit = |addon_id: &str, job_type: &str, tags: &[&str]| {
        world.submit(SubmitRequest {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..SubmitRequest::new(addon_id, job_type, 1)
        })
    };
    let jobs: Vec<_> = (0..30)
        .map(|number| {
            let addon_id = ["visuals", "sounds"][number % 2];
            let job_type = ["a", "b", "c"][number % 3];
            let tags: &[&str] = if number % 5 == 0 {
                &["red", "big"]
            } else {
                &[]
            };
            submit(addon_id, job_type, tags)
        })
        .collect();
    for (number, job) in jobs.iter().enumerate() {
        match number {
            0..6 => world.finish(*job),
            6..10 => world.fail(*job),
            10..12 => {
                let cancel = world.store.cancel(
                    world.stamp(),
                    *job,
                    jobtree_protocol::CancelRequest::default(),
                );
                cancel.wait().expect("it waits");
            }
            12..15 => drop(world.claim(&[*job])),
            15..19 => drop(world.reserve(*job).expect("a place")),
            _ => {}
        }
    }
    let all = JobQuery::default;
    let states = |state: &[JobState]| JobQuery {
        state: state.to_vec(),
        ..all()
    };
    assert_eq!(world.list(all()), jobs);
    assert_eq!(world.list(states(&[JobState::Done])), jobs[..6]);
    assert_eq!(world.list(states(&[JobState::Failed])), jobs[6..10]);
    assert_eq!(world.list(states(&[JobState::Canceled])), jobs[10..12]);
    assert_eq!(world.list(states(&[JobState::Running])), jobs[12..15]);
    assert_eq!(world.list(states(&[JobState::Dispatching])), jobs[15..19]);
    assert_eq!(world.list(states(&[JobState::Queued])), jobs[19..]);
    let mixed = [JobState::Queued, JobState::Failed, JobState::Running];
    let expected: Vec<_> = [&jobs[6..10], &jobs[12..15], &jobs[19..]].concat();
    assert_eq!(world.list(states(&mixed)), expected);

    let every = |first: usize, step: usize| -> Vec<_> {
        jobs.iter().skip(first).step_by(step).copied().collect()
    };
    let of_sounds = JobQuery {
        addon_id: Some(addon("sounds")),
        ..all()
    };
    assert_eq!(world.list(of_sounds.clone()), every(1, 2));
    let of_type = JobQuery {
        job_type: Some(JobType::new("c").expect("a name")),
        ..of_sounds
    };
    assert_eq!(world.list(of_type), every(5, 6));
    let red = JobQuery {
        tag: Some("red".into()),
        ..all()
    };
    assert_eq!(world.list(red.clone()), every(0, 5));
    let red_and_queued = JobQuery {
        state: vec![JobState::Queued],
        ..red
    };
    assert_eq!(world.list(red_and_queued), [jobs[20], jobs[25]]);
    let none = JobQuery {
        tag: Some("green".into()),
        ..all()
    };
    assert_eq!(world.list(none), []);
}

fn jobs_are_found_by_the_time_of_their_end(world: &World) {
    let submit = || world.submit(SubmitRequest::new("visuals", "a", 1));
    let jobs: Vec<_> = (0..6).map(|_| submit()).collect();
    // Neither the order of submission nor that of the ends is that of the ids.
    world.fail(jobs[5]);
    world.finish(jobs[1]);
    world.advance(3600);
    world.fail(jobs[2]);
    let since = world.record(jobs[2]).ended_at.expect("it ended");
    world.advance(60);
    world.fail(jobs[0]);
    world.finish(jobs[4]);
    let ended = |ended_since: Timestamp, state: &[JobState]| JobQuery {
        ended_since: Some(ended_since),
        state: state.to_vec(),
        ..JobQuery::default()
    };
    let failed = [JobState::Failed];
    assert_eq!(world.list(ended(since, &failed)), [jobs[0], jobs[2]]);
    assert_eq!(world.list(ended(since, &[])), [jobs[0], jobs[2], jobs[4]]);
    let after = since + SignedDuration::from_micros(1);
    assert_eq!(world.list(ended(after, &failed)), [jobs[0]]);
    assert_eq!(world.list(ended(Timestamp::UNIX_EPOCH, &[])).len(), 5);
    assert_eq!(world.list(ended(since, &[JobState::Queued])), []);
    // One that is queued again has not ended.
    let back = world.store.redrive(world.stamp(), jobs[0], None).wait();
    back.expect("it failed");
    assert_eq!(world.list(ended(since, &failed)), [jobs[2]]);
}

fn jobs_are_found_by_a_text(world: &World) {
    let texts = |text: &str| JobQuery {
        text: Some(text.into()),
        ..JobQuery::default()
    };
    let by_type = world.submit(SubmitRequest::new("visuals", "Needle.work", 1));
    let by_addon = world.submit(SubmitRequest::new("needles", "x", 1));
    let by_tag = world.submit(SubmitRequest {
        tags: vec!["blue".into(), "a-NEEDLE".into()],
        ..SubmitRequest::new("visuals", "x", 1)
    });
    let json = |text: String| Some(Json::of(&text).expect("JSON"));
    let by_payload = world.submit(SubmitRequest {
        payload: json("the needle".into()),
        ..SubmitRequest::new("visuals", "x", 1)
    });
    let by_long_payload = world.submit(SubmitRequest {
        payload: json(format!("{} größer needle", "hay ".repeat(5000))),
        ..SubmitRequest::new("visuals", "x", 1)
    });
    let by_error = world.submit(SubmitRequest::new("visuals", "x", 1));
    let lease = world.claim(&[by_error]);
    let failed = CompleteRequest::failed(lease.id, "no Needle found");
    world.complete(by_error, failed).expect("it runs");
    let running = world.submit(SubmitRequest::new("visuals", "x-needle", 1));
    world.claim(&[running]);
    world.submit(SubmitRequest::new("visuals", "x", 1));
    let all = [
        by_type,
        by_addon,
        by_tag,
        by_payload,
        by_long_payload,
        by_error,
        running,
    ];
    assert_eq!(world.list(texts("needle")), all);
    assert_eq!(world.list(texts("nEEdLE")), all);
    assert_eq!(world.list(texts("GRÖßER")), [by_long_payload]);
    assert_eq!(world.list(texts("haystack")), []);
    assert_eq!(world.list(texts("")).len(), 8, "everything has that");
    let narrowed = |state: &[JobState]| JobQuery {
        state: state.to_vec(),
        ..texts("needle")
    };
    assert_eq!(world.list(narrowed(&[JobState::Failed])), [by_error]);
    assert_eq!(
        world.list(narrowed(&[JobState::Running, JobState::Failed])),
        [by_error, running]
    );
    let tagged = JobQuery {
        tag: Some("blue".into()),
        ..texts("needle")
    };
    assert_eq!(world.list(tagged), [by_tag]);
}

fn a_search_looks_at_so_much_a_page(world: &World) {
    // Long payloads count for many jobs: these for some 25 each.
    let hay = SubmitRequest {
        payload: Some(Json::of(&"hay ".repeat(25_000)).expect("JSON")),
        ..SubmitRequest::new("visuals", "x", 1)
    };
    let batch = (0..100).map(|_| world.submission(hay.clone())).collect();
    let taken = world.store.submit_many(world.stamp(), batch).wait();
    assert_eq!(taken.expect("taken").len(), 100);
    let needle = world.submit(SubmitRequest::new("visuals", "needle", 1));
    let query = JobQuery {
        text: Some("needle".into()),
        ..JobQuery::default()
    };
    let first = world.store.list(query.clone(), 10).wait().expect("a page");
    assert_eq!(first.jobs, []);
    let next = JobQuery {
        after: Some(first.next.expect("it goes on")),
        ..query
    };
    let second = world.store.list(next, 10).wait().expect("a page");
    assert_eq!(second.jobs.len(), 1);
    assert_eq!((second.jobs[0].id, second.next), (needle, None));
}

fn waiting_jobs_page_by_page(world: &World) {
    let jobs: Vec<_> = (0..10).map(|_| world.plain()).collect();
    world.claim(&jobs[2..4]);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = world.store.queued(after, 3).wait().expect("a page");
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        found.extend(page.iter().map(|job| job.id));
    }
    assert_eq!(found, [&jobs[..2], &jobs[4..]].concat());
}

fn the_trail_goes_on_from_a_cursor(world: &World) {
    let jobs: Vec<_> = (0..4).map(|_| world.plain()).collect();
    jobs.iter().for_each(|job| world.finish(*job));
    let (mut trail, mut cursor) = (Vec::new(), 0);
    loop {
        let page = world.store.events_after(cursor, 3).wait().expect("a page");
        let Some(last) = page.last() else { break };
        assert!(page.is_sorted_by_key(|recorded| recorded.cursor));
        cursor = last.cursor;
        trail.extend(page);
    }
    let told: Vec<_> = world
        .told()
        .into_iter()
        .flat_map(|written| written.changes.events)
        .collect();
    let read: Vec<_> = trail
        .iter()
        .map(|recorded| recorded.event.clone())
        .collect();
    assert_eq!(read, told, "all, in the order of commits");
    for job in jobs {
        let of_job: Vec<_> = trail
            .iter()
            .filter(|recorded| recorded.event.job_id == Some(job))
            .cloned()
            .collect();
        assert_eq!(world.store.events_of(job).wait(), Ok(of_job));
    }
}

fn jobs_are_counted(world: &World) {
    let jobs: Vec<_> = (0..5).map(|_| world.plain()).collect();
    world.submit(SubmitRequest::new("sounds", "x", 1));
    world.finish(jobs[0]);
    world.claim(&jobs[1..3]);
    let count = |ended: bool, addon_id: &str, state: JobState| {
        let counts = world.store.counts(ended).wait().expect("counts");
        let found = counts
            .iter()
            .find(|count| count.addon_id == addon(addon_id) && count.state == state);
        found.map_or(0, |count| count.jobs)
    };
    assert_eq!(count(false, "visuals", JobState::Queued), 2);
    assert_eq!(count(false, "visuals", JobState::Running), 1);
    assert_eq!(count(false, "visuals", JobState::Dispatching), 1);
    assert_eq!(count(false, "visuals", JobState::Done), 0);
    assert_eq!(count(true, "visuals", JobState::Done), 1);
    assert_eq!(count(true, "sounds", JobState::Queued), 1);
}

fn listeners_hear_of_each_commit(world: &World) {
    let job = world.plain();
    let lease = world.claim(&[job]);
    world
        .complete(job, CompleteRequest::done(lease.id, None))
        .expect("it runs");
    let told = world.told();
    assert_eq!(told.len(), 3);
    let states: Vec<_> = told
        .iter()
        .map(|written| written.changes.jobs[0].state)
        .collect();
    assert_eq!(
        states,
        [JobState::Queued, JobState::Running, JobState::Done]
    );
    assert_eq!(told[1].changes.leases, [lease]);
    assert!(told.is_sorted_by_key(|written| written.now));
}

fn who_listens_no_longer_is_not_told(world: &World) {
    let heard = Arc::new(AtomicUsize::new(0));
    let listen = || {
        let heard = Arc::clone(&heard);
        let listener = move |_: &[Written]| _ = heard.fetch_add(1, Ordering::Relaxed);
        world.store.listen(Arc::new(listener))
    };
    let (one, other) = (listen(), listen());
    world.plain();
    assert_eq!(heard.load(Ordering::Relaxed), 2);
    drop(one);
    world.plain();
    assert_eq!(heard.load(Ordering::Relaxed), 3);
    drop(other);
    world.plain();
    assert_eq!(heard.load(Ordering::Relaxed), 3);
    assert_eq!(Arc::strong_count(&heard), 1, "nothing is kept of them");
    listen().forever();
    world.plain();
    assert_eq!(heard.load(Ordering::Relaxed), 4);
}

fn a_refused_command_leaves_no_trace(world: &World) {
    let job = world.plain();
    let before = world.store.events_after(0, 100).wait();
    let foreign = CompleteRequest::done(world.lease_id(), None);
    refused(world.complete(job, foreign));
    refused(world.store.redrive(world.stamp(), job, None).wait());
    assert_eq!(world.store.events_after(0, 100).wait(), before);
    assert_eq!(world.record(job).revision, 1);
    assert_eq!(world.told().len(), 1);
}
