//! A thread that measures, and tells a scheduler.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Missing, SampleError, Sampler};
use crate::{Clock, Scheduler};

/// The first sample comes this soon: nothing is admitted before it.
const FIRST: Duration = Duration::from_millis(150);

/// Measures this machine for a scheduler at intervals, until it is dropped. Processes that workers registered are ours.
#[derive(Debug)]
#[must_use = "dropped, it measures no more, and nothing is admitted soon after"]
pub struct Sampling {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: Mutex<bool>,
    bell: Condvar,
    missing: Mutex<Vec<Missing>>,
    error: Mutex<Option<SampleError>>,
}

impl Sampling {
    /// Begins for a daemon, whose own process is no job's. `store` lies on the disk whose free space counts.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn start(
        scheduler: &Scheduler,
        store: impl AsRef<Path>,
        every: Duration,
    ) -> io::Result<Sampling> {
        Self::begin(scheduler, Sampler::new(store), every)
    }

    /// Begins for jobs that run in this very process.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn start_in_process(
        scheduler: &Scheduler,
        store: impl AsRef<Path>,
        every: Duration,
    ) -> io::Result<Sampling> {
        Self::begin(scheduler, Sampler::new(store).in_process(), every)
    }

    fn begin(scheduler: &Scheduler, sampler: Sampler, every: Duration) -> io::Result<Sampling> {
        let shared = Arc::<Shared>::default();
        let (inside, scheduler) = (Arc::clone(&shared), scheduler.clone());
        let thread = std::thread::Builder::new().name("jobtree-sampler".to_owned());
        let thread = thread.spawn(move || inside.measure(&scheduler, sampler, every))?;
        Ok(Sampling {
            shared,
            thread: Some(thread),
        })
    }

    /// What this machine does not tell, and what stands in for it.
    pub fn missing(&self) -> Vec<Missing> {
        let missing = &self.shared.missing;
        missing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Why there was no sample last, if there was none.
    pub fn error(&self) -> Option<SampleError> {
        let error = &self.shared.error;
        error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        let mut stopped = self
            .shared
            .stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *stopped = true;
        drop(stopped);
        self.shared.bell.notify_all();
        if let Some(thread) = self.thread.take() {
            // It only measures: a panic there has been printed, and is nothing to pass on from here.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn measure(&self, scheduler: &Scheduler, mut sampler: Sampler, every: Duration) {
        let clock = Clock::system();
        let mut pause = FIRST.min(every);
        loop {
            let capacity = scheduler.policy().capacity.units;
            sampler.register(&scheduler.processes(), capacity);
            let sampled = sampler.sample(clock.mono());
            if let Ok(sample) = sampled {
                scheduler.sample(sample);
                pause = every;
                let missing = sampler.missing().to_vec();
                *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = missing;
            }
            *self.error.lock().unwrap_or_else(PoisonError::into_inner) = sampled.err();
            let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self
                .bell
                .wait_timeout_while(stopped, pause, |stopped| !*stopped);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
    }
}
