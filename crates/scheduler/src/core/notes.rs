//! What is remembered across restarts beside jobs: this machine's hours of quiet, and how long jobs take.

use jobtree_protocol::{AddonId, JobType, Json};
use jobtree_queue::estimate::WeeklyProfile;
use jobtree_queue::history::Record;

/// All names begin so.
pub(super) const PREFIX: &str = "learnt/";

/// Where the profile of a node is.
pub(super) fn profile_name(node: &str) -> String {
    format!("{PREFIX}quiet/{node}")
}

/// Where a type's record is.
pub(super) fn record_name(addon: &AddonId, job_type: &JobType) -> String {
    // Names hold no slash.
    format!("{PREFIX}runs/{addon}/{job_type}")
}

/// One of them.
pub(super) enum Note {
    /// Of this node.
    Profile(WeeklyProfile),
    /// Of a type.
    Record(AddonId, JobType, Record),
}

/// Reads a note; none if it is another node's, or of a version that is not known.
pub(super) fn read(name: &str, value: &Json, node: &str) -> Option<Note> {
    let rest = name.strip_prefix(PREFIX)?;
    if rest.strip_prefix("quiet/").is_some_and(|it| it == node) {
        return value.read().ok().map(Note::Profile);
    }
    let (addon, job_type) = rest.strip_prefix("runs/")?.split_once('/')?;
    let (addon, job_type) = (AddonId::new(addon).ok()?, JobType::new(job_type).ok()?);
    let record = value.read().ok()?;
    Some(Note::Record(addon, job_type, record))
}
