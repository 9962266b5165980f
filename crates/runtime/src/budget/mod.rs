//! Budgets and capabilities: how much a job may do, and what it may ask for.
//!
//! Nothing of it concerns a program that does not ask for it: in the profile [`Open`](Profile::Open), which every runtime
//! has if nothing else is said, a job only gives way to others after a turn of 100 000 operations. What counts as an
//! operation: [`tick`](tick()), [`checkpoint`](crate::checkpoint()), a spawn, a channel operation, and what code [`charge`]s.
//!
//! The other [`Profile`]s limit what each job may use ([`Budget`]) and do ([`Capabilities`]). Both come from above: a
//! job's budget comes out of the budget of the job that spawns it, and its capabilities are never more than that one's.
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
//! | `Open`, `Service` | others run, then the job has a new turn: see below |
//! | `Cluster`, `Sovereign` | the job waits until its supervisor decides: see [`Decision`] |
//!
//! # Fairness
//!
//! Where a turn is used up, others run for longer: in `Open` for twice as long as the turn took, elsewhere for 19 times as long, if they
//! have as much to do. So all jobs that use up their turns have, together, a twentieth of a worker that others want, and all
//! of one that nobody else wants. In `Service` the same happens to a job that takes more than a twentieth of the time in
//! bursts of more than a quarter of a turn, or in bursts without work: yielding, waking itself, or passing values to its own
//! jobs in a loop. Work is operations; so [`tick`](tick()) in loops, or put `#[budgeted]` on functions. The jobs below a job
//! count as one.
//!
//! A job that waits so is shown as waiting for [`WaitingFor::Budget`](crate::WaitingFor::Budget), and counted:
//! [`Statistics::exhaustions`], [`JobBudget::exhaustions`].

//!
//! # Profiles cannot be left
//!
//! Code has limits in every profile but `Open`, and in a job that was spawned with a budget or with fewer capabilities.
//! This is what happens when such code starts something, by whatever function of this workspace:
//!
//! | the code calls | `Open` | `Core` | `Sovereign`, nothing given | `Service` | `Cluster`; `Sovereign`, given |
//! | --- | --- | --- | --- | --- | --- |
//! | `join`, `par`, `Pool::install`, an empty scope, `sleep`, `with_timeout`, `block_on` | runs | runs | runs | runs | runs |
//! | `Nursery::spawn`, actors, producers, supervisors | runs | refused | refused | counted | counted |
//! | `spawn_future` | runs | refused | refused | counted | counted |
//! | `Scope::spawn`, `broadcast`, on any pool | runs | refused | refused | counted | counted |
//! | `jobtree::spawn`, `Pool::spawn`, `spawn_broadcast` | runs | refused | refused | counted | refused: no supervisor |
//! | `spawn`, `spawn_future`, a scope of another runtime, also the global one (`tokio::compute`) | runs | refused | refused | counted | counted |
//! | `Dispatcher::run`, `Spawner::on` | runs | refused | refused | counted | counted |
//! | `Runtime::builder().build()`, `Pool::builder().build()`, `Dispatcher::new` | runs | refused | refused | runs | runs |
//! | `channel::try_new`, `broadcast`, `watch`, `oneshot` | runs | refused | refused | counted | counted |
//! | `std::thread::spawn`, other libraries' threads | runs | runs | runs | runs | runs |
//!
//! *Counted*: it needs the [`CapSpawn`] and the [`Executor`] that it runs on, a spawn of the budget, and a place among
//! [`CapSpawn::max_tasks`]; both are given back at its end. Without them it is *refused*: with an error where the function
//! returns one, by a job that fails where it returns a handle, and else by a panic, whose message says what is missing and
//! what to do. (While the calling code unwinds already, or the code that waits for it on another thread, as for what a destructor
//! installs, forks or spawns in a scope: a task that nobody waits for is dropped instead, a task of a scope runs, and a channel is
//! made that counts for no job, since a second panic would end the process.) [`Statistics::refusals`] counts all of them. A
//! broadcast takes a spawn for each worker.
//!
//! *Forks run everywhere*, since they are computation of the job that forks: they are charged to it, and are over when it
//! goes on. What runs in them has its limits.
//!
//! *Who pays.* What is spawned in a scope with limits comes out of the scope's budget, also if a job uses the scope of a
//! job above; but it has no capability that the calling code does not have. What is spawned in a scope without limits, or
//! in a runtime, comes out of the budget of the calling code, within the limits of that runtime. So neither a handle to
//! another scope nor one to another runtime widens what code may do. A task that belongs to no job has a budget out of
//! that of its spawner for as long as it runs.
//!
//! *Threads* that are started by other means are outside of what this library can see: what they call has no limits,
//! until they open a scope in a runtime that has some. Code that must be kept from it must not be given
//! `std::thread`; a budget is no sandbox.
//!
//! *Called later.* Cancel callbacks, foreign wakers and budget handlers have the capabilities and quotas of the code that
//! registered them, wherever the library calls them. Destructors of values, closures, futures, errors and locals that no code
//! takes have those of their job. When the job has ended its budget has gone back, so that such code has no spawns left and
//! starts nothing. Its operations are not charged and its memory is not counted, since no job is left to recharge either.
//!
//! *Given to others.* What another job takes or drops (a message, an outcome, a handle) runs its destructor with the limits of
//! that job. Jobs of a `JobManager`, and their callbacks, have the limits of the code that made the manager's runtime, not of
//! the code that schedules them. Programs under a simulation ([`sim`](crate::sim)) have a runtime of their own.

mod account;
mod admission;
mod amount;
mod capability;
mod gate;
pub(crate) mod later;
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
pub(crate) use supervise::Handler;
pub use supervise::{Decision, Exhausted, RechargeError};
pub use tick::{TickAsync, charge, charge_channel_op, charge_syscall, remaining, tick, tick_async};

pub(crate) use admission::Request;
pub(crate) use lease::{Ground, GroundBuilder, Lease, Opened, Scope};
pub(crate) use tick::{charge_op, is_limited};

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
