//! The interface for the layers above, which users do not need: unsafe kernels, and handles without the usual care.
//!
//! `jobtree-par` forbids unsafe code, but a few things cannot be done as fast without it: several workers that fill
//! one vector ([`Slots`]) or empty one ([`Filled`]), several workers that write to places of one slice that are
//! known only at run time ([`Claims`]), and moving values about that cannot be cloned
//! ([`merge_sort`](merge_sort()), [`permute`](permute())). They live here, because this crate is where the unsafe code
//! of the fork-join layer is kept and tested. They may be called by anyone with anything: what must hold for soundness
//! is checked, or follows from the types.
//!
//! The job tree keeps tasks in allocations of its own ([`task`]), and finds its pool again ([`PoolRef`]). What is
//! unsafe there says so. The thread that gives away a share of the workers is told when what has it waits ([`ParkHook`]). What tasks
//! may use up before they give way is in [`fuel`], and whether they may start others in [`gate`]. Jobs that block their thread run on [`BlockingThreads`].
//!
//! This is no public interface; it changes with what the layers above need.

pub(crate) mod before_sleep;
pub(crate) mod bell;
mod claims;
pub mod fuel;
pub mod gate;
mod merge;
mod merge_sort;
mod nanos;
mod outermost;
pub(crate) mod park_hook;
mod permute;
mod pool_ref;
mod prefetch;
mod service_thread;
pub mod sim;
mod slots;
pub mod task;
#[cfg(all(test, not(loom)))]
mod tests;
mod ticks;

pub use crate::blocking::{BlockingJob, BlockingThreads, Carriers, HandedBack, Ticket};
pub use crate::context::is_unwinding;
pub use crate::forked::Process;
pub use crate::join_many::held;
pub use crate::out_of_stacks::OutOfStacks;
pub use crate::stop::{can_be_stopped, unwind_if_stopped};
pub use before_sleep::set_before_sleep;
pub use bell::{
    Bell, current_stack, current_stack_with_bell, is_bell, is_stack_waker, polled_waker,
    replace_polled_waker, stack_with_bell, wait_with_waker, wait_with_waker_breakably,
    waker_of_stack, with_bell,
};
pub use claims::{ClaimError, Claims};
pub use jobtree_base::user_code::{Place, drop_user};
pub use jobtree_base::user_owned::{UserOwned, UserVec};
pub use merge_sort::merge_sort;
pub use nanos::monotonic_nanos;
pub use outermost::{outermost, outermost_at_end};
pub use park_hook::{ParkHook, with_park_hook};
pub use permute::permute;
pub use pool_ref::PoolRef;
pub(crate) use prefetch::PREFETCHES;
pub use prefetch::prefetch;
pub use service_thread::{fail_service_threads, start_service_thread};
pub use slots::{Filled, FilledItems, OwnedItems, Slots, fill_vec};
pub use ticks::ticks;

pub use crate::woken::{fibers_wait, let_woken_run, let_woken_run_at_tick};
