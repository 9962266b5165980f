//! A job manager on the runtime: priorities with aging, lanes that threads of the program pump, cooperative jobs.

#![forbid(unsafe_code)]

mod priority;
pub mod remote;

pub use priority::Priority;
