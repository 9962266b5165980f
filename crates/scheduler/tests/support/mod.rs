//! What the tests of the engine share: a scheduler on a machine that idles, with the policy that a new user gets, over each
//! store.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod quiet_machine;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_protocol::{AddonId, ClaimRequest, InstanceId};
use jobtree_scheduler::{Options, Scheduler};
use jobtree_store::{SqliteOptions, Store};
use quiet_machine::{QuietMachine, default_policy};

/// Longer than anything takes: whoever waits so long has lost something.
pub const LONG: Duration = Duration::from_secs(60);

/// A folder that goes with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("jobtree-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a new folder");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn store(&self) -> Store {
        Store::open(&SqliteOptions::new(self.file("queue.db"))).expect("a store")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be deleted is the system's to clean up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A scheduler on a machine that idles. The machine is no longer measured when this is dropped.
pub struct OnQuietMachine {
    scheduler: Scheduler,
    _machine: QuietMachine,
}

impl Deref for OnQuietMachine {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}

/// Starts a scheduler with the policy that a new user gets.
pub fn start(store: Store) -> OnQuietMachine {
    start_with(store, |_| {})
}

/// Starts a scheduler with other options than the usual.
pub fn start_with(store: Store, change: impl FnOnce(&mut Options)) -> OnQuietMachine {
    let mut options = Options {
        policy: default_policy(),
        ..Options::default()
    };
    change(&mut options);
    let scheduler = Scheduler::start(store, options);
    let measured = scheduler.clone();
    OnQuietMachine {
        scheduler,
        _machine: QuietMachine::measured_by(move |sample| measured.sample(sample)),
    }
}

pub fn claim(addon: &str, jobs: u32) -> ClaimRequest {
    ClaimRequest {
        lease_id: None,
        addon_id: AddonId::new(addon).unwrap(),
        job_types: Vec::new(),
        max_jobs: jobs,
        max_leases: 1,
        wait_sec: 60,
        instance_id: InstanceId::generate(),
        node_id: None,
        pids: Vec::new(),
        process_origin: None,
        begins_now: None,
        returns_unbegun: false,
    }
}
