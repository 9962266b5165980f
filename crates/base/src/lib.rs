//! Code that several layers of jobtree need and none of them owns.
//!
//! It starts no thread, contains no unsafe code and depends on the standard library alone, so that the pool and
//! the tree, which know nothing of each other, can both use it. (Under `--cfg loom` it also runs the models of the other
//! crates, and then depends on loom.) This is no public interface; it changes with what the crates of this workspace
//! need.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(loom)]
pub mod modelling;
pub mod user_code;
pub mod user_owned;
