//! Busy: one number, 0 (nothing but us) to 10.
//!
//! Each signal is placed in its range of the policy, 0..=1 (`p`). Then
//!
//! ```text
//! mean  = 10 · Σ weight·p / Σ weight        over the weighted signals that there are
//! veto  = 10 · max p                        over pressure, memory and disk
//! busy  = max(mean, veto)
//! ```
//!
//! CPU time alone is no overload: programs that use every core and wait for none of them are served. So CPU and load average
//! bring busy to `quiet.busy_max` (BUSY) and no further, unless CPU pressure, or the host's own signals, are beyond that bound
//! too. Where the kernel measures no pressure, the load average stands for it.
//!
//! Weighted (defaults): the host's p95 latency 50..800 ms (.30), in-flight 1..20 (.25), requests/s 0.5..25 (.15), error
//! rate .01...20 (.10); CPU of others 10..90 % (.10), load a core 0.2..1.2 (.10). "CPU of others" is what is not idle
//! less what registered processes of ours use: our own jobs must not keep us from running jobs.
//!
//! Vetoes: PSI says that somebody waits, which no mean may hide; memory pressure can read 0 while IO is stalled, so that
//! each resource has its own. CPU pressure counts by the foreign share of the CPU in use, for jobs of ours that wait for
//! each other disturb nobody else.
//!
//! Headroom is another question than contention: `cpu`, the CPU of others in the same range alone, bounds the
//! *capacity* also where a mean of many idle signals would hide it (see [`crate::capacity`]).

use serde::Serialize;

use crate::policy::{Policy, SignalRange};
use crate::signal_names::HighSignal;
use crate::signals::{HostSignals, Sample};

/// A resource that a job can be heavy on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// `cpu_heavy`: CPU of others, CPU pressure.
    Cpu,
    /// `disk_write_heavy`: IO pressure, disk time, free space.
    Disk,
    /// `network_heavy`: the busiest interface, the host's latency and requests in flight.
    Network,
    /// `memory_heavy`: memory pressure, available memory.
    Memory,
}

impl Resource {
    /// All of them, in the order of [`Reading::pressure`].
    pub const ALL: [Resource; 4] = [
        Resource::Cpu,
        Resource::Disk,
        Resource::Network,
        Resource::Memory,
    ];

    /// Its name in constraints and texts.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Cpu => "cpu",
            Resource::Disk => "disk",
            Resource::Network => "network",
            Resource::Memory => "memory",
        }
    }
}

/// One signal's part in a reading.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// The field of the policy.
    pub signal: &'static str,
    /// What was measured.
    pub value: f64,
    /// Its place in the range, 0..=10.
    pub level: f64,
    /// Its weight; a veto has none.
    pub weight: Option<f64>,
    /// The value at which it would read 10, and the one at which it reads 0.
    #[serde(skip)]
    range: (f64, f64),
}

impl Part {
    /// Returns the value at which this signal reads a level, 0..=10.
    fn value_at(&self, level: f64) -> f64 {
        let (low, high) = self.range;
        low + (high - low) * level / 10.0
    }
}

/// Signals made comparable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// 0..=10.
    pub busy: f64,
    /// CPU of others alone, 0..=10: what bounds capacity.
    pub cpu: f64,
    /// Pressure on each resource, 0..=10, in the order of [`Resource::ALL`].
    pub pressure: [f64; 4],
    /// What it was made of.
    pub parts: Vec<Part>,
}

impl Reading {
    /// Reads signals by a policy.
    pub fn of(whole: &Policy, sample: &Sample, host: &HostSignals) -> Reading {
        let (policy, most) = (&whole.busy, whole.quiet.busy_max);
        let mut parts = Vec::with_capacity(13);
        let mut take = |signal, range: &SignalRange, value: Option<f64>, weighted: bool| -> f64 {
            let Some(value) = value else { return 0.0 };
            let level = rounded(10.0 * range.place(value));
            let weight = weighted.then_some(range.weight);
            parts.push(Part {
                signal,
                value,
                level,
                weight,
                range: (range.low, range.high),
            });
            level
        };
        let foreign = sample.foreign_cpu();
        let latency = take("latency_ms", &policy.latency_ms, host.latency_ms, true);
        let in_flight = take("in_flight", &policy.in_flight, host.in_flight, true);
        let requests = take(
            "requests_per_sec",
            &policy.requests_per_sec,
            host.requests_per_sec,
            true,
        );
        let errors = take("error_rate", &policy.error_rate, host.error_rate, true);
        let cpu = take("cpu", &policy.cpu, Some(foreign), true);
        let load = take(
            "load_per_core",
            &policy.load_per_core,
            sample.load_per_core,
            true,
        );

        let in_use = foreign + sample.own_cpu;
        let share = if in_use > 0.0 { foreign / in_use } else { 1.0 };
        let psi_cpu = take(
            "psi_cpu",
            &policy.psi_cpu,
            sample.psi_cpu.map(|psi| psi * share),
            false,
        );
        let psi_io = take("psi_io", &policy.psi_io, sample.psi_io, false);
        let psi_memory = take("psi_memory", &policy.psi_memory, sample.psi_memory, false);
        let available = take(
            "memory_available",
            &policy.memory_available,
            sample.memory_available,
            false,
        );
        let disk_busy = take("disk_busy", &policy.disk_busy, sample.disk_busy, false);
        let disk_free = take("disk_free", &policy.disk_free, sample.disk_free, false);
        let network = take("network", &policy.network, sample.network, true);

        let waits = match sample.psi_cpu {
            Some(_) => psi_cpu,
            None => load,
        };
        let overloaded = [waits, latency, in_flight, requests, errors];
        let bound = match overloaded.into_iter().any(|level| level > most) {
            true => 10.0,
            false => most,
        };
        let weighted = parts
            .iter()
            .filter_map(|part| part.weight.map(|weight| (weight, part.level)));
        let (weights, sum) = weighted.fold((0.0, 0.0), |(weights, sum), (weight, level)| {
            (weights + weight, sum + weight * level)
        });
        let mean = if weights > 0.0 { sum / weights } else { 0.0 };
        let (mean, headroom) = (mean.min(bound), cpu.min(bound));
        let vetoes = parts
            .iter()
            .filter(|part| part.weight.is_none())
            .map(|part| part.level);
        let busy = rounded(vetoes.fold(mean, f64::max).clamp(0.0, 10.0));
        let pressure = [
            cpu.max(psi_cpu),
            psi_io.max(disk_busy).max(disk_free),
            latency.max(in_flight).max(network),
            psi_memory.max(available),
        ];
        Reading {
            busy,
            cpu: headroom,
            pressure,
            parts,
        }
    }

    /// Returns the signals that are above a level, 0..=10, the worst first. Those without a part in busy are left out.
    pub fn above(&self, level: f64) -> Vec<HighSignal> {
        let counts = |part: &&Part| part.level > level && part.weight != Some(0.0);
        let mut high: Vec<&Part> = self.parts.iter().filter(counts).collect();
        high.sort_by(|a, b| b.level.total_cmp(&a.level));
        let high = high.into_iter().map(|part| HighSignal {
            signal: part.signal,
            value: part.value,
            bound: part.value_at(level),
        });
        high.collect()
    }

    /// The pressure on one resource, 0..=10.
    pub fn on(&self, resource: Resource) -> f64 {
        self.pressure[resource as usize]
    }
}

/// To a millionth: what is exactly at a bound must not be beyond it because decimals are not exact.
fn rounded(level: f64) -> f64 {
    (level * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sample: Sample, host: HostSignals) -> Reading {
        Reading::of(&Policy::default(), &sample, &host)
    }

    #[test]
    fn the_bounds_of_each_signal_read_0_and_10() {
        let only = |host| read(Sample::idle(), host).parts[0].level;
        for (low, high) in [
            (
                HostSignals {
                    latency_ms: Some(50.0),
                    ..Default::default()
                },
                HostSignals {
                    latency_ms: Some(800.0),
                    ..Default::default()
                },
            ),
            (
                HostSignals {
                    in_flight: Some(1.0),
                    ..Default::default()
                },
                HostSignals {
                    in_flight: Some(20.0),
                    ..Default::default()
                },
            ),
            (
                HostSignals {
                    requests_per_sec: Some(0.5),
                    ..Default::default()
                },
                HostSignals {
                    requests_per_sec: Some(25.0),
                    ..Default::default()
                },
            ),
            (
                HostSignals {
                    error_rate: Some(0.01),
                    ..Default::default()
                },
                HostSignals {
                    error_rate: Some(0.2),
                    ..Default::default()
                },
            ),
        ] {
            assert_eq!((only(low), only(high)), (0.0, 10.0));
        }
    }

    #[test]
    fn weights_are_those_of_the_policy() {
        let host = HostSignals {
            latency_ms: Some(800.0),
            in_flight: Some(1.0),
            requests_per_sec: Some(0.5),
            error_rate: Some(0.0),
        };
        let sample = Sample {
            load_per_core: Some(0.2),
            ..Sample::idle()
        };
        let busy = read(sample, host).busy;
        assert!(
            (busy - 3.0).abs() < 1e-9,
            "latency alone, all signals there: .30 of 10, not {busy}"
        );
        // What is not measured does not dilute what is.
        let alone = HostSignals {
            latency_ms: Some(800.0),
            ..Default::default()
        };
        let busy = read(Sample::idle(), alone).busy;
        assert!((busy - 10.0 * 0.30 / 0.40).abs() < 1e-9, "{busy}");
    }

    #[test]
    fn a_foreign_load_counts_and_the_same_load_of_ours_does_not() {
        let foreign = read(
            Sample {
                cpu_idle: 0.5,
                psi_cpu: Some(40.0),
                ..Sample::idle()
            },
            HostSignals::default(),
        );
        let ours = Sample {
            cpu_idle: 0.5,
            own_cpu: 0.5,
            psi_cpu: Some(40.0),
            ..Sample::idle()
        };
        let ours = read(ours, HostSignals::default());
        assert!((foreign.busy - 5.0).abs() < 1e-9, "{foreign:?}");
        assert_eq!((ours.busy, ours.cpu), (0.0, 0.0));
    }

    #[test]
    fn pressure_on_one_resource_vetoes_what_the_mean_would_hide() {
        let host = HostSignals {
            latency_ms: Some(50.0),
            in_flight: Some(0.0),
            ..Default::default()
        };
        let stalled = Sample {
            psi_io: Some(63.0),
            psi_memory: Some(0.0),
            ..Sample::idle()
        };
        let reading = read(stalled, host);
        assert_eq!(reading.busy, 10.0);
        assert_eq!(
            (reading.on(Resource::Disk), reading.on(Resource::Memory)),
            (10.0, 0.0)
        );
        let full = Sample {
            memory_available: Some(0.04),
            ..Sample::idle()
        };
        assert_eq!(read(full, host).on(Resource::Memory), 10.0);
    }
}
