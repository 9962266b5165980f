//! What the figures were taken on.

use jobtree_pool::{BuildError, Pool};

use crate::error::CliError;

/// The machine as the pool sees it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// How many CPUs this process may use.
    pub cpus: usize,
    /// How many workers a pool has here, by the arguments and variables.
    pub workers: usize,
}

impl Machine {
    /// Starts the pool that a program would get, which is how a variable that makes no sense comes to light.
    pub fn look(workers: Option<usize>) -> Result<Self, CliError> {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
        Ok(Self {
            cpus,
            workers: start_pool(workers)?.workers(),
        })
    }
}

/// A pool with that many workers, or with as many as it takes by itself.
pub fn start_pool(workers: Option<usize>) -> Result<Pool, CliError> {
    let builder = Pool::builder();
    let builder = match workers {
        Some(workers) => builder.workers(workers),
        None => builder,
    };
    builder
        .build()
        .map_err(|error: BuildError| CliError::Usage {
            message: error.to_string(),
            hint: Some(
                "JOBTREE_WORKERS and JOBTREE_WORKER_CAP take a whole number of workers, at least 1"
                    .into(),
            ),
        })
}
