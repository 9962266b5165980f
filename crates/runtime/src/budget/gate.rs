//! The pool's questions: whether code with an account may start tasks and threads that are no jobs.
//!
//! Jobs ask through their scope or their runtime (`lease.rs`). Tasks of the pool have neither, so the pool itself asks, by
//! the gate in the meter of the context (`pool::raw::gate`), and gets a permit that the tasks keep as long as they run.

use std::sync::Arc;

use jobtree_pool::raw::gate::{Answer, Gate, Refused, TaskPermit, TaskPlace, TaskRequest};

use super::account::Account;
use super::admission::{Admission, may_spawn};
use super::capability::Executor;
use super::lease::Lease;
use super::permit::allow_executor;
use super::profile::Refill;
use super::refusal::Refusal;

/// The gate in the meters of all accounts.
pub(super) static GATE: Gate = Gate {
    admit,
    start_threads,
};

/// Decides about tasks of the pool.
///
/// # Safety
/// `account` is that of a meter with [`GATE`], and is alive.
unsafe fn admit(account: *const (), request: TaskRequest) -> Answer {
    // SAFETY: by contract; meters point to accounts in `Arc`s.
    let account = unsafe { Account::from_meter(account) };
    match permit(&account, request) {
        Ok(permit) => Ok(permit),
        Err(refusal) => {
            account.supervision.counters.refused();
            Err(refusal.into())
        }
    }
}

fn permit(account: &Arc<Account>, request: TaskRequest) -> Result<Arc<dyn TaskPermit>, Refusal> {
    let (profile, executor) = (account.profile, Executor::Cooperative);
    let spawn = may_spawn(profile, &account.capabilities, executor)?;
    if request.place == TaskPlace::Inside {
        // What it does is charged to the account by its context.
        account.take_tasks(&spawn, request.tasks)?;
        return Ok(Arc::new(Counted {
            account: Arc::clone(account),
            tasks: request.tasks,
        }));
    }
    if account.refill() == Refill::BySupervisor {
        return Err(Refusal::NoSupervisor { profile });
    }
    let admission = Admission {
        tasks: request.tasks,
        ..Admission::of(executor)
    };
    let own = account.admit(&account.supervision, &admission)?;
    Ok(Arc::new(Lease::on(own)))
}

/// Decides about threads.
///
/// # Safety
/// As for [`admit`].
unsafe fn start_threads(account: *const ()) -> Result<(), Refused> {
    // SAFETY: by contract; meters point to accounts in `Arc`s.
    let account = unsafe { Account::from_meter(account) };
    Ok(allow_executor(&account, Executor::Threaded)?)
}

/// The right of tasks that run in the context of the account's job.
struct Counted {
    account: Arc<Account>,
    tasks: u64,
}

impl TaskPermit for Counted {
    fn run(&self, task: &mut dyn FnMut()) {
        task();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.account.give_back_tasks(self.tasks);
    }
}

impl TaskPermit for Lease {
    fn run(&self, task: &mut dyn FnMut()) {
        Lease::run(self, task);
    }
}
