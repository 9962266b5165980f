//! Who decides about jobs whose budget is used up, where they do not get a new one by themselves.
//!
//! # Nobody is lost
//!
//! A strand that cannot draw says so under the lock of its account, and gets the number of recharges so far. A recharge
//! is made under that lock, too, only while somebody waits, and counts up the number. The strand then waits until the
//! number is another one: if the recharge came before it parked, it does not park. A cancellation wakes it in any
//! case (`unless_cancelled`).

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use jobtree_base::user_code::{Place, call_user, drop_user};
use jobtree_pool::raw::outermost;
use jobtree_tree::raw::as_part_of_end;
use jobtree_tree::{Job, WaitingFor};

use super::account::{Account, Lack};
use super::amount::{Budget, Counter};
use super::later::{Limits, within};
use super::statistics::BudgetCounters;
use crate::atomics::{Mutex, MutexGuard, model_has_failed};
use crate::block::unless_cancelled;
use crate::step::{Step, left_out};

/// What becomes of a job whose budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// It gets so much more out of the supervisor's own budget, or what that still has, and goes on.
    Recharge(Budget),
    /// It is cancelled.
    Cancel,
    /// It waits until somebody recharges or cancels it.
    Ignore,
}

type Decide = dyn Fn(&Exhausted) -> Decision + Send + Sync;

/// The program's function that decides about exhausted jobs.
///
/// Whoever uses it last drops it, with what it captured: that may be the frame of a job, in the middle of something. So it
/// sees to it that its destructor runs outside of all jobs, and that a panic stays in there.
pub(crate) struct Handler {
    /// There until it is dropped.
    decide: Option<Box<Decide>>,
    /// Those of the code that gave the handler.
    limits: Option<Limits>,
}

impl Handler {
    pub(crate) fn new(
        decide: impl Fn(&Exhausted) -> Decision + Send + Sync + 'static,
    ) -> Arc<Handler> {
        Arc::new(Handler {
            decide: Some(Box::new(decide)),
            limits: Limits::current(),
        })
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let decide = self.decide.take();
        if cfg!(all(loom, test)) {
            // As in `decide`.
            drop(decide);
        } else {
            let limits = self.limits.as_ref();
            outermost(|| within(limits, || drop_user(Place::Handler, decide)));
        }
    }
}

/// A job whose budget is used up, as its supervisor sees it.
#[derive(Clone)]
pub struct Exhausted {
    account: Arc<Account>,
    job: Job,
    lacking: Counter,
}

impl Exhausted {
    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// What it has used up.
    pub fn lacking(&self) -> Counter {
        self.lacking
    }

    /// Its budget.
    pub fn budget(&self) -> super::JobBudget {
        self.account.report()
    }

    /// Gives it up to `more` out of the supervisor's budget, and lets it go on. Returns how much it got.
    ///
    /// # Errors
    /// If it is not exhausted any more, or the supervisor has nothing of what it lacks.
    pub fn recharge(&self, more: Budget) -> Result<Budget, RechargeError> {
        let given = self.account.recharge(more)?;
        self.account.supervision.counters.recharged();
        Ok(given)
    }

    /// Cancels it.
    pub fn cancel(&self) -> bool {
        self.job.cancel("its budget is used up")
    }
}

impl fmt::Debug for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exhausted")
            .field("job", &self.job)
            .field("lacking", &self.lacking)
            .finish_non_exhaustive()
    }
}

/// Why a job could not be given more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RechargeError {
    /// It is not exhausted: there is nothing to recharge.
    NotExhausted,
    /// The supervisor's budget has nothing of what the job lacks.
    PoolEmpty {
        /// That.
        lacking: Counter,
    },
    /// It is not a job of this scope, or has no budget.
    NotSupervised,
}

impl fmt::Display for RechargeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RechargeError::NotExhausted => {
                f.write_str("the job has not used up its budget; recharge it when it has")
            }
            RechargeError::PoolEmpty { lacking } => write!(
                f,
                "there are no {lacking} left to give; wait until a job has ended and given back, or cancel the job"
            ),
            RechargeError::NotSupervised => f.write_str(
                "the job has no budget out of this scope; recharge it where it was spawned",
            ),
        }
    }
}

impl std::error::Error for RechargeError {}

/// What a scope knows of the budgets of its jobs.
pub(super) struct Supervision {
    handler: Mutex<Option<Arc<Handler>>>,
    exhausted: Mutex<Vec<Exhausted>>,
    pub(super) counters: Arc<BudgetCounters>,
}

impl Supervision {
    pub(super) fn new(counters: Arc<BudgetCounters>) -> Supervision {
        Supervision {
            handler: Mutex::new(None),
            exhausted: Mutex::new(Vec::new()),
            counters,
        }
    }

    /// Has `handler` decide from now on, and about those that wait already.
    pub(super) fn set_handler(&self, handler: Arc<Handler>) {
        let replaced = lock(&self.handler).replace(Arc::clone(&handler));
        // Without the lock: its destructor may be the program's, and set a handler, too.
        drop(replaced);
        if left_out(Step::HandlerSeesListed) {
            return;
        }
        for exhausted in self.exhausted() {
            decide(&handler, &exhausted);
        }
    }

    /// The jobs that wait for more.
    pub(super) fn exhausted(&self) -> Vec<Exhausted> {
        let listed = lock(&self.exhausted).clone();
        let mut waiting = Vec::new();
        for entry in listed {
            if let Some(lacking) = entry.account.lacking() {
                waiting.push(Exhausted { lacking, ..entry });
            }
        }
        waiting
    }

    /// The number of jobs that are listed, whether they wait or not.
    #[cfg(all(test, loom))]
    pub(super) fn listed(&self) -> usize {
        lock(&self.exhausted).len()
    }

    fn list(&self, exhausted: Exhausted) {
        let mut list = lock(&self.exhausted);
        let is_listed = |known: &Exhausted| Arc::ptr_eq(&known.account, &exhausted.account);
        if !list.iter().any(is_listed) {
            list.push(exhausted);
        }
    }

    fn unlist(&self, account: &Arc<Account>) {
        let mut gone = None;
        {
            let mut list = lock(&self.exhausted);
            let index = list
                .iter()
                .position(|known| Arc::ptr_eq(&known.account, account));
            // Another strand of the job may have run out meanwhile, and found the job listed.
            if let Some(index) = index
                && (account.lacking().is_none() || left_out(Step::UnlistLooks))
            {
                gone = Some(list.swap_remove(index));
            }
        }
        drop(gone);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn decide(handler: &Handler, exhausted: &Exhausted) {
    // The handler is not part of the job, whose budget is used up, but runs in its place: outside of the job, so that what
    // the handler spawns and waits for does not lack the same. A handler that panics decides nothing, and the job would wait
    // for ever.
    let Some(decide) = &handler.decide else {
        return;
    };
    let decision = || decide(exhausted);
    let decided = if cfg!(all(loom, test)) {
        // All threads of a model share the one context of the thread that runs them, and a failure must not be caught.
        Some(decision())
    } else {
        // The job waits for the decision.
        as_part_of_end(&exhausted.job, || {
            let limits = handler.limits.as_ref();
            call_user(Place::Handler, || outermost(|| within(limits, decision)))
        })
    };
    match decided.unwrap_or(Decision::Cancel) {
        Decision::Recharge(more) => {
            // If there is nothing to give, or somebody else was faster, that is that.
            let _ = exhausted.recharge(more);
        }
        Decision::Cancel => {
            exhausted.cancel();
        }
        Decision::Ignore => {}
    }
}

/// The calling strand waits, as part of the exhausted job of `account`, until somebody recharges it or the current job
/// is cancelled.
pub(super) fn wait_for_recharge(account: &Arc<Account>, lack: &Lack) {
    let waiting = Waiting::begin(account, lack);
    // A cancellation is seen by the caller, too.
    let _ = unless_cancelled(waiting.recharged(lack), WaitingFor::Budget);
}

/// A strand that waits for a recharge: known to the supervisor until this is dropped.
pub(super) struct Waiting<'a>(&'a Arc<Account>);

impl<'a> Waiting<'a> {
    /// Lists the job for its supervisor, and has the handler decide, if there is one. The account counts the strand as
    /// waiting since it could not draw.
    pub(super) fn begin(account: &'a Arc<Account>, lack: &Lack) -> Waiting<'a> {
        let waiting = Waiting(account);
        let supervision = &account.supervision;
        supervision.counters.exhausted();
        if let Some(job) = account.job() {
            let exhausted = Exhausted {
                account: Arc::clone(account),
                job,
                lacking: lack.counter,
            };
            let mut handler = None;
            if left_out(Step::ExhaustedListedFirst) {
                handler = lock(&supervision.handler).clone();
            }
            supervision.list(exhausted.clone());
            if !left_out(Step::ExhaustedListedFirst) {
                handler = lock(&supervision.handler).clone();
            }
            if let Some(handler) = handler {
                decide(&handler, &exhausted);
            }
        }
        waiting
    }

    /// Ready when somebody has recharged the account since `lack`.
    pub(super) fn recharged(&self, lack: &Lack) -> Recharged<'a> {
        Recharged {
            account: self.0,
            generation: self.0.awaited_after(lack),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if model_has_failed() || left_out(Step::WaitingEnds) {
            return;
        }
        if self.0.stop_waiting() {
            self.0.supervision.unlist(self.0);
        }
    }
}

/// Ready when somebody has recharged the account.
pub(super) struct Recharged<'a> {
    account: &'a Account,
    generation: u64,
}

impl Future for Recharged<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.account.still_lacks(self.generation, context.waker()) {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}
