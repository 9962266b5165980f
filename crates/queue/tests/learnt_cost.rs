//! What admission charges if the policy learns costs: within bounds, for what waits and for what runs, and not if it is
//! switched off.

mod worlds;

use std::sync::Arc;

use jobtree_protocol::{JobId, LeaseId};
use jobtree_queue::planner::{Event, LiveLease};
use jobtree_queue::policy::Policy;
use worlds::world::{World, addon, kind};
use worlds::{policy, secs, watch};

const LEARNS: &str = "[ramp]\nunits_per_sample = 0\n[cost]\nlearn = true\n";
const LEARNS_NOT: &str = "[ramp]\nunits_per_sample = 0\n";

fn learnt(world: &mut World, factor: f64) {
    world.step(Event::Learnt {
        addon: addon("a"),
        job_type: kind("work"),
        takes: None,
        cost_factor: Some(factor),
    });
}

/// Submits a job of an hour.
fn submit(world: &mut World, cost: u32) -> JobId {
    let job = world.job("a", cost, secs(3600));
    let id = job.id;
    world.submit([job]);
    id
}

/// The units in use when a job of this cost has started, whose type was learnt.
fn used(text: &str, factor: f64, cost: u32) -> u32 {
    let mut world = World::new(policy(text));
    learnt(&mut world, factor);
    let job = submit(&mut world, cost);
    assert!(world.started_at(job).is_some());
    world.planner.used()
}

#[test]
fn the_learnt_cost_is_charged_within_its_bounds() {
    let _watchdog = watch();
    assert_eq!(used(LEARNS, 1.5, 30), 45);
    assert_eq!(used(LEARNS, 9.0, 30), 60, "twice at most");
    assert_eq!(used(LEARNS, 0.01, 30), 15, "half at least");
    assert_eq!(used(LEARNS, 0.01, 1), 1, "one unit at least");
    assert_eq!(used(LEARNS, 9.0, 80), 100, "the job can still start");
}

#[test]
fn the_declared_cost_is_charged_unless_the_policy_says_otherwise() {
    let _watchdog = watch();
    assert!(!Policy::default().cost.learn);
    assert_eq!(used(LEARNS_NOT, 1.5, 30), 30);
}

#[test]
fn jobs_that_wait_already_are_charged_by_what_is_learnt() {
    let _watchdog = watch();
    let mut world = World::new(policy(LEARNS));
    submit(&mut world, 60);
    let waits = submit(&mut world, 60);
    assert_eq!(world.started_at(waits), None, "120 units do not fit");
    learnt(&mut world, 0.5);
    assert!(world.started_at(waits).is_some(), "half of them do");
}

#[test]
fn switching_it_off_charges_waiting_jobs_as_they_declare() {
    let _watchdog = watch();
    let mut world = World::new(policy(LEARNS));
    submit(&mut world, 100);
    let waits = submit(&mut world, 40);
    let charged = |world: &World| {
        let candidate = world.planner.candidate(waits).expect("it waits");
        (candidate.declared, candidate.cost)
    };
    learnt(&mut world, 2.0);
    assert_eq!(charged(&world), (40, 80));
    world.step(Event::PolicyChanged(policy(LEARNS_NOT)));
    assert_eq!(charged(&world), (40, 40));
    world.step(Event::PolicyChanged(Arc::clone(&policy(LEARNS))));
    assert_eq!(charged(&world), (40, 80));
}

#[test]
fn a_small_difference_moves_no_job() {
    let _watchdog = watch();
    let mut world = World::new(policy(LEARNS));
    submit(&mut world, 100);
    let waits = submit(&mut world, 40);
    for (factor, cost) in [(1.5, 60), (1.55, 60), (1.45, 60), (1.9, 76)] {
        learnt(&mut world, factor);
        let candidate = world.planner.candidate(waits).expect("it waits");
        assert_eq!(candidate.cost, cost, "{factor}");
    }
}

#[test]
fn leases_of_jobs_are_charged_as_their_type_and_capacity_is_charged_as_asked_for() {
    let _watchdog = watch();
    let mut world = World::new(policy(LEARNS));
    learnt(&mut world, 1.5);
    let lease = |number: u8, job_type| LiveLease {
        lease: LeaseId::from_random([number; 16]),
        addon: addon("a"),
        units: 20,
        job_type,
        key: None,
        ends_in: None,
    };
    world.step(Event::Leased(lease(1, Some(kind("work")))));
    assert_eq!(world.planner.used(), 30);
    world.step(Event::Leased(lease(2, None)));
    assert_eq!(world.planner.used(), 50);
}
