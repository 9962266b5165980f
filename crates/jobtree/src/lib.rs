//! One job system, from a nanosecond fork to an overnight batch.
#![forbid(unsafe_code)]

pub use jobtree_pool::*;
