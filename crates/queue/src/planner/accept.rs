//! Claims that accept what is reserved: a job that was admitted and waits for its worker goes to the next claim for it.
//!
//! The reservation becomes the lease in one command. Nothing is admitted again, since the units are in use already, and the
//! addon is charged once, when the reservation was made. Of several reserved jobs that a claim wants, one of the highest
//! class goes first, then the one whose time to be accepted ends first. A waiting job of a higher class that may start
//! now goes before all of them ([`pump`](super::pump)). What was paused meanwhile is not accepted by claims: it goes back when
//! its time is over.

use super::{Effect, Mistake, Planner, Started};
use crate::ledger::{Held, Holder, Phase};
use crate::now::Now;

impl Planner {
    /// Proposes to give one reserved job, of this class or a higher one, to a worker that asks for it. Returns `false` if
    /// there is none.
    pub(super) fn accept_reserved(
        &mut self,
        lowest: usize,
        now: Now,
        started: &mut Started,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let missed = self.mistakes.contains(&Mistake::ClaimsMissReservations);
        if self.asks.is_empty() || missed {
            return false;
        }
        let wanted = self.ledger.reserved().filter_map(|held| {
            let job = held.jobs.first()?;
            let paused = self.order.addons[held.addon.0].paused
                || self.order.type_paused(held.addon, &job.job_type);
            let ask = self
                .ask_for(held.addon, &job.job_type)
                .filter(|_| !paused)?;
            let class = class_of(held)?;
            (class >= lowest).then_some((class, job.id, job.revision, ask.id))
        });
        // The first of equals.
        let Some((_, job, revision, ask)) =
            wanted.reduce(|best, next| if next.0 > best.0 { next } else { best })
        else {
            return false;
        };
        self.use_ask(ask, now);
        let holder = Holder::Job(job);
        if let Some(Phase::Reserved(until)) = self.ledger.get(holder).map(|held| held.phase) {
            self.ledger.set_phase(holder, Phase::Accepting(until));
            started.accepted.push(holder);
        }
        effects.push(Effect::Accept { ask, job, revision });
        true
    }

    /// Nothing came of accepting it: it is reserved as before. Returns `false` if no claim was about to accept it.
    pub(crate) fn reserve_again(&mut self, holder: Holder) -> bool {
        let Some(Phase::Accepting(until)) = self.ledger.get(holder).map(|held| held.phase) else {
            return false;
        };
        self.ledger.set_phase(holder, Phase::Reserved(until));
        true
    }
}

/// The class in which a reserved job was charged, or would have been.
fn class_of(held: &Held) -> Option<usize> {
    let job = held.jobs.first()?;
    Some(held.charged.unwrap_or(job.priority as usize))
}
