//! Types that somebody serves, and those that nobody serves, in virtual time: what is reserved for whom, and when.

mod worlds;

use std::time::Duration;

use jobtree_protocol::{JobId, NodeId, Priority};
use jobtree_queue::candidate::{Candidate, ConcurrencyKey};
use jobtree_queue::hold::UnservedBound;
use jobtree_queue::planner::{ClaimAsk, Event, ListenScope, Mistake};
use worlds::world::{World, addon, kind};
use worlds::{policy, secs, watch};

const NO_RAMP: &str = "[ramp]\nunits_per_sample = 0\n";

/// A machine where nobody serves anything.
fn lonely() -> World {
    World::unserved(policy(NO_RAMP))
}

fn claim(id: u64, name: &str, types: &[&str]) -> Event {
    Event::Claim(ClaimAsk {
        id,
        addon: addon(name),
        types: types.iter().map(|name| kind(name)).collect(),
        jobs: 1,
        leases: 1,
    })
}

/// Submits a job of this type.
fn submit(world: &mut World, name: &str, job_type: &str, priority: Priority, cost: u32) -> JobId {
    let mut job = world.job(name, cost, secs(10));
    (job.job_type, job.priority) = (kind(job_type), priority);
    let id = job.id;
    world.submit([job]);
    id
}

/// Runs second by second until so many probes came back: how long nothing was out before each, and how long each was out.
fn probes(world: &mut World, count: usize) -> Vec<(u64, u64)> {
    let mut probes = Vec::new();
    while probes.len() < count {
        let (mut rested, mut out) = (0, 0);
        while world.planner.used() == 0 {
            world.run(secs(1));
            rested += 1;
            assert!(rested < 1000, "nothing is probed any more");
        }
        while world.planner.used() > 0 {
            world.run(secs(1));
            out += 1;
        }
        probes.push((rested, out));
    }
    probes
}

/// A served job starts at once beside six of a high priority that nobody serves; before, it waited for minutes.
#[test]
fn six_high_priority_jobs_that_nobody_serves_do_not_keep_a_served_job_waiting() {
    let _watchdog = watch();
    let mut world = World::unserved(policy(""));
    for _ in 0..6 {
        submit(&mut world, "nobody", "work", Priority::High, 30);
    }
    world.run(secs(4));
    // Its worker claims each two seconds, and does not wait.
    let served = submit(&mut world, "served", "work", Priority::Low, 30);
    for id in 0..120 {
        world.step(claim(id, "served", &[]));
        world.step(Event::ClaimEnded(id));
        world.run(secs(2));
    }
    let waited = world.started_at(served).expect("it started").mono;
    assert!(waited <= world.now.mono - secs(238), "at once");
}

/// Before, these six jobs wrote 17 280 rows a day: three of them were reserved and returned every 30 s.
#[test]
fn unserved_jobs_write_a_few_hundred_reservations_a_day() {
    let _watchdog = watch();
    let mut world = World::unserved(policy(""));
    world.every = secs(20);
    for _ in 0..6 {
        submit(&mut world, "nobody", "work", Priority::High, 30);
    }
    world.run(secs(86_400));
    let written = 2 * world.returned.len() + world.denials.len();
    assert!((100..=800).contains(&written), "{written}");
}

#[test]
fn an_unserved_type_has_one_probe_at_a_time_and_rests_for_longer_each_time() {
    let _watchdog = watch();
    let mut world = lonely();
    world.flood("a", 30, 30, secs(10));
    assert_eq!(world.planner.used(), 0, "nothing is reserved for nobody");
    let probes = probes(&mut world, 8);
    for (index, (rested, out)) in probes.iter().enumerate() {
        assert_eq!(*out, 30);
        let whole = (30_u64 << index.saturating_sub(1)).min(300);
        assert!(
            (whole * 3 / 4 - 1..=whole + 1).contains(rested),
            "{rested} s before probe {index}, and not up to {whole}"
        );
    }
    assert_eq!(world.returned.len(), 8, "one after the other");
    // Another type has its own.
    let mut world = lonely();
    for job_type in ["t", "u", "v"] {
        submit(&mut world, "a", job_type, Priority::Normal, 10);
        submit(&mut world, "a", job_type, Priority::Normal, 10);
    }
    world.run(secs(31));
    assert_eq!(world.planner.used(), 30);
}

#[test]
fn a_poll_reserves_in_the_same_step_all_that_may_start() {
    let _watchdog = watch();
    for polled in [Some(addon("a")), None] {
        let mut world = lonely();
        world.flood("a", 2, 30, secs(10));
        submit(&mut world, "a", "other", Priority::Normal, 30);
        world.run(secs(10));
        let addon = Some(addon("b"));
        world.step(Event::Polled { addon });
        assert_eq!(world.planner.reserved(), 0, "that is another addon");
        world.step(Event::Polled { addon: polled });
        assert_eq!(world.planner.reserved(), 90);
    }
}

/// The specification's flow A: a poll by `curl` each minute. Each finds what waits, and what it finds can be accepted.
#[test]
fn a_poll_each_minute_finds_every_job() {
    let _watchdog = watch();
    let mut world = lonely();
    for minute in 0..10 {
        let job = submit(&mut world, "a", "work", Priority::Normal, 30);
        world.run(secs(7));
        if minute >= 2 {
            // By then it is known to come each minute.
            assert!(!world.planner.is_waiting(job), "minute {minute}");
        }
        world.workers = true;
        world.poll("a");
        world.workers = false;
        if world.started_at(job).is_none() {
            let lease = jobtree_protocol::LeaseId::from_random([minute; 16]);
            world.step(Event::Accepted { job, lease });
            world.step(Event::Freed(jobtree_queue::ledger::Holder::Lease(lease)));
        }
        assert!(!world.planner.is_waiting(job), "minute {minute}");
        world.run(secs(53));
    }
    assert_eq!(world.returned, []);
}

#[test]
fn a_listener_is_served_until_it_goes() {
    let _watchdog = watch();
    for name in [None, Some("a")] {
        let mut world = lonely();
        let listen = |listeners| Event::Listening {
            scope: ListenScope {
                addon: name.map(addon),
                job_type: None,
            },
            listeners,
        };
        world.step(listen(2));
        world.workers = true;
        world.run(secs(3600));
        let job = submit(&mut world, "a", "work", Priority::Normal, 30);
        assert!(world.started_at(job).is_some(), "an hour later, too");
        let other = submit(&mut world, "b", "work", Priority::Normal, 30);
        assert_eq!(world.started_at(other).is_some(), name.is_none());
        world.step(listen(1));
        let job = submit(&mut world, "a", "work", Priority::Normal, 10);
        assert!(world.started_at(job).is_some());
        world.run(secs(20));
        world.step(listen(0));
        let job = submit(&mut world, "a", "work", Priority::Normal, 10);
        assert!(world.started_at(job).is_some(), "accepted 20 s ago");
        world.run(secs(700));
        let job = submit(&mut world, "a", "work", Priority::Normal, 10);
        assert_eq!(world.started_at(job), None);
    }
}

#[test]
fn a_listener_for_one_type_serves_that_type_alone() {
    let _watchdog = watch();
    for name in [None, Some("a")] {
        let mut world = lonely();
        let listen = |job_type: &str, listeners| Event::Listening {
            scope: ListenScope {
                addon: name.map(addon),
                job_type: Some(job_type.parse().unwrap()),
            },
            listeners,
        };
        world.workers = true;
        world.step(listen("work", 1));
        let other = submit(&mut world, "a", "other", Priority::High, 10);
        let job = submit(&mut world, "a", "work", Priority::Normal, 10);
        assert!(world.started_at(job).is_some());
        assert_eq!(world.started_at(other), None);
        let elsewhere = submit(&mut world, "b", "work", Priority::Normal, 10);
        assert_eq!(world.started_at(elsewhere).is_some(), name.is_none());
        // Another one comes, and the first goes.
        world.step(listen("other", 1));
        assert!(world.started_at(other).is_some());
        world.step(listen("work", 0));
        world.run(secs(700));
        let job = submit(&mut world, "a", "work", Priority::Normal, 10);
        assert_eq!(world.started_at(job), None);
        let other = submit(&mut world, "a", "other", Priority::Normal, 10);
        assert!(world.started_at(other).is_some());
    }
}

/// Workers that claim find their jobs in the queue: reservations in between would only cost a second command each.
#[test]
fn what_is_only_claimed_is_not_reserved() {
    let _watchdog = watch();
    let mut world = lonely();
    let jobs = world.flood("a", 10, 10, secs(3));
    for id in 0..10 {
        world.step(claim(id, "a", &["work"]));
        assert_eq!(world.planner.reserved(), 0);
        world.run(secs(5));
        assert_eq!(world.planner.reserved(), 0);
    }
    assert!(jobs.iter().all(|job| world.started_at(*job).is_some()));
    assert_eq!(world.returned, []);
}

#[test]
fn a_claim_gets_the_probe_and_one_for_another_type_does_not() {
    let _watchdog = watch();
    let mut world = lonely();
    let job = world.flood("a", 1, 30, secs(10))[0];
    world.run(secs(31));
    assert_eq!(world.planner.reserved(), 30, "on probe");
    world.step(claim(1, "a", &["other"]));
    assert_eq!(world.planner.reserved(), 30);
    world.step(claim(2, "a", &["work"]));
    assert!(world.started_at(job).is_some());
    assert_eq!((world.planner.used(), world.planner.reserved()), (30, 0));
}

#[test]
fn reservations_that_nobody_accepts_are_evidence_against_polls_and_listeners() {
    let _watchdog = watch();
    for listens in [false, true] {
        let mut world = lonely();
        world.listen(u32::from(listens));
        world.flood("a", 3, 30, secs(10));
        // Somebody polls each two seconds, and wants other types.
        for _ in 0..300 {
            world.poll("a");
            world.run(secs(2));
        }
        // Two rounds of three, then one probe at a time.
        assert!(
            (7..=10).contains(&world.returned.len()),
            "{:?}",
            world.returned
        );
        // A claim for it shows that there is a worker: listeners are trusted again.
        world.step(claim(1, "a", &["work"]));
        world.run(secs(1));
        world.poll("a");
        assert_eq!(world.planner.used(), 90);
    }
}

/// A probe is for jobs that ask for this very node, too.
#[test]
fn a_required_node_does_not_make_a_type_served() {
    let _watchdog = watch();
    let mut world = lonely();
    for _ in 0..3 {
        let mut here = world.job("a", 10, secs(10));
        here.node = Some(NodeId::new("here").unwrap());
        world.submit([here]);
    }
    assert_eq!(world.planner.used(), 0);
    world.run(secs(31));
    assert_eq!(world.planner.used(), 10, "one probe");
    world.poll("a");
    assert_eq!(world.planner.used(), 30);
}

#[test]
fn no_probe_begins_while_a_served_job_wants_units() {
    let _watchdog = watch();
    let mut world = lonely();
    world.occupy("b", 60);
    // It does not fit: for the worker that waits, capacity is held, or it rests from that.
    world.step(claim(1, "served", &[]));
    submit(&mut world, "served", "work", Priority::Low, 50);
    submit(&mut world, "nobody", "work", Priority::High, 10);
    world.run(secs(4000));
    assert_eq!((world.planner.used(), world.returned.len()), (60, 0));
    // One whose worker is between two claims wants them, too.
    let mut world = lonely();
    submit(&mut world, "nobody", "work", Priority::High, 10);
    for id in 0..100 {
        submit(&mut world, "served", "work", Priority::Low, 50);
        world.step(claim(id, "served", &[]));
        submit(&mut world, "served", "work", Priority::Low, 50);
        world.run(secs(1));
    }
    assert_eq!(world.returned.len(), 0);
    assert_eq!(world.planner.reserved(), 0);
}

#[test]
fn a_probe_is_not_the_one_that_is_allowed_when_quiet_never_comes() {
    let _watchdog = watch();
    let mut world = World::unserved(policy("[quiet]\nallow_one_after = \"1h\""));
    world.level = 4.0;
    submit(&mut world, "nobody", "work", Priority::Normal, 10);
    world.run(secs(3 * 3600));
    assert_eq!(world.returned, []);
    world.workers = true;
    let served = submit(&mut world, "a", "work", Priority::Normal, 10);
    world.poll("a");
    assert!(world.started_at(served).is_some());
}

#[test]
fn nothing_is_owed_for_what_nobody_accepted() {
    let _watchdog = watch();
    let mut world = lonely();
    world.flood("a", 1, 100, secs(10));
    probes(&mut world, 6);
    world.workers = true;
    world.step(claim(1, "a", &[]));
    world.run(secs(11));
    world.listen(1);
    world.flood("a", 400, 10, secs(10));
    world.flood("b", 400, 10, secs(10));
    let before = (world.units("a"), world.units("b"));
    world.run(secs(200));
    let (a, b) = (world.units("a") - before.0, world.units("b") - before.1);
    assert!(a.abs_diff(b) <= 110 && a > 500, "{a} and {b}");
}

/// A generator whose whole state is a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The longest wait of served jobs, each of which could start at once on a machine of its own, beside any number of
/// unserved ones; and what the formula allows.
fn longest_wait(seed: u64, mistake: Option<Mistake>) -> (Duration, Duration) {
    let mut random = Random(seed * 0x9E37_79B9 + 1);
    let take_up = secs(5 + random.below(60));
    let (ramp, step) = (random.below(2) * 25, 1 + random.below(7));
    let shares_key = random.below(2) == 0;
    let text = format!(
        "[ramp]\nunits_per_sample = {ramp}\n[dispatch]\ntake_up = \"{}s\"\n",
        take_up.as_secs()
    );
    let mut world = World::unserved(policy(&text));
    world.planner.step(Event::Kick, world.now);
    if let Some(mistake) = mistake {
        world.planner.plant(mistake);
    }
    let key = shares_key.then(|| ConcurrencyKey {
        key: "k".into(),
        limit: 1 + random.below(3) as u32,
    });
    let mut served: Vec<(JobId, Duration)> = Vec::new();
    let mut next_claim = 0;
    for _ in 0..300 {
        // Unserved ones come all the time: of many types, in the served addon too, large and small, all urgent.
        for _ in 0..random.below(4) {
            let cost = [1, 10, 30, 100][random.below(4) as usize];
            let name = ["nobody", "served"][random.below(2) as usize];
            let mut job = world.job(name, cost, secs(10));
            job.job_type = kind(&format!("t{}", random.below(40)));
            job.priority = Priority::High;
            job.time_sensitive = random.below(2) == 0;
            if shares_key && random.below(2) == 0 {
                job.key = Some(ConcurrencyKey {
                    key: "k".into(),
                    limit: 3,
                });
            }
            world.submit([job]);
        }
        // A served one, one at a time: its worker waits for it, or comes a moment later.
        let idle = served
            .last()
            .is_none_or(|(job, _)| world.started_at(*job).is_some());
        if idle && random.below(3) == 0 {
            let mut job = world.job("served", 1 + random.below(100) as u32, secs(1));
            job.job_type = kind("work");
            job.priority = Priority::ALL[random.below(3) as usize];
            job.key = key.clone();
            let (id, before) = (job.id, random.below(2) == 0);
            next_claim += 1;
            if before {
                world.step(claim(next_claim, "served", &["work"]));
            }
            world.submit([job]);
            if !before {
                world.step(claim(next_claim, "served", &["work"]));
            }
            served.push((id, world.now.mono));
        }
        world.run(secs(step));
    }
    let waits = served.iter().map(|(job, at)| {
        let started = world
            .started_at(*job)
            .map_or(world.now.mono, |now| now.mono);
        started - *at
    });
    let bound = UnservedBound {
        take_up,
        returned_after: Duration::ZERO,
        sampled_every: world.every,
        shares_key,
        hears_after: Duration::ZERO,
    };
    // The job before it takes a second.
    let bound = bound.wait().expect("one node") + secs(1);
    (waits.max().expect("some are served"), bound)
}

#[test]
fn the_bound_on_a_served_jobs_wait_holds_beside_any_number_of_unserved_ones() {
    let _watchdog = watch();
    let factor: u64 = std::env::var("JOBTREE_STRESS").map_or(1, |factor| factor.parse().unwrap());
    let mut reached: f64 = 0.0;
    for seed in 1..=20 * factor {
        let (longest, bound) = longest_wait(seed, None);
        assert!(longest <= bound, "seed {seed}: {longest:?}, not {bound:?}");
        reached = reached.max(longest.as_secs_f64() / bound.as_secs_f64());
    }
    assert!(reached > 0.4, "the bound is not for show: {reached}");
    let broken = (1..=20).any(|seed| {
        let (longest, bound) = longest_wait(seed, Some(Mistake::ReserveForNobody));
        longest > bound
    });
    assert!(broken, "capacity held for nobody is not noticed");
}

/// Nodes that do not serve a job leave it to the one that does, however many they are: in the worst case each of the former
/// is always faster.
#[test]
fn nodes_that_do_not_serve_a_type_leave_its_jobs_to_the_one_that_does() {
    let _watchdog = watch();
    let hears_after = secs(5);
    for nodes in [1, 5, 50] {
        let mut others: Vec<World> = (0..nodes).map(|_| lonely()).collect();
        let job = others[0].job("a", 10, secs(10));
        let (mut waited, mut free) = (Duration::ZERO, Duration::ZERO);
        let mut holder: Option<usize> = None;
        for world in &mut others {
            world.jobs.insert(job.id, (job.clone(), secs(10)));
            world.submit([job.clone()]);
        }
        // Until one has it on probe: then a worker comes, at the node that is not among these.
        while holder.is_none() {
            others.iter_mut().for_each(|world| world.run(secs(1)));
            holder = others.iter().position(|world| world.planner.used() > 0);
        }
        let first = holder.unwrap();
        for world in others.iter_mut().filter(|world| world.planner.used() == 0) {
            world.step(Event::Withdrawn(job.id));
        }
        // The others that were as quick lose.
        let quick = 0..nodes;
        for index in quick.filter(|index| *index != first) {
            if others[index].planner.used() > 0 {
                let (job, outcome) = (job.id, jobtree_queue::planner::Outcome::Lost);
                others[index].step(Event::Answered { job, outcome });
            }
        }
        while free < hears_after {
            others.iter_mut().for_each(|world| world.run(secs(1)));
            waited += secs(1);
            if let Some(index) = holder
                && !others[index].returned.is_empty()
            {
                // It is back at its node; the others hear of it at once.
                others[index].returned.clear();
                holder = None;
                for world in &mut others {
                    world.submit([job.clone()]);
                }
            } else if holder.is_none() {
                holder = others.iter().position(|world| world.planner.used() > 0);
            }
            free = if holder.is_some() {
                Duration::ZERO
            } else {
                free + secs(1)
            };
            assert!(waited < secs(7200), "{nodes} nodes keep it for ever");
        }
        let bound = UnservedBound {
            take_up: secs(30),
            returned_after: secs(1),
            sampled_every: secs(2),
            shares_key: false,
            hears_after: Duration::ZERO,
        };
        // The node that serves it has its units free.
        let bound = bound.wait().expect("there is one") + hears_after;
        assert!(waited > secs(30), "it was on probe");
        assert!(
            waited <= bound,
            "{waited:?} with {nodes} nodes, and not {bound:?}"
        );
    }
}

/// Five nodes on one store, and many jobs of a type that none of them serves: each node has its own rests, and had a probe of
/// its own out beside those of the others.
#[test]
fn a_type_is_probed_at_one_node_at_a_time() {
    let _watchdog = watch();
    let mut nodes: Vec<World> = (0..5).map(|_| lonely()).collect();
    let mut jobs = Vec::new();
    for _ in 0..30 {
        jobs.push(nodes[0].job("a", 10, secs(10)));
    }
    for node in &mut nodes {
        for job in &jobs {
            node.jobs.insert(job.id, (job.clone(), secs(10)));
        }
        node.submit(jobs.clone());
    }
    let mut probes = vec![0; nodes.len()];
    for second in 0..3600 {
        for index in 0..nodes.len() {
            nodes[index].run(secs(1));
            let reserved = std::mem::take(&mut nodes[index].reserved);
            let returned = std::mem::take(&mut nodes[index].returned);
            probes[index] += reserved.len();
            // The others hear of it at once.
            for (other, node) in nodes.iter_mut().enumerate() {
                if other == index {
                    continue;
                }
                for (job, until) in reserved.iter().copied() {
                    let candidate = node.jobs[&job].0.clone();
                    node.step(Event::ReservedElsewhere { candidate, until });
                }
                let known = jobs.iter().filter(|job| returned.contains(&job.id));
                node.submit(known.cloned());
            }
        }
        let out = nodes.iter().filter(|node| node.planner.used() > 0).count();
        assert!(out <= 1, "{out} nodes probe in second {second}");
    }
    assert!(probes.iter().sum::<usize>() >= 10, "{probes:?}");
}

/// A node at which a type is served has a reservation of it out all the time. Jobs that only another node may run are probed
/// there all the same.
#[test]
fn a_probe_does_not_wait_for_another_node_for_ever() {
    let _watchdog = watch();
    let mut world = lonely();
    submit(&mut world, "a", "work", Priority::Normal, 10);
    let mut other = world.job("a", 10, secs(10));
    other.job_type = kind("work");
    let mut waited = 0;
    while world.reserved.is_empty() {
        let (candidate, until) = (other.clone(), world.now.mono + secs(30));
        world.step(Event::ReservedElsewhere { candidate, until });
        world.run(secs(1));
        waited += 1;
        assert!(waited < 1000, "it waits for ever");
    }
    // Its own rest of half a minute, and five minutes more.
    assert!((300..=340).contains(&waited), "{waited}");
}

/// A node where a claim waits for a job that is reserved for another node, for a minute at most, beside unserved jobs as large
/// as the machine.
fn with_a_job_away() -> (World, Candidate) {
    let mut world = lonely();
    world.step(claim(1, "served", &["work"]));
    let mut job = world.job("served", 10, secs(1));
    job.job_type = kind("work");
    world.jobs.insert(job.id, (job.clone(), secs(1)));
    for name in ["t", "u", "v"] {
        submit(&mut world, "nobody", name, Priority::High, 100);
    }
    let (candidate, until) = (job.clone(), world.now.mono + secs(60));
    world.step(Event::ReservedElsewhere { candidate, until });
    (world, job)
}

/// A job that a claim waits for is on probe at another node: when it is back, it finds units here. Before, this node began
/// probes of its own meanwhile, and again each time that the job was away.
#[test]
fn no_probe_begins_while_a_job_that_a_claim_waits_for_is_reserved_for_another_node() {
    let _watchdog = watch();
    let (mut world, job) = with_a_job_away();
    for _ in 0..55 {
        world.run(secs(1));
        assert_eq!(world.planner.used(), 0, "units are kept for it");
    }
    world.submit([job.clone()]);
    assert!(world.started_at(job.id).is_some(), "it is back");
    // Without a claim that waits, once it must be back, and once it is gone, the others are tried.
    world.run(secs(40));
    assert_eq!(world.planner.used(), 100, "no claim waits");
    let (mut world, _) = with_a_job_away();
    world.run(secs(70));
    assert_eq!(world.planner.used(), 100, "it must be back");
    let (mut world, job) = with_a_job_away();
    world.step(Event::Withdrawn(job.id));
    world.run(secs(40));
    assert_eq!(world.planner.used(), 100, "it runs at another node");
}
