//! A store with a clock that the test moves, and short ways to say what most cases need.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{
    CompleteAnswer, CompleteRequest, InstanceId, Intent, JobId, JobQuery, JobState, LeaseId,
    Limits, NodeId, SubmitRequest,
};
use jobtree_queue::replay::Story;
use jobtree_queue::transitions::{Abilities, Claim, Claimed, Reserve, TransitionError};
use jobtree_queue::{JobRecord, LeaseRecord, Now};

use crate::backend::{Listening, Written};
use crate::error::StoreError;
use crate::execute::{Stamp, Submission};
use crate::store::Store;

pub(super) struct World {
    pub(super) store: Store,
    now: Cell<Now>,
    drawn: Cell<u64>,
    told: Arc<Mutex<Vec<Written>>>,
    _listening: Listening,
    /// Jobs that were pruned on purpose.
    pub(super) pruned: RefCell<Vec<JobId>>,
}

/// Draws the next of a sequence that is the same each time.
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

impl World {
    pub(super) fn new(store: Store) -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&told);
        let listening = store.listen(Arc::new(move |written: &[Written]| {
            listener
                .lock()
                .expect("no listener panics")
                .extend_from_slice(written);
        }));
        let wall: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a time");
        Self {
            store,
            now: Cell::new(Now {
                wall,
                mono: Duration::from_secs(1000),
            }),
            drawn: Cell::new(0),
            told,
            _listening: listening,
            pruned: RefCell::default(),
        }
    }

    pub(super) fn now(&self) -> Now {
        self.now.get()
    }

    pub(super) fn advance(&self, seconds: u64) {
        self.now
            .set(self.now.get().after(Duration::from_secs(seconds)));
    }

    pub(super) fn draw(&self) -> u64 {
        self.drawn.set(self.drawn.get() + 1);
        scatter(self.drawn.get())
    }

    pub(super) fn stamp(&self) -> Stamp {
        // A little later with each command, so that what happens later has a later time.
        let now = self.now.get().after(Duration::from_micros(10));
        self.now.set(now);
        Stamp {
            now,
            roll: self.draw(),
            rules: Arc::default(),
        }
    }

    pub(super) fn job_id(&self) -> JobId {
        let mut random = [0; 10];
        // Counted in its first bytes, so that ids of one millisecond sort by their order.
        random[..8].copy_from_slice(&self.drawn.get().to_be_bytes());
        self.draw();
        JobId::from_parts(self.now().wall, random)
    }

    pub(super) fn lease_id(&self) -> LeaseId {
        let (a, b) = (self.draw(), self.draw());
        LeaseId::from_random((u128::from(a) << 64 | u128::from(b)).to_be_bytes())
    }

    pub(super) fn intent(request: SubmitRequest) -> Intent {
        request
            .validate(&Limits::default())
            .expect("a valid intent")
    }

    pub(super) fn submission(&self, request: SubmitRequest) -> Submission {
        Submission {
            id: self.job_id(),
            id_given: false,
            intent: Self::intent(request),
        }
    }

    pub(super) fn submit(&self, request: SubmitRequest) -> JobId {
        let submission = self.submission(request);
        let id = submission.id;
        let answer = self.store.submit(self.stamp(), submission).wait();
        assert_eq!(answer.expect("it is taken").job_id, id);
        id
    }

    /// A job with nothing special.
    pub(super) fn plain(&self) -> JobId {
        self.submit(plain())
    }

    pub(super) fn claim_as(
        &self,
        jobs: &[JobId],
        lease_id: LeaseId,
    ) -> Result<Claimed, StoreError> {
        self.claim_by(Abilities::default(), jobs, lease_id)
    }

    pub(super) fn claim_by(
        &self,
        worker: Abilities,
        jobs: &[JobId],
        lease_id: LeaseId,
    ) -> Result<Claimed, StoreError> {
        let command = Claim {
            worker,
            lease_id,
            node_id: node(),
            instance_id: Some(InstanceId::from_random([7; 16])),
            pids: vec![1, 2],
            process_origin: None,
            reason: "there is room".into(),
        };
        self.store
            .claim(self.stamp(), jobs.to_vec(), command)
            .wait()
    }

    pub(super) fn claim(&self, jobs: &[JobId]) -> LeaseRecord {
        let claimed = self.claim_as(jobs, self.lease_id()).expect("a lease");
        assert_eq!(claimed.skipped, []);
        claimed.lease
    }

    pub(super) fn reserve(&self, job: JobId) -> Result<LeaseId, StoreError> {
        let reservation_id = self.lease_id();
        let command = Reserve {
            reservation_id,
            node_id: node(),
            key_holders: 0,
            reason: "there is room".into(),
        };
        self.store
            .reserve(self.stamp(), job, command)
            .wait()
            .map(|reservation| reservation.id)
    }

    pub(super) fn complete(
        &self,
        job: JobId,
        request: CompleteRequest,
    ) -> Result<CompleteAnswer, StoreError> {
        self.store.complete(self.stamp(), job, request).wait()
    }

    pub(super) fn finish(&self, job: JobId) {
        let lease = self.claim(&[job]);
        let answer = self.complete(job, CompleteRequest::done(lease.id, None));
        assert_eq!(answer.expect("it ran").state, JobState::Done);
    }

    pub(super) fn fail(&self, job: JobId) {
        let lease = self.claim(&[job]);
        let answer = self.complete(job, CompleteRequest::failed(lease.id, "no"));
        assert_eq!(answer.expect("it ran").state, JobState::Failed);
    }

    pub(super) fn record(&self, job: JobId) -> Arc<JobRecord> {
        self.store.job(job).wait().expect("the job is there").job
    }

    pub(super) fn state(&self, job: JobId) -> JobState {
        self.record(job).state
    }

    pub(super) fn list(&self, query: JobQuery) -> Vec<JobId> {
        let mut query = query;
        let mut found = Vec::new();
        loop {
            let page = self.store.list(query.clone(), 3).wait().expect("a page");
            assert!(page.jobs.len() <= 3);
            found.extend(page.jobs.iter().map(|job| job.id));
            match page.next {
                None => break,
                Some(next) => query.after = Some(next),
            }
        }
        assert!(found.is_sorted(), "pages go by ids");
        found
    }

    pub(super) fn told(&self) -> Vec<Written> {
        self.told.lock().expect("no listener panics").clone()
    }

    /// What must hold after everything: the records are those that were last told, the trail tells the same story, and
    /// leases and jobs agree.
    pub(super) fn audit(&self, case: &str) {
        let mut jobs: HashMap<JobId, Arc<JobRecord>> = HashMap::new();
        let mut leases: HashMap<LeaseId, LeaseRecord> = HashMap::new();
        for written in self.told() {
            for job in written.changes.jobs {
                if let Some(before) = jobs.get(&job.id) {
                    assert!(before.revision < job.revision, "{case}: revisions grow");
                }
                jobs.insert(job.id, job);
            }
            leases.extend(
                written
                    .changes
                    .leases
                    .into_iter()
                    .map(|lease| (lease.id, lease)),
            );
        }
        for id in self.pruned.borrow().iter() {
            jobs.remove(id);
        }
        for (id, job) in &jobs {
            let told = self.store.job(*id).wait().expect("a job that was told");
            assert_eq!(told.job, *job, "{case}: what is read is what was written");
            let events = self.store.events_of(*id).wait().expect("a trail");
            let story = Story::of(events.iter().map(|recorded| &recorded.event));
            let story = story.unwrap_or_else(|impossible| panic!("{case}: {impossible}"));
            assert!(story.agrees(job), "{case}: {story:?} is not {job:?}");
            assert_eq!(job.lease_id, told.lease.as_ref().map(|lease| lease.id));
            if let Some(lease) = told.lease {
                assert!(lease.is_live() && lease.job(*id).is_some(), "{case}");
            }
        }
        let live = self.store.live_leases().wait().expect("the leases");
        assert_eq!(
            live.len(),
            leases.values().filter(|lease| lease.is_live()).count(),
            "{case}"
        );
        for lease in live {
            assert_eq!(Some(&lease), leases.get(&lease.id), "{case}: a lease");
        }
        let report = crate::audit(&self.store, |_| {}).expect("it can be read");
        assert_eq!(report.violations, [], "{case}: trail and records agree");
        let mut listed = self.list(JobQuery::default());
        let mut known: Vec<JobId> = jobs.keys().copied().collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known, "{case}: the list has all");
    }
}

pub(super) fn plain() -> SubmitRequest {
    SubmitRequest::new("visuals", "indexing", 10)
}

pub(super) fn node() -> NodeId {
    NodeId::new("node-a").expect("a name")
}

/// The rule that refused.
#[track_caller]
pub(super) fn refused<T: Debug>(outcome: Result<T, StoreError>) -> TransitionError {
    match outcome {
        Err(StoreError::Refused(error)) => *error,
        other => panic!("it should have been refused: {other:?}"),
    }
}
