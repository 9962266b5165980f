//! What runs use, as workers measure it, beside what jobs declare.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a run used. Each part is absent if the worker cannot measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Usage {
    /// The CPU time of all its processes, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// The processors of the machine that it ran on: they make the CPU time a part of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<u32>,
    /// The most memory that it used at once, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// The bytes that it read from disks and wrote to them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_bytes: Option<u64>,
}

// The names of the parts among a job's metrics.
const CPU: &str = "used_cpu_ms";
const PROCESSORS: &str = "used_processors";
const MEMORY: &str = "used_peak_memory_bytes";
const IO: &str = "used_io_bytes";

impl Usage {
    /// Adds the parts that are known to a job's metrics, where every reader of the job sees them.
    pub fn put_into(&self, metrics: &mut BTreeMap<String, f64>) {
        let parts = [
            (CPU, self.cpu_ms),
            (PROCESSORS, self.processors.map(u64::from)),
            (MEMORY, self.peak_memory_bytes),
            (IO, self.io_bytes),
        ];
        for (name, value) in parts {
            if let Some(value) = value {
                metrics.insert(name.to_owned(), value as f64);
            }
        }
    }

    /// Returns what [`Usage::put_into`] has put into these metrics.
    ///
    /// ```
    /// use jobtree_protocol::Usage;
    ///
    /// let usage = Usage { cpu_ms: Some(1200), ..Usage::default() };
    /// let mut metrics = Default::default();
    /// usage.put_into(&mut metrics);
    /// assert_eq!(Usage::of(&metrics), usage);
    /// ```
    pub fn of(metrics: &BTreeMap<String, f64>) -> Self {
        let part = |name: &str| metrics.get(name).map(|value| *value as u64);
        Self {
            cpu_ms: part(CPU),
            processors: part(PROCESSORS).and_then(|count| count.try_into().ok()),
            peak_memory_bytes: part(MEMORY),
            io_bytes: part(IO),
        }
    }
}

/// What runs of one type declared, and what was measured of them. Measured values are those that 95 % of the runs do not
/// exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct UsageStats {
    /// The number of runs that were measured, old ones counted less.
    pub runs: u64,
    /// The median of the declared cost units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared_cost: Option<f64>,
    /// The measured cost units: the part of the machine's CPU that a run used, of the units of the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_cost: Option<f64>,
    /// What admission charges for each declared unit if the policy says `cost.learn`; absent while there are too few runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_factor: Option<f64>,
    /// CPU time in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_sec: Option<f64>,
    /// The most memory at once, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<f64>,
    /// Bytes read from disks and written to them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_bytes: Option<f64>,
}

/// The cost of one job, declared and measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobCost {
    /// The declared cost units.
    pub declared: u32,
    /// The cost units that admission charges: those declared, unless the policy says `cost.learn`.
    pub charged: u32,
    /// What was measured of the job's type; absent if no run of it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<UsageStats>,
}
