//! The limits of code that the library calls later, and outside of the job that the code comes from: cancel callbacks, foreign
//! wakers, budget handlers, and destructors of what no code takes.
//!
//! Such code has the capabilities and quotas of the job that it comes from: it keeps the job's account, and runs with a meter
//! that points to it. It has no rates, since no job is left to recharge them: the job may have ended. It has no memory of the
//! account either, for the same reason: no job would give it back. A meter with an account but without a share tells the
//! account of such code ([`Account::meter_of_later_code`]).
//!
//! An account that is done for (its job's body has returned, and so have all jobs below) has no spawns left. So what runs
//! even later can start nothing.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{RawWakerVTable, Wake, Waker};

use jobtree_pool::raw::{fuel, is_stack_waker};
use jobtree_tree::Job;
use jobtree_tree::raw::{self, Within};

use super::account::Account;
use super::tick;

/// The right to run code with the limits of an account, after the account's job, if need be.
#[derive(Clone)]
pub(crate) struct Limits(Arc<Account>);

impl Limits {
    /// The limits of the calling code, if it has any.
    #[inline]
    pub(crate) fn current() -> Option<Limits> {
        if !tick::is_limited() {
            return None;
        }
        tick::current_account().map(Limits)
    }

    /// The limits of `job`, if it has any.
    pub(crate) fn of(job: &Job) -> Option<Limits> {
        Account::of(job).map(Limits)
    }

    /// Calls `code`; what it starts comes out of the account.
    pub(crate) fn run<R>(&self, code: impl FnOnce() -> R) -> R {
        // SAFETY: the meter points to the account, which `self` keeps for longer than the call; it has no share.
        unsafe { fuel::with_meter(self.0.meter_of_later_code(), code) }
    }
}

impl Within for Limits {
    fn run(&self, code: &mut dyn FnMut()) {
        Limits::run(self, code);
    }
}

/// Calls `code` with `limits`, if there are any.
pub(crate) fn within<R>(limits: Option<&Limits>, code: impl FnOnce() -> R) -> R {
    match limits {
        None => code(),
        Some(limits) => limits.run(code),
    }
}

/// The answer to the tree, which knows nothing of accounts: the limits of a job, or of the calling code.
pub(crate) fn limits_for_tree(job: Option<&Job>) -> Option<Box<dyn Within>> {
    let limits = match job {
        Some(job) => Limits::of(job),
        None => Limits::current(),
    };
    limits.map(|limits| Box::new(limits) as Box<dyn Within>)
}

thread_local! {
    /// The vtable of the wakers by which this thread polls the future of a job with limits: they are the library's own.
    static OWN_VTABLE: Cell<*const RawWakerVTable> = const { Cell::new(std::ptr::null()) };
}

/// Notes that `waker` is the library's own, as are all with its vtable.
pub(super) fn note_own(waker: &Waker) {
    OWN_VTABLE.set(waker.vtable());
}

/// Clones `waker`, to be woken later. If the calling code has limits and the waker is not the library's own, what the waker
/// does has these limits, too.
#[inline]
pub(crate) fn waker_for_later(waker: &Waker) -> Waker {
    if !tick::is_limited() {
        return waker.clone();
    }
    limited_waker(waker)
}

#[cold]
#[inline(never)]
fn limited_waker(waker: &Waker) -> Waker {
    let is_own = is_stack_waker(waker) || std::ptr::eq(OWN_VTABLE.get(), waker.vtable());
    match Limits::current() {
        Some(limits) if !is_own => Waker::from(Arc::new(LimitedWaker {
            waker: Some(waker.clone()),
            limits,
        })),
        _ => waker.clone(),
    }
}

/// A waker of the program's, which wakes and dies with the limits of the code that handed it over.
struct LimitedWaker {
    /// There until it is dropped.
    waker: Option<Waker>,
    limits: Limits,
}

impl Wake for LimitedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(waker) = &self.waker {
            // A panic is for the guard around the wake that called this one.
            self.limits.run(|| waker.wake_by_ref());
        }
    }
}

impl Drop for LimitedWaker {
    fn drop(&mut self) {
        let waker = self.waker.take();
        self.limits.run(|| drop(waker));
    }
}

/// Calls `code`, which drops what `job` has left, with the limits of the job.
pub(crate) fn with_limits_of<R>(job: &Job, code: impl FnOnce() -> R) -> R {
    match raw::has_locals(job) {
        // The account is one of them.
        false => code(),
        true => within(Limits::of(job).as_ref(), code),
    }
}
