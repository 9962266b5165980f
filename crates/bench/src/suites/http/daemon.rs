//! A daemon in this process, and what its callers do.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;

use jobtree_protocol::{
    AddonId, ClaimAnswer, ClaimRequest, ClaimedLeases, CompleteManyAnswer, CompleteManyRequest,
    CompleteOne, CompleteStatus, Each, InstanceId, JobView, Json, NodeId, SubmitManyAnswer,
    SubmitManyRequest, SubmitRequest, paths,
};
use jobtree_queue::policy::Policy;
use jobtree_server::{Server, ServerOptions, StoreChoice};

use super::caller::Caller;
use super::{BATCH, BULK};
use crate::suites::Folder;

pub const ADDON: &str = "visuals";

pub struct Daemon {
    server: Server,
    token: String,
    folder: Folder,
}

impl Daemon {
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn start() -> Self {
        Self::start_on(StoreChoice::File, "local")
    }

    /// # Panics
    ///
    /// If it cannot be started.
    pub fn start_on(store: StoreChoice, node: &str) -> Self {
        let folder = Folder::new("http");
        let mut options = ServerOptions::new(folder.file("data"));
        options.store = store;
        options.scheduler.node = NodeId::new(node).expect("a name");
        options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        // What is measured is the way of a job, not the wait for a quiet machine.
        options.scheduler.policy = Policy::default();
        options.scheduler.policy.busy.ignore = true;
        options.limits.rate = None;
        let server = Server::start(options).expect("a daemon");
        let token = std::fs::read_to_string(folder.file("data").join("admin.token"));
        Self {
            server,
            token: token.expect("it was written").trim().to_owned(),
            folder,
        }
    }

    pub fn caller(&self) -> Caller {
        Caller::new(self.server.addr(), &self.token)
    }

    /// A file beside the daemon's.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    pub fn submit(&self, count: usize, callers: usize) {
        let body = serde_json::to_string(&job()).expect("JSON");
        thread::scope(|scope| {
            for _ in 0..callers {
                scope.spawn(|| {
                    let mut caller = self.caller();
                    let request = caller.request("POST", paths::SUBMIT, &body);
                    for _ in 0..count / callers {
                        caller.send(&request);
                        caller.answer();
                    }
                });
            }
        });
    }

    /// Two calls are on their way at a time, as those of a program that does not wait for each.
    pub fn submit_in_bulk(&self, count: usize) {
        let jobs = SubmitManyRequest {
            jobs: vec![job(); BULK.min(count)],
        };
        let body = serde_json::to_string(&jobs).expect("JSON");
        thread::scope(|scope| {
            for half in 0..2 {
                let body = &body;
                scope.spawn(move || {
                    let mut caller = self.caller();
                    let request = caller.request("POST", paths::SUBMIT_MANY, body);
                    for _ in (half..count.div_ceil(BULK)).step_by(2) {
                        caller.send(&request);
                        let answer: SubmitManyAnswer =
                            serde_json::from_slice(&caller.answer()).expect("answers");
                        assert!(answer.jobs.iter().all(|each| matches!(each, Each::Done(_))));
                    }
                });
            }
        });
    }

    pub fn process(&self, count: usize, callers: usize) {
        thread::scope(|scope| {
            for _ in 0..callers {
                scope.spawn(|| {
                    let mut caller = self.caller();
                    let mut done = 0;
                    while done < count / callers {
                        done += take_and_complete(&mut caller, (count / callers - done).min(BATCH));
                    }
                });
            }
        });
    }
}

fn take_and_complete(caller: &mut Caller, most: usize) -> usize {
    let claim = serde_json::to_string(&claim(most, 0)).expect("JSON");
    let answer = caller.call("POST", paths::CLAIM, &claim);
    let ClaimedLeases { leases } = serde_json::from_slice(&answer).expect("leases");
    let mut done = 0;
    for lease in leases {
        let request = completion(&lease);
        done += request.jobs.len();
        let body = serde_json::to_string(&request).expect("JSON");
        let answer = caller.call("POST", paths::COMPLETE_MANY, &body);
        let answer: CompleteManyAnswer = serde_json::from_slice(&answer).expect("answers");
        assert!(answer.jobs.iter().all(|each| matches!(each, Each::Done(_))));
    }
    done
}

/// All of a lease's jobs ended well.
pub fn completion(lease: &ClaimAnswer) -> CompleteManyRequest {
    let one = |job: &JobView| CompleteOne {
        job_id: job.job_id,
        status: CompleteStatus::Done,
        result: None,
        error: None,
        retry: true,
        began_ms_ago: None,
        ended_ms_ago: None,
        usage: None,
    };
    CompleteManyRequest {
        lease_id: lease.lease_id,
        jobs: lease.jobs.iter().map(one).collect(),
        in_hand: None,
    }
}

pub fn claim(max_jobs: usize, wait_sec: u32) -> ClaimRequest {
    ClaimRequest {
        lease_id: None,
        addon_id: AddonId::new(ADDON).expect("a name"),
        job_types: Vec::new(),
        max_jobs: max_jobs as u32,
        max_leases: 1,
        wait_sec,
        instance_id: InstanceId::generate(),
        node_id: None,
        pids: Vec::new(),
        process_origin: None,
        begins_now: None,
        returns_unbegun: false,
    }
}

pub fn job() -> SubmitRequest {
    SubmitRequest {
        payload: Some(Json::of(&"/some/folder/with/a/file.jpg").expect("JSON")),
        ..SubmitRequest::new(ADDON, "indexing", 3)
    }
}
