//! The end of a simulation: whatever was started in it ends before its caller continues.
//!
//! A simulated program may borrow from the caller that runs the simulation. A stack that is left behind keeps such
//! borrows for ever: a `std::thread::scope` on it never joins its threads, which go on using what they borrowed after the
//! caller has freed it. So no stack is left behind. What has not ended by itself is unwound, as the forks of a stopped
//! context are: with [`Stopped`](crate::Stopped), which no panic hook sees.
//!
//! Unwinding begins only in a function that the program called itself, and that has nothing left to clean up:
//!
//! * in a *breakable wait*: for a latch, or for anything at all outside of jobs (what a job waits for ends when it is
//!   cancelled). When no worker can continue, the hub breaks off all of them.
//! * in a function that a program calls again and again if it never ends: `yield_now`, and whatever a cancelled job
//!   tries to begin ([`unwind_if_ending`]).
//!
//! All other waits are for something inside the simulation (forks, scopes, children of a job), and are over when that
//! has ended.
//!
//! # Several stacks that unwind
//!
//! A destructor that runs because of a panic must not panic: the process would abort. Whether the thread panics is known
//! ([`std::thread::panicking`]), but not which of its suspended stacks do. If it did not panic when a wait began, the
//! waiting stack does not; and if it does not panic while the hub runs, no stack does. The hub breaks off a wait only in
//! these two cases.
//!
//! # What refuses to end
//!
//! A destructor that waits for ever while it unwinds, a program that catches each unwinding and continues, or a wait for
//! another thread that does not end cannot be ended. The bounds are `unwindings_for`, `steps_for`, and
//! `PATIENCE_WITH_OTHER_THREADS`. The limit of the run itself is none of them: a program that was stopped by a short
//! limit ends like any other. Then [`Ending::Refused`] says so, and the caller must not return to what was lent.

use std::cell::{Cell, RefCell};

use super::Simulation;
use crate::stop;

/// The result of ending a simulated pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "if it was refused, nothing that the tasks borrow may go"]
pub enum Ending {
    /// All tasks have ended by themselves.
    Complete,
    /// All tasks have ended, but had to be unwound.
    Unwound {
        /// The number of tasks that had not ended by themselves.
        tasks: u64,
    },
    /// Some tasks have not ended. Their stacks stay for ever, and nothing on them ever continues; but threads that were
    /// started there may still use what they borrowed.
    Refused {
        /// The number of tasks.
        tasks: u64,
    },
}

/// The part of a simulation's state that is for its end.
#[derive(Default)]
pub(super) struct EndingState {
    /// `true` if running code is unwound where it can be.
    is_unwinding: Cell<bool>,
    /// Waits that can be broken off, each in the frame of its waiter.
    waits: RefCell<Vec<*const BreakableWait<'static>>>,
    /// The number of unwindings.
    unwindings: Cell<u64>,
    most_unwindings: Cell<u64>,
}

struct BreakableWait<'a> {
    /// Ends the wait; `false` if it ends by itself just now.
    break_off: &'a dyn Fn() -> bool,
    began_in_panic: bool,
    is_broken: Cell<bool>,
    /// The position in the list.
    position: Cell<usize>,
}

/// Returns the number of unwindings that `tasks` tasks may take. Picked by feel: a task takes one, and one more for each panic of
/// its own that it catches; a program that catches them in a loop reaches the bound within a second.
#[cfg(jobtree_stacks)]
fn unwindings_for(tasks: u64) -> u64 {
    1_000 + 16 * tasks
}

/// The number of steps in which `tasks` tasks that are cancelled or unwound must have ended. Picked by feel: a task
/// takes some ten, and each worker a few; a program that loops through points reaches the bound within a second.
#[cfg(jobtree_stacks)]
fn steps_for(tasks: u64) -> u64 {
    100_000 + 1_000 * tasks
}

impl EndingState {
    #[cfg(jobtree_stacks)]
    fn begin_unwinding(&self, tasks: u64) {
        self.is_unwinding.set(true);
        self.most_unwindings.set(unwindings_for(tasks));
    }

    #[cfg(jobtree_stacks)]
    fn is_over_limit(&self) -> bool {
        self.unwindings.get() >= self.most_unwindings.get()
    }

    /// Breaks off all waits that can be, and returns how many. Only for the hub.
    #[cfg(jobtree_stacks)]
    fn break_off_waits(&self) -> usize {
        if !cfg!(panic = "unwind") {
            return 0;
        }
        let some_stack_panics = std::thread::panicking();
        let waits = self.waits.borrow();
        let broken = waits.iter().filter(|wait| {
            // SAFETY: waits are in the list only while their frames wait, which are suspended now.
            let wait = unsafe { &***wait };
            let may_unwind = !(wait.began_in_panic && some_stack_panics);
            let breaks = may_unwind && !wait.is_broken.get() && (wait.break_off)();
            if breaks {
                wait.is_broken.set(true);
            }
            breaks
        });
        broken.count()
    }
}

/// Calls `wait`, which waits for something that the end of the simulation may break off by calling `break_off`. Unwinds
/// if that has happened.
///
/// `break_off` is called by the hub, while the calling stack is suspended. It lets `wait` return, or returns `false` if
/// `wait` is about to return anyway.
pub(crate) fn wait_breakably<R>(break_off: &dyn Fn() -> bool, wait: impl FnOnce() -> R) -> R {
    struct Listed<'a>(&'a EndingState, &'a BreakableWait<'a>);
    impl Drop for Listed<'_> {
        fn drop(&mut self) {
            let mut waits = self.0.waits.borrow_mut();
            let position = self.1.position.get();
            waits.swap_remove(position);
            if let Some(moved) = waits.get(position) {
                // SAFETY: waits are in the list only while their frames wait.
                unsafe { &**moved }.position.set(position);
            }
        }
    }
    let entry = BreakableWait {
        break_off,
        began_in_panic: std::thread::panicking(),
        is_broken: Cell::new(false),
        position: Cell::new(0),
    };
    let result = Simulation::with(|simulation| {
        {
            let mut waits = simulation.ending.waits.borrow_mut();
            entry.position.set(waits.len());
            waits.push(std::ptr::from_ref(&entry).cast());
        }
        let _listed = Listed(&simulation.ending, &entry);
        wait()
    });
    if entry.is_broken.get() {
        drop(result);
        Simulation::with(|simulation| {
            let unwindings = &simulation.ending.unwindings;
            unwindings.set(unwindings.get() + 1);
        });
        stop::unwind();
    }
    result.expect("only code in a simulation waits here")
}

/// Unwinds the calling stack if its simulation is being ended and that is possible. To be called where a program passes
/// that does not end, with nothing left to clean up.
#[inline]
pub fn unwind_if_ending() {
    if super::is_simulated() {
        unwind_if_possible();
    }
}

#[cold]
#[inline(never)]
fn unwind_if_possible() {
    let unwinds = Simulation::with(|simulation| {
        let ending = &simulation.ending;
        let is_possible = ending.is_unwinding.get()
            && cfg!(panic = "unwind")
            && !std::thread::panicking()
            && crate::worker::Worker::with_current(|worker| worker.is_some())
            && ending.unwindings.get() < ending.most_unwindings.get();
        if is_possible {
            ending.unwindings.set(ending.unwindings.get() + 1);
        }
        is_possible
    });
    if unwinds == Some(true) {
        stop::unwind();
    }
}

#[cfg(jobtree_stacks)]
mod pool {
    use std::io::Write as _;
    use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
    use std::time::{Duration, Instant};

    use super::super::hub::{SimulatedPool, Until};
    use super::super::simulated::NoTime;
    use super::super::{Pause, SIMULATION, World};
    use super::{Ending, steps_for};

    /// The time that the hub waits for other threads to end a wait, when nothing else is left. Picked by feel: threads that are
    /// about to do so need far less.
    const PATIENCE_WITH_OTHER_THREADS: Duration =
        Duration::from_secs(if cfg!(test) { 1 } else { 3 });

    /// The time that unwinding may take before a line on standard error reports it.
    const PATIENCE_WITH_BLOCKED_THREAD: Duration = Duration::from_secs(3);

    /// Writes a line if it lives for long. A stack that is unwound may block the only thread, for instance to join the
    /// threads of a `std::thread::scope`, and nothing else could say so.
    struct BlockedNotice {
        _ended: Sender<()>,
    }

    impl BlockedNotice {
        /// Without a thread there is no notice.
        fn after(patience: Duration) -> BlockedNotice {
            let (sender, ended) = channel();
            let watch = move || {
                if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                    // Not `eprintln!`, which the test harness may keep for itself.
                    let _ = writeln!(
                        std::io::stderr(),
                        "jobtree: a simulation is over, but what it has left does not end: it computes, or blocks its \
                         thread, for instance to join the threads of a `std::thread::scope`. The simulation waits for it"
                    );
                }
            };
            let named = std::thread::Builder::new().name("jobtree-sim-notice".to_owned());
            let _ = named.spawn(watch);
            BlockedNotice { _ended: sender }
        }
    }

    impl SimulatedPool {
        /// Gives turns until `world` is over, to a program that was cancelled. `limit` is the number of further steps, unless
        /// the tasks that are left may need more.
        pub fn clean_up(&mut self, world: &mut dyn World, limit: u64) -> Pause {
            let until = self.clean_up_limit(limit);
            self.run(world, until)
        }

        /// Returns the step at which a clean-up that begins now has taken too long.
        fn clean_up_limit(&self, limit: u64) -> u64 {
            let limit = limit.max(steps_for(self.shared.unfinished_tasks()));
            self.steps().saturating_add(limit)
        }

        /// Lets all tasks end; then unwinds those that have not, by the clock of `world`. Each of both takes at most `limit`
        /// further steps, unless the tasks that are left may need more. Frees everything unless that is refused.
        pub fn end(mut self, world: &mut dyn World, limit: u64) -> Ending {
            self.shared.terminate();
            let until = self.clean_up_limit(limit);
            self.give_turns(&mut NoTime, until, Until::Ended);
            let tasks = self.shared.unfinished_tasks();
            let mut ending = Ending::Complete;
            if !self.has_ended() {
                ending = Ending::Unwound { tasks };
                self.simulation().ending.begin_unwinding(tasks);
                if !self.unwind(world, limit) {
                    let tasks = self.shared.unfinished_tasks();
                    return Ending::Refused { tasks };
                }
            }
            SIMULATION.set(std::ptr::null());
            let panics = self.take_panics();
            for payload in panics.into_iter().chain(self.take_callback_panics()) {
                jobtree_base::user_code::discard_payload(payload);
            }
            self.free();
            ending
        }

        /// `false` if that was refused.
        fn unwind(&mut self, world: &mut dyn World, limit: u64) -> bool {
            let _notice = BlockedNotice::after(PATIENCE_WITH_BLOCKED_THREAD);
            let until = self.clean_up_limit(limit);
            loop {
                let pause = self.give_turns(world, until, Until::Ended);
                if self.has_ended() {
                    return true;
                }
                if pause == Pause::Limit || self.simulation().ending.is_over_limit() {
                    return false;
                }
                let broken = self.simulation().ending.break_off_waits();
                if broken == 0 && !self.other_threads_help() {
                    return false;
                }
            }
        }

        /// Returns `true` as soon as another thread has left something to do, and `false` if none does for long.
        fn other_threads_help(&mut self) -> bool {
            let began = Instant::now();
            while began.elapsed() < PATIENCE_WITH_OTHER_THREADS {
                if self.can_continue() {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            false
        }
    }
}
