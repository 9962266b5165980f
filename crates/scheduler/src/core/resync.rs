//! Reading the store: at the start, when messages may have been lost, and every few seconds if other schedulers write to
//! it.
//!
//! First what is live, of one snapshot, then what waits, page by page. Commits go on meanwhile: what was heard of since
//! the reading began is newer than what it shows. At the start nothing is dispatched before all of it is read: what is in
//! use must be known, and who waits, or the first page's jobs would come before everybody else's.

use std::time::Duration;

use jobtree_protocol::ApiError;
use jobtree_queue::JobRecord;
use jobtree_queue::candidate::Candidate;

use super::calls::Responder;
use super::operations::{PAGE, ReadLive, ReadQueued};
use super::planted::Bug;
use super::turn::Turn;

/// The extent of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    /// What is live: leases, dispatches, pauses, schedules.
    Live,
    /// Also the jobs that wait.
    Everything,
}

/// The progress of a reading.
#[derive(Debug, Default)]
pub(super) struct Resync {
    /// The reading under way.
    reading: Option<Extent>,
    /// Another reading follows the one under way.
    again: Option<Extent>,
    /// When the next one begins by itself.
    next: Option<Duration>,
    /// What waits, until all of it was read for the first time.
    waiting: Vec<Candidate>,
    /// Callers that wait for the reading under way, and for the one after it.
    callers: Vec<Responder<()>>,
    next_callers: Vec<Responder<()>>,
    /// Leases or dispatches of other nodes were seen: another scheduler uses the store, or did.
    others_seen: bool,
}

impl Resync {
    /// Reads the store, or does so again when the reading under way is done. Returns `true` if a reading began.
    pub(super) fn read(&mut self, extent: Extent, turn: &mut Turn) -> bool {
        if self.reading.is_some() {
            self.again = self.again.max(Some(extent));
            return false;
        }
        self.reading = Some(extent);
        self.callers.append(&mut self.next_callers);
        turn.ask(ReadLive);
        true
    }

    /// Answers the caller when a reading that begins after this is done.
    pub(super) fn tell_when_read(&mut self, caller: Responder<()>) {
        self.next_callers.push(caller);
    }

    pub(super) fn set_others_seen(&mut self, seen: bool) {
        self.others_seen = seen;
    }

    /// What is live was read. Returns `true` if that was all.
    pub(super) fn live_read(&mut self, turn: &mut Turn) -> bool {
        let done = self.reading != Some(Extent::Everything);
        if !done {
            turn.ask(ReadQueued { after: None });
        }
        done
    }

    /// Keeps a job that waits until all of them are read.
    pub(super) fn keep_waiting(&mut self, job: &JobRecord) {
        if job.waiting_for.is_empty() {
            self.waiting.push(job.candidate());
        }
    }

    /// A page of what waits was read. Returns `true` if it was the last.
    pub(super) fn page_read(&mut self, jobs: &[impl AsRef<JobRecord>], turn: &mut Turn) -> bool {
        match jobs.last() {
            Some(last) if jobs.len() == PAGE => {
                let after = Some(last.as_ref().id);
                turn.ask(ReadQueued { after });
                false
            }
            _ => true,
        }
    }

    /// The reading is done. Returns what waits, if it is the first one.
    pub(super) fn done(&mut self, turn: &mut Turn) -> Vec<Candidate> {
        self.reading = None;
        for caller in std::mem::take(&mut self.callers) {
            turn.respond(caller, Ok(()));
        }
        std::mem::take(&mut self.waiting)
    }

    /// Sets the time of the next reading, if other schedulers use the store. Returns `true` if they do.
    ///
    /// A reading that is due sooner stays: what was read may have been only what is live, and where schedules fire often,
    /// or others tell of much, a reading that is put off each time would never come.
    pub(super) fn plan_next(&mut self, turn: &mut Turn) -> bool {
        let shared = turn.config.options.shared || self.others_seen;
        if shared {
            let at = draw_next(turn);
            self.no_later_than(at);
        }
        shared
    }

    /// Returns the reading that follows the one that is done.
    pub(super) fn take_again(&mut self) -> Option<Extent> {
        self.again.take()
    }

    /// Moves the next reading forward.
    pub(super) fn no_later_than(&mut self, at: Duration) {
        self.next = Some(self.next.map_or(at, |known| known.min(at)));
    }

    /// Returns what is to be read now, if it is time.
    pub(super) fn take_due(&mut self, turn: &Turn) -> Option<Extent> {
        if self.next.is_none_or(|at| at > turn.now.mono) || turn.has(Bug::NoFallback) {
            return None;
        }
        self.next = None;
        Some(if turn.config.options.shared {
            Extent::Everything
        } else {
            Extent::Live
        })
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.next
    }

    pub(super) fn refuse_all(&mut self, error: &ApiError, turn: &mut Turn) {
        let callers = std::mem::take(&mut self.callers);
        for caller in callers
            .into_iter()
            .chain(std::mem::take(&mut self.next_callers))
        {
            turn.respond(caller, Err(error.clone()));
        }
    }
}

fn draw_next(turn: &mut Turn) -> Duration {
    let now = turn.now;
    let pause = turn.rng.jittered(turn.config.options.look);
    if turn.has(Bug::NoJitter) {
        // On the full seconds of the wall clock.
        let every = turn.config.options.look.as_millis() as i64;
        let past = now.wall.as_millisecond().rem_euclid(every);
        return now.mono + Duration::from_millis((every - past) as u64);
    }
    now.mono + pause
}
