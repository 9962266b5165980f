//! What a job's body waits for, as a dump shows it: one word that the body's thread writes and anybody
//! may read.

use std::fmt;

use crate::error::JobId;

/// What a body waits for.
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
        }
    }

    pub(crate) fn decode(word: u64) -> Option<WaitingFor> {
        match word >> ID_BITS {
            1 => Some(WaitingFor::Job(JobId(word & ((1 << ID_BITS) - 1)))),
            2 => Some(WaitingFor::Children),
            3 => Some(WaitingFor::Time),
            4 => Some(WaitingFor::Future),
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
        ] {
            assert_eq!(WaitingFor::decode(WaitingFor::encode(waiting)), waiting);
        }
    }
}
