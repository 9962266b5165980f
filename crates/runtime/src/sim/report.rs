//! What came of a simulation.

use std::time::Duration;

use super::error::SimError;

/// What came of a simulation; see [`Runtime::run`](super::Runtime::run).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report<T> {
    /// What the program returned, or why there is nothing.
    pub outcome: Result<T, SimError>,
    /// The seed.
    pub seed: u64,
    /// A hash over every decision, every event of a job and every change of the time. Runs that are alike in it are the
    /// same run.
    pub trace_hash: u64,
    /// How many turns were given and points passed.
    pub steps: u64,
    /// How much time has passed, by the simulation's clock.
    pub elapsed: Duration,
    /// What happened, for people; empty unless [`record_trace`](super::Builder::record_trace) was asked for.
    ///
    /// A line begins with the number of the worker that it is about.
    pub trace: String,
}
