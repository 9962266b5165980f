//! Whether a whole audit trail is possible, and agrees with the records.
//!
//! [`replay`](crate::replay) knows which event may follow which in a job's story. An [`Auditor`] is shown all events of a
//! store in their order, and then all records, and tells what cannot be:
//!
//! - a step that there is none of, a second end, an attempt or a rescue that does not add up, a job that runs under two
//!   leases at once;
//! - revisions that do not rise: those of one commit are the same, any other is greater than the one before;
//! - a job that is claimed or runs under a lease that was not granted, or has ended; a lease that is granted or ends twice;
//! - a record that is not what the events say, events of a job that waits or runs and has no record, and a record
//!   without events.
//!
//! A trail may have been pruned from its beginning. Then a job's story may begin in the middle: its first event is
//! believed, and what was counted before is not compared.

use std::collections::HashMap;
use std::fmt;

use jiff::Timestamp;
use jobtree_protocol::{Event, EventKind, JobId, JobState, LeaseId};

use crate::record::{JobRecord, LeaseRecord};
use crate::replay::Story;

/// Something that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The event's place in the trail, if it is about one.
    pub place: Option<u64>,
    /// The job, if it is about one.
    pub job_id: Option<JobId>,
    /// The lease, if it is about one.
    pub lease_id: Option<LeaseId>,
    /// In words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place {
            write!(f, "event {place}, ")?;
        }
        if let Some(job) = self.job_id {
            write!(f, "job {job}, ")?;
        }
        if let Some(lease) = self.lease_id {
            write!(f, "lease {lease}, ")?;
        }
        f.write_str(&self.what)
    }
}

/// What is known of a job from its events so far.
struct Trail {
    story: Story,
    /// When its last event was: those of one commit have one time.
    at: Timestamp,
    /// Nothing of it is missing. Otherwise counts are not known, or only from some event on.
    whole: bool,
    /// The revision that it was begun with in the middle, until it changes: one commit may have written several events.
    begun_at: Option<u64>,
}

impl Trail {
    fn new(at: Timestamp) -> Self {
        Self {
            story: Story::default(),
            at,
            whole: true,
            begun_at: None,
        }
    }

    /// Begins in the middle: the event says how the job is afterwards.
    fn midway(event: &Event) -> Self {
        let held = event.state.is_some_and(JobState::holds_capacity);
        let story = Story {
            state: event.state,
            lease_id: event.lease_id.filter(|_| held),
            revision: event.revision.unwrap_or(0),
            ..Story::default()
        };
        Self {
            story,
            at: event.at,
            whole: false,
            begun_at: event.revision,
        }
    }

    fn add(&mut self, event: &Event) -> Result<(), String> {
        if self.begun_at.is_some() && self.begun_at == event.revision {
            *self = Self::midway(event);
            return Ok(());
        }
        self.begun_at = None;
        let same = self.story.revision > 0 && event.revision == Some(self.story.revision);
        if same && event.at != self.at {
            return Err(format!(
                "{} has the revision of an event of another time: revisions must rise",
                event.kind
            ));
        }
        if !self.whole
            && let Some(attempt) = event.attempt
        {
            self.story.attempts = attempt.saturating_sub(1);
        }
        self.story = self
            .story
            .after(event)
            .map_err(|impossible| impossible.to_string())?;
        self.at = event.at;
        Ok(())
    }

    /// What of the record is not as the events say.
    fn differs(&self, job: &JobRecord) -> Option<String> {
        let (story, told) = (&self.story, job.state);
        if story.state != Some(told) || story.lease_id != job.lease_id {
            let state = story.state.map_or("nothing", JobState::as_str);
            return Some(format!(
                "its record says {told}{}, its events {state}{}",
                under(job.lease_id),
                under(story.lease_id)
            ));
        }
        if story.revision > job.revision {
            return Some(format!(
                "its record has revision {}, an event {}",
                job.revision, story.revision
            ));
        }
        if self.whole && !story.agrees(job) {
            return Some(format!(
                "its record counts {} attempts, {} rescues and {} redrives, its events {}, {} and {}; or they differ in \
                 whether it was to be canceled or is quarantined",
                job.attempts,
                job.rescues,
                job.redrives,
                story.attempts,
                story.rescues,
                story.redrives
            ));
        }
        None
    }
}

fn under(lease: Option<LeaseId>) -> String {
    lease.map_or_else(String::new, |lease| format!(" under lease {lease}"))
}

/// Reads a trail and the records, and tells what cannot be. It remembers a little of every job of the trail.
///
/// ```
/// use jobtree_queue::audit::Auditor;
/// let auditor = Auditor::new(false);
/// assert!(auditor.finish().is_empty());
/// ```
pub struct Auditor {
    /// The trail does not begin with the first event.
    pruned: bool,
    place: u64,
    jobs: HashMap<JobId, Trail>,
    /// Leases that the trail has seen, and whether they hold.
    leases: HashMap<LeaseId, bool>,
}

impl Auditor {
    /// Of a trail whose oldest events may be missing, or not.
    pub fn new(pruned: bool) -> Self {
        Self {
            pruned,
            place: 0,
            jobs: HashMap::new(),
            leases: HashMap::new(),
        }
    }

    /// The next event of the trail, and its place. What is wrong is told once: it is believed from then on.
    pub fn event(&mut self, place: u64, event: &Event) -> Vec<Violation> {
        let mut wrong = Vec::new();
        let mut tell = |what: String| {
            wrong.push(Violation {
                place: Some(place),
                job_id: event.job_id,
                lease_id: event.lease_id,
                what,
            });
        };
        if place <= self.place {
            tell(format!("its place is not behind {}", self.place));
        }
        self.place = place;
        match (event.job_id, event.lease_id) {
            (Some(job), lease) => {
                let claimed = event.kind == EventKind::Dispatching && lease.is_some();
                if event.kind == EventKind::Running || claimed {
                    match lease.map(|lease| self.leases.get(&lease)) {
                        Some(Some(true)) => {}
                        Some(None) if self.pruned => {}
                        _ => tell(
                            "it is claimed or runs under a lease that does not hold".to_owned(),
                        ),
                    }
                }
                if let Err(what) = self.add(job, event) {
                    tell(what);
                    self.jobs.insert(job, Trail::midway(event));
                }
            }
            (None, Some(lease)) => {
                let holds = self.leases.get(&lease).copied();
                let (now, allowed) = match event.kind {
                    EventKind::LeaseGranted => (true, holds.is_none()),
                    EventKind::LeaseExpired
                    | EventKind::LeaseReleased
                    | EventKind::LeaseRevoked => {
                        let unseen = holds.is_none() && self.pruned;
                        (false, holds == Some(true) || unseen)
                    }
                    _ => return wrong,
                };
                if !allowed {
                    tell(format!(
                        "{} of a lease that {}",
                        event.kind,
                        match holds {
                            None => "was never granted",
                            Some(true) => "holds already",
                            Some(false) => "has ended",
                        }
                    ));
                }
                self.leases.insert(lease, now);
            }
            (None, None) => {}
        }
        wrong
    }

    fn add(&mut self, job: JobId, event: &Event) -> Result<(), String> {
        if let Some(trail) = self.jobs.get_mut(&job) {
            return trail.add(event);
        }
        let trail = if self.pruned && event.kind != EventKind::Submitted {
            Trail::midway(event)
        } else {
            let mut trail = Trail::new(event.at);
            trail.add(event)?;
            trail
        };
        self.jobs.insert(job, trail);
        Ok(())
    }

    /// A job's record. All events must have been shown before.
    pub fn job(&mut self, job: &JobRecord) -> Option<Violation> {
        let what = match self.jobs.remove(&job.id) {
            None if self.pruned => return None,
            None => Some("it has a record, and no events".to_owned()),
            Some(trail) => trail.differs(job),
        };
        let ended = job
            .lease_id
            .filter(|id| self.leases.get(id) == Some(&false));
        let what = what.or_else(|| {
            ended.map(|_| {
                "it is held under a lease that has ended, as the lease's events say".to_owned()
            })
        })?;
        Some(Violation {
            place: None,
            job_id: Some(job.id),
            lease_id: job.lease_id,
            what,
        })
    }

    /// A lease that holds. All events must have been shown before.
    pub fn live_lease(&mut self, lease: &LeaseRecord) -> Option<Violation> {
        let what = match self.leases.remove(&lease.id) {
            Some(true) => return None,
            None if self.pruned => return None,
            None => "it holds, and was never granted",
            Some(false) => "it holds, and has ended, as its events say",
        };
        Some(Violation {
            place: None,
            job_id: None,
            lease_id: Some(lease.id),
            what: what.to_owned(),
        })
    }

    /// What is left when all records were shown: jobs and leases that the trail knows as live and nobody else.
    pub fn finish(self) -> Vec<Violation> {
        let lost = |trail: &Trail| trail.story.state.is_some_and(|state| !state.is_ended());
        let jobs = self.jobs.into_iter().filter(|(_, trail)| lost(trail));
        let jobs = jobs.map(|(job, trail)| Violation {
            place: None,
            job_id: Some(job),
            lease_id: None,
            what: format!(
                "its events say {}, and it has no record: it was lost",
                trail.story.state.map_or("nothing", JobState::as_str)
            ),
        });
        let leases = self.leases.into_iter().filter(|(_, holds)| *holds);
        let leases = leases.map(|(lease, _)| Violation {
            place: None,
            job_id: None,
            lease_id: Some(lease),
            what: "it was granted and never ended, and does not hold".to_owned(),
        });
        let mut left: Vec<Violation> = jobs.chain(leases).collect();
        left.sort_by_key(|violation| (violation.job_id, violation.lease_id));
        left
    }
}
