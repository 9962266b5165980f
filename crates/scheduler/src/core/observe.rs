//! What commits say, and what follows for the dispatcher.
//!
//! Every event that is sent to the dispatcher from here may be sent twice, or late: each says how things are for one job
//! or one lease, whatever was known before.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{Constraints, InstanceId, JobState, Late, LeaseId, Priority};
use jobtree_queue::candidate::ConcurrencyKey;
use jobtree_queue::dispatch::{Event, LiveLease};
use jobtree_queue::history::Run;
use jobtree_queue::ledger::Holder;
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, LeaseRecord, Now};
use jobtree_store::Written;

use super::{Bug, Core};

/// What is known of a lease of this node.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The concurrency key of its jobs.
    pub(super) key: Option<ConcurrencyKey>,
    /// When it will probably end, by the monotonic clock.
    pub(super) ends: Option<Duration>,
    pub(super) pids: Vec<u32>,
    pub(super) instance: Option<InstanceId>,
    pub(super) expires_at: Timestamp,
    pub(super) priority: Priority,
    pub(super) constraints: Constraints,
    /// When it was last heard of; see [`Core::heard`].
    pub(super) heard: u64,
}

impl Core {
    /// Takes a commit.
    pub(super) fn observe(&mut self, written: Written, now: Now) {
        self.heard += 1;
        let Written { changes, now: then } = written;
        if !self.has(Bug::NoSweeper) {
            self.deadlines.observe(&changes, then, &self.rules);
        }
        for event in &changes.events {
            self.stats.count(event.kind);
        }
        let reading = self.flights.values().any(|flight| flight.op.reads_jobs());
        for job in &changes.jobs {
            if reading {
                self.recent.insert(job.id, job.revision);
            }
            self.stats.see(job);
            self.learn(job);
            self.reconcile(job, now);
        }
        for lease in &changes.leases {
            let of_lease = |job: &&Arc<JobRecord>| job.lease_id == Some(lease.id);
            let key = changes.jobs.iter().find(of_lease).map(|job| key_of(job));
            self.put_lease(lease, key, now);
        }
        self.wake_waits(&changes, now);
    }

    /// How things are for one job.
    pub(super) fn reconcile(&mut self, job: &Arc<JobRecord>, now: Now) {
        self.watch_late(job);
        if let Some(latest) = self.flying.get_mut(&job.id) {
            let newer = |known: &Arc<JobRecord>| known.revision <= job.revision;
            if latest.as_ref().is_none_or(newer) {
                *latest = Some(Arc::clone(job));
            }
            return;
        }
        let id = job.id;
        if job.state != JobState::Queued {
            self.parkings.unpark(id);
        }
        let here = |node: Option<&_>| node == Some(&self.node);
        match job.state {
            JobState::Queued if job.waiting_for.is_empty() => {
                self.dispatched.remove(&id);
                // As a return, if it was dispatched; and as it is now.
                let revision = job.revision;
                self.events.push(Event::Returned { job: id, revision });
                self.submitted(job);
            }
            JobState::Dispatching if here(job.reservation.as_ref().map(|it| &it.node_id)) => {
                if self.dispatched.insert(id, self.heard).is_none() {
                    let candidate = job.candidate();
                    let until = now.mono + self.rules.dispatch_timeout();
                    self.events.push(Event::Dispatched { candidate, until });
                }
            }
            JobState::Running if here(job.node_id.as_ref()) => {
                self.dispatched.remove(&id);
                if let Some(lease) = job.lease_id {
                    self.events.push(Event::TakenUp { job: id, lease });
                }
                self.events.push(Event::Withdrawn(id));
            }
            _ => {
                self.dispatched.remove(&id);
                self.events.push(Event::Freed(Holder::Job(id)));
                self.events.push(Event::Withdrawn(id));
            }
        }
    }

    /// Whether a job that was read has been heard of since, as it is now.
    pub(super) fn is_outdated(&self, job: &JobRecord) -> bool {
        let newer = |revision: &u64| *revision > job.revision;
        self.recent.get(&job.id).is_some_and(newer)
    }

    /// One more that waits; many in a row are shown at once.
    fn submitted(&mut self, job: &JobRecord) {
        self.events.push(Event::Submitted(vec![job.candidate()]));
    }

    /// How things are for one lease.
    pub(super) fn put_lease(
        &mut self,
        lease: &LeaseRecord,
        key: Option<Option<ConcurrencyKey>>,
        now: Now,
    ) {
        if lease.node_id != self.node {
            return;
        }
        if !lease.is_live() {
            return self.drop_lease(lease.id);
        }
        let known = self.leases.get(&lease.id);
        let key = key.unwrap_or_else(|| known.and_then(|known| known.key.clone()));
        let takes = lease
            .expected_duration_sec
            .map(|seconds| now.mono + Duration::from_secs(seconds.into()));
        let ends = known.map_or(takes, |known| known.ends);
        if known.is_none_or(|known| known.pids != lease.pids) {
            self.pids_version += 1;
        }
        let new = known.is_none();
        if let Some(key) = key.as_ref().filter(|_| new && self.has(Bug::LeakedKeys)) {
            self.count_up(lease, key.key.clone());
        }
        let known = self.leases.get(&lease.id);
        let heard = self.heard;
        self.advice_changed |= known.is_none() && (self.advised || self.draining);
        self.leases.insert(
            lease.id,
            Known {
                key: key.clone(),
                ends,
                pids: lease.pids.clone(),
                instance: lease.instance_id,
                expires_at: lease.expires_at,
                priority: lease.priority,
                constraints: lease.constraints,
                heard,
            },
        );
        if self.granting.contains(&lease.id) {
            // Its units are those of the proposal until that is answered: not twice.
            return;
        }
        self.events.push(Event::Leased(LiveLease {
            lease: lease.id,
            addon: lease.addon_id.clone(),
            units: lease.cost(),
            key,
            ends_in: ends.map(|at| at.saturating_sub(now.mono)),
        }));
    }

    /// The mistake [`Bug::LeakedKeys`].
    fn count_up(&mut self, lease: &LeaseRecord, key: std::sync::Arc<str>) {
        let addon = lease.addon_id.clone();
        let counter = self.elsewhere.entry((addon.clone(), key.clone()));
        let running = *counter.and_modify(|count| *count += 1).or_insert(1);
        self.events.push(Event::KeyElsewhere {
            addon,
            key,
            running,
        });
    }

    /// A lease is over.
    pub(super) fn drop_lease(&mut self, id: LeaseId) {
        if let Some(known) = self.leases.remove(&id)
            && !known.pids.is_empty()
        {
            self.pids_version += 1;
        }
        self.ended_meanwhile.insert(id);
        if !self.has(Bug::LeakedUnits) {
            self.events.push(Event::Freed(Holder::Lease(id)));
        }
    }

    /// Jobs that fail when their deadline passes while they wait.
    pub(super) fn watch_late(&mut self, job: &JobRecord) {
        let intent = &job.intent;
        let wanted = intent.late == Late::Fail && job.redrives == 0;
        let deadline = intent
            .deadline_at
            .filter(|_| wanted && job.state == JobState::Queued);
        if let Some(before) = self.late_at.remove(&job.id) {
            self.late.remove(&(before, job.id));
        }
        if let Some(deadline) = deadline {
            self.late.insert((deadline, job.id));
            self.late_at.insert(job.id, deadline);
        }
    }

    /// How long jobs of a type take.
    fn learn(&mut self, job: &JobRecord) {
        let succeeded = match job.state {
            JobState::Done => true,
            JobState::Failed => false,
            _ => return,
        };
        let (Some(started), Some(ended)) = (job.started_at, job.ended_at) else {
            return;
        };
        let (addon, job_type) = (&job.intent.addon_id, &job.intent.job_type);
        let run = Run {
            succeeded,
            waited: between(job.waiting_since(), started),
            ran: between(started, ended),
        };
        let learnt = |core: &Core| {
            let record = core.history.job_type(addon, job_type)?;
            record.learnt()
        };
        let before = learnt(self);
        self.history.add(addon, job_type, &run);
        let kind = (addon.clone(), job_type.clone());
        self.unwritten.insert(kind);
        if let Some(takes) = learnt(self).filter(|after| Some(*after) != before) {
            self.events.push(Event::Learnt {
                addon: addon.clone(),
                job_type: job_type.clone(),
                takes,
            });
        }
    }

    /// Watches what a reading showed that no commit told of.
    pub(super) fn watch(&mut self, jobs: Vec<Arc<JobRecord>>, leases: Vec<LeaseRecord>, now: Now) {
        if self.has(Bug::NoSweeper) {
            return;
        }
        let changes = Changes {
            jobs,
            leases,
            ..Changes::default()
        };
        self.deadlines.observe(&changes, now, &self.rules);
    }
}

fn between(from: jiff::Timestamp, to: jiff::Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// The concurrency key of a job.
pub(super) fn key_of(job: &JobRecord) -> Option<ConcurrencyKey> {
    let key = job.intent.concurrency_key.as_deref()?;
    Some(ConcurrencyKey {
        key: key.into(),
        limit: job.intent.concurrency_limit,
    })
}
