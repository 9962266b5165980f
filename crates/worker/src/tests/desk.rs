//! A scheduler that says what the test says, by a clock that the test moves; in a simulation by that of the simulation.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use jobtree_protocol::{
    AddonId, Advice, ApiError, ClaimAnswer, ClaimRequest, CompleteAnswer, CompleteManyAnswer,
    CompleteManyRequest, CompleteRequest, CompleteStatus, Each, ErrorCode, Heartbeat,
    HeartbeatAnswer, HeartbeatManyAnswer, HeartbeatManyRequest, JobId, JobState, JobView, Json,
    LeaseId, LogAppend, LogAppendAnswer, ProcessOrigin, ReleaseRequest, WorkerReport,
};

use jobtree_runtime::sim;

use crate::reply::{Promise, Reply, promise};
use crate::{Grantor, Poke, SchedulerPlace, WorkerBuilder};

const TTL_SEC: u32 = 30;

#[derive(Debug)]
pub(super) enum Said {
    Completed(JobId, CompleteRequest),
    Released(LeaseId, ReleaseRequest),
    Beat(Heartbeat),
    Logged(JobId, LogAppend),
    Reported(Box<WorkerReport>),
}

/// A request for completions that waits to be answered.
pub(super) type Kept = (Promise<CompleteManyAnswer>, CompleteManyAnswer);

type Answering = dyn Fn(&Heartbeat) -> Option<Result<HeartbeatAnswer, ApiError>> + Send + Sync;

/// A scheduler's counter at which only the test stands.
pub(super) struct Desk {
    millis: AtomicU64,
    pub(super) offers: Mutex<Offers>,
    beats: Box<Answering>,
    /// What completions are refused with, one after the other, before they are taken.
    pub(super) refusals: Mutex<VecDeque<ApiError>>,
    /// Completions are answered when the test wants it.
    pub(super) kept: Mutex<Option<mpsc::Sender<Kept>>>,
    /// Refuses pieces of logs before they are taken.
    pub(super) log_refusals: Mutex<VecDeque<ApiError>>,
    /// Errors that answer releases, one after the other, before one succeeds.
    pub(super) release_refusals: Mutex<VecDeque<ApiError>>,
    pub(super) report_every: Mutex<Option<Duration>>,
    /// Answers may get lost, so claims are repeated.
    pub(super) loses_answers: AtomicBool,
    pub(super) place: Mutex<SchedulerPlace>,
    said: Mutex<mpsc::Sender<Said>>,
    poke: Mutex<Option<Poke>>,
    /// Heartbeats that are never answered.
    unanswered: Mutex<Vec<Promise<HeartbeatManyAnswer>>>,
}

#[derive(Default)]
pub(super) struct Offers {
    leases: VecDeque<Result<ClaimAnswer, ApiError>>,
    pub(super) waiting: Option<Promise<Vec<ClaimAnswer>>>,
    /// How many leases each claim asked for.
    pub(super) asked_for: Vec<u32>,
    /// Of how many leases each claim said that their first jobs begin at once.
    pub(super) begins_now: Vec<Option<u32>>,
    /// The processes that each claim named, and what makes them unambiguous.
    pub(super) processes: Vec<(Vec<u32>, Option<Box<ProcessOrigin>>)>,
    /// Claims that speak of begins are refused, as the first release does.
    pub(super) is_first_release: bool,
}

impl Desk {
    pub(super) fn open(
        beats: impl Fn(&Heartbeat) -> Option<Result<HeartbeatAnswer, ApiError>> + Send + Sync + 'static,
    ) -> (Arc<Desk>, mpsc::Receiver<Said>) {
        let (sender, said) = mpsc::channel();
        let desk = Desk {
            millis: AtomicU64::new(1_000_000),
            offers: Mutex::default(),
            beats: Box::new(beats),
            refusals: Mutex::default(),
            kept: Mutex::default(),
            log_refusals: Mutex::default(),
            release_refusals: Mutex::default(),
            report_every: Mutex::default(),
            loses_answers: AtomicBool::new(false),
            place: Mutex::new(SchedulerPlace::SameProcess),
            said: Mutex::new(sender),
            poke: Mutex::default(),
            unanswered: Mutex::default(),
        };
        (Arc::new(desk), said)
    }

    /// One that renews and wants nothing.
    pub(super) fn friendly() -> (Arc<Desk>, mpsc::Receiver<Said>) {
        Desk::open(|_| Some(Ok(renewed(&[]))))
    }

    pub(super) fn offer(&self, jobs: Vec<JobView>) -> LeaseId {
        let lease_id = LeaseId::generate();
        self.put(Ok(ClaimAnswer {
            lease_id,
            ttl_sec: TTL_SEC,
            jobs,
        }));
        lease_id
    }

    pub(super) fn put(&self, offer: Result<ClaimAnswer, ApiError>) {
        let mut offers = self.offers.lock().unwrap();
        match offers.waiting.take() {
            None => offers.leases.push_back(offer),
            Some(promise) => {
                if let Err(offer) = promise.keep(offer.map(|lease| vec![lease])) {
                    let lease = offer.map(|mut leases| leases.remove(0));
                    offers.leases.push_back(lease);
                }
            }
        }
    }

    pub(super) fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.millis.fetch_add(millis, Ordering::SeqCst);
        // Any lease: the thread looks at its clock.
        self.poke(LeaseId::generate());
    }

    pub(super) fn poke(&self, lease: LeaseId) {
        let poke = self.poke.lock().unwrap().clone();
        poke.expect("a worker watches")(lease);
    }

    fn say(&self, said: Said) {
        // A test that is over listens no more.
        let _ = self.said.lock().unwrap().send(said);
    }

    pub(super) fn worker(self: &Arc<Self>) -> WorkerBuilder {
        let addon = AddonId::new("tests").unwrap();
        let grantor: Arc<dyn Grantor> = Arc::clone(self) as _;
        WorkerBuilder::new(grantor, addon)
    }
}

pub(super) fn renewed(cancel: &[JobId]) -> HeartbeatAnswer {
    HeartbeatAnswer {
        advice: if cancel.is_empty() {
            Advice::Continue
        } else {
            Advice::Cancel
        },
        ttl_sec: TTL_SEC,
        cancel: cancel.to_vec(),
        give_back: Vec::new(),
        paused: false,
    }
}

impl Grantor for Desk {
    fn claim(&self, request: ClaimRequest) -> Reply<Vec<ClaimAnswer>> {
        let mut offers = self.offers.lock().unwrap();
        offers.asked_for.push(request.max_leases);
        offers.begins_now.push(request.begins_now);
        let processes = (request.pids.clone(), request.process_origin.clone());
        offers.processes.push(processes);
        if offers.is_first_release && request.begins_now.is_some() {
            let message = "the body cannot be read: unknown field `begins_now`, expected one of …";
            return Reply::ready(Err(ApiError::new(ErrorCode::Malformed, message)));
        }
        if let Some(offer) = offers.leases.pop_front() {
            return Reply::ready(offer.map(|lease| vec![lease]));
        }
        let (promise, promised) = promise();
        offers.waiting = Some(promise);
        Reply::new(promised)
    }

    fn heartbeat_many(&self, request: HeartbeatManyRequest) -> Reply<HeartbeatManyAnswer> {
        let answers: Option<Vec<_>> = request
            .leases
            .iter()
            .map(|beat| (self.beats)(beat))
            .collect();
        for beat in request.leases {
            self.say(Said::Beat(beat));
        }
        if let Some(worker) = request.worker {
            self.say(Said::Reported(Box::new(worker)));
        }
        let Some(answers) = answers else {
            let (promise, promised) = promise();
            self.unanswered.lock().unwrap().push(promise);
            return Reply::new(promised);
        };
        let each = answers.into_iter().map(|answer| match answer {
            Ok(answer) => Each::Done(answer),
            Err(error) => Each::Refused { error },
        });
        Reply::ready(Ok(HeartbeatManyAnswer {
            leases: each.collect(),
        }))
    }

    fn complete_many(&self, request: CompleteManyRequest) -> Reply<CompleteManyAnswer> {
        let each = request.each().map(|(job_id, request)| {
            let state = match request.status {
                CompleteStatus::Done => JobState::Done,
                CompleteStatus::Failed => JobState::Failed,
            };
            self.say(Said::Completed(job_id, request));
            match self.refusals.lock().unwrap().pop_front() {
                Some(error) => Each::Refused { error },
                None => Each::Done(CompleteAnswer {
                    job_id,
                    state,
                    next_earliest_start_at: None,
                }),
            }
        });
        let answer = CompleteManyAnswer {
            jobs: each.collect(),
        };
        if let Some(kept) = &*self.kept.lock().unwrap() {
            let (promise, promised) = promise();
            kept.send((promise, answer)).unwrap();
            return Reply::new(promised);
        }
        Reply::ready(Ok(answer))
    }

    fn append_log(&self, job: JobId, request: LogAppend) -> Reply<LogAppendAnswer> {
        let next_offset = request.offset + request.text.len() as u64;
        self.say(Said::Logged(job, request));
        if let Some(error) = self.log_refusals.lock().unwrap().pop_front() {
            return Reply::ready(Err(error));
        }
        Reply::ready(Ok(LogAppendAnswer {
            next_offset,
            full: false,
        }))
    }

    fn release(&self, lease: LeaseId, request: ReleaseRequest) -> Reply<()> {
        self.say(Said::Released(lease, request));
        let refusal = self.release_refusals.lock().unwrap().pop_front();
        Reply::ready(refusal.map_or(Ok(()), Err))
    }

    fn mono(&self) -> Duration {
        let moved = Duration::from_millis(self.millis.load(Ordering::SeqCst));
        moved + sim::elapsed().unwrap_or_default()
    }

    fn watch(&self, poke: Poke) {
        *self.poke.lock().unwrap() = Some(poke);
    }

    fn place(&self) -> SchedulerPlace {
        *self.place.lock().unwrap()
    }

    fn loses_answers(&self) -> bool {
        self.loses_answers.load(Ordering::SeqCst)
    }

    fn report_every(&self) -> Option<Duration> {
        *self.report_every.lock().unwrap()
    }
}

pub(super) fn job(job_type: &str, payload: &str) -> JobView {
    let text = format!(
        r#"{{"job_id": "{}", "addon_id": "tests", "job_type": "{job_type}", "cost_units": 1, "priority": "NORMAL",
            "constraints": {{}}, "expected_duration_sec": null, "created_at": "2026-01-01T00:00:00Z",
            "state": "RUNNING", "attempts": 0, "max_attempts": 3, "rescues": 0, "next_earliest_start_at": null,
            "lease_id": null, "node_id": null, "payload": {payload}, "time_sensitive": false, "deadline_at": null,
            "max_runtime_sec": null, "started_at": null, "ended_at": null}}"#,
        JobId::generate()
    );
    Json::from_text(text).unwrap().read().unwrap()
}
