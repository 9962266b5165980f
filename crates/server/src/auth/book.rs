//! All tokens: in memory to be looked up, as notes in the store to outlive the process.
//!
//! The admin's token of this machine is not among the notes: its file is the truth, so that whoever may read that file
//! is the admin, whichever store is behind.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{
    ApiError, ErrorCode, FieldError, Json, NewToken, Scope, TokenRequest, TokenView,
};
use jobtree_store::{Stamp, Store, StoreError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::secret::{Hash, Secret, split};
use super::{Caller, Holder, Revocations};

/// All of their notes begin so.
const PREFIX: &str = "server/token/";
/// How often a shared store is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How many there may be.
const MOST: usize = 10_000;
/// The longest name.
const NAME_BYTES: usize = 128;

/// A token, as it is kept.
#[derive(Serialize, Deserialize)]
struct Note {
    #[serde(flatten)]
    view: TokenView,
    sha256: String,
}

struct Entry {
    hash: Hash,
    expires_at: Option<Timestamp>,
    caller: Caller,
    /// The admin's of this machine has none.
    view: Option<TokenView>,
}

/// All tokens.
pub(crate) struct Book {
    entries: RwLock<HashMap<Uuid, Arc<Entry>>>,
    /// Compared with where there is no such token, so that this takes as long.
    nobody: Hash,
    /// Held by whoever reads or writes the notes, until memory is as they are: what was just made or deleted must not be
    /// undone by an older reading.
    changing: tokio::sync::Mutex<()>,
    revocations: Revocations,
}

impl Book {
    /// Reads what is kept.
    pub(crate) fn open(store: &Store, revocations: Revocations) -> Result<Self, StoreError> {
        let book = Self {
            entries: RwLock::default(),
            nobody: Secret::draw().hash(),
            changing: tokio::sync::Mutex::default(),
            revocations,
        };
        book.take(store.notes(PREFIX.to_owned()).wait()?);
        Ok(book)
    }

    /// Reads again what is kept, where others write it, too: a token of one daemon holds at all that share the store,
    /// and one that was deleted at none, some seconds later.
    pub(crate) async fn follow(&self, store: &Store) {
        loop {
            tokio::time::sleep(LOOK).await;
            let _changing = self.changing.lock().await;
            match store.notes(PREFIX.to_owned()).await {
                Ok(notes) => self.take(notes),
                Err(error) => tracing::warn!(%error, "the tokens cannot be read; those known hold"),
            }
        }
    }

    /// Takes these for all that there are, beside the admin's.
    fn take(&self, notes: Vec<(String, Json)>) {
        let mut entries = self.write();
        let mut before = std::mem::take(&mut *entries);
        entries.extend(before.extract_if(|_, entry| entry.view.is_none()));
        for (name, value) in notes {
            let note = value.read::<Note>().ok();
            match note.and_then(|note| Some((Hash::parse(&note.sha256)?, note.view))) {
                Some((hash, view)) => {
                    let id = view.token_id;
                    // One that is known stays as it is, with its count of requests: a token never changes.
                    let known = before.remove(&id);
                    let entry = known.unwrap_or_else(|| Arc::new(Entry::of(hash, view)));
                    entries.insert(id, entry);
                }
                // A token that cannot be read allows nothing.
                None => tracing::warn!(name, "a token cannot be read, and is left out"),
            }
        }
        drop(entries);
        if !before.is_empty() {
            self.revocations.tell();
        }
    }

    /// Takes this token for the admin's.
    pub(crate) fn admit_admin(&self, secret: &Secret) {
        let entry = Entry {
            hash: secret.hash(),
            expires_at: None,
            caller: Caller::admin(secret.id),
            view: None,
        };
        self.write().insert(secret.id, Arc::new(entry));
    }

    /// Whose token this is.
    pub(crate) fn caller(&self, token: &str) -> Option<Caller> {
        let (id, random) = split(token)?;
        let shown = Hash::of(random);
        let entry = self
            .entries
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
            .cloned();
        let Some(entry) = entry else {
            // The result does not matter, the time does.
            let _ = std::hint::black_box(self.nobody.matches(&shown));
            return None;
        };
        (entry.hash.matches(&shown) && entry.holds()).then(|| entry.caller.clone())
    }

    /// Returns the holder of the token with this id, if it is still accepted: for what was made from the token.
    pub(crate) fn holder(&self, id: Uuid) -> Option<Caller> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(&id).filter(|entry| entry.holds())?;
        Some(entry.caller.clone())
    }

    /// All but the admin's own, the oldest first.
    pub(crate) fn views(&self) -> Vec<TokenView> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let views = entries.values().filter_map(|entry| entry.view.clone());
        let mut views: Vec<_> = views.collect();
        views.sort_by_key(|view| (view.created_at, view.token_id));
        views
    }

    /// Makes a token. It holds when this is answered.
    pub(crate) async fn add(
        &self,
        store: &Store,
        stamp: Stamp,
        request: TokenRequest,
    ) -> Result<NewToken, ApiError> {
        let now = stamp.now.wall;
        check(&request, now)?;
        if self.views().len() >= MOST {
            let message = format!("there are {MOST} tokens already: delete some");
            return Err(ApiError::new(ErrorCode::TooMany, message));
        }
        let secret = Secret::draw();
        let mut scopes = request.scopes;
        scopes.sort_unstable();
        scopes.dedup();
        let view = TokenView {
            token_id: secret.id,
            name: request.name,
            addon_id: request.addon_id,
            scopes,
            created_at: jobtree_protocol::whole_micros(now),
            expires_at: request.expires_at,
        };
        let hash = secret.hash();
        let note = Note {
            view: view.clone(),
            sha256: hash.text(),
        };
        let note = Json::of(&note).map_err(|error| unavailable(&error))?;
        let _changing = self.changing.lock().await;
        let kept = store.put_note(stamp, name_of(secret.id), Some(note));
        kept.await.map_err(|error| unavailable(&error))?;
        let entry = Arc::new(Entry::of(hash, view.clone()));
        self.write().insert(secret.id, entry);
        let token = secret.text();
        Ok(NewToken { token, view })
    }

    /// Forgets a token. Whether there was one.
    pub(crate) async fn remove(
        &self,
        store: &Store,
        stamp: Stamp,
        id: Uuid,
    ) -> Result<bool, ApiError> {
        let known = self.views().iter().any(|view| view.token_id == id);
        if known {
            let _changing = self.changing.lock().await;
            let forgotten = store.put_note(stamp, name_of(id), None);
            forgotten.await.map_err(|error| unavailable(&error))?;
            self.write().remove(&id);
            self.revocations.tell();
        }
        Ok(known)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<Uuid, Arc<Entry>>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Returns `true` if the token has not expired.
    fn holds(&self) -> bool {
        self.expires_at.is_none_or(|end| Timestamp::now() < end)
    }

    fn of(hash: Hash, view: TokenView) -> Self {
        let name = format!("token {:?}", view.name);
        let (addon, scopes) = (view.addon_id.clone(), view.scopes.clone());
        let holder = Holder::new(Some(view.token_id), name, addon, scopes);
        Self {
            hash,
            expires_at: view.expires_at,
            caller: Caller::holding(holder),
            view: Some(view),
        }
    }
}

fn name_of(id: Uuid) -> String {
    format!("{PREFIX}{id}")
}

fn unavailable(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::new(ErrorCode::Unavailable, error.to_string())
}

fn check(request: &TokenRequest, now: Timestamp) -> Result<(), ApiError> {
    let mut wrong = Vec::new();
    let mut refuse = |field: &str, message: &str| wrong.push(FieldError::new(field, message));
    let name = &request.name;
    if name.is_empty() || name.len() > NAME_BYTES || name.chars().any(char::is_control) {
        refuse("name", "must be 1 to 128 bytes without control characters");
    }
    let admin = request.scopes.contains(&Scope::Admin);
    if request.scopes.is_empty() {
        refuse(
            "scopes",
            "is empty: write submit, read, cancel, lease or admin",
        );
    }
    match &request.addon_id {
        Some(_) if admin => refuse(
            "addon_id",
            "binds to one addon, and admin is for all: leave one of them out",
        ),
        None if !admin && request.scopes.iter().any(|scope| *scope != Scope::Read) => refuse(
            "addon_id",
            "is missing: write whose jobs it is for; only admin and read alone are for all addons",
        ),
        _ => {}
    }
    if request.expires_at.is_some_and(|end| end <= now) {
        refuse(
            "expires_at",
            "has passed: write a later time, or leave it out",
        );
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(wrong))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jobtree_queue::Now;

    use super::*;

    #[test]
    fn tokens_of_others_come_and_go() {
        let store = Store::in_memory();
        let stamp = || Stamp {
            now: Now {
                wall: Timestamp::now(),
                mono: Duration::ZERO,
            },
            roll: 0,
            rules: Arc::default(),
        };
        let open = |store| Book::open(store, Revocations::default()).unwrap();
        let (one, other) = (open(&store), open(&store));
        let admin = Secret::draw();
        other.admit_admin(&admin);
        let request = TokenRequest {
            name: "n".to_owned(),
            addon_id: None,
            scopes: vec![Scope::Admin],
            expires_at: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let made = runtime.block_on(one.add(&store, stamp(), request)).unwrap();
        let look = || other.take(store.notes(PREFIX.to_owned()).wait().unwrap());
        assert!(other.caller(&made.token).is_none());
        look();
        assert!(other.caller(&made.token).is_some());
        let id = made.view.token_id;
        assert!(runtime.block_on(one.remove(&store, stamp(), id)).unwrap());
        look();
        assert!(other.caller(&made.token).is_none());
        assert!(other.caller(&admin.text()).is_some());
    }
}
