//! Giving way to fibers whose wait is over: a computation that forks or loops does not keep them waiting.
//!
//! A fiber continues on its own worker alone. While that worker computes, a woken fiber would wait for the end of the
//! computation. So a fork that makes a record looks whether fibers of its worker are woken, and if so lets them run first
//! ([`Worker::give_way_to_woken`]). Nearly all forks are plain calls, though, and look at nothing but the push limit of their
//! fiber's deque. So the thread that wakes a fiber then interrupts the worker, in the way of `stop.rs`:
//!
//! ```text
//!   who wakes a fiber                    its worker
//!     push its message                     write the limit
//!     full fence                           full fence
//!     read the worker's current fiber      look into the inbox; if there is something, ask
//!     write ASKED into its limit
//! ```
//!
//! The proof is that of `stop.rs`, with the inbox in place of the signal: the worker looks after each write of a lower limit
//! than `ASKED` ([`Strand::stay_woken`]), and a fiber that becomes the current one asks itself. A worker that wakes a fiber of
//! its own asks itself, without a fence: its own writes come in order.
//!
//! A loop asks [`Worker::wants_work`] between two blocks, which reads the same mark, and then forks. Where what is left is too
//! short for a fork, and before each piece of a sort, [`let_woken_run`] is called.
//!
//! # Ticks
//!
//! Code that ticks makes no fork, so nothing would clear the limit again, which thieves and every switch of fibers set, too. So a
//! fiber has a mark of its own for ticks, [`Strand::woken_mark`], which is set wherever the limit is set for a woken fiber. A
//! tick reads it beside the fuel. If it is set, the tick takes it away, executes a full fence, and then looks. Either the thread
//! that wakes has read the fiber that is current now, and its mark comes after the tick took the last one away; or it has
//! read an earlier one, and then, by the two fences, the tick sees the message.
//!
//! # When nothing gives way
//!
//! * Inside `isolate`: no other fiber may have the thread. The mark is made again when the isolation is left.
//! * While the thread is panicking: the other fibers would see the panic. The marks stay.
//! * Without a hub (`parking.rs`): nothing is ever parked there. So it is in a pool whose waits nest.
//! * At a tick of a job with a share (`fair_share.rs`): it gives way at the end of its slice, and then waits with the preempted.
//!   If it gave way between, it would have every other turn of the worker, and each of its turns may be hundreds of times as
//!   long as those of jobs that yield.
//! * Within [`LEAST_TURN`] after the last time: fibers that wake each other all the time would leave nothing to the
//!   computation. The marks stay, so forks make records until that time is over, which others may take. The slice of code that
//!   ticks goes on afterwards, so that tasks which have not begun have their turn, too, at its end.

use crate::pool::shared::Waits;
use crate::raw::fuel::{Meter, Turn};
use crate::raw::ticks;
use crate::strand::Strand;
use crate::sync::Ordering;
use crate::sync::step::{Step, fence_after_update_at, left_out};
use crate::worker::{Worker, WorkerThread};

/// The least that a computation runs between two times that it gives way: about 0.1 ms, in [`ticks`]. Picked by feel: far longer
/// than a switch, and far shorter than a wait that is noticed.
const LEAST_TURN: u64 = 300_000;

impl WorkerThread {
    /// Returns `true` if a fiber of this worker is woken, or a message waits to be read.
    #[inline]
    pub(crate) fn has_woken(&self) -> bool {
        !self.shared().inbox.is_empty() || !self.ready.borrow().is_empty()
    }

    /// Returns `true` if a computation of this worker let woken fibers run less than [`LEAST_TURN`] ago.
    fn gave_way_lately(&self) -> bool {
        !self.is_simulated && ticks().saturating_sub(self.gave_way_at.get()) < LEAST_TURN
    }

    /// Gives `strand`, which let others run for a moment, no more than what was left of its time slice: a job could otherwise
    /// keep tasks that have not begun from the worker for ever. A job with a share is measured by bursts, and has a new slice.
    fn go_on_with_slice(&self, strand: &Strand, in_hand: Turn) {
        if !strand.has_share() {
            strand.fuel.set(in_hand);
        }
    }
}

impl Strand {
    /// Has the next fork look for woken fibers, if there is a message for the worker: to be called after whatever may have
    /// swallowed an interrupt. `step` says which of these places it is.
    #[inline]
    pub(crate) fn stay_woken(&self, step: Step) {
        let inbox = &self.pool().workers[self.worker_index()].inbox;
        if !inbox.is_empty()
            && self.pool().waits() == Waits::Park
            && self.context().get().isolation().is_none()
            && !left_out(step)
        {
            self.forks.ask();
        }
    }

    /// Has the next fork of what this worker runs look for woken fibers; to be called by any thread after it has put a message
    /// into the worker's inbox.
    pub(crate) fn interrupt_worker(&self) {
        fence_after_update_at(Step::WokenFence);
        if let Some(running) = self.pool().workers[self.worker_index()].current() {
            running.ask_for_woken();
        }
    }

    /// Has the next fork and the next tick look for woken fibers.
    #[inline]
    pub(crate) fn ask_for_woken(&self) {
        self.forks.ask();
        self.woken_mark.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the job that runs on this fiber has a share of the worker. Owner only.
    fn has_share(&self) -> bool {
        // SAFETY: a fiber's context is alive as long as it is the fiber's.
        !unsafe { Meter::of(self.context().get()) }.share.is_null()
    }

    /// Takes the mark for ticks away; the caller then looks for woken fibers. Owner only.
    pub(crate) fn take_woken_mark(&self) {
        self.woken_mark.swap(false, Ordering::AcqRel);
        fence_after_update_at(Step::WokenTickFence);
    }
}

/// Lets the fibers of the calling worker run whose wait is over, if there are any and the running one may be suspended. For
/// code that goes on for long without a fork.
#[cold]
#[inline(never)]
pub fn let_woken_run() {
    Worker::with_running(|worker| {
        if let Some(worker) = worker {
            worker.let_woken_run();
        }
    });
}

/// The same at a tick, which takes the mark for ticks away. A job with a share goes on to the end of its slice: fair shares
/// decide then what it gets, and its slice is short.
#[cold]
#[inline(never)]
pub fn let_woken_run_at_tick() {
    Worker::with_running(|worker| {
        let Some(worker) = worker else { return };
        if worker.strand().has_share() {
            worker.strand().take_woken_mark();
        } else {
            worker.let_woken_run();
        }
    });
}

/// Returns `true` if fibers are parked on the calling worker, which may be woken at any time.
pub fn fibers_wait() -> bool {
    Worker::with_running(|worker| {
        worker.is_some_and(|worker| worker.thread().shared().stats.waiting.read() > 0)
    })
}

impl Worker {
    /// Lets the fibers of this worker run whose wait is over, if there are any and the running one may be suspended.
    #[inline]
    pub(crate) fn give_way_if_woken(&self) {
        // Models of forks have no thread.
        if !cfg!(loom) && self.thread().has_woken() {
            self.give_way_to_woken();
        }
    }

    fn let_woken_run(&self) {
        let thread = self.thread();
        if thread.has_woken() && thread.gave_way_lately() {
            return;
        }
        self.strand().take_woken_mark();
        self.give_way_if_woken();
    }

    #[cold]
    #[inline(never)]
    fn give_way_to_woken(&self) {
        let (thread, strand) = (self.thread(), self.strand());
        if thread.pool.waits() != Waits::Park || !thread.can_give_way() {
            return;
        }
        if !strand.context().get().isolation().is_none() {
            return;
        }
        if std::thread::panicking() || thread.gave_way_lately() {
            return strand.ask_for_woken();
        }
        if !thread.shared().inbox.is_empty() {
            thread.read_mail();
        }
        let next = match thread.is_simulated {
            true => thread.take_some_ready(),
            false => thread.next_ready(),
        };
        let Some(next) = next else { return };
        // SAFETY: a `&Worker` is only to be had on the fiber's own stack.
        unsafe { strand.share_all() };
        thread.shared().stats.gave_way.add(1);
        let in_hand = strand.fuel.get();
        thread.let_run(strand, next);
        thread.go_on_with_slice(strand, in_hand);
        if !thread.is_simulated {
            thread.gave_way_at.set(ticks());
        }
    }
}

#[cfg(all(test, loom))]
#[path = "woken_models.rs"]
pub(crate) mod models;
