//! Wire types of the durable queue.

#![forbid(unsafe_code)]
