//! Durations as people write them: `"250ms"`, `"30s"`, `"15m"`, `"6h"`, `"1d"`, `"1h30m"`.

use std::time::Duration;

/// Reads a duration such as `"90s"` or `"1h30m"`; `"0"` needs no unit.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .filter(|&digits| digits > 0)?;
        let count: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let millis: u64 = match &rest[..unit] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        rest = &rest[unit..];
        total = total.checked_add(Duration::from_millis(count.checked_mul(millis)?))?;
    }
    (!text.is_empty()).then_some(total)
}

/// Writes what [`parse_duration`] reads.
pub(crate) fn write_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (size, unit) in [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ] {
        if millis > 0 && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    if millis == 0 {
        "0".to_owned()
    } else {
        format!("{millis}ms")
    }
}

pub(super) mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::write_duration(*duration))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_duration(&text).ok_or_else(|| {
            let allowed = "write whole numbers with ms, s, m, h or d, such as \"30s\" or \"1h30m\"";
            D::Error::custom(format!("{text:?} is not a duration: {allowed}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_people_write_them() {
        for (text, millis) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("0", 0),
            ("2d", 172_800_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
            let written = write_duration(Duration::from_millis(millis));
            assert_eq!(
                parse_duration(&written),
                Some(Duration::from_millis(millis)),
                "{written}"
            );
        }
        for text in [
            "",
            "30",
            "s",
            "30 s",
            "-1s",
            "1.5h",
            "5w",
            "99999999999999999999s",
            "300000000000000000d",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
