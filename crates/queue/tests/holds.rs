//! Holds and backfill in virtual time.

mod worlds;

use jobtree_protocol::{JobId, Priority};
use jobtree_queue::candidate::Candidate;
use jobtree_queue::hold::WaitBound;
use jobtree_queue::planner::Event;
use worlds::world::{World, addon, kind};
use worlds::{policy, secs, watch};

fn world(text: &str) -> World {
    World::new(policy(&format!("[ramp]\nunits_per_sample = 0\n{text}")))
}

/// A job that says how long it takes, truthfully.
fn honest(world: &mut World, name: &str, cost: u32, takes: u64) -> Candidate {
    let mut job = world.job(name, cost, secs(takes));
    job.expected_duration = Some(secs(takes));
    job
}

/// Three addons whose jobs of 5 units take 20 s.
fn flood_bound(age_step: u64) -> WaitBound {
    WaitBound {
        age_step: secs(age_step),
        longest_run: secs(20),
        capacity: 100,
        largest_ahead: 5,
        own_ahead: 0,
        own_quantum: 100,
        other_quanta: vec![100; 3],
    }
}

#[test]
fn the_largest_job_starts_under_a_flood_of_small_ones() {
    let _watchdog = watch();
    let mut world = world("");
    for name in ["a", "b", "c"] {
        world.flood(name, 2000, 5, secs(20));
    }
    world.run(secs(100));
    let big = world.job("big", 100, secs(20));
    world.submit([big.clone()]);
    let from = world.now;
    let started = world.run_until_started(big.id, secs(600));
    // Its class is the flood's, so that it need not age.
    let bound = flood_bound(0).wait();
    let waited = started.mono - from.mono;
    assert!(waited <= bound, "{waited:?}, not within {bound:?}");
    assert!(!waited.is_zero());
}

#[test]
fn without_holds_the_largest_job_starves() {
    let _watchdog = watch();
    let mut world = world("[order]\nhold = \"0\"\n");
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        world.run(secs(3));
        world.flood(name, 2000, 5, secs(20 + index as u64));
    }
    world.run(secs(100));
    let big = world.job("big", 100, secs(20));
    world.submit([big.clone()]);
    world.run(secs(1200));
    assert_eq!(world.started_at(big.id), None, "this is what holds are for");
}

#[test]
fn a_low_one_starts_too_after_it_has_aged() {
    let _watchdog = watch();
    let mut world = world("[order]\nage_step = \"5m\"\n");
    for name in ["a", "b", "c"] {
        world.flood(name, 6000, 5, secs(20));
    }
    let mut big = world.job("big", 100, secs(20));
    big.priority = Priority::Low;
    world.submit([big.clone()]);
    let from = world.now;
    let started = world.run_until_started(big.id, secs(2000));
    let waited = started.mono - from.mono;
    let bound = flood_bound(300).wait();
    assert!(
        (secs(300)..=bound).contains(&waited),
        "{waited:?}, not within {bound:?}"
    );
}

#[test]
fn small_jobs_backfill_if_they_end_before_the_held_one_starts() {
    let _watchdog = watch();
    let mut world = world("");
    let long = honest(&mut world, "a", 60, 64);
    world.submit([long.clone()]);
    let big = honest(&mut world, "b", 100, 10);
    world.submit([big.clone()]);
    assert_eq!(world.planner.hold().map(|hold| hold.job), Some(big.id));
    let short = honest(&mut world, "c", 40, 32);
    let too_long = honest(&mut world, "c", 40, 65);
    let silent = world.job("c", 1, secs(1));
    world.submit([too_long.clone(), silent.clone(), short.clone()]);
    assert!(world.started_at(short.id).is_some(), "32 s fit before 64 s");
    assert_eq!(world.started_at(too_long.id), None, "65 s do not");
    assert_eq!(
        world.started_at(silent.id),
        None,
        "and of this nobody knows"
    );
    world.run(secs(40));
    assert_eq!(world.started_at(too_long.id), None);
    assert_eq!(world.started_at(silent.id), None);
    let at = world.run_until_started(big.id, secs(100));
    let delay = at.mono - world.started_at(long.id).unwrap().mono;
    assert_eq!(
        delay,
        secs(64),
        "the held job was not delayed by the one that passed it"
    );
}

#[test]
fn what_fits_beside_the_held_job_passes_however_long_it_takes() {
    let _watchdog = watch();
    let mut world = world("");
    let running = honest(&mut world, "a", 70, 60);
    world.submit([running]);
    let big = honest(&mut world, "b", 80, 10);
    world.submit([big.clone()]);
    let beside = world.job("c", 20, secs(10_000));
    let not_beside = world.job("c", 10, secs(10_000));
    world.submit([beside.clone(), not_beside.clone()]);
    assert!(world.started_at(beside.id).is_some());
    assert_eq!(
        world.started_at(not_beside.id),
        None,
        "30 were free, but 20 are all that the held job leaves"
    );
    let at = world.run_until_started(big.id, secs(100));
    assert_eq!(
        at.mono - world.started_at(beside.id).unwrap().mono,
        secs(60)
    );
}

#[test]
fn learnt_durations_let_jobs_pass_that_declare_none() {
    let _watchdog = watch();
    let mut world = world("");
    let running = honest(&mut world, "a", 60, 60);
    world.submit([running]);
    let big = honest(&mut world, "b", 100, 10);
    let silent = world.job("c", 10, secs(5));
    world.submit([big, silent.clone()]);
    assert_eq!(world.started_at(silent.id), None);
    let takes = secs(5);
    world.step(Event::Learnt {
        addon: addon("c"),
        job_type: kind("work"),
        takes: Some(takes),
        cost_factor: None,
    });
    assert!(world.started_at(silent.id).is_some());
}

#[test]
fn backfills_are_charged() {
    let _watchdog = watch();
    let mut world = world("");
    // For a long time only c's jobs pass; then c and d compete for what is free.
    let running = honest(&mut world, "a", 60, 600);
    world.submit([running]);
    let big = honest(&mut world, "b", 100, 1);
    world.submit([big.clone()]);
    let passing: Vec<Candidate> = (0..200).map(|_| honest(&mut world, "c", 10, 8)).collect();
    world.submit(passing);
    world.run(secs(200));
    assert!(world.units("c") > 600, "{}", world.units("c"));
    let other: Vec<Candidate> = (0..200).map(|_| honest(&mut world, "d", 10, 8)).collect();
    world.submit(other);
    let (c, d) = (world.units("c"), world.units("d"));
    world.run(secs(80));
    let (c, d) = (world.units("c") - c, world.units("d") - d);
    // Both passed while both waited: turns, not whoever was first in the queue.
    assert!(c.abs_diff(d) <= 110 && d > 0, "{c} and {d}");
}

#[test]
fn a_hold_ends_after_its_time_and_its_job_rests() {
    let _watchdog = watch();
    let mut world = world("[order]\nhold = \"60s\"\nrest = \"120s\"\n");
    let blocker = world.job("a", 60, secs(100_000));
    world.submit([blocker]);
    let big = world.job("b", 100, secs(10));
    world.submit([big.clone()]);
    let small = world.job("c", 10, secs(10));
    world.submit([small.clone()]);
    world.run(secs(58));
    assert_eq!(
        world.started_at(small.id),
        None,
        "nothing is known of the ends, so nothing passes"
    );
    world.run(secs(3));
    assert!(world.started_at(small.id).is_some(), "the hold has ended");
    assert_eq!(world.planner.hold(), None);
    world.run(secs(120));
    assert_eq!(
        world.planner.hold().map(|hold| hold.job),
        Some(big.id),
        "and comes back after the rest"
    );
}

#[test]
fn a_resting_job_does_not_keep_a_smaller_one_from_its_hold() {
    let _watchdog = watch();
    let mut world = world("[order]\nhold = \"60s\"\nrest = \"1h\"\n");
    let blocker = world.job("a", 30, secs(100_000));
    let short = world.job("a", 20, secs(100));
    world.submit([blocker, short]);
    let never = world.job("b", 100, secs(10));
    world.submit([never]);
    world.run(secs(65));
    let next = world.job("b", 60, secs(10));
    world.submit([next.clone()]);
    assert_eq!(world.planner.hold().map(|hold| hold.job), Some(next.id));
}

#[test]
fn capacity_is_held_only_while_it_could_carry_the_job() {
    let _watchdog = watch();
    let mut world = world("");
    let running = world.job("a", 30, secs(10_000));
    world.submit([running]);
    let mut big = world.job("b", 90, secs(10));
    big.priority = Priority::High;
    world.submit([big.clone()]);
    assert!(world.planner.hold().is_some());
    // At busy 4 there are 65 units: what costs 90 waits for that, and holds nothing back.
    world.level = 4.0;
    let mut small = world.job("c", 10, secs(10));
    small.priority = Priority::High;
    world.run(secs(4));
    world.submit([small.clone()]);
    assert_eq!(world.planner.hold(), None);
    assert!(world.started_at(small.id).is_some());
}

#[test]
fn a_higher_class_takes_a_hold_over_and_passes_it() {
    let _watchdog = watch();
    let mut world = world("");
    let running = world.job("a", 60, secs(50));
    world.submit([running]);
    let big = world.job("b", 90, secs(10));
    world.submit([big.clone()]);
    let high = |world: &mut World, cost| -> JobId {
        let mut job = world.job("c", cost, secs(1000));
        job.priority = Priority::High;
        let id = job.id;
        world.submit([job]);
        id
    };
    let small = high(&mut world, 10);
    assert!(
        world.started_at(small).is_some(),
        "it does not wait for a lower class"
    );
    assert_eq!(world.planner.hold().map(|hold| hold.job), Some(big.id));
    let large = high(&mut world, 90);
    assert_eq!(world.planner.hold().map(|hold| hold.job), Some(large));
}

#[test]
fn a_job_that_is_withdrawn_takes_its_hold_with_it() {
    let _watchdog = watch();
    let mut world = world("");
    let running = world.job("a", 60, secs(10_000));
    world.submit([running]);
    let big = world.job("b", 90, secs(10));
    let small = world.job("c", 10, secs(10));
    world.submit([big.clone(), small.clone()]);
    assert_eq!(world.started_at(small.id), None);
    world.step(Event::Withdrawn(big.id));
    assert!(world.started_at(small.id).is_some());
}
