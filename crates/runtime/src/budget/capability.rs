//! What a job may ask for at all, whatever its budget has left.
//!
//! Capabilities go down the tree and only ever shrink on the way: there is no function that adds one to what a parent
//! has. Who has none of a kind is refused, with an error that says which.

use super::amount::Budget;

/// The right to spawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapSpawn {
    /// How many jobs it may have spawned at a time.
    pub max_tasks: u64,
    /// What each of them has if nothing is said.
    pub task_budget: Budget,
}

/// The right to ask for other budgets than [`CapSpawn::task_budget`]: how much of each counter at most. A request for
/// more is clamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapBudget {
    /// Operations.
    pub cpu: u64,
    /// Spawns.
    pub spawn: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Channel operations.
    pub channel: u64,
    /// System calls.
    pub syscall: u64,
}

impl CapBudget {
    /// The right to ask for up to `budget`.
    pub const fn up_to(budget: Budget) -> CapBudget {
        CapBudget {
            cpu: budget.ops,
            spawn: budget.spawns,
            memory: budget.memory,
            channel: budget.channel_ops,
            syscall: budget.syscalls,
        }
    }

    /// The largest budget that may be asked for.
    pub const fn most(self) -> Budget {
        Budget {
            ops: self.cpu,
            memory: self.memory,
            spawns: self.spawn,
            channel_ops: self.channel,
            syscalls: self.syscall,
        }
    }
}

/// The right to make channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapChannel {
    /// The largest buffer of one.
    pub max_buffer: u64,
    /// How many at a time.
    pub max_channels: u64,
}

/// A way to run something. Each is asked for by what runs so; see the table of [`budget`](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Executor {
    /// Jobs on threads that may block: [`Dispatcher::run`](crate::Dispatcher::run), [`Spawner::on`](crate::Spawner::on).
    Blocking,
    /// Threads of one's own: making a [`Runtime`](crate::Runtime), a pool or a [`Dispatcher`](crate::Dispatcher::new).
    Threaded,
    /// Jobs with a stack, and tasks, on the workers: [`Nursery::spawn`](crate::Nursery::spawn), actors, scopes of the pool.
    Cooperative,
    /// Jobs that are futures, and run when an event wakes them: [`Nursery::spawn_future`](crate::Nursery::spawn_future).
    Evented,
}

impl std::fmt::Display for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Executor::Blocking => "blocking",
            Executor::Threaded => "threaded",
            Executor::Cooperative => "cooperative",
            Executor::Evented => "evented",
        })
    }
}

/// The ways to run something that one may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapExecutor {
    /// [`Executor::Blocking`].
    pub blocking: bool,
    /// [`Executor::Threaded`].
    pub threaded: bool,
    /// [`Executor::Cooperative`].
    pub cooperative: bool,
    /// [`Executor::Evented`].
    pub evented: bool,
}

impl CapExecutor {
    /// All of them.
    pub const ALL: CapExecutor = CapExecutor {
        blocking: true,
        threaded: true,
        cooperative: true,
        evented: true,
    };

    /// None of them.
    pub const NONE: CapExecutor = CapExecutor {
        blocking: false,
        threaded: false,
        cooperative: false,
        evented: false,
    };

    /// Whether it is one of them.
    pub const fn allows(self, executor: Executor) -> bool {
        match executor {
            Executor::Blocking => self.blocking,
            Executor::Threaded => self.threaded,
            Executor::Cooperative => self.cooperative,
            Executor::Evented => self.evented,
        }
    }
}

/// All that a job may ask for. It inherits its parent's, and may be given less, never more.
///
/// ```
/// use jobtree_runtime::budget::{Capabilities, CapChannel, Profile};
///
/// let service = Profile::Service.capabilities();
/// let wish = Capabilities {
///     channel: Some(CapChannel { max_buffer: 1_000_000, max_channels: 5 }),
///     ..Capabilities::ALL
/// };
/// let both = service.restricted_to(wish);
/// assert_eq!(both.channel, Some(CapChannel { max_buffer: 10_000, max_channels: 5 }));
/// assert_eq!(both.spawn, service.spawn);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Spawning.
    pub spawn: Option<CapSpawn>,
    /// Asking for other budgets.
    pub budget: Option<CapBudget>,
    /// Making channels.
    pub channel: Option<CapChannel>,
    /// Where things may run.
    pub executors: CapExecutor,
}

impl Capabilities {
    /// Everything, without limits.
    pub const ALL: Capabilities = Capabilities {
        spawn: Some(CapSpawn {
            max_tasks: u64::MAX,
            task_budget: Budget::OPEN,
        }),
        budget: Some(CapBudget::up_to(Budget::UNLIMITED)),
        channel: Some(CapChannel {
            max_buffer: u64::MAX,
            max_channels: u64::MAX,
        }),
        executors: CapExecutor::ALL,
    };

    /// Nothing.
    pub const NONE: Capabilities = Capabilities {
        spawn: None,
        budget: None,
        channel: None,
        executors: CapExecutor::NONE,
    };

    /// What is in both.
    #[must_use]
    pub fn restricted_to(self, other: Capabilities) -> Capabilities {
        Capabilities {
            spawn: both(self.spawn, other.spawn, |one, other| CapSpawn {
                max_tasks: one.max_tasks.min(other.max_tasks),
                task_budget: one.task_budget.clamped_to(other.task_budget),
            }),
            budget: both(self.budget, other.budget, |one, other| {
                CapBudget::up_to(one.most().clamped_to(other.most()))
            }),
            channel: both(self.channel, other.channel, |one, other| CapChannel {
                max_buffer: one.max_buffer.min(other.max_buffer),
                max_channels: one.max_channels.min(other.max_channels),
            }),
            executors: CapExecutor {
                blocking: self.executors.blocking && other.executors.blocking,
                threaded: self.executors.threaded && other.executors.threaded,
                cooperative: self.executors.cooperative && other.executors.cooperative,
                evented: self.executors.evented && other.executors.evented,
            },
        }
    }
}

fn both<T>(one: Option<T>, other: Option<T>, meet: impl FnOnce(T, T) -> T) -> Option<T> {
    Some(meet(one?, other?))
}
