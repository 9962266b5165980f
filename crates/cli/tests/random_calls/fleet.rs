//! The daemons of a run: how they are disturbed, and what they and the store say in the end.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use jobtree_protocol::{EventKind, JobQuery};
use jobtree_scheduler::core::Rng;
use jobtree_store::{PostgresOptions, SqliteOptions, Store};

use crate::callers::Callers;
use crate::http::Endpoint;
use crate::ledger::{Disturbance, Evidence, Kept, Run};
use crate::pair::{self, HEARD, client_of, own_status};
use crate::support::{ALWAYS, Daemon, Folder, Ran, signal};

/// How long all jobs have to end when nothing is disturbed any more.
const TO_END: Duration = Duration::from_secs(40);
/// PostgreSQL ends a transaction that stands still for 3 s (`store/src/postgres/mod.rs`): calls in it answer 503.
const STANDS_STILL: Duration = Duration::from_millis(2500);

/// Daemons on one store. The daemons end before the database.
pub struct Fleet {
    pub daemons: Vec<Daemon>,
    /// The database's URL; none if the store is a file of the only daemon.
    url: Option<String>,
    folder: Folder,
    _database: Option<pair::Server>,
}

/// Writes the policy of a run: that of other tests, with short times, so that terms end within a run, and without the ramp.
fn policy(folder: &Folder) -> String {
    let text = fs::read_to_string(ALWAYS).expect("a policy");
    let short = text.replace("lease_ttl = \"5s\"", "lease_ttl = \"2s\"\ntake_up = \"2s\"");
    assert_ne!(short, text, "the policy of tests has a term of leases");
    // One lease a sample would let few calls collide.
    folder.write("policy.toml", &(short + "\n[ramp]\nunits_per_sample = 0\n"))
}

impl Fleet {
    /// Starts so many daemons on a PostgreSQL of their own.
    pub fn on_postgres(daemons: usize) -> Self {
        let (database, url) = pair::database();
        Self {
            _database: Some(database),
            ..Self::on_url(daemons, url)
        }
    }

    /// Starts so many daemons on a PostgreSQL of the test's.
    pub fn on_url(daemons: usize, url: String) -> Self {
        let folder = Folder::new();
        let policy = policy(&folder);
        let daemons = (1..=daemons).map(|number| {
            let node = format!("n{number}");
            Daemon::with(&["--store", &url, "--policy", &policy, "--node", &node])
        });
        Self {
            daemons: daemons.collect(),
            url: Some(url),
            folder,
            _database: None,
        }
    }

    /// Starts one daemon on a file.
    pub fn on_sqlite() -> Self {
        let folder = Folder::new();
        let policy = policy(&folder);
        Self {
            daemons: vec![Daemon::with(&["--policy", &policy, "--node", "n1"])],
            url: None,
            folder,
            _database: None,
        }
    }

    /// Returns callers of all daemons.
    pub fn callers(&self) -> Callers {
        let endpoints = self.daemons.iter().map(|daemon| Endpoint {
            address: daemon.url.replace("http://", ""),
            token: daemon.token(),
        });
        Callers::new(endpoints.collect())
    }

    /// Kills a daemon and starts it again, or stops it for a while.
    pub fn disturb(&mut self, rng: &mut Rng, callers: &Callers) -> Option<Disturbance> {
        let daemon = rng.below(self.daemons.len() as u64) as usize;
        let from = callers.now();
        if rng.chance(400) {
            self.daemons[daemon].ends_and_returns("KILL");
            let to = callers.now();
            return Some(Disturbance { daemon, from, to });
        }
        // Most stops are short, some outlast a lease and a transaction.
        let most = 1 + rng.below(4000);
        let length = Duration::from_millis(100 + rng.below(most));
        let pid = self.daemons[daemon].pid();
        signal("STOP", pid);
        thread::sleep(length);
        signal("CONT", pid);
        // A call that was sent while the daemon stood still is answered after it.
        (length > STANDS_STILL).then(|| Disturbance {
            daemon,
            from,
            to: callers.now() + Duration::from_secs(1),
        })
    }

    /// Lets all jobs end, stops the daemons, and collects what they and the store say.
    pub fn finish(
        &mut self,
        callers: &Callers,
        disturbances: Vec<Disturbance>,
        rng: &mut Rng,
    ) -> Run {
        let mut evidence = Evidence {
            stuck: self.let_all_end(callers, rng),
            used: self.used(),
            ..Evidence::default()
        };
        for daemon in &mut self.daemons {
            daemon.ends("TERM");
        }
        let place = match &self.url {
            Some(url) => url.clone(),
            None => self.daemons[0]
                .folder
                .join("data/jobs.db")
                .display()
                .to_string(),
        };
        let audit = Ran::of(
            &mut self.folder.command(),
            &["audit", "check", &place, "--json"],
        );
        let found = audit.json();
        let violations = found["violations"].as_array().into_iter().flatten();
        evidence.audit = violations.map(ToString::to_string).collect();
        let store = match &self.url {
            Some(url) => Store::connect(&PostgresOptions::new(url.as_str())),
            None => Store::open(&SqliteOptions::new(&place)),
        };
        read(&store.expect("the store opens"), &mut evidence);
        Run {
            calls: callers.take_ledger(),
            disturbances,
            evidence,
        }
    }

    /// Works at every daemon until all jobs have ended. Returns those that do not.
    fn let_all_end(&self, callers: &Callers, rng: &mut Rng) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let done: usize = (0..self.daemons.len())
                .map(|daemon| callers.work(rng, daemon))
                .sum();
            if done > 0 {
                continue;
            }
            let left = self.daemons[0]
                .run(&["ls", "state:open", "--json"])
                .exits(0);
            let left = left.json()["jobs"].as_array().cloned().unwrap_or_default();
            if left.is_empty() {
                return Vec::new();
            }
            if begun.elapsed() > TO_END {
                return left.iter().map(ToString::to_string).collect();
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the units that each daemon says are in use. Each has the time to hear of what ended elsewhere.
    fn used(&self) -> Vec<u64> {
        let begun = Instant::now();
        loop {
            let used = self.daemons.iter().map(|daemon| {
                let node = own_status(&client_of(daemon));
                u64::from(node.used) + u64::from(node.reserved) + u64::from(node.active_leases)
            });
            let used: Vec<u64> = used.collect();
            if used.iter().all(|units| *units == 0) || begun.elapsed() > HEARD {
                return used;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Reads all events and jobs of a store.
fn read(store: &Store, evidence: &mut Evidence) {
    let mut cursor = 0;
    loop {
        let page = store.events_after(cursor, 1000).wait().expect("events");
        let Some(last) = page.last() else { break };
        cursor = last.cursor;
        evidence.events.extend(page.into_iter().map(|it| it.event));
    }
    let mut query = JobQuery::default();
    loop {
        let page = store.list(query.clone(), 1000).wait().expect("jobs");
        for job in page.jobs {
            let payload = job
                .intent
                .payload
                .as_ref()
                .map(|json| json.text().to_owned());
            let gate = job.intent.concurrency_key.clone();
            let kept = Kept {
                number: payload
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(u64::MAX),
                state: job.state,
                unique_key: job.intent.unique_key.clone(),
                gate: gate.map(|key| (key, job.intent.concurrency_limit)),
            };
            evidence.jobs.insert(job.id, kept);
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    let granted = evidence
        .events
        .iter()
        .filter(|it| it.kind == EventKind::LeaseGranted);
    for lease in granted.filter_map(|it| it.lease_id) {
        let record = store.lease(lease).wait().expect("its record is kept");
        if let Some(key) = record.request_key {
            evidence.request_keys.insert(lease, key);
        }
    }
}
