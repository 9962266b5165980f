//! What a job may start without: the nearer its deadline, the more of the quiet conditions are waived.
//!
//! The slack is the time to the deadline less the time that the job is expected to take: what is left for waiting.
//! Falling, it waives (defaults):
//!
//! ```text
//! slack  > 8 h      nothing: QUIET, inside of a window, for the minimum streak
//!       ≤ 8 h      the minimum streak
//!       ≤ 4 h      the windows too
//!       ≤ 1 h      QUIET too: starts in NORMAL, and goes before all that is not urgent (class HIGH)
//!       ≤ 15 min   NORMAL too: starts in BUSY
//! ```
//!
//! PANIC, its cool-down, missing samples and capacity are never waived by a deadline: that can make it impossible, and so a
//! job that still waits when `at_risk` slack is left (30 min) is reported. A job that was submitted to start `now` waits for
//! no cool-down either, and one that was submitted to `ignore_load` not even for the end of PANIC; the capacity of the machine
//! holds for both. A job of priority HIGH waits for none of
//! the quiet conditions, with or without a deadline; `time_sensitive` starts in NORMAL. With both a deadline and one
//! of these, the further of the two holds.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::{Priority, Start};
use serde::Serialize;

use crate::now::wall_before;
use crate::policy::DeadlinePolicy;

/// Which quiet conditions a job may start without. Each waives those before it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiver {
    /// None.
    None,
    /// The minimum streak.
    Streak,
    /// The windows.
    Window,
    /// QUIET: it starts in NORMAL.
    Quiet,
    /// NORMAL: it starts in BUSY.
    Normal,
    /// The cool-down after a PANIC: what was submitted to start now.
    Cooldown,
    /// PANIC, missing samples, pressure, and what load takes from the capacity: what was submitted to ignore the load.
    Load,
}

/// What of a job says how urgent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgency {
    /// Its priority.
    pub priority: Priority,
    /// Whether it said that it is sensitive to time.
    pub time_sensitive: bool,
    /// The load that it waits for.
    pub start: Start,
    /// When it should have ended.
    pub deadline: Option<Timestamp>,
    /// How long it is expected to take, zero if that is not known.
    pub takes: Duration,
}

/// Where a job stands on the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What is waived.
    pub waiver: Waiver,
    /// Whether its deadline lets it go before all that is not urgent.
    pub urgent: bool,
    /// When that changes next.
    pub until: Option<Timestamp>,
}

impl Urgency {
    /// The latest moment to start with `slack` left.
    fn start_with(&self, slack: Duration) -> Option<Timestamp> {
        self.deadline
            .map(|deadline| wall_before(wall_before(deadline, self.takes), slack))
    }

    /// What is left for waiting; negative when it is too late.
    pub fn slack(&self, at: Timestamp) -> Option<SignedDuration> {
        self.start_with(Duration::ZERO)
            .map(|start| start.duration_since(at))
    }

    /// Where the job stands at a moment.
    pub fn standing(&self, policy: &DeadlinePolicy, at: Timestamp) -> Standing {
        let steps = [
            (policy.waive_streak, Waiver::Streak),
            (policy.waive_window, Waiver::Window),
            (policy.waive_quiet, Waiver::Quiet),
            (policy.waive_busy, Waiver::Normal),
        ];
        let mut near = Waiver::None;
        let mut until = None;
        for (slack, waiver) in steps {
            match self.start_with(slack) {
                Some(begins) if begins <= at => near = waiver,
                Some(begins) if until.is_none() => until = Some(begins),
                _ => {}
            }
        }
        let of_itself = match self.priority {
            Priority::High => Waiver::Normal,
            _ if self.time_sensitive => Waiver::Quiet,
            _ => Waiver::None,
        };
        let asked = match self.start {
            Start::WhenQuiet => Waiver::None,
            Start::Now => Waiver::Cooldown,
            Start::IgnoreLoad => Waiver::Load,
        };
        Standing {
            waiver: near.max(of_itself).max(asked),
            urgent: near >= Waiver::Quiet,
            until,
        }
    }

    /// From when on the job is at risk if it still waits.
    pub fn at_risk_from(&self, policy: &DeadlinePolicy) -> Option<Timestamp> {
        self.start_with(policy.at_risk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urgency(deadline: &str) -> Urgency {
        let deadline = Some(deadline.parse().unwrap());
        let takes = Duration::from_secs(600);
        Urgency {
            priority: Priority::Low,
            time_sensitive: false,
            start: Start::WhenQuiet,
            deadline,
            takes,
        }
    }

    #[test]
    fn the_curve_falls_step_by_step() {
        let urgency = urgency("2026-01-02T00:10:00Z");
        let policy = DeadlinePolicy::default();
        for (at, waiver, urgent) in [
            ("2026-01-01T15:59:59Z", Waiver::None, false),
            ("2026-01-01T16:00:00Z", Waiver::Streak, false),
            ("2026-01-01T20:00:00Z", Waiver::Window, false),
            ("2026-01-01T23:00:00Z", Waiver::Quiet, true),
            ("2026-01-01T23:45:00Z", Waiver::Normal, true),
            ("2026-01-03T00:00:00Z", Waiver::Normal, true),
        ] {
            let standing = urgency.standing(&policy, at.parse().unwrap());
            assert_eq!(
                (standing.waiver, standing.urgent),
                (waiver, urgent),
                "at {at}"
            );
            if let Some(until) = standing.until {
                assert!(
                    urgency.standing(&policy, until).waiver > waiver,
                    "changes at {until}"
                );
            }
        }
        assert_eq!(
            urgency.at_risk_from(&policy),
            Some("2026-01-01T23:30:00Z".parse().unwrap())
        );
    }

    #[test]
    fn what_a_job_waives_of_itself() {
        let policy = DeadlinePolicy::default();
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let far = urgency("2026-06-01T00:00:00Z");
        let of = |urgency: Urgency| urgency.standing(&policy, at);
        assert_eq!(
            of(Urgency {
                time_sensitive: true,
                deadline: None,
                ..far
            })
            .waiver,
            Waiver::Quiet
        );
        assert_eq!(
            of(Urgency {
                priority: Priority::High,
                ..far
            })
            .waiver,
            Waiver::Normal
        );
        assert_eq!(
            of(Urgency {
                deadline: None,
                ..far
            }),
            Standing {
                waiver: Waiver::None,
                urgent: false,
                until: None
            }
        );
    }
}
