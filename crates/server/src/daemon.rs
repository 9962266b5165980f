//! What all requests share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::{Advice, JobId, LeaseId};
use jobtree_queue::transitions::Rules;
use jobtree_scheduler::{Clock, Scheduler};
use jobtree_store::{Stamp, Store, StoreError};
use tokio::sync::{Semaphore, watch};

use crate::auth::{Book, Caller, Links, Revocations, Sessions};
use crate::bulk::Bulk;
use crate::guard::host::Hosts;
use crate::observing::Observing;
use crate::options::{Auth, HttpLimits};
use crate::policy::PolicyKeeper;

/// A run that a user has paused.
#[derive(Clone, Debug)]
pub(crate) struct PausedRun {
    /// The job that runs; others of the same lease are not paused.
    pub(crate) job: JobId,
    /// The time at which the pause was asked for.
    pub(crate) since: Timestamp,
    /// The token's name.
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
    /// The time at which the worker said that the run stands still.
    pub(crate) still_since: Option<Timestamp>,
}

impl PausedRun {
    /// By whom, and why.
    pub(crate) fn told(&self) -> String {
        match &self.reason {
            Some(why) => format!("by {}: {why}", self.by),
            None => format!("by {}", self.by),
        }
    }
}

/// The time after which a run that was paused has been advised so.
const FRESH: SignedDuration = SignedDuration::from_secs(60);
/// The interval at which the daemon looks whether the store takes changes.
const LOOK: Duration = Duration::from_secs(1);
/// The interval at which an event stream checks that its token or session has not expired.
const ACCESS_CHECK: Duration = Duration::from_secs(5);

/// The running daemon, as its handlers see it.
pub(crate) struct Daemon {
    pub(crate) scheduler: Scheduler,
    pub(crate) tokens: Book,
    pub(crate) links: Links,
    pub(crate) bulk: Arc<Bulk>,
    pub(crate) sessions: Sessions,
    pub(crate) auth: Auth,
    /// TLS ends here. A proxy may end it before us, all the same.
    pub(crate) speaks_tls: bool,
    pub(crate) hosts: Hosts,
    pub(crate) policy: PolicyKeeper,
    /// Has a permit while no preview of a policy is being made.
    pub(crate) previews: Arc<Semaphore>,
    pub(crate) observing: Observing,
    pub(crate) data_dir: PathBuf,
    limits: HttpLimits,
    revocations: Revocations,
    /// The runs that are paused, by their leases.
    paused: Mutex<HashMap<LeaseId, PausedRun>>,
    /// Since when the store takes no changes.
    trouble_since: Mutex<Option<Timestamp>>,
    clock: Clock,
    started: Instant,
    stopping: watch::Sender<bool>,
}

/// What a daemon is made of.
pub(crate) struct Parts {
    pub(crate) scheduler: Scheduler,
    pub(crate) tokens: Book,
    pub(crate) sessions: Sessions,
    pub(crate) revocations: Revocations,
    pub(crate) auth: Auth,
    pub(crate) speaks_tls: bool,
    pub(crate) hosts: Hosts,
    pub(crate) policy: PolicyKeeper,
    pub(crate) observing: Observing,
    pub(crate) limits: HttpLimits,
    pub(crate) data_dir: PathBuf,
}

impl Daemon {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            scheduler,
            tokens,
            sessions,
            revocations,
            auth,
            speaks_tls,
            hosts,
            policy,
            observing,
            limits,
            data_dir,
        } = parts;
        Self {
            scheduler,
            tokens,
            links: Links::new(limits.sign_in_link),
            bulk: Arc::default(),
            sessions,
            auth,
            speaks_tls,
            hosts,
            policy,
            previews: Arc::new(Semaphore::new(1)),
            observing,
            data_dir,
            limits,
            revocations,
            paused: Mutex::default(),
            trouble_since: Mutex::default(),
            clock: Clock::system(),
            started: Instant::now(),
            stopping: watch::Sender::new(false),
        }
    }

    pub(crate) fn limits(&self) -> &HttpLimits {
        &self.limits
    }

    pub(crate) fn store(&self) -> &Store {
        self.scheduler.store()
    }

    /// Pauses the run under a lease, or with `None` lets it go on. Returns whether that is news.
    pub(crate) fn set_paused(&self, lease: LeaseId, run: Option<PausedRun>) -> bool {
        let mut all = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Timestamp::now();
        // Leases that have ended are advised nothing; one that was paused a moment ago may not be advised yet.
        all.retain(|lease, run| {
            let is_fresh = now.duration_since(run.since) < FRESH;
            is_fresh || self.scheduler.advice(*lease) != Advice::Continue
        });
        let news = run.is_some() != all.contains_key(&lease);
        match run {
            Some(run) if news => drop(all.insert(lease, run)),
            Some(_) => {}
            None => drop(all.remove(&lease)),
        }
        if news {
            self.scheduler.pause_lease(lease, all.contains_key(&lease));
        }
        news
    }

    /// Returns the pause of the run under a lease; none if it is not paused.
    pub(crate) fn paused_run(&self, lease: LeaseId) -> Option<PausedRun> {
        let all = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&lease).cloned()
    }

    /// Notes what a worker says of a run: which one it is, and whether it stands still. Returns whether it is to stand still.
    pub(crate) fn beaten(
        &self,
        lease: LeaseId,
        in_hand: Option<JobId>,
        stands_still: bool,
    ) -> bool {
        let mut all = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(run) = all.get_mut(&lease) else {
            return false;
        };
        if in_hand.is_some_and(|job| job != run.job) {
            // The next job of the lease is not the one that was paused.
            all.remove(&lease);
            self.scheduler.pause_lease(lease, false);
            return false;
        }
        if stands_still {
            run.still_since.get_or_insert_with(Timestamp::now);
        }
        true
    }

    /// Returns since when the store takes no changes, as this daemon has noticed; none if it takes them.
    pub(crate) fn store_trouble_since(&self) -> Option<Timestamp> {
        let trouble = self.store().trouble();
        let since = &self.trouble_since;
        let mut since = since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = trouble.map(|_| since.unwrap_or_else(Timestamp::now));
        *since
    }

    /// Returns why the store does not take changes now, with the file and what to do; none if it does.
    pub(crate) fn store_trouble(&self) -> Option<String> {
        self.store_trouble_since();
        let error = self.store().trouble()?;
        let data = self.data_dir.display();
        Some(match error {
            StoreError::NoSpace => format!(
                "the disk of {data} is full, and nothing is written: make room there; the daemon goes on by itself"
            ),
            StoreError::Disconnected { why } => format!(
                "the database does not answer ({why}), and nothing is written: start it again, or check the network; the daemon goes on by itself"
            ),
            StoreError::Stopped { why } => format!(
                "the store in {data} has stopped ({why}): check the disk and the permissions of its files, then start the daemon again"
            ),
            other => format!(
                "the store in {data} refuses changes ({other}): if its file was damaged, stop the daemon and put a copy that \
                 `jobtree backup` made in its place"
            ),
        })
    }

    /// Returns what a call that cannot be answered now is told of the store; none while the daemon stops.
    pub(crate) fn refusing_trouble(&self) -> Option<String> {
        let error = self.store().trouble().filter(|_| !self.is_stopping())?;
        let trouble = self.store_trouble()?;
        Some(match error {
            StoreError::Disconnected { .. } => {
                format!("{trouble}. Whether this call took effect is not known: repeat it")
            }
            _ => trouble,
        })
    }

    /// Logs when the store begins to refuse changes, and when it takes them again. Ends when the daemon begins to stop.
    pub(crate) async fn log_trouble(&self) {
        let mut known = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.stopped() => return,
            }
            let trouble = self.store_trouble();
            match &trouble {
                Some(trouble) if !known => tracing::error!("{trouble}"),
                None if known => tracing::warn!("the store takes changes again"),
                _ => {}
            }
            known = trouble.is_some();
        }
    }

    /// For what is written beside the scheduler: notes, which no rules concern.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            now: self.clock.now(),
            roll: 0,
            rules: Arc::new(Rules::default()),
        }
    }

    /// How long it has been running.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Begins to stop: what waits is told so.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Turns true when the daemon begins to stop: for what runs beside a request.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Returns `true` if a caller would be let in again.
    fn accepts(&self, caller: &Caller) -> bool {
        let session = caller.session();
        let token = caller.token();
        session.is_none_or(|session| self.sessions.find(session.id).is_some())
            && token.is_none_or(|token| self.tokens.holder(token).is_some())
    }

    /// Ends when the caller's token or session is no longer accepted: for streams, which outlast the check of their request.
    pub(crate) async fn turned_away(&self, caller: &Caller) {
        let mut revocations = self.revocations.listen();
        while self.accepts(caller) {
            // The sender lives in `self`, so an error does not occur. A token that expires tells nobody.
            let _ = tokio::time::timeout(ACCESS_CHECK, revocations.changed()).await;
        }
    }

    /// Ends when the daemon begins to stop: for streams and long polls.
    pub(crate) async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives in `self`.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}
