//! How busy a machine was.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::QuietState;

/// One measurement, or the average of some.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoadSample {
    /// When it was taken; of an average, its end.
    pub at: Timestamp,
    /// How busy, 0 to 10.
    pub busy: f64,
    /// What that means.
    pub state: QuietState,
    /// Units there were at this load.
    pub capacity: u32,
    /// Units held by leases and reservations.
    pub used: u32,
    /// The part of all CPUs that others used, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_cpu: Option<f64>,
    /// The part of all CPUs that registered processes used, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_cpu: Option<f64>,
    /// The part of the memory that is available, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_available: Option<f64>,
    /// CPU pressure, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psi_cpu: Option<f64>,
    /// IO pressure, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psi_io: Option<f64>,
    /// Memory pressure, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psi_memory: Option<f64>,
    /// Load average per core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_per_core: Option<f64>,
    /// The part of the time that the busiest disk was at work, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_busy: Option<f64>,
    /// The free part of the disk that the store lies on, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free: Option<f64>,
    /// The part of its speed that the busiest network interface was used at, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<f64>,
}

/// An hour of a machine's load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoadHour {
    /// The beginning of the hour.
    pub at: Timestamp,
    /// The number of minutes that were measured.
    pub minutes: u32,
    /// The mean of busy, 0 to 10, over these minutes.
    pub busy: f64,
    /// The number of minutes in which the machine was QUIET throughout.
    pub quiet: u32,
}

/// The answer to `GET …/load/hours`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoadHours {
    /// The hours in which something was measured, the oldest first.
    pub hours: Vec<LoadHour>,
}
