//! What is watched while the daemon runs: the trail, the workers, the load, and who is told of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_scheduler::Scheduler;
use jobtree_store::Listening;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::error::ServeError;
use crate::events::{DispatchListeners, Hub};
use crate::input::Inputs;
use crate::live::Live;
use crate::load::LoadLog;
use crate::relay::Relays;
use crate::trace;
use crate::webhooks::Webhooks;

/// The file of the load, beside the database.
const LOAD_FILE: &str = "load.ndjson";
/// How often the load is told where it is not measured by us.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// All of it.
pub(crate) struct Observing {
    pub(crate) hub: Arc<Hub>,
    pub(crate) live: Live,
    pub(crate) relays: Relays,
    pub(crate) inputs: Inputs,
    pub(crate) load: Arc<LoadLog>,
    pub(crate) webhooks: Arc<Webhooks>,
    pub(crate) dispatches: Arc<DispatchListeners>,
    /// One for each event stream there may be.
    pub(crate) streams: Arc<Semaphore>,
    following: AbortHandle,
    _traced: Listening,
}

impl Observing {
    /// Ends to follow the trail, before the scheduler stops: else it would be told as a trail that cannot be read.
    pub(crate) fn end(&self) {
        self.following.abort();
    }

    /// Begins to watch, with tasks of the runtime that this is called in.
    pub(crate) async fn begin(
        scheduler: &Scheduler,
        folder: Option<&Path>,
        sample_every: Option<Duration>,
        streams: usize,
    ) -> Result<Self, ServeError> {
        let load = match folder.map(|folder| folder.join(LOAD_FILE)) {
            None => LoadLog::in_memory(),
            Some(path) => LoadLog::open(&path, Timestamp::now()).map_err(ServeError::file(path))?,
        };
        let load = Arc::new(load);
        let hub = Hub::new(scheduler.clone());
        let following = tokio::spawn(Arc::clone(&hub).follow()).abort_handle();
        let every = sample_every.unwrap_or(TOLD_EVERY);
        tokio::spawn(follow_load(
            scheduler.clone(),
            Arc::clone(&hub),
            Arc::clone(&load),
            every,
        ));
        let dispatches = DispatchListeners::new(scheduler.clone());
        let listeners = Arc::clone(&dispatches);
        let webhooks = Webhooks::open(scheduler.clone(), Arc::clone(&hub), listeners).await;
        Ok(Self {
            webhooks: webhooks.map_err(ServeError::Webhooks)?,
            hub,
            live: Live::default(),
            relays: Relays::default(),
            inputs: Inputs::default(),
            dispatches,
            load,
            following,
            streams: Arc::new(Semaphore::new(streams)),
            _traced: scheduler.store().listen(Arc::new(trace::tell)),
        })
    }
}

async fn follow_load(scheduler: Scheduler, hub: Arc<Hub>, log: Arc<LoadLog>, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failed = false;
    loop {
        ticks.tick().await;
        let Ok(load) = scheduler.load().await else {
            // The scheduler has stopped, or is about to say why it cannot.
            continue;
        };
        hub.tell_load(&load);
        // Only the end of a minute writes, some hundred bytes that nobody waits for.
        match log.add(load) {
            Ok(()) => failed = false,
            Err(error) if !failed => {
                tracing::warn!(%error, path = ?log.path(), "the load cannot be written down");
                failed = true;
            }
            Err(_) => {}
        }
    }
}
