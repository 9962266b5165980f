//! A job manager on the runtime: priorities with aging, lanes that threads of the program pump, cooperative jobs.
//!
//! A [`JobManager`] starts no threads. It has a share of the workers of a runtime for the jobs of [`Lane::Any`]; the jobs of
//! other lanes run on threads of the program, when these [pump](JobManager::pump). Every job is a part of the runtime's
//! tree: cancelling it cancels everything below it, and a dump shows it by its label.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bodies;
mod builder;
mod callbacks;
mod cells;
mod context;
mod dependencies;
mod dispatch;
mod guests;
mod handle;
mod header;
mod job;
mod lane;
mod lock;
mod manager;
mod metrics;
mod moment;
mod nesting;
mod notes;
mod notices;
mod padded;
mod priority;
mod progress;
mod pump;
mod queue;
mod refused;
pub mod remote;
mod settings;
mod shared;
mod shutdown;
mod slots;
mod steps;
mod tracker;

pub use bodies::{Action, Boxed, Coroutine, Eventual, JobBody, Next, Steps, Task};
pub use builder::{BuildError, JobManagerBuilder};
pub use callbacks::{Call, Callbacks};
pub use context::{Context, ContextError, RunOn, Yielding};
pub use dependencies::{Dependency, On};
pub use handle::LaneHandle;
pub use job::LaneJob;
pub use lane::{FrameLane, Lane};
pub use manager::JobManager;
pub use metrics::{LaneStats, ManagerStats, PriorityStats, Slots, WAIT_BOUNDS, WaitHistogram};
pub use notices::Notice;
pub use priority::Priority;
pub use progress::{Payload, Progress};
pub use pump::{PumpError, PumpLimit, PumpReport, SlowJob};
pub use refused::{ScheduleRefused, WhyRefused};
pub use settings::SettingsError;
pub use shutdown::ShutdownError;
pub use steps::{Awaited, Routine, Step};
pub use tracker::{JobSnapshot, TrackedState, Tracker, TrackerView};
