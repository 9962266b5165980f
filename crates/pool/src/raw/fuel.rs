//! Fuel: how much what runs on a fiber may still do before it gives way to others.
//!
//! A fiber has three counters. Code burns from them a unit at a time ([`burn`]), for the price of a decrement; what
//! follows when one is empty is for the layer above, which refills them, gives way ([`give_way`]) or waits. The pool
//! sees to it that no code burns another's:
//!
//! * Every context has a [`Meter`], inherited by the contexts inside: how much a turn is, and whose it is.
//! * A task or stolen fork that runs on a fiber, maybe on top of a waiting frame, begins with the turn of the
//!   context that it carries; when it ends, the fiber has again what it had before (`WorkerThread::execute`).
//! * [`with_meter`] does the same for a call.
//! * A fiber that was parked begins a new turn when it goes on, if its meter refills by itself.
//!
//! Threads that are no workers have no fuel and never run out: there is no other work to give way to.

use std::cell::Cell;

use crate::context::{self, Context, ContextRef, Installed};
pub use crate::fair_share::Share;
use crate::raw::gate::Gate;
use crate::spawn::{Yield, yield_preempted};
use crate::sync::Ordering;
use crate::worker::Worker;

/// Amounts of what is burnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Operations of any kind.
    pub ops: u32,
    /// Operations on channels.
    pub channel_ops: u32,
    /// Calls of the system.
    pub syscalls: u32,
}

impl Turn {
    /// An empty amount.
    pub const EMPTY: Turn = Turn {
        ops: 0,
        channel_ops: 0,
        syscalls: 0,
    };

    /// The amount of code that has no other limit than that others want to run, too.
    pub const OPEN: Turn = Turn {
        ops: 100_000,
        channel_ops: u32::MAX,
        syscalls: u32::MAX,
    };

    /// Returns the amount that is left when `cost` is taken; `None` if any of it is not there.
    #[inline(always)]
    fn without(self, cost: Turn) -> Option<Turn> {
        let enough = self.ops >= cost.ops
            && self.channel_ops >= cost.channel_ops
            && self.syscalls >= cost.syscalls;
        enough.then(|| Turn {
            ops: self.ops - cost.ops,
            channel_ops: self.channel_ops - cost.channel_ops,
            syscalls: self.syscalls - cost.syscalls,
        })
    }
}

/// Says what runs in a context may burn, and in whose name.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// The amount with which a piece of work begins.
    pub turn: Turn,
    /// `true` if the code has as much again each time it was parked.
    pub refills: bool,
    /// A pointer of the layer above.
    pub account: *const (),
    /// Decides what the code of the account may start; without one, it may start what it likes.
    pub gate: Option<&'static Gate>,
    /// The job's share of a worker, or null if nothing limits the job. It outlives the contexts that have this meter.
    pub share: *const Share,
}

impl Meter {
    /// The meter of the outermost context.
    pub const OPEN: Meter = Meter {
        turn: Turn::OPEN,
        refills: true,
        account: std::ptr::null(),
        gate: None,
        share: std::ptr::null(),
    };

    /// # Safety
    /// `context` must be alive for `'a`.
    // A reference: a copy is five words through memory each time a fiber gets the thread, a third of a yield.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(context: ContextRef) -> &'a Meter {
        // SAFETY: by contract.
        unsafe { context.get() }.map_or(&Meter::OPEN, Context::meter)
    }
}

/// The amount that a fiber has left.
pub(crate) struct Fuel {
    ops: Cell<u32>,
    channel_ops: Cell<u32>,
    syscalls: Cell<u32>,
}

impl Fuel {
    pub(crate) fn new() -> Fuel {
        let fuel = Fuel {
            ops: Cell::new(0),
            channel_ops: Cell::new(0),
            syscalls: Cell::new(0),
        };
        fuel.set(Turn::OPEN);
        fuel
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Turn {
        Turn {
            ops: self.ops.get(),
            channel_ops: self.channel_ops.get(),
            syscalls: self.syscalls.get(),
        }
    }

    #[inline(always)]
    pub(crate) fn set(&self, turn: Turn) {
        self.ops.set(turn.ops);
        self.channel_ops.set(turn.channel_ops);
        self.syscalls.set(turn.syscalls);
    }

    /// Takes all operations that are left.
    pub(crate) fn take_ops(&self) {
        self.ops.set(0);
    }

    #[inline(always)]
    pub(crate) fn replace(&self, turn: Turn) -> Turn {
        let before = self.get();
        self.set(turn);
        before
    }
}

/// Takes `cost` from the fiber that the calling code runs on: all of it, or, if any of it is not there, nothing, and
/// returns `false`. Always `true` on threads that are no workers.
#[inline(always)]
pub fn burn(cost: Turn) -> bool {
    Worker::with_running(|worker| {
        let Some(worker) = worker else { return true };
        let fuel = &worker.strand().fuel;
        match fuel.get().without(cost) {
            Some(left) => {
                fuel.set(left);
                true
            }
            None => false,
        }
    })
}

/// [`burn`] at a tick: also `false`, and nothing is taken, if fibers of this worker may have been woken since the last one. The
/// caller then calls [`let_woken_run_at_tick`](crate::raw::let_woken_run_at_tick), and burns.
#[inline(always)]
pub fn burn_at_tick(cost: Turn) -> bool {
    Worker::with_running(|worker| {
        let Some(worker) = worker else { return true };
        let strand = worker.strand();
        if strand.woken_mark.load(Ordering::Relaxed) {
            return false;
        }
        match strand.fuel.get().without(cost) {
            Some(left) => {
                strand.fuel.set(left);
                true
            }
            None => false,
        }
    })
}

/// Returns the amount that the calling code's fiber has left; `None` on threads that are no workers.
pub fn fuel() -> Option<Turn> {
    Worker::with_running(|worker| worker.map(|worker| worker.strand().fuel.get()))
}

/// Gives the calling code's fiber `fuel` instead of what it has, which is returned; `None`, and nothing has happened,
/// on threads that are no workers.
///
/// It neither allocates nor blocks, so an allocator may call it.
pub fn replace_fuel(fuel: Turn) -> Option<Turn> {
    Worker::with_running(|worker| worker.map(|worker| worker.strand().fuel.replace(fuel)))
}

/// The meter of the context that the calling code runs in.
///
/// It neither allocates nor blocks, so an allocator may call it.
#[inline]
pub fn meter() -> Meter {
    context::with_current(|context| *context.map_or(&Meter::OPEN, Context::meter))
}

/// Runs `body` with `meter` as the meter of everything it forks, installs or spawns in scopes, and with a turn of its
/// own. Afterwards the fiber has what it had before.
///
/// # Safety
/// Whatever `meter.account` points to must outlive everything that reads it by [`meter`], or is asked by `meter.gate`, as
/// the layer above uses it: all that `body` forks, installs or spawns in scopes ends before `body` does. So must
/// `meter.share`, unless it is null.
pub unsafe fn with_meter<R>(meter: Meter, body: impl FnOnce() -> R) -> R {
    struct Restore<'w>(Option<&'w Worker>, Turn);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            if let Some(worker) = self.0 {
                worker.strand().fuel.set(self.1);
            }
        }
    }
    Worker::with_current(|worker| {
        let outer = context::of(worker);
        // SAFETY: the current context is alive as long as we are inside.
        let context = unsafe { Context::metered(outer, &meter) };
        let before = worker.map(|worker| worker.strand().fuel.replace(meter.turn));
        let _restore = Restore(worker, before.unwrap_or(Turn::EMPTY));
        let _installed = Installed::new(worker, outer.nesting(&context));
        // Before the context is gone, and with it maybe the share.
        let _measured = worker
            .filter(|_| !meter.share.is_null())
            .map(|worker| Measured::begin(worker, &meter));
        body()
    })
}

/// A body whose bursts count for its job's share; when the value is dropped, the last one ends.
struct Measured<'w>(&'w Worker);

impl<'w> Measured<'w> {
    /// `meter` is that of the current context.
    fn begin(worker: &'w Worker, meter: &Meter) -> Measured<'w> {
        worker.thread().begin_burst(worker.strand(), meter);
        Measured(worker)
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        self.0.thread().end_burst();
    }
}

/// Returns `true` if the calling job is over its share: it should [give way](give_way) before it does anything else.
pub fn is_over_share() -> bool {
    Worker::with_running(|worker| {
        // SAFETY: the current context is alive.
        worker.is_some_and(|worker| unsafe {
            let meter = Meter::of(worker.strand().context().get());
            worker.thread().is_over_share(meter)
        })
    })
}

/// Lets others run because the calling code has used up its time slice: all other work of this worker comes first, and gets
/// at least 19 times the time that slices like this one take, or twice if nothing limits the calling job. `None` outside
/// of a pool.
///
/// Inside [`isolate`](crate::isolate()), while panicking, and where stacks cannot be parked, no other fiber can have the thread,
/// and this returns at once.
pub fn give_way() -> Option<Yield> {
    Worker::with_current(|worker| worker.map(yield_preempted))
}
