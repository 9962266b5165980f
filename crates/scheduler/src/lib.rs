//! The running engine of the durable queue.

#![forbid(unsafe_code)]

pub mod sampler;
