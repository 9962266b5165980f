//! What the simulated processes leave for the job that drives the simulation, which alone owns its world.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jobtree_protocol::{
    ApiError, ClaimAnswer, ClaimRequest, CompleteManyAnswer, CompleteManyRequest,
    HeartbeatManyAnswer, HeartbeatManyRequest, JobId, LeaseId, LogAppend, LogAppendAnswer,
    ReleaseRequest,
};
use jobtree_worker::reply::{Promise, Promised, promise};

/// A process and its life: a process that was started again is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessId {
    pub(super) place: usize,
    pub(super) life: u64,
}

/// Something that a process did.
pub(super) enum Mail {
    /// It calls its scheduler.
    Call(ProcessId, Ask),
    /// It does not wait for its claim any more, which had been answered with these leases or not.
    Left(ProcessId, Vec<LeaseId>),
    /// A job has taken it down.
    Crash(ProcessId),
}

/// A call of a worker, with the place for its answer.
#[derive(Debug)]
pub(in super::super) enum Ask {
    /// A claim, which goes to the scheduler's core.
    Claim(ClaimRequest, Place<Vec<ClaimAnswer>>),
    /// A call that goes to the store.
    Command(Command),
}

/// A call of a worker that the store answers, with the place for its answer.
#[derive(Debug)]
pub(in super::super) enum Command {
    Beat(HeartbeatManyRequest, Place<HeartbeatManyAnswer>),
    Complete(CompleteManyRequest, Place<CompleteManyAnswer>),
    Release(LeaseId, ReleaseRequest, Place<()>),
    Log(JobId, LogAppend, Place<LogAppendAnswer>),
}

impl Ask {
    /// Ends the call with an error, unless it has ended.
    pub(super) fn refuse(&self, error: ApiError) {
        match self {
            Ask::Claim(_, place) => drop(place.put(Err(error))),
            Ask::Command(command) => command.refuse(error),
        }
    }

    /// The same call, whose answer goes to the same place.
    pub(super) fn again(&self) -> Ask {
        match self {
            Ask::Claim(request, place) => Ask::Claim(request.clone(), place.clone()),
            Ask::Command(command) => Ask::Command(command.again()),
        }
    }
}

impl Command {
    fn refuse(&self, error: ApiError) {
        match self {
            Command::Beat(_, place) => drop(place.put(Err(error))),
            Command::Complete(_, place) => drop(place.put(Err(error))),
            Command::Release(_, _, place) => drop(place.put(Err(error))),
            Command::Log(_, _, place) => drop(place.put(Err(error))),
        }
    }

    /// The same call, whose answer goes to the same place.
    pub(super) fn again(&self) -> Command {
        match self {
            Command::Beat(request, place) => Command::Beat(request.clone(), place.clone()),
            Command::Complete(request, place) => Command::Complete(request.clone(), place.clone()),
            Command::Release(lease, request, place) => {
                Command::Release(*lease, request.clone(), place.clone())
            }
            Command::Log(job, append, place) => Command::Log(*job, append.clone(), place.clone()),
        }
    }
}

/// The place for the answer to one call: the first answer counts.
pub(in super::super) struct Place<T>(Arc<Mutex<Option<Promise<T>>>>);

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        Place(Arc::clone(&self.0))
    }
}

impl<T> std::fmt::Debug for Place<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// The fate of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Put<T> {
    /// Its caller has it.
    Taken,
    /// Its caller had another one before.
    TooLate,
    /// Its caller has gone.
    Gone(T),
}

impl<T: Send + 'static> Place<T> {
    pub(super) fn new() -> (Self, Promised<T>) {
        let (promise, promised) = promise();
        (Place(Arc::new(Mutex::new(Some(promise)))), promised)
    }
}

impl<T> Place<T> {
    /// Answers.
    pub(super) fn put(&self, answer: Result<T, ApiError>) -> Put<Result<T, ApiError>> {
        let promise = lock(&self.0).take();
        match promise.map(|promise| promise.keep(answer)) {
            None => Put::TooLate,
            Some(Ok(())) => Put::Taken,
            Some(Err(answer)) => Put::Gone(answer),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Mailbox(Mutex<State>);

#[derive(Default)]
struct State {
    mail: Vec<Mail>,
    /// Of the job that waits for mail.
    waiting: Option<Promise<()>>,
}

impl Mailbox {
    pub(super) fn push(&self, mail: Mail) {
        let waiting = {
            let mut state = lock(&self.0);
            state.mail.push(mail);
            state.waiting.take()
        };
        tell(waiting);
    }

    /// Takes what there is.
    pub(super) fn take(&self) -> Vec<Mail> {
        std::mem::take(&mut lock(&self.0).mail)
    }

    /// Ready when there is something.
    pub(super) fn came(&self) -> Promised<()> {
        let (promise, promised) = promise();
        let ready = {
            let mut state = lock(&self.0);
            match state.mail.is_empty() {
                true => state.waiting.replace(promise),
                false => Some(promise),
            }
        };
        tell(ready);
        promised
    }
}

/// Not under the lock: it wakes the waiting job.
fn tell(waiting: Option<Promise<()>>) {
    if let Some(waiting) = waiting {
        // The job may wait no longer.
        let _ = waiting.keep(Ok(()));
    }
}
