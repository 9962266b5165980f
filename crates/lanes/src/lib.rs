//! A job manager on the runtime: priorities with aging, lanes that threads of the program pump, cooperative jobs.

#![forbid(unsafe_code)]

mod lane;
mod metrics;
mod moment;
mod notices;
mod priority;
mod progress;
mod queue;
mod settings;
mod tracker;

pub use lane::{FrameLane, Lane};
pub use metrics::{LaneStats, ManagerStats, PriorityStats, Slots, WAIT_BOUNDS, WaitHistogram};
pub use notices::Notice;
pub use priority::Priority;
pub use progress::{Payload, Progress};
pub use settings::SettingsError;
pub use tracker::{JobSnapshot, TrackedState, Tracker, TrackerView};
