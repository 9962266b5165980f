//! The planner's events and effects: proposals that lose, claims, requests, denials, wake-ups.

mod worlds;

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{Constraints, JobId, LeaseId, NodeId, Priority};
use jobtree_queue::Now;
use jobtree_queue::block::Block;
use jobtree_queue::candidate::Candidate;
use jobtree_queue::ledger::Holder;
use jobtree_queue::planner::{
    ClaimAsk, Effect, Event, LeaseAsk, ListenScope, LiveLease, Outcome, Planner, Requested,
};
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;
use worlds::world::{World, addon, kind};
use worlds::{busy, noon, policy, secs, watch};

/// A planner of a quiet machine, with somebody who listens for reservations.
fn planner(text: &str) -> (Planner, Now) {
    let (mut planner, now) = unserved(text);
    planner.step(listening(1), now);
    (planner, now)
}

fn listening(listeners: u32) -> Event {
    let scope = ListenScope::default();
    Event::Listening { scope, listeners }
}

/// A planner of a quiet machine where nobody serves anything.
fn unserved(text: &str) -> (Planner, Now) {
    let policy = policy(&format!("[ramp]\nunits_per_sample = 0\n{text}"));
    let mut planner = Planner::new(policy, NodeId::new("here").unwrap(), [], noon());
    let mut now = noon();
    for _ in 0..40 {
        now = now.after(secs(2));
        planner.step(Event::Sample(Sample::idle()), now);
    }
    (planner, now)
}

fn job(number: u8, cost: u32, now: Now) -> Candidate {
    let id = JobId::from_parts(now.wall, [number; 10]);
    let mut job = Candidate::new(id, addon("a"), kind("work"), cost, now.wall);
    job.revision = 7;
    job
}

fn reserved(effects: &[Effect]) -> Vec<JobId> {
    let reserve = |effect: &Effect| match effect {
        Effect::Reserve { job, .. } => Some(*job),
        _ => None,
    };
    effects.iter().filter_map(reserve).collect()
}

fn wakes(effects: &[Effect]) -> Option<Duration> {
    let wake = |effect: &Effect| match effect {
        Effect::WakeAt(at) => Some(at.mono),
        _ => None,
    };
    effects.iter().find_map(wake)
}

fn denials(effects: &[Effect]) -> Vec<String> {
    let denial = |effect: &Effect| match effect {
        Effect::WriteDenial { verdict, .. } => Some(verdict.reason()),
        _ => None,
    };
    effects.iter().filter_map(denial).collect()
}

#[test]
fn a_proposal_uses_units_until_it_is_answered() {
    let _watchdog = watch();
    let (mut planner, now) = planner("");
    let (first, second) = (job(1, 60, now), job(2, 60, now));
    let effects = planner.step(Event::Submitted(vec![first.clone(), second.clone()]), now);
    assert_eq!(reserved(&effects), [first.id]);
    assert!(matches!(effects[0], Effect::Reserve { revision: 7, .. }));
    // Submitted again by a late message: it is on its way already.
    let again = planner.step(Event::Submitted(vec![first.clone()]), now);
    assert_eq!(reserved(&again), []);
    assert_eq!(planner.waiting(), 1);
    // Lost: another planner has it. Its units are free, and it is not tried again.
    let effects = planner.step(
        Event::Answered {
            job: first.id,
            outcome: Outcome::Lost,
        },
        now,
    );
    assert_eq!(reserved(&effects), [second.id]);
    assert!(!planner.is_waiting(first.id));
    // The store could not say: it waits as before, and is proposed again.
    let effects = planner.step(
        Event::Answered {
            job: second.id,
            outcome: Outcome::Failed,
        },
        now,
    );
    assert_eq!(reserved(&effects), [second.id]);
    // Accepted twice, taken up, taken up twice: once in use.
    for event in [
        Event::Answered {
            job: second.id,
            outcome: Outcome::Accepted(None),
        },
        Event::Answered {
            job: second.id,
            outcome: Outcome::Accepted(None),
        },
        Event::Accepted {
            job: second.id,
            lease: LeaseId::from_random([1; 16]),
        },
        Event::Accepted {
            job: second.id,
            lease: LeaseId::from_random([1; 16]),
        },
        Event::Answered {
            job: second.id,
            outcome: Outcome::Failed,
        },
    ] {
        planner.step(event, now);
        assert_eq!(planner.used(), 60);
    }
    planner.step(
        Event::Freed(Holder::Lease(LeaseId::from_random([1; 16]))),
        now,
    );
    planner.step(
        Event::Freed(Holder::Lease(LeaseId::from_random([1; 16]))),
        now,
    );
    assert_eq!(planner.used(), 0);
}

#[test]
fn a_reservation_that_is_not_accepted_keeps_its_units_until_the_store_says_so() {
    let _watchdog = watch();
    let (mut planner, now) = planner("[busy]\nstale_after = \"10m\"");
    let (first, second) = (job(1, 60, now), job(2, 60, now));
    planner.step(Event::Submitted(vec![first.clone(), second.clone()]), now);
    let accepted = Event::Answered {
        job: first.id,
        outcome: Outcome::Accepted(None),
    };
    let effects = planner.step(accepted, now);
    assert!(wakes(&effects).unwrap() <= now.after(secs(30)).mono);
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, Effect::ReturnUnclaimed { .. }))
    );
    let late = now.after(secs(30));
    let effects = planner.step(Event::Timer, late);
    assert_eq!(effects[0], Effect::ReturnUnclaimed { job: first.id });
    assert_eq!(planner.used(), 60, "it may just have been taken up");
    assert!(
        !planner
            .step(Event::Timer, late)
            .contains(&Effect::ReturnUnclaimed { job: first.id })
    );
    let again = planner.step(Event::Timer, late.after(secs(5)));
    assert!(
        again.contains(&Effect::ReturnUnclaimed { job: first.id }),
        "asked again when nothing comes of it"
    );
    // The second was promised what became free; then the first, at its old place and with its new revision.
    let third = job(3, 60, late);
    planner.step(Event::Submitted(vec![third]), late);
    let effects = planner.step(
        Event::Returned {
            job: first.id,
            revision: 9,
        },
        late,
    );
    assert_eq!(reserved(&effects), [second.id]);
    let lost = Event::Answered {
        job: second.id,
        outcome: Outcome::Lost,
    };
    let effects = planner.step(lost, late);
    assert!(matches!(&effects[0], Effect::Reserve { job, revision: 9, .. } if *job == first.id));
    assert_eq!(planner.used(), 60);
}

#[test]
fn what_a_store_says_is_live_counts_after_a_restart() {
    let _watchdog = watch();
    let (mut planner, now) = planner("");
    let live = LiveLease {
        lease: LeaseId::from_random([1; 16]),
        addon: addon("a"),
        units: 50,
        job_type: None,
        key: None,
        ends_in: Some(secs(60)),
    };
    planner.step(Event::Leased(live.clone()), now);
    planner.step(Event::Leased(live), now);
    let until = now.after(secs(10)).mono;
    planner.step(
        Event::Dispatched {
            candidate: job(1, 30, now),
            until,
        },
        now,
    );
    assert_eq!(planner.used(), 80);
    let effects = planner.step(Event::Timer, now.after(secs(10)));
    assert!(effects.contains(&Effect::ReturnUnclaimed {
        job: job(1, 30, now).id
    }));
}

#[test]
fn a_denial_is_written_when_its_reason_changes_only() {
    let _watchdog = watch();
    let (mut planner, mut now) = planner("");
    planner.step(Event::Sample(busy(6.0)), now);
    let waiting = job(1, 50, now);
    let effects = planner.step(Event::Submitted(vec![waiting.clone()]), now);
    assert_eq!(
        denials(&effects),
        [
            "The machine is BUSY, the job waits for QUIET: CPU used by other programs 58 % (bound 26 %); must be calm for 1m"
        ]
    );
    for _ in 0..50 {
        now = now.after(secs(2));
        assert_eq!(
            denials(&planner.step(Event::Sample(busy(5.9)), now)),
            [""; 0]
        );
        assert_eq!(denials(&planner.step(Event::Timer, now)), [""; 0]);
    }
    let mut changes = Vec::new();
    for _ in 0..20 {
        now = now.after(secs(2));
        changes.extend(denials(&planner.step(Event::Sample(busy(4.0)), now)));
    }
    assert_eq!(
        changes,
        [
            "The machine is NORMAL, the job waits for QUIET: CPU used by other programs 42 % (bound 26 %); must be calm for 1m"
        ]
    );
    let effects = planner.step(Event::Sample(busy(8.0)), now);
    assert_eq!(denials(&effects).len(), 1, "PANIC is another reason");
}

#[test]
fn each_waiting_job_has_a_wake_up() {
    let _watchdog = watch();
    let (mut planner, now) = planner("");
    assert_eq!(
        wakes(&planner.step(Event::Kick, now)),
        None,
        "nothing waits"
    );
    planner.step(Event::AddonPaused(addon("a"), true), now);
    let effects = planner.step(Event::Submitted(vec![job(1, 50, now)]), now);
    assert!(
        wakes(&effects).unwrap() <= now.after(secs(5)).mono,
        "the fallback"
    );
    planner.step(Event::Withdrawn(job(1, 50, now).id), now);
    let mut later = job(2, 50, now);
    later.not_before = Some(now.after(secs(3)).wall);
    let effects = planner.step(Event::Submitted(vec![later]), now);
    assert_eq!(wakes(&effects), Some(now.after(secs(3)).mono));
}

#[test]
fn a_draining_node_starts_nothing() {
    let _watchdog = watch();
    let (mut planner, now) = planner("");
    planner.step(Event::Drain(true), now);
    let effects = planner.step(Event::Submitted(vec![job(1, 50, now)]), now);
    assert_eq!(reserved(&effects), []);
    assert_eq!(denials(&effects), ["The node is draining"]);
    assert_eq!(reserved(&planner.step(Event::Drain(false), now)).len(), 1);
}

#[test]
fn the_ramp_lets_through_so_much_a_sample() {
    let _watchdog = watch();
    let mut world = World::new(policy("[ramp]\nunits_per_sample = 25"));
    world.flood("a", 20, 10, secs(1000));
    assert_eq!(world.units("a"), 20, "25 units, in tens");
    world.run(secs(2));
    assert_eq!(world.units("a"), 40);
    world.run(secs(6));
    assert_eq!(world.units("a"), 100);
}

#[test]
fn one_starts_when_quiet_never_comes() {
    let _watchdog = watch();
    let mut world = World::new(policy("[quiet]\nallow_one_after = \"1h\""));
    world.level = 4.0;
    world.run(secs(60));
    let jobs = world.flood("a", 5, 10, secs(60));
    world.run(secs(3500));
    assert!(world.started.is_empty());
    world.run(secs(100));
    assert_eq!(
        world
            .started
            .iter()
            .map(|(job, _)| *job)
            .collect::<Vec<_>>(),
        jobs[..1]
    );
    world.run(secs(3400));
    assert_eq!(world.started.len(), 1);
    world.run(secs(300));
    assert_eq!(world.started.len(), 2, "and one an hour later");
}

#[test]
fn caps_of_an_addon_leave_the_rest_to_others() {
    let _watchdog = watch();
    let mut world = World::new(policy(
        "[ramp]\nunits_per_sample = 0\n[addons.a]\nleases = 2\n[addons.b]\nunits = 30",
    ));
    world.flood("a", 20, 5, secs(10));
    world.flood("b", 20, 15, secs(10));
    world.flood("c", 20, 5, secs(10));
    assert_eq!(
        (world.units("a"), world.units("b"), world.units("c")),
        (10, 30, 60)
    );
    let mut world = World::new(policy("[ramp]\nunits_per_sample = 0\n[caps]\nleases = 3"));
    world.flood("a", 20, 5, secs(10));
    assert_eq!(world.started.len(), 3);
}

fn claim(id: u64, name: &str, jobs: u32) -> ClaimAsk {
    ClaimAsk {
        id,
        addon: addon(name),
        types: Vec::new(),
        jobs,
        leases: 1,
    }
}

#[test]
fn a_claim_waits_for_jobs_and_gets_a_batch_under_one_lease() {
    let _watchdog = watch();
    let mut world = World::unserved(policy("[ramp]\nunits_per_sample = 0"));
    let jobs = world.flood("a", 10, 30, secs(1));
    assert!(world.started.is_empty(), "nobody asks");
    world.step(Event::Claim(claim(1, "b", 4)));
    assert!(world.started.is_empty(), "nor for these");
    world.step(Event::Claim(claim(2, "a", 4)));
    assert_eq!(
        world
            .started
            .iter()
            .map(|(job, _)| *job)
            .collect::<Vec<_>>(),
        jobs[..4]
    );
    assert_eq!(world.planner.used(), 30, "charged at the largest cost");
    world.run(secs(3));
    assert_eq!(world.planner.used(), 30, "one after the other");
    world.run(secs(2));
    assert_eq!(world.planner.used(), 0);
    // An ask that waits is answered by the submission.
    let late = world.flood("b", 1, 10, secs(1));
    assert!(world.started_at(late[0]).is_some());
    // One ask, one lease.
    let more = world.flood("b", 1, 10, secs(1));
    assert_eq!(world.started_at(more[0]), None);
    world.step(Event::Claim(ClaimAsk {
        types: vec![kind("other")],
        ..claim(3, "b", 1)
    }));
    assert_eq!(world.started_at(more[0]), None, "of another type");
    world.step(Event::ClaimEnded(3));
    world.step(Event::Claim(ClaimAsk {
        types: vec![kind("other"), kind("work")],
        ..claim(4, "b", 1)
    }));
    assert!(world.started_at(more[0]).is_some());
}

fn accepted(effects: &[Effect]) -> Vec<JobId> {
    let accept = |effect: &Effect| match effect {
        Effect::Accept { job, .. } => Some(*job),
        _ => None,
    };
    effects.iter().filter_map(accept).collect()
}

/// A planner with jobs of these priorities reserved for whoever comes.
fn with_reserved(priorities: [Priority; 3]) -> (Planner, Now, Vec<JobId>) {
    let (mut planner, now) = planner("");
    let jobs: Vec<Candidate> = (1..)
        .zip(priorities)
        .map(|(number, priority)| Candidate {
            priority,
            ..job(number, 20, now)
        })
        .collect();
    let ids = jobs.iter().map(|job| job.id).collect();
    for job in jobs {
        let id = job.id;
        let effects = planner.step(Event::Submitted(vec![job]), now);
        assert_eq!(reserved(&effects), [id]);
        let outcome = Outcome::Accepted(None);
        planner.step(Event::Answered { job: id, outcome }, now);
    }
    (planner, now, ids)
}

#[test]
fn a_claim_accepts_what_is_reserved_and_nothing_is_admitted_again() {
    let _watchdog = watch();
    let (mut planner, now, ids) = with_reserved([Priority::Normal; 3]);
    // All quiet is gone: what was admitted before is taken up all the same.
    for _ in 0..40 {
        planner.step(Event::Sample(busy(10.0)), now.after(secs(2)));
    }
    let used = planner.used();
    let effects = planner.step(Event::Claim(claim(1, "a", 1)), now);
    assert_eq!(
        accepted(&effects),
        ids[..1],
        "the oldest, and one for one ask"
    );
    assert_eq!((planner.used(), planner.reserved()), (used, 40));
    let lease = LeaseId::from_random([9; 16]);
    let outcome = Outcome::Accepted(Some(lease));
    let job = ids[0];
    planner.step(Event::Answered { job, outcome }, now);
    assert_eq!(planner.used(), used);
    assert!(planner.holds_units(Holder::Lease(lease)));
    planner.step(Event::Freed(Holder::Lease(lease)), now);
    assert_eq!(planner.used(), used - 20);
    // One that asks for two leases gets both of the others.
    let ask = ClaimAsk {
        leases: 2,
        ..claim(2, "a", 1)
    };
    assert_eq!(accepted(&planner.step(Event::Claim(ask), now)), ids[1..]);
    assert_eq!(planner.reserved(), 0);
}

#[test]
fn a_claim_does_not_accept_what_was_paused_meanwhile() {
    let _watchdog = watch();
    for (pause, resume) in [true, false].map(|pause| {
        let event = |paused| match pause {
            true => Event::AddonPaused(addon("a"), paused),
            false => Event::TypePaused(addon("a"), kind("work"), paused),
        };
        (event(true), event(false))
    }) {
        let (mut planner, now, ids) = with_reserved([Priority::Normal; 3]);
        planner.step(pause, now);
        let effects = planner.step(Event::Claim(claim(1, "a", 1)), now);
        assert_eq!(accepted(&effects), []);
        assert_eq!(accepted(&planner.step(resume, now)), ids[..1]);
    }
}

#[test]
fn what_nobody_claims_any_more_is_reserved_as_before() {
    let _watchdog = watch();
    let (mut planner, now, ids) = with_reserved([Priority::Normal; 3]);
    let effects = planner.step(Event::Claim(claim(1, "a", 1)), now);
    let [job] = accepted(&effects)[..] else {
        panic!("{effects:?}");
    };
    let outcome = Outcome::Failed;
    planner.step(Event::Answered { job, outcome }, now);
    assert_eq!(planner.reserved(), 60);
    assert!(!planner.is_waiting(job), "it is not in the queue");
    let again = planner.step(Event::Claim(claim(2, "a", 1)), now);
    assert_eq!(accepted(&again), ids[..1]);
}

#[test]
fn of_reserved_and_waiting_jobs_the_highest_class_goes_first() {
    let _watchdog = watch();
    let priorities = [Priority::Low, Priority::High, Priority::Normal];
    let (mut planner, now, ids) = with_reserved(priorities);
    let mut order = Vec::new();
    for id in 1..=3 {
        let effects = planner.step(Event::Claim(claim(id, "a", 1)), now);
        order.extend(accepted(&effects));
    }
    assert_eq!(order, [ids[1], ids[2], ids[0]]);
    // A waiting job of a higher class that may start now goes first, one of the same class does not.
    for (priority, first) in [(Priority::High, false), (Priority::Normal, true)] {
        let (mut planner, now, ids) = with_reserved([Priority::Normal; 3]);
        let waits = Candidate {
            priority,
            ..job(9, 20, now)
        };
        let both = [
            Event::Submitted(vec![waits]),
            Event::Claim(claim(1, "a", 1)),
        ];
        let effects = planner.step_all(both, now);
        let expected = if first { ids[..1].to_vec() } else { Vec::new() };
        assert_eq!(accepted(&effects), expected, "{priority:?}");
    }
}

#[test]
fn claims_of_several_addons_are_served_in_turns_whoever_asks_more() {
    let _watchdog = watch();
    let mut world = World::unserved(policy("[ramp]\nunits_per_sample = 0"));
    world.flood("greedy", 1000, 20, secs(10));
    world.flood("modest", 1000, 20, secs(10));
    for id in 0..500 {
        world.step(Event::Claim(claim(id, "greedy", 1)));
    }
    for id in 500..600 {
        world.step(Event::Claim(claim(id, "modest", 1)));
    }
    let before = (world.units("greedy"), world.units("modest"));
    world.run(secs(160));
    let (greedy, modest) = (
        world.units("greedy") - before.0,
        world.units("modest") - before.1,
    );
    assert!(greedy.abs_diff(modest) <= 120, "{greedy} and {modest}");
}

#[test]
fn a_lease_without_a_job_is_admitted_by_the_same_rules() {
    let _watchdog = watch();
    let (mut planner, now) = planner("");
    let ask = |cost, priority| LeaseAsk {
        addon: addon("a"),
        cost,
        priority,
        constraints: Constraints::default(),
        expected_duration: None,
    };
    let lease = |number: u8| LeaseId::from_random([number; 16]);
    assert!(
        planner
            .lease(lease(1), &ask(60, Priority::Normal), now)
            .approved()
    );
    let denied = planner.lease(lease(2), &ask(60, Priority::Normal), now);
    assert_eq!(
        denied.reason(),
        "Capacity exceeded: used=60, requested=60, capacity=100"
    );
    // Capacity that is kept for a job is not given to others of its class, but to a higher one it is.
    planner.step(Event::Submitted(vec![job(1, 100, now)]), now);
    let denied = planner.lease(lease(2), &ask(10, Priority::Normal), now);
    assert!(
        matches!(denied.denied, Some(Block::Held { .. })),
        "{}",
        denied.reason()
    );
    assert!(
        planner
            .lease(lease(3), &ask(10, Priority::High), now)
            .approved()
    );
    assert_eq!(planner.used(), 70);
    planner.step(Event::Freed(Holder::Lease(lease(3))), now);
    let effects = planner.step(Event::Freed(Holder::Lease(lease(1))), now);
    assert_eq!(reserved(&effects), [job(1, 100, now).id]);
    planner.step(Event::PolicyChanged(Arc::new(Policy::default())), now);
    planner.step(Event::Drain(true), now);
    let denied = planner.lease(lease(4), &ask(10, Priority::High), now);
    assert!(!denied.approved());
}

#[test]
fn an_addon_is_charged_for_what_starts_and_gets_it_back_for_what_does_not() {
    let _watchdog = watch();
    // Jobs that fill the machine: a has 1, 3, 5 and 7, b has 2, 4 and 6. The first meets its fate, the others start.
    let order = |outcome: Option<Outcome>| {
        let (mut planner, now) = planner("[order]\nhold = \"0\"");
        let jobs: Vec<Candidate> = (1..=7)
            .map(|number| {
                let mut job = job(number, 100, now);
                job.addon = addon(if number % 2 == 1 { "a" } else { "b" });
                job
            })
            .collect();
        let first = jobs[0].id;
        let number = |id: JobId| jobs.iter().position(|job| job.id == id).unwrap() + 1;
        let mut started = reserved(&planner.step(Event::Submitted(jobs.clone()), now));
        assert_eq!(started, [first]);
        if let Some(outcome) = outcome {
            let effects = planner.step(
                Event::Answered {
                    job: first,
                    outcome,
                },
                now,
            );
            started = reserved(&effects);
        }
        let mut order = Vec::new();
        while let Some(job) = started.pop() {
            order.push(number(job));
            started.extend(reserved(&planner.step(Event::Freed(Holder::Job(job)), now)));
        }
        order
    };
    assert_eq!(order(None), [1, 2, 3, 4, 5, 6, 7], "in turns");
    assert_eq!(
        order(Some(Outcome::Failed)),
        [2, 1, 3, 4, 5, 6, 7],
        "it makes its turn up"
    );
    assert_eq!(
        order(Some(Outcome::Lost)),
        [2, 3, 5, 4, 7, 6],
        "and has it for others when the job is gone"
    );
}

/// Requests a job, and says what is in its way.
fn requested(planner: &mut Planner, job: JobId, now: Now) -> Result<u64, &'static str> {
    match planner.request(job, now).expect("it waits here") {
        Requested::Granted { revision, .. } => Ok(revision),
        Requested::Denied(verdict) => {
            assert!(verdict.retry_after.is_some());
            Err(verdict.denied.expect("a reason").code())
        }
    }
}

#[test]
fn a_request_admits_that_very_job_out_of_turn() {
    let _watchdog = watch();
    let (mut planner, now) = unserved("");
    let jobs: Vec<Candidate> = (1..=3).map(|number| job(number, 40, now)).collect();
    planner.step(Event::Submitted(jobs.clone()), now);
    assert_eq!(planner.used(), 0);
    // The last of the group, by its name.
    let last = jobs[2].id;
    let Some(Requested::Granted {
        revision,
        cost,
        verdict,
    }) = planner.request(last, now)
    else {
        panic!("it may start");
    };
    assert_eq!((revision, cost, verdict.numbers.used), (7, 40, 0));
    assert_eq!((planner.used(), planner.waiting()), (40, 2));
    assert_eq!(planner.request(last, now), None, "it is on its way");
    assert_eq!(planner.request(job(9, 1, now).id, now), None, "unknown");
    let lease = LeaseId::from_random([1; 16]);
    let outcome = Outcome::Accepted(Some(lease));
    // Whoever asks for one is there for the others: they are reserved as far as there is room.
    let effects = planner.step(Event::Answered { job: last, outcome }, now);
    assert_eq!(reserved(&effects), [jobs[0].id]);
    assert!(planner.holds_units(Holder::Lease(lease)));
    assert_eq!(planner.used(), 80);
    // A proposal that fails puts it back.
    planner.step(Event::Freed(Holder::Lease(lease)), now);
    let (mut planner, now) = unserved("");
    planner.step(Event::Submitted(vec![jobs[0].clone()]), now);
    assert_eq!(requested(&mut planner, jobs[0].id, now), Ok(7));
    planner.step(Event::Drain(true), now);
    let (job, outcome) = (jobs[0].id, Outcome::Failed);
    planner.step(Event::Answered { job, outcome }, now);
    assert!(planner.is_waiting(job));
    assert_eq!(planner.used(), 0);
}

#[test]
fn a_request_is_denied_for_what_keeps_a_claim_from_the_job() {
    let _watchdog = watch();
    let denied = |prepare: &dyn Fn(&mut Planner, &mut Candidate, Now)| {
        let (mut planner, now) = unserved("[addons.capped]\nunits = 10\n");
        let mut job = job(1, 30, now);
        prepare(&mut planner, &mut job, now);
        let id = job.id;
        planner.step(Event::Submitted(vec![job]), now);
        let used = planner.used();
        let code = requested(&mut planner, id, now).expect_err("something is in its way");
        assert!(planner.is_waiting(id) && planner.used() == used, "{code}");
        code
    };
    let occupy = |units| {
        Event::Leased(LiveLease {
            lease: LeaseId::from_random([8; 16]),
            addon: addon("b"),
            units,
            job_type: None,
            key: None,
            ends_in: None,
        })
    };
    let key = || {
        Some(jobtree_queue::candidate::ConcurrencyKey {
            key: "k".into(),
            limit: 1,
        })
    };
    assert_eq!(
        denied(&|_, job, now| job.not_before = Some(now.after(secs(9)).wall)),
        "not_yet"
    );
    assert_eq!(
        denied(&|planner, _, now| drop(planner.step(Event::Drain(true), now))),
        "draining"
    );
    assert_eq!(
        denied(&|planner, _, now| {
            planner.step(Event::AddonPaused(addon("a"), true), now);
        }),
        "addon_paused"
    );
    assert_eq!(
        denied(&|planner, _, now| {
            planner.step(Event::TypePaused(addon("a"), kind("work"), true), now);
        }),
        "type_paused"
    );
    assert_eq!(
        denied(&|_, job, _| job.node = Some(NodeId::new("elsewhere").unwrap())),
        "wrong_node"
    );
    assert_eq!(
        denied(&|planner, job, now| {
            job.key = key();
            let (addon, key) = (addon("a"), "k".into());
            let running = 1;
            planner.step(
                Event::KeyElsewhere {
                    addon,
                    key,
                    running,
                },
                now,
            );
        }),
        "key_taken"
    );
    assert_eq!(
        denied(&|planner, _, now| drop(planner.step(Event::Sample(busy(6.0)), now))),
        "not_quiet"
    );
    assert_eq!(
        denied(&|planner, _, now| drop(planner.step(occupy(80), now))),
        "capacity"
    );
    assert_eq!(
        denied(&|_, job, _| job.addon = addon("capped")),
        "addon_units"
    );
    // Capacity that is held for a served job is not given away; a higher class does not respect that.
    let held = |priority| {
        let (mut planner, now) = unserved("");
        planner.step(occupy(50), now);
        let big = Candidate {
            addon: addon("b"),
            ..job(2, 60, now)
        };
        planner.step(Event::Submitted(vec![big]), now);
        planner.step(Event::Claim(claim(1, "b", 1)), now);
        assert!(planner.hold().is_some());
        let small = Candidate {
            priority,
            ..job(1, 30, now)
        };
        let id = small.id;
        planner.step(Event::Submitted(vec![small]), now);
        requested(&mut planner, id, now)
    };
    assert_eq!(held(Priority::Normal), Err("held"));
    assert_eq!(held(Priority::High), Ok(7));
    // The ramp.
    let ramped = {
        let policy = policy("[ramp]\nunits_per_sample = 25\n[quiet]\nenter_after = \"0\"");
        let mut planner = Planner::new(policy, NodeId::new("here").unwrap(), [], noon());
        let now = noon().after(secs(2));
        planner.step(Event::Sample(Sample::idle()), now);
        let jobs: Vec<Candidate> = (1..=2).map(|number| job(number, 20, now)).collect();
        planner.step(Event::Submitted(jobs.clone()), now);
        assert_eq!(requested(&mut planner, jobs[0].id, now), Ok(7));
        requested(&mut planner, jobs[1].id, now)
    };
    assert_eq!(ramped, Err("ramp"));
}

/// Which job a claim gets, and what its addon is charged, are rules of the order: by class, reserved before waiting, then
/// by age; and each job is charged once, whether it was reserved, granted or requested.
#[test]
fn a_claim_that_meets_reservations_and_waiting_jobs_follows_the_order_and_charges_once() {
    let _watchdog = watch();
    let (mut planner, now) = planner("");
    let of = |number, priority, cost| Candidate {
        priority,
        ..job(number, cost, now)
    };
    let reserved_jobs = [
        of(1, Priority::Normal, 30),
        of(2, Priority::High, 30),
        of(3, Priority::Normal, 30),
    ];
    for job in &reserved_jobs {
        let effects = planner.step(Event::Submitted(vec![job.clone()]), now);
        assert_eq!(reserved(&effects), [job.id]);
        let (job, outcome) = (job.id, Outcome::Accepted(None));
        planner.step(Event::Answered { job, outcome }, now);
    }
    let waiting = [of(4, Priority::High, 10), of(5, Priority::Normal, 10)];
    let ask = ClaimAsk {
        leases: 5,
        ..claim(1, "a", 1)
    };
    let events = [Event::Submitted(waiting.to_vec()), Event::Claim(ask)];
    let effects = planner.step_all(events, now);
    let order: Vec<JobId> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Accept { job, .. } => Some(*job),
            Effect::Grant { jobs, .. } => Some(jobs[0].0),
            Effect::Reserve { .. } => panic!("{effect:?}"),
            _ => None,
        })
        .collect();
    let [first, second, third] = reserved_jobs.map(|job| job.id);
    // The waiting one of the normal class does not fit beside the others: the five make 110 units.
    assert_eq!(order, [second, waiting[0].id, first, third]);
}

#[test]
fn a_job_is_charged_once_however_it_gets_to_its_worker() {
    let _watchdog = watch();
    // Jobs that fill the machine, in turns. The first of addon a goes one of four ways; the rest shows what it cost.
    let order = |way: &str| {
        let (mut planner, now) = unserved("[order]\nhold = \"0\"");
        let jobs: Vec<Candidate> = (1..=7)
            .map(|number| {
                let mut job = job(number, 100, now);
                job.addon = addon(if number % 2 == 1 { "a" } else { "b" });
                job
            })
            .collect();
        let first = jobs[0].id;
        let number = |id: JobId| jobs.iter().position(|job| job.id == id).unwrap() + 1;
        let lease = LeaseId::from_random([1; 16]);
        let accepted = |lease| Event::Answered {
            job: first,
            outcome: Outcome::Accepted(lease),
        };
        match way {
            "reserved" => {
                planner.step(listening(1), now);
                planner.step(Event::Submitted(jobs.clone()), now);
                planner.step(accepted(None), now);
                planner.step(Event::Accepted { job: first, lease }, now);
            }
            "reserved, then claimed" => {
                planner.step(listening(1), now);
                planner.step(Event::Submitted(jobs.clone()), now);
                planner.step(accepted(None), now);
                planner.step(Event::Claim(claim(1, "a", 1)), now);
                planner.step(accepted(Some(lease)), now);
            }
            "claimed" => {
                planner.step(Event::Claim(claim(1, "a", 1)), now);
                planner.step(Event::Submitted(jobs.clone()), now);
                planner.step(accepted(Some(lease)), now);
            }
            _ => {
                // It is the only one: an addon alone would have paid its debt when the others come.
                planner.step(Event::Submitted(vec![jobs[0].clone()]), now);
                assert_eq!(requested(&mut planner, first, now), Ok(7));
                planner.step(accepted(Some(lease)), now);
                planner.step(listening(1), now);
                planner.step(Event::Submitted(jobs[1..].to_vec()), now);
            }
        }
        planner.step(listening(1), now);
        let mut started = reserved(&planner.step(Event::Freed(Holder::Lease(lease)), now));
        let mut order = Vec::new();
        while let Some(job) = started.pop() {
            order.push(number(job));
            started.extend(reserved(&planner.step(Event::Freed(Holder::Job(job)), now)));
        }
        order
    };
    for way in ["reserved", "reserved, then claimed", "claimed", "requested"] {
        assert_eq!(order(way), [2, 3, 4, 5, 6, 7], "{way}");
    }
}
