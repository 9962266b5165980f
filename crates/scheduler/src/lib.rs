//! The running engine of the durable queue.

#![forbid(unsafe_code)]

mod clock;
mod options;
mod reply;

pub use clock::Clock;
pub use options::{Keep, Options};
pub use reply::Reply;

// In process: measuring this machine, running handlers, and a queue in one object.
pub mod sampler;
pub mod workers;
