//! Hours of the day by a clock on the wall of some place.
//!
//! A window holds while the local clock shows a time in it, whatever the clock does that night: `22:00-06:00
//! Europe/Berlin` lasts seven hours when summer time begins and nine when it ends; a window inside of the hour
//! that is skipped does not open that night, and one inside of the hour that comes twice opens twice.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// `"22:00-06:00 Europe/Berlin"`, or with days `"Mon-Fri 22:00-06:00 Europe/Berlin"`: the day on which it opens.
///
/// ```
/// use jobtree_queue::policy::QuietWindow;
///
/// let night: QuietWindow = "22:00-06:00 Europe/Berlin".parse().unwrap();
/// assert!(night.contains("2026-01-10T23:30:00Z".parse().unwrap()));
/// assert!(!night.contains("2026-01-10T12:00:00Z".parse().unwrap()));
/// assert_eq!(night.next_open("2026-01-10T12:00:00Z".parse().unwrap()), Some("2026-01-10T21:00:00Z".parse().unwrap()));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct QuietWindow {
    text: String,
    /// Bit 0 is Monday.
    days: u8,
    /// Minutes since midnight; `close` may be 24:00, and below or at `open` when it is on the next day.
    open: i32,
    close: i32,
    zone: TimeZone,
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const EVERY_DAY: u8 = 0b111_1111;
/// Days looked ahead for an opening: a week and the day on which it began.
const AHEAD: i64 = 9;

impl QuietWindow {
    /// Whether the local clock shows a time in the window.
    pub fn contains(&self, at: Timestamp) -> bool {
        let local = self.zone.to_datetime(at);
        let minute = i32::from(local.hour()) * 60 + i32::from(local.minute());
        let today = self.opens_on(local.date().weekday());
        if self.open < self.close {
            return today && (self.open..self.close).contains(&minute);
        }
        let yesterday = self.opens_on(local.date().weekday().previous());
        (today && minute >= self.open) || (yesterday && minute < self.close)
    }

    /// The first moment from `at` on that is in the window; `at` itself when it is.
    pub fn next_open(&self, at: Timestamp) -> Option<Timestamp> {
        self.first(at, self.open, |moment| self.contains(moment))
    }

    /// The first moment from `at` on that is outside of the window; none when it never closes.
    pub fn next_close(&self, at: Timestamp) -> Option<Timestamp> {
        self.first(at, self.close, |moment| !self.contains(moment))
    }

    fn opens_on(&self, day: Weekday) -> bool {
        self.days >> day.to_monday_zero_offset() & 1 == 1
    }

    /// The first moment from `at` on at which `holds`; that changes where the local clock shows `minute` or
    /// midnight, or where the clock is changed.
    fn first(
        &self,
        at: Timestamp,
        minute: i32,
        holds: impl Fn(Timestamp) -> bool,
    ) -> Option<Timestamp> {
        if holds(at) {
            return Some(at);
        }
        let today = self.zone.to_datetime(at).date();
        let mut moments = Vec::new();
        for ahead in -1..AHEAD {
            let Ok(date) = today.checked_add(Span::new().days(ahead)) else {
                continue;
            };
            for minute in [minute, 0] {
                self.shown(date, minute, &mut moments);
            }
        }
        let last = moments.iter().max().copied();
        let changes = self
            .zone
            .following(at)
            .map(|transition| transition.timestamp());
        moments.extend(changes.take_while(|&change| last.is_some_and(|last| change <= last)));
        moments.sort_unstable();
        moments
            .into_iter()
            .find(|&moment| moment > at && holds(moment))
    }

    /// The moments at which the clock shows `minute` on `date`: one, two, or none exactly.
    fn shown(&self, date: Date, minute: i32, moments: &mut Vec<Timestamp>) {
        let (days, minute) = (minute / 1440, minute % 1440);
        let Ok(date) = date.checked_add(Span::new().days(i64::from(days))) else {
            return;
        };
        let Ok(time) = Time::new((minute / 60) as i8, (minute % 60) as i8, 0, 0) else {
            return;
        };
        let shown = self.zone.to_ambiguous_timestamp(date.to_datetime(time));
        moments.extend(shown.earlier().ok());
        moments.extend(shown.later().ok());
    }
}

impl FromStr for QuietWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<QuietWindow, String> {
        let refused = |what: &str| {
            format!(
                "{text:?} is not a quiet window: {what}; write \"22:00-06:00 Europe/Berlin\" or \"Sat,Sun 00:00-24:00 UTC\""
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (days, hours, zone) = match words[..] {
            [hours, zone] => (EVERY_DAY, hours, zone),
            [days, hours, zone] => (
                parse_days(days).ok_or_else(|| refused("the days are not known"))?,
                hours,
                zone,
            ),
            _ => return Err(refused("it needs hours and a time zone")),
        };
        let zone = TimeZone::get(zone).map_err(|_| refused("the time zone is not known"))?;
        let hours = hours.replace('–', "-");
        let (open, close) = hours
            .split_once('-')
            .ok_or_else(|| refused("the hours need a \"-\""))?;
        let open = parse_minute(open).filter(|&open| open < 1440);
        let (Some(open), Some(close)) = (open, parse_minute(close)) else {
            return Err(refused("hours are 00:00 to 24:00"));
        };
        if open == close {
            return Err(refused("it opens and closes at once"));
        }
        Ok(QuietWindow {
            text: text.to_owned(),
            days,
            open,
            close,
            zone,
        })
    }
}

fn parse_minute(text: &str) -> Option<i32> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |text: &str| (text.len() == 2).then(|| text.parse::<u8>().ok()).flatten();
    let (hour, minute) = (i32::from(digits(hour)?), i32::from(digits(minute)?));
    (minute < 60 && hour * 60 + minute <= 1440).then_some(hour * 60 + minute)
}

fn parse_days(text: &str) -> Option<u8> {
    let day = |name: &str| DAYS.iter().position(|day| day.eq_ignore_ascii_case(name));
    let mut days = 0;
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (mut next, to) = (day(from)?, day(to)?);
        loop {
            days |= 1 << next;
            if next == to {
                break;
            }
            next = (next + 1) % 7;
        }
    }
    Some(days)
}

impl fmt::Display for QuietWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for QuietWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for QuietWindow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<QuietWindow, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn hours(window: &str, from: &str, to: &str) -> i64 {
        let window: QuietWindow = window.parse().unwrap();
        let opened = window.next_open(at(from)).unwrap();
        assert!(opened < at(to), "opens at {opened}");
        (window.next_close(opened).unwrap().as_second() - opened.as_second()) / 3600
    }

    #[test]
    fn a_night_is_as_long_as_the_clock_makes_it() {
        let night = "22:00-06:00 Europe/Berlin";
        assert_eq!(
            hours(night, "2026-01-10T12:00:00Z", "2026-01-11T00:00:00Z"),
            8
        );
        // Summer time began on 29 March 2026 and ended on 25 October 2026.
        assert_eq!(
            hours(night, "2026-03-28T12:00:00Z", "2026-03-29T00:00:00Z"),
            7
        );
        assert_eq!(
            hours(night, "2026-10-24T12:00:00Z", "2026-10-25T00:00:00Z"),
            9
        );
    }

    #[test]
    fn a_window_in_the_skipped_hour_stays_shut_and_in_the_doubled_hour_opens_twice() {
        let inside: QuietWindow = "02:15-02:45 Europe/Berlin".parse().unwrap();
        let from = at("2026-03-28T12:00:00Z");
        assert_eq!(
            inside.next_open(from),
            Some(at("2026-03-30T00:15:00Z")),
            "the night of the 29th has none"
        );
        let across: QuietWindow = "02:30-03:30 Europe/Berlin".parse().unwrap();
        assert_eq!(
            across.next_open(from),
            Some(at("2026-03-29T01:00:00Z")),
            "the clock shows 03:00 after 01:59"
        );
        assert_eq!(
            across.next_close(at("2026-03-29T01:00:00Z")),
            Some(at("2026-03-29T01:30:00Z"))
        );

        let first = at("2026-10-25T00:15:00Z");
        assert_eq!(inside.next_open(at("2026-10-24T12:00:00Z")), Some(first));
        let closed = inside.next_close(first).unwrap();
        assert_eq!(closed, at("2026-10-25T00:45:00Z"));
        assert_eq!(inside.next_open(closed), Some(at("2026-10-25T01:15:00Z")));
    }

    #[test]
    fn days_are_those_on_which_it_opens() {
        let weekend: QuietWindow = "Fri-Sat 22:00-06:00 UTC".parse().unwrap();
        // 13 November 2026 is a Friday.
        assert!(
            !weekend.contains(at("2026-11-13T03:00:00Z")),
            "Thursday's night"
        );
        assert!(weekend.contains(at("2026-11-13T22:00:00Z")));
        assert!(
            weekend.contains(at("2026-11-15T05:59:59Z")),
            "Saturday's night"
        );
        assert!(!weekend.contains(at("2026-11-15T22:00:00Z")));
        assert_eq!(
            weekend.next_open(at("2026-11-15T12:00:00Z")),
            Some(at("2026-11-20T22:00:00Z"))
        );
        let always: QuietWindow = "00:00-24:00 UTC".parse().unwrap();
        assert_eq!(always.next_close(at("2026-11-15T12:00:00Z")), None);
        let whole: QuietWindow = "Sat,Sun 00:00-24:00 UTC".parse().unwrap();
        assert_eq!(
            whole.next_close(at("2026-11-14T12:00:00Z")),
            Some(at("2026-11-16T00:00:00Z"))
        );
    }

    #[test]
    fn what_is_no_window_is_refused_with_its_reason() {
        for (text, reason) in [
            ("22:00-06:00", "time zone"),
            ("22:00-06:00 Europe/Atlantis", "time zone is not known"),
            ("22-06 UTC", "hours are"),
            ("25:00-06:00 UTC", "hours are"),
            ("24:00-06:00 UTC", "hours are"),
            ("06:00-06:00 UTC", "at once"),
            ("Foo 22:00-06:00 UTC", "days"),
        ] {
            let refused = text.parse::<QuietWindow>().unwrap_err();
            assert!(
                refused.contains(reason) && refused.contains(text),
                "{refused}"
            );
        }
    }
}
