//! The end of a manager: everything is cancelled, those who wait for a slot are told, and nobody is waited for for ever.
//!
//! What waits on lanes that threads of the program pump is dropped, since it would wait for a pump that may not come. What
//! workers run sees its cancellation as in any job.
//!
//! If the runtime is shut down first, the manager ends with it: its scope is cancelled like everything under the root.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jobtree_base::user_code::{Place, drop_user};
use jobtree_runtime::scheduled::is_part_of_end;
use jobtree_runtime::{Cause, Job, TreeDump};

use crate::header::JobTurn;
use crate::shared::Shared;

impl Shared {
    pub(crate) fn is_shut_down(&self) -> bool {
        self.is_shut_down.load(Ordering::Acquire)
    }

    /// Shuts the manager down with its runtime.
    pub(crate) fn end_with_runtime(self: &Arc<Shared>) {
        let weak = Arc::downgrade(self);
        // Called while the tree is locked: so nothing of the program's may run in it.
        let callback = self.scope.job().on_cancel(move |_| {
            if let Some(shared) = weak.upgrade()
                && shared.close()
            {
                shared.wants_emptying.store(true, Ordering::Release);
                if let Some(visits) = &shared.any.visits {
                    shared.any.count_extra_visit();
                    visits.tickets.post(visits.tickets.issue());
                }
            }
        });
        let is_first = self.scope_cancelled.set(callback).is_ok();
        debug_assert!(is_first);
    }

    /// From now on nothing is taken in; `false` if that was so before.
    fn close(&self) -> bool {
        if self.is_shut_down.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.slots.close();
        self.scope.job().cancel(Cause::Shutdown);
        self.scope.close();
        true
    }

    /// Shuts the manager down, and waits for nobody.
    pub(crate) fn begin_shutdown(&self) {
        if self.close() {
            for guest in self.guests.all() {
                guest.cancel(Cause::Shutdown);
            }
            self.empty_pumped_lanes();
        }
    }

    /// Drops what waits for threads that do not come any more.
    pub(crate) fn empty_pumped_lanes(&self) {
        drop_turns(self.main.close());
        // Not while the list is locked: what is dropped may look for a lane.
        let frames = self
            .frames
            .read()
            .unwrap_or_else(|e| e.into_inner())
            .clone();
        for frame in &frames {
            drop_turns(frame.close());
        }
    }

    /// Shuts the manager down and waits for its jobs, but not for the calling one and those that wait for it.
    pub(crate) fn shut_down(&self, limit: Duration) -> Result<(), ShutdownError> {
        let began = self.clock.now();
        self.begin_shutdown();
        let left = || limit.saturating_sub(self.clock.now().saturating_duration_since(began));
        let scope = self.scope.job();
        let above = above(Job::current());
        let guests = self.guests.all();
        let others = || guests.iter().filter(|guest| !above.contains(guest));
        let wait_for = |job: &Job| {
            // Not for a job whose end waits for the calling code, as for the destructor of a value.
            if !is_part_of_end(job) {
                self.clock.wait_regardless(left(), job.ended());
            }
        };
        others().for_each(wait_for);
        let guests = others().filter(|guest| !guest.is_ended()).map(Job::path);
        let guests: Vec<String> = guests.collect();
        if !above.contains(scope) {
            wait_for(scope);
            return stragglers(&scope.dump_tree(), &[], scope.is_ended(), guests);
        }
        for job in &above {
            for other in job.children() {
                if !above.contains(&other) {
                    wait_for(&other);
                }
            }
            if job == scope {
                break;
            }
        }
        stragglers(&scope.dump_tree(), &above, false, guests)
    }
}

/// Drops jobs that no thread will run, each for itself: what their destructors do does not concern the others.
fn drop_turns(turns: Vec<JobTurn>) {
    for turn in turns {
        drop_user(Place::Captured, turn);
    }
}

/// The job and all above it.
fn above(job: Option<Job>) -> Vec<Job> {
    let mut above: Vec<Job> = job.into_iter().collect();
    while let Some(parent) = above.last().and_then(Job::parent) {
        above.push(parent);
    }
    above
}

/// Names the jobs that are left and wait for no other, except for `known`; and the `guests` that are.
fn stragglers(
    dump: &TreeDump,
    known: &[Job],
    is_ended: bool,
    guests: Vec<String>,
) -> Result<(), ShutdownError> {
    let jobs = if is_ended { &[] } else { dump.jobs() };
    let mut labels: Vec<&str> = Vec::new();
    let mut stragglers = guests;
    for (index, job) in jobs.iter().enumerate() {
        labels.truncate(job.depth);
        labels.push(&job.label);
        let next = jobs.get(index + 1);
        let is_leaf = next.is_none_or(|next| next.depth <= job.depth);
        let is_known = known.iter().any(|known| known.id() == job.id);
        if is_leaf && job.depth > 0 && !is_known && !job.state.is_terminal() {
            stragglers.push(labels.join("/"));
        }
    }
    if stragglers.is_empty() {
        return Ok(());
    }
    Err(ShutdownError { stragglers })
}

/// Jobs were still running when the time for their end was over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownError {
    stragglers: Vec<String>,
}

impl ShutdownError {
    /// The paths of the jobs that were still there, of those that wait for no other.
    pub fn stragglers(&self) -> &[String] {
        &self.stragglers
    }
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "still running after the time limit of the job manager's shutdown: {}; have them take steps or call \
             `checkpoint` more often, or give them more time",
            self.stragglers.join(", ")
        )
    }
}

impl std::error::Error for ShutdownError {}
