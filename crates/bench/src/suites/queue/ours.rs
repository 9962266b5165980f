//! Our side: a store on a file or a server, as it comes.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use jobtree_protocol::{CompleteRequest, JobId, Json, LeaseId, Limits, NodeId, SubmitRequest};
use jobtree_queue::Now;
use jobtree_queue::transitions::{Claim, Rules};
use jobtree_store::{SqliteOptions, Stamp, Store, Submission};

use super::files::Folder;
use super::{BATCH, BULK, Work};
use crate::alone::Probe;

pub struct Ours {
    store: Store,
    /// Jobs that wait.
    waiting: VecDeque<JobId>,
}

impl Ours {
    /// # Panics
    ///
    /// If the file cannot be made.
    pub fn open(path: &Path) -> Self {
        Self::on(Store::open(&SqliteOptions::new(path)).expect("a new file"))
    }

    /// On a store that has no jobs yet.
    pub fn on(store: Store) -> Self {
        Self {
            store,
            waiting: VecDeque::new(),
        }
    }

    /// How many commits its writer has made.
    pub fn commits(&self) -> u64 {
        self.store.numbers().commits
    }

    /// Makes sure that so many jobs wait, before the time is taken.
    pub fn provide(&mut self, work: Work, count: usize) {
        if matches!(work, Work::ProcessOneByOne { .. } | Work::ProcessBatches)
            && self.waiting.len() < count
        {
            self.submit_in_bulk(count - self.waiting.len());
        }
    }

    /// How long a job takes.
    ///
    /// # Panics
    ///
    /// If a call is refused.
    pub fn micros_each(&mut self, work: Work, count: usize) -> f64 {
        self.provide(work, count);
        let start = Instant::now();
        match work {
            Work::Submit { callers } => self.submit(count, callers),
            Work::Bulk => self.submit_in_bulk(count),
            Work::ProcessOneByOne { callers } => self.process_one_by_one(count, callers),
            Work::ProcessBatches => self.process_in_batches(count),
        }
        start.elapsed().as_secs_f64() * 1e6 / count as f64
    }

    fn submit(&mut self, count: usize, callers: usize) {
        let store = &self.store;
        let caller = || {
            let submit = |_| store.submit(stamp(), submission()).wait().expect("taken");
            (0..count / callers)
                .map(submit)
                .map(|answer| answer.job_id)
                .collect::<Vec<_>>()
        };
        let taken: Vec<JobId> = thread::scope(|scope| {
            let threads: Vec<_> = (0..callers).map(|_| scope.spawn(caller)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.flat_map(|taken| taken.expect("it ends")).collect()
        });
        self.waiting.extend(taken);
    }

    /// Two calls are on their way at a time, as those of a program that does not wait for each.
    pub fn submit_in_bulk(&mut self, count: usize) {
        let mut pending = VecDeque::new();
        for begin in (0..count).step_by(BULK) {
            let batch = (begin..count.min(begin + BULK)).map(|_| submission());
            pending.push_back(self.store.submit_many(stamp(), batch.collect()));
            if pending.len() > 1 {
                self.take(pending.pop_front());
            }
        }
        self.take(pending.pop_front());
    }

    fn take(&mut self, answer: Option<jobtree_store::Answer<Bulk>>) {
        if let Some(answer) = answer {
            let answers = answer.wait().expect("taken");
            let ids = answers
                .into_iter()
                .map(|answer| answer.expect("taken").job_id);
            self.waiting.extend(ids);
        }
    }

    fn process_one_by_one(&mut self, count: usize, callers: usize) {
        let jobs: Vec<JobId> = self.waiting.drain(..count).collect();
        let store = &self.store;
        thread::scope(|scope| {
            for mine in jobs.chunks(count.div_ceil(callers)) {
                scope.spawn(move || {
                    for job in mine {
                        let lease = LeaseId::generate();
                        store
                            .claim(stamp(), vec![*job], claim(lease))
                            .wait()
                            .expect("it waits");
                        let done = CompleteRequest::done(lease, None);
                        store.complete(stamp(), *job, done).wait().expect("it runs");
                    }
                });
            }
        });
    }

    /// The next claim does not wait for the answers to the completions before.
    pub fn process_in_batches(&mut self, count: usize) {
        let jobs: Vec<JobId> = self.waiting.drain(..count).collect();
        let mut pending = VecDeque::new();
        for batch in jobs.chunks(BATCH) {
            let lease = LeaseId::generate();
            let claimed = self
                .store
                .claim(stamp(), batch.to_vec(), claim(lease))
                .wait()
                .expect("they wait");
            assert_eq!(claimed.jobs.len(), batch.len());
            let requests = claimed
                .jobs
                .iter()
                .map(|job| (job.id, CompleteRequest::done(lease, None)));
            pending.push_back(self.store.complete_many(stamp(), requests.collect()));
            if pending.len() > 2 {
                let answers = pending.pop_front().expect("there are three").wait();
                assert!(answers.expect("they run").iter().all(Result::is_ok));
            }
        }
        for answers in pending {
            assert!(answers.wait().expect("they run").iter().all(Result::is_ok));
        }
    }
}

type Bulk =
    Vec<Result<jobtree_protocol::SubmitAnswer, jobtree_queue::transitions::TransitionError>>;

fn stamp() -> Stamp {
    static RULES: LazyLock<Arc<Rules>> = LazyLock::new(Arc::default);
    Stamp {
        now: Now {
            wall: jiff::Timestamp::now(),
            mono: Duration::ZERO,
        },
        roll: 1,
        rules: Arc::clone(&RULES),
    }
}

fn submission() -> Submission {
    let request = SubmitRequest {
        payload: Some(Json::of(&"/some/folder/with/a/file.jpg").expect("JSON")),
        ..SubmitRequest::new("visuals", "indexing", 3)
    };
    Submission::new(request.validate(&Limits::default()).expect("valid"))
}

fn claim(lease_id: LeaseId) -> Claim {
    Claim {
        worker: jobtree_queue::transitions::Abilities::default(),
        lease_id,
        node_id: NodeId::new("here").expect("a name"),
        instance_id: None,
        pids: Vec::new(),
        process_origin: None,
        reason: "room".into(),
    }
}

/// What the program can be told to do alone.
pub const PROBES: &[Probe] = &[SUBMITTED, SUBMITTED_IN_BULK, PROCESSED];

/// As if 64 called: valgrind runs one thread at a time, so these are 64 calls on their way.
pub const SUBMITTED: Probe = Probe {
    name: "queue-submitted",
    run: |count| {
        let folder = Folder::new("queue-submitted");
        let ours = Ours::open(&folder.file("ours.db"));
        for _ in 0..count / 64 {
            let answers: Vec<_> = (0..64)
                .map(|_| ours.store.submit(stamp(), submission()))
                .collect();
            for answer in answers {
                answer.wait().expect("taken");
            }
        }
    },
};

pub const SUBMITTED_IN_BULK: Probe = Probe {
    name: "queue-submitted-in-bulk",
    run: |count| {
        let folder = Folder::new("queue-in-bulk");
        Ours::open(&folder.file("ours.db")).submit_in_bulk(count as usize);
    },
};

pub const PROCESSED: Probe = Probe {
    name: "queue-processed",
    run: |count| {
        let folder = Folder::new("queue-processed");
        let mut ours = Ours::open(&folder.file("ours.db"));
        ours.submit_in_bulk(count as usize);
        ours.process_in_batches(count as usize);
    },
};
