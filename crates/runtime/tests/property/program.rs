//! What a program can do, step by step.

use jobtree_runtime::Cause;

use crate::model::{Awaited, Nature};
use crate::told::Id;

/// One operation, by the body of a job (named by the job whose body it is, its *strand*) or from outside of the tree.
#[derive(Clone, Debug)]
pub enum Op {
    /// From outside: a new job under the root.
    Detach { child: Id },
    /// By a body: the same.
    DetachBy { strand: Id, child: Id },
    /// A new job in the innermost nursery around the code; perhaps asked to end before it could begin.
    Spawn {
        strand: Id,
        child: Id,
        how: How,
        then_cancel: Option<Why>,
    },
    /// A scope inside of the body.
    Open {
        strand: Id,
        scope: Id,
        kind: ScopeKind,
    },
    /// Waits for a job; with `or_return` as `handle.join()?`.
    Join {
        strand: Id,
        target: Id,
        or_return: bool,
    },
    /// `checkpoint()?`.
    Check { strand: Id },
    /// Leaves the innermost scope, or the body.
    Return { strand: Id, ending: Ending },
    /// By a body: asks any job to end.
    CancelBy { strand: Id, job: Id, why: Why },
    /// From outside: the same.
    Cancel { job: Id, why: Why },
    /// From outside: begins to wait.
    Wait {
        waiter: usize,
        job: Id,
        awaited: Awaited,
    },
    /// The waiter polls again, with another waker.
    Renew { waiter: usize },
    /// The waiter goes away.
    StopWaiting { waiter: usize },
    /// Nobody will take the job's value.
    DropHandle { job: Id },
}

/// How a job is spawned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Plain,
    Supervisor,
    /// With a time limit that is far away.
    Limited,
    /// Without a handle.
    Launched,
}

/// What kind of scope is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeKind {
    Nursery,
    Supervisor,
    Shield,
    Limit,
    Local,
}

impl ScopeKind {
    pub fn has_children(self) -> bool {
        matches!(self, ScopeKind::Nursery | ScopeKind::Supervisor)
    }

    pub fn nature(self) -> Nature {
        Nature {
            supervisor: self == ScopeKind::Supervisor,
            shielded: self == ScopeKind::Shield,
            contained: true,
        }
    }
}

/// How a scope or a body is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Value,
    Error(u32),
    Panic(u32),
    /// `?` with the error that a join or a scope gave.
    Held {
        layered: bool,
    },
}

/// Why a job is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    Said(u32),
    Unsaid,
    Timeout,
    Shutdown,
}

impl Why {
    pub fn cause(self) -> Cause {
        match self {
            Why::Said(_) | Why::Unsaid => Cause::Explicit,
            Why::Timeout => Cause::Timeout,
            Why::Shutdown => Cause::Shutdown,
        }
    }

    pub fn message(self) -> Option<u32> {
        match self {
            Why::Said(number) => Some(number),
            Why::Unsaid | Why::Timeout | Why::Shutdown => None,
        }
    }
}

impl Op {
    /// The body that does it; `None` from outside.
    pub fn strand(&self) -> Option<Id> {
        match *self {
            Op::DetachBy { strand, .. }
            | Op::Spawn { strand, .. }
            | Op::Open { strand, .. }
            | Op::Join { strand, .. }
            | Op::Check { strand }
            | Op::Return { strand, .. }
            | Op::CancelBy { strand, .. } => Some(strand),
            Op::Detach { .. }
            | Op::Cancel { .. }
            | Op::Wait { .. }
            | Op::Renew { .. }
            | Op::StopWaiting { .. }
            | Op::DropHandle { .. } => None,
        }
    }

    /// The job whose handle it takes.
    pub fn takes_handle(&self) -> Option<Id> {
        match *self {
            Op::Join { target, .. } => Some(target),
            Op::DropHandle { job }
            | Op::Wait {
                job,
                awaited: Awaited::Outcome,
                ..
            } => Some(job),
            _ => None,
        }
    }
}

/// Operations that are begun at the same time: one, or two.
pub type Step = Vec<Op>;
