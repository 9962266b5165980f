//! What the durable queue decides, and never does: admission, order, dispatch, transitions.

#![forbid(unsafe_code)]

// Admission and order.
pub mod admission;
pub mod block;
pub mod busy;
pub mod candidate;
pub mod capacity;
pub mod deadline;
pub mod dispatch;
pub mod hold;
pub mod ledger;
mod now;
mod order;
pub mod policy;
pub mod quiet;
pub mod ramp;
pub mod signals;

pub use now::Now;
