//! A simulated pool as the layer above sees it.

use std::fmt;

use crate::sleep::MAX_WORKERS;
use crate::stack::{DEFAULT_STACK_SIZE, StackError};

#[cfg(jobtree_stacks)]
pub use super::hub::SimulatedPool;

/// Describes a simulation.
#[derive(Clone, Copy, Debug)]
pub struct SimulationOptions {
    /// The seed that decides everything.
    pub seed: u64,
    /// The number of logical workers.
    pub workers: usize,
    /// Bytes of each stack.
    pub stack_size: usize,
    /// `true` if the trace is kept as text.
    pub keeps_trace: bool,
}

impl SimulationOptions {
    /// Four workers, the usual stacks, no text.
    pub fn new(seed: u64) -> SimulationOptions {
        SimulationOptions {
            seed,
            workers: 4,
            stack_size: DEFAULT_STACK_SIZE,
            keeps_trace: false,
        }
    }
}

/// The surroundings of a simulated pool: the end of the program, and the clock.
pub trait World {
    /// Returns `true` if the hub shall return now. Called before each turn.
    fn is_over(&mut self) -> bool;

    /// Returns `true` if an event seems to be due at the present time: it may then happen before workers get their next turn.
    /// `steps` is the number of steps so far.
    fn is_due(&mut self, steps: u64) -> bool;

    /// Lets the next thing happen that is due at the present time.
    fn happen(&mut self);

    /// No worker can go on: lets the next thing happen that is only a matter of time, and the time be what it is then;
    /// `false` if there is nothing.
    fn advance(&mut self) -> bool;
}

/// A world in which no time passes.
#[cfg(jobtree_stacks)]
pub(super) struct NoTime;

#[cfg(jobtree_stacks)]
impl World for NoTime {
    fn is_over(&mut self) -> bool {
        false
    }

    fn is_due(&mut self, _: u64) -> bool {
        false
    }

    fn happen(&mut self) {}

    fn advance(&mut self) -> bool {
        false
    }
}

/// The reason why the hub has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The world said so.
    Over,
    /// No worker can go on, and time would change nothing.
    Stuck,
    /// The limit of steps was reached.
    Limit,
}

/// The reason why there is no simulation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SimulationError {
    /// Stacks cannot be switched on this platform.
    NoStacks,
    /// A simulation runs on this thread already.
    Nested,
    /// The calling thread is a worker of a pool.
    OnWorker,
    /// No workers, or more than a pool can have.
    Workers {
        /// The number of workers that was requested.
        requested: usize,
    },
    /// The stack size is absurd, or no stack could be had.
    Stack(StackError),
}

impl fmt::Display for SimulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimulationError::NoStacks => f.write_str(
                "a simulation switches stacks, which cannot be done on this platform (nor under Miri); run it on \
                 Unix on x86-64, AArch64 or RISC-V",
            ),
            SimulationError::Nested => f.write_str(
                "a simulation runs on this thread already; one simulation cannot contain another",
            ),
            SimulationError::OnWorker => f.write_str(
                "the calling thread is a worker of a pool; start the simulation from a thread of its own",
            ),
            SimulationError::Workers { requested } => write!(
                f,
                "a simulation has from 1 to {MAX_WORKERS} workers, not {requested}"
            ),
            SimulationError::Stack(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SimulationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SimulationError::Stack(error) => Some(error),
            _ => None,
        }
    }
}

/// The type where stacks cannot be switched: it has no values.
#[cfg(not(jobtree_stacks))]
#[derive(Debug)]
pub enum SimulatedPool {}

#[cfg(not(jobtree_stacks))]
mod absent {
    use std::any::Any;

    use super::super::Ending;
    use super::{Pause, SimulatedPool, SimulationError, SimulationOptions, World};
    use crate::raw::PoolRef;

    #[allow(missing_docs, reason = "as in `hub.rs`")]
    impl SimulatedPool {
        pub fn new(_: SimulationOptions) -> Result<SimulatedPool, SimulationError> {
            Err(SimulationError::NoStacks)
        }

        pub fn pool_ref(&self) -> PoolRef {
            match *self {}
        }

        pub fn run(&mut self, _: &mut dyn World, _: u64) -> Pause {
            match *self {}
        }

        pub fn steps(&self) -> u64 {
            match *self {}
        }

        pub fn hash(&self) -> u64 {
            match *self {}
        }

        pub fn take_trace(&mut self) -> Option<String> {
            match *self {}
        }

        pub fn take_panics(&mut self) -> Vec<Box<dyn Any + Send>> {
            match *self {}
        }

        pub fn take_callback_panics(&mut self) -> Vec<Box<dyn Any + Send>> {
            match *self {}
        }

        pub fn clean_up(&mut self, _: &mut dyn World, _: u64) -> Pause {
            match *self {}
        }

        pub fn end(self, _: &mut dyn World, _: u64) -> Ending {
            match self {}
        }
    }
}

#[cfg(all(test, not(jobtree_stacks), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn without_stacks_there_is_no_simulation_and_the_error_says_why() {
        let error = SimulatedPool::new(SimulationOptions::new(1)).unwrap_err();
        assert!(matches!(error, SimulationError::NoStacks));
        assert!(
            error
                .to_string()
                .contains("cannot be done on this platform")
        );
    }
}
