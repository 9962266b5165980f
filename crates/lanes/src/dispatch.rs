//! Visits of workers: a worker takes the job whose turn it is, and gives it one dispatch.
//!
//! A dispatch is one poll of the job, in which it takes at most so many steps. A job that has more to do comes back at
//! the end of its queue; one that waits is in no queue until it is woken.
//!
//! A visit goes on with the next job for a while, since coming costs more than a small job does; but then it goes to the
//! end of the pool's own queue, so that other work of the runtime has its turn.

use std::time::Duration;

use jobtree_runtime::scheduled::{Ran, Ticket, with_park_hook};
use std::sync::atomic::Ordering;

use crate::cells::{LaneCell, LaneRef};
use crate::header::{Activity, JobTurn};
use crate::shared::Shared;

/// Jobs a visit has at most.
const JOBS_PER_VISIT: usize = 32;

/// How long a visit takes its next job.
const LONG_VISIT: Duration = Duration::from_micros(50);

impl Shared {
    /// A worker has come to a lane by this ticket.
    pub(crate) fn visit(&self, cell: &LaneCell, ticket: Ticket) {
        if self.wants_emptying.swap(false, Ordering::AcqRel) {
            self.empty_pumped_lanes();
        }
        let Some(visits) = &cell.visits else {
            return;
        };
        let began = self.now();
        let mut comes_back: Option<JobTurn> = None;
        for ran in 0.. {
            let now = self.now();
            let mut length = None;
            let mut state = cell.lock();
            if let Some(turn) = comes_back.take() {
                let priority = turn.priority;
                length = state
                    .put(turn, now, self.settings.queue_warning)
                    .map(|queued| (priority, queued));
            }
            if cell.has_too_many(&state) {
                return cell.end_visit(&mut state, ticket);
            }
            let is_long = ran == JOBS_PER_VISIT || now.since(began) > LONG_VISIT && ran > 0;
            if is_long && !state.is_empty() {
                drop(state);
                return visits.tickets.post(ticket);
            }
            let Some(picked) = state.take(None, now) else {
                return cell.end_visit(&mut state, ticket);
            };
            drop(state);
            if let Some((priority, queued)) = length {
                self.note_length(cell, priority, Some(queued));
            }
            self.note_wait(cell, &picked, now);
            comes_back = with_park_hook(cell, || self.dispatch(picked.job));
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
