//! What is kept of a machine's states across a restart of the scheduler: the state, how long busy has been low, the last PANIC, and
//! the streaks. Kept are times of the wall clock, since the monotonic one may begin anew with the machine.

use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::QuietState;
use serde::{Deserialize, Serialize};

use super::{Minute, QuietMachine, minute_of};
use crate::now::{Now, wall_after, wall_before, wall_until};
use crate::policy::Policy;

/// What is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuietRecord {
    /// When the machine was measured last.
    pub at: Timestamp,
    /// Its state then.
    pub state: QuietState,
    /// Since when.
    pub since: Timestamp,
    /// By state below PANIC: since when busy was at or below its bound.
    pub below: [Option<Timestamp>; 3],
    /// When it was in PANIC last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_panic: Option<Timestamp>,
    /// How long jobs that need quiet have not been able to start, in seconds.
    #[serde(default)]
    pub starved_sec: f64,
    /// The streaks of the last 24 hours.
    #[serde(default)]
    pub streaks: Vec<KeptStreak>,
}

/// A run of QUIET minutes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptStreak {
    /// The start of its first minute.
    pub start: Timestamp,
    /// Whole minutes.
    pub minutes: u32,
    /// Mean busy.
    pub average: f64,
    /// Lowest busy.
    pub minimum: f64,
}

impl QuietMachine {
    /// Returns what is to be kept; none before the first sample.
    pub fn record(&self, now: Now) -> Option<QuietRecord> {
        let wall = |mono: Duration| wall_before(now.wall, now.mono.saturating_sub(mono));
        Some(QuietRecord {
            at: wall(self.last_sample?),
            state: self.state,
            since: self.since.wall,
            below: self.below.map(|since| since.map(wall)),
            last_panic: self.last_panic.map(wall),
            starved_sec: self.starved.as_secs_f64(),
            streaks: self
                .streaks(now)
                .into_iter()
                .map(|streak| KeptStreak {
                    start: streak.start,
                    minutes: streak.minutes,
                    average: streak.average,
                    minimum: streak.minimum,
                })
                .collect(),
        })
    }

    /// Goes on with what was kept, if nothing was measured since. Times to come, by a clock that was set back, count as now.
    pub fn restore(&mut self, record: &QuietRecord, policy: &Policy, now: Now) {
        if self.last_sample.is_some() {
            return;
        }
        let mono = |at: Timestamp| now.mono.saturating_sub(wall_until(at, now.wall));
        (self.state, self.since) = (
            record.state,
            Now {
                wall: record.since.min(now.wall),
                mono: mono(record.since),
            },
        );
        self.below = record.below.map(|since| since.map(mono));
        self.last_panic = record.last_panic.map(mono);
        self.starved = Duration::try_from_secs_f64(record.starved_sec).unwrap_or_default();
        self.last_sample = Some(mono(record.at));
        for streak in &record.streaks {
            for minute in 0..streak.minutes {
                let start = wall_after(streak.start, Duration::from_secs(u64::from(minute) * 60));
                let ago = wall_until(start, now.wall).as_secs();
                let index = (now.mono.as_secs() as i64 - ago as i64).div_euclid(60);
                if index > minute_of(now.mono) - super::MINUTES as i64 {
                    self.minutes.push_back(Minute {
                        index,
                        start,
                        samples: 1,
                        sum: streak.average,
                        minimum: streak.minimum,
                        quiet: true,
                    });
                }
            }
        }
        // A machine that was not measured for longer has to show again that it is quiet.
        self.forget_if_stale(policy, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Now {
        Now {
            wall: "2026-01-01T12:00:30Z".parse().unwrap(),
            mono: Duration::from_secs(1000),
        }
    }

    fn fed(machine: &mut QuietMachine, busy: f64, from: Now, seconds: u64) -> Now {
        let mut now = from;
        for _ in 0..seconds / 5 {
            now = now.after(Duration::from_secs(5));
            machine.observe(&Policy::default(), busy, now);
        }
        now
    }

    /// A machine whose scheduler was started again after so long, on a machine whose clock began anew.
    fn restarted(record: &QuietRecord, now: Now) -> QuietMachine {
        let json = serde_json::to_string(record).unwrap();
        let mut machine = QuietMachine::new(now);
        machine.restore(
            &serde_json::from_str(&json).unwrap(),
            &Policy::default(),
            now,
        );
        machine
    }

    #[test]
    fn a_cool_down_goes_on_after_a_restart() {
        let mut machine = QuietMachine::new(start());
        let hot = fed(&mut machine, 9.0, start(), 30);
        let later = Now {
            wall: hot.after(Duration::from_secs(40)).wall,
            mono: Duration::from_secs(7),
        };
        let machine = restarted(&machine.record(hot).unwrap(), later);
        let quiet = &Policy::default().quiet;
        // The clock of this machine began anew less than the cool-down ago.
        assert!(machine.cooling_until(quiet, later).is_some());
        let over = later.after(Duration::from_secs(60));
        assert!(machine.cooling_until(quiet, over).is_none());
    }

    #[test]
    fn a_streak_goes_on_after_a_short_restart_and_not_after_a_long_one() {
        let mut machine = QuietMachine::new(start());
        let now = fed(&mut machine, 0.5, start(), 600);
        let record = machine.record(now).unwrap();
        let before = machine.streaks(now);
        let soon = now.after(Duration::from_secs(10));
        let mut short = restarted(&record, soon);
        assert_eq!(short.state(), QuietState::Quiet);
        assert_eq!(short.since().wall, machine.since().wall);
        let later = fed(&mut short, 0.5, soon, 120);
        let after = short.streaks(later);
        assert_eq!(after.len(), 1, "{after:?}");
        assert_eq!(after[0].start, before[0].start);
        assert!(after[0].minutes > before[0].minutes);

        let long = now.after(Duration::from_secs(300));
        let long = restarted(&record, long);
        assert_eq!(
            long.state(),
            QuietState::Normal,
            "it has to show again that it is quiet"
        );
        assert_eq!(long.streaks(now.after(Duration::from_secs(300))).len(), 1);
    }
}
