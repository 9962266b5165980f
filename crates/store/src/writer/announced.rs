//! Groups on a database that several processes share.
//!
//! There a transaction has to lock what it reads, and two transactions that wait for each other's locks must not be. So the
//! members of a group announce what they need before the transaction begins, and it begins with all locks
//! ([`Ledger::begin_announced`]). It follows that no call joins a transaction that has begun: the thread waits for those
//! that it hopes for before.
//!
//! - A member that finds out that it needs a lock which was not announced, and which another process has, is left to the
//!   next transaction, which begins with that lock, too. The others of its group do not wait for it.
//! - If a transaction fails for a reason that is some member's, such as a record that another process wrote at the same
//!   time, nothing of it took effect and the group runs again; if it fails again, its members run one by one, so that only
//!   the one that cannot succeed hears of it.
//! - While the database commits, the calls that have come meanwhile are taken, and their transaction is begun behind the commit,
//!   on the same connection ([`Ledger::send_announced`]): the database need not wait until callers are answered. If the
//!   commit fails, what was begun behind it is undone and begun again.

use std::collections::VecDeque;
use std::time::Instant;

use super::{Desk, Group, Hope, Ledger, as_commit_failure, is_stop};
use crate::backend::Work;
use crate::bell::Ringer;
use crate::error::StoreError;
use crate::needs::Needs;

/// How often a group runs as a whole before its members run one by one.
const TOGETHER: u32 = 2;
/// How often a member runs alone.
const ALONE: u32 = 3;
/// How often members are left to the next transaction. Each time they wait for the locks that they lacked, so this is
/// reached only by those that need others each time. Picked by feel.
const LEFT: u32 = 32;

/// No more rows than these are in a transaction of several calls: the next one's begin while these are committed. Picked by
/// feel.
const ROWS: usize = 512;

/// Calls of one transaction.
struct Batch {
    members: VecDeque<Box<dyn Work>>,
    needs: Needs,
    /// To be dropped when all of them are finished.
    ringers: Vec<Ringer>,
    /// Its transaction was begun behind the commit of the one before.
    is_begun: bool,
}

/// What became of a transaction.
struct Ran {
    /// Those whose answers depend on its outcome.
    members: Vec<Box<dyn Work>>,
    /// Those that are left to the next, and what that is to begin with.
    left: Vec<Box<dyn Work>>,
    missed: Needs,
    /// Whether anything was changed.
    outcome: Result<bool, StoreError>,
}

impl<L: Ledger> Desk<L> {
    /// Runs and answers a group, and all that follow it without a pause; says how many calls the last one had. An error is
    /// one after which the store must stop.
    pub(super) fn run_announced(&mut self, group: Group, hope: Hope) -> Result<usize, StoreError> {
        let mut ringers = vec![group.ringer];
        let mut waiting = group.operations;
        let until = Instant::now() + hope.patience;
        while waiting.len() < self.max_group.min(hope.calls) {
            let most = self.max_group - waiting.len();
            let hoped = hope.calls.saturating_sub(waiting.len());
            let Some(joined) = self.queue.more(hoped, until, most) else {
                break;
            };
            waiting.extend(joined.operations);
            ringers.push(joined.ringer);
        }
        let mut batch = self.batch(waiting, ringers);
        loop {
            let calls = batch.members.len();
            match self.run_batch(batch)? {
                Some(next) => batch = next,
                None => return Ok(calls),
            }
        }
    }

    /// Makes a batch of the first of these calls, and puts the others back.
    fn batch(&self, mut operations: VecDeque<Box<dyn Work>>, ringers: Vec<Ringer>) -> Batch {
        let mut batch = Batch {
            members: VecDeque::with_capacity(operations.len()),
            needs: Needs::default(),
            ringers,
            is_begun: false,
        };
        while let Some(operation) = operations.pop_front() {
            let mut needs = Needs::default();
            operation.announce(&mut needs);
            if !batch.members.is_empty() && batch.needs.rows() + needs.rows() > ROWS {
                operations.push_front(operation);
                self.queue.put_back(operations);
                break;
            }
            batch.needs.extend(needs);
            batch.members.push_back(operation);
        }
        batch
    }

    /// Takes the calls that have come meanwhile, and begins their transaction behind the commit that was sent. If they are
    /// much fewer than those of the present one they wait for its callers, who tend to come back together: a commit each
    /// for a few calls costs more than it gains.
    fn following(&mut self, calls: usize) -> Option<Batch> {
        let group = self.queue.ready(calls.div_ceil(2), self.max_group)?;
        let mut batch = self.batch(group.operations, vec![group.ringer]);
        batch.is_begun = self.tables.send_announced(&batch.needs);
        Some(batch)
    }

    /// Runs and answers a batch, and gives the one that follows it, if that was taken.
    fn run_batch(&mut self, batch: Batch) -> Result<Option<Batch>, StoreError> {
        let Batch {
            members: mut waiting,
            needs,
            ringers,
            mut is_begun,
        } = batch;
        let mut announced = Some(needs);
        let mut next: Option<Batch> = None;
        let (mut failures, mut left) = (0, 0);
        let mut missed = Needs::default();
        while !waiting.is_empty() {
            let count = if failures < TOGETHER {
                waiting.len()
            } else {
                1
            };
            let members: VecDeque<Box<dyn Work>> = waiting.drain(..count).collect();
            let needs = announced.take().unwrap_or_else(|| {
                let mut needs = std::mem::take(&mut missed);
                members.iter().for_each(|it| it.announce(&mut needs));
                needs
            });
            // What is begun early runs early: nothing of this batch may be left for later.
            let may_follow = waiting.is_empty() && next.is_none();
            let next_if = may_follow.then_some(&mut next);
            let ran = self.run_members(members, &needs, std::mem::take(&mut is_begun), next_if);
            self.counting.ran(ran.members.len());
            self.queue.note(&ran.outcome);
            match ran.outcome {
                Ok(changed) => {
                    self.listeners.tell(&self.tables.committed());
                    self.finish(ran.members, &Ok(()));
                    if changed {
                        self.tables.tidy()?;
                    }
                    if failures >= TOGETHER {
                        // The next one alone has its own number of tries.
                        failures = TOGETHER;
                    }
                }
                Err(error) => {
                    self.counting.failed();
                    // This also undoes what was begun behind it.
                    let _ = self.tables.execute("ROLLBACK");
                    self.tables.forget();
                    if let Some(next) = &mut next {
                        next.is_begun = false;
                    }
                    let mut members = ran.members;
                    if is_stop(&error) {
                        members.extend(ran.left);
                        members.extend(waiting.drain(..));
                        members.extend(next.into_iter().flat_map(|next| next.members));
                        self.queue.stop(&error);
                        self.finish(members, &Err(error.clone()));
                        return Err(error);
                    }
                    failures += 1;
                    // Whether it took effect is not known, or it was not for lack of trying.
                    let give_up =
                        matches!(error, StoreError::Disconnected { .. } | StoreError::NoSpace)
                            || (count == 1 && failures >= TOGETHER + ALONE);
                    let is_alone = members.len() + ran.left.len() == 1;
                    let is_conflict = matches!(error, StoreError::CommitFailed { .. });
                    let hopeless = give_up || (is_alone && !is_conflict);
                    let (again, over): (Vec<_>, Vec<_>) = members
                        .into_iter()
                        .partition(|work| !hopeless && work.can_run_again());
                    self.finish(over, &Err(as_commit_failure(error)));
                    if hopeless {
                        failures = failures.min(TOGETHER);
                    }
                    for work in again.into_iter().rev() {
                        waiting.push_front(work);
                    }
                }
            }
            if !ran.left.is_empty() {
                left += 1;
                if left > LEFT {
                    let error = StoreError::CommitFailed {
                        why: "other schedulers hold the records that this call needs".into(),
                    };
                    self.finish(ran.left, &Err(error));
                    continue;
                }
                missed.extend(ran.missed);
                for work in ran.left.into_iter().rev() {
                    waiting.push_front(work);
                }
            }
        }
        drop(ringers);
        Ok(next)
    }

    fn finish(&self, members: Vec<Box<dyn Work>>, outcome: &Result<(), StoreError>) {
        for member in members {
            member.finish(outcome.clone());
        }
    }

    /// Runs the members in one transaction, and commits. While it is committed, the next batch is taken and begun, if there
    /// is a place for it.
    fn run_members(
        &mut self,
        mut members: VecDeque<Box<dyn Work>>,
        needs: &Needs,
        is_begun: bool,
        next: Option<&mut Option<Batch>>,
    ) -> Ran {
        let mut ran = Ran {
            members: Vec::with_capacity(members.len()),
            left: Vec::new(),
            missed: Needs::default(),
            outcome: Ok(false),
        };
        let begun = match is_begun {
            true => self.tables.take_announced(needs),
            false => self.tables.begin_announced(needs),
        };
        if let Err(error) = begun {
            ran.members.extend(members);
            ran.outcome = Err(error);
            return ran;
        }
        while let Some(mut member) = members.pop_front() {
            let outcome = self.run_one(member.as_mut(), false);
            if let Some(missed) = self.tables.take_missed() {
                if member.can_run_again() {
                    ran.missed.extend(missed);
                    ran.left.push(member);
                } else {
                    ran.members.push(member);
                }
            } else {
                ran.members.push(member);
            }
            if let Err(error) = outcome {
                ran.members.extend(members);
                ran.outcome = Err(error);
                return ran;
            }
        }
        let begun = Instant::now();
        ran.outcome = self.tables.send_commit().and_then(|()| {
            if let (Some(next), true) = (next, ran.left.is_empty()) {
                *next = self.following(ran.members.len());
            }
            self.tables.take_commit()
        });
        if matches!(ran.outcome, Ok(true)) {
            let count = ran.members.len();
            self.counting.committed(count, Some(begun.elapsed()));
        }
        ran
    }
}
