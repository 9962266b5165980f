//! What was decided last, and counts since the start: for people and for metrics.

use std::collections::VecDeque;

use jobtree_protocol::Decision;
use jobtree_queue::transitions::Changes;

use super::stats::Stats;

/// The number of decisions that are remembered.
const DECISIONS: usize = 1000;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// The newest first.
    decisions: VecDeque<Decision>,
    stats: Stats,
}

impl Journal {
    pub(super) fn remember(&mut self, decision: Decision) {
        if self.decisions.len() == DECISIONS {
            self.decisions.pop_back();
        }
        self.decisions.push_front(decision);
    }

    pub(super) fn decisions(&self, limit: usize) -> Vec<Decision> {
        self.decisions.iter().take(limit).cloned().collect()
    }

    pub(super) fn committed(&mut self, changes: &Changes) {
        for event in &changes.events {
            self.stats.add_event(event.kind);
        }
        for job in &changes.jobs {
            self.stats.add_job(job);
        }
    }

    pub(super) fn count_denial(&mut self, code: &str) {
        *self.stats.denials.entry(code.to_owned()).or_default() += 1;
    }

    pub(super) fn count_lost_proposal(&mut self) {
        self.stats.lost_proposals += 1;
    }

    pub(super) fn count_store_failure(&mut self) {
        self.stats.store_failures += 1;
    }

    pub(super) fn count_reading(&mut self) {
        self.stats.reads += 1;
    }

    pub(super) fn stats(&self) -> &Stats {
        &self.stats
    }
}
