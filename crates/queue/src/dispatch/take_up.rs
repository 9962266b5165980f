//! Claims that take up what is reserved: a job that was admitted and waits for its worker goes to the next claim for it.
//!
//! The reservation becomes the lease in one command. Nothing is admitted again, since the units are in use already, and the
//! addon is charged once, when the reservation was made. Of several reserved jobs that a claim wants, one of the highest
//! class goes first, then the one whose time to be taken up ends first. A waiting job of a higher class that may start
//! now goes before all of them ([`pump`](super::pump)).

use super::{Dispatcher, Effect, Started};
use crate::ledger::{Held, Holder, Phase};

impl Dispatcher {
    /// Proposes to give one reserved job, of this class or a higher one, to a worker that asks for it. Returns `false` if
    /// there is none.
    pub(super) fn take_up_reserved(
        &mut self,
        lowest: usize,
        started: &mut Started,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if self.asks.is_empty() {
            return false;
        }
        let wanted = self.ledger.dispatched().filter_map(|held| {
            let job = held.jobs.first()?;
            let ask = self.ask_for(held.addon, &job.job_type)?;
            let class = class_of(held)?;
            (class >= lowest).then_some((class, job.id, job.revision, ask.id))
        });
        // The first of equals.
        let Some((_, job, revision, ask)) =
            wanted.reduce(|best, next| if next.0 > best.0 { next } else { best })
        else {
            return false;
        };
        self.use_ask(ask);
        let holder = Holder::Job(job);
        if let Some(Phase::Dispatched(until)) = self.ledger.get(holder).map(|held| held.phase) {
            self.ledger.set_phase(holder, Phase::TakenUp(until));
            started.taken_up.push(holder);
        }
        effects.push(Effect::TakeUp { ask, job, revision });
        true
    }

    /// Nothing came of taking it up: it is reserved as before. Returns `false` if it was not taken up.
    pub(crate) fn reserve_again(&mut self, holder: Holder) -> bool {
        let Some(Phase::TakenUp(until)) = self.ledger.get(holder).map(|held| held.phase) else {
            return false;
        };
        self.ledger.set_phase(holder, Phase::Dispatched(until));
        true
    }
}

/// The class in which a reserved job was charged, or would have been.
fn class_of(held: &Held) -> Option<usize> {
    let job = held.jobs.first()?;
    Some(held.charged.unwrap_or(job.priority as usize))
}
