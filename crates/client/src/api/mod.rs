//! One method for each thing that a daemon can be asked.

mod jobs;
mod leases;
mod looking;
mod operating;
mod schedules;

pub use looking::{LoadQuery, Probe};
