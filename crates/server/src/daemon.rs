//! What all requests share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use jobtree_queue::transitions::Rules;
use jobtree_scheduler::{Clock, Scheduler};
use jobtree_store::{Stamp, Store, StoreError};
use tokio::sync::watch;

use crate::auth::Book;
use crate::guard::host::Hosts;
use crate::observing::Observing;
use crate::options::{Auth, HttpLimits};
use crate::policy::PolicyKeeper;

/// The running daemon, as its handlers see it.
pub(crate) struct Daemon {
    pub(crate) scheduler: Scheduler,
    pub(crate) tokens: Book,
    pub(crate) auth: Auth,
    pub(crate) hosts: Hosts,
    pub(crate) policy: PolicyKeeper,
    pub(crate) observing: Observing,
    pub(crate) data_dir: PathBuf,
    limits: HttpLimits,
    clock: Clock,
    started: Instant,
    stopping: watch::Sender<bool>,
}

/// What a daemon is made of.
pub(crate) struct Parts {
    pub(crate) scheduler: Scheduler,
    pub(crate) tokens: Book,
    pub(crate) auth: Auth,
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
            auth,
            hosts,
            policy,
            observing,
            limits,
            data_dir,
        } = parts;
        Self {
            scheduler,
            tokens,
            auth,
            hosts,
            policy,
            observing,
            data_dir,
            limits,
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

    /// Returns why the store does not take changes now, with the file and what to do; none if it does.
    pub(crate) fn store_trouble(&self) -> Option<String> {
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
            other => format!("the store in {data} refuses changes: {other}"),
        })
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
    pub(crate) fn uptime(&self) -> std::time::Duration {
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

    /// Ends when the daemon begins to stop: for streams and long polls.
    pub(crate) async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives in `self`.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}
