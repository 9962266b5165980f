//! Where the durable queue keeps its jobs.

#![forbid(unsafe_code)]
