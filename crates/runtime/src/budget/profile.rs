//! Profiles: what a whole runtime allows, by name.

use std::fmt;
use std::str::FromStr;

use super::amount::Budget;
use super::capability::{CapBudget, CapChannel, CapExecutor, CapSpawn, Capabilities};

/// What a runtime allows its jobs if nothing else is said; see
/// [`RuntimeBuilder::profile`](crate::RuntimeBuilder::profile).
///
/// | profile | budgets | tasks | channels | buffer |
/// | --- | --- | --- | --- | --- |
/// | `Open` | a turn of 100 000 operations, then others come first | any | any | any |
/// | `Core` | none: nothing can be spawned | 0 | 0 | 0 |
/// | `Service` | [`Budget::SERVICE`]; rates are refilled when a job is rescheduled | 100 | 1 000 | 10 000 |
/// | `Cluster` | [`Budget::CLUSTER`]; rates are recharged by a supervisor | 10 000 | 10 000 | 100 000 |
/// | `Sovereign` | none but those that were given; as in `Cluster` | given | given | given |
///
/// What each of them allows code to start, by which function, is in the table of [`budget`](super).
///
/// The numbers hold for each scope or job directly under the root. A job spawned in one has [`Budget::CHILD`], unless
/// [`Spawner::budget`](crate::Spawner::budget) says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// No limits, only fairness.
    #[default]
    Open,
    /// No scheduler: spawning is an error.
    Core,
    /// Limits that a job need not know of: it is slowed down, not stopped.
    Service,
    /// Limits that a supervisor watches over.
    Cluster,
    /// Nothing without an explicit capability.
    Sovereign,
}

/// How a job comes by more of a rate that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refill {
    /// It has as much again when the others have had their turn.
    WhenRescheduled,
    /// It waits until somebody gives it more.
    BySupervisor,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 5] = [
        Profile::Open,
        Profile::Core,
        Profile::Service,
        Profile::Cluster,
        Profile::Sovereign,
    ];

    /// What a scope or job directly under the root has.
    pub const fn budget(self) -> Budget {
        match self {
            Profile::Open => Budget::OPEN,
            Profile::Core | Profile::Sovereign => Budget::NONE,
            Profile::Service => Budget::SERVICE,
            Profile::Cluster => Budget::CLUSTER,
        }
    }

    /// What a scope or job directly under the root may ask for.
    pub const fn capabilities(self) -> Capabilities {
        match self {
            Profile::Open => Capabilities::ALL,
            Profile::Core | Profile::Sovereign => Capabilities::NONE,
            Profile::Service => limited(100, 1_000, 10_000, Budget::SERVICE),
            Profile::Cluster => limited(10_000, 10_000, 100_000, Budget::CLUSTER),
        }
    }

    pub(super) const fn refill(self) -> Refill {
        match self {
            Profile::Open | Profile::Core | Profile::Service => Refill::WhenRescheduled,
            Profile::Cluster | Profile::Sovereign => Refill::BySupervisor,
        }
    }

    /// Its name: `open`, `core`, `service`, `cluster`, `sovereign`.
    pub const fn name(self) -> &'static str {
        match self {
            Profile::Open => "open",
            Profile::Core => "core",
            Profile::Service => "service",
            Profile::Cluster => "cluster",
            Profile::Sovereign => "sovereign",
        }
    }
}

const fn limited(max_tasks: u64, max_channels: u64, max_buffer: u64, most: Budget) -> Capabilities {
    Capabilities {
        spawn: Some(CapSpawn {
            max_tasks,
            task_budget: Budget::CHILD,
        }),
        budget: Some(CapBudget::up_to(most)),
        channel: Some(CapChannel {
            max_buffer,
            max_channels,
        }),
        executors: CapExecutor::ALL,
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no profile of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProfile(String);

impl fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no profile {:?}; choose one of", self.0)?;
        for profile in Profile::ALL {
            write!(f, " {profile}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownProfile {}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Profile, UnknownProfile> {
        Profile::ALL
            .into_iter()
            .find(|profile| profile.name() == name)
            .ok_or_else(|| UnknownProfile(name.into()))
    }
}
