//! What the manager counts, says and shows of its jobs, where these pass by.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jobtree_runtime::JobState;

use crate::Priority;
use crate::cells::LaneCell;
use crate::header::{Activity, JobHeader, JobTurn};
use crate::lane::Lane;
use crate::metrics::{Ending, ManagerStats};
use crate::moment::Moment;
use crate::progress::Payload;
use crate::queue::Picked;
use crate::shared::Shared;
use crate::tracker::{JobSnapshot, Tracked, TrackedState};

/// What a job is called; empty if it has no label.
pub(crate) fn label_of(header: &JobHeader) -> String {
    match header.has_label() {
        true => header.job().label(),
        false => String::new(),
    }
}

impl Shared {
    /// A job was taken out of a queue.
    #[inline]
    pub(crate) fn note_wait(&self, cell: &LaneCell, picked: &Picked<JobTurn>, now: Moment) {
        if picked.waited >= self.settings.aging {
            self.note_starved(cell, picked, now);
        }
        if self.tracking.is_on() {
            self.track(&picked.job.header());
        }
    }

    #[cold]
    fn note_starved(&self, cell: &LaneCell, picked: &Picked<JobTurn>, now: Moment) {
        let turn = &picked.job;
        if turn.is_scheduled() && turn.begins_to_starve() {
            let label = label_of(&turn.header());
            self.notices
                .starved(&label, &cell.lane, picked.priority, picked.waited, now);
        }
    }

    /// A remote job waited so long until it could be sent.
    pub(crate) fn note_sent(&self, header: &JobHeader, waited: Duration) {
        let (priority, now) = (header.priority, self.now());
        self.remote.count_wait(priority, waited, now);
        if waited >= self.settings.aging && header.is_scheduled() && header.begins_to_starve() {
            let (label, lane) = (label_of(header), &self.remote.lane);
            self.notices.starved(&label, lane, priority, waited, now);
        }
    }

    /// Somebody waits for a slot, for so long already.
    pub(crate) fn note_blocked(&self, capacity: usize, blocked: Duration) {
        self.notices.backpressure(capacity, blocked, self.now());
    }

    /// A bucket is too long, if it is `queued` long.
    #[inline]
    pub(crate) fn note_length(&self, cell: &LaneCell, priority: Priority, queued: Option<usize>) {
        if let (Some(queued), Some(threshold)) = (queued, self.settings.queue_warning) {
            self.notices
                .long_queue(&cell.lane, priority, queued, threshold.get());
        }
    }

    /// Shows a job to those who look, if it is one that the program scheduled and has not been shown.
    pub(crate) fn track(&self, header: &JobHeader) {
        if !header.is_scheduled() || header.is_tracked.swap(true, Ordering::Relaxed) {
            return;
        }
        let now = self.now();
        header.set_activity(header.activity());
        self.tracking.enter(header.job().id(), header.clone(), now);
    }

    /// A job has ended.
    pub(crate) fn note_end(&self, header: &JobHeader) {
        let ending = match header.job().state() {
            JobState::Completed => Ending::Completed,
            JobState::Cancelled => Ending::Canceled,
            _ => Ending::Faulted,
        };
        let cell = self.cell(&header.lane);
        cell.endings.ended(header.priority, ending);
        if header.is_tracked.load(Ordering::Relaxed) {
            header.set_activity(header.activity());
            self.tracking.end(header.job().id(), self.now());
        }
    }

    pub(crate) fn average_wait(&self, priority: Priority) -> Option<Duration> {
        let now = self.now();
        let waits = self.with_lanes(|cell| cell.recent_waits(priority, now));
        waits.into_iter().reduce(|a, b| a.and(b))?.mean()
    }

    pub(crate) fn stats(&self) -> ManagerStats {
        let now = self.now();
        let mut lanes = self.with_lanes(|cell| cell.stats(now));
        for stats in lanes.iter_mut().filter(|stats| stats.lane == Lane::Remote) {
            for priority in Priority::ALL {
                stats.priorities[priority.index()].queued += self.gate.queued_at(priority);
            }
        }
        ManagerStats {
            workers: self.settings.workers,
            slots: self.slots.count(),
            lanes,
        }
    }

    /// What `look` says of each lane.
    fn with_lanes<R>(&self, mut look: impl FnMut(&LaneCell) -> R) -> Vec<R> {
        let fixed = [&self.any, &self.main, &self.remote];
        let mut all: Vec<R> = fixed.into_iter().map(&mut look).collect();
        let frames = self.frames.read().unwrap_or_else(|e| e.into_inner());
        all.extend(frames.iter().map(|frame| look(frame)));
        all
    }
}

impl Tracked for JobHeader {
    fn snapshot(&self) -> JobSnapshot {
        let state = match (self.job().state(), self.activity()) {
            (JobState::Completed, _) => TrackedState::Completed,
            (JobState::Cancelled, _) => TrackedState::Canceled,
            (JobState::Failed | JobState::TimedOut, _) => TrackedState::Faulted,
            (_, Activity::Queued) => TrackedState::Queued,
            (_, Activity::Running) => TrackedState::Running,
            (_, Activity::Waiting) => TrackedState::Waiting,
        };
        JobSnapshot {
            id: self.job().id(),
            label: label_of(self),
            kind: self.kind().to_owned(),
            lane: self.shared.cell(&self.lane).lane.clone(),
            priority: self.priority,
            state,
            progress: self.progress(),
            determinate: self.said_progress().is_some(),
            status: self.payload().as_ref().and_then(text_of),
            updated: self.updated().instant(self.shared.beginning),
        }
    }

    fn is_ended(&self) -> bool {
        self.job().is_ended()
    }
}

/// A payload that is text.
fn text_of(payload: &Payload) -> Option<String> {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string))
}
