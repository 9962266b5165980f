//! QUIET, NORMAL, BUSY, PANIC: busy made into a state that does not flap.
//!
//! Rising is fast, falling is slow. A sample above `quiet_leave`, `normal_max` or `busy_max` leaves QUIET, NORMAL or
//! BUSY (after `leave_after`, at once by default; PANIC always at once). Back down it goes when busy has been at or below
//! the lower state's bound in every sample for `calm_after`, and for `enter_after` to become QUIET. QUIET is left at a
//! higher busy than it is entered at, so that a machine at the bound does not change its state with every sample.
//!
//! A *spike* is a rise that is over within `spike`: the first sample at or below the bound of the state before it undoes the rise.
//! That state comes back with the time it began, and a PANIC that lasted no longer leaves no cool-down. One rise in
//! `enter_after` is undone, so that a machine with one spike after the other does not pass for a quiet one.
//!
//! A machine that was not measured for `stale_after` is in PANIC without being hot: when samples come back it starts
//! as NORMAL or worse with all waiting times begun anew, and there is no cool-down for it.
//!
//! *Streaks* are maximal runs of minutes in which every sample found QUIET, over 24 hours. *Starved* is the time
//! inside of the windows in which jobs that need quiet could not start; at `allow_one_after` one of them may.

mod kept;

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
pub use jobtree_protocol::QuietState;
use serde::Serialize;

pub use self::kept::{KeptStreak, QuietRecord};
use crate::now::{Now, wall_before};
use crate::policy::{Policy, QuietPolicy};

/// Minutes of the log of streaks.
const MINUTES: usize = 24 * 60;

/// A maximal run of QUIET minutes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Streak {
    /// The start of its first minute.
    pub start: Timestamp,
    /// The end of its last minute; of the running minute, now.
    pub end: Timestamp,
    /// Whole minutes, the running one included.
    pub minutes: u32,
    /// Mean busy of its samples.
    pub average: f64,
    /// Lowest busy of its samples.
    pub minimum: f64,
}

/// A rise that may turn out to be a spike.
#[derive(Clone, Copy, Debug)]
struct Rise {
    /// When busy rose, on the monotonic clock.
    at: Duration,
    state: QuietState,
    since: Now,
    below: [Option<Duration>; 3],
    last_panic: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Minute {
    /// Since the monotonic clock began; below zero for those before that, which were kept.
    index: i64,
    start: Timestamp,
    samples: u32,
    sum: f64,
    minimum: f64,
    quiet: bool,
}

/// The states of one machine over time.
#[derive(Clone, Debug)]
pub struct QuietMachine {
    state: QuietState,
    since: Now,
    /// By state below PANIC: since when every sample was at or below its bound.
    below: [Option<Duration>; 3],
    /// By state below PANIC: since when every sample was above the bound at which it is left.
    above: [Option<Duration>; 3],
    last_sample: Option<Duration>,
    last_panic: Option<Duration>,
    rise: Option<Rise>,
    /// When a rise was undone last.
    undone: Option<Duration>,
    starved: Duration,
    starved_seen: Duration,
    minutes: VecDeque<Minute>,
}

const BELOW_PANIC: [QuietState; 3] = [QuietState::Quiet, QuietState::Normal, QuietState::Busy];

impl QuietMachine {
    /// A machine of which nothing is known: NORMAL, for whoever looks past its missing samples.
    pub fn new(now: Now) -> QuietMachine {
        QuietMachine {
            state: QuietState::Normal,
            since: now,
            below: [None; 3],
            above: [None; 3],
            last_sample: None,
            last_panic: None,
            rise: None,
            undone: None,
            starved: Duration::ZERO,
            starved_seen: now.mono,
            minutes: VecDeque::new(),
        }
    }

    /// Takes a sample's busy; says which state it was before when it changed.
    pub fn observe(&mut self, policy: &Policy, busy: f64, now: Now) -> Option<QuietState> {
        self.forget_if_stale(policy, now);
        self.last_sample = Some(now.mono);
        let quiet = &policy.quiet;
        let was_below = self.below;
        for (index, state) in BELOW_PANIC.into_iter().enumerate() {
            let lower = busy <= enter_bound(quiet, state);
            self.below[index] = lower.then(|| self.below[index].unwrap_or(now.mono));
            let higher = busy > leave_bound(quiet, state);
            self.above[index] = higher.then(|| self.above[index].unwrap_or(now.mono));
        }
        let before = self.state;
        if !self.undo_spike(quiet, busy, now.mono) {
            let rise = Rise {
                at: now.mono,
                state: before,
                since: self.since,
                below: was_below,
                last_panic: self.last_panic,
            };
            self.state = self.next_state(quiet, busy, now.mono);
            if self.state == QuietState::Panic {
                self.last_panic = Some(now.mono);
            }
            if self.state != before {
                self.since = now;
            }
            if self.state > before && self.rise.is_none() {
                self.rise = Some(rise);
            }
        }
        self.log_minute(busy, now);
        (self.state != before).then_some(before)
    }

    /// Takes a rise back that is over already. Returns `true` if it did.
    fn undo_spike(&mut self, quiet: &QuietPolicy, busy: f64, mono: Duration) -> bool {
        let Some(rise) = self.rise else {
            return false;
        };
        let recent = |at: Duration, within: Duration| mono.saturating_sub(at) < within;
        if !recent(rise.at, quiet.spike)
            || self.undone.is_some_and(|at| recent(at, quiet.enter_after))
        {
            self.rise = None;
            return false;
        }
        if busy > enter_bound(quiet, rise.state) {
            return false;
        }
        (self.state, self.since, self.last_panic) = (rise.state, rise.since, rise.last_panic);
        for (now, then) in self.below.iter_mut().zip(rise.below) {
            *now = now.and(then.or(Some(mono)));
        }
        (self.rise, self.undone) = (None, Some(mono));
        true
    }

    fn next_state(&self, quiet: &QuietPolicy, busy: f64, mono: Duration) -> QuietState {
        if busy > quiet.busy_max {
            return QuietState::Panic;
        }
        // Up: the lowest state that is not left. Each state below the present one counts as left already.
        let mut state = self.state;
        while let Some(since) = self.above.get(state as usize).copied().flatten() {
            if mono.saturating_sub(since) < quiet.leave_after {
                break;
            }
            state = above(state);
        }
        if state != self.state {
            return state;
        }
        // Down: the lowest state whose bound has held for long enough.
        for (index, lower) in BELOW_PANIC
            .into_iter()
            .enumerate()
            .take(self.state as usize)
        {
            let wait = if lower == QuietState::Quiet {
                quiet.enter_after
            } else {
                quiet.calm_after
            };
            if self.below[index].is_some_and(|since| mono.saturating_sub(since) >= wait) {
                return lower;
            }
        }
        state
    }

    fn forget_if_stale(&mut self, policy: &Policy, now: Now) {
        let stale = self
            .last_sample
            .is_some_and(|last| now.mono.saturating_sub(last) >= policy.busy.stale_after);
        if stale {
            self.below = [None; 3];
            self.above = [None; 3];
            self.rise = None;
            if self.state == QuietState::Quiet {
                self.state = QuietState::Normal;
                self.since = now;
            }
        }
    }

    fn log_minute(&mut self, busy: f64, now: Now) {
        let index = minute_of(now.mono);
        let quiet = self.state == QuietState::Quiet;
        match self.minutes.back_mut() {
            Some(minute) if minute.index == index => {
                minute.samples += 1;
                minute.sum += busy;
                minute.minimum = minute.minimum.min(busy);
                minute.quiet &= quiet;
            }
            _ => {
                let into = now
                    .mono
                    .saturating_sub(Duration::from_secs(index as u64 * 60));
                let start = wall_before(now.wall, into);
                self.minutes.push_back(Minute {
                    index,
                    start,
                    samples: 1,
                    sum: busy,
                    minimum: busy,
                    quiet,
                });
                if self.minutes.len() > MINUTES {
                    self.minutes.pop_front();
                }
            }
        }
    }

    /// The state, as of the last sample.
    pub fn state(&self) -> QuietState {
        self.state
    }

    /// Since when it is in that state.
    pub fn since(&self) -> Now {
        self.since
    }

    /// How long busy has been at or below the bound of a state already; zero when it is not.
    pub fn calm_for(&self, state: QuietState, now: Now) -> Duration {
        let since = self.below.get(state as usize).copied().flatten();
        since.map_or(Duration::ZERO, |since| now.mono.saturating_sub(since))
    }

    /// How long QUIET has lasted without a break; zero when it is not QUIET.
    pub fn streak(&self, now: Now) -> Duration {
        let quiet = self.state == QuietState::Quiet;
        if quiet {
            now.mono.saturating_sub(self.since.mono)
        } else {
            Duration::ZERO
        }
    }

    /// Until when the cool-down after a PANIC lasts, on the monotonic clock.
    pub fn cooling_until(&self, quiet: &QuietPolicy, now: Now) -> Option<Duration> {
        let until = self.last_panic? + quiet.panic_cooldown;
        (until > now.mono).then_some(until)
    }

    /// The streaks of the last 24 hours, the oldest first; `now` ends the running one.
    pub fn streaks(&self, now: Now) -> Vec<Streak> {
        let first = minute_of(now.mono) - (MINUTES as i64 - 1);
        let mut streaks: Vec<(Streak, i64, u32)> = Vec::new();
        for minute in self
            .minutes
            .iter()
            .filter(|minute| minute.quiet && minute.index >= first)
        {
            let full = crate::now::wall_after(minute.start, Duration::from_secs(60));
            let end = full.min(now.wall.max(minute.start));
            match streaks.last_mut() {
                Some((streak, last, samples)) if *last + 1 == minute.index => {
                    let sum = streak.average * f64::from(*samples) + minute.sum;
                    *samples += minute.samples;
                    *last = minute.index;
                    streak.average = sum / f64::from(*samples);
                    streak.minimum = streak.minimum.min(minute.minimum);
                    streak.minutes += 1;
                    streak.end = end;
                }
                _ => {
                    let average = minute.sum / f64::from(minute.samples);
                    let (start, minimum) = (minute.start, minute.minimum);
                    let streak = Streak {
                        start,
                        end,
                        minutes: 1,
                        average,
                        minimum,
                    };
                    streaks.push((streak, minute.index, minute.samples));
                }
            }
        }
        streaks.into_iter().map(|(streak, ..)| streak).collect()
    }

    /// Counts the time up to `now` as starved when `shut`: inside of the windows, but jobs that need quiet cannot
    /// start. With `open` it begins anew; outside of the windows it stands still.
    pub fn count_starved(&mut self, open: bool, shut: bool, now: Now) {
        let passed = now.mono.saturating_sub(self.starved_seen);
        self.starved_seen = now.mono;
        if open {
            self.starved = Duration::ZERO;
        } else if shut {
            self.starved += passed;
        }
    }

    /// How long jobs that need quiet have not been able to start.
    pub fn starved(&self) -> Duration {
        self.starved
    }

    /// The one job was allowed: the time begins anew. Returns what it was, for [`Self::take_back`].
    pub fn allowed_one(&mut self) -> Duration {
        std::mem::take(&mut self.starved)
    }

    /// The one job did not start after all.
    pub fn take_back(&mut self, starved: Duration) {
        self.starved = self.starved.max(starved);
    }
}

fn minute_of(mono: Duration) -> i64 {
    (mono.as_secs() / 60) as i64
}

fn above(state: QuietState) -> QuietState {
    match state {
        QuietState::Quiet => QuietState::Normal,
        QuietState::Normal => QuietState::Busy,
        // PANIC is entered by `busy_max` alone.
        QuietState::Busy | QuietState::Panic => QuietState::Panic,
    }
}

/// The busy at or below which a state is entered from above.
pub fn enter_bound(quiet: &QuietPolicy, state: QuietState) -> f64 {
    match state {
        QuietState::Quiet => quiet.quiet_max,
        QuietState::Normal => quiet.normal_max,
        QuietState::Busy => quiet.busy_max,
        QuietState::Panic => 10.0,
    }
}

/// The busy above which a state is left upwards.
pub fn leave_bound(quiet: &QuietPolicy, state: QuietState) -> f64 {
    match state {
        QuietState::Quiet => quiet.quiet_leave,
        other => enter_bound(quiet, other),
    }
}
