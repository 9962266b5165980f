//! Which webhooks there are, as notes in the store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, ApiError, ErrorCode, EventKind, FieldError, Json, WebhookRequest, WebhookView,
};
use jobtree_queue::planner::ListenScope;
use jobtree_scheduler::Scheduler;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::deliver;
use crate::events::{DispatchListener, DispatchListeners, Hub};

/// Webhooks of one daemon: each has a task and a thread at times.
const MOST: usize = 100;
const SHORTEST_SECRET: usize = 16;
const LONGEST: usize = 2048;

/// What happens to a job that others want to know of, if nothing else is said.
const BY_DEFAULT: [EventKind; 4] = [
    EventKind::Done,
    EventKind::Failed,
    EventKind::Canceled,
    EventKind::Dispatching,
];

/// A webhook, as it is kept.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: Uuid,
    pub(super) url: String,
    pub(super) addon_id: Option<AddonId>,
    pub(super) events: Vec<EventKind>,
    pub(super) secret: String,
    pub(super) created_at: Timestamp,
    /// The place in the trail up to which everything is delivered or given up.
    pub(super) cursor: u64,
    pub(super) delivered: u64,
    pub(super) given_up: u64,
    pub(super) last_error: Option<String>,
}

impl Record {
    fn view(&self) -> WebhookView {
        WebhookView {
            webhook_id: self.id,
            url: self.url.clone(),
            addon_id: self.addon_id.clone(),
            events: self.events.clone(),
            created_at: self.created_at,
            delivered: self.delivered,
            given_up: self.given_up,
            last_error: self.last_error.clone(),
        }
    }
}

/// One webhook at work.
pub(super) struct Hook {
    record: Mutex<Record>,
    name: String,
    scheduler: Scheduler,
}

impl Hook {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn record(&self) -> Record {
        self.lock().clone()
    }

    /// Changes what is known of it, in memory.
    pub(super) fn update(&self, change: impl FnOnce(&mut Record)) {
        change(&mut self.lock());
    }

    /// Writes down how far it is.
    pub(super) async fn save(&self) -> Result<(), ApiError> {
        let json = Json::of(&self.record()).map_err(|error| ApiError::malformed(&error))?;
        self.scheduler.put_note(self.name.clone(), Some(json)).await
    }
}

/// All webhooks of this daemon.
pub struct Webhooks {
    scheduler: Scheduler,
    hub: Arc<Hub>,
    tasks: Handle,
    hooks: Mutex<BTreeMap<Uuid, Working>>,
    dispatches: Arc<DispatchListeners>,
}

/// A webhook that is delivered to.
struct Working {
    hook: Arc<Hook>,
    task: AbortHandle,
    /// It is told of dispatches, so the job types of its addon are served.
    _served: Option<DispatchListener>,
}

impl Webhooks {
    /// Reads those that were registered here before, and goes on with them.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn open(
        scheduler: Scheduler,
        hub: Arc<Hub>,
        dispatches: Arc<DispatchListeners>,
    ) -> Result<Arc<Self>, ApiError> {
        let webhooks = Arc::new(Webhooks {
            hub,
            tasks: Handle::current(),
            hooks: Mutex::default(),
            dispatches,
            scheduler,
        });
        for (name, note) in webhooks.scheduler.notes(webhooks.prefix()).await? {
            match note.read::<Record>() {
                Ok(record) => webhooks.begin(record),
                Err(error) => {
                    tracing::warn!(%name, %error, "a webhook cannot be read, and is left out")
                }
            }
        }
        Ok(webhooks)
    }

    fn prefix(&self) -> String {
        format!("server/webhook/{}/", self.scheduler.options().node)
    }

    fn hooks(&self) -> MutexGuard<'_, BTreeMap<Uuid, Working>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hook(&self, record: Record) -> Arc<Hook> {
        Arc::new(Hook {
            name: format!("{}{}", self.prefix(), record.id),
            record: Mutex::new(record),
            scheduler: self.scheduler.clone(),
        })
    }

    fn begin(&self, record: Record) {
        let names_dispatches = record.events.contains(&EventKind::Dispatching);
        let scope = ListenScope {
            addon: record.addon_id.clone(),
            job_type: None,
        };
        let served = names_dispatches.then(|| self.dispatches.listen(scope));
        let (id, hook) = (record.id, self.hook(record));
        let delivering = deliver::deliver(Arc::clone(&hook), Arc::clone(&self.hub));
        let task = self.tasks.spawn(delivering).abort_handle();
        let working = Working {
            hook,
            task,
            _served: served,
        };
        self.hooks().insert(id, working);
    }

    /// Registers one. It is told what happens from now on.
    ///
    /// # Errors
    /// If a field is wrong, there are too many, or the store fails.
    pub async fn add(&self, request: WebhookRequest) -> Result<WebhookView, ApiError> {
        check(&request)?;
        if self.hooks().len() >= MOST {
            let message =
                format!("there are {MOST} webhooks, which is the limit: delete one first");
            return Err(ApiError::new(ErrorCode::Conflict, message));
        }
        let end = self.hub.end().await;
        let cursor =
            end.map_err(|error| ApiError::new(ErrorCode::Unavailable, error.to_string()))?;
        let mut events = request.events;
        if events.is_empty() {
            events = BY_DEFAULT.to_vec();
        }
        events.sort_unstable();
        events.dedup();
        let record = Record {
            id: Uuid::now_v7(),
            url: request.url,
            addon_id: request.addon_id,
            events,
            secret: request.secret,
            created_at: Timestamp::now(),
            cursor,
            delivered: 0,
            given_up: 0,
            last_error: None,
        };
        let view = record.view();
        self.hook(record.clone()).save().await?;
        self.begin(record);
        Ok(view)
    }

    /// All of them, oldest first.
    pub fn all(&self) -> Vec<WebhookView> {
        let hooks = self.hooks();
        hooks
            .values()
            .map(|working| working.hook.record().view())
            .collect()
    }

    /// Forgets one. A delivery that is under way may still arrive.
    ///
    /// # Errors
    /// If there is none of this id, or the store fails.
    pub async fn delete(&self, id: Uuid) -> Result<(), ApiError> {
        let Some(working) = self.hooks().remove(&id) else {
            let message = format!("there is no webhook {id} at this daemon: check the id");
            return Err(ApiError::new(ErrorCode::NotFound, message));
        };
        working.task.abort();
        drop(working);
        let name = format!("{}{id}", self.prefix());
        self.scheduler.put_note(name, None).await
    }

    /// Writes down how far each is, and ends their tasks.
    pub async fn close(&self) {
        let hooks = std::mem::take(&mut *self.hooks());
        for Working { hook, task, .. } in hooks.into_values() {
            task.abort();
            if let Err(error) = hook.save().await {
                tracing::warn!(%error, "how far a webhook is was not written down: some deliveries will be repeated");
            }
        }
    }
}

fn check(request: &WebhookRequest) -> Result<(), ApiError> {
    let mut wrong = Vec::new();
    let has_host = request
        .url
        .strip_prefix("http://")
        .or_else(|| request.url.strip_prefix("https://"))
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    let is_text = !request
        .url
        .chars()
        .any(|c| c.is_whitespace() || c.is_control());
    if !has_host || !is_text || request.url.len() > LONGEST {
        let message =
            format!("is not an address: write http://… or https://…, {LONGEST} bytes at most");
        wrong.push(FieldError::new("url", message));
    }
    if !(SHORTEST_SECRET..=LONGEST).contains(&request.secret.len()) {
        let message = format!(
            "has {} bytes: write {SHORTEST_SECRET} to {LONGEST}",
            request.secret.len()
        );
        wrong.push(FieldError::new("secret", message));
    }
    if let Some(kind) = request.events.iter().find(|kind| !kind.is_kept()) {
        let message = format!(
            "holds {kind}, which is not kept and so not delivered: follow the event stream for it"
        );
        wrong.push(FieldError::new("events", message));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(wrong))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: &str, secret: &str) -> WebhookRequest {
        WebhookRequest {
            url: url.to_owned(),
            addon_id: None,
            events: vec![EventKind::Progress],
            secret: secret.to_owned(),
        }
    }

    #[test]
    fn each_wrong_field_is_named() {
        let error = check(&request("ftp://host", "short")).unwrap_err();
        let fields: Vec<&str> = error
            .fields
            .iter()
            .map(|wrong| wrong.field.as_str())
            .collect();
        assert_eq!(fields, ["url", "secret", "events"]);
        let mut sound = request("https://host/path", "sixteen letters!");
        sound.events.clear();
        assert!(check(&sound).is_ok());
        for url in ["http://", "http:///x", "https://a b", "host"] {
            sound.url = url.to_owned();
            assert!(check(&sound).is_err(), "{url}");
        }
    }
}
