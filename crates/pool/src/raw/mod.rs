//! The few unsafe kernels that parallel loops and sorts need, each behind a safe interface.
//!
//! `jobtree-par` forbids unsafe code, but a few things cannot be done as fast without it: several workers that fill
//! one vector ([`Slots`]) or empty one ([`Filled`]), several workers that write to places of one slice that are
//! known only at run time ([`Claims`]), and moving values about that cannot be cloned
//! ([`merge_sort`](merge_sort()), [`permute`](permute())). They live here, because this crate is where the unsafe code
//! of the fork-join layer is kept and tested. Everything in here may be called by anyone with anything: what must
//! hold for soundness is checked, or follows from the types.
//!
//! This is no public interface; it changes with what `jobtree-par` needs.

mod claims;
mod merge;
mod merge_sort;
mod permute;
mod slots;
#[cfg(all(test, not(loom)))]
mod tests;

pub use claims::{ClaimError, Claims};
pub use merge_sort::merge_sort;
pub use permute::permute;
pub use slots::{Filled, FilledItems, Slots, fill_vec};
