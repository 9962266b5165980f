//! The HTTP client of the daemon, and workers over it.

#![forbid(unsafe_code)]
