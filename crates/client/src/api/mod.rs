//! One method for each operation of the daemon. Most are generated from the table of operations; here are those whose
//! arguments or answers are simpler than the operation's, or that wait, repeat or look again.

mod generated;
mod jobs;
mod leases;
mod observing;
mod operating;

pub use observing::{LoadQuery, Probe};
