//! Schedules: what fires when, on days when clocks are changed too.

mod worlds;

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use jobtree_protocol::{Missed, ScheduleId, ScheduleSpec};
use jobtree_queue::cron::{Cron, Schedule};
use worlds::watch;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The first firings after a moment, as local times of Berlin without their year.
fn berlin(cron: &str, after: &str, count: usize) -> Vec<String> {
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    let cron: Cron = cron.parse().unwrap();
    let mut moment = at(after);
    let mut firings = Vec::new();
    for _ in 0..count {
        let next = cron.next_after(moment, &zone).unwrap();
        assert!(next > moment);
        moment = next;
        let local = moment.to_zoned(zone.clone());
        firings.push(local.strftime("%m-%d %H:%M %Z").to_string());
    }
    firings
}

/// Firings in UTC.
fn utc(cron: &str, after: &str, count: usize) -> Vec<String> {
    let cron: Cron = cron.parse().unwrap();
    let mut moment = at(after);
    let next = |_| {
        moment = cron.next_after(moment, &TimeZone::UTC).unwrap();
        moment.to_string()
    };
    (0..count).map(next).collect()
}

#[test]
fn fields_lists_ranges_steps_and_names() {
    let _watchdog = watch();
    let from = "2026-11-15T12:00:00Z";
    for (cron, expected) in [
        (
            "*/20 * * * *",
            [
                "2026-11-15T12:20:00Z",
                "2026-11-15T12:40:00Z",
                "2026-11-15T13:00:00Z",
            ],
        ),
        (
            "5,50 13-14 * * *",
            [
                "2026-11-15T13:05:00Z",
                "2026-11-15T13:50:00Z",
                "2026-11-15T14:05:00Z",
            ],
        ),
        (
            "0 0 1 jan *",
            [
                "2027-01-01T00:00:00Z",
                "2028-01-01T00:00:00Z",
                "2029-01-01T00:00:00Z",
            ],
        ),
        (
            "0 9 * * Mon-Fri",
            [
                "2026-11-16T09:00:00Z",
                "2026-11-17T09:00:00Z",
                "2026-11-18T09:00:00Z",
            ],
        ),
        (
            "0 9 * * 7",
            [
                "2026-11-22T09:00:00Z",
                "2026-11-29T09:00:00Z",
                "2026-12-06T09:00:00Z",
            ],
        ),
        (
            "0 9 13 * fri",
            [
                "2026-11-20T09:00:00Z",
                "2026-11-27T09:00:00Z",
                "2026-12-04T09:00:00Z",
            ],
        ),
        (
            "0 0 29 2 *",
            [
                "2028-02-29T00:00:00Z",
                "2032-02-29T00:00:00Z",
                "2036-02-29T00:00:00Z",
            ],
        ),
        (
            "10/25 * * * ?",
            [
                "2026-11-15T12:10:00Z",
                "2026-11-15T12:35:00Z",
                "2026-11-15T13:10:00Z",
            ],
        ),
        (
            "*/30 0 12 * * *",
            [
                "2026-11-15T12:00:30Z",
                "2026-11-16T12:00:00Z",
                "2026-11-16T12:00:30Z",
            ],
        ),
        (
            "@daily",
            [
                "2026-11-16T00:00:00Z",
                "2026-11-17T00:00:00Z",
                "2026-11-18T00:00:00Z",
            ],
        ),
        (
            "@weekly",
            [
                "2026-11-22T00:00:00Z",
                "2026-11-29T00:00:00Z",
                "2026-12-06T00:00:00Z",
            ],
        ),
        (
            "@Hourly",
            [
                "2026-11-15T13:00:00Z",
                "2026-11-15T14:00:00Z",
                "2026-11-15T15:00:00Z",
            ],
        ),
    ] {
        assert_eq!(utc(cron, from, 3), expected, "{cron}");
    }
    // Both days restricted: either suffices.
    assert_eq!(
        utc("0 9 17 * fri", from, 2),
        ["2026-11-17T09:00:00Z", "2026-11-20T09:00:00Z"]
    );
    assert_eq!(
        utc("0 0 29 2 *", "2096-03-01T00:00:00Z", 1),
        ["2104-02-29T00:00:00Z"]
    );
}

#[test]
fn what_is_no_expression_is_refused_with_its_reason() {
    let _watchdog = watch();
    for (text, why) in [
        ("* * * *", "4 fields"),
        ("* * * * * * *", "7 fields"),
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * foo *", "month"),
        ("* * * * 8", "day of week"),
        ("30-10 * * * *", "ends before"),
        ("*/0 * * * *", "step"),
        ("*/x * * * *", "step"),
        ("1,,2 * * * *", "minute"),
        ("+5 * * * *", "minute"),
        ("0 0 30 2 *", "no such day"),
        ("@sometimes", "not known"),
        ("", "0 fields"),
    ] {
        let error = text.parse::<Cron>().unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn the_skipped_hour() {
    let _watchdog = watch();
    // On 29 March 2026 the clock goes from 02:00 to 03:00.
    let eve = "2026-03-28T12:00:00Z";
    assert_eq!(
        berlin("30 2 * * *", eve, 2),
        ["03-29 03:00 CEST", "03-30 02:30 CEST"],
        "daily is daily"
    );
    assert_eq!(
        berlin("0,30 2 * * *", eve, 2),
        ["03-29 03:00 CEST", "03-30 02:00 CEST"],
        "and once for all skipped"
    );
    assert_eq!(
        berlin("30 1-3 * * *", eve, 3),
        ["03-29 01:30 CET", "03-29 03:00 CEST", "03-29 03:30 CEST"]
    );
    let hourly = ["03-29 00:30 CET", "03-29 01:30 CET", "03-29 03:30 CEST"];
    assert_eq!(
        berlin("30 * * * *", "2026-03-28T23:00:00Z", 3),
        hourly,
        "hourly is each hour that passes"
    );
}

#[test]
fn the_doubled_hour() {
    let _watchdog = watch();
    // On 25 October 2026 the clock goes from 03:00 back to 02:00.
    let eve = "2026-10-24T12:00:00Z";
    assert_eq!(
        berlin("30 2 * * *", eve, 2),
        ["10-25 02:30 CEST", "10-26 02:30 CET"],
        "once"
    );
    let hourly = [
        "10-25 01:30 CEST",
        "10-25 02:30 CEST",
        "10-25 02:30 CET",
        "10-25 03:30 CET",
    ];
    assert_eq!(berlin("30 * * * *", "2026-10-24T23:00:00Z", 4), hourly);
    let quarters = berlin("*/15 2 * * *", eve, 5);
    assert_eq!(
        quarters[..4],
        [
            "10-25 02:00 CEST",
            "10-25 02:15 CEST",
            "10-25 02:30 CEST",
            "10-25 02:45 CEST"
        ]
    );
    assert_eq!(quarters[4], "10-26 02:00 CET");
}

#[test]
fn every_minute_of_a_year_fires_in_order_and_none_is_lost() {
    let _watchdog = watch();
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    let cron: Cron = "*/10 * * * *".parse().unwrap();
    for day in [
        "2026-03-28T22:00:00Z",
        "2026-10-24T22:00:00Z",
        "2026-12-31T20:00:00Z",
    ] {
        let mut moment = at(day);
        for _ in 0..6 * 12 {
            let next = cron.next_after(moment, &zone).unwrap();
            assert_eq!(next.as_second() - moment.as_second(), 600, "after {moment}");
            moment = next;
        }
    }
}

fn schedule(cron: &str, jitter_sec: u32, missed: Missed) -> Schedule {
    let job =
        serde_json::from_str(r#"{"addon_id": "a", "job_type": "t", "cost_units": 1}"#).unwrap();
    let spec = ScheduleSpec {
        name: "nightly".into(),
        cron: cron.into(),
        time_zone: "UTC".into(),
        jitter_sec,
        missed,
        overlap: Default::default(),
        paused: false,
        job,
    };
    Schedule::new(ScheduleId::from_random([7; 16]), &spec).unwrap()
}

#[test]
fn missed_firings_are_skipped_joined_or_made_up_for() {
    let _watchdog = watch();
    let (last, now) = (at("2026-11-15T12:00:00Z"), at("2026-11-15T15:30:00Z"));
    let due = |missed, now| {
        let (firings, handled) = schedule("0 * * * *", 0, missed).due(last, now, 100);
        let nominal: Vec<String> = firings
            .iter()
            .map(|firing| firing.nominal.to_string())
            .collect();
        (nominal, handled)
    };
    let three = at("2026-11-15T15:00:00Z");
    assert_eq!(due(Missed::Skip, now), (vec![], three));
    assert_eq!(due(Missed::Once, now), (vec![three.to_string()], three));
    let all = [
        "2026-11-15T13:00:00Z",
        "2026-11-15T14:00:00Z",
        "2026-11-15T15:00:00Z",
    ];
    assert_eq!(
        due(Missed::All, now),
        (all.map(str::to_owned).to_vec(), three)
    );
    // On time, up to a minute late, each of them fires; before, none.
    for missed in [Missed::Skip, Missed::Once, Missed::All] {
        let thirteen = at("2026-11-15T13:00:00Z");
        assert_eq!(due(missed, at("2026-11-15T12:59:59Z")), (vec![], last));
        assert_eq!(
            due(missed, at("2026-11-15T13:00:50Z")),
            (vec![thirteen.to_string()], thirteen)
        );
    }
    // Bounded, and the rest next time.
    let all = schedule("0 * * * *", 0, Missed::All);
    let (first, handled) = all.due(last, now, 2);
    assert_eq!(first.len(), 2);
    let (rest, handled) = all.due(handled, now, 2);
    assert_eq!((rest.len(), handled), (1, three));
    // A year of minutes is not gone through for one job.
    let once = schedule("* * * * *", 0, Missed::Once);
    let (one, handled) = once.due(at("2020-01-01T00:00:00Z"), now, 10);
    assert_eq!((one.len(), handled), (1, now));
    let rare = schedule("0 0 1 1 *", 0, Missed::Once);
    let (one, _) = rare.due(at("2020-05-01T00:00:00Z"), now, 10);
    assert_eq!(one[0].nominal, at("2026-01-01T00:00:00Z"));
}

#[test]
fn jitter_is_bounded_and_always_the_same_for_one_firing() {
    let _watchdog = watch();
    let (one, again) = (
        schedule("0 * * * *", 600, Missed::Once),
        schedule("0 * * * *", 600, Missed::Once),
    );
    let mut moment = at("2026-11-15T12:00:00Z");
    let mut waits = Vec::new();
    for _ in 0..50 {
        let firing = one.next(moment).unwrap();
        assert_eq!(Some(firing), again.next(moment));
        let wait = Duration::try_from(firing.at.duration_since(firing.nominal)).unwrap();
        assert!(wait <= Duration::from_secs(600));
        // Not before its own time, with its jitter.
        let early = firing.at.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(one.due(moment, early, 10).0, []);
        assert_eq!(one.due(moment, firing.at, 10).0, [firing]);
        waits.push(wait);
        moment = firing.nominal;
    }
    waits.sort();
    waits.dedup();
    assert!(waits.len() > 40, "spread: {waits:?}");
}

#[test]
fn a_schedule_says_what_is_wrong_with_it() {
    let _watchdog = watch();
    let job =
        serde_json::from_str(r#"{"addon_id": "a", "job_type": "t", "cost_units": 1}"#).unwrap();
    let mut spec: ScheduleSpec = ScheduleSpec {
        name: "n".into(),
        cron: "0 0 * * *".into(),
        time_zone: "Mars/Base".into(),
        jitter_sec: 0,
        missed: Missed::Skip,
        overlap: Default::default(),
        paused: false,
        job,
    };
    let id = ScheduleId::from_random([1; 16]);
    assert!(
        Schedule::new(id, &spec)
            .unwrap_err()
            .to_string()
            .contains("Mars/Base")
    );
    spec.time_zone = "UTC".into();
    spec.cron = "0 0 * *".into();
    assert!(
        Schedule::new(id, &spec)
            .unwrap_err()
            .to_string()
            .contains("4 fields")
    );
}
