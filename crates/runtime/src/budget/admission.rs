//! What it takes to start something out of an account: the question, the capability, and the budget of what starts.

use std::sync::Arc;

use super::account::{Account, Purse};
use super::amount::Budget;
use super::capability::{CapSpawn, Capabilities, Executor};
use super::profile::{Profile, Refill};
use super::refusal::Refusal;
use super::supervise::Supervision;

/// What a spawner asks for a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) budget: Option<Budget>,
    pub(crate) capabilities: Option<Capabilities>,
}

impl Request {
    pub(crate) fn is_plain(&self) -> bool {
        self.budget.is_none() && self.capabilities.is_none()
    }
}

/// What has to be decided about before something starts out of an account.
pub(super) struct Admission {
    pub(super) request: Request,
    /// How many tasks will run in the new account.
    pub(super) tasks: u64,
    /// On what they will run.
    pub(super) executor: Executor,
    /// The most that they get, whatever the account would allow.
    pub(super) most: Budget,
}

impl Admission {
    /// One task about which nothing was said.
    pub(super) fn of(executor: Executor) -> Admission {
        Admission {
            request: Request::default(),
            tasks: 1,
            executor,
            most: Budget::UNLIMITED,
        }
    }
}

impl Account {
    /// Takes what `tasks` more tasks cost: a spawn each, and a place each among those that may be there at a time.
    pub(super) fn take_tasks(&self, spawn: &CapSpawn, tasks: u64) -> Result<(), Refusal> {
        take_tasks(&mut self.lock(), spawn, tasks)
    }

    /// Gives back what [`Account::take_tasks`] took: they have ended.
    pub(super) fn give_back_tasks(self: &Arc<Account>, tasks: u64) {
        let back = Budget {
            spawns: tasks,
            ..Budget::NONE
        };
        if self.take_back(back, tasks) {
            Account::settle(Arc::clone(self));
        }
    }

    /// Takes back what ended tasks have left; returns `true` if the account is no longer used.
    pub(super) fn take_back(&self, rest: Budget, tasks: u64) -> bool {
        let mut purse = self.lock();
        purse.left.recharge(rest);
        purse.tasks -= tasks;
        purse.tasks == 0 && !purse.body_is_open
    }

    /// Returns `true` if this account came out of the terms that `supervision` belongs to.
    pub(super) fn is_under(&self, supervision: &Arc<Supervision>) -> bool {
        self.and_above()
            .last()
            .is_some_and(|outermost| Arc::ptr_eq(&outermost.supervision, supervision))
    }

    /// Makes an account for a job to be spawned, or for tasks, out of this one.
    pub(super) fn admit(
        self: &Arc<Account>,
        supervision: &Arc<Supervision>,
        admission: &Admission,
    ) -> Result<Arc<Account>, Refusal> {
        let request = &admission.request;
        let spawn = may_spawn(self.profile, &self.capabilities, admission.executor)?;
        let most = match self.capabilities.budget {
            Some(most) => most.most(),
            None => spawn.task_budget,
        };
        let asked = request.budget.map(|budget| budget.clamped_to(most));
        let mut purse = self.lock();
        take_tasks(&mut purse, &spawn, admission.tasks)?;
        let mut granted = asked.unwrap_or(spawn.task_budget);
        let is_vague = asked.is_none() && granted.spawns == u64::MAX;
        if is_vague && purse.left.spawns != u64::MAX {
            // Nobody asked for it, so it does not get all there is.
            granted.spawns = 0;
        }
        let rates = match self.refill {
            Refill::WhenRescheduled => self.granted,
            Refill::BySupervisor => purse.left,
        };
        granted = granted.clamped_to(admission.most).clamped_to(Budget {
            memory: self.memory.limit(),
            spawns: purse.left.spawns,
            ..rates
        });
        let set_aside = match self.refill {
            Refill::WhenRescheduled => Budget {
                spawns: granted.spawns,
                ..Budget::NONE
            },
            Refill::BySupervisor => Budget {
                memory: 0,
                ..granted
            },
        };
        let taken = purse.left.try_take(set_aside);
        debug_assert!(taken.is_ok(), "clamped to what is there");
        drop(purse);
        let inherited = self.capabilities;
        let capabilities = match request.capabilities {
            Some(wanted) => inherited.restricted_to(wanted),
            None => inherited,
        };
        Ok(Account::new(
            Some(Arc::clone(self)),
            supervision,
            self.profile,
            granted,
            capabilities,
            admission.tasks,
        ))
    }
}

fn take_tasks(purse: &mut Purse, spawn: &CapSpawn, tasks: u64) -> Result<(), Refusal> {
    if !purse.body_is_open && purse.tasks == 0 {
        // Done for: what was left has gone back, or is about to.
        return Err(Refusal::SpawnQuotaExceeded);
    }
    let limit = spawn.max_tasks;
    if limit.saturating_sub(purse.tasks) < tasks {
        return Err(Refusal::TaskLimitExceeded { limit });
    }
    let spawns = Budget {
        spawns: tasks,
        ..Budget::NONE
    };
    if purse.left.try_take(spawns).is_err() {
        return Err(Refusal::SpawnQuotaExceeded);
    }
    purse.tasks += tasks;
    Ok(())
}

/// The right to spawn jobs that run on `executor`.
pub(super) fn may_spawn(
    profile: Profile,
    capabilities: &Capabilities,
    executor: Executor,
) -> Result<CapSpawn, Refusal> {
    if profile == Profile::Core {
        return Err(Refusal::CoreProfile);
    }
    let Some(spawn) = capabilities.spawn else {
        return Err(Refusal::NoSpawnCapability);
    };
    if !capabilities.executors.allows(executor) {
        return Err(Refusal::ExecutorNotAllowed { executor });
    }
    Ok(spawn)
}
