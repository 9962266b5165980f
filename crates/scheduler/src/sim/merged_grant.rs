//! The mistake [`Mistake::MergedGrants`](super::Mistake::MergedGrants): a lease is granted without a look at who has its id, so
//! that a claim which is in flight at two schedulers at once is granted at both. No command of the store does that, so it is
//! made of a raw transaction.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use jobtree_queue::transitions::{self, Claimed, Context, Proposed};
use jobtree_store::{Backend, Stamp, StoreError, Tables, Work};

use super::disk::{Plug, Port};
use crate::core::{Answer, Claim, Performing};

type Outcome = Arc<Mutex<Option<Result<Claimed, StoreError>>>>;

struct Grant {
    stamp: Stamp,
    request: Claim,
    claimed: Option<Claimed>,
    refused: Option<StoreError>,
    outcome: Outcome,
}

impl Work for Grant {
    fn run(&mut self, tables: &mut dyn Tables) -> Result<(), StoreError> {
        let mut now = self.stamp.now;
        now.wall = tables.wall()?.unwrap_or(now.wall);
        let context = Context {
            now,
            roll: self.stamp.roll,
            rules: &self.stamp.rules,
        };
        let jobs = tables.jobs(&self.request.jobs)?;
        let mut proposed = Vec::new();
        for job in &jobs {
            let key = job.intent.concurrency_key.as_deref();
            let addon = &job.intent.addon_id;
            let holders = key.map(|key| tables.key_holders(addon, key)).transpose()?;
            proposed.push(Proposed {
                job,
                key_holders: holders.unwrap_or_default(),
            });
        }
        let command = self.request.command.clone();
        match transitions::claim(&context, &proposed, None, command) {
            Ok(done) => {
                self.claimed = Some(done.answer);
                tables.write(done.changes, now)
            }
            Err(refused) => {
                let refused = StoreError::from(refused);
                self.refused = Some(refused.clone());
                Err(refused)
            }
        }
    }

    fn finish(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self {
            claimed,
            refused,
            outcome,
            ..
        } = *self;
        let result = match (committed, claimed, refused) {
            (Ok(()), Some(claimed), _) => Ok(claimed),
            (_, _, Some(refused)) => Err(refused),
            (Err(error), ..) => Err(error),
            (Ok(()), None, None) => return,
        };
        *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }
}

/// Asks for a lease, whoever has its id.
pub(super) fn grant(port: &Arc<Port>, stamp: Stamp, request: Claim) -> Performing {
    let outcome = Outcome::default();
    Plug(Arc::clone(port)).transact(Box::new(Grant {
        stamp,
        request: request.clone(),
        claimed: None,
        refused: None,
        outcome: Arc::clone(&outcome),
    }));
    Box::pin(std::future::poll_fn(move |_| {
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome.take() {
            None => Poll::Pending,
            Some(result) => Poll::Ready(Answer::Claim(request.clone(), result)),
        }
    }))
}
