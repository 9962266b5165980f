//! Cron: when a schedule fires.
//!
//! Five fields, minute, hour, day of month, month, day of week; or six, with seconds first. Each is `*`, a value, a range
//! `a-b`, either with a step `/n`, or a list of these. Months and days have their English names (`jan`, `MON`); Sunday is
//! 0 or 7; `?` is `*`. When both days are restricted, either suffices, as cron has it. `@yearly`, `@annually`, `@monthly`,
//! `@weekly`, `@daily`, `@midnight` and `@hourly` are what they are elsewhere.
//!
//! Fields are read on the clock of the schedule's time zone. Where that clock is changed:
//!
//! - with a restricted hour, a time that is skipped fires at the moment of the change (once, however many are skipped),
//!   and a time that comes twice fires the first time only: daily jobs run every day, and once;
//! - with the hour `*`, skipped times do not fire and doubled ones fire twice: hourly jobs run every hour that passes.

mod parse;
mod schedule;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Span, Timestamp};

pub use parse::CronError;
pub use schedule::{Firing, Schedule, ScheduleError};

/// Days looked ahead: 29 February comes after eight years at the latest.
const AHEAD: i64 = 8 * 366 + 2;

/// When something fires, on the clock of some place.
///
/// ```
/// use jiff::tz::TimeZone;
/// use jobtree_queue::cron::Cron;
///
/// let cron: Cron = "30 2 * * mon-fri".parse().unwrap();
/// let berlin = TimeZone::get("Europe/Berlin").unwrap();
/// let next = cron.next_after("2026-11-13T12:00:00Z".parse().unwrap(), &berlin);
/// assert_eq!(next, Some("2026-11-16T01:30:00Z".parse().unwrap()));
/// assert!("30 25 * * *".parse::<Cron>().unwrap_err().to_string().contains("hour"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
    seconds: u64,
    minutes: u64,
    hours: u32,
    days: u32,
    months: u16,
    weekdays: u8,
    any_day: bool,
    any_weekday: bool,
    any_hour: bool,
}

impl Cron {
    /// The first firing after a moment; none in eight years is none at all.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let local = zone.to_datetime(after);
        // A day before: on a day that ends twice the local date can fall back.
        let mut date = local.date().checked_sub(Span::new().days(1)).ok()?;
        for _ in 0..AHEAD {
            if self.on(date)
                && let Some(found) = self.on_day(date, after, zone)
            {
                return Some(found);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn on(&self, date: Date) -> bool {
        let month = self.months >> date.month() & 1 == 1;
        let day = self.days >> date.day() & 1 == 1;
        let weekday = self.weekdays >> date.weekday().to_sunday_zero_offset() & 1 == 1;
        let either = match (self.any_day, self.any_weekday) {
            (false, false) => day || weekday,
            _ => day && weekday,
        };
        month && either
    }

    /// The first firing of a day after a moment.
    fn on_day(&self, date: Date, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let begins = zone
            .to_ambiguous_timestamp(date.to_datetime(Time::midnight()))
            .compatible()
            .ok()?;
        let tomorrow = date.tomorrow().ok()?;
        let ends = zone
            .to_ambiguous_timestamp(tomorrow.to_datetime(Time::midnight()))
            .compatible()
            .ok()?;
        if ends <= after {
            return None;
        }
        let before = begins.checked_sub(Span::new().seconds(1)).unwrap_or(begins);
        let changes = zone
            .following(before)
            .next()
            .is_some_and(|change| change.timestamp() <= ends);
        if changes {
            let times = self
                .times(0)
                .flat_map(|time| self.moments(date, time, zone));
            return times.filter(|moment| *moment > after).min();
        }
        // A plain day: local and real time run alike, and the first time is the first moment.
        let from = if after < begins {
            0
        } else {
            (after.as_second() - begins.as_second() + 1).max(0)
        };
        let time = self.times(from as u32).next()?;
        zone.to_timestamp(date.to_datetime(time)).ok()
    }

    /// The times of a day from a second of it on, in order.
    fn times(&self, from: u32) -> impl Iterator<Item = Time> + '_ {
        let hours = (from / 3600..24).filter(|hour| self.hours >> hour & 1 == 1);
        hours
            .flat_map(move |hour| {
                let first = if hour == from / 3600 {
                    from % 3600 / 60
                } else {
                    0
                };
                (first..60)
                    .filter(|minute| self.minutes >> minute & 1 == 1)
                    .map(move |minute| (hour, minute))
            })
            .flat_map(move |(hour, minute)| {
                let this = hour * 60 + minute == from / 60;
                let first = if this { from % 60 } else { 0 };
                (first..60)
                    .filter(|second| self.seconds >> second & 1 == 1)
                    .map(move |second| (hour, minute, second))
            })
            .filter_map(|(hour, minute, second)| {
                Time::new(hour as i8, minute as i8, second as i8, 0).ok()
            })
    }

    /// The moments at which a local time fires: none, one or two.
    fn moments(&self, date: Date, time: Time, zone: &TimeZone) -> Vec<Timestamp> {
        let shown = zone.to_ambiguous_timestamp(date.to_datetime(time));
        let moments = match shown.offset() {
            AmbiguousOffset::Unambiguous { .. } => [shown.compatible().ok(), None],
            AmbiguousOffset::Gap { .. } if self.any_hour => [None, None],
            AmbiguousOffset::Gap { .. } => {
                // `earlier` lies before the change by as much as the time lies in the gap.
                let before = shown.earlier().ok();
                [
                    before
                        .and_then(|before| zone.following(before).next())
                        .map(|change| change.timestamp()),
                    None,
                ]
            }
            AmbiguousOffset::Fold { .. } if self.any_hour => {
                [shown.earlier().ok(), shown.later().ok()]
            }
            AmbiguousOffset::Fold { .. } => [shown.earlier().ok(), None],
        };
        moments.into_iter().flatten().collect()
    }

    /// The expression, as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Sunday is 0, as cron counts.
fn weekday_number(day: Weekday) -> u32 {
    u32::from(day.to_sunday_zero_offset().unsigned_abs())
}
