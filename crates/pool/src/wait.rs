//! The one way to wait on a worker: every later layer waits through [`Worker::wait_until`].
//!
//! 1. First help the one we wait for: take forks of the thief that runs ours, or the tasks of the
//!    scope that we end. This work runs right on top of the waiting frame: it is part of what the
//!    frame waits for, so it can neither outlast it nor nest deeper than the program itself would.
//! 2. Then look around. If there is other work, the fiber is parked and the work runs on another
//!    fiber. If there is none, the worker sleeps where it is.
//!
//! A thread that panics waits for a moment first, since the fibers that run instead would see its panic (`parking.rs`).
//!
//! Where fibers cannot be parked (no stack switching on this platform, a worker that is the user's
//! own thread, no memory for another stack), or shall not be (`Builder::nested_waits`), other work runs on top of the waiting frame, as in other
//! pools. Inside `isolate` only work made inside runs, on top, as long as half of the stack is free.

use std::ptr::NonNull;

use crate::fork::TheftNote;
use crate::found::{Found, Work};
use crate::isolate::{self, BelowFrames};
use crate::isolation::Isolation;
use crate::job::Job;
use crate::latch::{Latch, Wake};
use crate::pool::shared::Waits;
use crate::raw::park_hook::Away;
use crate::search::Age;
use crate::sim;
use crate::sleep::Searching;
use crate::sync::spin_pause;
use crate::worker::{Worker, WorkerThread};

/// The thing that a fiber waits for, as far as it can help.
#[derive(Clone, Copy)]
pub(crate) enum WaitFor<'a> {
    /// A latch of which nothing more is known.
    Latch,
    /// A fork of its own that was stolen.
    Fork(&'a TheftNote),
    /// The tasks of an owner with this name, of a layer above.
    TasksOf(*const ()),
    /// The tasks of a scope of the pool's with this name.
    Scope(*const ()),
    /// A task of another pool.
    Installed,
}

impl WaitFor<'_> {
    /// Returns `true` for waits of the pool's own operations.
    fn is_of_pool(self) -> bool {
        matches!(
            self,
            WaitFor::Fork(_) | WaitFor::Scope(_) | WaitFor::Installed
        )
    }
}

/// Looks at the thief before the waiting fiber looks elsewhere. A look and a pause take some 50–100
/// ns; most stolen forks of a balanced program end within a few µs of their sibling.
const LOOKS_AT_THIEF: u32 = 16;

/// Each look takes a cache line from the thief, so not too often.
const PAUSES_BETWEEN_LOOKS: u32 = 8;

/// Looks at the thief before it is asked for work.
const PATIENCE_WITH_THIEF: u32 = 3;

/// Looks, some 1–2 µs apart, that a fiber which waits because of a panic gives to others before it is parked. Picked by
/// feel: longer than most of what a destructor waits for takes, and too short to be noticed.
const LOOKS_WHILE_PANICKING: u32 = 128;

impl Worker {
    /// Returns when `latch` is set; meanwhile the thread does other work or sleeps.
    // From here to the switch of stacks everything usual is inlined, and everything else is not: each frame that the switch
    // returns through costs a mispredicted return, and is memory that is cold then.
    pub(crate) fn wait_until(&self, latch: &Latch, what: WaitFor<'_>) {
        if latch.is_set() {
            return;
        }
        let strand = self.strand();
        strand.sim_point();
        // SAFETY: a `&Worker` is only to be had on the fiber's own stack.
        unsafe { strand.share_all() };
        let isolation = strand.context().get().isolation();
        let thread = self.thread();
        if !isolation.is_none() {
            let away = Away::leave(strand);
            thread.end_burst();
            self.wait_isolated(thread, latch, isolation);
            return away.come_back(strand);
        }
        let done = match what {
            _ if !strand.has_room_to_help() => latch.is_set(),
            WaitFor::Latch | WaitFor::Installed => latch.is_set(),
            WaitFor::Fork(note) => self.help_thief(thread, note),
            WaitFor::TasksOf(owner) | WaitFor::Scope(owner) => {
                self.run_own_tasks(thread, latch, owner)
            }
        };
        if done {
            return;
        }
        let away = Away::leave(strand);
        self.park_until(thread, latch, what);
        away.come_back(strand);
    }

    /// Parks the fiber until `latch` is set, or runs other work on top of it, when there is no work left by which it could help.
    #[inline(always)]
    fn park_until(&self, thread: &WorkerThread, latch: &Latch, what: WaitFor<'_>) {
        if std::thread::panicking() && self.is_set_in_a_moment(thread, latch) {
            return;
        }
        let nests = thread.pool.waits() == Waits::NestForks && what.is_of_pool();
        if nests || !thread.can_park() {
            return self.wait_in_place(thread, latch);
        }
        let strand = self.strand();
        if latch.register(strand, Wake::ByMail) {
            self.idle_until_ready(thread);
            debug_assert!(latch.is_set());
        }
    }

    /// Returns `true` if others set the latch of a thread that panics in a moment. Then no other fiber sees the panic
    /// (`parking.rs`).
    #[cold]
    #[inline(never)]
    fn is_set_in_a_moment(&self, thread: &WorkerThread, latch: &Latch) -> bool {
        let looks = if thread.is_simulated || thread.pool.workers.len() == 1 {
            0
        } else {
            LOOKS_WHILE_PANICKING
        };
        for _ in 0..looks {
            if latch.is_set() {
                return true;
            }
            Searching::pause_for_long();
        }
        latch.is_set()
    }

    /// Runs forks of the thief that runs ours; `true` if ours is done.
    #[inline(never)]
    fn help_thief(&self, thread: &WorkerThread, note: &TheftNote) -> bool {
        // In a simulation looking again and again sees the same: one look, if the seed wants it.
        let mut looks = match thread.is_simulated {
            true if sim::choose(2) == Some(0) => return note.latch().is_set(),
            true => LOOKS_AT_THIEF,
            false => 0,
        };
        while !note.latch().is_set() {
            let thief = note.thief().filter(|thief| *thief != thread.index);
            if let Some(thief) = thief {
                if let Some(entry) = thread.steal_fork_of(thief, Age::Seasoned) {
                    thread.shared().stats.stolen.add(1);
                    thread.execute(self, Found::fork(entry));
                    looks = if thread.is_simulated {
                        LOOKS_AT_THIEF
                    } else {
                        0
                    };
                    continue;
                }
                if looks >= PATIENCE_WITH_THIEF
                    && let Some(strand) = thread.pool.workers[thief].current()
                {
                    strand.forks.ask_unless_public();
                }
            }
            looks += 1;
            if looks > LOOKS_AT_THIEF {
                return false;
            }
            for _ in 0..PAUSES_BETWEEN_LOOKS {
                if note.latch().is_set() {
                    return true;
                }
                spin_pause();
            }
        }
        true
    }

    /// Runs this worker's newest tasks while they are the scope's own; `true` if the scope is done.
    #[inline(never)]
    fn run_own_tasks(&self, thread: &WorkerThread, latch: &Latch, owner: *const ()) -> bool {
        while !latch.is_set() {
            if thread.is_simulated && sim::choose(2) == Some(0) {
                return false;
            }
            // However deep scopes are nested: the rest runs on stacks of its own.
            if !thread.has_room_for_another(self.strand()) {
                return false;
            }
            match thread.pop_task_of(owner).map(Found::task) {
                Some(found) if thread.passes_on(found, 0) => {}
                Some(found) => thread.execute(self, found),
                None => return false,
            }
        }
        true
    }

    /// Runs `task`, which the caller waits for, on top of its frame, if it is the oldest of this worker's own tasks, there
    /// is room, and no other fiber is to come first; `false` if not.
    ///
    /// A program that spawns many and asks for them in the same order finds each here when it is next: its memory is
    /// touched once more instead of twice, and no stack is switched.
    pub(crate) fn run_if_oldest(&self, task: NonNull<Job>) -> bool {
        let (thread, strand) = (self.thread(), self.strand());
        if thread.is_simulated
            || !strand.has_room_to_help()
            || !thread.has_room_for_another(strand)
            || thread.somebody_comes_first()
        {
            return false;
        }
        if !strand.context().get().isolation().is_none() {
            return false;
        }
        // SAFETY: this thread owns its task deque.
        let Some(entry) = (unsafe { thread.shared().tasks.take_oldest_if(task) }) else {
            return false;
        };
        if thread.passes_on(Found::task(entry), 0) {
            return false;
        }
        // SAFETY: as above. The task may run for long, and must not keep the forks below it from others.
        unsafe { strand.share_all() };
        thread.execute(self, Found::task(entry));
        true
    }

    /// Registered by mail: finds other work and parks in its favour, or sleeps, until the mail comes.
    #[inline(always)]
    fn idle_until_ready(&self, thread: &WorkerThread) {
        let own = self.strand();
        let found = loop {
            // Usually there is something, and no other worker needs to know that this one looked for it.
            let found = match thread.find_work() {
                Some(found) => found,
                None => thread.search_for_work(),
            };
            if !thread.passes_on(found, 1) {
                break found;
            }
        };
        match found.work() {
            Work::Ready(strand) if std::ptr::eq(strand, own) => {}
            _ => thread.park_in_favour_of(own, found),
        }
    }

    /// Stays on the thread until `latch` is set, and runs any other work on top.
    #[cold]
    #[inline(never)]
    fn wait_in_place(&self, thread: &WorkerThread, latch: &Latch) {
        if !latch.register(self.strand(), Wake::ByNotice) {
            return;
        }
        while !latch.is_set() {
            let mut searching = thread.start_searching();
            let found = loop {
                if latch.is_set() {
                    break None;
                }
                let found = thread.look_again(&searching);
                if found.is_some() {
                    break found;
                }
                thread.nothing_found(&mut searching);
            };
            thread.stop_searching(searching);
            let Some(found) = found else { continue };
            match found.work() {
                // Another fiber of this worker may go on: it gets the thread, and this one is next.
                Work::Ready(strand) => thread.let_run(self.strand(), strand),
                Work::Fork(_) | Work::Task(_) => thread.execute(self, found),
            }
        }
    }

    /// Stays on the thread until `latch` is set, and runs on top only what was made inside
    /// `isolation`, while there is room. Not counted as searching: it would not take what others post.
    #[cold]
    #[inline(never)]
    fn wait_isolated(&self, thread: &WorkerThread, latch: &Latch, isolation: Isolation) {
        if !latch.register(self.strand(), Wake::ByNotice) {
            return;
        }
        let _below = BelowFrames::enter(thread, isolation);
        let mut watchdog = isolate::Watchdog::new(thread);
        let mut looks = 0;
        // What waits here nests: tasks that wait for something outside would fill the stack, one on top of the other.
        let has_room = thread.has_room_on_top(self.strand());
        if !has_room {
            watchdog.is_out_of_room();
        }
        while !latch.is_set() {
            let found = match has_room {
                true => thread.find_work_inside(self.strand(), isolation),
                false => None,
            };
            if let Some(found) = found {
                thread.execute(self, found);
                watchdog.found_work();
                looks = 0;
            } else if thread.is_simulated {
                thread.idle_in_simulation(true);
            } else if looks < LOOKS_AT_THIEF {
                looks += 1;
                spin_pause();
            } else {
                let limit = watchdog.limit();
                let is_over = || latch.is_set() || has_room && thread.sees_work_inside(isolation);
                if !thread.pool.sleep.sleep_alone(thread.index, is_over, limit) {
                    watchdog.report();
                }
                looks = 0;
            }
        }
    }
}

impl WorkerThread {
    /// Searches and sleeps until there is work.
    #[cold]
    #[inline(never)]
    fn search_for_work(&self) -> Found {
        let mut searching = self.start_searching();
        let found = loop {
            if let Some(found) = self.look_again(&searching) {
                break found;
            }
            self.nothing_found(&mut searching);
        };
        self.stop_searching(searching);
        found
    }
}
