//! Code that several layers of jobtree need and none of them owns.
//!
//! It starts no thread, contains no unsafe code and depends on the standard library alone, so that the pool and
//! the tree, which know nothing of each other, can both use it. This is no public interface; it changes with what the
//! crates of this workspace need.

#![forbid(unsafe_code)]

pub mod user_code;
