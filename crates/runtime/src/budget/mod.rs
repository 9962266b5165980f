//! Budgets and capabilities: how much a job may do, and what it may ask for.
//!
//! Nothing of it concerns a program that does not ask for it: in the profile [`Open`](Profile::Open), which every runtime
//! has if nothing else is said, a job only gives way to others after a turn of 100 000 operations. What counts as an
//! operation: [`tick`](tick()), [`checkpoint`](crate::checkpoint()), a spawn, a channel operation, and what code [`charge`]s.
//!
//! The other [`Profile`]s limit what each job may use ([`Budget`]) and do ([`Capabilities`]). Both come from above: a
//! job's budget comes out of the budget of the job that spawns it, and its capabilities are never more than that one's.
//! Who has a handle to a runtime or a scope may spawn there: handles are capabilities, too, so pass them on with care.
//!
//! ```
//! use jobtree_runtime::budget::{self, Budget, Profile, Refusal};
//! use jobtree_runtime::Runtime;
//!
//! let runtime = Runtime::builder().workers(1).profile(Profile::Service).build()?;
//! runtime.nursery(|n| {
//!     // A child has a small budget, and none to spawn.
//!     n.spawn(|| {
//!         assert_eq!(budget::remaining().spawns, 0);
//!         Ok(())
//!     })
//!     .join()?;
//!     // It gets more if one says so, out of what the scope has.
//!     let rich = n.job_options().budget(Budget { spawns: 500, ..Budget::CHILD });
//!     let spawns = rich.spawn(|| Ok(budget::remaining().spawns)).join()?;
//!     assert_eq!(spawns, 99, "all but the one it took to spawn it");
//!     Ok(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | a rate is used up | what happens |
//! | --- | --- |
//! | `Open`, `Service` | others run, then the job has a new turn |
//! | `Cluster`, `Sovereign` | the job waits until its supervisor decides: see [`Decision`] |
//!
//! A job that waits so is shown as waiting for [`WaitingFor::Budget`](crate::WaitingFor::Budget), and counted:
//! [`Statistics::exhaustions`], [`JobBudget::exhaustions`].

mod account;
mod amount;
mod capability;
mod lease;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod permit;
mod profile;
mod refusal;
mod statistics;
mod supervise;
mod tick;

pub use amount::{Budget, Counter};
pub use capability::{CapBudget, CapChannel, CapExecutor, CapSpawn, Capabilities, Executor};
pub use memory::CountingAllocator;
pub use permit::{ChannelPermit, may_create_channel, may_use_executor};
pub use profile::{Profile, UnknownProfile};
pub use refusal::{ChannelRefused, ExecutorRefused, Refusal, SpawnRefused};
pub use statistics::Statistics;
pub use supervise::{Decision, Exhausted, RechargeError};
pub use tick::{TickAsync, charge, charge_channel_op, charge_syscall, remaining, tick, tick_async};

pub(crate) use account::Request;
pub(crate) use lease::{Ground, GroundBuilder, Lease, Scope};
pub(crate) use tick::charge_op;

use crate::Job;

/// A picture of a job's budget; see [`of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobBudget {
    /// The profile of its runtime.
    pub profile: Profile,
    /// What it was given when it was spawned.
    pub granted: Budget,
    /// What is left. Of rates that are refilled by rescheduling, all of a turn; of others, what no running stack has
    /// drawn.
    pub remaining: Budget,
    /// What it may ask for.
    pub capabilities: Capabilities,
    /// What it lacks, if it waits for its supervisor.
    pub exhausted: Option<Counter>,
    /// How often it has used up a rate.
    pub exhaustions: u64,
    /// How often it was given more.
    pub recharges: u64,
    /// Jobs spawned out of it that have not ended.
    pub tasks: u64,
    /// Channels made in it that are still there.
    pub channels: u64,
    /// Bytes that count for it and the jobs below.
    pub memory_used: u64,
}

/// The budget of `job`: its own, or that of the job it is part of, as a scope is of the job that opened it. `None` if
/// nothing limits it but fairness.
///
/// ```
/// use jobtree_runtime::budget::{self, Budget};
/// use jobtree_runtime::nursery;
///
/// nursery(|n| {
///     let budget = Budget { ops: 500, ..Budget::CHILD };
///     let limited = n.job_options().budget(budget).spawn(|| Ok(()));
///     assert_eq!(budget::of(limited.job()).unwrap().granted, budget);
///     assert_eq!(budget::of(n.job()), None);
///     Ok(())
/// })?;
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
pub fn of(job: &Job) -> Option<JobBudget> {
    account::Account::of(job).map(|account| account.report())
}
