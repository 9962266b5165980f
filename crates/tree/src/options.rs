//! The options of a job, given before it exists.

use std::borrow::Cow;
use std::fmt;
use std::time::Instant;

use crate::locals::{JobLocal, Locals};
use crate::node::Node;
use crate::side::Side;
use crate::word::Beginning;

/// Makes a job's values of those that it inherits.
type ExtendLocals = dyn FnOnce(&Locals) -> Locals + Send;

/// The options with which a job is made.
///
/// ```
/// use jobtree_tree::JobOptions;
///
/// let options = JobOptions::new().label("fetch").supervisor();
/// ```
#[derive(Default)]
pub struct JobOptions {
    beginning: Beginning,
    label: Option<Cow<'static, str>>,
    deadline: Option<Instant>,
    locals: Option<Box<ExtendLocals>>,
}

impl JobOptions {
    /// A plain job without a name.
    #[inline]
    pub fn new() -> JobOptions {
        JobOptions::default()
    }

    /// Sets the name that reports and dumps use.
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> JobOptions {
        self.label = Some(label.into());
        self
    }

    /// A child that fails does not fail this job, nor cancel its other children.
    pub fn supervisor(mut self) -> JobOptions {
        self.beginning = self.beginning.and(Beginning::SUPERVISOR);
        self
    }

    /// Cancelling a job above does not cancel this one.
    pub fn shielded(mut self) -> JobOptions {
        self.beginning = self.beginning.and(Beginning::SHIELDED);
        self
    }

    /// The code that makes the job waits for it and gets its outcome; the parent is not told of a failure.
    pub fn contained(mut self) -> JobOptions {
        self.beginning = self.beginning.and(Beginning::CONTAINED);
        self
    }

    /// Says that the job's body is running already.
    pub fn started(mut self) -> JobOptions {
        self.beginning = self.beginning.and(Beginning::STARTED);
        self
    }

    /// Sets the job's deadline. The layer that runs the job has to enforce it; here it is only shown.
    pub fn deadline(mut self, deadline: Instant) -> JobOptions {
        self.deadline = Some(deadline);
        self
    }

    /// A value that it and all jobs below it inherit.
    pub fn local<T: Send + Sync + 'static>(
        mut self,
        key: &'static JobLocal<T>,
        value: T,
    ) -> JobOptions {
        let before = self.locals.take();
        self.locals = Some(Box::new(move |inherited| match before {
            Some(before) => before(inherited).with(key, value),
            None => inherited.with(key, value),
        }));
        self
    }

    #[inline(always)]
    pub(crate) fn into_parts(self, parent: &Node) -> (Beginning, Option<Box<Side>>, Locals) {
        let side = if self.label.is_some() || self.deadline.is_some() {
            Some(Box::new(Side {
                label: self.label,
                deadline: self.deadline,
                ..Side::default()
            }))
        } else {
            None
        };
        let locals = match self.locals {
            Some(locals) => locals(&parent.locals),
            None => parent.locals.clone(),
        };
        (self.beginning, side, locals)
    }
}

impl fmt::Debug for JobOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobOptions")
            .field("label", &self.label)
            .field("beginning", &self.beginning)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The job has ended, so nothing can be attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentEnded;

impl fmt::Display for ParentEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the job has ended, so no child can be attached to it; attach it to a job that still runs",
        )
    }
}

impl std::error::Error for ParentEnded {}
