//! The states of this machine, kept across restarts: a cool-down and a streak go on where they were.
//!
//! A small note under the node's name is written when the state changes, and each minute.

use std::time::Duration;

use jobtree_protocol::Json;
use jobtree_queue::quiet::QuietRecord;

use super::learning;
use super::operations::PutNote;
use super::places::Places;
use super::turn::Turn;

/// The interval at which the note is written while the machine is measured.
const EVERY: Duration = Duration::from_secs(60);

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct LoadRecord {
    /// When the note is written next; none until the machine is measured.
    next: Option<Duration>,
}

impl LoadRecord {
    /// The machine was measured.
    pub(super) fn sampled(&mut self, now: Duration) {
        self.next.get_or_insert(now + EVERY);
    }

    /// The state of the machine has changed.
    pub(super) fn changed(&mut self, now: Duration) {
        self.next = Some(now);
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Writes the note, if it is time.
    pub(super) fn write(&mut self, places: &Places, turn: &mut Turn) {
        let now = turn.now;
        if self.next.is_none_or(|next| next > now.mono) {
            return;
        }
        self.next = None;
        let record = places.planner().admission().quiet().record(now);
        if let Some(Ok(value)) = record.as_ref().map(Json::of) {
            let name = name_of(turn.config.node.as_str());
            turn.ask(PutNote {
                name,
                value: Some(value),
            });
        }
    }
}

/// Returns the record of this node among the notes; none if a version wrote it that is not known.
pub(super) fn find(notes: &[(String, Json)], node: &str) -> Option<QuietRecord> {
    let name = name_of(node);
    let (_, value) = notes.iter().find(|(found, _)| *found == name)?;
    value.read().ok()
}

fn name_of(node: &str) -> String {
    format!("{}load/{node}", learning::PREFIX)
}
