//! Where accounts come into spawning: a scope knows its own, and gives each job that it starts a lease on one.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use jobtree_pool::raw::fuel::{self, Turn};
use jobtree_tree::{Job, JobOptions};

use super::account::{ACCOUNT, Account, Request, Terms, may_spawn};
use super::amount::Budget;
use super::capability::Capabilities;
use super::profile::Profile;
use super::refusal::Refusal;
use super::statistics::BudgetCounters;
use super::supervise::{Decision, Exhausted, RechargeError, Supervision};
use super::tick;

/// What a runtime's profile means for what is directly under its root.
pub(crate) struct Ground {
    terms: Terms,
    supervision: Arc<Supervision>,
}

/// How a runtime is described, as far as budgets are concerned.
#[derive(Default)]
pub(crate) struct GroundBuilder {
    pub(crate) profile: Profile,
    pub(crate) budget: Option<Budget>,
    pub(crate) capabilities: Option<Capabilities>,
    pub(crate) handler: Option<Arc<super::supervise::Handler>>,
}

impl fmt::Debug for GroundBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroundBuilder")
            .field("profile", &self.profile)
            .field("budget", &self.budget)
            .field("capabilities", &self.capabilities)
            .finish_non_exhaustive()
    }
}

impl GroundBuilder {
    pub(crate) fn build(self) -> Ground {
        let supervision = Arc::new(Supervision::new(Arc::default()));
        if let Some(handler) = self.handler {
            supervision.set_handler(handler);
        }
        Ground {
            terms: Terms {
                profile: self.profile,
                budget: self.budget.unwrap_or(self.profile.budget()),
                capabilities: self
                    .capabilities
                    .unwrap_or_else(|| self.profile.capabilities()),
            },
            supervision,
        }
    }
}

impl Ground {
    pub(crate) fn profile(&self) -> Profile {
        self.terms.profile
    }

    pub(crate) fn counters(&self) -> &BudgetCounters {
        &self.supervision.counters
    }

    /// The lease of a scope that is about to be opened under `parent`, if it needs one of its own: directly under a root
    /// that has limits.
    pub(crate) fn lease_of_scope(&self, parent: &Job) -> Option<Lease> {
        if self.is_open() || Account::of(parent).is_some() {
            return None;
        }
        Some(self.lease(&Request::default()))
    }

    /// Whether nothing is limited here.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.terms.profile == Profile::Open
    }

    /// A lease for a job directly under the root; `None` if it needs none.
    #[inline]
    pub(crate) fn admit(&self, request: &Request) -> Result<Option<Lease>, Refusal> {
        if self.is_open() && request.is_plain() {
            return Ok(None);
        }
        if let Err(refusal) = may_spawn(self.terms.profile, &self.terms.capabilities) {
            self.supervision.counters.refused();
            return Err(refusal);
        }
        Ok(Some(self.lease(request)))
    }

    /// A lease on what the profile gives, or, where that is without limits, on what is asked for.
    fn lease(&self, request: &Request) -> Lease {
        let most = match self.terms.capabilities.budget {
            Some(most) => most.most(),
            None => self.terms.budget,
        };
        let budget = match request.budget {
            Some(budget) => budget.clamped_to(most),
            None => self.terms.budget,
        };
        let capabilities = match request.capabilities {
            Some(wanted) => self.terms.capabilities.restricted_to(wanted),
            None => self.terms.capabilities,
        };
        let terms = Terms {
            budget,
            capabilities,
            ..self.terms
        };
        Lease {
            account: Account::outermost(&terms, &self.supervision),
        }
    }
}

/// What a scope knows of budgets, where they are limited.
pub(crate) struct Scope {
    account: Arc<Account>,
    supervision: Arc<Supervision>,
}

impl Scope {
    /// For a scope that is about to be opened under `parent`: the account of the job it is part of. Directly under a root
    /// it has one of its own, with a lease. `None` where nothing is limited.
    #[inline]
    pub(crate) fn open(parent: &Job, ground: &Ground) -> Option<(Scope, Option<Lease>)> {
        match Account::of(parent) {
            None if ground.is_open() => None,
            None => {
                let lease = ground.lease(&Request::default());
                let account = Arc::clone(&lease.account);
                Some((Scope::over(account), Some(lease)))
            }
            Some(account) => Some((Scope::over(account), None)),
        }
    }

    /// The scope that a handle to `job` is: what is spawned in it comes out of the account of `job`. All such handles to
    /// the jobs of one account share their supervision. `None` where nothing is limited, and for a root.
    pub(crate) fn of(job: &Job) -> Option<Scope> {
        Account::of(job).map(|account| Scope {
            supervision: Arc::clone(account.supervision_below()),
            account,
        })
    }

    fn over(account: Arc<Account>) -> Scope {
        let counters = Arc::clone(&account.supervision.counters);
        Scope {
            account,
            supervision: Arc::new(Supervision::new(counters)),
        }
    }

    /// A lease for a job that is about to be spawned in the scope.
    pub(crate) fn admit(&self, request: &Request) -> Result<Lease, Refusal> {
        match self.account.admit(&self.supervision, request) {
            Ok(account) => Ok(Lease { account }),
            Err(refusal) => {
                self.supervision.counters.refused();
                if refusal.is_temporary() {
                    // Those that are there have to end first; who asks again and again must not keep them from it.
                    tick::give_way();
                }
                Err(refusal)
            }
        }
    }

    pub(crate) fn supervise(
        &self,
        handler: impl Fn(&Exhausted) -> Decision + Send + Sync + 'static,
    ) {
        self.supervision.set_handler(Arc::new(handler));
    }

    pub(crate) fn exhausted(&self) -> Vec<Exhausted> {
        self.supervision.exhausted()
    }

    pub(crate) fn recharge(&self, job: &Job, more: Budget) -> Result<Budget, RechargeError> {
        match Account::of(job) {
            Some(account) if Arc::ptr_eq(&account.supervision, &self.supervision) => {
                let given = account.recharge(more)?;
                self.supervision.counters.recharged();
                Ok(given)
            }
            _ => Err(RechargeError::NotSupervised),
        }
    }
}

/// The right of one job to its account. Moves into the job's body and is dropped with it, on every way out, before the
/// job has ended: then what is left goes back.
pub(crate) struct Lease {
    account: Arc<Account>,
}

impl Lease {
    /// Has the job, and what is spawned in it, find the account.
    pub(crate) fn install(&self, options: JobOptions) -> JobOptions {
        options.local(&ACCOUNT, Arc::clone(&self.account))
    }

    /// Runs a body, or polls one, so that what it does is charged.
    pub(crate) fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        struct PutBack<'a>(&'a Account);
        impl Drop for PutBack<'_> {
            fn drop(&mut self) {
                if let Some(rest) = fuel::replace_fuel(Turn::EMPTY) {
                    self.0.put_back(rest);
                }
            }
        }
        let account = &self.account;
        account.enter_body(Job::current());
        let metered = || {
            let _put_back = PutBack(account);
            body()
        };
        // SAFETY: the meter points to the account, which the lease keeps for longer than the call; and all that the
        // body forks or spawns in scopes has ended with it.
        unsafe { fuel::with_meter(account.meter(), metered) }
    }

    /// The body of a job that has this lease.
    pub(crate) fn around<R>(self, body: impl FnOnce() -> R) -> impl FnOnce() -> R {
        move || {
            let result = self.run(body);
            drop(self);
            result
        }
    }

    /// The future of a job that has this lease.
    pub(crate) async fn around_future<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| self.run(|| future.as_mut().poll(context))).await
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.account.close_body();
    }
}
