//! A lane at work: its queue, and who comes to empty it.
//!
//! The lane's lock is held to put a turn in or to take one out, and never while anything else is called.
//!
//! # Tickets
//!
//! Workers come to `Any` and `Remote` by tickets. `active` counts those that are posted or being used, less those whose
//! job waits in the midst of its dispatch; a lane has as many active ones as its share, if there is enough to do:
//!
//! ```text
//!   put in:       active < share -> active + 1, post
//!   visit:        take out, run, as long as there is something; else active - 1, and the ticket is idle
//!   job waits:    active - 1; something queued and active < share -> active + 1, post another
//!   job goes on:  active + 1; may be more than the share: then the next visit that looks ends
//! ```
//!
//! So something is queued only if as many visits as the share are at work or on their way, each of which looks into the
//! queue again before it ends.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::Duration;

use jobtree_runtime::scheduled::{ParkHook, Ticket, Tickets};

use crate::Priority;
use crate::header::{Activity, JobTurn};
use crate::lane::Lane;
use crate::lock::lock;
use crate::metrics::{Endings, LaneStats, Tally, Waits};
use crate::moment::Moment;
use crate::notices::LengthLimits;
use crate::padded::Padded;
use crate::queue::{LaneQueue, Mark, Picked};
use crate::settings::Settings;

/// Which lane a job is on.
#[derive(Clone)]
pub(crate) enum LaneRef {
    Any,
    Main,
    Remote,
    Frame(Arc<LaneCell>),
}

/// See the module's head.
pub(crate) struct LaneCell {
    pub(crate) lane: Lane,
    state: Padded<Mutex<LaneState>>,
    /// How workers come; `None` if a thread of the program pumps the lane.
    pub(crate) visits: Option<Visits>,
    pub(crate) pumping: Mutex<Pumping>,
    /// The job that a pump runs just now; 0 if none.
    pub(crate) pumped: AtomicU64,
    pub(crate) endings: Endings,
}

/// What the lane's lock guards.
pub(crate) struct LaneState {
    queue: LaneQueue<JobTurn>,
    tally: Tally,
    lengths: LengthLimits,
    /// Tickets that nobody uses.
    idle: Vec<Ticket>,
    active: usize,
    /// Of a pumped lane: nobody will pump it any more.
    is_closed: bool,
}

/// How workers come to a lane.
pub(crate) struct Visits {
    pub(crate) tickets: Tickets,
    share: usize,
}

/// Who pumps a lane.
#[derive(Default)]
pub(crate) struct Pumping {
    /// The only thread that may.
    pub(crate) thread: Option<ThreadId>,
    /// Whether it is being pumped.
    pub(crate) is_under_way: bool,
}

/// What is to be done when the lock was given back.
#[must_use]
pub(crate) struct ToPost(Option<Ticket>);

impl LaneCell {
    pub(crate) fn pumped(lane: Lane, settings: &Settings) -> LaneCell {
        LaneCell::new(lane, settings, None)
    }

    /// A lane to which workers come, at most `share` at a time.
    pub(crate) fn visited(
        lane: Lane,
        settings: &Settings,
        tickets: Tickets,
        share: usize,
    ) -> LaneCell {
        LaneCell::new(lane, settings, Some(Visits { tickets, share }))
    }

    fn new(lane: Lane, settings: &Settings, visits: Option<Visits>) -> LaneCell {
        LaneCell {
            lane,
            state: Padded(Mutex::new(LaneState {
                queue: LaneQueue::new(settings.aging),
                tally: Tally::default(),
                lengths: LengthLimits::default(),
                idle: Vec::new(),
                active: 0,
                is_closed: false,
            })),
            visits,
            pumping: Mutex::default(),
            pumped: AtomicU64::new(0),
            endings: Endings::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LaneState> {
        lock(&self.state)
    }

    pub(crate) fn queued(&self) -> usize {
        self.lock().queue.len()
    }

    pub(crate) fn recent_waits(&self, priority: Priority, now: Moment) -> Waits {
        self.lock().tally.recent_waits(priority, now)
    }

    /// A job of this lane waited elsewhere for its turn.
    pub(crate) fn count_wait(&self, priority: Priority, waited: Duration, now: Moment) {
        self.lock().tally.dispatched(priority, waited, false, now);
    }

    pub(crate) fn stats(&self, now: Moment) -> LaneStats {
        let state = self.lock();
        let queued = Priority::ALL.map(|priority| state.queue.count(priority));
        LaneStats::new(self.lane.clone(), queued, &state.tally, &self.endings, now)
    }

    pub(crate) fn queued_at(&self, priority: Priority) -> usize {
        self.lock().queue.count(priority)
    }

    /// A ticket to post, if there is something queued and the share is not used up.
    pub(crate) fn call_worker(&self, state: &mut LaneState) -> ToPost {
        let Some(visits) = &self.visits else {
            return ToPost(None);
        };
        if state.active >= visits.share || state.queue.is_empty() {
            return ToPost(None);
        }
        state.active += 1;
        let ticket = state.idle.pop();
        ToPost(Some(ticket.unwrap_or_else(|| visits.tickets.issue())))
    }

    pub(crate) fn post(&self, to_post: ToPost) {
        if let (Some(visits), Some(ticket)) = (&self.visits, to_post.0) {
            visits.tickets.post(ticket);
        }
    }

    /// A visit that is posted beyond the share; it ends like any other.
    pub(crate) fn count_extra_visit(&self) {
        self.lock().active += 1;
    }

    /// Whether a visit ends because too many are at work.
    pub(crate) fn has_too_many(&self, state: &LaneState) -> bool {
        let visits = self.visits.as_ref();
        visits.is_some_and(|visits| state.active > visits.share)
    }

    /// A visit ends.
    pub(crate) fn end_visit(&self, state: &mut LaneState, ticket: Ticket) {
        state.active -= 1;
        let most = self.visits.as_ref().map_or(0, |visits| visits.share);
        if state.idle.len() < most {
            state.idle.push(ticket);
        }
    }

    /// Takes everything out of a pumped lane, which takes nothing in any more.
    pub(crate) fn close(&self) -> Vec<JobTurn> {
        let mut state = self.lock();
        state.is_closed = true;
        state.queue.drain()
    }
}

impl LaneState {
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Puts a turn in: as new, or as one that comes back. Tells the length of its bucket, if that is to be said.
    pub(crate) fn put(
        &mut self,
        turn: JobTurn,
        now: Moment,
        threshold: Option<NonZeroUsize>,
    ) -> Option<usize> {
        let priority = turn.priority;
        turn.set_activity(Activity::Queued);
        if turn.is_new_at(now) {
            self.queue.push_new(turn, priority, now);
        } else {
            let first = turn.first_enqueued().unwrap_or(now);
            self.tally.requeued(priority);
            self.queue.push_again(turn, priority, first, now);
        }
        let (threshold, queued) = (threshold?.get(), self.queue.count(priority));
        let lengths = &mut self.lengths;
        lengths
            .is_due(priority, queued, threshold, now)
            .then_some(queued)
    }

    /// A mark behind all that is queued.
    pub(crate) fn mark(&self) -> Mark {
        self.queue.mark()
    }

    /// Takes the job whose turn it is; before the mark, if there is one.
    pub(crate) fn take(&mut self, mark: Option<&Mark>, now: Moment) -> Option<Picked<JobTurn>> {
        let picked = match mark {
            None => self.queue.pop(now),
            Some(mark) => self.queue.pop_before(mark, now),
        }?;
        if let Some(next) = self.queue.next_new(picked.priority) {
            next.prefetch();
        }
        self.tally
            .dispatched(picked.priority, picked.waited, picked.aged, now);
        Some(picked)
    }
}

/// A job on a worker that waits in the midst of its dispatch gives its share back.
impl ParkHook for LaneCell {
    fn leaves(&self) {
        let mut state = self.lock();
        state.active -= 1;
        let to_post = self.call_worker(&mut state);
        drop(state);
        self.post(to_post);
    }

    fn returns(&self) {
        self.lock().active += 1;
    }
}
