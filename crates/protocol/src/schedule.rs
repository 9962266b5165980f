//! Jobs by the clock.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{JobId, ScheduleId, SubmitRequest};

/// What happens to firings that were missed because no daemon ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// Nothing.
    Skip,
    /// One job stands for all of them.
    #[default]
    Once,
    /// One job each, in order.
    All,
}

/// What happens when a firing finds the job of the one before not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It is submitted all the same.
    #[default]
    Allow,
    /// It is left out.
    Forbid,
}

/// A schedule as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// A name for people, unique.
    pub name: String,
    /// Five fields: minute, hour, day of month, month, day of week.
    pub cron: String,
    /// In which time zone, by its IANA name: `Europe/Berlin`. UTC if absent.
    #[serde(default = "utc")]
    pub time_zone: String,
    /// Each firing is moved by up to this, always the same for one firing.
    #[serde(default)]
    pub jitter_sec: u32,
    /// What happens to missed firings.
    #[serde(default)]
    pub missed: Missed,
    /// What happens to overlapping ones.
    #[serde(default)]
    pub overlap: Overlap,
    /// It does not fire.
    #[serde(default)]
    pub paused: bool,
    /// What is submitted.
    pub job: SubmitRequest,
}

fn utc() -> String {
    "UTC".into()
}

/// A schedule as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleView {
    /// Its id.
    pub schedule_id: ScheduleId,
    /// As it is written.
    pub spec: ScheduleSpec,
    /// When it fires next; never while it is paused.
    #[serde(default)]
    pub next_at: Option<Timestamp>,
    /// When it fired last.
    #[serde(default)]
    pub last_at: Option<Timestamp>,
    /// The job of that.
    #[serde(default)]
    pub last_job: Option<JobId>,
}
