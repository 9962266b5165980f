//! What a sampler asks of a machine, whichever operating system runs it.

use std::time::Duration;

use super::counters::Counters;
use super::family::Process;
use super::ownership::Place;

/// What is read as it is, and needs no second reading. What could not be read is absent, with a line in `missing`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Gauges {
    /// `some avg10` of the CPU, percent.
    pub(crate) psi_cpu: Option<f64>,
    pub(crate) psi_io: Option<f64>,
    pub(crate) psi_memory: Option<f64>,
    /// Available part of the memory, 0..=1.
    pub(crate) memory_available: Option<f64>,
    /// Free part of the disk that the store lies on, 0..=1.
    pub(crate) disk_free: Option<f64>,
    /// Load average over a minute.
    pub(crate) load: Option<f64>,
    pub(crate) missing: Vec<Missing>,
}

/// A signal that this machine does not give, and what is done without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The field of the sample.
    pub signal: &'static str,
    /// Why, and what stands in for it.
    pub why: String,
}

/// All processes at one moment, or as many as could be seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    pub(crate) processes: Vec<Process>,
    /// This moment in the unit of the start times, if it can be told.
    pub(crate) now: Option<u64>,
}

pub(crate) trait Machine: Send {
    fn counters(&mut self, at: Duration) -> Result<Counters, String>;

    fn gauges(&mut self) -> Gauges;

    /// The processes, with CPU times in the unit of [`Counters::total`].
    fn census(&mut self) -> Census;

    /// The process that has this pid now.
    fn process(&self, pid: u32) -> Option<Process>;

    /// The pid of this process.
    fn own_pid(&self) -> u32;

    /// Returns what a worker's processes are compared with; none where that cannot be told, and then none of them counts.
    fn place(&self) -> Option<Place>;

    fn processors(&self) -> usize;
}
