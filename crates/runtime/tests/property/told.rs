//! An error as a job tells it, with jobs called by their numbers in the program: what the model expects and
//! what the real tree says become values that can be compared.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;

use jobtree_runtime::{Cancelled, JobError, JobId};

/// A job's number in the program.
pub type Id = usize;

/// Stands for a job that the program does not know, which is always a mistake.
pub const UNKNOWN: Id = usize::MAX;

/// An error and what came after it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Told {
    pub what: What,
    /// Those that are kept.
    pub later: Vec<Told>,
    /// How many came, kept or not.
    pub more: usize,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// A body returned an error of its own.
    Error(u32),
    /// A body panicked.
    Panic(u32),
    /// The time of a job was over.
    TimedOut(Id),
    /// A job was cancelled because of a request at `origin`.
    Cancelled { job: Id, origin: Id },
    /// A body returned an error that it had been told.
    Passed(Box<Told>),
    /// A body returned an error of its own, behind which lies one that it had been told.
    Layered(Box<Told>),
}

impl Told {
    pub fn new(what: What) -> Told {
        Told {
            what,
            later: Vec::new(),
            more: 0,
        }
    }

    /// What a body that returns it fails with: the error of another job stays that job's, unless it was cancelled.
    pub fn unless_passed_on(self) -> Told {
        match self.what {
            What::Passed(inner) if !matches!(inner.what, What::Cancelled { .. }) => *inner,
            _ => self,
        }
    }

    /// Whether it is, or was caused by, a cancellation that began at `origin`.
    pub fn comes_from_cancellation(&self, origin: Id) -> bool {
        match &self.what {
            What::Cancelled { origin: own, .. } => *own == origin,
            What::Passed(inner) | What::Layered(inner) => inner.comes_from_cancellation(origin),
            What::Error(_) | What::Panic(_) | What::TimedOut(_) => false,
        }
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Error(number) => write!(f, "error {number}"),
            What::Panic(number) => write!(f, "panic {number}"),
            What::TimedOut(job) => write!(f, "timeout of {job}"),
            What::Cancelled { job, origin } => write!(f, "cancellation of {job} from {origin}"),
            What::Passed(inner) => write!(f, "({inner:?}) passed on"),
            What::Layered(inner) => write!(f, "({inner:?}) behind another"),
        }?;
        if self.more > 0 {
            write!(f, " and {} more: {:?}", self.more, self.later)?;
        }
        Ok(())
    }
}

/// An error that a body returns of its own accord.
#[derive(Debug)]
pub struct Planned(pub u32);

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "planned error {}", self.0)
    }
}

impl Error for Planned {}

/// An error around another one, as libraries make them.
#[derive(Debug)]
pub struct Layered(pub JobError);

impl fmt::Display for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a layer around an error")
    }
}

impl Error for Layered {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// What planned panics say; the number follows.
pub const PANIC_TEXT: &str = "planned panic ";

/// Which number a real job has in the program.
#[derive(Default)]
pub struct Numbers(HashMap<JobId, Id>);

impl Numbers {
    pub fn learn(&mut self, real: JobId, number: Id) {
        self.0.entry(real).or_insert(number);
    }

    pub fn of(&self, real: JobId) -> Id {
        self.0.get(&real).copied().unwrap_or(UNKNOWN)
    }

    pub fn told(&self, error: &JobError) -> Told {
        let what = match error {
            JobError::Failed(failure) => self.returned(failure.error()),
            JobError::Panicked(panic) => What::Panic(panic_number(panic.message())),
            JobError::TimedOut(timed_out) => What::TimedOut(self.of(timed_out.job())),
            JobError::Cancelled(cancelled) => self.cancelled(cancelled),
            other => unreachable!("a kind of error that the model does not know: {other:?}"),
        };
        Told {
            what,
            later: error.secondary().iter().map(|e| self.told(e)).collect(),
            more: error.more(),
        }
    }

    fn cancelled(&self, cancelled: &Cancelled) -> What {
        What::Cancelled {
            job: self.of(cancelled.job()),
            origin: self.of(cancelled.origin()),
        }
    }

    fn returned(&self, error: &(dyn Error + 'static)) -> What {
        if let Some(Planned(number)) = error.downcast_ref() {
            return What::Error(*number);
        }
        if let Some(Layered(inner)) = error.downcast_ref() {
            return What::Layered(Box::new(self.told(inner)));
        }
        if let Some(inner) = error.downcast_ref::<JobError>() {
            return What::Passed(Box::new(self.told(inner)));
        }
        match error.downcast_ref::<Cancelled>() {
            Some(inner) => What::Passed(Box::new(Told::new(self.cancelled(inner)))),
            None => unreachable!("no body returned such an error: {error:?}"),
        }
    }
}

fn panic_number(message: &str) -> u32 {
    message
        .strip_prefix(PANIC_TEXT)
        .and_then(|number| number.parse().ok())
        .unwrap_or(u32::MAX)
}
