//! The thing that a job's body waits for, as a dump shows it: one word that the body's thread writes and any thread may read.

use std::fmt;

use crate::error::JobId;

/// The thing that a body waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitingFor {
    /// The end of another job.
    Job(JobId),
    /// The end of its own children.
    Children,
    /// A point in time.
    Time,
    /// A future of somebody else's.
    Future,
    /// Room in a channel, or something to receive.
    Channel,
    /// A lock or a permit.
    Lock,
    /// One of several things.
    Select,
    /// A budget that is used up.
    Budget,
    /// A notification, or others at a barrier.
    Notification,
}

const ID_BITS: u32 = 56;

impl WaitingFor {
    pub(crate) fn encode(waiting: Option<WaitingFor>) -> u64 {
        let kind = |kind: u64| kind << ID_BITS;
        match waiting {
            None => 0,
            Some(WaitingFor::Job(id)) => kind(1) | (id.as_u64() & ((1 << ID_BITS) - 1)),
            Some(WaitingFor::Children) => kind(2),
            Some(WaitingFor::Time) => kind(3),
            Some(WaitingFor::Future) => kind(4),
            Some(WaitingFor::Channel) => kind(5),
            Some(WaitingFor::Lock) => kind(6),
            Some(WaitingFor::Select) => kind(7),
            Some(WaitingFor::Budget) => kind(8),
            Some(WaitingFor::Notification) => kind(9),
        }
    }

    pub(crate) fn decode(word: u64) -> Option<WaitingFor> {
        match word >> ID_BITS {
            1 => Some(WaitingFor::Job(JobId(word & ((1 << ID_BITS) - 1)))),
            2 => Some(WaitingFor::Children),
            3 => Some(WaitingFor::Time),
            4 => Some(WaitingFor::Future),
            5 => Some(WaitingFor::Channel),
            6 => Some(WaitingFor::Lock),
            7 => Some(WaitingFor::Select),
            8 => Some(WaitingFor::Budget),
            9 => Some(WaitingFor::Notification),
            _ => None,
        }
    }
}

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitingFor::Job(id) => write!(f, "job {id}"),
            WaitingFor::Children => f.write_str("its children"),
            WaitingFor::Time => f.write_str("a time"),
            WaitingFor::Future => f.write_str("a future"),
            WaitingFor::Channel => f.write_str("a channel"),
            WaitingFor::Lock => f.write_str("a lock"),
            WaitingFor::Select => f.write_str("one of several things"),
            WaitingFor::Budget => f.write_str("a new budget"),
            WaitingFor::Notification => f.write_str("a notification"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for waiting in [
            None,
            Some(WaitingFor::Job(JobId(123))),
            Some(WaitingFor::Children),
            Some(WaitingFor::Time),
            Some(WaitingFor::Future),
            Some(WaitingFor::Channel),
            Some(WaitingFor::Lock),
            Some(WaitingFor::Select),
            Some(WaitingFor::Budget),
            Some(WaitingFor::Notification),
        ] {
            assert_eq!(WaitingFor::decode(WaitingFor::encode(waiting)), waiting);
        }
    }
}
