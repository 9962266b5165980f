//! A real daemon, for the tests of those who use one.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_client::Client;
use jobtree_queue::policy::Policy;
use jobtree_server::{Server, ServerOptions, StoreChoice};

use crate::watchdog::Watchdog;

#[path = "../../../scheduler/tests/support/quiet_machine.rs"]
mod quiet_machine;
use quiet_machine::{QuietMachine, default_policy};

pub const FAR: Duration = Duration::from_secs(3600);

/// A daemon whose machine idles, with the policy that a new user gets, in a folder that goes with it.
pub struct House {
    _machine: QuietMachine,
    pub server: Server,
    folder: PathBuf,
    _watch: Watchdog,
}

impl House {
    pub fn new(name: &'static str) -> House {
        House::with(name, |_| ())
    }

    pub fn with(name: &'static str, change: impl FnOnce(&mut Policy)) -> House {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("jobtree-client-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let mut options = ServerOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            store: StoreChoice::Memory,
            sample_every: None,
            threads: Some(2),
            ..ServerOptions::new(&folder)
        };
        options.scheduler.policy = default_policy();
        change(&mut options.scheduler.policy);
        let server = Server::start(options).unwrap();
        let scheduler = server.scheduler().clone();
        House {
            _machine: QuietMachine::measured_by(move |sample| scheduler.sample(sample)),
            server,
            folder,
            _watch: Watchdog::watching(name),
        }
    }

    pub fn client(&self) -> Client {
        let token = std::fs::read_to_string(self.folder.join("admin.token")).unwrap();
        let builder = Client::builder(self.server.url()).token(token.trim());
        builder.build().unwrap()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        // What cannot be deleted is the system's to clean up.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
