//! Order in virtual time: shares, ages, and what is skipped.

mod worlds;

use std::collections::BTreeSet;
use std::sync::Arc;

use jobtree_protocol::{JobId, NodeId, Priority};
use jobtree_queue::candidate::{Candidate, ConcurrencyKey};
use jobtree_queue::hold::WaitBound;
use jobtree_queue::planner::{ClaimAsk, Event};
use jobtree_queue::policy::Policy;
use worlds::world::{World, addon, kind};
use worlds::{policy, secs, watch};

const NO_RAMP: &str = "[ramp]\nunits_per_sample = 0\n";

fn world(text: &str) -> World {
    World::new(policy(&format!("{NO_RAMP}{text}")))
}

fn ids(world: &World) -> Vec<JobId> {
    world.started.iter().map(|(job, _)| *job).collect()
}

#[test]
fn within_an_addon_and_class_it_is_first_come_first_served() {
    let _watchdog = watch();
    let mut world = world("");
    let jobs = world.flood("a", 50, 10, secs(10));
    world.run(secs(120));
    assert_eq!(ids(&world), jobs);
}

#[test]
fn a_flooding_addon_does_not_keep_another_waiting() {
    let _watchdog = watch();
    let mut world = world("");
    world.flood("flood", 2000, 10, secs(10));
    world.run(secs(60));
    let few = world.flood("few", 20, 10, secs(10));
    let before = world.units("flood");
    world.run(secs(60));
    assert_eq!(
        few.iter()
            .filter(|job| world.started_at(**job).is_some())
            .count(),
        20
    );
    // Ten places, six rounds of ten seconds: while both have jobs each gets half, to a quantum and a cost.
    let flooded = world.units("flood") - before;
    assert!((400 - 110..=400 + 110).contains(&flooded), "{flooded}");
}

#[test]
fn shares_follow_weights() {
    let _watchdog = watch();
    let mut world = world("[addons.a]\nweight = 3\n");
    world.flood("a", 1000, 10, secs(10));
    world.flood("b", 1000, 10, secs(10));
    // All at once at the start went to the first; look at what comes then.
    let before = (world.units("a"), world.units("b"));
    world.run(secs(400));
    let (a, b) = (world.units("a") - before.0, world.units("b") - before.1);
    assert!((a as f64 / b as f64 - 3.0).abs() < 0.3, "{a} to {b}");
}

#[test]
fn units_are_shared_not_jobs() {
    let _watchdog = watch();
    let mut world = world("");
    world.flood("large", 400, 50, secs(10));
    world.flood("small", 4000, 5, secs(10));
    let before = (world.units("large"), world.units("small"));
    world.run(secs(300));
    let (large, small) = (
        world.units("large") - before.0,
        world.units("small") - before.1,
    );
    let apart = large.abs_diff(small);
    assert!(
        apart <= 100 + 50,
        "{large} and {small}: more than a quantum and a cost apart"
    );
    assert!(large > 1000, "{large}");
}

#[test]
fn a_reservation_that_is_not_accepted_goes_back_and_is_tried_again() {
    let _watchdog = watch();
    let mut world = world("");
    world.workers = false;
    let job = world.flood("a", 1, 30, secs(10))[0];
    assert_eq!(world.planner.used(), 30);
    world.run(secs(31));
    assert_eq!(world.returned, [job], "after 30 s it goes back");
    assert_eq!(world.planner.used(), 30, "and is reserved again");
    world.workers = true;
    // The listener is not trusted after the second one: a minute's rest.
    world.run(secs(91));
    assert!(world.started_at(job).is_some());
}

#[test]
fn higher_classes_first_until_the_lower_have_waited() {
    let _watchdog = watch();
    let mut world = world("[order]\nage_step = \"10m\"\n");
    let mut low = world.job("low", 100, secs(10));
    low.priority = Priority::Low;
    world.flood("a", 1, 100, secs(10));
    world.submit([low.clone()]);
    // NORMAL jobs keep coming, so many that the machine is always full.
    let mut now = 0;
    while world.started_at(low.id).is_none() {
        world.flood("busy", 3, 100, secs(10));
        world.run(secs(20));
        now += 20;
        assert!(now < 3600);
    }
    let waited = world
        .started_at(low.id)
        .unwrap()
        .wall
        .duration_since(low.enqueued_at)
        .as_secs();
    // After ten minutes it is NORMAL and takes turns with the flood: a turn is at most a job of 100 of the other.
    assert!((600..=600 + 40).contains(&waited), "{waited}");
}

#[test]
fn without_aging_it_waits_for_ever() {
    let _watchdog = watch();
    let mut world = world("[order]\nage_step = \"0\"\n");
    let mut low = world.job("low", 100, secs(10));
    low.priority = Priority::Low;
    world.flood("a", 1, 100, secs(10));
    world.submit([low.clone()]);
    for _ in 0..200 {
        world.flood("busy", 3, 100, secs(10));
        world.run(secs(20));
    }
    assert_eq!(world.started_at(low.id), None);
}

#[test]
fn every_addon_starts_within_the_bound() {
    let _watchdog = watch();
    let mut world = world("");
    for index in 0..8 {
        world.flood(&format!("flood{index}"), 300, 20, secs(10));
    }
    world.run(secs(100));
    let late = world.flood("late", 1, 20, secs(10))[0];
    let from = world.now;
    let started = world.run_until_started(late, secs(600));
    let bound = WaitBound {
        age_step: secs(0),
        longest_run: secs(10),
        capacity: 100,
        largest_ahead: 20,
        own_ahead: 0,
        own_quantum: 100,
        other_quanta: vec![100; 8],
    }
    .wait();
    let waited = started.mono - from.mono;
    assert!(waited <= bound, "{waited:?}, not within {bound:?}");
    assert!(!waited.is_zero(), "it had to wait");
}

#[test]
fn paused_addons_and_types_are_skipped_not_waited_for() {
    let _watchdog = watch();
    let mut world = world("[addons.off]\npaused = true\n");
    world.flood("off", 10, 10, secs(10));
    let mut typed = world.job("a", 10, secs(10));
    typed.job_type = kind("special");
    world.step(Event::TypePaused(addon("a"), kind("special"), true));
    world.submit([typed.clone()]);
    let rest = world.flood("a", 3, 10, secs(10));
    assert_eq!(ids(&world), rest);
    world.step(Event::TypePaused(addon("a"), kind("special"), false));
    assert!(world.started_at(typed.id).is_some(), "at once");
    world.step(Event::AddonPaused(addon("off"), false));
    assert_eq!(world.units("off"), 60, "what is left of 100");
    world.step(Event::AddonPaused(addon("off"), true));
    world.run(secs(60));
    assert_eq!(world.units("off"), 60);
    // A policy says it too.
    world.step(Event::AddonPaused(addon("off"), false));
    world.run(secs(60));
    assert_eq!(world.units("off"), 100);
}

#[test]
fn a_concurrency_key_holds_back_its_own_jobs_only() {
    let _watchdog = watch();
    let mut world = world("");
    let keyed = |world: &mut World, key: &str| {
        let mut job = world.job("a", 5, secs(10));
        job.key = Some(ConcurrencyKey {
            key: key.into(),
            limit: 2,
        });
        job
    };
    let first: Vec<Candidate> = (0..4).map(|_| keyed(&mut world, "one")).collect();
    let other = keyed(&mut world, "two");
    let free = world.job("a", 5, secs(10));
    world.submit(first.iter().cloned().chain([other.clone(), free.clone()]));
    let running: BTreeSet<JobId> = ids(&world).into_iter().collect();
    let expected = [&first[0], &first[1], &other, &free].map(|job| job.id);
    assert_eq!(running, expected.into_iter().collect());
    world.run(secs(10));
    assert!(
        first.iter().all(|job| world.started_at(job.id).is_some()),
        "when the first two have ended"
    );
    // What runs on other nodes counts too.
    let elsewhere = |running| Event::KeyElsewhere {
        addon: addon("a"),
        key: "three".into(),
        running,
    };
    world.step(elsewhere(2));
    let third = keyed(&mut world, "three");
    world.submit([third.clone()]);
    world.run(secs(60));
    assert_eq!(world.started_at(third.id), None);
    world.step(elsewhere(1));
    assert!(world.started_at(third.id).is_some());
}

#[test]
fn nodes_and_labels() {
    let _watchdog = watch();
    let mut world = world("");
    let mut here = world.job("a", 5, secs(10));
    here.node = Some(NodeId::new("here").unwrap());
    let mut there = world.job("a", 5, secs(10));
    there.node = Some(NodeId::new("there").unwrap());
    let mut ssd = world.job("a", 5, secs(10));
    ssd.labels = vec!["ssd".to_owned()];
    let mut gpu = world.job("a", 5, secs(10));
    gpu.labels = vec!["gpu".to_owned(), "ssd".to_owned()];
    world.submit([here.clone(), there.clone(), ssd.clone(), gpu.clone()]);
    assert_eq!(ids(&world), [here.id, ssd.id]);
    world.step(Event::Labels(vec!["ssd".to_owned(), "gpu".to_owned()]));
    assert_eq!(ids(&world), [here.id, ssd.id, gpu.id]);
}

#[test]
fn nothing_starts_before_its_time_and_then_at_once() {
    let _watchdog = watch();
    let mut world = world("");
    let mut job = world.job("a", 5, secs(10));
    let at = world.now.after(secs(3600));
    job.not_before = Some(at.wall);
    world.submit([job.clone()]);
    world.every = secs(7);
    world.run(secs(4000));
    assert_eq!(
        world.started_at(job.id).map(|now| now.wall),
        Some(at.wall),
        "by its own timer"
    );
}

/// What one start costs with so many waiting: lookups, counted.
fn work_of_a_start(waiting: usize, keyed: bool) -> u64 {
    let mut world = world("[addons.paused]\npaused = true\n");
    world.level = 4.0;
    world.run(secs(60));
    // A million that wait for quiet, of an addon that is paused, and of keys that are taken.
    let mut jobs = Vec::new();
    for index in 0..waiting {
        let name = ["paused", "a", "b", "c"][index % 4];
        let mut job = world.job(name, 10, secs(10));
        if keyed && name == "c" {
            job.priority = Priority::High;
            job.key = Some(ConcurrencyKey {
                key: format!("key{}", index % 1000).into(),
                limit: 1,
            });
        }
        jobs.push(job);
    }
    for index in 0..1000 {
        let (addon, key) = (addon("c"), format!("key{index}").into());
        world.step(Event::KeyElsewhere {
            addon,
            key,
            running: 1,
        });
    }
    world.submit(jobs);
    world.level = 0.0;
    let before = world.planner.work();
    let started = world.started.len();
    let mut high = world.job("high", 10, secs(10));
    high.priority = Priority::High;
    world.submit([high]);
    assert_eq!(world.started.len(), started + 1);
    let one = world.planner.work() - before;
    // And then all that fits, as it becomes quiet.
    let before = world.planner.work();
    world.run(secs(300));
    let many = (world.started.len() - started - 1) as u64;
    assert!(many > 100, "{many}");
    one + (world.planner.work() - before) / many
}

#[test]
fn a_start_costs_the_same_with_a_thousand_and_with_a_hundred_thousand_waiting() {
    let _watchdog = watch();
    for keyed in [false, true] {
        let few = work_of_a_start(1_000, keyed);
        // Ten times as many when it is asked for: JOBTREE_STRESS=10.
        let factor = std::env::var("JOBTREE_STRESS").map_or(1, |factor| factor.parse().unwrap());
        let many = work_of_a_start(100_000 * factor, keyed);
        assert!(many <= few + few / 4, "{few} lookups, then {many}");
    }
}

/// What nobody serves stands aside: it costs nothing, however many there are, but for its probes.
#[test]
fn a_start_costs_the_same_beside_any_number_of_unserved_jobs() {
    let _watchdog = watch();
    let work = |unserved: usize| {
        let mut world = World::unserved(policy("[ramp]\nunits_per_sample = 0\n"));
        let jobs: Vec<Candidate> = (0..unserved)
            .map(|index| {
                let mut job = world.job("nobody", 1 + index as u32 % 100, secs(10));
                job.job_type = kind(&format!("t{}", index % 1000));
                job.priority = Priority::High;
                job
            })
            .collect();
        world.submit(jobs);
        world.flood("served", 500, 10, secs(10));
        let before = world.planner.work();
        for id in 0..200 {
            let ask = ClaimAsk {
                id,
                addon: addon("served"),
                types: vec![kind("work")],
                jobs: 1,
                leases: 1,
            };
            world.step(Event::Claim(ask));
            world.run(secs(1));
        }
        assert_eq!(world.started.len(), 200);
        (world.planner.work() - before) / 200
    };
    let (none, many) = (work(0), work(50_000));
    assert!(many <= none + none / 4, "{none} lookups, then {many}");
}

#[test]
fn a_new_policy_changes_who_is_paused_and_how_fast_jobs_age() {
    let _watchdog = watch();
    let mut world = world("[addons.a]\npaused = true\n");
    let jobs = world.flood("a", 2, 10, secs(10));
    assert!(world.started.is_empty());
    world.step(Event::PolicyChanged(Arc::new(Policy::default())));
    assert_eq!(ids(&world), jobs);
}
