//! Estimates: by running leases, by calendars, by this machine's hours of quiet.

mod worlds;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use jobtree_protocol::{Estimate, EstimateBasis, JobId};
use jobtree_queue::estimate::WeeklyProfile;
use jobtree_queue::planner::Event;
use worlds::world::{World, addon};
use worlds::{policy, secs, watch};

fn world() -> World {
    World::new(policy(
        "[ramp]\nunits_per_sample = 0\n[quiet]\nallow_one_after = \"0\"",
    ))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn estimate(world: &mut World, job: JobId, profile: &WeeklyProfile) -> Option<Estimate> {
    let explanation = world.planner.explain(job, world.now).unwrap();
    world.planner.estimate(&explanation, profile, world.now)
}

/// Two weeks in which the machine was quiet from 02:00 to 05:00 UTC.
fn nights() -> WeeklyProfile {
    let mut profile = WeeklyProfile::default();
    let begin = at("2026-11-01T00:00:00Z");
    for minutes in (0..14 * 24 * 60).step_by(10) {
        let moment = begin
            .checked_add(jiff::Span::new().minutes(minutes))
            .unwrap();
        let hour = minutes / 60 % 24;
        profile.add(moment, &TimeZone::UTC, (2..5).contains(&hour));
    }
    profile
}

#[test]
fn by_the_expected_ends_of_running_jobs() {
    let _watchdog = watch();
    let mut world = world();
    let mut first = world.job("a", 60, secs(100));
    first.expected_duration = Some(secs(100));
    let mut second = world.job("a", 40, secs(300));
    second.expected_duration = Some(secs(300));
    world.submit([first, second]);
    let waiting = world.flood("b", 1, 70, secs(10))[0];
    let estimate = estimate(&mut world, waiting, &WeeklyProfile::default()).unwrap();
    assert_eq!(estimate.basis, EstimateBasis::RunningLeases);
    assert_eq!(
        estimate.start_at,
        world.now.after(secs(300)).wall,
        "60 are free after 100 s, 100 after 300 s"
    );
    let started = world.run_until_started(waiting, secs(400));
    assert_eq!(started.wall, estimate.start_at, "and so it comes");
}

#[test]
fn by_the_hours_of_quiet_of_this_machine() {
    let _watchdog = watch();
    let mut world = world();
    world.level = 4.0;
    world.run(secs(60));
    let job = world.flood("a", 1, 10, secs(10))[0];
    assert_eq!(
        estimate(&mut world, job, &WeeklyProfile::default()),
        None,
        "nothing is known"
    );
    let told = estimate(&mut world, job, &nights()).unwrap();
    assert_eq!(told.basis, EstimateBasis::QuietProfile);
    assert_eq!(
        told.start_at,
        at("2026-11-16T02:01:00Z"),
        "and a minute to enter QUIET"
    );
    assert!(told.confidence > 0.9);
}

#[test]
fn by_the_calendar() {
    let _watchdog = watch();
    let mut world = world();
    let mut job = world.job("a", 10, secs(10));
    job.not_before = Some(at("2026-11-20T00:00:00Z"));
    let id = job.id;
    world.submit([job]);
    let estimate = estimate(&mut world, id, &WeeklyProfile::default()).unwrap();
    assert_eq!(
        (estimate.start_at, estimate.basis),
        (at("2026-11-20T00:00:00Z"), EstimateBasis::Schedule)
    );
}

#[test]
fn no_number_where_somebody_has_to_decide() {
    let _watchdog = watch();
    let mut world = world();
    world.step(Event::AddonPaused(addon("a"), true));
    let job = world.flood("a", 1, 10, secs(10))[0];
    assert_eq!(estimate(&mut world, job, &nights()), None);
}

#[test]
fn a_profile_follows_the_local_clock_and_forgets() {
    let _watchdog = watch();
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    let mut profile = WeeklyProfile::default();
    let monday = at("2026-11-02T00:00:00Z");
    let week = |profile: &mut WeeklyProfile, number: i64, quiet: bool| {
        for hour in 0..7 * 24 {
            let moment = monday
                .checked_add(jiff::Span::new().hours(number * 7 * 24 + hour))
                .unwrap();
            profile.add(moment, &berlin, quiet && hour % 24 == 1);
        }
    };
    week(&mut profile, 0, true);
    // 01:00 UTC is 02:00 in Berlin, in winter.
    let next = profile
        .next_quiet(at("2026-11-15T12:00:00Z"), &berlin)
        .unwrap();
    assert_eq!(next, (at("2026-11-16T01:00:00Z"), 1.0));
    for number in 1..10 {
        week(&mut profile, number, false);
    }
    assert_eq!(
        profile.next_quiet(at("2026-11-15T12:00:00Z"), &berlin),
        None,
        "other habits"
    );
}
