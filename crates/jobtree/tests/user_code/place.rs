//! The rows of the matrix, and the right outcome of each cell.

use std::sync::Arc;

use crate::behaviour::{Behaviour, WAITS_FOR_ITSELF};
use crate::stage::Stage;

/// A place where the library calls user code.
#[derive(Clone, Copy)]
pub struct Place {
    /// The name in a cell's name: `family/place`.
    pub name: &'static str,
    /// Has the library call `Stage::act`, and checks the outcome.
    pub run: fn(&Arc<Stage>),
    /// The cells of this place that do not simply end; the first rule that names a behaviour decides.
    pub rules: &'static [Rule],
}

/// The outcome of some cells of a place.
pub type Rule = (&'static [Behaviour], Outcome);

/// The code of a shield that waits for a job above does so until the shield's time is over.
pub const SHIELDED: Rule = (
    &[Behaviour::JoinEnding],
    Outcome::NotApplicable("a shield of a minute is not cancelled sooner"),
);

/// The right outcome of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program ends well, after its assertions about what happened.
    Ends,
    /// The standard library ends the process, with a message that contains this: `docs/soundness.md` lists where.
    AbortedByStd(&'static str),
    /// The program ends well, or the library refuses it by a panic, never by a signal, with a message that contains this: which of
    /// the two is a matter of timing.
    EndsOrRefused(&'static str),
    /// There is no such program, for this reason.
    NotApplicable(&'static str),
}

impl Place {
    /// A place whose cells all end well.
    pub const fn new(name: &'static str, run: fn(&Arc<Stage>)) -> Place {
        Place {
            name,
            run,
            rules: &[],
        }
    }

    /// The same place, with the cells that do not simply end.
    pub const fn with(mut self, rules: &'static [Rule]) -> Place {
        self.rules = rules;
        self
    }

    /// Returns the right outcome of one of its cells.
    pub fn outcome(&self, behaviour: Behaviour) -> Outcome {
        let rule = self
            .rules
            .iter()
            .find(|(behaviours, _)| behaviours.contains(&behaviour));
        let usual = match behaviour {
            Behaviour::JoinEnding => Outcome::EndsOrRefused(WAITS_FOR_ITSELF),
            _ => Outcome::Ends,
        };
        rule.map_or(usual, |&(_, outcome)| outcome)
    }
}
