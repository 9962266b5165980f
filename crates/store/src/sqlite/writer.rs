//! The one thread that writes. Calls wait in a queue; the thread takes all that wait, runs each in a savepoint of one
//! transaction, commits once, and answers them all: so a thousand waiting calls share one sync.
//!
//! - An operation that fails rolls back its own savepoint; the others in its group are not touched.
//! - Answers go out after the commit, also those of operations that changed nothing but saw what others in the group
//!   had written.
//! - A commit that fails takes the whole group with it. If the disk is to blame (see `failure.rs`), the store stops:
//!   every later call fails until it is opened again.
//! - The queue is bounded: one call too many is refused at once instead of waiting without end.
//! - After a commit, the callers of its group tend to come back together. If the thread took the first of them at
//!   once, each second group would be small. So it waits a little, at most a part of the time that a commit takes, for
//!   as many as were there the last time. A lone caller is never delayed.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::failure;
use super::open::SqliteOptions;
use crate::answer::{Answer, Promise, promise};
use crate::error::StoreError;

/// Something that is told of each commit that changed something, after it.
pub(crate) type AfterCommit = Box<dyn Fn() + Send + Sync>;

/// A call that waits for its turn.
trait Operation: Send {
    /// Runs inside of the savepoint. Whether it succeeded; the result stays inside until the commit.
    fn run(&mut self, db: &Connection) -> Result<(), StoreError>;
    /// Gives the result to the caller: the operation's own if the commit succeeded.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct Call<T, F> {
    work: Option<F>,
    result: Option<Result<T, StoreError>>,
    promise: Promise<T>,
}

impl<T, F> Operation for Call<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, db: &Connection) -> Result<(), StoreError> {
        let work = self.work.take().expect("an operation runs once");
        let result = catch_unwind(AssertUnwindSafe(|| work(db))).unwrap_or_else(|_| {
            Err(StoreError::Database {
                message: "an operation panicked".to_owned(),
            })
        });
        let outcome = result.as_ref().map(drop).map_err(Clone::clone);
        self.result = Some(result);
        outcome
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self {
            result, promise, ..
        } = *self;
        promise.keep(match (committed, result) {
            (Ok(()), Some(result)) => result,
            // It failed by itself; that the others' commit failed as well says nothing new.
            (Err(_), Some(Err(own))) => Err(own),
            (Err(error), _) => Err(error),
            (Ok(()), None) => unreachable!("an operation runs before its group commits"),
        });
    }
}

struct Waiting {
    operations: VecDeque<Box<dyn Operation>>,
    /// Set when no more calls are taken: the writer finishes what waits and ends.
    closing: bool,
    /// Set when the disk failed.
    stopped: Option<StoreError>,
    /// How many the writer hopes for while it lingers, so that not every call wakes it.
    awaited: usize,
}

struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    max_waiting: usize,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, operation: Box<dyn Operation>) {
        let refusal = {
            let mut waiting = self.waiting();
            let count = waiting.operations.len();
            if let Some(error) = &waiting.stopped {
                Some(error.clone())
            } else if waiting.closing {
                Some(StoreError::closed())
            } else if count >= self.max_waiting {
                Some(StoreError::Overloaded { waiting: count })
            } else {
                waiting.operations.push_back(operation);
                if count + 1 >= waiting.awaited {
                    self.arrived.notify_one();
                }
                return;
            }
        };
        operation_refused(operation, refusal);
    }

    /// Waits for a group; `None` when the store closes and nothing is left.
    fn next_group(&self, hoped: usize, patience: Duration, most: usize) -> Option<Vec<Box<dyn Operation>>> {
        let mut waiting = self.waiting();
        waiting.awaited = 1;
        while waiting.operations.is_empty() {
            if waiting.closing {
                return None;
            }
            waiting = self
                .arrived
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.operations.len() < hoped && !waiting.closing {
            let until = Instant::now() + patience;
            waiting.awaited = hoped;
            while waiting.operations.len() < hoped && !waiting.closing {
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
        }
        let count = waiting.operations.len().min(most);
        Some(waiting.operations.drain(..count).collect())
    }

    fn stop(&self, error: &StoreError) {
        let left = {
            let mut waiting = self.waiting();
            waiting.stopped = Some(error.clone());
            std::mem::take(&mut waiting.operations)
        };
        for operation in left {
            operation.answer(Err(error.clone()));
        }
    }
}

fn operation_refused(operation: Box<dyn Operation>, refusal: Option<StoreError>) {
    operation.answer(Err(refusal.unwrap_or_else(StoreError::closed)));
}

/// The writer's end for callers. Dropping it finishes what waits, and closes the file.
pub(crate) struct Writer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(db: Connection, options: &SqliteOptions, after_commit: AfterCommit) -> std::io::Result<Self> {
        let queue = Arc::new(Queue {
            waiting: Mutex::new(Waiting {
                operations: VecDeque::new(),
                closing: false,
                stopped: None,
                awaited: 1,
            }),
            arrived: Condvar::new(),
            max_waiting: options.max_waiting,
        });
        let desk = Desk {
            db,
            queue: Arc::clone(&queue),
            max_group: options.max_group,
            checkpoint_pages: options.checkpoint_pages,
            after_commit,
        };
        let thread = std::thread::Builder::new()
            .name("jobtree-store".to_owned())
            .spawn(move || desk.work())?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    /// Runs `work` in a savepoint of the next commit.
    pub(crate) fn call<T, F>(&self, work: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (promise, answer) = promise();
        self.queue.push(Box::new(Call {
            work: Some(work),
            result: None,
            promise,
        }));
        answer
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

/// What the thread works with.
struct Desk {
    db: Connection,
    queue: Arc<Queue>,
    max_group: usize,
    checkpoint_pages: i64,
    after_commit: AfterCommit,
}

impl Desk {
    fn work(mut self) {
        // If this thread ends in whatever way, nobody may wait for it.
        struct StopOnExit(Arc<Queue>);
        impl Drop for StopOnExit {
            fn drop(&mut self) {
                self.0.stop(&StoreError::closed());
            }
        }
        let _stop = StopOnExit(Arc::clone(&self.queue));

        let (mut hoped, mut patience) = (1, Duration::ZERO);
        while let Some(group) = self.queue.next_group(hoped, patience, self.max_group) {
            hoped = group.len();
            let begun = Instant::now();
            if let Err(error) = self.run_group(group) {
                self.queue.stop(&error);
                // The queue refuses from now on; wait for the owner to close.
                while self.queue.next_group(1, Duration::ZERO, 1).is_some() {}
                return;
            }
            patience = (begun.elapsed() / 4).min(Duration::from_millis(2));
        }
        // The owner closes in peace: leave a file without a log. If it fails, the log is read the next time.
        let _ = self.db.execute_batch("PRAGMA optimize");
    }

    /// Runs and answers a group. An error is one after which the store must stop.
    fn run_group(&mut self, group: Vec<Box<dyn Operation>>) -> Result<(), StoreError> {
        let mut group = VecDeque::from(group);
        while !group.is_empty() {
            let mut ran = Vec::with_capacity(group.len());
            let outcome = self.run_in_transaction(&mut group, &mut ran);
            let fatal = outcome.as_ref().err().filter(|error| is_stop(error)).cloned();
            let changed = matches!(outcome, Ok(true));
            if let Some(error) = &fatal {
                ran.extend(group.drain(..));
                // Before anybody hears of it, so that none of them finds the store open.
                self.queue.stop(error);
            }
            for operation in ran {
                operation.answer(outcome.as_ref().map(drop).map_err(Clone::clone));
            }
            if let Some(error) = fatal {
                return Err(error);
            }
            if changed {
                (self.after_commit)();
                self.checkpoint_if_long()?;
            }
        }
        Ok(())
    }

    /// Runs operations from the front of the group until it is empty or the transaction is lost, and commits. Those
    /// that ran are moved to `ran`: the outcome is theirs. Says whether anything was changed.
    fn run_in_transaction(
        &mut self,
        group: &mut VecDeque<Box<dyn Operation>>,
        ran: &mut Vec<Box<dyn Operation>>,
    ) -> Result<bool, StoreError> {
        let begin = self.execute("BEGIN IMMEDIATE");
        if begin.is_err() {
            // None of them ran, but all of them must hear of it, or this would go on for ever.
            ran.extend(group.drain(..));
            return begin.map(|()| false).map_err(as_commit_failure);
        }
        let before = self.db.total_changes();
        while let Some(mut operation) = group.pop_front() {
            let outcome = self.run_in_savepoint(operation.as_mut());
            ran.push(operation);
            if let Err(error) = outcome {
                let _ = self.execute("ROLLBACK");
                return Err(error);
            }
        }
        if let Err(error) = self.execute("COMMIT") {
            let _ = self.execute("ROLLBACK");
            return Err(as_commit_failure(error));
        }
        Ok(self.db.total_changes() != before)
    }

    /// An error is one that concerns the whole transaction.
    fn run_in_savepoint(&mut self, operation: &mut dyn Operation) -> Result<(), StoreError> {
        self.execute("SAVEPOINT operation")
            .map_err(as_commit_failure)?;
        match operation.run(&self.db) {
            Ok(()) => self
                .execute("RELEASE operation")
                .map_err(as_commit_failure),
            Err(error) if is_stop(&error) => Err(error),
            // Some errors end the transaction, savepoints and all.
            Err(error) if self.db.is_autocommit() => Err(as_commit_failure(error)),
            Err(_) => self
                .execute("ROLLBACK TO operation")
                .and_then(|()| self.execute("RELEASE operation"))
                .map_err(as_commit_failure),
        }
    }

    /// Copies the log into the file when it has grown. What is in the log is durable already, so whoever waited has
    /// been answered before.
    fn checkpoint_if_long(&mut self) -> Result<(), StoreError> {
        let pages: i64 = self
            .db
            .prepare_cached("PRAGMA wal_checkpoint(NOOP)")?
            .query_row([], |row| row.get(1))?;
        if pages < self.checkpoint_pages {
            return Ok(());
        }
        let checkpoint = self
            .db
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        match checkpoint {
            Err(error) if failure::is_fatal(&error) => Err(error.into()),
            // A full disk, or a reader in the way: the log goes on growing, and the next commit tries again.
            _ => Ok(()),
        }
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

fn is_stop(error: &StoreError) -> bool {
    matches!(error, StoreError::Stopped { .. })
}

/// What the others in the group get to see: their own statements were fine.
fn as_commit_failure(error: StoreError) -> StoreError {
    match error {
        StoreError::Stopped { .. } | StoreError::NoSpace => error,
        other => StoreError::CommitFailed {
            why: other.to_string().into(),
        },
    }
}
