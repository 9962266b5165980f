//! An account: the budget of one job, where budgets are limited.
//!
//! A job has one if its runtime's profile or its spawner says so; most programs have none. Everything that runs in the
//! job finds it through the meter of its context; from outside it is found as a value that the job inherits. Scopes and
//! other parts of a body share the account of their job; a spawned job has its own, which came out of its parent's, the
//! *pool*.
//!
//! # Where the numbers are
//!
//! Rates are burnt on strands (`pool::raw::fuel`). Where they are refilled by rescheduling, the strand's turn is all there
//! is. Where a supervisor recharges them, the purse holds them, and strands draw from it some at a time; what a strand
//! has left when the body ends goes back. (Only what a stolen fork drew and did not use is lost: less than [`DRAW`].)
//!
//! Spawns are set aside: what a child may spawn, its parent cannot. Memory is not, since few jobs use what they may: what
//! a job uses counts for it and for everybody above, and each has its limit.
//!
//! # Locks
//!
//! Who holds the purse of an account may take that of its pool, never the other way round. Under the lock nothing
//! waits and nobody is called. Memory is counted without it, since an allocation may come anywhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::Waker;

use jobtree_base::user_code::{Place, drop_user, wake_user};
use jobtree_pool::raw::fuel::{Meter, Share, Turn};
use jobtree_tree::{Job, JobLocal};

use super::amount::{Budget, Counter};
use super::capability::Capabilities;
use super::gate::GATE;
use super::memory::MemoryUse;
use super::profile::{Profile, Refill};
use super::supervise::{RechargeError, Supervision};
use crate::atomics::{Mutex, MutexGuard};
use crate::step::{Step, left_out};

/// How a job is found to have one.
pub(super) static ACCOUNT: JobLocal<Arc<Account>> = JobLocal::new();

/// How much a strand draws at a time.
const DRAW: Turn = Turn {
    ops: 1_000,
    channel_ops: 10,
    syscalls: 1,
};

/// After so many draws others come first.
const DRAWS_A_TURN: u64 = 10;

/// See the module's head.
pub(crate) struct Account {
    pool: Option<Arc<Account>>,
    pub(super) supervision: Arc<Supervision>,
    /// The supervision of jobs that are spawned out of this account by a handle to its job; made when it is needed.
    below: OnceLock<Arc<Supervision>>,
    pub(super) profile: Profile,
    pub(super) refill: Refill,
    pub(super) granted: Budget,
    /// How many of the pool's tasks it stands for: one, if it is that of a job.
    stands_for: u64,
    pub(super) capabilities: Capabilities,
    pub(super) memory: MemoryUse,
    /// Operations that an allocation took from a strand to have it look here.
    stray_ops: AtomicU64,
    exhaustions: AtomicU64,
    /// The job's share of the workers.
    share: Arc<Share>,
    purse: Mutex<Purse>,
}

pub(super) struct Purse {
    /// What nobody has drawn or set aside; its memory is counted elsewhere.
    pub(super) left: Budget,
    /// The job, while its body runs.
    job: Option<Job>,
    pub(super) body_is_open: bool,
    /// Jobs whose accounts came out of this one and are not settled.
    pub(super) tasks: u64,
    channels: u64,
    draws: u64,
    recharges: u64,
    /// Strands that wait for more.
    waiting: usize,
    /// What they lack, until somebody recharges.
    lacking: Option<Counter>,
    /// How often somebody has; who waits, waits for the next time.
    generation: u64,
    wakers: Vec<Waker>,
}

/// What a strand that could not draw has to wait for.
pub(super) struct Lack {
    pub(super) counter: Counter,
    pub(super) generation: u64,
}

/// What a strand got.
pub(super) struct Drawn {
    pub(super) fuel: Turn,
    /// Whether others come first now.
    pub(super) ends_turn: bool,
}

/// Where new accounts come from if not out of another one.
pub(super) struct Terms {
    pub(super) profile: Profile,
    pub(super) budget: Budget,
    pub(super) capabilities: Capabilities,
}

impl Account {
    /// An account that came out of no other.
    pub(super) fn outermost(terms: &Terms, supervision: &Arc<Supervision>) -> Arc<Account> {
        Account::new(
            None,
            supervision,
            terms.profile,
            terms.budget,
            terms.capabilities,
            1,
        )
    }

    pub(super) fn new(
        pool: Option<Arc<Account>>,
        supervision: &Arc<Supervision>,
        profile: Profile,
        granted: Budget,
        capabilities: Capabilities,
        stands_for: u64,
    ) -> Arc<Account> {
        // In the outermost context, in which the account is freed with its job: it counts for no account itself.
        jobtree_pool::raw::outermost(move || {
            let share = match &pool {
                None => Share::outermost(),
                Some(pool) => Share::child_of(&pool.share),
            };
            Arc::new(Account {
                pool,
                share,
                supervision: Arc::clone(supervision),
                below: OnceLock::new(),
                profile,
                refill: profile.refill(),
                granted,
                stands_for,
                capabilities,
                memory: MemoryUse::new(granted.memory),
                stray_ops: AtomicU64::new(0),
                exhaustions: AtomicU64::new(0),
                purse: Mutex::new(Purse {
                    left: Budget {
                        memory: 0,
                        ..granted
                    },
                    job: None,
                    body_is_open: true,
                    tasks: 0,
                    channels: 0,
                    draws: 0,
                    recharges: 0,
                    waiting: 0,
                    lacking: None,
                    generation: 0,
                    wakers: Vec::new(),
                }),
            })
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Purse> {
        self.purse.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The account of a job, its own or inherited.
    pub(super) fn of(job: &Job) -> Option<Arc<Account>> {
        job.local(&ACCOUNT).map(|account| Arc::clone(&*account))
    }

    /// The supervision of jobs that are spawned by a handle to the account's job, which is one for all such handles.
    pub(super) fn supervision_below(&self) -> &Arc<Supervision> {
        let counters = || Arc::clone(&self.supervision.counters);
        self.below
            .get_or_init(|| Arc::new(Supervision::new(counters())))
    }

    pub(super) fn refill(&self) -> Refill {
        self.refill
    }

    /// How what runs in the job is measured.
    pub(super) fn meter(self: &Arc<Account>) -> Meter {
        Meter {
            turn: match self.refill {
                Refill::WhenRescheduled => self.granted.turn(),
                // Drawn when it is needed.
                Refill::BySupervisor => Turn::EMPTY,
            },
            refills: self.refill == Refill::WhenRescheduled,
            account: Arc::as_ptr(self).cast(),
            gate: Some(&GATE),
            share: Arc::as_ptr(&self.share),
        }
    }

    /// How code is measured that comes from the job and runs later (`later.rs`): the account's quotas and capabilities count,
    /// its rates and its memory do not.
    pub(super) fn meter_of_later_code(self: &Arc<Account>) -> Meter {
        Meter {
            account: Arc::as_ptr(self).cast(),
            gate: Some(&GATE),
            ..Meter::OPEN
        }
    }

    /// The account that a meter points to.
    ///
    /// # Safety
    /// The meter was made by [`Account::meter`], and its account is alive.
    pub(super) unsafe fn from_meter(account: *const ()) -> Arc<Account> {
        let account = account.cast::<Account>();
        // SAFETY: by contract; meters are made of accounts in `Arc`s.
        unsafe {
            Arc::increment_strong_count(account);
            Arc::from_raw(account)
        }
    }

    /// The body begins, or goes on.
    pub(super) fn enter_body(&self, job: Option<Job>) {
        let mut purse = self.lock();
        if purse.job.is_none() {
            purse.job = job;
        }
    }

    /// The body has returned, or will never run. What is left goes back when all jobs below have done so, too.
    pub(super) fn close_body(self: &Arc<Account>) {
        let (job, is_settled) = {
            let mut purse = self.lock();
            purse.body_is_open = false;
            (purse.job.take(), purse.tasks == 0)
        };
        // It may be the last handle, and the job have this account.
        drop(job);
        if is_settled {
            Account::settle(Arc::clone(self));
        }
    }

    /// Nothing uses the account any more: what is left goes back to its pool, which may be done for by that, too.
    pub(super) fn settle(mut account: Arc<Account>) {
        while let Some(pool) = account.pool.clone() {
            let mut back = account.take_rest();
            back.spawns = back.spawns.saturating_add(account.stands_for);
            account.memory.give_back(&pool);
            if !pool.take_back(back, account.stands_for) {
                return;
            }
            account = pool;
        }
    }

    /// What the pool gets back.
    fn take_rest(&self) -> Budget {
        let mut purse = self.lock();
        self.collect_stray(&mut purse);
        let spawns = std::mem::take(&mut purse.left.spawns);
        let rates = match self.refill {
            // They were never taken.
            Refill::WhenRescheduled => Budget::NONE,
            Refill::BySupervisor => purse.left.rates(),
        };
        purse.left = Budget::NONE;
        Budget { spawns, ..rates }
    }

    /// Puts back what a strand has drawn and not used.
    pub(super) fn put_back(&self, fuel: Turn) {
        if self.refill == Refill::BySupervisor {
            self.lock().left.recharge(Budget::of_turn(fuel));
        }
    }

    /// An allocation took `ops` from a strand; it must not wait for the lock.
    pub(super) fn put_back_stray(&self, ops: u32) {
        if self.refill == Refill::BySupervisor {
            self.stray_ops.fetch_add(ops.into(), Ordering::Relaxed);
        }
    }

    fn collect_stray(&self, purse: &mut Purse) {
        let stray = Budget {
            ops: self.stray_ops.swap(0, Ordering::Relaxed),
            ..Budget::NONE
        };
        purse.left.recharge(stray);
    }

    /// Draws fuel for a strand that has `in_hand` and needs `cost`. If there is not enough, the strand has nothing in
    /// hand any more, counts as waiting, and has to call [`Account::stop_waiting`] some time.
    pub(super) fn draw(&self, cost: Turn, in_hand: Turn) -> Result<Drawn, Lack> {
        let mut purse = self.lock();
        self.collect_stray(&mut purse);
        purse.left.recharge(Budget::of_turn(in_hand));
        let cost = Budget::of_turn(cost);
        let lacking = match purse.left.clone().try_take(cost) {
            Err(counter) => Some(counter),
            Ok(()) => self.is_over_memory().then_some(Counter::Memory),
        };
        if let Some(counter) = lacking {
            self.exhaustions.fetch_add(1, Ordering::Relaxed);
            purse.lacking = Some(counter);
            purse.waiting += 1;
            let generation = purse.generation;
            return Err(Lack {
                counter,
                generation,
            });
        }
        let at_least = |one: u64, other: u64| one.max(other);
        let wanted = Budget {
            ops: at_least(DRAW.ops.into(), cost.ops),
            channel_ops: at_least(DRAW.channel_ops.into(), cost.channel_ops),
            syscalls: at_least(DRAW.syscalls.into(), cost.syscalls),
            ..Budget::NONE
        };
        let drawn = wanted.clamped_to(purse.left);
        let taken = purse.left.try_take(drawn);
        debug_assert!(taken.is_ok(), "clamped to what is there");
        purse.draws += 1;
        Ok(Drawn {
            fuel: drawn.turn(),
            ends_turn: purse.draws.is_multiple_of(DRAWS_A_TURN),
        })
    }

    /// Whether the job, or one above, uses more memory than it may.
    pub(super) fn is_over_memory(&self) -> bool {
        self.and_above().any(|account| account.memory.is_over())
    }

    /// It, its pool, and so on.
    pub(super) fn and_above(&self) -> impl Iterator<Item = &Account> {
        std::iter::successors(Some(self), |account| account.pool.as_deref())
    }

    /// The number of recharges to wait for the next of: the one that came with the refusal.
    pub(super) fn awaited_after(&self, lack: &Lack) -> u64 {
        if left_out(Step::LackIsNumbered) {
            return self.lock().generation;
        }
        lack.generation
    }

    /// Whether nobody has recharged since `generation`; then `waker` is called when somebody does.
    pub(super) fn still_lacks(&self, generation: u64, waker: &Waker) -> bool {
        // Cloned, and dropped if it is known already, without the lock: a waker may be the program's.
        let mut clone = Some(waker.clone());
        let mut purse = self.lock();
        let lacks = purse.generation == generation;
        if left_out(Step::RechargeEnters) {
            drop(purse);
            purse = self.lock();
        }
        if lacks && !purse.wakers.iter().any(|known| known.will_wake(waker)) {
            purse.wakers.extend(clone.take());
        }
        drop(purse);
        drop_user(Place::Waker, clone);
        lacks
    }

    /// A strand waits no more; `true` if it was the last one.
    pub(super) fn stop_waiting(&self) -> bool {
        let mut purse = self.lock();
        purse.waiting -= 1;
        let is_last = purse.waiting == 0;
        let mut unused = Vec::new();
        if is_last {
            purse.lacking = None;
            unused = std::mem::take(&mut purse.wakers);
        }
        drop(purse);
        for waker in unused {
            drop_user(Place::Waker, waker);
        }
        is_last
    }

    /// What its job waits for, if it is exhausted.
    pub(super) fn lacking(&self) -> Option<Counter> {
        self.lock().lacking
    }

    pub(super) fn job(&self) -> Option<Job> {
        self.lock().job.clone()
    }

    /// Gives an exhausted job up to `more` out of the pool; returns how much it was.
    pub(super) fn recharge(&self, more: Budget) -> Result<Budget, RechargeError> {
        let (given, wakers) = {
            let mut purse = self.lock();
            let Some(lacking) = purse.lacking else {
                return Err(RechargeError::NotExhausted);
            };
            let given = match &self.pool {
                None => more,
                Some(pool) => pool.take_for_child(more, lacking)?,
            };
            if given.get(lacking) == 0 {
                return Err(RechargeError::PoolEmpty { lacking });
            }
            self.memory.raise_limit(given.memory);
            purse.left.recharge(Budget { memory: 0, ..given });
            purse.lacking = None;
            if !left_out(Step::RechargeCounts) {
                purse.generation += 1;
            }
            purse.recharges += 1;
            if left_out(Step::RechargeWakes) {
                purse.wakers.clear();
            }
            (given, std::mem::take(&mut purse.wakers))
        };
        for waker in wakers {
            wake_user(waker);
        }
        Ok(given)
    }

    fn take_for_child(&self, more: Budget, lacking: Counter) -> Result<Budget, RechargeError> {
        let mut purse = self.lock();
        self.collect_stray(&mut purse);
        let given = more.clamped_to(Budget {
            memory: self.memory.left(),
            ..purse.left
        });
        if given.get(lacking) == 0 {
            return Err(RechargeError::PoolEmpty { lacking });
        }
        let taken = purse.left.try_take(Budget { memory: 0, ..given });
        debug_assert!(taken.is_ok(), "clamped to what is there");
        Ok(given)
    }

    /// The job has used up a turn.
    pub(super) fn count_exhaustion(&self) {
        self.exhaustions.fetch_add(1, Ordering::Relaxed);
    }

    /// Enters a channel, if there are fewer than `limit`.
    pub(super) fn add_channel(&self, limit: u64) -> bool {
        let mut purse = self.lock();
        let allowed = purse.channels < limit;
        if allowed {
            purse.channels += 1;
        }
        allowed
    }

    pub(super) fn remove_channel(&self) {
        self.lock().channels -= 1;
    }

    /// A picture of it.
    pub(super) fn report(&self) -> super::JobBudget {
        let purse = self.lock();
        let left = match self.refill {
            Refill::WhenRescheduled => Budget {
                spawns: purse.left.spawns,
                ..self.granted
            },
            Refill::BySupervisor => purse.left,
        };
        super::JobBudget {
            profile: self.profile,
            granted: self.granted,
            remaining: Budget {
                memory: self.memory.left(),
                ..left
            },
            capabilities: self.capabilities,
            exhausted: purse.lacking,
            exhaustions: self.exhaustions.load(Ordering::Relaxed),
            recharges: purse.recharges,
            tasks: purse.tasks,
            channels: purse.channels,
            memory_used: self.memory.used(),
        }
    }
}
