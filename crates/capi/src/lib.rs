//! The C interface of jobtree, for C and for compilers of other languages: `include/jobtree.h`.
//!
//! ```c
//! static int32_t greet(void *name) {
//!     printf("hello, %s\n", (const char *)name);
//!     return jt_sleep_ms(10);             /* JT_ECANCELED if somebody cancels the nursery meanwhile */
//! }
//!
//! int main(void) {
//!     jt_nursery_t nursery;
//!     jt_runtime_init(0);
//!     jt_nursery_create(&nursery);
//!     jt_nursery_spawn(nursery, greet, "world", NULL);
//!     jt_nursery_await(nursery, NULL);
//!     jt_nursery_destroy(nursery);
//!     return jt_runtime_shutdown(1000);
//! }
//! ```
//!
//! The rules of the interface, each held to by one module:
//!
//! * Every function returns a [`jt_status`]; what it has to give goes through pointers (`status`, `last_error`).
//! * Objects are known by handles, numbers that go stale: every misuse of one is JT_EHANDLE (`handles`, `objects`).
//! * Nothing unwinds into C or out of it (`border`).
//! * Without a runtime every function returns JT_ESHUTDOWN; threads that wait in one are woken by its end (`runtime`).
//! * A task is a function and a pointer. What it leaves open is closed when it returns (`task`, `leftovers`).
//! * Structs with a `size` grow at their end (`growing`).
#![doc = include_str!("../README.md")]

mod border;
mod budget;
mod channel;
mod current;
mod dispatcher;
mod growing;
mod handles;
mod job;
mod last_error;
mod launch;
mod leftovers;
mod limits;
mod monitor;
mod nursery;
mod objects;
mod openers;
mod options;
mod parent;
mod placement;
mod report;
mod runtime;
mod runtime_options;
mod scope;
mod select;
mod status;
mod task;

pub use budget::*;
pub use channel::*;
pub use current::*;
pub use dispatcher::*;
pub use job::*;
pub use last_error::jt_last_error;
pub use launch::*;
pub use limits::*;
pub use monitor::*;
pub use nursery::*;
pub use objects::*;
pub use options::*;
pub use parent::*;
pub use placement::*;
pub use report::*;
pub use runtime::{jt_runtime_init, jt_runtime_shutdown};
pub use runtime_options::*;
pub use scope::*;
pub use select::*;
pub use status::{jt_status, jt_status_message};
pub use task::*;
