//! Why something was not allowed: each reason has a name of its own.

use std::fmt;

use jobtree_tree::Cancelled;

use super::capability::Executor;
use super::profile::Profile;

/// Why a job was not spawned.
///
/// It is the error of [`try_spawn`](crate::Nursery::try_spawn); a job started by [`spawn`](crate::Nursery::spawn) or
/// [`launch`](crate::Nursery::launch) fails with it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The runtime has the profile [`Core`](super::Profile::Core), in which nothing is scheduled.
    CoreProfile,
    /// There is no [`CapSpawn`](super::CapSpawn).
    NoSpawnCapability,
    /// As many jobs as [`CapSpawn::max_tasks`](super::CapSpawn::max_tasks) allows have not ended.
    TaskLimitExceeded {
        /// How many.
        limit: u64,
    },
    /// The budget has no spawns left.
    SpawnQuotaExceeded,
    /// The [`CapExecutor`](super::CapExecutor) does not name the way in which the job would run.
    ExecutorNotAllowed {
        /// That way.
        executor: Executor,
    },
    /// A task that belongs to no job was to be started ([`jobtree_pool::spawn`](jobtree_pool::spawn())), in a profile whose
    /// budgets a supervisor recharges: nothing could recharge or cancel it.
    NoSupervisor {
        /// That profile.
        profile: Profile,
    },
    /// The scope was asked to end.
    ScopeCancelled(Cancelled),
}

impl Refusal {
    /// Whether it may pass by itself, as jobs end.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Refusal::TaskLimitExceeded { .. } | Refusal::SpawnQuotaExceeded
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::CoreProfile => f.write_str(
                "nothing can be spawned in the profile `core`; build the runtime with another one",
            ),
            Refusal::NoSpawnCapability => f.write_str(
                "the capability to spawn is missing; have the parent pass on a `CapSpawn`",
            ),
            Refusal::TaskLimitExceeded { limit } => write!(
                f,
                "{limit} jobs are there already, and no more are allowed; wait until one has ended, or raise \
                 `CapSpawn::max_tasks`"
            ),
            Refusal::SpawnQuotaExceeded => f.write_str(
                "the budget has no spawns left; wait until a job has ended, or ask for a larger budget",
            ),
            Refusal::ExecutorNotAllowed { executor } => write!(
                f,
                "nothing may run on the {executor} executor here; have the parent pass on a `CapExecutor` that names it"
            ),
            Refusal::NoSupervisor { profile } => write!(
                f,
                "a task that belongs to no job has no supervisor to recharge its budget, which the profile `{profile}` \
                 demands; spawn a job in a nursery instead"
            ),
            Refusal::ScopeCancelled(cancelled) => {
                write!(f, "the scope starts nothing any more: {cancelled}")
            }
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Refusal::ScopeCancelled(cancelled) => Some(cancelled),
            _ => None,
        }
    }
}

/// A job was not spawned: the reason, and its body back.
pub struct SpawnRefused<F> {
    reason: Refusal,
    body: F,
}

impl<F> SpawnRefused<F> {
    pub(crate) fn new(reason: Refusal, body: F) -> SpawnRefused<F> {
        SpawnRefused { reason, body }
    }

    /// Why.
    pub fn reason(&self) -> &Refusal {
        &self.reason
    }

    /// Why, without the body: an error that borrows nothing, for `?`.
    pub fn into_reason(self) -> Refusal {
        self.reason
    }

    /// The body that was not run.
    pub fn into_body(self) -> F {
        self.body
    }
}

impl<F> fmt::Debug for SpawnRefused<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnRefused")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Display for SpawnRefused<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<F> std::error::Error for SpawnRefused<F> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// Why a channel was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelRefused {
    /// There is no [`CapChannel`](super::CapChannel).
    NoChannelCapability,
    /// As many channels as [`CapChannel::max_channels`](super::CapChannel::max_channels) allows are there.
    ChannelLimitExceeded {
        /// How many.
        limit: u64,
    },
    /// The buffer would be larger than [`CapChannel::max_buffer`](super::CapChannel::max_buffer).
    BufferTooLarge {
        /// How large it would be; `None` is without a bound.
        wanted: Option<u64>,
        /// How large it may be.
        limit: u64,
    },
}

impl fmt::Display for ChannelRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelRefused::NoChannelCapability => f.write_str(
                "the capability to make channels is missing; have the parent pass on a `CapChannel`",
            ),
            ChannelRefused::ChannelLimitExceeded { limit } => write!(
                f,
                "{limit} channels are there already, and no more are allowed; drop one, or raise \
                 `CapChannel::max_channels`"
            ),
            ChannelRefused::BufferTooLarge {
                wanted: Some(wanted),
                limit,
            } => write!(
                f,
                "a buffer of {wanted} is larger than the {limit} that are allowed; ask for less, or raise \
                 `CapChannel::max_buffer`"
            ),
            ChannelRefused::BufferTooLarge {
                wanted: None,
                limit,
            } => write!(
                f,
                "a buffer without a bound is not allowed; make a bounded channel of at most {limit}"
            ),
        }
    }
}

impl std::error::Error for ChannelRefused {}

/// Something may not run where it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorRefused {
    /// Where.
    pub executor: Executor,
}

impl fmt::Display for ExecutorRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Refusal::ExecutorNotAllowed {
            executor: self.executor,
        }
        .fmt(f)
    }
}

impl std::error::Error for ExecutorRefused {}
