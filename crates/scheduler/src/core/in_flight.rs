//! Operations of the store that are under way.
//!
//! An operation that fails is asked for again with the same ids, after a pause that doubles; see the protocol in `core`.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

#[cfg(feature = "sim")]
use jobtree_protocol::JobId;
use jobtree_protocol::ScheduleId;

use super::operations::{Op, OpId, Reading};
use super::rng::Rng;

/// The first pause before an operation is asked for again.
pub(super) const FIRST_REPEAT: Duration = Duration::from_millis(50);
/// The longest.
const LAST_REPEAT: Duration = Duration::from_secs(5);

/// All operations under way.
// What is iterated is ordered: a run must not depend on how a table is hashed.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    next: OpId,
    all: BTreeMap<OpId, Entry>,
    /// Of them, those that read jobs or leases: there are few.
    readings: BTreeMap<OpId, Reading>,
    reservations: usize,
}

/// What is remembered of an operation while it is under way.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    failures: u32,
    /// The number of commits that had been seen when it began.
    pub(super) commits_seen: u64,
    /// The name that the next operation had when it began: its own, or a later one if it was repeated.
    begun: OpId,
    fires: Option<ScheduleId>,
    reserves: bool,
    reads: bool,
    /// When it is asked for again, and what, if it failed.
    repeat: Option<(Duration, Op)>,
}

impl Entry {
    /// Returns `true` if the operation reads jobs or leases.
    pub(super) fn reads(&self) -> bool {
        self.reads
    }

    /// Returns `true` if an answer to the operation was lost: it may have taken effect, and be refused when it is repeated.
    pub(super) fn may_have_happened(&self) -> bool {
        self.failures > 0
    }
}

impl InFlight {
    /// Returns the name of the next operation.
    pub(super) fn next_id(&self) -> OpId {
        self.next
    }

    pub(super) fn begin(&mut self, op: &Op, commits_seen: u64) -> OpId {
        let id = self.next;
        self.next += 1;
        let entry = Entry {
            failures: 0,
            commits_seen,
            begun: id,
            fires: op.fires(),
            reserves: matches!(op, Op::Reserve(_)),
            reads: op.reading().is_some(),
            repeat: None,
        };
        if let Some(reading) = op.reading() {
            self.readings.insert(id, reading);
        }
        self.reservations += usize::from(entry.reserves);
        self.all.insert(id, entry);
        id
    }

    /// Takes an operation out that was answered; none if it was answered before.
    pub(super) fn end(&mut self, id: OpId) -> Option<Entry> {
        let entry = self.all.remove(&id)?;
        self.readings.remove(&id);
        self.reservations -= usize::from(entry.reserves);
        Some(entry)
    }

    /// Puts an operation back that failed, to be asked for again.
    pub(super) fn repeat_later(
        &mut self,
        id: OpId,
        mut entry: Entry,
        op: Op,
        rng: &mut Rng,
        now: Duration,
    ) {
        let pause = FIRST_REPEAT * 2_u32.saturating_pow(entry.failures.min(16));
        entry.failures += 1;
        if let Some(reading) = op.reading() {
            self.readings.insert(id, reading);
        }
        self.reservations += usize::from(entry.reserves);
        entry.repeat = Some((now + rng.jittered(pause.min(LAST_REPEAT)), op));
        self.all.insert(id, entry);
    }

    /// Takes the operations that are asked for again now.
    pub(super) fn take_repeats(&mut self, commits_seen: u64, now: Duration) -> Vec<(OpId, Op)> {
        let due = |entry: &Entry| entry.repeat.as_ref().is_some_and(|(at, _)| *at <= now);
        let mut repeats = Vec::new();
        for (id, entry) in self.all.iter_mut().filter(|(_, entry)| due(entry)) {
            if let Some((_, op)) = entry.repeat.take() {
                entry.commits_seen = commits_seen;
                entry.begun = self.next;
                repeats.push((*id, op));
            }
        }
        repeats
    }

    pub(super) fn next_repeat(&self) -> Option<Duration> {
        let repeats = self.all.values().filter_map(|entry| entry.repeat.as_ref());
        repeats.map(|(at, _)| *at).min()
    }

    /// Forgets all of them: the store has stopped.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.readings.clear();
        self.reservations = 0;
    }

    /// Returns `true` while jobs or leases are being read.
    pub(super) fn reads(&self) -> bool {
        !self.readings.is_empty()
    }

    /// Returns the first operation from which on a reading is under way; without any, the next operation. One that waits to
    /// be repeated is none: it will show what is known by then.
    pub(super) fn oldest_reading(&self) -> OpId {
        let entries = self.readings.keys().filter_map(|id| self.all.get(id));
        let under_way = entries.filter(|entry| entry.repeat.is_none());
        let begun = under_way.map(|entry| entry.begun);
        begun.min().unwrap_or(self.next)
    }

    /// Returns `true` while this very job is being read.
    #[cfg(feature = "sim")]
    pub(super) fn reads_job(&self, job: JobId) -> bool {
        self.readings.values().any(|reading| match reading {
            Reading::Everything | Reading::Leases => false,
            Reading::Jobs(jobs) => jobs.contains(&job),
        })
    }

    /// Returns `true` while all of the store is being read.
    #[cfg(feature = "sim")]
    pub(super) fn reads_everything(&self) -> bool {
        let everything = |reading: &Reading| matches!(reading, Reading::Everything);
        self.readings.values().any(everything)
    }

    /// Returns `true` while a reservation is under way.
    pub(super) fn reserves(&self) -> bool {
        self.reservations > 0
    }

    /// Returns the schedules that are being fired.
    pub(super) fn fired(&self) -> HashSet<ScheduleId> {
        self.all.values().filter_map(|entry| entry.fires).collect()
    }
}
