//! The durable queue over HTTP.

#![forbid(unsafe_code)]

pub mod events;
pub mod live;
pub mod load;
pub mod metrics;
pub mod webhooks;
