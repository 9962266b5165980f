//! The durable queue over HTTP.

#![forbid(unsafe_code)]
