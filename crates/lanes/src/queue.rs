//! The order in which a lane's jobs have their turns: pure, without a lock and without a clock.
//!
//! # The rule
//!
//! There are turns by priority and turns by age. A turn by priority goes to the most urgent jobs, and among these to
//! the one that was put in first; a job that comes back for another dispatch is put in at the end. A job is *aged* when
//! `aging` has passed since it was first put in. A turn by age goes to the job that was aged first; an aged job that
//! comes back takes its place behind all that were aged by then. When any job is aged, turns by age and by priority
//! alternate, else all turns are by priority. So whoever waits for long has its turn; and jobs that live for long,
//! and so are always aged, have no more than every second turn beyond what their priorities give them.
//!
//! # How long a job waits at most
//!
//! Let job `j` be put in at `t`, and let `O` be how many of the jobs that were put in for the first time at `t` or before
//! still wait at `t + aging`. Then `j` has its turn among the first
//!
//! ```text
//!     2 · (O + 1)
//! ```
//!
//! turns after `t + aging`. For whoever is before `j` in the order of age then was first put in at `t` or before: this
//! holds for new jobs, which are aged in the order in which they come; for jobs that came back before they were aged;
//! and for those that came back aged, since they did so before `t + aging` and thus were put in before `t`. Of these
//! each turn by age takes one away, nobody comes in before `j` any more, and every second turn is by age as long as `j`
//! waits. With `S` workers that take turns, and dispatches of at most `d`, `j` waits for at most
//!
//! ```text
//!     aging + ⌈2 · (O + 1) / S⌉ · d
//! ```
//!
//! and `O` is less than the number of jobs the manager admits. The same holds for a job that comes back at `t`, with `O`
//! counting all that wait at `t`, or at the moment when it is aged, if that is later.
//!
//! # What it costs
//!
//! New jobs of one priority are aged in the order in which they have their turns, so one queue holds both orders, and
//! an entry is the job and 8 bytes. Only the five first ones have to be looked at for a turn by age, and nothing at all
//! before the first of them is aged: a job that ends in its first dispatch costs a push and a pop. Jobs that come back are
//! kept apart: see [`returned`].

mod fifo;
mod returned;
mod steps;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::moment::Moment;
use crate::priority::Priority;
use fifo::Fifo;
use returned::Returned;

/// A job whose turn it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Picked<J> {
    pub(crate) job: J,
    pub(crate) priority: Priority,
    /// When it was put in for the first time: to be said when it comes back.
    pub(crate) first_enqueued: Moment,
    /// How long it waited for this turn.
    pub(crate) waited: Duration,
    /// Whether this was a turn by age.
    pub(crate) aged: bool,
    /// Whether it had a turn before.
    pub(crate) returned: bool,
}

/// Which jobs were there at a moment: what is put in later is after the mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    fresh: [u64; Priority::COUNT],
    returned: u64,
}

impl Mark {
    /// Everything is before it.
    const END: Mark = Mark {
        fresh: [u64::MAX; Priority::COUNT],
        returned: u64::MAX,
    };
}

/// A job that had no turn yet.
struct New<J> {
    job: J,
    enqueued: Moment,
}

/// The new jobs of one priority.
struct Fresh<J> {
    waiting: Fifo<New<J>>,
    /// How many were taken, ever: a job that came back tells by it whether those before it are gone.
    taken: u64,
}

/// Where the job stands whose turn it is.
#[derive(Clone, Copy)]
enum Place {
    Fresh(Priority),
    Returned(u32),
}

/// See the module's head.
pub(crate) struct LaneQueue<J> {
    aging: Duration,
    fresh: [Fresh<J>; Priority::COUNT],
    returned: Returned<J>,
    counts: [usize; Priority::COUNT],
    /// The latest moment heard of. Callers read their clock before they have the lock: what comes late counts as now.
    latest: Moment,
    /// No job is aged before this.
    none_aged_before: Moment,
    last_turn_was_by_age: bool,
}

impl<J> LaneQueue<J> {
    /// A queue in which jobs are aged when they have waited for `aging`.
    pub(crate) fn new(aging: Duration) -> LaneQueue<J> {
        LaneQueue {
            aging,
            fresh: std::array::from_fn(|_| Fresh {
                waiting: Fifo::new(),
                taken: 0,
            }),
            returned: Returned::new(),
            counts: [0; Priority::COUNT],
            latest: Moment::BEGINNING,
            none_aged_before: Moment::BEGINNING,
            last_turn_was_by_age: false,
        }
    }

    /// Puts in a job that had no turn yet.
    #[inline]
    pub(crate) fn push_new(&mut self, job: J, priority: Priority, now: Moment) {
        let enqueued = self.at(now);
        self.counts[priority.index()] += 1;
        // It is aged later than all that are new, so `none_aged_before` holds.
        self.fresh[priority.index()]
            .waiting
            .push(New { job, enqueued });
    }

    /// Puts in a job that comes back, and was put in for the first time at `first_enqueued`.
    pub(crate) fn push_again(
        &mut self,
        job: J,
        priority: Priority,
        first_enqueued: Moment,
        now: Moment,
    ) {
        let now = self.at(now);
        self.counts[priority.index()] += 1;
        let ages = first_enqueued.after(self.aging);
        self.none_aged_before = self.none_aged_before.min(ages.max(now));
        let fresh = &self.fresh[priority.index()];
        let new_before = fresh.taken + fresh.waiting.len() as u64;
        let moments = [first_enqueued, now, ages];
        self.returned.push(job, priority, moments, new_before);
    }

    /// Takes the job whose turn it is.
    #[inline]
    pub(crate) fn pop(&mut self, now: Moment) -> Option<Picked<J>> {
        self.pop_before(&Mark::END, now)
    }

    /// A mark behind all that is here.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            fresh: std::array::from_fn(|index| {
                let fresh = &self.fresh[index];
                fresh.taken + fresh.waiting.len() as u64
            }),
            returned: self.returned.next_number(),
        }
    }

    /// Takes the job whose turn it is among those that were here at `mark`: so a pump has each job once, and leaves what
    /// comes back, or comes new, to the next.
    #[inline]
    pub(crate) fn pop_before(&mut self, mark: &Mark, now: Moment) -> Option<Picked<J>> {
        let now = self.at(now);
        let by_age = if self.last_turn_was_by_age || now < self.none_aged_before {
            None
        } else {
            self.first_aged(mark, now)
        };
        let place = by_age.or_else(|| self.most_urgent(mark))?;
        self.last_turn_was_by_age = by_age.is_some();
        let picked = match place {
            Place::Fresh(priority) => {
                let fresh = &mut self.fresh[priority.index()];
                fresh.taken += 1;
                let New { job, enqueued } = fresh.waiting.pop()?;
                Picked {
                    job,
                    priority,
                    first_enqueued: enqueued,
                    waited: now.since(enqueued),
                    aged: by_age.is_some(),
                    returned: false,
                }
            }
            Place::Returned(slot) => {
                let returnee = self.returned.take(slot);
                Picked {
                    job: returnee.job,
                    priority: returnee.priority,
                    first_enqueued: returnee.first_enqueued,
                    waited: now.since(returnee.enqueued),
                    aged: by_age.is_some(),
                    returned: true,
                }
            }
        };
        self.counts[picked.priority.index()] -= 1;
        Some(picked)
    }

    /// Who is likely to be next after a new job of this priority.
    #[inline]
    pub(crate) fn next_new(&self, priority: Priority) -> Option<&J> {
        let next = self.fresh[priority.index()].waiting.front()?;
        Some(&next.job)
    }

    /// Takes all jobs, the most urgent first.
    pub(crate) fn drain(&mut self) -> Vec<J> {
        let mut all = Vec::with_capacity(self.len());
        while let Some(place) = self.most_urgent(&Mark::END) {
            all.extend(match place {
                Place::Fresh(priority) => {
                    let fresh = &mut self.fresh[priority.index()];
                    fresh.taken += 1;
                    fresh.waiting.pop().map(|new| new.job)
                }
                Place::Returned(slot) => Some(self.returned.take(slot).job),
            });
        }
        self.counts = [0; Priority::COUNT];
        all
    }

    /// How many jobs of this priority wait.
    #[inline]
    pub(crate) fn count(&self, priority: Priority) -> usize {
        self.counts[priority.index()]
    }

    /// How many jobs wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.counts.iter().sum()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.counts == [0; Priority::COUNT]
    }

    #[inline]
    fn at(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Whose turn it is by priority.
    #[inline]
    fn most_urgent(&self, mark: &Mark) -> Option<Place> {
        for priority in Priority::ALL.into_iter().rev() {
            steps::step();
            let index = priority.index();
            if self.counts[index] == 0 {
                continue;
            }
            let fresh = &self.fresh[index];
            let new = fresh.waiting.len() > 0 && fresh.taken < mark.fresh[index];
            let back = self.returned.first_of(priority).filter(|&slot| {
                let returnee = self.returned.get(slot);
                returnee.number < mark.returned && !(new && fresh.taken < returnee.new_before)
            });
            match back {
                Some(slot) => return Some(Place::Returned(slot)),
                None if new => return Some(Place::Fresh(priority)),
                None => {}
            }
        }
        None
    }

    /// Whose turn it is by age. Among those that were aged at the same moment, new ones go first, the more urgent first,
    /// and last the ones that were aged when they came back: else such a job could have all turns of a moment.
    #[inline(never)]
    fn first_aged(&mut self, mark: &Mark, now: Moment) -> Option<Place> {
        let mut soonest = self.latest.after(self.aging);
        let mut first = None;
        let mut consider = |aged_at: Moment, place: Option<Place>| {
            soonest = soonest.min(aged_at);
            if let Some(place) = place
                && aged_at <= now
                && first.is_none_or(|(earlier, _)| aged_at < earlier)
            {
                first = Some((aged_at, place));
            }
        };
        for priority in Priority::ALL.into_iter().rev() {
            let fresh = &self.fresh[priority.index()];
            if let Some(oldest) = fresh.waiting.front() {
                let place = Place::Fresh(priority);
                let is_before = fresh.taken < mark.fresh[priority.index()];
                consider(
                    oldest.enqueued.after(self.aging),
                    is_before.then_some(place),
                );
            }
        }
        // If the first one in the heap came back after the mark, those behind it have their turns by priority: a
        // pump takes them all in any case.
        let aged_now = self.returned.first_that_aged(now);
        if let Some(aged_at) = self.returned.soonest() {
            let is_before = |&slot: &u32| self.returned.get(slot).number < mark.returned;
            consider(aged_at, aged_now.filter(is_before).map(Place::Returned));
        }
        if let Some(slot) = self.returned.first_aged() {
            let returnee = self.returned.get(slot);
            let is_before = returnee.number < mark.returned;
            consider(returnee.aged_at, is_before.then_some(Place::Returned(slot)));
        }
        self.none_aged_before = soonest;
        first.map(|(_, place)| place)
    }
}
