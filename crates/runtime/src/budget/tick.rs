//! Charging: what code pays for what it does, and what happens when it cannot.
//!
//! The price is a decrement on the current strand. Everything else is here, off the way: count, show it, give way or
//! wait, refill, and take the price again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use jobtree_pool::raw::fuel::{self, Meter, Turn};
use jobtree_pool::raw::{let_woken_run_at_tick, unwind_if_stopped};
use jobtree_tree::{Job, WaitingFor, raw};

use super::account::Account;
use super::amount::Budget;
use super::profile::Refill;
use super::supervise::wait_for_recharge;
use crate::runtime::Inner;

const OP: Turn = Turn {
    ops: 1,
    ..Turn::EMPTY
};

/// Pays one operation; if the job's turn is over, lets others run first. Jobs that began on the same worker and whose wait is
/// over run first at any tick, at most every 0.1 ms; in profiles with budgets, at the end of a turn.
///
/// For loops that compute for long: some 100 000 of them make a turn, and each costs about a nanosecond.
/// [`#[budgeted]`](https://docs.rs/jobtree) puts one into every loop of a function. In a job that was cancelled, a tick at
/// the end of a turn unwinds to the job's boundary, as a fork does; use [`checkpoint`](crate::checkpoint()) to get an error
/// instead.
///
/// Outside of jobs, and on threads that are no workers, it does nothing.
///
/// ```
/// use jobtree_runtime::{nursery, tick};
///
/// nursery(|n| {
///     n.launch(|| {
///         for _ in 0..1_000_000 {
///             tick();
///         }
///         Ok(())
///     });
///     Ok(())
/// })?;
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
#[inline(always)]
pub fn tick() {
    if !fuel::burn_at_tick(OP) {
        tick_slowly();
    }
}

/// [`tick`], for `async` code: when the turn is over, the future it is awaited in is left once, so that others polled by
/// the same task have their turn, too.
///
/// ```
/// use jobtree_runtime::{block_on, tick_async};
///
/// block_on(async {
///     for _ in 0..1_000 {
///         tick_async().await;
///     }
/// })?;
/// # Ok::<(), jobtree_runtime::Cancelled>(())
/// ```
#[inline]
pub fn tick_async() -> TickAsync {
    TickAsync { is_paid: false }
}

/// See [`tick_async`].
#[derive(Debug)]
#[must_use = "nothing is paid before it is awaited"]
pub struct TickAsync {
    is_paid: bool,
}

impl Future for TickAsync {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_paid || fuel::burn_at_tick(OP) {
            return Poll::Ready(());
        }
        let_woken_run_at_tick();
        if fuel::burn(OP) {
            return Poll::Ready(());
        }
        self.is_paid = true;
        out_of_fuel(OP);
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Pays `ops` operations at once: all or nothing. If there is not as much left of the turn, others run first.
///
/// What costs more than a whole turn has costs the whole turn.
///
/// ```
/// jobtree_runtime::budget::charge(1_000);
/// ```
#[inline]
pub fn charge(ops: u32) {
    let cost = Turn { ops, ..Turn::EMPTY };
    if !fuel::burn_at_tick(cost) {
        let_woken_run_at_tick();
        charge_turn(cost);
    }
}

/// Pays for a call of the system: one operation and one system call.
#[inline]
pub fn charge_syscall() {
    charge_turn(Turn { syscalls: 1, ..OP });
}

/// Pays for sending or receiving: one operation and one channel operation. For channels of one's own; ours do it
/// themselves.
///
/// A job that was cancelled gets its error from the channel, so this never unwinds.
#[inline]
pub fn charge_channel_op() {
    let cost = Turn {
        channel_ops: 1,
        ..OP
    };
    if !fuel::burn(cost) {
        run_out(cost);
    }
}

/// Pays for an operation of ours. Never unwinds.
#[inline]
pub(crate) fn charge_op() {
    if !fuel::burn(OP) {
        run_out_of_ops();
    }
}

#[inline(always)]
fn charge_turn(cost: Turn) {
    if !fuel::burn(cost) {
        out_of_fuel(cost);
    }
}

/// Lets jobs of this worker run whose wait is over, if there are any; then pays, if the turn allows it. Without an argument,
/// which every tick would prepare in vain.
#[cold]
#[inline(never)]
fn tick_slowly() {
    let_woken_run_at_tick();
    if !fuel::burn(OP) {
        out_of_fuel(OP);
    }
}

#[cold]
#[inline(never)]
fn out_of_fuel(cost: Turn) {
    run_out(cost);
    unwind_if_stopped();
}

#[cold]
#[inline(never)]
fn run_out_of_ops() {
    run_out(OP);
}

/// `cost` could not be paid. Returns when it is, or when the job is to end.
#[cold]
#[inline(never)]
fn run_out(cost: Turn) {
    // Nothing is parked while panicking, and nobody waits then: a destructor's operations are free.
    if std::thread::panicking() || jobtree_pool::stop_requested() {
        return;
    }
    let meter = fuel::meter();
    // SAFETY: the meter is that of the context we run in.
    let Some(account) = (unsafe { account_of(meter) }) else {
        count_in_runtime();
        return begin_new_turn(meter, cost);
    };
    if meter.share.is_null() {
        // Code that runs later than its job has no rates: see `later.rs`.
        return begin_new_turn(meter, cost);
    }
    match account.refill() {
        Refill::WhenRescheduled => {
            account.count_exhaustion();
            account.supervision.counters.exhausted();
            cancel_if_far_over_memory(&account);
            begin_new_turn(meter, cost);
        }
        Refill::BySupervisor => draw(&account, cost),
    }
}

/// The account that `meter` points to.
///
/// # Safety
/// It is the meter of the context that the caller runs in.
unsafe fn account_of(meter: Meter) -> Option<Arc<Account>> {
    if meter.account.is_null() {
        return None;
    }
    // SAFETY: accounts outlive what runs in their context.
    Some(unsafe { Account::from_meter(meter.account) })
}

/// Returns `true` if the calling code has an account.
#[inline(always)]
pub(crate) fn is_limited() -> bool {
    !fuel::meter().account.is_null()
}

/// The account that the calling code is charged to.
pub(crate) fn current_account() -> Option<Arc<Account>> {
    // SAFETY: as it asks.
    unsafe { account_of(fuel::meter()) }
}

/// Lets others run, then pays out of a new turn. What is not in a whole turn takes the whole turn.
fn begin_new_turn(meter: Meter, cost: Turn) {
    give_way();
    fuel::replace_fuel(meter.turn);
    if !fuel::burn(cost) {
        fuel::replace_fuel(Turn::EMPTY);
    }
}

/// Lets others run; meanwhile the job is shown as waiting for a budget.
pub(super) fn give_way() {
    let job = Job::current();
    if let Some(job) = &job {
        job.begin_waiting(WaitingFor::Budget);
    }
    fuel::give_way();
    if let Some(job) = &job {
        job.end_waiting(WaitingFor::Budget);
    }
}

/// Gets fuel out of the account; waits for the supervisor if there is none.
fn draw(account: &Arc<Account>, cost: Turn) {
    loop {
        let in_hand = fuel::replace_fuel(Turn::EMPTY).unwrap_or(Turn::EMPTY);
        match account.draw(cost, in_hand) {
            Ok(drawn) => {
                if drawn.ends_turn {
                    give_way();
                }
                fuel::replace_fuel(drawn.fuel);
                let is_paid = fuel::burn(cost);
                debug_assert!(is_paid, "drawn for it");
                return;
            }
            Err(lack) => wait_for_recharge(account, &lack),
        }
        if jobtree_pool::stop_requested() {
            return;
        }
    }
}

fn cancel_if_far_over_memory(account: &Account) {
    let far_over = account
        .and_above()
        .find(|account| account.memory.is_far_over());
    if let (Some(far_over), Some(job)) = (far_over, account.job()) {
        let (used, limit) = (far_over.memory.used(), far_over.memory.limit());
        job.cancel(format!("{used} bytes of memory in use, of {limit} allowed"));
    }
}

/// A job without an account is counted in its runtime.
fn count_in_runtime() {
    if let Some(job) = Job::current() {
        raw::with_extension(&job, |runtime: &Arc<Inner>| {
            runtime.ground.counters().exhausted();
        });
    }
}

/// What the calling code may still do: what is left of its turn and its quotas. Outside of jobs, as much as it likes.
pub fn remaining() -> Budget {
    let in_hand = fuel::fuel().map(Budget::of_turn);
    match current_account() {
        None => Budget {
            ops: in_hand.map_or(u64::MAX, |fuel| fuel.ops),
            ..Budget::UNLIMITED
        },
        Some(account) => {
            let report = account.report();
            match (account.refill(), in_hand) {
                (_, None) => report.remaining,
                (Refill::WhenRescheduled, Some(fuel)) => Budget {
                    memory: report.remaining.memory,
                    spawns: report.remaining.spawns,
                    ..fuel
                },
                (Refill::BySupervisor, Some(fuel)) => {
                    let mut all = report.remaining;
                    all.recharge(fuel);
                    all
                }
            }
        }
    }
}
