//! Reading cron expressions.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Weekday;
use jiff::tz::TimeZone;

use super::{Cron, weekday_number};

/// An expression that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronError {
    text: String,
    why: String,
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CronError { text, why } = self;
        write!(
            f,
            "{text:?} is no cron expression: {why}; write five fields, such as \"30 2 * * mon-fri\""
        )
    }
}

impl std::error::Error for CronError {}

struct Field {
    name: &'static str,
    low: u32,
    high: u32,
    names: &'static [&'static str],
    /// The value of the first name.
    first: u32,
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const SECOND: Field = Field {
    name: "second",
    low: 0,
    high: 59,
    names: &[],
    first: 0,
};
const MINUTE: Field = Field {
    name: "minute",
    low: 0,
    high: 59,
    names: &[],
    first: 0,
};
const HOUR: Field = Field {
    name: "hour",
    low: 0,
    high: 23,
    names: &[],
    first: 0,
};
const DAY: Field = Field {
    name: "day of month",
    low: 1,
    high: 31,
    names: &[],
    first: 0,
};
const MONTH: Field = Field {
    name: "month",
    low: 1,
    high: 12,
    names: &MONTHS,
    first: 1,
};
const WEEKDAY: Field = Field {
    name: "day of week",
    low: 0,
    high: 7,
    names: &WEEKDAYS,
    first: 0,
};

impl Field {
    fn value(&self, text: &str) -> Result<u32, String> {
        let named = self
            .names
            .iter()
            .position(|name| name.eq_ignore_ascii_case(text));
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if digits { text.parse().ok() } else { None };
        let value = named.map(|index| index as u32 + self.first).or(number);
        value
            .filter(|value| (self.low..=self.high).contains(value))
            .ok_or_else(|| {
                let Field {
                    name, low, high, ..
                } = self;
                format!("{text:?} is no {name}, which is {low} to {high}")
            })
    }

    /// The bits of the values that match.
    fn parse(&self, text: &str) -> Result<u64, String> {
        let mut bits = 0;
        for part in text.split(',') {
            let (range, step) = part
                .split_once('/')
                .map_or((part, None), |(range, step)| (range, Some(step)));
            let step = match step {
                None => 1,
                Some(step) => step
                    .parse::<u32>()
                    .ok()
                    .filter(|step| (1..=self.high).contains(step))
                    .ok_or_else(|| {
                        format!(
                            "{step:?} is no step of the {}, which is 1 to {}",
                            self.name, self.high
                        )
                    })?,
            };
            let (low, high) = match range {
                "*" | "?" => (self.low, self.high),
                _ => match range.split_once('-') {
                    Some((low, high)) => (self.value(low)?, self.value(high)?),
                    // A step from a value on goes to the end.
                    None if step > 1 => (self.value(range)?, self.high),
                    None => (self.value(range)?, self.value(range)?),
                },
            };
            if low > high {
                return Err(format!("the {} {range:?} ends before it begins", self.name));
            }
            for value in (low..=high).step_by(step as usize) {
                bits |= 1 << value;
            }
        }
        Ok(bits)
    }

    fn any(text: &str) -> bool {
        text == "*" || text == "?"
    }
}

fn parse(text: &str) -> Result<Cron, String> {
    let spelled = match text.trim().to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other if other.starts_with('@') => return Err(format!("{other} is not known")),
        _ => text,
    };
    let fields: Vec<&str> = spelled.split_whitespace().collect();
    let (second, fields) = match fields.len() {
        5 => ("0", &fields[..]),
        6 => (fields[0], &fields[1..]),
        other => return Err(format!("it has {other} fields")),
    };
    let [minute, hour, day, month, weekday] = fields[..] else {
        return Err("it lacks fields".to_owned());
    };
    let weekdays = WEEKDAY.parse(weekday)?;
    let sunday = weekday_number(Weekday::Sunday);
    let cron = Cron {
        text: text.to_owned(),
        seconds: SECOND.parse(second)?,
        minutes: MINUTE.parse(minute)?,
        hours: HOUR.parse(hour)? as u32,
        days: DAY.parse(day)? as u32,
        months: MONTH.parse(month)? as u16,
        // 7 is Sunday too.
        weekdays: (weekdays & 0x7f | (weekdays >> 7 & 1) << sunday) as u8,
        any_day: Field::any(day),
        any_weekday: Field::any(weekday),
        any_hour: Field::any(hour),
    };
    match cron.next_after(Timestamp::UNIX_EPOCH, &TimeZone::UTC) {
        Some(_) => Ok(cron),
        None => Err("there is no such day".to_owned()),
    }
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Cron, CronError> {
        parse(text).map_err(|why| CronError {
            text: text.to_owned(),
            why,
        })
    }
}
