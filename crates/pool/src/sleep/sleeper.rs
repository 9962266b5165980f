//! One worker's bed: the four-state latch between a worker that falls asleep and those who want it
//! awake.
//!
//! ```text
//!            become_sleepy            sleep
//!   AWAKE ------------------> SLEEPY -------> ASLEEP
//!     ^  \                      |                |
//!     |   \ notify              | notify, wake   | notify, wake (+ futex wake)
//!     |    v                    v                v
//!     +--------------------- NOTIFIED <----------+
//!            stay_awake
//! ```
//!
//! A worker that must not take just any work (it waits inside `isolate`) sleeps ALONE instead of ASLEEP:
//! it is on no roster and not among the sleepers that are counted, and only a notice of its own wakes it, or a post of work
//! that was made inside some `isolate`.
//!
//! A worker may set itself a limit; when that is over it goes from ASLEEP to AWAKE by itself.
//!
//! SLEEPY closes the gap between the last look at the inbox and the futex: a notice that comes there
//! turns SLEEPY into NOTIFIED, and the step to ASLEEP fails. Only the worker itself leaves AWAKE for
//! SLEEPY, SLEEPY for ASLEEP, and ASLEEP or NOTIFIED for AWAKE; others only move it to NOTIFIED.

use std::time::{Duration, Instant};

use crate::stats::OwnCounter;
use crate::sync::step::{Step, left_out};
use crate::sync::{Futex, Ordering};

const AWAKE: u32 = 0;
const SLEEPY: u32 = 1;
const ASLEEP: u32 = 2;
const NOTIFIED: u32 = 3;
const ALONE: u32 = 4;

/// The way in which a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// A notice came before.
    NotAtAll,
    /// Another thread has woken the worker, and taken it out of the count.
    UntilWoken,
    /// The limit was over. No other thread has taken the worker out of the count.
    TooLong,
}

/// See the module's head.
pub(crate) struct Sleeper {
    state: Futex,
    /// Written by the worker itself.
    sleeps: OwnCounter,
    wakes: OwnCounter,
}

impl Sleeper {
    pub(crate) fn new() -> Sleeper {
        Sleeper {
            state: Futex::new(AWAKE),
            sleeps: OwnCounter::default(),
            wakes: OwnCounter::default(),
        }
    }

    /// Returns how often the worker has fallen asleep and been woken.
    pub(crate) fn sleeps_and_wakes(&self) -> (u64, u64) {
        // Wakes first: then there are never more of them than sleeps.
        let wakes = self.wakes.read();
        (self.sleeps.read(), wakes)
    }

    /// Returns `true` if there is an unread notice.
    pub(crate) fn has_notice(&self) -> bool {
        self.state.word().load(Ordering::Acquire) == NOTIFIED
    }

    /// AWAKE to SLEEPY; `false` if there is an unread notice, which is thereby read.
    pub(crate) fn become_sleepy(&self) -> bool {
        let sleepy = self
            .state
            .word()
            .compare_exchange(AWAKE, SLEEPY, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if !sleepy {
            self.stay_awake();
        }
        sleepy
    }

    /// SLEEPY to ASLEEP, and sleeps until woken, or until `limit` is over.
    pub(crate) fn sleep(&self, limit: Option<Duration>) -> Slept {
        let word = self.state.word();
        if !self.leave_sleepy_for(ASLEEP) {
            return Slept::NotAtAll;
        }
        self.sleeps.add(1);
        let began = limit.map(|_| Instant::now());
        let mut slept = Slept::UntilWoken;
        while word.load(Ordering::Acquire) == ASLEEP {
            match limit.zip(began) {
                None => self.state.wait(ASLEEP),
                Some((limit, began)) => {
                    let left = limit.saturating_sub(began.elapsed());
                    self.state.wait_for(ASLEEP, Some(left));
                    // Who comes first, the limit or a waker, is decided here: a waker that comes later finds no sleeper
                    // asleep, and goes on to the next.
                    if left.is_zero()
                        && word
                            .compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Acquire)
                            .is_ok()
                    {
                        slept = Slept::TooLong;
                    }
                }
            }
        }
        self.wakes.add(1);
        slept
    }

    /// SLEEPY to `bed`; `false` if a notice came before.
    fn leave_sleepy_for(&self, bed: u32) -> bool {
        let word = self.state.word();
        if left_out(Step::SleeperNotice) {
            word.swap(bed, Ordering::AcqRel);
            return true;
        }
        word.compare_exchange(SLEEPY, bed, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Sleeps until notified, unless a notice came before or `is_over` says there is no need. `false`
    /// if it has slept for `limit`; then it is awake without a notice.
    pub(crate) fn sleep_alone(&self, is_over: impl Fn() -> bool, limit: Option<Duration>) -> bool {
        if !self.become_sleepy() {
            return true;
        }
        let mut in_time = true;
        let word = self.state.word();
        if !is_over() && self.leave_sleepy_for(ALONE) {
            self.sleeps.add(1);
            let began = Instant::now();
            while in_time && word.load(Ordering::Acquire) == ALONE {
                let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
                self.state.wait_for(ALONE, left);
                in_time = left.is_none_or(|left| !left.is_zero());
            }
            self.wakes.add(1);
        }
        self.stay_awake();
        in_time
    }

    /// Sets the state to AWAKE, whatever it was. Acquires what the last notifier wrote before its notice.
    pub(crate) fn stay_awake(&self) {
        self.state.word().swap(AWAKE, Ordering::AcqRel);
    }

    /// Leaves a notice, and wakes the worker if it sleeps; `before_wake` runs first if it was counted.
    pub(crate) fn notify(&self, before_wake: impl FnOnce()) {
        match self.state.word().swap(NOTIFIED, Ordering::AcqRel) {
            ASLEEP => before_wake(),
            ALONE => {}
            _ => return,
        }
        Futex::wake_one(&self.state);
    }

    /// Wakes the worker if it sleeps alone, or keeps it from falling asleep if it is sleepy.
    pub(crate) fn wake_if_alone(&self) {
        let word = self.state.word();
        let mut seen = word.load(Ordering::Relaxed);
        while seen == ALONE || (seen == SLEEPY && !left_out(Step::SleeperDrowsyAlone)) {
            match word.compare_exchange(seen, NOTIFIED, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if seen == ALONE => return Futex::wake_one(&self.state),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Wakes the worker if it is asleep (`before_wake` then runs first) or keeps it from falling
    /// asleep if it is sleepy; `false` if it was neither.
    pub(crate) fn wake_if_drowsy(&self, before_wake: impl FnOnce()) -> bool {
        let word = self.state.word();
        let mut seen = word.load(Ordering::Relaxed);
        while seen == ASLEEP || (seen == SLEEPY && !left_out(Step::SleeperDrowsy)) {
            match word.compare_exchange(seen, NOTIFIED, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    if seen == ASLEEP {
                        before_wake();
                        Futex::wake_one(&self.state);
                    }
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }
}
