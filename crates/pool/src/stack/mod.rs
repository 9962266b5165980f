//! The memory that parkable stacks live in, and the report when one overflows.
//!
//! A worker's loop runs on a coroutine. When something on it blocks, the whole stack is parked and the
//! worker goes on on another one, so stacks come and go often and there may be very many of them. This
//! module hands them out and takes them back; it knows nothing of workers, tasks or scheduling.
//!
//! | file          | idea                                                                              |
//! | ------------- | --------------------------------------------------------------------------------- |
//! | `class`       | sizes, and the errors a stack can fail with                                         |
//! | `slab`        | one reserved piece of address space that many stacks of a class are cut from        |
//! | `guard`       | the unreadable region below each stack, by the cheapest means the kernel offers     |
//! | `supply`      | the slabs and free stacks that all workers of a pool share                          |
//! | `cache`       | the few hot stacks a single worker keeps, so that the shared lock is rare           |
//! | `registry`    | the process-wide table of slabs that a signal handler may read                      |
//! | `switch`      | how a thread goes from one stack to another                                         |
//! | `overflow`    | the signal handler that says which task used up which stack                         |
//! | `README.md`   | the contract of the context switch, which `contract_tests` checks                   |
//!
//! # Where stacks switch
//!
//! The build script decides by setting `cfg(jobtree_stacks)`: Unix, on the three architectures whose switch
//! we rely on, outside of Miri (which cannot run the switch's assembly) and of loom models. The files below
//! never ask again; only this one does. Where stacks do not switch, the sizes and errors remain (so that a
//! bad size is refused alike everywhere), and waiting has to help instead of parking.

// Where stacks do not switch, only its sizes and errors are of use.
#[cfg_attr(not(jobtree_stacks), allow(dead_code))]
mod class;

#[cfg(jobtree_stacks)]
mod cache;
#[cfg(jobtree_stacks)]
mod guard;
#[cfg(jobtree_stacks)]
pub mod overflow;
#[cfg(jobtree_stacks)]
mod registry;
#[cfg(jobtree_stacks)]
mod slab;
#[cfg(jobtree_stacks)]
mod supply;
#[cfg(jobtree_stacks)]
pub(crate) mod switch;

#[cfg(all(test, jobtree_stacks))]
mod contract_tests;
#[cfg(all(test, feature = "sanitizer"))]
mod sanitizer_tests;
#[cfg(all(test, jobtree_stacks))]
mod testing;

pub use class::{DEFAULT_STACK_SIZE, StackClass, StackError, checked_stack_size};

#[cfg(jobtree_stacks)]
pub use {cache::StackCache, slab::Stack, supply::StackSupply};
