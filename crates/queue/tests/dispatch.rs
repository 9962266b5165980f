//! The dispatcher's events and effects: proposals that lose, claims, denials, wake-ups.

mod worlds;

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{Constraints, JobId, LeaseId, NodeId, Priority};
use jobtree_queue::Now;
use jobtree_queue::block::Block;
use jobtree_queue::candidate::Candidate;
use jobtree_queue::dispatch::{ClaimAsk, Dispatcher, Effect, Event, LeaseAsk, LiveLease, Outcome};
use jobtree_queue::ledger::Holder;
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;
use worlds::world::{World, addon, kind};
use worlds::{busy, noon, policy, secs, watch};

fn dispatcher(text: &str) -> (Dispatcher, Now) {
    let policy = policy(&format!("[ramp]\nunits_per_sample = 0\n{text}"));
    let mut dispatcher = Dispatcher::new(policy, NodeId::new("here").unwrap(), [], noon());
    let mut now = noon();
    for _ in 0..40 {
        now = now.after(secs(2));
        dispatcher.step(Event::Sample(Sample::idle()), now);
    }
    (dispatcher, now)
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
    let (mut dispatcher, now) = dispatcher("");
    let (first, second) = (job(1, 60, now), job(2, 60, now));
    let effects = dispatcher.step(Event::Submitted(vec![first.clone(), second.clone()]), now);
    assert_eq!(reserved(&effects), [first.id]);
    assert!(matches!(effects[0], Effect::Reserve { revision: 7, .. }));
    // Submitted again by a late message: it is on its way already.
    let again = dispatcher.step(Event::Submitted(vec![first.clone()]), now);
    assert_eq!(reserved(&again), []);
    assert_eq!(dispatcher.waiting(), 1);
    // Lost: another dispatcher has it. Its units are free, and it is not tried again.
    let effects = dispatcher.step(
        Event::Answered {
            job: first.id,
            outcome: Outcome::Lost,
        },
        now,
    );
    assert_eq!(reserved(&effects), [second.id]);
    assert!(!dispatcher.is_waiting(first.id));
    // The store could not say: it waits as before, and is proposed again.
    let effects = dispatcher.step(
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
        Event::TakenUp {
            job: second.id,
            lease: LeaseId::from_random([1; 16]),
        },
        Event::TakenUp {
            job: second.id,
            lease: LeaseId::from_random([1; 16]),
        },
        Event::Answered {
            job: second.id,
            outcome: Outcome::Failed,
        },
    ] {
        dispatcher.step(event, now);
        assert_eq!(dispatcher.used(), 60);
    }
    dispatcher.step(
        Event::Freed(Holder::Lease(LeaseId::from_random([1; 16]))),
        now,
    );
    dispatcher.step(
        Event::Freed(Holder::Lease(LeaseId::from_random([1; 16]))),
        now,
    );
    assert_eq!(dispatcher.used(), 0);
}

#[test]
fn a_dispatch_that_is_not_taken_up_keeps_its_units_until_the_store_says_so() {
    let _watchdog = watch();
    let (mut dispatcher, now) = dispatcher("[busy]\nstale_after = \"10m\"");
    let (first, second) = (job(1, 60, now), job(2, 60, now));
    dispatcher.step(Event::Submitted(vec![first.clone(), second.clone()]), now);
    let accepted = Event::Answered {
        job: first.id,
        outcome: Outcome::Accepted(None),
    };
    let effects = dispatcher.step(accepted, now);
    assert!(wakes(&effects).unwrap() <= now.after(secs(30)).mono);
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, Effect::ReturnUnclaimed { .. }))
    );
    let late = now.after(secs(30));
    let effects = dispatcher.step(Event::Timer, late);
    assert_eq!(effects[0], Effect::ReturnUnclaimed { job: first.id });
    assert_eq!(dispatcher.used(), 60, "it may just have been taken up");
    assert!(
        !dispatcher
            .step(Event::Timer, late)
            .contains(&Effect::ReturnUnclaimed { job: first.id })
    );
    let again = dispatcher.step(Event::Timer, late.after(secs(5)));
    assert!(
        again.contains(&Effect::ReturnUnclaimed { job: first.id }),
        "asked again when nothing comes of it"
    );
    // The second was promised what became free; then the first, at its old place and with its new revision.
    let third = job(3, 60, late);
    dispatcher.step(Event::Submitted(vec![third]), late);
    let effects = dispatcher.step(
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
    let effects = dispatcher.step(lost, late);
    assert!(matches!(&effects[0], Effect::Reserve { job, revision: 9, .. } if *job == first.id));
    assert_eq!(dispatcher.used(), 60);
}

#[test]
fn what_a_store_says_is_live_counts_after_a_restart() {
    let _watchdog = watch();
    let (mut dispatcher, now) = dispatcher("");
    let live = LiveLease {
        lease: LeaseId::from_random([1; 16]),
        addon: addon("a"),
        units: 50,
        key: None,
        ends_in: Some(secs(60)),
    };
    dispatcher.step(Event::Leased(live.clone()), now);
    dispatcher.step(Event::Leased(live), now);
    let until = now.after(secs(10)).mono;
    dispatcher.step(
        Event::Dispatched {
            candidate: job(1, 30, now),
            until,
        },
        now,
    );
    assert_eq!(dispatcher.used(), 80);
    let effects = dispatcher.step(Event::Timer, now.after(secs(10)));
    assert!(effects.contains(&Effect::ReturnUnclaimed {
        job: job(1, 30, now).id
    }));
}

#[test]
fn a_denial_is_written_when_its_reason_changes_only() {
    let _watchdog = watch();
    let (mut dispatcher, mut now) = dispatcher("");
    dispatcher.step(Event::Sample(busy(6.0)), now);
    let waiting = job(1, 50, now);
    let effects = dispatcher.step(Event::Submitted(vec![waiting.clone()]), now);
    assert_eq!(denials(&effects), ["System is BUSY; waiting for QUIET"]);
    for _ in 0..50 {
        now = now.after(secs(2));
        assert_eq!(
            denials(&dispatcher.step(Event::Sample(busy(5.9)), now)),
            [""; 0]
        );
        assert_eq!(denials(&dispatcher.step(Event::Timer, now)), [""; 0]);
    }
    let mut changes = Vec::new();
    for _ in 0..20 {
        now = now.after(secs(2));
        changes.extend(denials(&dispatcher.step(Event::Sample(busy(4.0)), now)));
    }
    assert_eq!(changes, ["System is NORMAL; waiting for QUIET"]);
    let effects = dispatcher.step(Event::Sample(busy(8.0)), now);
    assert_eq!(denials(&effects).len(), 1, "PANIC is another reason");
}

#[test]
fn each_waiting_job_has_a_wake_up() {
    let _watchdog = watch();
    let (mut dispatcher, now) = dispatcher("");
    assert_eq!(
        wakes(&dispatcher.step(Event::Kick, now)),
        None,
        "nothing waits"
    );
    dispatcher.step(Event::AddonPaused(addon("a"), true), now);
    let effects = dispatcher.step(Event::Submitted(vec![job(1, 50, now)]), now);
    assert!(
        wakes(&effects).unwrap() <= now.after(secs(5)).mono,
        "the fallback"
    );
    dispatcher.step(Event::Withdrawn(job(1, 50, now).id), now);
    let mut later = job(2, 50, now);
    later.not_before = Some(now.after(secs(3)).wall);
    let effects = dispatcher.step(Event::Submitted(vec![later]), now);
    assert_eq!(wakes(&effects), Some(now.after(secs(3)).mono));
}

#[test]
fn a_draining_node_starts_nothing() {
    let _watchdog = watch();
    let (mut dispatcher, now) = dispatcher("");
    dispatcher.step(Event::Drain(true), now);
    let effects = dispatcher.step(Event::Submitted(vec![job(1, 50, now)]), now);
    assert_eq!(reserved(&effects), []);
    assert_eq!(denials(&effects), ["The node is draining"]);
    assert_eq!(
        reserved(&dispatcher.step(Event::Drain(false), now)).len(),
        1
    );
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
    let mut world = World::new(policy(
        "[ramp]\nunits_per_sample = 0\n[dispatch]\nmode = \"claim\"",
    ));
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
    assert_eq!(world.dispatcher.used(), 30, "charged at the largest cost");
    world.run(secs(3));
    assert_eq!(world.dispatcher.used(), 30, "one after the other");
    world.run(secs(2));
    assert_eq!(world.dispatcher.used(), 0);
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

fn taken_up(effects: &[Effect]) -> Vec<JobId> {
    let taken = |effect: &Effect| match effect {
        Effect::TakeUp { job, .. } => Some(*job),
        _ => None,
    };
    effects.iter().filter_map(taken).collect()
}

/// A dispatcher with jobs of these priorities reserved for whoever comes.
fn with_reserved(priorities: [Priority; 3]) -> (Dispatcher, Now, Vec<JobId>) {
    let (mut dispatcher, now) = dispatcher("");
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
        let effects = dispatcher.step(Event::Submitted(vec![job]), now);
        assert_eq!(reserved(&effects), [id]);
        let outcome = Outcome::Accepted(None);
        dispatcher.step(Event::Answered { job: id, outcome }, now);
    }
    (dispatcher, now, ids)
}

#[test]
fn a_claim_takes_up_what_is_reserved_and_nothing_is_admitted_again() {
    let _watchdog = watch();
    let (mut dispatcher, now, ids) = with_reserved([Priority::Normal; 3]);
    // All quiet is gone: what was admitted before is taken up all the same.
    for _ in 0..40 {
        dispatcher.step(Event::Sample(busy(10.0)), now.after(secs(2)));
    }
    let used = dispatcher.used();
    let effects = dispatcher.step(Event::Claim(claim(1, "a", 1)), now);
    assert_eq!(
        taken_up(&effects),
        ids[..1],
        "the oldest, and one for one ask"
    );
    assert_eq!((dispatcher.used(), dispatcher.reserved()), (used, 40));
    let lease = LeaseId::from_random([9; 16]);
    let outcome = Outcome::Accepted(Some(lease));
    let job = ids[0];
    dispatcher.step(Event::Answered { job, outcome }, now);
    assert_eq!(dispatcher.used(), used);
    assert!(dispatcher.holds_units(Holder::Lease(lease)));
    dispatcher.step(Event::Freed(Holder::Lease(lease)), now);
    assert_eq!(dispatcher.used(), used - 20);
    // One that asks for two leases gets both of the others.
    let ask = ClaimAsk {
        leases: 2,
        ..claim(2, "a", 1)
    };
    assert_eq!(taken_up(&dispatcher.step(Event::Claim(ask), now)), ids[1..]);
    assert_eq!(dispatcher.reserved(), 0);
}

#[test]
fn what_nobody_claims_any_more_is_reserved_as_before() {
    let _watchdog = watch();
    let (mut dispatcher, now, ids) = with_reserved([Priority::Normal; 3]);
    let effects = dispatcher.step(Event::Claim(claim(1, "a", 1)), now);
    let [job] = taken_up(&effects)[..] else {
        panic!("{effects:?}");
    };
    let outcome = Outcome::Failed;
    dispatcher.step(Event::Answered { job, outcome }, now);
    assert_eq!(dispatcher.reserved(), 60);
    assert!(!dispatcher.is_waiting(job), "it is not in the queue");
    let again = dispatcher.step(Event::Claim(claim(2, "a", 1)), now);
    assert_eq!(taken_up(&again), ids[..1]);
}

#[test]
fn of_reserved_and_waiting_jobs_the_highest_class_goes_first() {
    let _watchdog = watch();
    let priorities = [Priority::Low, Priority::High, Priority::Normal];
    let (mut dispatcher, now, ids) = with_reserved(priorities);
    let mut order = Vec::new();
    for id in 1..=3 {
        let effects = dispatcher.step(Event::Claim(claim(id, "a", 1)), now);
        order.extend(taken_up(&effects));
    }
    assert_eq!(order, [ids[1], ids[2], ids[0]]);
    // A waiting job of a higher class that may start now goes first, one of the same class does not.
    for (priority, first) in [(Priority::High, false), (Priority::Normal, true)] {
        let (mut dispatcher, now, ids) = with_reserved([Priority::Normal; 3]);
        let waits = Candidate {
            priority,
            ..job(9, 20, now)
        };
        let both = [
            Event::Submitted(vec![waits]),
            Event::Claim(claim(1, "a", 1)),
        ];
        let effects = dispatcher.step_all(both, now);
        let expected = if first { ids[..1].to_vec() } else { Vec::new() };
        assert_eq!(taken_up(&effects), expected, "{priority:?}");
    }
}

#[test]
fn claims_of_several_addons_are_served_in_turns_whoever_asks_more() {
    let _watchdog = watch();
    let mut world = World::new(policy(
        "[ramp]\nunits_per_sample = 0\n[dispatch]\nmode = \"claim\"",
    ));
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
    let (mut dispatcher, now) = dispatcher("");
    let ask = |cost, priority| LeaseAsk {
        addon: addon("a"),
        cost,
        priority,
        constraints: Constraints::default(),
        expected_duration: None,
    };
    let lease = |number: u8| LeaseId::from_random([number; 16]);
    assert!(
        dispatcher
            .lease(lease(1), &ask(60, Priority::Normal), now)
            .approved()
    );
    let denied = dispatcher.lease(lease(2), &ask(60, Priority::Normal), now);
    assert_eq!(
        denied.reason(),
        "Capacity exceeded: used=60, requested=60, capacity=100"
    );
    // Capacity that is kept for a job is not given to others of its class, but to a higher one it is.
    dispatcher.step(Event::Submitted(vec![job(1, 100, now)]), now);
    let denied = dispatcher.lease(lease(2), &ask(10, Priority::Normal), now);
    assert!(
        matches!(denied.denied, Some(Block::Held { .. })),
        "{}",
        denied.reason()
    );
    assert!(
        dispatcher
            .lease(lease(3), &ask(10, Priority::High), now)
            .approved()
    );
    assert_eq!(dispatcher.used(), 70);
    dispatcher.step(Event::Freed(Holder::Lease(lease(3))), now);
    let effects = dispatcher.step(Event::Freed(Holder::Lease(lease(1))), now);
    assert_eq!(reserved(&effects), [job(1, 100, now).id]);
    dispatcher.step(Event::PolicyChanged(Arc::new(Policy::default())), now);
    dispatcher.step(Event::Drain(true), now);
    let denied = dispatcher.lease(lease(4), &ask(10, Priority::High), now);
    assert!(!denied.approved());
}

#[test]
fn an_addon_is_charged_for_what_starts_and_gets_it_back_for_what_does_not() {
    let _watchdog = watch();
    // Jobs that fill the machine: a has 1, 3, 5 and 7, b has 2, 4 and 6. The first meets its fate, the others start.
    let order = |outcome: Option<Outcome>| {
        let (mut dispatcher, now) = dispatcher("[order]\nhold = \"0\"");
        let jobs: Vec<Candidate> = (1..=7)
            .map(|number| {
                let mut job = job(number, 100, now);
                job.addon = addon(if number % 2 == 1 { "a" } else { "b" });
                job
            })
            .collect();
        let first = jobs[0].id;
        let number = |id: JobId| jobs.iter().position(|job| job.id == id).unwrap() + 1;
        let mut started = reserved(&dispatcher.step(Event::Submitted(jobs.clone()), now));
        assert_eq!(started, [first]);
        if let Some(outcome) = outcome {
            let effects = dispatcher.step(
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
            started.extend(reserved(
                &dispatcher.step(Event::Freed(Holder::Job(job)), now),
            ));
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
