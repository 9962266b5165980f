//! Times and durations as people write and read them.

use std::time::Duration;

use jiff::civil::{DateTime, Time, Weekday};
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};
use jobtree_queue::policy::parse_duration;

const TIMES: &str = "write `2h` (from now), `22:00`, `tomorrow 22:00`, `monday 8:00`, `2026-12-24 18:00` or RFC 3339";

/// A duration: `90s`, `2h`, `1h30m`, `3d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| {
        format!("{text:?} is not a duration: write whole numbers with ms, s, m, h or d, such as 90s or 1h30m")
    })
}

/// The same in whole seconds, for what is told in seconds.
pub fn seconds(text: &str) -> Result<i64, String> {
    let duration = duration(text)?;
    if duration.subsec_nanos() > 0 || duration.is_zero() {
        return Err(format!(
            "{text:?} is not a whole number of seconds, one at least"
        ));
    }
    i64::try_from(duration.as_secs()).map_err(|_| format!("{text:?} is too long"))
}

/// The seconds of a time that is written as a delay, such as `2h`; none if it is another kind of time, or no whole seconds.
pub fn delay(text: &str) -> Option<i64> {
    let text = text.trim();
    let relative = text.strip_prefix('+').unwrap_or(text);
    let relative = relative.strip_prefix("in ").unwrap_or(relative);
    seconds(relative).ok()
}

/// A time that is over, in the zone of `now`: a length of time is so long ago.
pub fn past(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    match parse_duration(text.trim()).and_then(|ago| SignedDuration::try_from(ago).ok()) {
        Some(ago) => {
            let wrong = |_| format!("{text:?} is too long ago");
            now.timestamp().checked_sub(ago).map_err(wrong)
        }
        None => time(text, now),
    }
}

/// A time to come, in the zone of `now`.
pub fn time(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let wrong = || format!("{text:?} is not a time: {TIMES}");
    if let Ok(exact) = text.parse::<Timestamp>() {
        return Ok(exact);
    }
    let text = text.trim();
    let relative = text.strip_prefix('+').unwrap_or(text);
    let relative = relative.strip_prefix("in ").unwrap_or(relative);
    if let Some(after) = parse_duration(relative) {
        let after = SignedDuration::try_from(after).map_err(|_| wrong())?;
        return now.timestamp().checked_add(after).map_err(|_| wrong());
    }
    let zone = now.time_zone();
    let at = |civil: DateTime| civil.to_zoned(zone.clone()).map_err(|_| wrong());
    if let Ok(civil) = text.parse::<DateTime>() {
        return Ok(at(civil)?.timestamp());
    }
    let (day, clock) = text.split_once(' ').unwrap_or((text, ""));
    // A time alone is the next one.
    if let Some(clock) = clock_time(text) {
        let today = at(now.date().to_datetime(clock))?;
        if today > *now {
            return Ok(today.timestamp());
        }
        let tomorrow = now.date().checked_add(1.day()).map_err(|_| wrong())?;
        return Ok(at(tomorrow.to_datetime(clock))?.timestamp());
    }
    let clock = match clock {
        "" => Time::midnight(),
        clock => clock_time(clock).ok_or_else(wrong)?,
    };
    let date = match day.to_ascii_lowercase().as_str() {
        "now" => return Ok(now.timestamp()),
        "today" => now.date(),
        "tomorrow" => now.date().checked_add(1.day()).map_err(|_| wrong())?,
        name => {
            let weekday = weekday(name).ok_or_else(wrong)?;
            now.date().nth_weekday(1, weekday).map_err(|_| wrong())?
        }
    };
    Ok(at(date.to_datetime(clock))?.timestamp())
}

/// `22:00` or `8:30`.
fn clock_time(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    if minute.len() != 2 || hour.len() > 2 {
        return None;
    }
    Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
}

fn weekday(name: &str) -> Option<Weekday> {
    const NAMES: [(&str, Weekday); 7] = [
        ("monday", Weekday::Monday),
        ("tuesday", Weekday::Tuesday),
        ("wednesday", Weekday::Wednesday),
        ("thursday", Weekday::Thursday),
        ("friday", Weekday::Friday),
        ("saturday", Weekday::Saturday),
        ("sunday", Weekday::Sunday),
    ];
    let begins = |whole: &str| name.len() >= 3 && whole.starts_with(name);
    NAMES
        .into_iter()
        .find(|(whole, _)| begins(whole))
        .map(|(_, weekday)| weekday)
}

/// A time, in this machine's zone, to the second, with the offset of that zone.
pub fn shown(at: Timestamp) -> String {
    let zoned = at.to_zoned(jiff::tz::TimeZone::system());
    zoned.strftime("%Y-%m-%d %H:%M:%S%:z").to_string()
}

/// A text of the daemon, which tells times in UTC, with these times as [`shown`] writes them.
pub fn localized(text: &str) -> String {
    // The longest text that is a time has this many bytes: nanoseconds, and a Z behind them.
    const LONGEST: usize = "2026-01-01T00:00:00.123456789Z".len();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(end) = rest.find('Z') {
        let earliest = end.saturating_sub(LONGEST - 1);
        let begins = (earliest..end).filter(|at| rest.is_char_boundary(*at));
        let time = begins
            .filter(|at| rest[*at..].starts_with(|c: char| c.is_ascii_digit()))
            .find_map(|at| Some((at, rest[at..=end].parse::<Timestamp>().ok()?)));
        match time {
            Some((at, time)) => {
                out.push_str(&rest[..at]);
                out.push_str(&shown(time));
            }
            None => out.push_str(&rest[..=end]),
        }
        rest = &rest[end + 1..];
    }
    out + rest
}

/// How long something takes, in its two largest units: `2h05m`, `14s`, `3d04h`.
pub fn length(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if days > 0 => format!("{days}d{:02}h", hours % 24),
        () if hours > 0 => format!("{hours}h{:02}m", minutes % 60),
        () if minutes > 0 => format!("{minutes}m{:02}s", seconds % 60),
        () if duration.as_millis() == 0 || seconds > 0 => format!("{seconds}s"),
        () => format!("{}ms", duration.as_millis()),
    }
}

/// How long ago something was; nothing if it is to come.
pub fn since(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        // A Sunday.
        "2026-11-15T17:30:00+01:00[Europe/Berlin]".parse().unwrap()
    }

    #[test]
    fn a_length_of_time_is_so_long_ago_where_the_past_is_asked_for() {
        let at = |text: &str| text.parse::<Timestamp>().map_err(|error| error.to_string());
        assert_eq!(past("2h", &now()), at("2026-11-15T14:30:00Z"));
        assert_eq!(
            past("2026-11-01T00:00:00Z", &now()),
            at("2026-11-01T00:00:00Z")
        );
        assert!(past("soon", &now()).is_err());
    }

    #[test]
    fn times_as_people_write_them() {
        for (text, expected) in [
            ("2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("2h", "2026-11-15T18:30:00Z"),
            ("+90s", "2026-11-15T16:31:30Z"),
            ("in 1d", "2026-11-16T16:30:00Z"),
            ("now", "2026-11-15T16:30:00Z"),
            ("22:00", "2026-11-15T21:00:00Z"),
            ("8:30", "2026-11-16T07:30:00Z"),
            ("today 23:15", "2026-11-15T22:15:00Z"),
            ("tomorrow 22:00", "2026-11-16T21:00:00Z"),
            ("tomorrow", "2026-11-15T23:00:00Z"),
            ("Monday 08:00", "2026-11-16T07:00:00Z"),
            ("sun 8:00", "2026-11-22T07:00:00Z"),
            ("2026-12-24 18:00", "2026-12-24T17:00:00Z"),
        ] {
            let expected: Timestamp = expected.parse().unwrap();
            assert_eq!(time(text, &now()), Ok(expected), "{text}");
        }
        for text in [
            "",
            "soon",
            "25:00",
            "tomorrow noon",
            "8",
            "99999999999d",
            "m 8:00",
        ] {
            let told = time(text, &now()).unwrap_err();
            assert!(told.contains("is not a time: write"), "{text}: {told}");
        }
    }

    #[test]
    fn times_in_texts_are_shown_in_the_zone_of_this_machine() {
        let at: Timestamp = "2026-11-18T14:30:00.5Z".parse().unwrap();
        assert_eq!(
            localized("Zeit: not before 2026-11-18T14:30:00.5Z, or 2026-11-18T14:30:00Z; Zürich"),
            format!("Zeit: not before {0}, or {0}; Zürich", shown(at))
        );
        assert_eq!(
            localized("Z 12Z 2026-13-01T00:00:00Z"),
            "Z 12Z 2026-13-01T00:00:00Z"
        );
        assert_eq!(shown(at).len(), "2026-11-18 15:30:00+01:00".len());
    }

    #[test]
    fn seconds_are_whole() {
        assert_eq!(seconds("1h30m"), Ok(5400));
        for text in ["0", "500ms", "x", "5"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_are_short() {
        for (millis, text) in [
            (0, "0s"),
            (250, "250ms"),
            (14_900, "14s"),
            (125_000, "2m05s"),
            (7_500_000, "2h05m"),
            (273_600_000, "3d04h"),
        ] {
            assert_eq!(length(Duration::from_millis(millis)), text);
        }
    }
}
