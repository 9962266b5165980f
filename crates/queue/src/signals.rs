//! What is measured: samples of the machine, and signals that the host program pushes of itself.
//!
//! A sampler fills in what its platform has; what is missing is `None` and left out of the formula. Values that are
//! no numbers are taken for missing, and a sample without a sound CPU reading is no sample at all: a broken sampler
//! must not look like an idle machine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::Policy;

/// One measurement of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Idle part of all CPUs since the last sample, 0..=1.
    pub cpu_idle: f64,
    /// Part of all CPUs used by processes that registered as ours, with their children, 0..=1.
    pub own_cpu: f64,
    /// Load average a core.
    pub load_per_core: Option<f64>,
    /// CPU pressure, `some avg10`, percent.
    pub psi_cpu: Option<f64>,
    /// IO pressure, `some avg10`, percent.
    pub psi_io: Option<f64>,
    /// Memory pressure, `some avg10`, percent.
    pub psi_memory: Option<f64>,
    /// Available part of the memory, 0..=1.
    pub memory_available: Option<f64>,
    /// Part of the time that the busiest disk was at work, 0..=1.
    pub disk_busy: Option<f64>,
    /// Free part of the disk that the store lies on, 0..=1.
    pub disk_free: Option<f64>,
    /// Part of its speed that the busiest network interface was used at, in its busier direction, 0..=1.
    pub network: Option<f64>,
}

impl Sample {
    /// A machine that does nothing; the base of tests.
    pub fn idle() -> Sample {
        Sample {
            cpu_idle: 1.0,
            ..Sample::default()
        }
    }

    /// CPU used by others than us, 0..=1.
    pub fn foreign_cpu(&self) -> f64 {
        (1.0 - self.cpu_idle - self.own_cpu).clamp(0.0, 1.0)
    }

    /// The sample with what is no number taken out; none when the CPU was not measured.
    pub fn cleaned(mut self) -> Option<Sample> {
        if !self.cpu_idle.is_finite() {
            return None;
        }
        self.cpu_idle = self.cpu_idle.clamp(0.0, 1.0);
        self.own_cpu = if self.own_cpu.is_finite() {
            self.own_cpu.clamp(0.0, 1.0)
        } else {
            0.0
        };
        for value in [
            &mut self.load_per_core,
            &mut self.psi_cpu,
            &mut self.psi_io,
            &mut self.psi_memory,
            &mut self.memory_available,
            &mut self.disk_busy,
            &mut self.disk_free,
            &mut self.network,
        ] {
            *value = value.filter(|value| value.is_finite());
        }
        Some(self)
    }
}

/// What the host program says of itself: the machine may idle while its users wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostSignals {
    /// 95th percentile of its latency, in milliseconds.
    pub latency_ms: Option<f64>,
    /// Requests in flight.
    pub in_flight: Option<f64>,
    /// Requests a second.
    pub requests_per_sec: Option<f64>,
    /// Failed part of its requests, 0..=1.
    pub error_rate: Option<f64>,
}

impl HostSignals {
    fn cleaned(mut self) -> HostSignals {
        for value in [
            &mut self.latency_ms,
            &mut self.in_flight,
            &mut self.requests_per_sec,
            &mut self.error_rate,
        ] {
            *value = value.filter(|value| value.is_finite());
        }
        self
    }
}

/// The last of each, with its age.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signals {
    measured: Option<(Sample, Duration)>,
    pushed: Option<(HostSignals, Duration)>,
}

/// Whether there is something to go by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Freshness {
    /// A sample, and the host's signals where they are fresh too.
    Fresh(Sample, HostSignals),
    /// None for this long (since the start when there never was one).
    Stale(Duration),
}

impl Signals {
    /// Takes a sample; says whether it was one.
    pub fn measure(&mut self, sample: Sample, mono: Duration) -> bool {
        let sample = sample.cleaned();
        if let Some(sample) = sample {
            self.measured = Some((sample, mono));
        }
        sample.is_some()
    }

    /// Takes what the host pushed.
    pub fn push(&mut self, signals: HostSignals, mono: Duration) {
        self.pushed = Some((signals.cleaned(), mono));
    }

    /// The last sample, however old.
    pub fn last(&self) -> Option<&Sample> {
        self.measured.as_ref().map(|(sample, _)| sample)
    }

    /// What there is to go by at `mono`.
    pub fn freshness(&self, policy: &Policy, mono: Duration) -> Freshness {
        let age = |at: Option<Duration>| mono.saturating_sub(at.unwrap_or(Duration::ZERO));
        let limit = policy.busy.stale_after;
        let Some((sample, at)) = self.measured else {
            return Freshness::Stale(age(None));
        };
        if age(Some(at)) >= limit {
            return Freshness::Stale(age(Some(at)));
        }
        let pushed = self.pushed.filter(|&(_, at)| age(Some(at)) < limit);
        match pushed {
            Some((signals, _)) => Freshness::Fresh(sample, signals),
            None if policy.busy.pushed_required => {
                Freshness::Stale(age(self.pushed.map(|(_, at)| at)))
            }
            None => Freshness::Fresh(sample, HostSignals::default()),
        }
    }

    /// When the sample there is grows stale.
    pub fn stale_at(&self, policy: &Policy) -> Option<Duration> {
        self.measured.map(|(_, at)| at + policy.busy.stale_after)
    }
}
