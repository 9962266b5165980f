//! A job manager on the runtime: priorities with aging, lanes that threads of the program pump, cooperative jobs.

#![forbid(unsafe_code)]

mod lane;
mod moment;
mod priority;
mod progress;
mod queue;
pub mod remote;
mod settings;

pub use lane::{FrameLane, Lane};
pub use priority::Priority;
pub use progress::{Payload, Progress};
pub use settings::SettingsError;
