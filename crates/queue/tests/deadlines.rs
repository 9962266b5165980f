//! Deadlines in virtual time: what they waive, when they warn, and what they never waive.

mod worlds;

use jobtree_protocol::{Constraints, Priority};
use jobtree_queue::candidate::Candidate;
use worlds::world::World;
use worlds::{policy, secs, watch};

const HOUR: u64 = 3600;

/// A machine that is never quiet: in NORMAL at 4, in BUSY at 6.
fn world(text: &str, level: f64) -> World {
    let never_one = "[quiet]\nallow_one_after = \"0\"\n";
    let mut world = World::new(policy(&format!("{never_one}{text}")));
    world.every = secs(20);
    world.level = level;
    world.run(secs(120));
    world
}

/// A job with so much slack: its deadline is that and its duration away.
fn due_in(world: &mut World, slack: u64) -> Candidate {
    let mut job = world.job("a", 10, secs(600));
    job.expected_duration = Some(secs(600));
    job.deadline = Some(world.now.after(secs(slack + 600)).wall);
    job
}

/// With how much slack left the job starts.
fn slack_at_start(world: &mut World, job: &Candidate) -> Option<i64> {
    let end = job.deadline.unwrap();
    let left = end.duration_since(world.now.wall).as_secs() as u64 + HOUR;
    world.run(secs(left));
    let started = world.started_at(job.id)?;
    Some(end.duration_since(started.wall).as_secs() - 600)
}

#[test]
fn quiet_is_waived_an_hour_before_and_normal_a_quarter() {
    let _watchdog = watch();
    for (level, slack) in [(4.0, 3600), (6.0, 900)] {
        let mut world = world("", level);
        let job = due_in(&mut world, 3 * HOUR);
        world.submit([job.clone()]);
        assert_eq!(
            slack_at_start(&mut world, &job),
            Some(slack),
            "at busy {level}"
        );
    }
}

#[test]
fn windows_and_streaks_are_waived_earlier() {
    let _watchdog = watch();
    // Quiet at noon, but the window opens at night.
    let mut day = world("windows = [\"01:00-02:00 UTC\"]\n", 0.0);
    let job = due_in(&mut day, 6 * HOUR);
    day.submit([job.clone()]);
    assert_eq!(slack_at_start(&mut day, &job), Some(4 * 3600));
    let mut streak = world("min_streak = \"2d\"\n", 0.0);
    let job = due_in(&mut streak, 10 * HOUR);
    streak.submit([job.clone()]);
    assert_eq!(slack_at_start(&mut streak, &job), Some(8 * 3600));
}

#[test]
fn capacity_and_panic_are_never_waived_and_the_risk_is_told_early() {
    let _watchdog = watch();
    let mut panic = world("", 9.0);
    let job = due_in(&mut panic, 2 * HOUR);
    panic.submit([job.clone()]);
    assert_eq!(slack_at_start(&mut panic, &job), None);
    let told: Vec<i64> = panic
        .at_risk
        .iter()
        .map(|(_, at)| job.deadline.unwrap().duration_since(at.wall).as_secs())
        .collect();
    assert_eq!(
        told,
        [600 + 1800],
        "once, half an hour before the last moment to start"
    );

    let mut full = world("", 4.0);
    let mut blocker = full.job("b", 60, secs(100_000));
    blocker.priority = Priority::High;
    let job = due_in(&mut full, 2 * HOUR);
    full.submit([blocker, job.clone()]);
    assert_eq!(
        slack_at_start(&mut full, &job),
        None,
        "60 of 65 units are in use"
    );
    assert_eq!(full.at_risk.len(), 1);
}

#[test]
fn a_job_that_starts_in_time_is_never_at_risk() {
    let _watchdog = watch();
    let mut world = world("", 0.0);
    // Less slack than the warning's from the beginning on, but it starts at once.
    let job = due_in(&mut world, 60);
    world.submit([job.clone()]);
    assert!(world.started_at(job.id).is_some());
    world.run(secs(HOUR));
    assert!(world.at_risk.is_empty());
}

#[test]
fn an_urgent_job_goes_before_all_that_is_not() {
    let _watchdog = watch();
    let mut world = world("", 0.0);
    let running = world.job("a", 100, secs(100));
    world.submit([running]);
    let mut normal = world.job("a", 100, secs(100));
    normal.priority = Priority::Normal;
    let mut urgent = due_in(&mut world, HOUR / 2);
    urgent.priority = Priority::Low;
    world.submit([normal.clone(), urgent.clone()]);
    world.run(secs(150));
    let (urgent, normal) = (world.started_at(urgent.id), world.started_at(normal.id));
    assert!(urgent.is_some() && normal.is_none());
}

#[test]
fn time_sensitive_starts_in_normal_and_not_in_busy() {
    let _watchdog = watch();
    for (level, starts) in [(4.0, true), (6.0, false)] {
        let mut world = world("", level);
        let mut job = world.job("a", 10, secs(10));
        job.time_sensitive = true;
        let plain = world.job("a", 10, secs(10));
        world.submit([job.clone(), plain.clone()]);
        assert_eq!(world.started_at(job.id).is_some(), starts);
        assert_eq!(world.started_at(plain.id), None);
    }
}

#[test]
fn constraints_hold_to_the_end() {
    let _watchdog = watch();
    // Tightened, 6 is 9 of 10: more than a job may start at that starts in BUSY.
    let mut world = world("", 6.0);
    let mut heavy = due_in(&mut world, 60);
    heavy.constraints = Constraints {
        cpu_heavy: true,
        ..Constraints::default()
    };
    let light = due_in(&mut world, 60);
    world.submit([heavy.clone(), light.clone()]);
    assert!(world.started_at(light.id).is_some());
    assert_eq!(world.started_at(heavy.id), None);
}
