//! What the machine does, measured: pressure, idle processors, memory and disks, with our own jobs' part taken out.
//!
//! A sampler compares each reading with the one before it, so a sample is of the time between two calls. It gives what
//! [`jobtree_queue::signals`] defines; what a machine does not tell is absent there, and [`Sampler::missing`] says what
//! and what stands in for it. It reads files, some for each process while any is registered: call it from a thread that may
//! block.
//!
//! The load average counts everything that runs, and lags by a minute. It is given only where there is no CPU pressure,
//! and less the same average of our own.

mod counters;
#[cfg(any(test, not(target_os = "linux")))]
mod elsewhere;
mod family;
#[cfg(target_os = "linux")]
mod linux;
mod machine;
mod ownership;
mod sampling;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jobtree_queue::signals::Sample;

use crate::core::LeaseProcesses;

use counters::{MinuteAverage, NoPair};
use family::Family;
pub use machine::Missing;
use ownership::Ownership;
pub use sampling::Sampling;

#[cfg(not(target_os = "linux"))]
use elsewhere::Elsewhere as Here;
#[cfg(target_os = "linux")]
use linux::Linux as Here;

pub(crate) use counters::Counters;
#[cfg(feature = "sim")]
pub(crate) use family::Process;
#[cfg(feature = "sim")]
pub(crate) use machine::Census;
pub(crate) use machine::{Gauges, Machine};
#[cfg(feature = "sim")]
pub(crate) use ownership::Place;

/// Measures this machine; see the [module](self).
///
/// ```
/// use std::time::{Duration, Instant};
/// use jobtree_scheduler::sampler::{SampleError, Sampler};
///
/// let began = Instant::now();
/// let mut sampler = Sampler::new("jobs.db");
/// let sample = loop {
///     std::thread::sleep(Duration::from_millis(20));
///     match sampler.sample(began.elapsed()) {
///         Ok(sample) => break sample,
///         Err(SampleError::TooSoon | SampleError::Jumped) => continue,
///         Err(error) => panic!("{error}"),
///     }
/// };
/// assert!((0.0..=1.0).contains(&sample.foreign_cpu()));
/// ```
pub struct Sampler {
    machine: Box<dyn Machine>,
    before: Option<Counters>,
    ownership: Ownership,
    family: Family,
    /// When the family was last looked at, in the unit of start times.
    looked: Option<u64>,
    /// Time of each registered process and those that belong to it since `before`: kept when a pair comes too soon.
    used: BTreeMap<u32, u64>,
    own_load: MinuteAverage,
    missing: Vec<Missing>,
}

/// Why there is no sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleError {
    /// The last call was so shortly before this one that the machine's counters have hardly moved, or this is the first:
    /// call again after a tenth of a second or more.
    TooSoon,
    /// A counter went back, as after a suspend or when a processor was taken away: the next call measures again.
    Jumped,
    /// The processors' time cannot be read. Admission fails closed without it; see whether `/proc` is mounted.
    Unreadable(String),
}

impl fmt::Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSoon => f.write_str("too soon after the last reading: measure again later"),
            Self::Jumped => f.write_str("the machine's counters went back: measure again later"),
            Self::Unreadable(why) => write!(
                f,
                "the processors' time cannot be read ({why}): no load is known, nothing is admitted"
            ),
        }
    }
}

impl std::error::Error for SampleError {}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler")
            .field("before", &self.before)
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

impl Sampler {
    /// A sampler of this machine, which watches the free space of the disk that `store` lies on.
    pub fn new(store: impl AsRef<Path>) -> Self {
        Self::of(Here::new(store.as_ref()))
    }

    pub(crate) fn of(machine: impl Machine + 'static) -> Self {
        Sampler {
            machine: Box::new(machine),
            before: None,
            ownership: Ownership::default(),
            family: Family::default(),
            looked: None,
            used: BTreeMap::new(),
            own_load: MinuteAverage::default(),
            missing: Vec::new(),
        }
    }

    /// Makes this a sampler for jobs that run in this very process: its own load counts as theirs, without a bound, while
    /// a lease names it. Without this, this process never counts.
    #[must_use]
    pub fn in_process(mut self) -> Self {
        self.ownership.in_process = true;
        self
    }

    /// Registers the processes of these leases, and no others: what they and all below them use is ours from now on, for
    /// each lease up to its part of `capacity`. A process counts only if the worker's boot id, pid namespace and start
    /// time agree with what this process reads; process 1, this process and its ancestors never count.
    pub fn register(&mut self, leases: &[Arc<LeaseProcesses>], capacity: u32) {
        self.ownership.register(leases, capacity, &*self.machine);
        self.family.register(self.ownership.accepted());
    }

    /// Plants a mistake: every pid counts for the process that has it.
    #[cfg(feature = "sim")]
    pub(crate) fn trust_pids(&mut self) {
        self.ownership.trusts_pids = true;
    }

    /// What happened since the last call; `at` is the time now by a clock that nobody sets.
    ///
    /// # Errors
    /// If there is nothing to compare with yet, or it cannot be compared: see [`SampleError`].
    pub fn sample(&mut self, at: Duration) -> Result<Sample, SampleError> {
        let unreadable = SampleError::Unreadable;
        let now = self.machine.counters(at).map_err(unreadable)?;
        let looked = self.look();
        let Some(before) = &self.before else {
            self.begin(now);
            return Err(SampleError::TooSoon);
        };
        for (root, used) in looked {
            *self.used.entry(root).or_default() += used;
        }
        let interval = match now.since(before) {
            Ok(interval) => interval,
            Err(NoPair::TooSoon) => return Err(SampleError::TooSoon),
            Err(NoPair::Jumped) => {
                self.begin(now);
                return Err(SampleError::Jumped);
            }
        };
        let own = self.ownership.own_time(&self.used, interval.total);
        let own_cpu = (own as f64 / interval.total as f64).min(1.0 - interval.idle);
        self.begin(now);
        let gauges = self.machine.gauges();
        let processors = self.machine.processors() as f64;
        let own_load = self.own_load.add(own_cpu * processors, interval.time);
        let load = foreign_load(&gauges, own_load).map(|load| load / processors);
        self.missing = gauges.missing;
        Ok(Sample {
            cpu_idle: interval.idle,
            own_cpu,
            load_per_core: load,
            psi_cpu: gauges.psi_cpu,
            psi_io: gauges.psi_io,
            psi_memory: gauges.psi_memory,
            memory_available: gauges.memory_available,
            disk_busy: interval.disk_busy,
            disk_free: gauges.disk_free,
            network: interval.network,
        })
    }

    /// What the last sample lacks, and what stands in for it.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    fn begin(&mut self, counters: Counters) {
        self.before = Some(counters);
        self.used.clear();
    }

    fn look(&mut self) -> BTreeMap<u32, u64> {
        if self.family.is_empty() {
            self.looked = None;
            return self.family.look(&[], None);
        }
        let census = self.machine.census();
        let used = self.family.look(&census.processes, self.looked);
        self.looked = census.now;
        used
    }
}

fn foreign_load(gauges: &Gauges, own: f64) -> Option<f64> {
    match gauges.psi_cpu {
        Some(_) => None,
        None => gauges.load.map(|load| (load - own).max(0.0)),
    }
}

#[cfg(test)]
mod tests;
