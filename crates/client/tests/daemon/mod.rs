//! A daemon with one queue, as far as a worker can tell: it grants what the test puts in, and remembers what it is told.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use jobtree_client::Client;
use jobtree_client::protocol::{JobId, LeaseId, paths};
use serde_json::{Value, json};

use crate::fake::{Answer, Asked, Fake};

#[derive(Default)]
pub struct State {
    offers: VecDeque<Value>,
    /// Jobs that somebody wants stopped.
    pub wanted_stopped: Vec<JobId>,
    /// Heartbeats are not answered.
    pub hangs: bool,
    /// What heartbeats are answered with, if not to go on.
    pub advice: Option<&'static str>,
    /// So many calls are broken off.
    pub breaks: usize,
    pub reports: Vec<Value>,
    pub progress: Vec<Value>,
    pub logs: HashMap<String, String>,
    pub completed: Vec<Value>,
    pub released: Vec<String>,
    events: Option<mpsc::Sender<String>>,
    cursor: u64,
    ttl_sec: u32,
}

pub struct Daemon {
    fake: Fake,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Daemon {
    pub fn start(ttl_sec: u32) -> Daemon {
        let state: Arc<(Mutex<State>, Condvar)> = Arc::default();
        state.0.lock().unwrap().ttl_sec = ttl_sec;
        let inside = Arc::clone(&state);
        let fake = Fake::new(move |asked| answer(&inside, asked));
        Daemon { fake, state }
    }

    pub fn client(&self) -> Client {
        Client::new(self.fake.url()).unwrap()
    }

    pub fn fake(&self) -> &Fake {
        &self.fake
    }

    /// Puts jobs into the queue, to be run under one lease.
    pub fn offer(&self, jobs: &[(&str, Value)]) -> (LeaseId, Vec<JobId>) {
        let lease = LeaseId::generate();
        let ids: Vec<_> = jobs.iter().map(|_| JobId::generate()).collect();
        let views = ids.iter().zip(jobs).map(|(id, (job_type, payload))| {
            json!({
                "job_id": id, "addon_id": "app", "job_type": job_type, "cost_units": 1, "priority": "NORMAL",
                "constraints": {}, "expected_duration_sec": null, "created_at": "2026-01-01T00:00:00Z",
                "state": "RUNNING", "attempts": 0, "max_attempts": 1, "rescues": 0, "next_earliest_start_at": null,
                "lease_id": lease, "node_id": null, "time_sensitive": false, "deadline_at": null,
                "max_runtime_sec": null, "started_at": null, "ended_at": null, "payload": payload,
            })
        });
        let views: Vec<_> = views.collect();
        self.change(|state| {
            let ttl = state.ttl_sec;
            let offer = json!({"lease_id": lease, "ttl_sec": ttl, "jobs": views});
            state.offers.push_back(offer);
        });
        (lease, ids)
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.0.lock().unwrap());
        self.state.1.notify_all();
        changed
    }

    /// Waits until it is so.
    pub fn until<T>(&self, mut so: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.state.0.lock().unwrap();
        loop {
            if let Some(value) = so(&mut state) {
                return value;
            }
            state = self.state.1.wait(state).unwrap();
        }
    }

    /// Tells whoever listens.
    pub fn tell(&self, kind: &str, job: JobId, lease: LeaseId) {
        let listener = self.until(|state| state.events.clone());
        let cursor = self.change(|state| {
            state.cursor += 1;
            state.cursor
        });
        let data = json!({
            "cursor": cursor, "job_id": job, "lease_id": lease, "event": kind, "at": "2026-01-01T00:00:00Z",
            "addon_id": "app",
        });
        listener
            .send(format!("id: {cursor}\nevent: {kind}\ndata: {data}\n\n"))
            .unwrap();
    }
}

fn answer(shared: &(Mutex<State>, Condvar), asked: &Asked) -> Answer {
    let (lock, bell) = shared;
    let mut state = lock.lock().unwrap();
    let path = asked.path.split('?').next().unwrap();
    if path == paths::EVENTS {
        let (tell, told) = mpsc::channel();
        tell.send(": here\n\n".to_owned()).unwrap();
        state.events = Some(tell);
        bell.notify_all();
        return Answer::Stream(told);
    }
    if path == paths::CLAIM {
        // As a long poll does, only not so long.
        let waited = bell.wait_timeout_while(state, Duration::from_millis(300), |state| {
            state.offers.is_empty()
        });
        state = waited.unwrap().0;
        let leases: Vec<_> = state.offers.pop_front().into_iter().collect();
        return Answer::ok(json!({"leases": leases}));
    }
    if state.breaks > 0 {
        state.breaks -= 1;
        return Answer::Nothing;
    }
    let body = asked.json();
    let answered = match path {
        paths::HEARTBEAT_MANY => {
            if let Some(report) = body.get("worker") {
                state.reports.push(report.clone());
            }
            for beat in body["leases"].as_array().unwrap() {
                if !beat["progress"].is_null() {
                    state.progress.push(beat["progress"].clone());
                }
            }
            if state.hangs {
                bell.notify_all();
                return Answer::Silence;
            }
            let advice = if state.wanted_stopped.is_empty() {
                state.advice.unwrap_or("continue")
            } else {
                "cancel"
            };
            let one =
                json!({"advice": advice, "ttl_sec": state.ttl_sec, "cancel": state.wanted_stopped});
            let count = body["leases"].as_array().unwrap().len();
            json!({"leases": vec![one; count]})
        }
        paths::COMPLETE_MANY => {
            let jobs = body["jobs"].as_array().unwrap();
            state.completed.extend(jobs.iter().cloned());
            let each = jobs
                .iter()
                .map(|job| json!({"job_id": job["job_id"], "state": job["status"]}));
            json!({"jobs": each.collect::<Vec<_>>()})
        }
        _ if path.ends_with("/log") => {
            let text = body["text"].as_str().unwrap();
            let job = path.split('/').rev().nth(1).unwrap().to_owned();
            let log = state.logs.entry(job).or_default();
            assert_eq!(body["offset"], log.len());
            log.push_str(text);
            json!({"next_offset": log.len()})
        }
        _ if path.ends_with("/release") => {
            let lease = path.split('/').rev().nth(1).unwrap().to_owned();
            state.released.push(lease);
            json!({})
        }
        other => panic!("a worker does not ask {other}"),
    };
    bell.notify_all();
    Answer::ok(answered)
}
