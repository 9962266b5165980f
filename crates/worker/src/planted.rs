//! Mistakes that can be switched on in the worker, to show that the simulator finds them.

/// A mistake of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(not(feature = "sim"), allow(dead_code))]
pub enum Bug {
    /// A job is not stopped when its lease may have ended.
    NoFence,
    /// A lease is counted from the answer to its renewal, and not from when that was asked for.
    CountsFromAnswer,
    /// A lease is not renewed while a job of it runs.
    NoHeartbeats,
    /// A completion whose answer was lost is not told again.
    DropsUnanswered,
    /// Jobs that were given back are begun all the same.
    BeginsGivenBack,
}

/// The mistake that is switched on; none outside of simulations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted(Option<Bug>);

impl Planted {
    #[cfg(feature = "sim")]
    pub(crate) fn new(bug: Bug) -> Self {
        Planted(Some(bug))
    }

    pub(crate) fn has(self, bug: Bug) -> bool {
        cfg!(feature = "sim") && self.0 == Some(bug)
    }
}
