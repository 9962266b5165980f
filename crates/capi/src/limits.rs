//! Budgets and capabilities as values: what a job may use, and what it may ask for.

use std::mem::size_of;

use jobtree_runtime::Profile;
use jobtree_runtime::budget::{
    Budget, CapBudget, CapChannel, CapExecutor, CapSpawn, Capabilities, Counter,
};

use crate::border::{call, required};
use crate::growing::{self, Growing};
use crate::status::CallError;
use crate::status::jt_status::{self, *};

/// A counter of a budget that is without a limit.
pub const JT_UNLIMITED: u64 = u64::MAX;

/// How much a job may use. Operations, channel operations and system calls are refilled, as the profile says; memory and
/// spawns are taken, and given back.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct jt_budget_t {
    /// Operations of any kind.
    pub ops: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Jobs that it may have spawned at a time.
    pub spawns: u64,
    /// Operations on channels.
    pub channel_ops: u64,
    /// Calls of the system.
    pub syscalls: u64,
}

/// One of the five counters of a budget.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_counter_t {
    /// Operations of any kind.
    JT_COUNTER_OPS = 0,
    /// Bytes of memory.
    JT_COUNTER_MEMORY = 1,
    /// Jobs spawned that have not ended.
    JT_COUNTER_SPAWNS = 2,
    /// Operations on channels.
    JT_COUNTER_CHANNEL_OPS = 3,
    /// Calls of the system.
    JT_COUNTER_SYSCALLS = 4,
}

/// The right to spawn jobs (`rights` in jt_capabilities_t).
pub const JT_CAP_SPAWN: u64 = 1;
/// The right to ask for another budget than `task_budget` for a job.
pub const JT_CAP_BUDGET: u64 = 2;
/// The right to make channels.
pub const JT_CAP_CHANNEL: u64 = 4;
/// The right to run jobs on threads that may block: JT_DISPATCHER_IO and dispatchers of one's own.
pub const JT_CAP_BLOCKING: u64 = 8;
/// The right to start threads of one's own.
pub const JT_CAP_THREADED: u64 = 16;
/// The right to run jobs on the workers. Without it nothing can be spawned.
pub const JT_CAP_COOPERATIVE: u64 = 32;
/// The right to be woken by events of the system.
pub const JT_CAP_EVENTED: u64 = 64;
/// All rights of this version.
pub const JT_CAP_ALL: u64 = 127;

/// What a job may ask for at all, whatever its budget has left. A job inherits what its parent may, and can be given less,
/// never more. Set `size` to sizeof(jt_capabilities_t).
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jt_capabilities_t {
    /// sizeof(jt_capabilities_t).
    pub size: usize,
    /// The sum of the JT_CAP_… that it has. A field below counts only with the right that it belongs to.
    pub rights: u64,
    /// JT_CAP_SPAWN: how many jobs it may have spawned at a time.
    pub max_tasks: u64,
    /// JT_CAP_SPAWN: the budget of a job for which none is given.
    pub task_budget: jt_budget_t,
    /// JT_CAP_BUDGET: the most that may be asked for; what is more is cut down to it.
    pub max_budget: jt_budget_t,
    /// JT_CAP_CHANNEL: how many channels it may have at a time.
    pub max_channels: u64,
    /// JT_CAP_CHANNEL: the largest capacity of a channel.
    pub max_buffer: u64,
}

// SAFETY: `repr(C)`, begins with its size, and consists of numbers.
unsafe impl Growing for jt_capabilities_t {
    const NAME: &'static str = "jt_capabilities_t";
}

/// What the jobs of a runtime may use and ask for if nothing else is said.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_profile_t {
    /// No limits, only fairness. The default.
    JT_PROFILE_OPEN = 0,
    /// Nothing can be spawned.
    JT_PROFILE_CORE = 1,
    /// Limits by which a job is slowed down, not stopped.
    JT_PROFILE_SERVICE = 2,
    /// A job that has used up its budget waits for its supervisor: jt_supervise_budgets.
    JT_PROFILE_CLUSTER = 3,
    /// As cluster, but nothing is allowed that was not given: `root_budget` and `root_capabilities` in jt_runtime_opts.
    JT_PROFILE_SOVEREIGN = 4,
}

impl From<Budget> for jt_budget_t {
    fn from(budget: Budget) -> jt_budget_t {
        jt_budget_t {
            ops: budget.ops,
            memory: budget.memory,
            spawns: budget.spawns,
            channel_ops: budget.channel_ops,
            syscalls: budget.syscalls,
        }
    }
}

impl From<jt_budget_t> for Budget {
    fn from(budget: jt_budget_t) -> Budget {
        Budget {
            ops: budget.ops,
            memory: budget.memory,
            spawns: budget.spawns,
            channel_ops: budget.channel_ops,
            syscalls: budget.syscalls,
        }
    }
}

impl From<Capabilities> for jt_capabilities_t {
    fn from(capabilities: Capabilities) -> jt_capabilities_t {
        let Capabilities {
            spawn,
            budget,
            channel,
            executors,
        } = capabilities;
        let rights = [
            (spawn.is_some(), JT_CAP_SPAWN),
            (budget.is_some(), JT_CAP_BUDGET),
            (channel.is_some(), JT_CAP_CHANNEL),
            (executors.blocking, JT_CAP_BLOCKING),
            (executors.threaded, JT_CAP_THREADED),
            (executors.cooperative, JT_CAP_COOPERATIVE),
            (executors.evented, JT_CAP_EVENTED),
        ];
        let held = rights.iter().filter(|(has, _)| *has);
        jt_capabilities_t {
            size: size_of::<jt_capabilities_t>(),
            rights: held.map(|(_, right)| right).sum(),
            max_tasks: spawn.map_or(0, |spawn| spawn.max_tasks),
            task_budget: spawn.map_or(Budget::NONE, |spawn| spawn.task_budget).into(),
            max_budget: budget.map_or(Budget::NONE, CapBudget::most).into(),
            max_channels: channel.map_or(0, |channel| channel.max_channels),
            max_buffer: channel.map_or(0, |channel| channel.max_buffer),
        }
    }
}

impl jt_capabilities_t {
    fn understood(self) -> Result<Capabilities, CallError> {
        let unknown = self.rights & !JT_CAP_ALL;
        if unknown != 0 {
            return Err(JT_EINVAL.because(format!("there are no rights {unknown:#x}")));
        }
        let has = |right: u64| self.rights & right != 0;
        Ok(Capabilities {
            spawn: has(JT_CAP_SPAWN).then(|| CapSpawn {
                max_tasks: self.max_tasks,
                task_budget: self.task_budget.into(),
            }),
            budget: has(JT_CAP_BUDGET).then(|| CapBudget::up_to(self.max_budget.into())),
            channel: has(JT_CAP_CHANNEL).then_some(CapChannel {
                max_buffer: self.max_buffer,
                max_channels: self.max_channels,
            }),
            executors: CapExecutor {
                blocking: has(JT_CAP_BLOCKING),
                threaded: has(JT_CAP_THREADED),
                cooperative: has(JT_CAP_COOPERATIVE),
                evented: has(JT_CAP_EVENTED),
            },
        })
    }
}

/// The number of a counter.
pub(crate) fn counter_number(counter: Counter) -> i32 {
    use jt_counter_t::*;
    let number = match counter {
        Counter::Ops => JT_COUNTER_OPS,
        Counter::Memory => JT_COUNTER_MEMORY,
        Counter::Spawns => JT_COUNTER_SPAWNS,
        Counter::ChannelOps => JT_COUNTER_CHANNEL_OPS,
        Counter::Syscalls => JT_COUNTER_SYSCALLS,
        _ => return -1,
    };
    number as i32
}

/// The budget that a program gave; `None` for NULL.
///
/// # Safety
/// `budget` is NULL or points to a budget.
pub(crate) unsafe fn read_budget(budget: *const jt_budget_t) -> Option<Budget> {
    // SAFETY: by contract.
    unsafe { budget.as_ref() }.map(|budget| (*budget).into())
}

/// The capabilities that a program gave; `None` for NULL.
///
/// # Safety
/// `capabilities` is NULL or points to capabilities of some version.
pub(crate) unsafe fn read_capabilities(
    capabilities: *const jt_capabilities_t,
) -> Result<Option<Capabilities>, CallError> {
    if capabilities.is_null() {
        return Ok(None);
    }
    // SAFETY: by contract.
    let given = unsafe { growing::read(capabilities) }?;
    given.understood().map(Some)
}

/// The profile with this number.
pub(crate) fn profile(number: i32) -> Result<Profile, CallError> {
    let found = Profile::ALL
        .into_iter()
        .find(|profile| number_of_profile(*profile) as i32 == number);
    found.ok_or_else(|| JT_EINVAL.because(format!("there is no profile {number}")))
}

pub(crate) fn number_of_profile(profile: Profile) -> jt_profile_t {
    use jt_profile_t::*;
    match profile {
        Profile::Core => JT_PROFILE_CORE,
        Profile::Service => JT_PROFILE_SERVICE,
        Profile::Cluster => JT_PROFILE_CLUSTER,
        Profile::Sovereign => JT_PROFILE_SOVEREIGN,
        // Open; what a later version adds limits jobs by its budgets, which can be asked for.
        _ => JT_PROFILE_OPEN,
    }
}

/// Gives the budget that a scope or job directly under the runtime has in a profile. Works without a runtime.
///
/// Returns JT_EINVAL if there is no such profile.
///
/// # Safety
/// `budget_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_profile_budget(
    profile: i32,
    budget_out: *mut jt_budget_t,
) -> jt_status {
    call(|| {
        let budget_out = required(budget_out, "budget_out")?;
        let profile = self::profile(profile)?;
        // SAFETY: as this function's contract.
        unsafe { budget_out.write(profile.budget().into()) };
        Ok(())
    })
}

/// Gives what a scope or job directly under the runtime may ask for in a profile: a start for one's own, of which rights are
/// then taken away. Works without a runtime. Set `size` of what `capabilities_out` points to before.
///
/// Returns JT_EINVAL if there is no such profile, or `size` is wrong.
///
/// # Safety
/// `capabilities_out` is NULL, or points to as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_profile_capabilities(
    profile: i32,
    capabilities_out: *mut jt_capabilities_t,
) -> jt_status {
    call(|| {
        let capabilities_out = required(capabilities_out, "capabilities_out")?;
        let capabilities = self::profile(profile)?.capabilities();
        // SAFETY: as this function's contract.
        unsafe { growing::write(capabilities_out.as_ptr(), capabilities.into()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_survive_the_way_there_and_back() {
        for profile in Profile::ALL {
            let capabilities = profile.capabilities();
            let back = jt_capabilities_t::from(capabilities).understood();
            assert_eq!(back.unwrap(), capabilities);
            assert_eq!(
                self::profile(number_of_profile(profile) as i32).unwrap(),
                profile
            );
        }
        let mut unknown = jt_capabilities_t::from(Capabilities::ALL);
        assert_eq!(unknown.rights, JT_CAP_ALL);
        unknown.rights |= 1 << 40;
        assert_eq!(unknown.understood().unwrap_err().status, JT_EINVAL);
    }
}
