//! What a backend is: something that runs work in transactions, and shows snapshots.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use jobtree_protocol::{JobId, LeaseId};
use jobtree_queue::Now;
use jobtree_queue::transitions::Changes;

use crate::answer::{Answer, Promise, promise};
use crate::backup::BackupDone;
use crate::bell::Bell;
use crate::error::StoreError;
use crate::needs::Needs;
use crate::numbers::StoreNumbers;
use crate::outbox::Waiting;
use crate::tables::{Reading, Result, Tables};

/// A database that keeps the queue.
pub trait Backend: Send + Sync {
    /// Runs the work in a transaction of its own, or a savepoint of a shared one, now or soon. It is finished when its
    /// effects are durable, or surely are not, or the store has stopped.
    fn transact(&self, work: Box<dyn Work>);

    /// Shows the work a snapshot of what is committed.
    fn snapshot(&self, query: Box<dyn Query>);

    /// Calls the listener after each commit, in the order of commits, before anybody is answered, as long as somebody
    /// holds it.
    fn listen(&self, listener: Weak<Listen>);

    /// Calls the listener when other processes that share the database tell that they wrote something. One that nobody
    /// shares has nothing to tell.
    fn hints(&self, listener: HintListener) {
        drop(listener);
    }

    /// Returns the jobs that programs submit in transactions of their own, if the store has a place for them.
    fn submissions(&self) -> Option<Box<dyn Submissions>> {
        None
    }

    /// Why the store has stopped, if it has.
    fn stopped(&self) -> Option<StoreError>;

    /// Why the store does not take changes now, if it does not: it has stopped, or the last commit failed and none went well
    /// since.
    fn trouble(&self) -> Option<StoreError> {
        self.stopped()
    }

    /// Returns `true` if no other process can have the store open while this one has.
    fn is_owned(&self) -> bool {
        false
    }

    /// Returns the leases that held when the store was opened, of workers inside the process that owned it before.
    fn orphaned_leases(&self) -> &[LeaseId] {
        &[]
    }

    /// What the writer has done since the store was opened.
    fn numbers(&self) -> StoreNumbers {
        StoreNumbers::default()
    }

    /// Copies everything into a new file, from the calling thread, while the store is in use.
    ///
    /// # Errors
    /// [`StoreError::NoBackup`]: what stood in the way, or what to use instead.
    fn backup(&self, path: &Path) -> Result<BackupDone> {
        let _ = path;
        Err(StoreError::NoBackup {
            why: "a store in memory has no file, and ends with its program; move it to a SQLite file to keep it"
                .to_owned(),
        })
    }
}

/// A command on its way through a backend.
pub trait Work: Send {
    /// Adds what it will read. Only backends that several processes share ask for it.
    fn announce(&self, needs: &mut Needs) {
        let _ = needs;
    }

    /// Runs it. The answer stays inside until [`finish`](Work::finish). It is run a second time only in a transaction whose
    /// tables [may run it again](Tables::may_run_again), if it [can be](Work::can_run_again).
    fn run(&mut self, tables: &mut dyn Tables) -> Result<()>;

    /// Returns `true` if it can be run again after a transaction that had no effect.
    fn can_run_again(&self) -> bool {
        false
    }

    /// It will be finished together with others, and then this rings. Whoever does not care is woken alone.
    fn gather(&mut self, bell: &Arc<Bell>) {
        let _ = bell;
    }

    /// Answers: with what `run` gave if it was committed. Without a `run` before, the outcome must be an error.
    fn finish(self: Box<Self>, committed: Result<()>);
}

/// A question on its way through a backend.
pub trait Query: Send {
    /// Asks and answers.
    fn ask(self: Box<Self>, tables: &mut dyn Reading);

    /// It cannot be asked.
    fn refuse(self: Box<Self>, error: StoreError);
}

/// One command's changes, after their commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// What was written, and events that are only told.
    pub changes: Changes,
    /// The time that the command was given.
    pub now: Now,
}

/// What a listener does. It must not block.
pub type Listen = dyn Fn(&[Written]) + Send + Sync;

/// Something that wants to know what was committed.
pub type Listener = Arc<Listen>;

/// Somebody listens to a store, until this is dropped. A commit that is being told at that moment may still be told.
#[must_use = "nothing is told any more when this is dropped"]
pub struct Listening(Listener);

impl Listening {
    pub(crate) fn to(backend: &dyn Backend, listener: Listener) -> Self {
        backend.listen(Arc::downgrade(&listener));
        Self(listener)
    }

    /// Listens as long as the store is open.
    pub fn forever(self) {
        std::mem::forget(self.0);
    }
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening").finish_non_exhaustive()
    }
}

/// Jobs that programs have submitted in transactions of their own, and that are not in the queue yet.
pub trait Submissions: Send {
    /// Locks the first so many, in the order in which they were written, until they are settled. What another process has
    /// locked is left out.
    ///
    /// # Errors
    /// If the database fails.
    fn lock(&mut self, most: usize) -> Result<Vec<Waiting>>;

    /// Forgets those that are in the queue, and sets aside those that the queue refused for good, with the reason.
    ///
    /// # Errors
    /// If the database fails. Then all of them are locked again later, and may be submitted again.
    fn settle(&mut self, moved: &[JobId], refused: &[(JobId, String)]) -> Result<()>;
}

/// What another process tells of what it wrote. It may tell too much, late, twice, or nothing at all: a hint says what to
/// read, and whoever hears none has to read now and then all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// These jobs have changed.
    Jobs(Vec<JobId>),
    /// Pauses or schedules have changed, or who holds a concurrency key, or a lease without jobs has ended.
    Live,
    /// A program has submitted jobs in a transaction of its own; see [`Submissions`].
    Submissions,
    /// Anything may have changed: hints may have been lost, or there were too many.
    Everything,
}

/// Something that wants to hear hints. It must not block.
pub type HintListener = Arc<dyn Fn(&Hint) + Send + Sync>;

/// All that want to hear hints.
#[cfg(feature = "postgres")]
#[derive(Default)]
pub(crate) struct HintListeners(Mutex<Vec<HintListener>>);

#[cfg(feature = "postgres")]
impl HintListeners {
    pub(crate) fn add(&self, listener: HintListener) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(listener);
    }

    pub(crate) fn tell(&self, hint: &Hint) {
        // Called without the lock: a listener may add another.
        let all = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.clone()
        };
        for listener in all {
            listener(hint);
        }
    }
}

/// All listeners of a backend.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<Vec<Weak<Listen>>>);

impl Listeners {
    pub(crate) fn add(&self, listener: Weak<Listen>) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|known| known.strong_count() > 0);
        listeners.push(listener);
    }

    pub(crate) fn tell(&self, written: &[Written]) {
        if written.is_empty() {
            return;
        }
        // Called without the lock: a listener may add another.
        let listeners = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener(written);
        }
    }
}

/// Work of a function, with what it is given.
struct Call<T, D, N, F> {
    /// Cloned for each run if there may be several.
    given: Option<D>,
    announce: N,
    work: F,
    can_run_again: bool,
    result: Option<Result<T>>,
    promise: Promise<T>,
}

/// Work of a function that runs once, and its answer.
pub(crate) fn work<T, F>(work: F) -> (Box<dyn Work>, Answer<T>)
where
    T: Send + 'static,
    F: FnOnce(&mut dyn Tables) -> Result<T> + Send + 'static,
{
    let (promise, answer) = promise();
    let call = Call {
        given: Some(Once(Some(work))),
        announce: |_: &Once<F>, _: &mut Needs| {},
        work: |tables: &mut dyn Tables, mut work: Once<F>| {
            let work = work.0.take().expect("it was not run before");
            work(tables)
        },
        can_run_again: false,
        result: None,
        promise,
    };
    (Box::new(call), answer)
}

/// A function that can be given to a [`Call`] but not be cloned: the clone is empty, and is never run.
struct Once<F>(Option<F>);

impl<F> Clone for Once<F> {
    fn clone(&self) -> Self {
        Self(None)
    }
}

/// Work of a function that may run several times, with what it is given and what it reads, and its answer.
pub(crate) fn command<T, D, N, F>(given: D, announce: N, work: F) -> (Box<dyn Work>, Answer<T>)
where
    T: Send + 'static,
    D: Clone + Send + 'static,
    N: Fn(&D, &mut Needs) + Send + 'static,
    F: FnMut(&mut dyn Tables, D) -> Result<T> + Send + 'static,
{
    let (promise, answer) = promise();
    let call = Call {
        given: Some(given),
        announce,
        work,
        can_run_again: true,
        result: None,
        promise,
    };
    (Box::new(call), answer)
}

impl<T, D, N, F> Work for Call<T, D, N, F>
where
    T: Send,
    D: Clone + Send,
    N: Fn(&D, &mut Needs) + Send,
    F: FnMut(&mut dyn Tables, D) -> Result<T> + Send,
{
    fn announce(&self, needs: &mut Needs) {
        if let Some(given) = &self.given {
            (self.announce)(given, needs);
        }
    }

    fn run(&mut self, tables: &mut dyn Tables) -> Result<()> {
        let keep = self.can_run_again && tables.may_run_again();
        let given = if keep {
            self.given.clone()
        } else {
            self.given.take()
        };
        let given = given.expect("work runs once, or keeps what it was given");
        let work = &mut self.work;
        let result = catch_unwind(AssertUnwindSafe(|| work(tables, given))).unwrap_or_else(|_| {
            Err(StoreError::Database {
                message: "a command panicked; this is a defect".to_owned(),
            })
        });
        let outcome = match &result {
            Ok(_) => Ok(()),
            Err(error) => Err(error.clone()),
        };
        self.result = Some(result);
        outcome
    }

    fn can_run_again(&self) -> bool {
        self.can_run_again
    }

    fn gather(&mut self, bell: &Arc<Bell>) {
        self.promise.gather(bell);
    }

    fn finish(self: Box<Self>, committed: Result<()>) {
        let Self {
            result, promise, ..
        } = *self;
        promise.keep(match (committed, result) {
            (Ok(()), Some(result)) => result,
            // It was refused by itself; that the others' commit failed as well says nothing new.
            (Err(_), Some(Err(own))) => Err(own),
            (Err(error), _) => Err(error),
            (Ok(()), None) => unreachable!("work runs before it is committed"),
        });
    }
}

struct Question<T, F> {
    ask: F,
    promise: Promise<T>,
}

/// A question of a function, and its answer.
pub(crate) fn question<T, F>(ask: F) -> (Box<dyn Query>, Answer<T>)
where
    T: Send + 'static,
    F: FnOnce(&mut dyn Reading) -> Result<T> + Send + 'static,
{
    let (promise, answer) = promise();
    (Box::new(Question { ask, promise }), answer)
}

impl<T, F> Query for Question<T, F>
where
    T: Send,
    F: FnOnce(&mut dyn Reading) -> Result<T> + Send,
{
    fn ask(self: Box<Self>, tables: &mut dyn Reading) {
        let Self { ask, promise } = *self;
        promise.keep(ask(tables));
    }

    fn refuse(self: Box<Self>, error: StoreError) {
        self.promise.keep(Err(error));
    }
}
