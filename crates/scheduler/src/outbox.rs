//! Jobs that are submitted in a transaction of the user's own database: written there, and moved into the queue by a
//! relay. What makes that safe stands at [`jobtree_store::outbox`].
//!
//! The relay repeats until its row is gone: a crash at any place leaves either the row (then the job is submitted again
//! under its id, and is the same job) or the job. Its time alone is not bounded: while no relay runs, jobs wait in the
//! outbox.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jobtree_protocol::{ApiError, Each, ErrorCode, JobId, SubmitManyRequest};
use jobtree_store::outbox::rusqlite::{self, Connection, Transaction};
use jobtree_store::outbox::{self, Waiting};

use crate::Scheduler;
use crate::durable::{NewJob, Queue};

/// How many are moved in one go.
pub(crate) const AT_ONCE: usize = 500;

impl Queue {
    /// Writes a job into the outbox of the user's own database, in the user's transaction: it is submitted if and when
    /// that is committed. A [relay](Queue::relay) moves it into the queue, under the id that is returned.
    ///
    /// ```
    /// use std::time::Duration;
    /// use jobtree_scheduler::durable::{NewJob, Queue};
    /// use jobtree_store::outbox::{prepare, rusqlite::Connection};
    ///
    /// let queue = Queue::in_memory();
    /// let mut shop = Connection::open_in_memory()?;
    /// prepare(&shop)?;
    /// shop.execute_batch("CREATE TABLE orders (item TEXT)")?;
    ///
    /// let transaction = shop.transaction()?;
    /// transaction.execute("INSERT INTO orders VALUES ('a book')", [])?;
    /// let job = queue.enqueue_in(&transaction, NewJob::new("invoice", "a book"))?;
    /// transaction.commit()?;
    ///
    /// queue.relay_once(&mut shop)?;
    /// assert_eq!(queue.job(job).wait()?.job_type.as_str(), "invoice");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the job would be refused, or the database fails. The transaction is the caller's to roll back.
    pub fn enqueue_in(
        &self,
        transaction: &Transaction<'_>,
        job: NewJob,
    ) -> Result<JobId, OutboxError> {
        let request = job
            .into_request(self.addon())
            .map_err(OutboxError::Refused)?;
        // Now, while somebody can still mend it, and not when it is moved.
        let limits = &self.scheduler().options().limits;
        if let Err(fields) = request.clone().validate(limits) {
            return Err(OutboxError::Refused(ApiError::invalid(fields)));
        }
        Ok(outbox::write(transaction, &request)?)
    }

    /// Moves what waits in an outbox, until nothing does.
    ///
    /// # Errors
    /// If the database or the queue fails; what was not moved waits for the next time.
    pub fn relay_once(&self, outbox: &mut Connection) -> Result<Relayed, OutboxError> {
        let mut all = Relayed::default();
        loop {
            let waiting = outbox::waiting(outbox, AT_ONCE)?;
            if waiting.is_empty() {
                return Ok(all);
            }
            let some = forward(self.scheduler(), waiting)?;
            settle(outbox, &some)?;
            all.moved.extend(some.moved);
            all.refused.extend(some.refused);
        }
    }

    /// Moves what comes into an outbox, from a thread of its own that looks for it at intervals, until the relay is
    /// dropped. The connection is the relay's own.
    ///
    /// # Errors
    /// If the table cannot be made, or there is no thread to be had.
    pub fn relay(&self, mut outbox: Connection, every: Duration) -> Result<Relay, OutboxError> {
        outbox::prepare(&outbox)?;
        let shared = Arc::<RelayShared>::default();
        let (inside, queue) = (Arc::clone(&shared), self.clone());
        let thread = std::thread::Builder::new().name("jobtree-relay".to_owned());
        let thread = thread.spawn(move || inside.run(&queue, &mut outbox, every));
        Ok(Relay {
            shared,
            thread: Some(thread.map_err(OutboxError::Thread)?),
        })
    }
}

/// What was moved, and what was set aside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Relayed {
    /// In the queue.
    pub moved: Vec<JobId>,
    /// Refused by the queue for good: set aside in the outbox, with the reason.
    pub refused: Vec<(JobId, String)>,
}

/// Submits what waits: when this returns, `moved` is durable in the queue.
pub(crate) fn forward(
    scheduler: &Scheduler,
    waiting: Vec<Waiting>,
) -> Result<Relayed, OutboxError> {
    let mut relayed = Relayed::default();
    let (mut ids, mut jobs) = (Vec::new(), Vec::new());
    for Waiting { id, request } in waiting {
        match request {
            Ok(request) => {
                ids.push(id);
                jobs.push(request);
            }
            Err(why) => relayed.refused.push((id, format!("cannot be read: {why}"))),
        }
    }
    let answers = scheduler.submit_many(SubmitManyRequest { jobs }).wait();
    let answers = answers.map_err(OutboxError::Queue)?.jobs;
    for (id, answer) in ids.into_iter().zip(answers) {
        match answer {
            Each::Done(_) => relayed.moved.push(id),
            Each::Refused { error } => match error.code {
                ErrorCode::Unavailable | ErrorCode::NotNow => {
                    return Err(OutboxError::Queue(error));
                }
                _ => relayed.refused.push((id, error.message)),
            },
        }
    }
    Ok(relayed)
}

/// Takes what was moved out of the outbox, and sets aside what was refused.
fn settle(outbox: &mut Connection, relayed: &Relayed) -> Result<(), OutboxError> {
    outbox::forget(outbox, &relayed.moved)?;
    for (id, reason) in &relayed.refused {
        outbox::refuse(outbox, *id, reason)?;
    }
    Ok(())
}

/// Moves jobs from an outbox into a queue until it is dropped; see [`Queue::relay`].
#[derive(Debug)]
#[must_use = "dropped, it moves nothing any more"]
pub struct Relay {
    shared: Arc<RelayShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct RelayShared {
    state: Mutex<RelayState>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct RelayState {
    stopped: bool,
    nudged: bool,
    error: Option<String>,
}

impl Relay {
    /// Looks now: for whoever has just committed.
    pub fn nudge(&self) {
        self.shared.change(|state| state.nudged = true);
    }

    /// What went wrong last, if it has not gone right since.
    pub fn error(&self) -> Option<String> {
        self.shared.change(|state| state.error.clone())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.change(|state| state.stopped = true);
        if let Some(thread) = self.thread.take() {
            // It only moves: a panic there has been printed, and is nothing to pass on from here.
            let _ = thread.join();
        }
    }
}

impl RelayShared {
    fn change<T>(&self, change: impl FnOnce(&mut RelayState) -> T) -> T {
        let changed = change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.notify_all();
        changed
    }

    fn run(&self, queue: &Queue, outbox: &mut Connection, every: Duration) {
        loop {
            let error = queue.relay_once(outbox).err();
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.error = error.map(|error| error.to_string());
            let idle = |state: &mut RelayState| !state.stopped && !state.nudged;
            let waited = self.bell.wait_timeout_while(state, every, idle);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.nudged = false;
            if state.stopped {
                return;
            }
        }
    }
}

/// Why a job was not written down or not moved.
#[derive(Debug)]
#[non_exhaustive]
pub enum OutboxError {
    /// The job would be refused.
    Refused(ApiError),
    /// The user's database failed.
    Database(rusqlite::Error),
    /// The queue failed.
    Queue(ApiError),
    /// There is no thread to be had.
    Thread(std::io::Error),
}

impl From<rusqlite::Error> for OutboxError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl fmt::Display for OutboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "the queue would refuse the job: {error}"),
            Self::Database(error) => write!(f, "the outbox's database failed: {error}"),
            Self::Queue(error) => write!(f, "the queue did not take the jobs; they wait: {error}"),
            Self::Thread(error) => write!(f, "no thread for the relay: {error}"),
        }
    }
}

impl std::error::Error for OutboxError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(error) | Self::Queue(error) => Some(error),
            Self::Database(error) => Some(error),
            Self::Thread(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests;
