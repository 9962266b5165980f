//! One waiting job, and where it is.

use jiff::Timestamp;

use super::group::{AddonIndex, GroupId};
use crate::candidate::Candidate;

#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) candidate: Candidate,
    pub(crate) addon: AddonIndex,
    /// In `delayed`, at this time.
    pub(crate) delayed: Option<Timestamp>,
    /// In this group.
    pub(crate) group: Option<GroupId>,
    /// In `stages`, at this time.
    pub(crate) stage: Option<Timestamp>,
    /// In `risks`, at this time.
    pub(crate) risk: Option<Timestamp>,
    /// Starts before its time; only while an explanation is made.
    pub(crate) hurried: bool,
}

impl Waiting {
    pub(crate) fn new(candidate: Candidate, addon: AddonIndex, risk: Option<Timestamp>) -> Waiting {
        Waiting {
            candidate,
            addon,
            delayed: None,
            group: None,
            stage: None,
            risk,
            hurried: false,
        }
    }
}
