//! What is kept and for how long: pruning, schedules and their firings, pauses, notes.

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, EventKind, JobState, JobType, Json, Missed, Overlap, ScheduleId, ScheduleSpec,
    SubmitRequest,
};

use super::Case;
use super::world::{World, plain};
use crate::error::StoreError;
use crate::execute::Firing;
use crate::tables::{Pause, Pruned, Retention, ScheduleRecord};

pub(super) const CASES: &[Case] = &[
    ("history is pruned in small steps", history_is_pruned),
    ("each state has its own time", each_state_has_its_own_time),
    ("keys outlive history", keys_outlive_history),
    (
        "events are pruned and never counted twice",
        events_are_pruned,
    ),
    ("leases are pruned", leases_are_pruned),
    ("a schedule fires once for each time", a_schedule_fires_once),
    ("a schedule never goes back", a_schedule_never_goes_back),
    ("schedules are kept", schedules_are_kept),
    ("pauses are kept and told", pauses_are_kept),
    ("notes are kept", notes_are_kept),
];

pub(super) fn prune_all(world: &World, retention: Retention, limit: usize) -> Pruned {
    let mut all = Pruned::default();
    for _ in 0..1000 {
        let step = world
            .store
            .prune(world.stamp(), retention, limit)
            .wait()
            .expect("a step");
        assert!(
            step.jobs <= limit as u64 && step.events <= limit as u64 && step.keys <= limit as u64
        );
        all.jobs += step.jobs;
        all.events += step.events;
        all.keys += step.keys;
        all.leases += step.leases;
        if !step.more {
            return all;
        }
    }
    panic!("pruning does not end: {all:?}");
}

/// Nothing is old enough but what the case says.
pub(super) fn nothing() -> Retention {
    let never = Timestamp::MIN;
    Retention {
        done: never,
        failed: never,
        canceled: never,
        events: never,
        keys: never,
        leases: never,
    }
}

fn history_is_pruned(world: &World) {
    let request = SubmitRequest {
        tags: vec!["old".into()],
        payload: Some(Json::of(&"x".repeat(2000)).expect("JSON")),
        ..plain()
    };
    let old: Vec<_> = (0..25).map(|_| world.submit(request.clone())).collect();
    let waiting = world.plain();
    old.iter().for_each(|job| world.finish(*job));
    world.advance(3600);
    let young: Vec<_> = (0..5).map(|_| world.submit(request.clone())).collect();
    young.iter().for_each(|job| world.finish(*job));
    let done = world.now().wall - std::time::Duration::from_secs(1800);
    let pruned = prune_all(world, Retention { done, ..nothing() }, 4);
    assert_eq!(pruned.jobs, 25);
    for job in &old {
        assert_eq!(world.store.job(*job).wait(), Err(StoreError::NoJob(*job)));
    }
    assert_eq!(world.state(waiting), JobState::Queued);
    let query = jobtree_protocol::JobQuery {
        tag: Some("old".into()),
        ..jobtree_protocol::JobQuery::default()
    };
    assert_eq!(world.list(query), young);
    world.pruned.borrow_mut().extend(old);
    let again = prune_all(world, Retention { done, ..nothing() }, 4);
    assert_eq!(again, Pruned::default());
}

fn each_state_has_its_own_time(world: &World) {
    let jobs: Vec<_> = (0..12).map(|_| world.plain()).collect();
    for (place, job) in jobs.iter().enumerate() {
        match place % 3 {
            0 => world.finish(*job),
            1 => world.fail(*job),
            _ => {
                let cancel = world.store.cancel(
                    world.stamp(),
                    *job,
                    jobtree_protocol::CancelRequest::default(),
                );
                assert_eq!(cancel.wait(), Ok(JobState::Canceled));
            }
        }
    }
    world.advance(10);
    let canceled = world.now().wall;
    let pruned = prune_all(
        world,
        Retention {
            canceled,
            ..nothing()
        },
        2,
    );
    assert_eq!(pruned.jobs, 4);
    let gone = jobs.iter().skip(2).step_by(3);
    world.pruned.borrow_mut().extend(gone);
}

fn keys_outlive_history(world: &World) {
    let request = SubmitRequest {
        idempotency_key: Some("k".into()),
        ..plain()
    };
    let first = world.submit(request.clone());
    world.finish(first);
    world.advance(100);
    let now = world.now().wall;
    assert_eq!(
        prune_all(
            world,
            Retention {
                done: now,
                ..nothing()
            },
            10
        )
        .jobs,
        1
    );
    world.pruned.borrow_mut().push(first);
    let submit = || {
        let answer = world
            .store
            .submit(world.stamp(), world.submission(request.clone()));
        answer.wait().expect("taken")
    };
    let again = submit();
    assert_eq!(
        (again.job_id, again.duplicate),
        (first, true),
        "the key still knows"
    );
    assert_eq!(
        prune_all(
            world,
            Retention {
                keys: now,
                ..nothing()
            },
            10
        )
        .keys,
        1
    );
    assert!(!submit().duplicate, "and then not any more");
}

fn events_are_pruned(world: &World) {
    let jobs: Vec<_> = (0..5).map(|_| world.plain()).collect();
    jobs.iter().for_each(|job| world.finish(*job));
    let last = world
        .store
        .read(|tables| tables.last_event())
        .wait()
        .expect("a place");
    let all = world.store.events_after(0, 1000).wait().expect("the trail");
    assert_eq!(all.last().map(|recorded| recorded.cursor), Some(last));
    world.advance(100);
    let now = world.now().wall;
    let retention = Retention {
        events: now,
        done: now,
        ..nothing()
    };
    assert_eq!(prune_all(world, retention, 3).events, all.len() as u64);
    world.pruned.borrow_mut().extend(jobs);
    assert_eq!(world.store.events_after(0, 1000).wait(), Ok(Vec::new()));
    let job = world.plain();
    let after = world
        .store
        .events_after(last, 1000)
        .wait()
        .expect("the trail");
    assert_eq!(after.len(), 1, "whoever had read up to there goes on there");
    assert!(after[0].cursor > last);
    assert_eq!(world.store.events_of(job).wait().expect("a trail"), after);
}

fn leases_are_pruned(world: &World) {
    let jobs = [world.plain(), world.plain()];
    let ended = world.claim(&jobs[..1]).id;
    world
        .complete(
            jobs[0],
            jobtree_protocol::CompleteRequest::done(ended, None),
        )
        .expect("it runs");
    let live = world.claim(&jobs[1..]).id;
    world.advance(100);
    let leases = world.now().wall;
    assert_eq!(
        prune_all(
            world,
            Retention {
                leases,
                ..nothing()
            },
            10
        )
        .leases,
        1
    );
    assert_eq!(
        world.store.lease(ended).wait(),
        Err(StoreError::NoLease(ended))
    );
    assert!(world.store.lease(live).wait().is_ok());
}

fn spec(name: &str) -> ScheduleSpec {
    ScheduleSpec {
        name: name.into(),
        cron: "0 3 * * *".into(),
        time_zone: "Europe/Berlin".into(),
        jitter_sec: 60,
        missed: Missed::All,
        overlap: Overlap::Forbid,
        paused: false,
        job: plain(),
    }
}

fn schedule(world: &World, name: &str) -> ScheduleRecord {
    let (a, b) = (world.draw(), world.draw());
    ScheduleRecord {
        id: ScheduleId::from_random((u128::from(a) << 64 | u128::from(b)).to_be_bytes()),
        revision: 0,
        spec: spec(name),
        next_at: Some(world.now().wall),
        last_at: None,
        last_job: None,
    }
}

fn a_schedule_fires_once(world: &World) {
    let nightly = world
        .store
        .put_schedule(world.stamp(), schedule(world, "nightly"))
        .wait()
        .expect("new");
    let at = world.now().wall;
    let next = at + std::time::Duration::from_secs(86_400);
    let next_at = Some(next);
    let firing = Firing {
        schedule_id: nightly.id,
        revision: nightly.revision,
        at,
        job: None,
        unless: None,
        next_at,
    };
    let fire = |firing| {
        let answer = world.store.fire(world.stamp(), firing).wait();
        answer.expect("fired")
    };
    let with_job = |firing: &Firing| Firing {
        job: Some(world.submission(plain())),
        ..firing.clone()
    };
    let known = || {
        let mut all = world.store.schedules().wait().expect("the schedules");
        assert_eq!(all.len(), 1);
        all.remove(0)
    };
    let first = fire(with_job(&firing)).expect("the first is submitted");
    assert_eq!(fire(with_job(&firing)), None, "somebody was faster");
    assert_eq!(
        world.record(first.job_id).intent.schedule_id,
        Some(nightly.id)
    );
    let now = known();
    assert_eq!(
        (now.last_at, now.last_job, now.next_at),
        (Some(at), Some(first.job_id), next_at)
    );

    // While the job before has not ended, it is left out; and nobody fires it later.
    world.advance(86_400);
    let after = next + std::time::Duration::from_secs(86_400);
    let second = Firing {
        revision: now.revision,
        at: next,
        unless: Some(first.job_id),
        next_at: Some(after),
        ..firing
    };
    assert_eq!(fire(with_job(&second)), None, "the first has not ended");
    let now = known();
    assert_eq!(
        (now.last_at, now.last_job, now.next_at),
        (Some(at), Some(first.job_id), Some(after))
    );
    let late = Firing {
        unless: None,
        ..second.clone()
    };
    assert_eq!(fire(with_job(&late)), None, "it is of an older version");
    let again = Firing {
        revision: now.revision,
        ..late
    };
    assert_eq!(fire(with_job(&again)), None, "it was left out before");
    assert_eq!(known().next_at, Some(after), "and the schedule goes on");

    // The job that it waited for has ended.
    let ended = world.store.cancel(
        world.stamp(),
        first.job_id,
        jobtree_protocol::CancelRequest::default(),
    );
    ended.wait().expect("it waits");
    let third = Firing {
        revision: known().revision,
        at: after,
        next_at: None,
        ..second
    };
    let third = fire(with_job(&third)).expect("nothing is in its way");
    assert_eq!(known().last_job, Some(third.job_id));
}

fn a_schedule_never_goes_back(world: &World) {
    let put = |record| {
        let written = world.store.put_schedule(world.stamp(), record);
        written.wait().expect("written")
    };
    let known = || {
        let mut all = world.store.schedules().wait().expect("the schedules");
        all.pop().expect("it is there")
    };
    let hourly = put(schedule(world, "hourly"));
    let now = world.now().wall;
    let at = |hour: u64| now + std::time::Duration::from_secs(3600 * hour);
    let fire = |revision: u64, hour: u64, next: u64| {
        let firing = Firing {
            schedule_id: hourly.id,
            revision,
            at: at(hour),
            job: Some(world.submission(plain())),
            unless: None,
            next_at: Some(at(next)),
        };
        let fired = world.store.fire(world.stamp(), firing).wait();
        fired.expect("it is asked").map(|answer| answer.job_id)
    };
    let third = fire(hourly.revision, 3, 4);
    assert!(third.is_some());
    // Somebody who stood still meanwhile thinks that the second is due.
    assert_eq!(fire(hourly.revision, 2, 3), None, "others are further");
    assert_eq!((known().next_at, known().last_job), (Some(at(4)), third));

    // Somebody with a slow clock writes what was fired as the next one: it is passed over, and does not stay the next.
    put(ScheduleRecord {
        next_at: Some(at(3)),
        ..known()
    });
    assert_eq!(fire(known().revision, 3, 4), None, "it was fired before");
    assert_eq!(known().next_at, Some(at(4)));
    assert!(fire(known().revision, 4, 5).is_some());

    // Who has not heard of a pause does not end it.
    let mut paused = known();
    let before = paused.revision;
    paused.spec.paused = true;
    paused.next_at = None;
    let paused = put(paused);
    assert_eq!(fire(before, 5, 6), None);
    assert_eq!(known(), paused);
}

fn schedules_are_kept(world: &World) {
    let b = world
        .store
        .put_schedule(world.stamp(), schedule(world, "b"))
        .wait()
        .expect("new");
    let a = world
        .store
        .put_schedule(world.stamp(), schedule(world, "a"))
        .wait()
        .expect("new");
    assert_eq!((a.revision, &a.spec), (1, &spec("a")));
    assert_eq!(
        world.store.schedules().wait(),
        Ok(vec![a.clone(), b.clone()])
    );
    let taken = world
        .store
        .put_schedule(world.stamp(), schedule(world, "a"))
        .wait();
    assert_eq!(taken, Err(StoreError::NameTaken { name: "a".into() }));
    let mut changed = b.clone();
    changed.spec.paused = true;
    changed.spec.name = "c".into();
    let changed = world
        .store
        .put_schedule(world.stamp(), changed)
        .wait()
        .expect("changed");
    assert_eq!(changed.revision, 2);
    assert_eq!(world.store.schedules().wait(), Ok(vec![a.clone(), changed]));
    assert_eq!(
        world.store.delete_schedule(world.stamp(), a.id).wait(),
        Ok(())
    );
    let again = world.store.delete_schedule(world.stamp(), a.id).wait();
    assert_eq!(again, Err(StoreError::NoSchedule(a.id)));
}

fn pauses_are_kept(world: &World) {
    let pause = |job_type: Option<&str>| Pause {
        addon_id: AddonId::new("visuals").expect("a name"),
        job_type: job_type.map(|name| JobType::new(name).expect("a name")),
        since: world.now().wall,
        reason: Some("maintenance".into()),
        by: job_type.map(|_| "token \"ops\"".into()),
    };
    let (all, one) = (pause(None), pause(Some("indexing")));
    for pause in [&all, &one, &all] {
        world
            .store
            .pause(world.stamp(), pause.clone())
            .wait()
            .expect("paused");
    }
    assert_eq!(
        world.store.pauses().wait(),
        Ok(vec![all.clone(), one.clone()])
    );
    assert_eq!(
        world.store.resume(world.stamp(), all.clone()).wait(),
        Ok(true)
    );
    assert_eq!(world.store.resume(world.stamp(), all).wait(), Ok(false));
    assert_eq!(world.store.pauses().wait(), Ok(vec![one]));
    let trail = world.store.events_after(0, 100).wait().expect("the trail");
    let kinds: Vec<_> = trail.iter().map(|recorded| recorded.event.kind).collect();
    let paused = EventKind::Paused;
    assert_eq!(kinds, [paused, paused, paused, EventKind::Resumed]);
}

fn notes_are_kept(world: &World) {
    let json = |number: u32| Json::of(&number).expect("JSON");
    let put = |name: &str, value| {
        let note = world.store.put_note(world.stamp(), name.into(), value);
        note.wait().expect("noted");
    };
    put("quiet/monday", Some(json(1)));
    put("quiet/tuesday", Some(json(2)));
    put("quiex", Some(json(3)));
    put("quiet/monday", Some(json(4)));
    let quiet = world.store.notes("quiet/".into()).wait();
    let expected = vec![
        ("quiet/monday".to_owned(), json(4)),
        ("quiet/tuesday".to_owned(), json(2)),
    ];
    assert_eq!(quiet, Ok(expected));
    put("quiet/monday", None);
    assert_eq!(world.store.notes("quiet/m".into()).wait(), Ok(Vec::new()));
}
