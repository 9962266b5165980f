//! Addons that nobody here takes dispatches up for, in virtual time: their jobs are left to other nodes, and when that ends.

mod worlds;

use std::time::Duration;

use jobtree_protocol::NodeId;
use jobtree_queue::dispatch::{ClaimAsk, Event};
use jobtree_queue::hold::VainBound;
use worlds::world::{World, addon, kind};
use worlds::{policy, secs, watch};

/// A node that shares its store, at which nobody takes anything up.
fn lonely() -> World {
    let mut world = World::new(policy("[ramp]\nunits_per_sample = 0\n"));
    world.dispatcher.set_shared(true);
    world.workers = false;
    world
}

/// Looks each second, until so many dispatches came back: how long each was out, and how long nothing was after it.
fn tries(world: &mut World, count: usize) -> Vec<(u64, u64)> {
    let mut tries = Vec::new();
    while tries.len() < count {
        let (mut out, mut rested) = (0, 0);
        while world.dispatcher.used() > 0 {
            world.run(secs(1));
            out += 1;
        }
        while world.dispatcher.used() == 0 {
            world.run(secs(1));
            rested += 1;
            assert!(rested < 1000, "nothing is tried any more");
        }
        tries.push((out, rested));
    }
    tries
}

#[test]
fn what_nobody_takes_up_is_left_to_others_for_longer_each_time() {
    let _watchdog = watch();
    let mut world = lonely();
    // Three are out together, and count once.
    let jobs = world.flood("a", 3, 30, secs(10));
    assert_eq!(world.dispatcher.used(), 90);
    let tries = tries(&mut world, 7);
    for (index, (out, rested)) in tries.iter().enumerate() {
        assert_eq!(*out, 30);
        let whole = (30 << index).min(300);
        assert!(
            (whole * 3 / 4 - 1..=whole + 1).contains(rested),
            "{rested} s after try {index}, and not up to {whole}"
        );
    }
    assert_eq!(world.returned.len(), 7 * 3);
    assert_eq!(world.dispatcher.waiting() + 3, jobs.len());
}

#[test]
fn whoever_asks_gets_it_at_once() {
    let _watchdog = watch();
    for asked in [Some(addon("a")), None] {
        let mut world = lonely();
        let jobs = world.flood("a", 2, 30, secs(10));
        tries(&mut world, 4);
        world.run(secs(35));
        assert_eq!(world.dispatcher.used(), 0, "it rests for minutes by now");
        world.step(Event::Shown(Some(addon("b"))));
        assert_eq!(world.dispatcher.used(), 0, "that is somebody else");
        world.workers = true;
        world.step(Event::Shown(asked));
        assert!(jobs.iter().all(|job| world.started_at(*job).is_some()));
        // It is forgotten: the next that is not taken up is the first one again.
        world.run(secs(20));
        world.workers = false;
        world.flood("a", 1, 30, secs(10));
        let (_, rested) = tries(&mut world, 1)[0];
        assert!(rested <= 31, "{rested}");
    }
}

#[test]
fn whoever_asks_and_takes_nothing_up_is_not_waited_for() {
    let _watchdog = watch();
    let mut world = lonely();
    world.flood("a", 1, 30, secs(10));
    let mut dispatched = Vec::new();
    // Somebody of the addon asks every two seconds, and wants other types.
    for second in 0..400_u64 {
        let before = world.dispatcher.used();
        if second % 2 == 0 {
            world.step(Event::Shown(Some(addon("a"))));
        }
        if before == 0 && world.dispatcher.used() > 0 {
            dispatched.push(second);
        }
        world.run(secs(1));
    }
    assert_eq!(dispatched.len(), 2, "trusted twice: {dispatched:?}");
    assert!(dispatched[1] < 70);
    // For the rest of the time it is left to others, but for one try.
    assert!(world.returned.len() <= 4, "{:?}", world.returned);
}

#[test]
fn a_claim_gets_it_and_one_for_another_type_does_not() {
    let _watchdog = watch();
    let mut world = lonely();
    let job = world.flood("a", 1, 30, secs(10))[0];
    world.run(secs(31));
    let claim = |id, types| {
        Event::Claim(ClaimAsk {
            id,
            addon: addon("a"),
            types,
            jobs: 1,
            leases: 1,
        })
    };
    world.step(claim(1, vec![kind("other")]));
    assert_eq!(world.dispatcher.used(), 0);
    world.step(claim(2, vec![kind("work")]));
    assert!(world.started_at(job).is_some());
}

#[test]
fn others_are_not_concerned() {
    let _watchdog = watch();
    let mut world = lonely();
    world.flood("a", 1, 10, secs(10));
    let mut here = world.job("a", 10, secs(10));
    here.node = Some(NodeId::new("here").unwrap());
    let here_id = here.id;
    world.submit([here]);
    world.run(secs(31));
    assert_eq!(
        world.dispatcher.used(),
        10,
        "it asks for this node: tried again"
    );
    world.workers = true;
    let mut other_type = world.job("a", 10, secs(10));
    other_type.job_type = kind("other");
    let other_type_id = other_type.id;
    world.submit([other_type]);
    let other_addon = world.flood("b", 1, 10, secs(10))[0];
    assert!(world.started_at(other_type_id).is_some());
    assert!(world.started_at(other_addon).is_some());
    assert!(!world.dispatcher.is_waiting(here_id));
    assert_eq!(world.dispatcher.waiting(), 1);
    // Alone again: nobody else could have it.
    world.dispatcher.set_shared(false);
    world.step(Event::Kick);
    assert_eq!(world.dispatcher.waiting(), 0);
}

#[test]
fn nothing_is_owed_for_what_nobody_took_up() {
    let _watchdog = watch();
    let mut world = lonely();
    world.flood("a", 1, 100, secs(10));
    tries(&mut world, 6);
    world.run(secs(31));
    world.workers = true;
    world.step(Event::Shown(None));
    world.run(secs(11));
    world.flood("a", 400, 10, secs(10));
    world.flood("b", 400, 10, secs(10));
    let before = (world.units("a"), world.units("b"));
    world.run(secs(200));
    let (a, b) = (world.units("a") - before.0, world.units("b") - before.1);
    assert!(a.abs_diff(b) <= 110 && a > 500, "{a} and {b}");
}

/// Nodes without anybody, and one with: in the worst case each of the former is always faster.
#[test]
fn the_bound_holds_when_the_others_are_always_faster() {
    let _watchdog = watch();
    let hears_after = secs(5);
    for nodes in 1..=5_u32 {
        let mut vain: Vec<World> = (0..nodes).map(|_| lonely()).collect();
        let mut waited = Duration::ZERO;
        let mut free = Duration::ZERO;
        let mut holder: Option<usize> = None;
        let job = vain[0].job("a", 10, secs(10));
        while free < hears_after {
            if let Some(index) = holder
                && !vain[index].returned.is_empty()
            {
                vain[index].returned.clear();
                vain[index].step(Event::Withdrawn(job.id));
                holder = None;
            }
            if holder.is_none() {
                holder = (0..nodes as usize).find(|index| {
                    let world = &mut vain[*index];
                    world.jobs.insert(job.id, (job.clone(), secs(10)));
                    world.submit([job.clone()]);
                    let has = world.dispatcher.used() > 0;
                    if !has {
                        world.step(Event::Withdrawn(job.id));
                    }
                    has
                });
            }
            free = if holder.is_some() {
                Duration::ZERO
            } else {
                free + secs(1)
            };
            waited += secs(1);
            assert!(waited < secs(7200), "{nodes} nodes keep it for ever");
            for world in &mut vain {
                world.run(secs(1));
            }
        }
        let bound = VainBound {
            nodes,
            take_up: secs(30),
            hears_after,
        };
        // One second more a try, for here all happens at seconds.
        let bound = bound
            .wait()
            .expect("so few nodes have one")
            .mul_f64(36.0 / 35.0);
        assert!(waited > secs(30), "it was tried in vain");
        assert!(
            waited <= bound + secs(5),
            "{waited:?} with {nodes} nodes, and not {bound:?}"
        );
    }
}
