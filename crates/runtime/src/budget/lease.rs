//! Where accounts come into spawning: a scope knows its own, and gives each job that it starts a lease on one.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;

use jobtree_pool::raw::fuel::{self, Turn};
use jobtree_tree::{Job, JobOptions};

use super::account::{ACCOUNT, Account, Terms};
use super::admission::{Admission, Request, may_spawn};
use super::amount::Budget;
use super::capability::{Capabilities, Executor};
use super::later::note_own;
use super::profile::{Profile, Refill};
use super::refusal::Refusal;
use super::statistics::BudgetCounters;
use super::supervise::{Decision, Exhausted, Handler, RechargeError, Supervision};
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
    pub(crate) handler: Option<Arc<Handler>>,
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

    /// Whether nothing is limited here.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.terms.profile == Profile::Open
    }

    /// A lease for a job directly under the root, or in a scope without limits; `None` if it needs none.
    #[inline]
    pub(crate) fn admit(
        &self,
        request: &Request,
        executor: Executor,
    ) -> Result<Option<Lease>, Refusal> {
        if self.is_open() && request.is_plain() && !tick::is_limited() {
            return Ok(None);
        }
        self.admit_within_limits(request, executor).map(Some)
    }

    /// If the calling code has limits, the job comes out of its budget, and has no more than the caller and this runtime
    /// allow: a handle to a runtime, and everybody has that of the global one, is no way out of a budget.
    #[cold]
    #[inline(never)]
    fn admit_within_limits(&self, request: &Request, executor: Executor) -> Result<Lease, Refusal> {
        let caller = tick::current_account();
        let counters = match &caller {
            Some(caller) => &caller.supervision.counters,
            None => &self.supervision.counters,
        };
        let terms = &self.terms;
        let admitted = match (
            may_spawn(terms.profile, &terms.capabilities, executor),
            &caller,
        ) {
            (Err(refusal), _) => Err(refusal),
            (Ok(_), None) => Ok(self.lease(request)),
            (Ok(_), Some(caller)) => self.lease_out_of(caller, request, executor),
        };
        if admitted.is_err() {
            counters.refused();
        }
        admitted
    }

    /// A lease out of the budget of `caller`, on no more than is allowed here.
    fn lease_out_of(
        &self,
        caller: &Arc<Account>,
        request: &Request,
        executor: Executor,
    ) -> Result<Lease, Refusal> {
        let here = self.terms.capabilities;
        let capabilities = match request.capabilities {
            Some(wanted) => here.restricted_to(wanted),
            None => here,
        };
        let most = match (self.is_open(), request.budget, here.budget) {
            (true, ..) => Budget::UNLIMITED,
            (false, Some(_), Some(most)) => most.most(),
            (false, ..) => self.terms.budget,
        };
        let admission = Admission {
            request: Request {
                budget: request.budget,
                capabilities: Some(capabilities),
            },
            most,
            ..Admission::of(executor)
        };
        // Whoever supervises the caller supervises what it starts without a scope.
        let account = caller.admit(&caller.supervision, &admission)?;
        Ok(Lease { account })
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
    /// it is part of the calling code; if that has no limits, the scope has an account of its own, with a lease. `None`
    /// where nothing is limited.
    ///
    /// # Errors
    /// If the calling code has limits, and the runtime has others: then the scope costs a spawn, which is not there.
    #[inline]
    pub(crate) fn open(parent: &Job, ground: &Ground) -> Result<Option<Opened>, Refusal> {
        match Account::of(parent) {
            None if ground.is_open() && !tick::is_limited() => Ok(None),
            None => Scope::open_under_root(ground).map(Some),
            Some(account) => Ok(Some(Opened {
                scope: Scope::over(account),
                lease: None,
                is_inherited: true,
            })),
        }
    }

    #[cold]
    fn open_under_root(ground: &Ground) -> Result<Opened, Refusal> {
        let lease = match tick::current_account() {
            Some(caller) if ground.is_open() || caller.is_under(&ground.supervision) => {
                return Ok(Opened {
                    scope: Scope::over(caller),
                    lease: None,
                    is_inherited: false,
                });
            }
            Some(_) => ground.admit_within_limits(&Request::default(), Executor::Cooperative)?,
            None => ground.lease(&Request::default()),
        };
        Ok(Opened {
            scope: Scope::over(Arc::clone(&lease.account)),
            lease: Some(lease),
            is_inherited: false,
        })
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

    /// A lease for a job that is about to be spawned in the scope. It comes out of the scope's budget, whoever spawns; but
    /// code that has less capabilities than the scope cannot start a job that has more than itself.
    pub(crate) fn admit(&self, request: &Request, executor: Executor) -> Result<Lease, Refusal> {
        match self.try_admit(request, executor) {
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

    fn try_admit(&self, request: &Request, executor: Executor) -> Result<Arc<Account>, Refusal> {
        let mut admission = Admission {
            request: request.clone(),
            ..Admission::of(executor)
        };
        if let Some(caller) = tick::current_account()
            && !Arc::ptr_eq(&caller, &self.account)
        {
            may_spawn(caller.profile, &caller.capabilities, executor)?;
            admission.request.capabilities = Some(match request.capabilities {
                Some(wanted) => caller.capabilities.restricted_to(wanted),
                None => caller.capabilities,
            });
        }
        self.account.admit(&self.supervision, &admission)
    }

    pub(crate) fn supervise(
        &self,
        handler: impl Fn(&Exhausted) -> Decision + Send + Sync + 'static,
    ) {
        self.supervision.set_handler(Handler::new(handler));
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

/// A scope that was allowed to open.
pub(crate) struct Opened {
    pub(crate) scope: Scope,
    /// On an account of the scope's own.
    pub(crate) lease: Option<Lease>,
    /// Whether the scope's job has its account from its parent.
    is_inherited: bool,
}

impl Opened {
    /// Has the scope, and what is spawned in it, find its account.
    pub(crate) fn install(&self, options: JobOptions) -> JobOptions {
        match self.is_inherited {
            true => options,
            false => options.local(&ACCOUNT, Arc::clone(&self.scope.account)),
        }
    }
}

/// The right of one job to its account. Moves into the job's body and is dropped with it, on every way out, before the
/// job has ended: then what is left goes back.
pub(crate) struct Lease {
    account: Arc<Account>,
}

impl Lease {
    pub(super) fn on(account: Arc<Account>) -> Lease {
        Lease { account }
    }

    /// Has the job, and what is spawned in it, find the account.
    pub(crate) fn install(&self, options: JobOptions) -> JobOptions {
        options.local(&ACCOUNT, Arc::clone(&self.account))
    }

    /// Runs a body, or polls one, so that what it does is charged.
    pub(crate) fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        struct PutBack<'a>(&'a Account);
        impl Drop for PutBack<'_> {
            fn drop(&mut self) {
                // Elsewhere the rest tells how much the body did, and nobody gets it.
                if self.0.refill() == Refill::BySupervisor
                    && let Some(rest) = fuel::replace_fuel(Turn::EMPTY)
                {
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
        // SAFETY: the meter points to the account and to the share that it owns, which the lease keeps for longer than the
        // call; and all that the body forks or spawns in scopes has ended with it.
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
        let mut poll = |context: &mut Context<'_>| {
            note_own(context.waker());
            // A future that only yields or waits would never get to where it is charged.
            if fuel::is_over_share() {
                tick::give_way();
            }
            future.as_mut().poll(context)
        };
        poll_fn(|context| self.run(|| poll(context))).await
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
