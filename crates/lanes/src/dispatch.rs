//! Visits of workers: a worker takes the job whose turn it is, and gives it one dispatch.
//!
//! A dispatch is one poll of the job, in which it takes at most so many steps. A job that has more to do comes back at
//! the end of its queue; one that waits is in no queue until it is woken.
//!
//! A visit goes on with the next job for a while, since coming costs more than a small job does; but then it goes to the
//! end of the pool's own queue, so that other work of the runtime has its turn.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jobtree_runtime::scheduled::{Ran, Ticket, with_park_hook};

use crate::cells::{LaneCell, LaneRef};
use crate::header::{Activity, JobTurn};
use crate::shared::Shared;

/// Jobs a visit has at most.
const JOBS_PER_VISIT: usize = 32;

/// How long a visit takes its next job.
const LONG_VISIT: Duration = Duration::from_micros(50);

impl Shared {
    /// A worker has come to a lane by this ticket. Tells how many dispatches it gave.
    pub(crate) fn visit(&self, cell: &LaneCell, ticket: Ticket) -> usize {
        if self.wants_emptying.load(Ordering::Relaxed)
            && self.wants_emptying.swap(false, Ordering::AcqRel)
        {
            self.empty_pumped_lanes();
        }
        let Some(visits) = &cell.visits else {
            return 0;
        };
        let mut began = None;
        let mut comes_back: Option<JobTurn> = None;
        let mut expects_more = false;
        let mut ran = 0;
        loop {
            // A clock costs as much as a small job: it is read when there is one, and where others do not wait for it.
            let early = expects_more.then(|| self.now());
            let mut state = cell.lock();
            if state.is_empty() && comes_back.is_none() || cell.has_too_many(&state) {
                cell.end_visit(&mut state, ticket);
                drop(state);
                // Others are at work, who take it.
                if let Some(turn) = comes_back {
                    self.enqueue(turn);
                }
                return ran;
            }
            let now = early.unwrap_or_else(|| self.now());
            let mut length = None;
            if let Some(turn) = comes_back.take() {
                let priority = turn.priority;
                let queued = state.put(turn, now, self.settings.queue_warning);
                length = queued.map(|queued| (priority, queued));
            }
            let is_long = now.since(*began.get_or_insert(now)) > LONG_VISIT && ran > 0;
            if is_long || ran == JOBS_PER_VISIT {
                drop(state);
                visits.tickets.post_behind(ticket);
                return ran;
            }
            let Some(picked) = state.take(None, now) else {
                unreachable!("it is not empty");
            };
            expects_more = !state.is_empty();
            drop(state);
            if let Some((priority, queued)) = length {
                self.note_length(cell, priority, Some(queued));
            }
            self.note_wait(cell, &picked, now);
            comes_back = with_park_hook(cell, || self.dispatch(picked.job));
            ran += 1;
        }
    }

    /// Gives a job one dispatch; its turn comes back if it wants another.
    pub(crate) fn dispatch(&self, turn: JobTurn) -> Option<JobTurn> {
        if self.is_shut_down() && matches!(turn.lane, LaneRef::Main | LaneRef::Frame(_)) {
            // Its thread does not come any more. Its future is dropped, its code does not run elsewhere.
            drop(turn);
            return None;
        }
        let steps = u32::try_from(self.settings.steps_per_dispatch).unwrap_or(u32::MAX);
        turn.begin_dispatch(steps);
        turn.set_activity(Activity::Running);
        let header = self.tracking.is_on().then(|| turn.header());
        match turn.run() {
            Ran::Ended => None,
            Ran::Waits => {
                if let Some(header) = header {
                    header.began_to_wait();
                }
                None
            }
            Ran::Again(turn) => Some(turn),
        }
    }
}
