//! How a comparison is made and told: the same for every suite.
//!
//! Machines are noisy, so a figure alone says little. All sides of a comparison run in one process, one after the
//! other in each round, in an order drawn anew for each round. What counts is the ratio of two sides *within* a round;
//! the median of these paired ratios is reported with its 95 % interval. Ours also runs against itself: if that ratio
//! is off by more than 3 %, the machine was too noisy to tell anything, and the run is void.

mod contest;
mod json;
mod report;
mod rng;
mod rounds;
mod stats;
mod table;

pub use contest::{Contender, Contest, Role, timed, timed_between, timed_with_preparation};
pub use report::{Fact, Goal, Report, Row, Standing, Tolerance};
pub use rng::SplitMix64;
pub use rounds::{Plan, Rounds};
pub use stats::quantile;

/// The report as text for people.
pub fn table(report: &Report) -> String {
    table::render(report)
}

/// The report as one JSON document.
pub fn json(report: &Report) -> String {
    format!("{:#}", json::render(report))
}
