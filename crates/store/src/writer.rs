//! The one thread that writes. Calls wait in a queue; the thread takes all that wait, runs one after the other in one
//! transaction, commits once, and answers them all: so a thousand waiting calls share one sync.
//!
//! - An operation that fails is undone alone; the others in its group are not touched. Commands decide before they write,
//!   so nearly all that fail have written nothing. Tables may keep what an operation wrote to themselves and give it to
//!   the database with the rest of the group ([`Ledger::flush`]); what goes there at once has a savepoint.
//! - Answers go out after the commit, also those of operations that changed nothing but saw what others in the group
//!   had written.
//! - A commit that fails takes the whole group with it. If the database says that it cannot be trusted any more
//!   ([`StoreError::Stopped`]), the store stops: every later call fails until it is opened again.
//! - Callers that block are woken all at once, when all of their answers are there (`bell.rs`).
//! - The queue is bounded: one call too many is refused at once instead of waiting without end.
//! - After a commit, the callers of its group tend to come back together. The thread begins with the first of them, and
//!   takes the others into the same transaction as they come: so it works while they wake up and ask again. When none is
//!   left it waits a little, at most a part of the time that a group takes, for as many as there were the last time. A
//!   lone caller is never delayed.
//!
//! A database that several processes share is written by other rules: see `announced`.

mod announced;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::{Listeners, Work, Written};
use crate::bell::Ringer;
use crate::error::StoreError;
use crate::needs::Needs;
use crate::numbers::{Counting, StoreNumbers};
use crate::tables::Tables;

/// Tables inside of transactions that the writer begins and ends.
pub(crate) trait Ledger: Tables {
    /// Begins a transaction that will write.
    fn begin_transaction(&mut self) -> Result<(), StoreError>;
    /// Returns `true` if other processes write the database, too: then transactions begin with all locks.
    fn is_shared(&self) -> bool {
        false
    }
    /// Begins a transaction that will write, with the locks and records that its operations need.
    fn begin_announced(&mut self, needs: &Needs) -> Result<(), StoreError> {
        let _ = needs;
        self.begin_transaction()
    }
    /// Sends what begins a transaction behind a commit that was sent, if that can be done without waiting. Whoever gets
    /// `true` takes the commit, and then the transaction.
    fn send_announced(&mut self, needs: &Needs) -> bool {
        let _ = needs;
        false
    }
    /// Waits for the locks and records of a transaction that was sent.
    fn take_announced(&mut self, needs: &Needs) -> Result<(), StoreError> {
        self.begin_announced(needs)
    }
    /// What the operation lacked because another process has it locked: it has failed, and is to run again with this.
    fn take_missed(&mut self) -> Option<Needs> {
        None
    }
    /// Gives the database what the transaction has decided, and commits. Whether it has changed anything.
    fn commit(&mut self) -> Result<bool, StoreError> {
        let flushed = self.flush()?;
        self.execute("COMMIT").map(|()| flushed)
    }
    /// Gives the database what the transaction has decided, and asks for the commit, whose outcome [`take_commit`] waits for.
    /// Only where transactions are announced.
    ///
    /// [`take_commit`]: Ledger::take_commit
    fn send_commit(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
    /// Waits for the outcome of a commit that was sent. Whether it has changed anything.
    fn take_commit(&mut self) -> Result<bool, StoreError> {
        self.commit()
    }
    /// Runs a statement that ends a transaction or a savepoint.
    fn execute(&mut self, sql: &str) -> Result<(), StoreError>;
    /// An operation begins; with its first write a savepoint called `operation`, if it is to have one.
    fn begin(&mut self, with_savepoint: bool);
    /// Gives the database what the transaction has decided, if it was not given yet. Whether it has changed records.
    fn flush(&mut self) -> Result<bool, StoreError> {
        Ok(false)
    }
    /// Whether the operation has written something that only the database can undo.
    fn touched(&self) -> bool;
    /// Whether its savepoint has begun.
    fn in_savepoint(&self) -> bool;
    /// Whether an error has ended the transaction, so that nothing more can be done in it.
    fn is_lost(&self) -> bool;
    /// What the operation wrote is undone: by the savepoint, or by not giving it to the database.
    fn undone(&mut self);
    /// The whole transaction was undone, or nobody knows: read everything again.
    fn forget(&mut self);
    /// What the transaction wrote, once it is committed.
    fn committed(&mut self) -> Vec<Written>;
    /// What is to be done now and then, when all of a commit have been answered.
    fn tidy(&mut self) -> Result<(), StoreError>;
}

/// How long the queue may be, and a group.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) max_waiting: usize,
    pub(crate) max_group: usize,
}

struct Waiting {
    operations: VecDeque<Box<dyn Work>>,
    /// Rings for those that wait now.
    ringer: Ringer,
    /// Set when no more calls are taken: the writer finishes what waits and ends.
    closing: bool,
    /// Set when the disk failed.
    stopped: Option<StoreError>,
    /// With how many the writer wants to be woken. While it works it looks for itself, and no call need wake it.
    awaited: usize,
}

impl Waiting {
    fn take_group(&mut self, most: usize) -> Option<Group> {
        let count = self.operations.len().min(most);
        (count > 0).then(|| Group {
            operations: self.operations.drain(..count).collect(),
            ringer: std::mem::take(&mut self.ringer),
        })
    }
}

/// Calls that were taken together.
struct Group {
    operations: VecDeque<Box<dyn Work>>,
    /// To be dropped when all of them are finished.
    ringer: Ringer,
}

/// With so many more of those that it hopes for, the writer goes on: to be woken for each would cost more than it gains.
const AT_A_TIME: usize = 16;

/// No longer than this does a transaction go on to take calls.
const LONGEST: Duration = Duration::from_millis(5);

struct Queue {
    /// Why the last commit that would have changed something failed.
    trouble: Mutex<Option<StoreError>>,
    /// There is one: no lock is taken for commits that go well.
    troubled: AtomicBool,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    max_waiting: usize,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how a transaction ended; `Ok(false)` if it had nothing to write.
    fn note(&self, outcome: &Result<bool, StoreError>) {
        let trouble = match outcome {
            Ok(true) if self.troubled.load(Ordering::Relaxed) => None,
            Ok(_) => return,
            // A collision with another writer says nothing of the store.
            Err(StoreError::CommitFailed { .. }) => return,
            Err(error) => Some(error.clone()),
        };
        self.troubled.store(trouble.is_some(), Ordering::Relaxed);
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Takes the work, or finishes it at once with the reason why not.
    fn push(&self, work: Box<dyn Work>) {
        if let Err((work, refusal)) = self.try_push(work) {
            work.finish(Err(refusal));
        }
    }

    fn try_push(&self, mut work: Box<dyn Work>) -> Result<(), (Box<dyn Work>, StoreError)> {
        let mut waiting = self.waiting();
        let count = waiting.operations.len();
        if let Some(error) = &waiting.stopped {
            return Err((work, error.clone()));
        }
        if waiting.closing {
            return Err((work, StoreError::closed()));
        }
        if count >= self.max_waiting {
            return Err((work, StoreError::Overloaded { waiting: count }));
        }
        work.gather(waiting.ringer.bell());
        waiting.operations.push_back(work);
        if count + 1 >= waiting.awaited {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Waits for calls; `None` when the store closes and nothing is left.
    fn next_group(&self, most: usize) -> Option<Group> {
        self.wait_for(self.waiting(), 1, None).take_group(most)
    }

    /// The calls that wait now, if they are so many at least.
    fn ready(&self, at_least: usize, most: usize) -> Option<Group> {
        let mut waiting = self.waiting();
        if waiting.operations.len() < at_least.max(1) {
            return None;
        }
        waiting.take_group(most)
    }

    /// Calls that were taken are the first to be taken again.
    fn put_back(&self, operations: VecDeque<Box<dyn Work>>) {
        let mut waiting = self.waiting();
        for operation in operations.into_iter().rev() {
            waiting.operations.push_front(operation);
        }
    }

    /// More calls, which may take until then to come, if there is hope for any.
    fn more(&self, hoped: usize, until: Instant, most: usize) -> Option<Group> {
        let mut waiting = self.waiting();
        if waiting.operations.is_empty() && hoped > 0 {
            waiting = self.wait_for(waiting, hoped.min(AT_A_TIME), Some(until));
        }
        waiting.take_group(most)
    }

    fn wait_for<'a>(
        &self,
        mut waiting: MutexGuard<'a, Waiting>,
        count: usize,
        until: Option<Instant>,
    ) -> MutexGuard<'a, Waiting> {
        waiting.awaited = count;
        while waiting.operations.len() < count && !waiting.closing {
            let Some(until) = until else {
                waiting = self
                    .arrived
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            waiting = self
                .arrived
                .wait_timeout(waiting, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        waiting.awaited = usize::MAX;
        waiting
    }

    fn stop(&self, error: &StoreError) {
        let left = {
            let mut waiting = self.waiting();
            waiting.stopped = Some(error.clone());
            Group {
                operations: std::mem::take(&mut waiting.operations),
                ringer: std::mem::take(&mut waiting.ringer),
            }
        };
        for operation in left.operations {
            operation.finish(Err(error.clone()));
        }
        drop(left.ringer);
    }
}

/// The writer's end for callers. Dropping it finishes what waits, and closes the file.
pub(crate) struct Writer {
    queue: Arc<Queue>,
    counting: Arc<Counting>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread. The tables are made there, and stay there.
    pub(crate) fn start<L: Ledger>(
        make: impl FnOnce() -> L + Send + 'static,
        bounds: Bounds,
        listeners: Arc<Listeners>,
    ) -> std::io::Result<Self> {
        let queue = Arc::new(Queue {
            trouble: Mutex::default(),
            troubled: AtomicBool::new(false),
            waiting: Mutex::new(Waiting {
                operations: VecDeque::new(),
                ringer: Ringer::default(),
                closing: false,
                stopped: None,
                awaited: usize::MAX,
            }),
            arrived: Condvar::new(),
            max_waiting: bounds.max_waiting,
        });
        let shared = Arc::clone(&queue);
        let counting = Arc::new(Counting::default());
        let counted = Arc::clone(&counting);
        let work = move || {
            let desk = Desk {
                tables: make(),
                queue: shared,
                max_group: bounds.max_group,
                listeners,
                counting: counted,
            };
            desk.work();
        };
        let thread = std::thread::Builder::new()
            .name("jobtree-store".to_owned())
            .spawn(work)?;
        Ok(Self {
            queue,
            counting,
            thread: Some(thread),
        })
    }

    /// Runs the work in a savepoint of the next commit.
    pub(crate) fn transact(&self, work: Box<dyn Work>) {
        self.queue.push(work);
    }

    /// What the thread has done.
    pub(crate) fn numbers(&self) -> StoreNumbers {
        let waiting = self.queue.waiting().operations.len();
        self.counting.read(waiting)
    }

    /// Why the store does not take changes now, if it does not.
    pub(crate) fn trouble(&self) -> Option<StoreError> {
        let noted = || {
            let trouble = &self.queue.trouble;
            trouble
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        };
        self.stopped().or_else(noted)
    }

    /// Why the store has stopped, if it has.
    pub(crate) fn stopped(&self) -> Option<StoreError> {
        self.queue.waiting().stopped.clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.waiting().closing = true;
        self.queue.arrived.notify_all();
        if let Some(thread) = self.thread.take() {
            // It catches what operations throw; should it have panicked itself, its file is closed anyway.
            let _ = thread.join();
        }
    }
}

/// What the thread expects from the last group.
#[derive(Clone, Copy)]
struct Hope {
    calls: usize,
    patience: Duration,
}

/// What the thread works with.
struct Desk<L> {
    tables: L,
    queue: Arc<Queue>,
    max_group: usize,
    listeners: Arc<Listeners>,
    counting: Arc<Counting>,
}

impl<L: Ledger> Desk<L> {
    fn work(mut self) {
        // If this thread ends in whatever way, nobody may wait for it.
        struct StopOnExit(Arc<Queue>);
        impl Drop for StopOnExit {
            fn drop(&mut self) {
                self.0.stop(&StoreError::closed());
            }
        }
        let _stop = StopOnExit(Arc::clone(&self.queue));

        let mut hope = Hope {
            calls: 1,
            patience: Duration::ZERO,
        };
        while let Some(group) = self.queue.next_group(self.max_group) {
            let begun = Instant::now();
            let ran = if self.tables.is_shared() {
                self.run_announced(group, hope)
            } else {
                self.run_group(group, hope)
            };
            match ran {
                Ok(calls) => hope.calls = calls,
                Err(error) => {
                    self.queue.stop(&error);
                    // The queue refuses from now on; wait for the owner to close.
                    while self.queue.next_group(1).is_some() {}
                    return;
                }
            }
            hope.patience = (begun.elapsed() / 4).min(Duration::from_millis(2));
        }
    }

    /// Runs and answers a group and those who join it, and says how many they were. An error is one after which the store
    /// must stop.
    fn run_group(&mut self, group: Group, hope: Hope) -> Result<usize, StoreError> {
        let Group {
            operations: mut group,
            ringer,
        } = group;
        let mut ringers = vec![ringer];
        let mut calls = 0;
        while !group.is_empty() {
            let mut ran = Vec::with_capacity(group.len().max(hope.calls));
            let outcome = self.run_in_transaction(&mut group, &mut ran, &mut ringers, hope);
            self.counting.ran(ran.len());
            self.queue.note(&outcome);
            if outcome.is_err() {
                self.counting.failed();
            }
            calls += ran.len();
            let fatal = outcome
                .as_ref()
                .err()
                .filter(|error| is_stop(error))
                .cloned();
            match &outcome {
                Ok(_) => self.listeners.tell(&self.tables.committed()),
                Err(_) => self.tables.forget(),
            }
            if let Some(error) = &fatal {
                ran.extend(group.drain(..));
                // Before anybody hears of it, so that none of them finds the store open.
                self.queue.stop(error);
            }
            for operation in ran {
                operation.finish(outcome.as_ref().map(drop).map_err(Clone::clone));
            }
            if group.is_empty() {
                // Before the tidying up, which nobody has to wait for.
                ringers.clear();
            }
            if let Some(error) = fatal {
                return Err(error);
            }
            if matches!(outcome, Ok(true)) {
                self.tables.tidy()?;
            }
        }
        Ok(calls)
    }

    /// Runs operations from the front of the group until it is empty and nobody joins it, or the transaction is lost, and
    /// commits. Those that ran are moved to `ran`: the outcome is theirs. Says whether anything was changed.
    fn run_in_transaction(
        &mut self,
        group: &mut VecDeque<Box<dyn Work>>,
        ran: &mut Vec<Box<dyn Work>>,
        ringers: &mut Vec<Ringer>,
        hope: Hope,
    ) -> Result<bool, StoreError> {
        let begin = self.tables.begin_transaction();
        if begin.is_err() {
            // None of them ran, but all of them must hear of it, or this would go on for ever.
            ran.extend(group.drain(..));
            return begin.map(|()| false).map_err(as_commit_failure);
        }
        let (mut changed, begun) = (false, Instant::now());
        loop {
            while let Some(mut operation) = group.pop_front() {
                let first = ran.is_empty();
                let outcome = self.run_one(operation.as_mut(), first);
                changed |= self.tables.touched();
                ran.push(operation);
                if let Err(error) = outcome {
                    let _ = self.tables.execute("ROLLBACK");
                    return Err(error);
                }
            }
            let most = self.max_group.saturating_sub(ran.len());
            if most == 0 || begun.elapsed() > LONGEST {
                break;
            }
            let hoped = hope.calls.saturating_sub(ran.len());
            let Some(joined) = self.queue.more(hoped, begun + hope.patience, most) else {
                break;
            };
            group.extend(joined.operations);
            ringers.push(joined.ringer);
        }
        let begun = Instant::now();
        match self.tables.commit() {
            Ok(flushed) => {
                if changed | flushed {
                    self.counting.committed(ran.len(), Some(begun.elapsed()));
                }
                Ok(changed | flushed)
            }
            Err(error) => {
                let _ = self.tables.execute("ROLLBACK");
                Err(as_commit_failure(error))
            }
        }
    }

    /// Runs one operation. An error is one that concerns the whole transaction.
    ///
    /// The first needs no savepoint: to undo it is to undo the transaction, which has nothing else yet. The others begin
    /// theirs with their first write; one that is refused before has none.
    fn run_one(&mut self, operation: &mut dyn Work, first: bool) -> Result<(), StoreError> {
        self.tables.begin(!first);
        let outcome = operation.run(&mut self.tables);
        let (touched, in_savepoint) = (self.tables.touched(), self.tables.in_savepoint());
        match outcome {
            Ok(()) if in_savepoint => self.tables.execute(RELEASE).map_err(as_commit_failure),
            Ok(()) => Ok(()),
            Err(error) if is_stop(&error) => Err(error),
            // Some errors end the transaction, savepoints and all.
            Err(error) if self.tables.is_lost() => Err(as_commit_failure(error)),
            Err(_) if in_savepoint => {
                self.tables.undone();
                self.tables
                    .execute("ROLLBACK TO operation")
                    .and_then(|()| self.tables.execute(RELEASE))
                    .map_err(as_commit_failure)
            }
            // To undo the first is to undo all.
            Err(error) if touched => Err(as_commit_failure(error)),
            Err(_) => {
                self.tables.undone();
                Ok(())
            }
        }
    }
}

const RELEASE: &str = "RELEASE operation";

fn is_stop(error: &StoreError) -> bool {
    matches!(error, StoreError::Stopped { .. })
}

/// What the others in the group get to see: their own statements were fine.
fn as_commit_failure(error: StoreError) -> StoreError {
    match error {
        StoreError::Stopped { .. }
        | StoreError::NoSpace
        | StoreError::CommitFailed { .. }
        | StoreError::Disconnected { .. } => error,
        other => StoreError::CommitFailed {
            why: other.to_string().into(),
        },
    }
}
