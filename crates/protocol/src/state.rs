//! The states of a job: one table, from which names, colours and all predicates follow.
//!
//! A state is a row with a [`Phase`]. Code asks the predicates, so a new state in a known phase needs a row here, its
//! transitions (`queue/src/transitions/state.rs`) and its number on disk (`store`). Only code that is about one state in
//! particular names it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::FieldError;

/// What a state means for everything but its own transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The job waits and holds nothing.
    Queued,
    /// The job holds capacity of a node and waits for a worker.
    Reserved,
    /// The job runs under a lease.
    Running,
    /// Nothing happens to the job any more by itself.
    Ended(Outcome),
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Done,
    /// Badly; the job is kept, and can be redriven.
    Failed,
    /// By a request to cancel it.
    Cancelled,
}

macro_rules! job_states {
    ($($(#[$about:meta])* $State:ident { name: $name:literal, phase: $phase:expr, colour: $colour:literal },)+) => {
        /// Where a job is on its way.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "UPPERCASE")]
        pub enum JobState {
            $($(#[$about])* $State,)+
        }

        impl JobState {
            /// All states, in the order of a job's way.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$State),+];

            /// Returns the name of the state, as it is written everywhere: JSON, lists, labels of metrics.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$State => $name,)+
                }
            }

            /// Returns the phase, from which the predicates follow.
            pub const fn phase(self) -> Phase {
                match self {
                    $(Self::$State => $phase,)+
                }
            }

            /// Returns the ANSI code of the colour in which terminals show the state.
            pub const fn ansi_colour(self) -> u8 {
                match self {
                    $(Self::$State => $colour,)+
                }
            }
        }
    };
}

job_states! {
    /// It waits: for its turn, its time, its dependencies.
    Queued { name: "QUEUED", phase: Phase::Queued, colour: 33 },
    /// It has a place reserved on a node and waits to be accepted; or, with a lease, a worker has claimed it and not begun
    /// it.
    Dispatching { name: "DISPATCHING", phase: Phase::Reserved, colour: 36 },
    /// Its worker has begun it.
    Running { name: "RUNNING", phase: Phase::Running, colour: 34 },
    /// It ended well.
    Done { name: "DONE", phase: Phase::Ended(Outcome::Done), colour: 32 },
    /// It ended badly, and is kept as a dead letter that can be redriven.
    Failed { name: "FAILED", phase: Phase::Ended(Outcome::Failed), colour: 31 },
    /// A caller cancelled it.
    Canceled { name: "CANCELED", phase: Phase::Ended(Outcome::Cancelled), colour: 35 },
}

impl JobState {
    /// Returns `true` if nothing happens to the job any more by itself.
    pub const fn is_ended(self) -> bool {
        matches!(self.phase(), Phase::Ended(_))
    }

    /// Returns `true` if the job has not begun: it is queued, or waits for a worker to accept it.
    pub const fn is_waiting(self) -> bool {
        matches!(self.phase(), Phase::Queued | Phase::Reserved)
    }

    /// Returns `true` if the job runs under a lease.
    pub const fn is_running(self) -> bool {
        matches!(self.phase(), Phase::Running)
    }

    /// Returns `true` if the job holds capacity of a node, by a reservation or a lease.
    pub const fn holds_capacity(self) -> bool {
        matches!(self.phase(), Phase::Reserved | Phase::Running)
    }

    /// Returns `true` if the job can be cancelled.
    pub const fn can_be_cancelled(self) -> bool {
        !self.is_ended()
    }

    /// Returns `true` if the job can be queued again: it ended, but not well.
    pub const fn can_be_redriven(self) -> bool {
        matches!(
            self.phase(),
            Phase::Ended(Outcome::Failed | Outcome::Cancelled)
        )
    }

    /// Returns how the job ended; none if it has not.
    pub const fn outcome(self) -> Option<Outcome> {
        match self.phase() {
            Phase::Ended(outcome) => Some(outcome),
            Phase::Queued | Phase::Reserved | Phase::Running => None,
        }
    }

    /// Returns the states for which a predicate holds.
    ///
    /// ```
    /// use jobtree_protocol::JobState;
    ///
    /// let waiting = JobState::all_with(JobState::is_waiting);
    /// assert_eq!(waiting, [JobState::Queued, JobState::Dispatching]);
    /// ```
    pub fn all_with(predicate: impl Fn(Self) -> bool) -> Vec<Self> {
        let all = Self::ALL.into_iter();
        all.filter(|state| predicate(*state)).collect()
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for JobState {
    type Err = FieldError;

    /// Reads either case.
    fn from_str(text: &str) -> Result<Self, FieldError> {
        let found = Self::ALL
            .into_iter()
            .find(|state| state.as_str().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            let (last, others) = Self::ALL.split_last().expect("there are states");
            let others = others.iter().map(|state| state.as_str());
            let states = others.collect::<Vec<_>>().join(", ");
            FieldError::new(
                "state",
                format!("{text:?} is not a state: write {states} or {last}"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for state in JobState::ALL {
            let json = serde_json::to_string(&state).unwrap();
            assert_eq!(json, format!("\"{state}\""));
            assert_eq!(state.as_str().to_lowercase().parse::<JobState>(), Ok(state));
        }
        let wrong = "lost".parse::<JobState>().unwrap_err();
        assert_eq!(
            wrong.message,
            "\"lost\" is not a state: write QUEUED, DISPATCHING, RUNNING, DONE, FAILED or CANCELED"
        );
    }

    #[test]
    fn a_job_waits_runs_or_has_ended_and_never_two_of_them() {
        for state in JobState::ALL {
            let is = [state.is_waiting(), state.is_running(), state.is_ended()];
            let count = is.into_iter().filter(|is| *is).count();
            assert_eq!(count, 1, "{state}");
            assert_eq!(state.can_be_cancelled(), !state.is_ended(), "{state}");
            assert_eq!(state.outcome().is_some(), state.is_ended(), "{state}");
            assert!(!(state.holds_capacity() && state.is_ended()), "{state}");
        }
        use JobState::{Canceled, Dispatching, Failed, Running};
        let holding = JobState::all_with(JobState::holds_capacity);
        assert_eq!(holding, [Dispatching, Running]);
        let redriven = JobState::all_with(JobState::can_be_redriven);
        assert_eq!(redriven, [Failed, Canceled]);
    }
}
