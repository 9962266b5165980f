//! Callers that make random calls at random daemons, by a seed: also the same call at several at once, calls whose answer the
//! caller does not wait for, and calls made again later.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jobtree_protocol::{JobId, LeaseId, paths};
use jobtree_scheduler::core::Rng;
use serde_json::{Value, json};

use crate::http::{Endpoint, Sent};
use crate::ledger::{Call, Outcome, What};
use crate::rules::COST;

const ADDON: &str = "photos";
const TYPE: &str = "index";
/// The numbers of submissions with an idempotency key begin here: their bodies follow from the key.
const KEYED: u64 = 1 << 40;
/// Concurrency keys; the limit of the n-th is n + 1.
const GATES: u64 = 3;
const UNIQUE_KEYS: u64 = 4;

/// A call before it is made.
#[derive(Clone)]
struct Request {
    parts: Vec<What>,
    method: &'static str,
    path: String,
    body: Option<Value>,
    /// Whether the same call made twice is one effect.
    repeatable: bool,
}

impl Request {
    fn post(what: What, path: String, body: Value) -> Self {
        Self {
            parts: vec![what],
            method: "POST",
            path,
            body: Some(body),
            repeatable: true,
        }
    }
}

/// What callers know of each other's jobs and leases.
#[derive(Default)]
struct Known {
    jobs: VecDeque<JobId>,
    leases: Vec<(LeaseId, Vec<JobId>)>,
    capacity: Vec<LeaseId>,
    requests: VecDeque<Request>,
    submissions: u64,
}

/// All callers of a run.
pub struct Callers {
    endpoints: Vec<Endpoint>,
    begun: Instant,
    known: Mutex<Known>,
    ledger: Mutex<Vec<Call>>,
    stop: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn one_of<T: Clone>(rng: &mut Rng, of: &[T]) -> Option<T> {
    let place = (!of.is_empty()).then(|| rng.below(of.len() as u64) as usize)?;
    Some(of[place].clone())
}

impl Callers {
    pub fn new(endpoints: Vec<Endpoint>) -> Self {
        Self {
            endpoints,
            begun: Instant::now(),
            known: Mutex::default(),
            ledger: Mutex::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// Returns the time since the run began.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Runs `disturb` while so many threads call.
    pub fn call_while<T>(&self, seed: u64, threads: u64, disturb: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            for caller in 0..threads {
                scope.spawn(move || {
                    let mut rng = Rng::new(seed.wrapping_mul(1000) + caller);
                    while !self.stop.load(Ordering::Relaxed) {
                        self.step(&mut rng);
                    }
                });
            }
            let _stop = StopAtEnd(&self.stop);
            disturb()
        })
    }

    /// Submits a job at a daemon until it acknowledges one. Returns how long that took.
    pub fn until_acknowledged(&self, rng: &mut Rng, daemon: usize) -> Duration {
        let begun = self.now();
        loop {
            let request = self.submission(rng);
            self.finish(&request, self.send(&request, daemon));
            let ledger = lock(&self.ledger);
            let here = |call: &&Call| call.daemon == daemon && call.what == request.parts[0];
            let last = ledger.iter().rev().find(here);
            if last.is_some_and(|call| call.acknowledged().is_some()) {
                return self.now() - begun;
            }
            drop(ledger);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the calls that were made so far, and forgets them.
    pub fn take_ledger(&self) -> Vec<Call> {
        std::mem::take(&mut *lock(&self.ledger))
    }

    fn step(&self, rng: &mut Rng) {
        let Some(request) = self.choose(rng) else {
            return;
        };
        if request.repeatable {
            let mut known = lock(&self.known);
            known.requests.push_back(request.clone());
            if known.requests.len() > 50 {
                known.requests.pop_front();
            }
        }
        let daemon = rng.below(self.endpoints.len() as u64) as usize;
        let other = (daemon + 1 + rng.below(self.endpoints.len().max(2) as u64 - 1) as usize)
            % self.endpoints.len();
        match rng.below(100) {
            0..25 if request.repeatable => {
                let sent = [daemon, other].map(|daemon| self.send(&request, daemon));
                for sent in sent {
                    self.finish(&request, sent);
                }
            }
            25..40 if request.repeatable => {
                let (daemon, at, sent) = self.send(&request, daemon);
                if sent.is_ok() {
                    thread::sleep(Duration::from_micros(rng.below(20_000)));
                }
                let outcome = sent
                    .map(drop)
                    .map_or_else(Outcome::Unreachable, |()| Outcome::Dropped);
                self.note(&request, daemon, at, &outcome);
                if rng.chance(700) {
                    self.finish(&request, self.send(&request, other));
                }
            }
            _ => self.finish(&request, self.send(&request, daemon)),
        }
    }

    fn send(&self, request: &Request, daemon: usize) -> (usize, Duration, Result<Sent, String>) {
        let at = self.now();
        let endpoint = &self.endpoints[daemon];
        let sent = endpoint.send(request.method, &request.path, request.body.as_ref());
        (daemon, at, sent.map_err(|error| error.to_string()))
    }

    fn finish(&self, request: &Request, sent: (usize, Duration, Result<Sent, String>)) {
        let (daemon, at, sent) = sent;
        let answer = sent.and_then(|sent| sent.answer().map_err(|error| error.to_string()));
        let outcome = match answer {
            Ok((status, body)) => Outcome::Answer(status, body),
            Err(error) => {
                // A daemon that is gone must not fill the ledger.
                thread::sleep(Duration::from_millis(20));
                Outcome::Unreachable(error)
            }
        };
        self.note(request, daemon, at, &outcome);
    }

    /// Writes an outcome to the ledger, and learns from it.
    fn note(&self, request: &Request, daemon: usize, sent: Duration, outcome: &Outcome) {
        let ended = self.now();
        for (place, what) in request.parts.iter().enumerate() {
            let outcome = match outcome {
                Outcome::Answer(200..=299, body) if request.parts.len() > 1 => {
                    let part = body["jobs"][place].clone();
                    match part["error"]["code"].as_str() {
                        None => Outcome::Answer(200, part),
                        Some("unavailable") => Outcome::Answer(503, part),
                        Some(_) => Outcome::Answer(409, part),
                    }
                }
                other => other.clone(),
            };
            let call = Call {
                daemon,
                sent,
                ended,
                what: what.clone(),
                outcome,
            };
            self.learn(&call);
            lock(&self.ledger).push(call);
        }
    }

    fn learn(&self, call: &Call) {
        let Some(body) = call.acknowledged() else {
            return;
        };
        let mut known = lock(&self.known);
        let id = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        match &call.what {
            What::Submit { .. } => {
                known.jobs.extend(id(&body["job_id"]).map(JobId));
                if known.jobs.len() > 60 {
                    known.jobs.pop_front();
                }
            }
            What::Claim { .. } => {
                for lease in body["leases"].as_array().into_iter().flatten() {
                    let jobs = lease["jobs"].as_array().into_iter().flatten();
                    let jobs = jobs.filter_map(|job| id(&job["job_id"]).map(JobId));
                    let jobs = jobs.collect::<Vec<_>>();
                    if let Some(lease) = id(&lease["lease_id"]) {
                        known.leases.push((LeaseId(lease), jobs));
                    }
                }
            }
            What::Ack { job, lease } => known.leases.push((*lease, vec![*job])),
            What::Capacity { .. } => {
                let lease = id(&body["lease_id"]).filter(|_| body["approved"] == true);
                known.capacity.extend(lease.map(LeaseId));
            }
            What::Complete { job, .. } => {
                for (_, jobs) in &mut known.leases {
                    jobs.retain(|it| it != job);
                }
                known.leases.retain(|(_, jobs)| !jobs.is_empty());
            }
            _ => {}
        }
        // What was lost by an expiry or a release is not worth a call for ever.
        if known.leases.len() > 12 {
            known.leases.remove(0);
        }
        if known.capacity.len() > 4 {
            known.capacity.remove(0);
        }
    }

    fn choose(&self, rng: &mut Rng) -> Option<Request> {
        let jobs: Vec<JobId> = lock(&self.known).jobs.iter().copied().collect();
        match rng.below(100) {
            0..22 => Some(self.submission(rng)),
            22..28 => {
                let all: Vec<Request> = (0..2 + rng.below(6))
                    .map(|_| self.submission(rng))
                    .collect();
                let bodies: Vec<_> = all.iter().filter_map(|it| it.body.clone()).collect();
                Some(Request {
                    repeatable: all.iter().all(|it| it.repeatable),
                    parts: all.into_iter().flat_map(|it| it.parts).collect(),
                    method: "POST",
                    path: paths::SUBMIT_MANY.to_owned(),
                    body: Some(json!({ "jobs": bodies })),
                })
            }
            28..48 => Some(claim(rng)),
            48..56 => self.acceptance(rng),
            56..76 => self.completion(rng),
            76..79 => self.completions(rng),
            79..84 => one_of(rng, &jobs).map(|job| {
                let path = paths::at(paths::CANCEL, job);
                Request::post(What::Cancel { job }, path, json!({}))
            }),
            84..86 => one_of(rng, &jobs).map(|job| {
                let body = json!({ "job_ids": [job] });
                Request::post(What::Other("redrive"), paths::REDRIVE.to_owned(), body)
            }),
            86..90 => Some(self.capacity(rng)),
            90..97 => self.of_lease(rng),
            _ => {
                let requests: Vec<_> = lock(&self.known).requests.iter().cloned().collect();
                one_of(rng, &requests)
            }
        }
    }

    fn submission(&self, rng: &mut Rng) -> Request {
        let mut number = {
            let mut known = lock(&self.known);
            known.submissions += 1;
            known.submissions
        };
        let mut body = json!({
            "addon_id": ADDON, "job_type": TYPE, "cost_units": COST, "max_attempts": 2,
            "backoff": {"initial_sec": 0.1, "factor": 2.0, "max_sec": 0.5, "jitter": 0.0},
        });
        let mut repeatable = true;
        match rng.below(10) {
            0..5 => {
                // The last few keys are used by all callers at once.
                let key = number / 8 + rng.below(3);
                body["idempotency_key"] = json!(format!("key-{key}"));
                number = KEYED + key;
            }
            5..8 => body["job_id"] = json!(rng.job_id(jiff::Timestamp::now())),
            _ => repeatable = false,
        }
        // A repeated submission has the same body, so all of it follows from its number.
        let mut own = Rng::new(number);
        if own.chance(300) {
            let gate = own.below(GATES);
            body["concurrency_key"] = json!(format!("gate-{gate}"));
            body["concurrency_limit"] = json!(gate + 1);
        }
        if own.chance(200) {
            body["unique_key"] = json!(format!("unique-{}", own.below(UNIQUE_KEYS)));
        }
        body["payload"] = json!(number);
        Request {
            repeatable,
            ..Request::post(What::Submit { number }, paths::SUBMIT.to_owned(), body)
        }
    }

    /// Accepts a job that is dispatched at one daemon, at any.
    fn acceptance(&self, rng: &mut Rng) -> Option<Request> {
        let endpoint = one_of(rng, &self.endpoints)?;
        let path = format!("{}?addon_id={ADDON}&wait_sec=0", paths::DISPATCHABLE);
        let answer = endpoint.send("GET", &path, None).ok()?.answer().ok()?;
        let jobs = answer.1["jobs"].as_array()?.clone();
        let job = one_of(rng, &jobs)?["job_id"].as_str()?.parse().ok()?;
        let lease = rng.lease_id();
        let path = paths::at(paths::ACK, job);
        let body = json!({ "lease_id": lease, "instance_id": LeaseId(rng.lease_id().0) });
        Some(Request::post(What::Ack { job, lease }, path, body))
    }

    fn completion(&self, rng: &mut Rng) -> Option<Request> {
        let leases = lock(&self.known).leases.clone();
        let (lease, jobs) = one_of(rng, &leases)?;
        let job = one_of(rng, &jobs)?;
        let status = if rng.chance(800) { "DONE" } else { "FAILED" };
        let body = json!({ "lease_id": lease, "status": status });
        let path = paths::at(paths::COMPLETE, job);
        Some(Request::post(What::Complete { job, lease }, path, body))
    }

    fn completions(&self, rng: &mut Rng) -> Option<Request> {
        let leases = lock(&self.known).leases.clone();
        let (lease, jobs) = one_of(rng, &leases)?;
        let each: Vec<_> = jobs
            .iter()
            .map(|job| json!({"job_id": job, "status": "DONE"}))
            .collect();
        let body = json!({ "lease_id": lease, "jobs": each });
        let parts: Vec<_> = jobs
            .into_iter()
            .map(|job| What::Complete { job, lease })
            .collect();
        (parts.len() > 1).then(|| Request {
            parts,
            ..Request::post(What::Other(""), paths::COMPLETE_MANY.to_owned(), body)
        })
    }

    fn capacity(&self, rng: &mut Rng) -> Request {
        let key = format!("capacity-{}", rng.below(3));
        let body = json!({
            "addon_id": ADDON, "job_type": TYPE, "cost_units": COST, "request_key": key,
            "instance_id": "0192f0c1-0000-7000-8000-000000000000",
        });
        Request::post(
            What::Capacity { key },
            paths::LEASE_REQUEST.to_owned(),
            body,
        )
    }

    /// A call about a lease, with or without jobs.
    fn of_lease(&self, rng: &mut Rng) -> Option<Request> {
        let mut leases = lock(&self.known).capacity.clone();
        let without_jobs = leases.len();
        leases.extend(lock(&self.known).leases.iter().map(|(lease, _)| *lease));
        let place = rng.below(leases.len().max(1) as u64) as usize;
        let lease = *leases.get(place)?;
        let (name, pattern, body) = match rng.below(4) {
            0 => ("revoke", paths::REVOKE, json!({})),
            1 if place >= without_jobs => ("return", paths::RELEASE, json!({"return_jobs": true})),
            1 | 2 if place < without_jobs => ("release", paths::RELEASE, json!({})),
            _ => ("heartbeat", paths::HEARTBEAT, json!({})),
        };
        Some(Request::post(
            What::Other(name),
            paths::at(pattern, lease),
            body,
        ))
    }

    /// Works at one daemon until there is nothing left to claim: claims what it can, and completes it. Returns how many jobs
    /// it has completed.
    pub fn work(&self, rng: &mut Rng, daemon: usize) -> usize {
        let claim = claim(rng);
        let What::Claim { lease } = claim.parts[0] else {
            return 0;
        };
        self.finish(&claim, self.send(&claim, daemon));
        let mut known = lock(&self.known);
        let Some(place) = known.leases.iter().position(|(it, _)| *it == lease) else {
            return 0;
        };
        let (_, jobs) = known.leases.remove(place);
        drop(known);
        for job in &jobs {
            let body = json!({ "lease_id": lease, "status": "DONE" });
            let path = paths::at(paths::COMPLETE, job);
            let done = Request::post(What::Complete { job: *job, lease }, path, body);
            self.finish(&done, self.send(&done, daemon));
        }
        jobs.len()
    }
}

fn claim(rng: &mut Rng) -> Request {
    let lease = rng.lease_id();
    let body = json!({
        "lease_id": lease, "addon_id": ADDON, "max_jobs": 1 + rng.below(4), "instance_id": rng.lease_id(),
        "wait_sec": 0,
    });
    Request::post(What::Claim { lease }, paths::CLAIM.to_owned(), body)
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
