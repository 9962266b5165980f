//! How long leases and reservations hold, by clocks that can be trusted.
//!
//! A record on disk has calendar times, since nothing else survives a restart or is shared among machines. But somebody
//! may set the calendar's clock, and a lease must neither end nor last longer by that. So a process that grants leases
//! keeps [`Deadlines`]: for each lease and reservation, and for each run that is limited, the moment of its *monotonic*
//! clock at which it is over. The protocol:
//!
//! - After every commit, its changes are shown to [`Deadlines::observe`], with the time that the transition was given.
//! - [`Deadlines::due`] tells what is over. Each entry names the revision (or turn) that its timer was set for, and the
//!   transition that ends it compares that: a renewal that was committed in between wins, whatever the order of calls.
//! - After a restart nothing is known of the time in between: [`Deadlines::recover`] gives every lease and reservation
//!   one whole term again. Its worker may have been renewing in vain all that time. A worker inside the process that
//!   owned the store has surely ended with it: its lease ends at once ([`Proof::OwnerGone`](crate::transitions::Proof)).
//! - A process that did not look for a while (suspended, stopped, starved) heard no heartbeat either and cannot hold that
//!   against the workers: what fell due in such a gap gets one term again, and runs are not charged for the gap.
//! - A run's time goes from the moment at which the call that told of its begin was handled, and only the job in a worker's
//!   hand has one. The begin that the worker reported is earlier; time is counted from it only where the calendar is all there
//!   is: after a restart, and for [`RuntimeProof::Wall`](crate::transitions::RuntimeProof::Wall). A worker that tells
//!   the times of its runs gets [`COMPLETION_GRACE`] more, and its run is over only when the worker was heard after that with
//!   the job still in hand: a run that ended within its limit is not timed out while its completion waits in the worker or
//!   is on its way. A worker that stays silent loses its lease instead, and the job is rescued.
//! - Longer is always safe: the job has one lease for longer. Shorter never happens: a worker counts its term from the
//!   moment it *sent* the heartbeat, this process from the moment it handled it, which is later.
//!
//! Where several schedulers share a database, leases of the others are judged by the database's calendar
//! ([`Proof::Wall`](crate::transitions::Proof::Wall)).

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
pub use jobtree_protocol::COMPLETION_GRACE;
use jobtree_protocol::{JobId, LeaseId, whole_micros};

use crate::now::{Now, wall_after, wall_until};
use crate::record::{JobRecord, LeaseRecord};
use crate::transitions::{Changes, Rules};

/// When a lease that is granted or renewed at `at` ends, by the calendar.
pub fn expiry(at: Timestamp, ttl_sec: u32) -> Timestamp {
    whole_micros(wall_after(at, ttl(ttl_sec)))
}

/// The time from the begin of a run under this lease to the end of it, if it may run for `limit_sec`.
pub(crate) fn time_limit(lease: &LeaseRecord, limit_sec: u32) -> Duration {
    let grace = if lease.reports_begin {
        COMPLETION_GRACE
    } else {
        Duration::ZERO
    };
    ttl(limit_sec).saturating_add(grace)
}

fn ttl(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

/// Something whose time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// For [`expire`](crate::transitions::expire).
    Lease {
        /// The lease.
        lease_id: LeaseId,
        /// As it was when the timer was set.
        revision: u64,
    },
    /// For [`return_unclaimed`](crate::transitions::return_unclaimed).
    Reservation {
        /// The job.
        job_id: JobId,
        /// Its reservation.
        reservation_id: LeaseId,
        /// The job's, as it was when the timer was set.
        revision: u64,
    },
    /// For [`time_out`](crate::transitions::time_out).
    Run {
        /// The lease.
        lease_id: LeaseId,
        /// Its job.
        job_id: JobId,
        /// When that began.
        current_since: Timestamp,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Lease(LeaseId),
    Reservation(JobId),
    Run(LeaseId),
}

impl Due {
    fn key(&self) -> Key {
        match *self {
            Self::Lease { lease_id, .. } => Key::Lease(lease_id),
            Self::Reservation { job_id, .. } => Key::Reservation(job_id),
            Self::Run { lease_id, .. } => Key::Run(lease_id),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    at: Duration,
    /// How often the lease had been renewed; 0 for others.
    renewals: u64,
    /// When the lease was granted, or its last renewal was seen; 0 for others.
    heard: Duration,
    /// It is over only if the lease was renewed after its time.
    needs_word: bool,
    /// What it gets again after a gap; a run gets the gap itself.
    term: Duration,
    due: Due,
}

/// The monotonic deadlines of this process.
#[derive(Clone, Debug)]
pub struct Deadlines {
    timers: HashMap<Key, Timer>,
    order: BTreeSet<(Duration, Key)>,
    /// When somebody looked last.
    seen: Duration,
    longest_gap: Duration,
}

impl Deadlines {
    /// None yet. Whoever has them looks more often than each `longest_gap`; a longer time in between is taken for a gap.
    pub fn new(now: Now, longest_gap: Duration) -> Self {
        Self {
            timers: HashMap::new(),
            order: BTreeSet::new(),
            seen: now.mono,
            longest_gap,
        }
    }

    /// Learns from what was committed.
    pub fn observe(&mut self, changes: &Changes, now: Now, rules: &Rules) {
        self.notice_gap(now);
        for job in &changes.jobs {
            self.watch_reservation(job, now, rules);
        }
        for lease in &changes.leases {
            self.watch_lease(lease, now, |limit, _| limit);
        }
    }

    /// Begins anew with what a store holds: live leases and dispatched jobs.
    pub fn recover<'a>(
        &mut self,
        leases: impl IntoIterator<Item = &'a LeaseRecord>,
        dispatched: impl IntoIterator<Item = &'a JobRecord>,
        now: Now,
        rules: &Rules,
    ) {
        *self = Self::new(now, self.longest_gap);
        for job in dispatched {
            self.watch_reservation(job, now, rules);
        }
        for lease in leases {
            // The calendar is all there is to tell how long it ran; it may be wrong, so one term is left at least.
            let rest = |limit: Duration, since| {
                limit
                    .saturating_sub(wall_until(since, now.wall))
                    .max(ttl(lease.ttl_sec))
            };
            self.watch_lease(lease, now, rest);
        }
    }

    /// What is over. It is told again each time, until a change that [`observe`](Self::observe) sees ends it or
    /// [`forget`](Self::forget) drops it: a store that failed is asked again.
    pub fn due(&mut self, now: Now) -> Vec<Due> {
        self.notice_gap(now);
        let over = self.order.iter().take_while(|(at, _)| *at <= now.mono);
        let over = over.map(|(_, key)| &self.timers[key]);
        let over = over.filter(|timer| !self.waits_for_word(timer));
        over.map(|timer| timer.due).collect()
    }

    /// When to look next, by the monotonic clock; none if there is nothing to wait for. What is over as soon as its worker is
    /// heard is not waited for: the renewal is observed.
    pub fn next(&self) -> Option<Duration> {
        let mut timers = self.order.iter();
        let next =
            timers.find(|(at, key)| *at > self.seen || !self.waits_for_word(&self.timers[key]));
        next.map(|(at, _)| *at)
    }

    /// Returns `true` if a run's lease was not renewed since the time of the run was over.
    fn waits_for_word(&self, timer: &Timer) -> bool {
        let Due::Run { lease_id, .. } = timer.due else {
            return false;
        };
        let lease = self.timers.get(&Key::Lease(lease_id));
        timer.needs_word && lease.is_some_and(|lease| lease.heard < timer.at)
    }

    /// What would end a job's dispatch, due or not.
    pub fn reservation(&self, job: JobId) -> Option<Due> {
        let timer = self.timers.get(&Key::Reservation(job))?;
        Some(timer.due)
    }

    /// Drops a timer: its transition said that it is not due, so somebody else ended or renewed what it was set for.
    pub fn forget(&mut self, due: &Due) {
        if self
            .timers
            .get(&due.key())
            .is_some_and(|timer| timer.due == *due)
        {
            self.disarm(due.key());
        }
    }

    /// Timers that are set.
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    fn watch_reservation(&mut self, job: &JobRecord, now: Now, rules: &Rules) {
        let Some(reservation) = &job.reservation else {
            return self.disarm(Key::Reservation(job.id));
        };
        let due = Due::Reservation {
            job_id: job.id,
            reservation_id: reservation.id,
            revision: job.revision,
        };
        let term = rules.dispatch_timeout();
        // To see the same dispatch once more must not lengthen it: a shared store is read again every few seconds.
        let known = self.timers.get(&Key::Reservation(job.id));
        let same = known.filter(|timer| {
            matches!(timer.due, Due::Reservation { reservation_id, .. } if reservation_id == reservation.id)
        });
        let at = same.map_or(now.mono.saturating_add(term), |timer| timer.at);
        self.arm(Timer {
            renewals: 0,
            heard: Duration::ZERO,
            needs_word: false,
            at,
            term,
            due,
        });
    }

    fn watch_lease(
        &mut self,
        lease: &LeaseRecord,
        now: Now,
        rest: impl Fn(Duration, Timestamp) -> Duration,
    ) {
        if !lease.is_live() {
            self.disarm(Key::Lease(lease.id));
            return self.disarm(Key::Run(lease.id));
        }
        let term = ttl(lease.ttl_sec);
        let due = Due::Lease {
            lease_id: lease.id,
            revision: lease.revision,
        };
        // A change that does not renew must not lengthen: only its revision is new.
        let known = self.timers.get(&Key::Lease(lease.id));
        let same = known.filter(|timer| timer.renewals == lease.renewals);
        let at = same.map_or(now.mono.saturating_add(term), |timer| timer.at);
        let heard = same.map_or(now.mono, |timer| timer.heard);
        self.arm(Timer {
            at,
            term,
            due,
            renewals: lease.renewals,
            heard,
            needs_word: false,
        });

        let limited = lease.running().and_then(|job| {
            let limit = job.max_runtime_sec?;
            Some((job.id, time_limit(lease, limit)))
        });
        let Some((job_id, limit)) = limited else {
            return self.disarm(Key::Run(lease.id));
        };
        let due = Due::Run {
            lease_id: lease.id,
            job_id,
            current_since: lease.current_since,
        };
        if self
            .timers
            .get(&Key::Run(lease.id))
            .is_none_or(|timer| timer.due != due)
        {
            let at = now.mono.saturating_add(rest(limit, lease.current_since));
            self.arm(Timer {
                renewals: 0,
                heard: Duration::ZERO,
                needs_word: lease.reports_begin,
                at,
                term: limit,
                due,
            });
        }
    }

    /// Makes good for time in which nobody looked.
    fn notice_gap(&mut self, now: Now) {
        let gap = now.mono.saturating_sub(self.seen);
        self.seen = self.seen.max(now.mono);
        if gap <= self.longest_gap {
            return;
        }
        let timers: Vec<Timer> = self.timers.values().copied().collect();
        for timer in timers {
            let at = match timer.due {
                Due::Run { .. } => timer.at.saturating_add(gap),
                Due::Lease { .. } | Due::Reservation { .. } if timer.at <= now.mono => {
                    now.mono.saturating_add(timer.term)
                }
                Due::Lease { .. } | Due::Reservation { .. } => timer.at,
            };
            self.arm(Timer { at, ..timer });
        }
    }

    fn arm(&mut self, timer: Timer) {
        let key = timer.due.key();
        if let Some(old) = self.timers.insert(key, timer) {
            self.order.remove(&(old.at, key));
        }
        self.order.insert((timer.at, key));
    }

    fn disarm(&mut self, key: Key) {
        if let Some(old) = self.timers.remove(&key) {
            self.order.remove(&(old.at, key));
        }
    }
}
