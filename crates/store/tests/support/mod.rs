//! What the tests of stores share.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod ledger;
pub mod postgres;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_protocol::{LeaseId, Limits, NodeId, SubmitRequest};
use jobtree_queue::Now;
use jobtree_queue::transitions::{Abilities, Claim};
use jobtree_store::{Stamp, Submission};

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
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be deleted is the system's to clean up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn stamp() -> Stamp {
    static ROLL: AtomicU64 = AtomicU64::new(0);
    Stamp {
        now: Now {
            wall: jiff::Timestamp::now(),
            mono: Duration::ZERO,
        },
        roll: ROLL.fetch_add(1, Ordering::Relaxed),
        rules: Arc::default(),
    }
}

pub fn submission() -> Submission {
    let request = SubmitRequest::new("visuals", "indexing", 3);
    Submission::new(
        request
            .validate(&Limits::default())
            .expect("a valid intent"),
    )
}

pub fn claim(lease_id: LeaseId) -> Claim {
    Claim {
        lease_id,
        node_id: NodeId::new("here").expect("a name"),
        instance_id: None,
        pids: Vec::new(),
        process_origin: None,
        reason: "there is room".into(),
        worker: Abilities::default(),
    }
}
