//! Leases and clocks: what is judged by which, and what jumps, gaps and restarts do.

mod support;

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{
    CancelRequest, CompleteRequest, Heartbeat, JobId, JobState, LeaseId, SubmitRequest,
};
use jobtree_queue::lease::{COMPLETION_GRACE, Deadlines, Due};
use jobtree_queue::transitions::{self as t, Changes, LoadAdvice, Outcome, Proof};
use support::{World, node, simple, watch};

/// A world whose commits are shown to deadlines.
struct Watched {
    world: World,
    deadlines: Deadlines,
}

impl Watched {
    fn new() -> Self {
        let world = World::new();
        let deadlines = Deadlines::new(world.now, Duration::from_secs(10));
        Self { world, deadlines }
    }

    fn apply<A>(&mut self, transition: impl FnOnce(&World) -> Outcome<A>) -> A {
        let done = transition(&self.world).unwrap();
        self.deadlines
            .observe(&done.changes, self.world.now, &self.world.rules);
        self.world.commit(done.changes);
        done.answer
    }

    fn claim(&mut self, jobs: &[JobId]) -> LeaseId {
        let lease = self.world.claim(jobs);
        let jobs = self.world.jobs_of(lease);
        let changes = Changes {
            jobs,
            leases: vec![self.world.lease(lease).clone()],
            ..Changes::default()
        };
        self.deadlines
            .observe(&changes, self.world.now, &self.world.rules);
        lease
    }

    fn beat(&mut self, lease: LeaseId) {
        let beat = Heartbeat::of(lease);
        self.apply(|w| t::heartbeat(&w.cx(), w.lease(lease), &[], beat, LoadAdvice::default()));
    }

    /// Time passes as it does for a process that looks every five seconds; tells when something fell due, in seconds.
    fn first_due(&mut self, within: u64) -> Option<(u64, Vec<Due>)> {
        for second in (5..=within).step_by(5) {
            self.world.pass(5);
            let due = self.deadlines.due(self.world.now);
            if !due.is_empty() {
                return Some((second, due));
            }
        }
        None
    }

    fn jump_wall(&mut self, seconds: i64) {
        self.world.now.wall += jiff::SignedDuration::from_secs(seconds);
    }
}

#[test]
fn a_lease_ends_one_term_after_its_last_renewal() {
    let _watch = watch();
    let mut at = Watched::new();
    let job = at.world.submit(simple());
    let lease = at.claim(&[job]);
    assert_eq!(at.first_due(25), None);
    at.beat(lease);
    let (seconds, due) = at.first_due(100).unwrap();
    let revision = at.world.lease(lease).revision;
    assert_eq!(
        (seconds, due),
        (
            30,
            vec![Due::Lease {
                lease_id: lease,
                revision
            }]
        )
    );
}

#[test]
fn jumps_of_the_calendar_neither_end_nor_lengthen_a_lease() {
    let _watch = watch();
    for jump in [-86_400, -30, 30, 86_400] {
        let mut at = Watched::new();
        let job = at.world.submit(simple());
        let lease = at.claim(&[job]);
        at.jump_wall(jump);
        assert_eq!(at.first_due(25), None, "{jump}");
        at.beat(lease);
        at.jump_wall(jump);
        assert_eq!(at.first_due(100).unwrap().0, 30, "{jump}");
    }
}

#[test]
fn a_renewal_counts_even_if_the_calendar_says_the_same_as_at_the_last() {
    let _watch = watch();
    let mut at = Watched::new();
    let job = at.world.submit(simple());
    let lease = at.claim(&[job]);
    assert_eq!(at.first_due(25), None);
    at.jump_wall(-25);
    at.beat(lease);
    assert_eq!(at.first_due(100).unwrap().0, 30);
}

#[test]
fn what_does_not_renew_does_not_lengthen() {
    let _watch = watch();
    let mut at = Watched::new();
    let job = at.world.submit(simple());
    let lease = at.claim(&[job]);
    assert_eq!(at.first_due(20), None);
    at.apply(|w| {
        t::cancel(
            &w.cx(),
            w.job(job),
            w.lease_of(job),
            &CancelRequest::default(),
        )
    });
    let (seconds, due) = at.first_due(100).unwrap();
    assert_eq!(seconds, 10);
    // The timer knows the new revision, so what it says is accepted.
    let Due::Lease { revision, .. } = due[0] else {
        panic!("{due:?}")
    };
    at.apply(|w| {
        t::expire(
            &w.cx(),
            w.lease(lease),
            &w.jobs_of(lease),
            Proof::Seen { revision },
        )
    });
    assert!(at.deadlines.is_empty());
}

#[test]
fn what_is_due_is_told_until_it_is_done() {
    let _watch = watch();
    let mut at = Watched::new();
    let job = at.world.submit(simple());
    at.claim(&[job]);
    let (_, due) = at.first_due(100).unwrap();
    // The store failed: the same is told again.
    assert_eq!(at.deadlines.due(at.world.now), due);
    at.deadlines.forget(&due[0]);
    assert_eq!(at.deadlines.due(at.world.now), []);
}

#[test]
fn after_a_restart_everybody_has_one_term_again() {
    let _watch = watch();
    let mut at = Watched::new();
    let request = SubmitRequest {
        max_runtime_sec: Some(40),
        ..simple()
    };
    let (running, dispatched) = (at.world.submit(request), at.world.submit(simple()));
    let lease = at.claim(&[running]);
    let reserve = t::Reserve {
        reservation_id: at.world.lease_id(),
        node_id: node("here"),
        key_holders: 0,
        reason: "admitted".into(),
    };
    at.apply(|w| t::reserve(&w.cx(), w.job(dispatched), reserve));
    // Down for an hour, and the monotonic clock began anew.
    at.world.pass(3600);
    at.world.now.mono = Duration::from_secs(3);
    let (leases, jobs) = (at.world.leases.clone(), at.world.jobs.clone());
    at.deadlines.recover(
        leases.values(),
        jobs.values().map(|job| &**job),
        at.world.now,
        &at.world.rules,
    );
    assert_eq!(at.deadlines.len(), 3);
    assert_eq!(at.deadlines.next(), Some(Duration::from_secs(33)));
    at.beat(lease);
    let (seconds, due) = at.first_due(100).unwrap();
    assert_eq!((seconds, due.len()), (30, 3));
}

#[test]
fn nobody_is_blamed_for_time_in_which_nobody_looked() {
    let _watch = watch();
    let mut at = Watched::new();
    let request = SubmitRequest {
        max_runtime_sec: Some(60),
        ..simple()
    };
    let job = at.world.submit(request);
    let lease = at.claim(&[job]);
    assert_eq!(at.first_due(20), None);
    // Suspended for a night.
    at.world.pass(30_000);
    assert_eq!(at.deadlines.due(at.world.now), []);
    at.beat(lease);
    // 20 s of its run are over, 40 s are left.
    let mut due = Vec::new();
    for _ in 0..4 {
        at.world.pass(9);
        at.beat(lease);
        due = at.deadlines.due(at.world.now);
        assert_eq!(due, []);
    }
    at.world.pass(4);
    due.extend(at.deadlines.due(at.world.now));
    assert!(
        matches!(due[..], [Due::Run { job_id, .. }] if job_id == job),
        "{due:?}"
    );
}

#[test]
fn each_job_of_a_batch_has_its_own_time_to_run() {
    let _watch = watch();
    let mut at = Watched::new();
    let limited = |limit| SubmitRequest {
        max_runtime_sec: limit,
        ..simple()
    };
    let jobs = [
        at.world.submit(limited(Some(15))),
        at.world.submit(limited(None)),
        at.world.submit(limited(Some(20))),
    ];
    let lease = at.claim(&jobs);
    assert_eq!(
        at.deadlines.next(),
        Some(at.world.now.mono + Duration::from_secs(15))
    );
    let mut next = Vec::new();
    for job in &jobs[..2] {
        at.world.pass(5);
        let done = CompleteRequest::done(lease, None);
        at.apply(|w| t::complete(&w.cx(), w.job(*job), w.lease_of(*job), &done, w.record()));
        next.push(at.deadlines.next().unwrap() - at.world.now.mono);
    }
    // Without a limit only the lease's own end is left; then 20 s from now, which is when the lease ends too.
    assert_eq!(next, [Duration::from_secs(25), Duration::from_secs(20)]);
    assert_eq!(at.deadlines.len(), 2);
}

#[test]
fn a_job_that_has_not_begun_has_no_time_to_run_out() {
    let _watch = watch();
    let mut at = Watched::new();
    let limited = SubmitRequest {
        max_runtime_sec: Some(15),
        ..simple()
    };
    let jobs = [at.world.submit(limited.clone()), at.world.submit(limited)];
    let lease = at.world.claim_unbegun(&jobs);
    let granted = Changes {
        jobs: at.world.jobs_of(lease),
        leases: vec![at.world.lease(lease).clone()],
        ..Changes::default()
    };
    at.deadlines
        .observe(&granted, at.world.now, &at.world.rules);
    assert_eq!(
        at.deadlines.len(),
        1,
        "the lease alone: no run, and no reservation"
    );
    at.world.pass(10);
    // The first begins, by the word of its worker two seconds ago.
    let beat = Heartbeat {
        job_id: Some(jobs[0]),
        began_ms_ago: Some(2000),
        ..Heartbeat::of(lease)
    };
    let record = Arc::clone(&at.world.jobs[&jobs[0]]);
    at.apply(|w| {
        t::heartbeat(
            &w.cx(),
            w.lease(lease),
            &[record],
            beat,
            LoadAdvice::default(),
        )
    });
    assert_eq!(at.deadlines.len(), 2);
    let began = at.world.now.wall - Duration::from_secs(2);
    assert_eq!(at.world.lease(lease).current_since, began);
    assert_eq!(at.world.job(jobs[0]).started_at, Some(began));
    // Its time goes from when that was heard: longer is always safe.
    let until = at.deadlines.next().unwrap() - at.world.now.mono;
    assert_eq!(until, Duration::from_secs(15) + COMPLETION_GRACE);
    // Its end is told, and the next has not begun as far as is known: again there is no run.
    let done = CompleteRequest::done(lease, None);
    at.apply(|w| {
        t::complete(
            &w.cx(),
            w.job(jobs[0]),
            w.lease_of(jobs[0]),
            &done,
            w.record(),
        )
    });
    assert_eq!(at.deadlines.len(), 1);
    // A restart knows as much.
    let (leases, now) = (vec![at.world.lease(lease).clone()], at.world.now);
    let rules = at.world.rules.clone();
    at.deadlines.recover(&leases, [], now, &rules);
    assert_eq!(at.deadlines.len(), 1);
}

/// A limited run of a worker that reports begins, which began now.
fn limited_run(at: &mut Watched) -> (JobId, LeaseId) {
    let job = at.world.submit(SubmitRequest {
        max_runtime_sec: Some(15),
        ..simple()
    });
    let lease = at.world.claim_unbegun(&[job]);
    beat_about(at, lease, job, 0);
    (job, lease)
}

/// A heartbeat that says that the job is in hand, for so many seconds.
fn beat_about(at: &mut Watched, lease: LeaseId, job: JobId, seconds: u64) {
    let beat = Heartbeat {
        job_id: Some(job),
        began_ms_ago: Some(seconds * 1000),
        ..Heartbeat::of(lease)
    };
    let record = Arc::clone(&at.world.jobs[&job]);
    at.apply(|w| {
        t::heartbeat(
            &w.cx(),
            w.lease(lease),
            &[record],
            beat,
            LoadAdvice::default(),
        )
    });
}

/// Its run ended 20 s ago, and its completion comes now.
fn completes_late(at: &mut Watched, job: JobId, lease: LeaseId) {
    let ended = at.world.now.wall - Duration::from_secs(20);
    let mut done = CompleteRequest::done(lease, None);
    done.began_ms_ago = Some(25_000);
    done.ended_ms_ago = Some(20_000);
    at.apply(|w| t::complete(&w.cx(), w.job(job), w.lease_of(job), &done, w.record()));
    let job = at.world.job(job);
    assert_eq!((job.state, job.attempts), (JobState::Done, 1));
    assert_eq!(job.ended_at, Some(ended));
}

#[test]
fn a_run_that_ended_is_not_timed_out_while_its_worker_cannot_be_heard() {
    let _watch = watch();
    let mut at = Watched::new();
    let (job, lease) = limited_run(&mut at);
    // Longer than its limit, and than the grace; the lease holds on.
    assert_eq!(at.first_due(25), None);
    completes_late(&mut at, job, lease);
    assert!(at.deadlines.is_empty());
}

#[test]
fn a_run_that_ended_is_not_timed_out_while_its_completion_waits_behind_heartbeats() {
    let _watch = watch();
    let mut at = Watched::new();
    let (job, lease) = limited_run(&mut at);
    for _ in 0..3 {
        at.world.pass(8);
        // Its worker has nothing in hand any more.
        at.beat(lease);
        assert_eq!(at.deadlines.due(at.world.now), []);
    }
    at.world.pass(1);
    completes_late(&mut at, job, lease);
}

#[test]
fn a_run_that_is_still_in_hand_after_its_time_is_over_when_its_worker_says_so() {
    let _watch = watch();
    let mut at = Watched::new();
    let (job, lease) = limited_run(&mut at);
    at.world.pass(9);
    beat_about(&mut at, lease, job, 9);
    assert_eq!(at.first_due(10), None);
    // The lease's own end is what is waited for.
    assert_eq!(
        at.deadlines.next(),
        Some(at.world.now.mono + Duration::from_secs(20))
    );
    beat_about(&mut at, lease, job, 19);
    let due = at.deadlines.due(at.world.now);
    assert!(
        matches!(due[..], [Due::Run { job_id, .. }] if job_id == job),
        "{due:?}"
    );
}

#[test]
fn a_reservation_that_was_taken_up_is_forgotten() {
    let _watch = watch();
    let mut at = Watched::new();
    let job = at.world.submit(simple());
    let reservation_id = at.world.lease_id();
    let reserve = t::Reserve {
        reservation_id,
        node_id: node("here"),
        key_holders: 0,
        reason: "admitted".into(),
    };
    at.apply(|w| t::reserve(&w.cx(), w.job(job), reserve));
    let revision = at.world.job(job).revision;
    let (seconds, due) = at.first_due(100).unwrap();
    assert_eq!(
        (seconds, due),
        (
            30,
            vec![Due::Reservation {
                job_id: job,
                reservation_id,
                revision
            }]
        )
    );
    let lease_id = at.world.lease_id();
    at.apply(|w| {
        t::take_up(
            &w.cx(),
            w.job(job),
            None,
            t::TakeUp {
                lease_id,
                instance_id: None,
                pids: Vec::new(),
                process_origin: None,
            },
        )
    });
    assert_eq!(at.deadlines.len(), 1, "the lease alone");
    // A timer of the old reservation comes too late, and does nothing.
    let why = t::Unclaimed::TimedOut(Proof::Seen { revision });
    assert!(t::return_unclaimed(&at.world.cx(), at.world.job(job), reservation_id, &why).is_err());
}

#[test]
fn a_dispatch_that_is_seen_again_and_again_is_over_all_the_same() {
    let _watch = watch();
    let mut at = Watched::new();
    let job = at.world.submit(simple());
    let reserve = |reservation_id| t::Reserve {
        reservation_id,
        node_id: node("here"),
        key_holders: 0,
        reason: "admitted".into(),
    };
    for _ in 0..2 {
        let first = at.world.lease_id();
        at.apply(|w| t::reserve(&w.cx(), w.job(job), reserve(first)));
        // Others use the store, and it is read every four seconds.
        let mut seconds = 0;
        let due = loop {
            at.world.pass(4);
            seconds += 4;
            let seen = Changes {
                jobs: vec![Arc::clone(&at.world.jobs[&job])],
                ..Changes::default()
            };
            at.deadlines.observe(&seen, at.world.now, &at.world.rules);
            let due = at.deadlines.due(at.world.now);
            if !due.is_empty() || seconds > 60 {
                break due;
            }
        };
        assert_eq!(seconds, 32);
        assert!(
            matches!(due[..], [Due::Reservation { reservation_id, .. }] if reservation_id == first),
            "{due:?}"
        );
        // The next one is another, with a time of its own.
        let revision = at.world.job(job).revision;
        let why = t::Unclaimed::TimedOut(Proof::Seen { revision });
        at.apply(|w| t::return_unclaimed(&w.cx(), w.job(job), first, &why));
    }
}
