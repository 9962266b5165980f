//! Explanations: apply exactly the changes that are named, and the job starts; apply a proper part of them, and it does
//! not. Applied for real: samples, time, releases, resumptions, not suppositions.

mod worlds;

use jobtree_protocol::{Constraints, JobId, LeaseId, NodeId, Priority};
use jobtree_queue::block::Block;
use jobtree_queue::candidate::ConcurrencyKey;
use jobtree_queue::change::Change;
use jobtree_queue::explain::Explanation;
use jobtree_queue::ledger::Holder;
use jobtree_queue::planner::{ClaimAsk, Event};
use worlds::world::{World, addon, kind};
use worlds::{policy, secs, watch};

/// A world, a job in it, and what to do for changes that only the test knows how to bring about.
struct Case {
    world: World,
    job: JobId,
    /// Leases of one unit each that are freed for units, and leases for leases.
    leases: Vec<LeaseId>,
    /// What makes a freed place for the key.
    key: Option<Event>,
    node: Option<Event>,
}

impl Case {
    fn new(world: World, job: JobId) -> Case {
        Case {
            world,
            job,
            leases: Vec::new(),
            key: None,
            node: None,
        }
    }

    fn explain(&mut self) -> Explanation {
        self.world
            .planner
            .explain(self.job, self.world.now)
            .unwrap()
    }

    /// Brings changes about; the machine's last, for jobs that have their way free start at once.
    fn bring_about(&self, changes: &[Change]) -> World {
        let mut world = self.world.clone();
        let rank = |change: &Change| match change {
            Change::JobsGone(_) => 0,
            Change::FreeUnits(_) | Change::FreeLeases(_) => 1,
            Change::BusyAtMost { .. }
            | Change::Wait(_)
            | Change::WaitUntil(_)
            | Change::NextSample => 3,
            _ => 2,
        };
        let mut changes = changes.to_vec();
        changes.sort_by_key(rank);
        for change in changes {
            self.bring_one_about(&mut world, change);
        }
        world.step(Event::Kick);
        world
    }

    fn bring_one_about(&self, world: &mut World, change: Change) {
        match change {
            Change::BusyAtMost { busy, lasting, .. } => {
                world.level = world.level.min(busy);
                world.psi_io = world.psi_io.map(|psi| psi.min(5.0 + 5.5 * busy));
                world.run(lasting + world.every * 2);
            }
            Change::PressureAtMost { level, .. } => {
                world.psi_io = world.psi_io.map(|psi| psi.min(5.0 + 5.5 * level));
                world.run(world.every * 2);
            }
            Change::Wait(time) => world.run(time),
            Change::WaitUntil(at) => {
                let left = at.duration_since(world.now.wall);
                world.run(left.unsigned_abs());
            }
            Change::NextSample => world.measure(),
            Change::FreeUnits(count)
            | Change::FreeLeases(count)
            | Change::FreeAddonLeases(count)
            | Change::FreeAddonUnits(count) => {
                for lease in &self.leases[..count as usize] {
                    world.step(Event::Freed(Holder::Lease(*lease)));
                }
            }
            Change::ResumeAddon => world.step(Event::AddonPaused(addon("a"), false)),
            Change::ResumeType => world.step(Event::TypePaused(addon("a"), kind("work"), false)),
            Change::FreeKey(_) => world.step(self.key.clone().unwrap()),
            Change::OtherNode => world.step(self.node.clone().unwrap()),
            Change::StopDraining => world.step(Event::Drain(false)),
            Change::Worker | Change::Serve { .. } => {
                let ask = ClaimAsk {
                    id: 1,
                    addon: addon("a"),
                    types: Vec::new(),
                    jobs: 1,
                    leases: 1,
                };
                world.step(Event::Claim(ask));
            }
            Change::JobsGone(jobs) => {
                for job in jobs {
                    world.step(Event::Withdrawn(job));
                }
            }
        }
    }

    /// The contract. Returns the codes of the obstacles.
    fn check(&mut self) -> Vec<String> {
        assert_eq!(self.world.started_at(self.job), None, "it waits");
        let mut untouched = self.world.clone();
        let explanation = self.explain();
        let again = self.explain();
        assert_eq!(explanation, again, "to explain changes nothing");
        // What lists show is what an explanation begins with.
        let first = self.world.planner.first_obstacle(self.job, self.world.now);
        let listed = first.map(|obstacle| obstacle.block.code());
        let explained = explanation.obstacles.first();
        assert_eq!(listed, explained.map(|obstacle| obstacle.block.code()));
        let mut explained = self.world.clone();
        for world in [&mut untouched, &mut explained] {
            world.level = 0.0;
            world.run(secs(300));
        }
        assert_eq!(
            untouched.started, explained.started,
            "nor what happens then"
        );
        assert!(
            explanation.exact && !explanation.obstacles.is_empty(),
            "{explanation:#?}"
        );
        let changes: Vec<Change> = explanation
            .obstacles
            .iter()
            .map(|obstacle| obstacle.change.clone())
            .collect();
        let world = self.bring_about(&changes);
        assert!(
            world.started_at(self.job).is_some(),
            "all of it is enough: {explanation:#?}"
        );
        for part in 0..(1 << changes.len()) - 1 {
            let part: Vec<Change> = changes
                .iter()
                .enumerate()
                .filter(|(index, _)| part >> index & 1 == 1)
                .map(|(_, change)| change.clone())
                .collect();
            let world = self.bring_about(&part);
            assert_eq!(
                world.started_at(self.job),
                None,
                "{part:?} is enough, of {changes:?}"
            );
        }
        // Of jobs that have to be gone, each has to.
        for (index, change) in changes.iter().enumerate() {
            let Change::JobsGone(jobs) = change else {
                continue;
            };
            for left in jobs {
                let mut fewer = changes.clone();
                fewer[index] =
                    Change::JobsGone(jobs.iter().copied().filter(|job| job != left).collect());
                assert_eq!(
                    self.bring_about(&fewer).started_at(self.job),
                    None,
                    "{left} need not be gone"
                );
            }
        }
        for obstacle in &explanation.obstacles {
            assert!(obstacle.since <= self.world.now.wall);
        }
        let wire = explanation.to_wire();
        assert!(
            wire.reasons
                .iter()
                .all(|reason| !reason.change.is_empty() && !reason.message.is_empty())
        );
        explanation
            .obstacles
            .iter()
            .map(|obstacle| obstacle.block.code().to_owned())
            .collect()
    }
}

fn world(text: &str) -> World {
    let base = "[ramp]\nunits_per_sample = 0\n[quiet]\nallow_one_after = \"0\"\n";
    World::new(policy(&format!("{base}{text}")))
}

/// The same, where nobody serves anything.
fn unserved(text: &str) -> World {
    let base = "[ramp]\nunits_per_sample = 0\n[quiet]\nallow_one_after = \"0\"\n";
    World::unserved(policy(&format!("{base}{text}")))
}

/// Submits a plain job of addon "a".
fn submitted(mut world: World, cost: u32) -> Case {
    let job = world.job("a", cost, secs(100));
    let id = job.id;
    world.submit([job]);
    Case::new(world, id)
}

fn level(mut world: World, level: f64) -> World {
    world.level = level;
    world.run(secs(60));
    world
}

#[test]
fn the_machines_state() {
    let _watchdog = watch();
    for busy in [4.0, 6.0, 9.0] {
        let codes = submitted(level(world(""), busy), 10).check();
        assert_eq!(codes, [if busy > 7.0 { "panic" } else { "not_quiet" }]);
    }
    let mut cooling = world("panic_cooldown = \"5m\"\n");
    cooling.level = 9.0;
    cooling.run(secs(20));
    cooling.level = 0.0;
    cooling.run(secs(120));
    let mut case = submitted(cooling, 10);
    assert_eq!(case.check(), ["cooling_down"]);
    let mut stale = world("");
    stale.every = secs(100_000);
    stale.run(secs(40));
    let mut case = submitted(stale, 10);
    case.world.every = secs(100_000);
    let explanation = case.explain();
    assert_eq!(explanation.obstacles[0].block.code(), "stale");
    assert_eq!(explanation.obstacles[0].block.threshold(), Some(30.0));
}

#[test]
fn windows_and_streaks() {
    let _watchdog = watch();
    let mut case = submitted(world("windows = [\"22:00-06:00 UTC\"]\n"), 10);
    case.world.every = secs(20);
    assert_eq!(case.check(), ["outside_window"]);
    let mut case = submitted(world("min_streak = \"20m\"\n"), 10);
    assert_eq!(case.check(), ["streak_too_short"]);
    let mut case = submitted(level(world("windows = [\"22:00-06:00 UTC\"]\n"), 4.0), 10);
    case.world.every = secs(20);
    assert_eq!(case.check(), ["not_quiet", "outside_window"]);
}

#[test]
fn capacity_and_caps() {
    let _watchdog = watch();
    let mut full = world("");
    let leases: Vec<LeaseId> = (0..95).map(|_| full.occupy("b", 1)).collect();
    let mut case = Case {
        leases,
        ..submitted(full, 30)
    };
    assert_eq!(case.check(), ["capacity"]);
    assert_eq!(case.explain().obstacles[0].change, Change::FreeUnits(25));
    // At busy 4 there are 65 units: a job of 90 that needs no quiet waits for the load to fall.
    let mut loaded = level(world(""), 4.0);
    let mut job = loaded.job("a", 90, secs(100));
    job.priority = Priority::High;
    let id = job.id;
    loaded.submit([job]);
    assert_eq!(Case::new(loaded, id).check(), ["capacity"]);
    let mut capped = world("[caps]\nleases = 10\n");
    let leases: Vec<LeaseId> = (0..10).map(|_| capped.occupy("b", 1)).collect();
    let mut case = Case {
        leases,
        ..submitted(capped, 30)
    };
    assert_eq!(case.check(), ["leases"]);
    let mut capped = world("[addons.a]\nleases = 4\nunits = 40\n");
    let leases: Vec<LeaseId> = (0..3).map(|_| capped.occupy("a", 1)).collect();
    let mut case = Case {
        leases,
        ..submitted(capped, 38)
    };
    assert_eq!(case.check(), ["addon_units"]);
    let mut capped = world("[addons.a]\nleases = 3\n");
    let leases: Vec<LeaseId> = (0..3).map(|_| capped.occupy("a", 1)).collect();
    let mut case = Case {
        leases,
        ..submitted(capped, 30)
    };
    assert_eq!(case.check(), ["addon_leases"]);
}

#[test]
fn load_and_capacity_together() {
    let _watchdog = watch();
    // Not quiet, and even when it is, 95 of 100 units are in use.
    let mut full = world("");
    let leases: Vec<LeaseId> = (0..95).map(|_| full.occupy("b", 1)).collect();
    let mut case = Case {
        leases,
        ..submitted(level(full, 4.0), 30)
    };
    assert_eq!(case.check(), ["not_quiet", "capacity"]);
    // Not quiet, and when it is there will be room: capacity is no obstacle of its own.
    let mut case = submitted(level(world(""), 6.0), 90);
    assert_eq!(case.check(), ["not_quiet"]);
}

#[test]
fn the_ramp() {
    let _watchdog = watch();
    let mut ramped = World::new(policy(
        "[quiet]\nallow_one_after = \"0\"\n[busy]\nstale_after = \"1h\"",
    ));
    ramped.every = secs(1000);
    ramped.occupy("b", 20);
    let mut case = submitted(ramped, 30);
    assert_eq!(case.check(), ["ramp"]);
}

#[test]
fn pressure_on_what_it_is_heavy_on() {
    let _watchdog = watch();
    let mut disk = world("");
    disk.psi_io = Some(15.0);
    disk.run(secs(120));
    disk.psi_io = Some(18.0);
    disk.run(secs(10));
    let mut job = disk.job("a", 10, secs(100));
    job.constraints = Constraints {
        disk_write_heavy: true,
        ..Constraints::default()
    };
    let id = job.id;
    disk.submit([job]);
    assert_eq!(Case::new(disk, id).check(), ["pressure"]);
}

#[test]
fn what_is_of_the_job_itself() {
    let _watchdog = watch();
    let mut paused = world("");
    paused.step(Event::AddonPaused(addon("a"), true));
    assert_eq!(submitted(paused, 10).check(), ["addon_paused"]);
    let mut paused = world("");
    paused.step(Event::TypePaused(addon("a"), kind("work"), true));
    assert_eq!(submitted(paused, 10).check(), ["type_paused"]);
    let mut draining = world("");
    draining.step(Event::Drain(true));
    assert_eq!(submitted(draining, 10).check(), ["draining"]);
    // A worker claimed a moment ago, and is busy with its job.
    let mut claimed = unserved("");
    claimed.flood("a", 1, 10, secs(1000));
    claimed.step(Event::Claim(ClaimAsk {
        id: 7,
        addon: addon("a"),
        types: Vec::new(),
        jobs: 1,
        leases: 1,
    }));
    assert_eq!(claimed.started.len(), 1);
    assert_eq!(submitted(claimed, 10).check(), ["no_worker"]);

    let mut later = world("");
    let mut job = later.job("a", 10, secs(100));
    job.not_before = Some(later.now.after(secs(1000)).wall);
    let id = job.id;
    later.submit([job]);
    assert_eq!(Case::new(later, id).check(), ["not_yet"]);

    let mut elsewhere = world("");
    let mut job = elsewhere.job("a", 10, secs(100));
    job.labels = vec!["gpu".to_owned()];
    let id = job.id;
    elsewhere.submit([job]);
    let node = Some(Event::Labels(vec!["gpu".to_owned()]));
    assert_eq!(
        Case {
            node,
            ..Case::new(elsewhere, id)
        }
        .check(),
        ["wrong_node"]
    );

    let mut keyed = world("");
    let running = |running| Event::KeyElsewhere {
        addon: addon("a"),
        key: "k".into(),
        running,
    };
    keyed.step(running(3));
    let mut job = keyed.job("a", 10, secs(100));
    job.key = Some(ConcurrencyKey {
        key: "k".into(),
        limit: 3,
    });
    let id = job.id;
    keyed.submit([job]);
    let key = Some(running(2));
    assert_eq!(
        Case {
            key,
            ..Case::new(keyed, id)
        }
        .check(),
        ["key_taken"]
    );
}

/// A reason began when what it tells of began, not when the job was first denied or submitted.
#[test]
fn a_reason_is_told_with_the_time_at_which_it_began() {
    let _watchdog = watch();
    let since = |case: &mut Case, block: &str| {
        let explanation = case.explain();
        let mut obstacles = explanation.obstacles.iter();
        let found = obstacles.find(|obstacle| obstacle.block.code() == block);
        found
            .unwrap_or_else(|| panic!("{block}: {explanation:?}"))
            .since
    };
    // Too busy first; drained ten seconds later, and told ten seconds after that.
    let mut case = submitted(level(world(""), 9.0), 10);
    let submitted_at = case.world.now.wall;
    case.world.run(secs(10));
    let drained = case.world.now.wall;
    case.world.step(Event::Drain(true));
    case.world.run(secs(10));
    assert_eq!(since(&mut case, "draining"), drained);
    let mut late = submitted(case.world.clone(), 10);
    let waits = late.world.now.wall;
    late.world.run(secs(5));
    assert_eq!(since(&mut late, "draining"), waits, "not before the job");

    // A node that lacks a label lacks it since the job waits, whatever it was denied for first.
    let mut world = level(world(""), 9.0);
    let mut job = world.job("a", 10, secs(100));
    job.labels = vec!["gpu".to_owned()];
    let id = job.id;
    world.submit([job]);
    let submitted_too = world.now.wall;
    world.run(secs(10));
    assert_eq!(
        since(&mut Case::new(world, id), "wrong_node"),
        submitted_too
    );
    assert!(submitted_at <= drained);
}

#[test]
fn a_type_that_no_worker_serves_says_since_when_and_what_to_do() {
    let _watchdog = watch();
    let mut case = submitted(unserved(""), 10);
    let submitted_at = case.world.now.wall;
    assert_eq!(case.world.planner.used(), 0, "nothing is reserved");
    case.world.run(secs(5));
    assert_eq!(case.check(), ["unserved"]);
    let explanation = case.explain();
    let obstacle = &explanation.obstacles[0];
    assert_eq!(obstacle.since, submitted_at);
    let Block::Unserved { last, vain, probe } = obstacle.block else {
        panic!("{obstacle:?}");
    };
    assert_eq!((last, vain), (None, 0), "it never was");
    let reason = &explanation.to_wire().reasons[0];
    assert_eq!(
        reason.change,
        "a worker for addon a and type work is started"
    );
    assert!(
        reason.message.contains("none has called") && reason.message.contains(&probe.to_string()),
        "{}",
        reason.message
    );
    let estimate = case
        .world
        .planner
        .estimate(&explanation, &Default::default(), case.world.now);
    assert_eq!(estimate, None, "it depends on somebody's decision");
    // The probe begins when it was said, and is not accepted.
    let left = probe.duration_since(case.world.now.wall).unsigned_abs();
    let mut early = case.world.clone();
    early.run(left - secs(1));
    assert_eq!(early.planner.used(), 0);
    case.world.run(left);
    assert_eq!(case.world.planner.used(), 10);
    case.world.run(secs(31));
    assert_eq!(case.check(), ["unserved"]);
    let explanation = case.explain();
    assert_eq!(explanation.obstacles[0].block.measured(), Some(1.0));

    // A poll that was long ago is named.
    let mut polled = unserved("");
    polled.poll("a");
    let at = polled.now.wall;
    polled.run(secs(100));
    let mut case = submitted(polled, 10);
    assert_eq!(case.check(), ["unserved"]);
    let explanation = case.explain();
    assert!(
        matches!(explanation.obstacles[0].block, Block::Unserved { last, .. } if last == Some(at))
    );

    let mut both = unserved("");
    both.step(Event::AddonPaused(addon("a"), true));
    assert_eq!(submitted(both, 10).check(), ["addon_paused", "unserved"]);
}

#[test]
fn four_obstacles_at_once() {
    let _watchdog = watch();
    let mut world = level(world(""), 4.0);
    world.step(Event::AddonPaused(addon("a"), true));
    world.step(Event::TypePaused(addon("a"), kind("work"), true));
    let mut job = world.job("a", 10, secs(100));
    job.node = Some(NodeId::new("here").unwrap());
    job.not_before = Some(world.now.after(secs(5000)).wall);
    let id = job.id;
    world.submit([job]);
    let codes = Case::new(world, id).check();
    assert_eq!(
        codes,
        ["not_yet", "addon_paused", "type_paused", "not_quiet"]
    );
}

#[test]
fn jobs_before_it_are_named_and_no_more_than_have_to_go() {
    let _watchdog = watch();
    // Everything waits for quiet; then there are 100 units for 5 + 90 + 30.
    let mut world = level(world(""), 4.0);
    let first = world.flood("a", 1, 5, secs(1000))[0];
    world.run(secs(1));
    let second = world.flood("a", 1, 90, secs(1000))[0];
    world.run(secs(1));
    let mut case = submitted(world, 30);
    assert_eq!(case.check(), ["not_quiet", "behind"]);
    let gone = case.explain().obstacles.pop().unwrap().change;
    assert_eq!(gone, Change::JobsGone(vec![second]), "not {first}");
}

#[test]
fn a_job_behind_a_hold_names_the_job_that_it_is_for() {
    let _watchdog = watch();
    let mut world = world("");
    world.occupy("b", 60);
    let big = world.flood("c", 1, 90, secs(10))[0];
    let mut case = submitted(world, 10);
    assert_eq!(case.world.planner.hold().map(|hold| hold.job), Some(big));
    assert_eq!(case.check(), ["behind"]);
    assert_eq!(
        case.explain().obstacles[0].change,
        Change::JobsGone(vec![big])
    );
}

#[test]
fn far_back_it_says_that_there_are_more() {
    let _watchdog = watch();
    let mut world = world("");
    world.flood("a", 1000, 50, secs(1000));
    world.run(secs(2));
    let mut case = submitted(world, 50);
    let explanation = case.explain();
    assert!(!explanation.exact);
    let behind = explanation.obstacles.last().unwrap();
    assert_eq!(behind.block.code(), "behind");
    assert!(
        behind.block.to_string().contains("128 or more"),
        "{}",
        behind.block
    );
}

#[test]
fn what_does_not_wait_is_not_explained() {
    let _watchdog = watch();
    let mut case = submitted(world(""), 10);
    assert!(case.world.started_at(case.job).is_some());
    assert_eq!(case.world.planner.explain(case.job, case.world.now), None);
}
