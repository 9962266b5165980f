//! Signals as people read them: a name, a value with its unit, and the value that is the bound.

use std::fmt;

/// A signal that is higher than it should be, with the value it must come down to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HighSignal {
    /// The field of the policy.
    pub signal: &'static str,
    /// The measured value.
    pub value: f64,
    /// The value at which this signal alone would be at the bound.
    pub bound: f64,
}

/// How the value of a signal is written.
enum Unit {
    /// A part of a whole, 0..=1, written in percent.
    Part,
    /// Percent, as the kernel tells it.
    Percent,
    Milliseconds,
    /// A number of things.
    Count,
    /// A number with one decimal.
    Ratio,
}

/// Returns the name of a signal in texts, and its unit.
fn described(signal: &str) -> (&str, Unit) {
    match signal {
        "latency_ms" => ("latency of the host's requests", Unit::Milliseconds),
        "in_flight" => ("requests in flight at the host", Unit::Count),
        "requests_per_sec" => ("requests a second at the host", Unit::Ratio),
        "error_rate" => ("failing requests of the host", Unit::Part),
        "cpu" => ("CPU used by other programs", Unit::Part),
        "load_per_core" => ("load average per core", Unit::Ratio),
        "psi_cpu" => ("CPU pressure", Unit::Percent),
        "psi_io" => ("IO pressure", Unit::Percent),
        "psi_memory" => ("memory pressure", Unit::Percent),
        "memory_available" => ("available memory", Unit::Part),
        "disk_busy" => ("busiest disk", Unit::Part),
        "disk_free" => ("free space on the disk of the store", Unit::Part),
        "network" => ("busiest network interface", Unit::Part),
        other => (other, Unit::Ratio),
    }
}

fn written(value: f64, unit: &Unit) -> String {
    match unit {
        Unit::Part => format!("{:.0} %", value * 100.0),
        Unit::Percent => format!("{value:.0} %"),
        Unit::Milliseconds => format!("{value:.0} ms"),
        Unit::Count => format!("{value:.0}"),
        Unit::Ratio => format!("{value:.1}"),
    }
}

impl HighSignal {
    /// Returns `true` if less is worse, as for free space.
    fn is_a_lack(&self) -> bool {
        self.value < self.bound
    }

    /// Returns what would have to be measured.
    pub fn wanted(&self) -> String {
        let (name, unit) = described(self.signal);
        let least = if self.is_a_lack() { "least" } else { "most" };
        format!("{name} at {least} {}", written(self.bound, &unit))
    }

    /// Returns the value and the bound with their unit.
    pub fn written(&self) -> (String, String) {
        let (_, unit) = described(self.signal);
        (written(self.value, &unit), written(self.bound, &unit))
    }
}

impl fmt::Display for HighSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = described(self.signal);
        let (value, bound) = self.written();
        write!(f, "{name} {value} (bound {bound})")
    }
}

/// Writes signals one behind the other, at most three.
pub(crate) fn list(signals: &[HighSignal]) -> String {
    let shown: Vec<String> = signals.iter().take(3).map(ToString::to_string).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_written_with_its_unit_and_its_bound() {
        for (signal, value, bound, text) in [
            ("psi_cpu", 81.2, 59.0, "CPU pressure 81 % (bound 59 %)"),
            (
                "cpu",
                0.97,
                0.5,
                "CPU used by other programs 97 % (bound 50 %)",
            ),
            (
                "latency_ms",
                812.4,
                575.0,
                "latency of the host's requests 812 ms (bound 575 ms)",
            ),
            (
                "load_per_core",
                1.31,
                0.9,
                "load average per core 1.3 (bound 0.9)",
            ),
        ] {
            let signal = HighSignal {
                signal,
                value,
                bound,
            };
            assert_eq!(signal.to_string(), text);
            assert!(signal.wanted().contains("at most"), "{}", signal.wanted());
        }
        let lack = HighSignal {
            signal: "memory_available",
            value: 0.05,
            bound: 0.088,
        };
        assert_eq!(lack.wanted(), "available memory at least 9 %");
    }
}
