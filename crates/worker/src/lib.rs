//! Runs durable jobs as jobs in a process's tree.

#![forbid(unsafe_code)]
