//! Sessions of browsers: a cookie that stands for a token, for a bounded time.
//!
//! A session has the rights of the token that it was made from, looked up with each request, and ends with it. The cookie is
//! for no script to read, and browsers send it with requests of our own pages only. It has no `Path`, so that it is sent to
//! the folder of the call that set it alone: the API, below whatever prefix a proxy takes away. What changes something also
//! needs a header whose value only a page of ours can read.
//!
//! Sessions are notes in the store, hashed like tokens: they outlive a restart, and hold at all daemons of a shared store.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::http::header::{COOKIE, ORIGIN};
use axum::http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use jobtree_protocol::{ApiError, ErrorCode, Json};
use jobtree_store::{Stamp, Store, StoreError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Revocations;
use super::secret::{Hash, Secret, split_cookie};

/// The beginning of the names of their notes.
const PREFIX: &str = "server/session/";
/// The header of calls that change something.
pub(crate) const CSRF_HEADER: &str = "x-jobtree-csrf";
/// The most sessions of one token. The oldest gives way to another.
const MOST_OF_A_TOKEN: usize = 100;
/// The time between two readings of a shared store.
const READ_EVERY: Duration = Duration::from_secs(5);

/// A session, as it is kept.
#[derive(Serialize, Deserialize)]
struct Note {
    token_id: Uuid,
    sha256: String,
    expires_at: Timestamp,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: Uuid,
    /// The token that it was made from.
    pub(crate) token: Uuid,
    pub(crate) expires_at: Timestamp,
    /// The value of the header that goes with calls that change something.
    pub(crate) csrf: String,
    hash: Hash,
}

/// All sessions.
pub(crate) struct Sessions {
    all: RwLock<HashMap<Uuid, Arc<Session>>>,
    /// Compared with where there is no such session, so that this takes as long.
    nobody: Hash,
    /// The cookie's name. It holds the port: browsers send cookies to all ports of a machine.
    cookie: String,
    lifetime: Duration,
    /// Held while the notes are read or written, until memory is as they are.
    changing: tokio::sync::Mutex<()>,
    revocations: Revocations,
}

impl Sessions {
    /// Reads the sessions that are kept.
    pub(crate) fn open(
        store: &Store,
        port: u16,
        lifetime: Duration,
        revocations: Revocations,
    ) -> Result<Self, StoreError> {
        let sessions = Self {
            all: RwLock::default(),
            nobody: Secret::draw().hash(),
            cookie: format!("jobtree_session_{port}"),
            lifetime,
            changing: tokio::sync::Mutex::default(),
            revocations,
        };
        sessions.take(store.notes(PREFIX.to_owned()).wait()?);
        Ok(sessions)
    }

    /// Reads again what is kept, where other daemons write it, too.
    pub(crate) async fn follow(&self, store: &Store) {
        loop {
            tokio::time::sleep(READ_EVERY).await;
            let _changing = self.changing.lock().await;
            match store.notes(PREFIX.to_owned()).await {
                Ok(notes) => self.take(notes),
                Err(error) => {
                    tracing::warn!(%error, "the sessions cannot be read; those known hold")
                }
            }
        }
    }

    /// Takes these for all that there are.
    fn take(&self, notes: Vec<(String, Json)>) {
        let read = |(name, value): (String, Json)| {
            let id = Uuid::try_parse(name.strip_prefix(PREFIX)?).ok()?;
            let note = value.read::<Note>().ok()?;
            let hash = Hash::parse(&note.sha256)?;
            Some((
                id,
                Arc::new(Session::of(id, hash, note.token_id, note.expires_at)),
            ))
        };
        // A session that cannot be read allows nothing.
        let now_kept: HashMap<_, _> = notes.into_iter().filter_map(read).collect();
        let before = std::mem::replace(&mut *self.write(), now_kept);
        if before.keys().any(|id| self.find(*id).is_none()) {
            self.revocations.tell();
        }
    }

    /// Begins a session for the holder of a token. Returns the cookie, as the answer to this request sets it.
    pub(crate) async fn begin(
        &self,
        store: &Store,
        stamp: impl Fn() -> Stamp,
        token: Uuid,
        secure: bool,
    ) -> Result<(Arc<Session>, HeaderValue), ApiError> {
        let secret = Secret::draw();
        let now = Timestamp::now();
        let session = Arc::new(Session::of(
            secret.id,
            secret.hash(),
            token,
            jobtree_protocol::whole_micros(now + self.lifetime),
        ));
        let note = Json::of(&Note {
            token_id: token,
            sha256: session.hash.text(),
            expires_at: session.expires_at,
        });
        let note = note.map_err(|error| unavailable(&error))?;
        let _changing = self.changing.lock().await;
        for id in self.surplus(token, now) {
            self.forget(store, stamp(), id).await?;
        }
        let kept = store.put_note(stamp(), name_of(session.id), Some(note));
        kept.await.map_err(|error| unavailable(&error))?;
        self.write().insert(session.id, Arc::clone(&session));
        let cookie = self.cookie(&secret.cookie_text(), self.lifetime, secure);
        Ok((session, cookie))
    }

    /// Returns the sessions that are over, and the oldest of this token if it has as many as it may.
    fn surplus(&self, token: Uuid, now: Timestamp) -> Vec<Uuid> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let over = all.values().filter(|session| session.expires_at <= now);
        let mut surplus: Vec<_> = over.map(|session| session.id).collect();
        let own = all.values();
        let own = own.filter(|session| session.token == token && session.expires_at > now);
        let mut own: Vec<_> = own
            .map(|session| (session.expires_at, session.id))
            .collect();
        own.sort_unstable();
        let too_many = (own.len() + 1).saturating_sub(MOST_OF_A_TOKEN);
        surplus.extend(own.into_iter().take(too_many).map(|(_, id)| id));
        surplus
    }

    /// Ends a session.
    pub(crate) async fn end(&self, store: &Store, stamp: Stamp, id: Uuid) -> Result<(), ApiError> {
        let _changing = self.changing.lock().await;
        self.forget(store, stamp, id).await
    }

    /// Ends the sessions that were made from a token, which is no longer one.
    pub(crate) async fn end_of_token(
        &self,
        store: &Store,
        stamp: impl Fn() -> Stamp,
        token: Uuid,
    ) -> Result<(), ApiError> {
        let _changing = self.changing.lock().await;
        let all: Vec<_> = {
            let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
            let of_token = all.values().filter(|session| session.token == token);
            of_token.map(|session| session.id).collect()
        };
        for id in all {
            self.forget(store, stamp(), id).await?;
        }
        Ok(())
    }

    /// Forgets a session, in the store first. The caller holds `changing`.
    async fn forget(&self, store: &Store, stamp: Stamp, id: Uuid) -> Result<(), ApiError> {
        let forgotten = store.put_note(stamp, name_of(id), None);
        forgotten.await.map_err(|error| unavailable(&error))?;
        self.write().remove(&id);
        self.revocations.tell();
        Ok(())
    }

    /// Returns the session that a request's cookie names, if it lasts.
    pub(crate) fn of(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        let value = self.cookie_in(headers)?;
        let (id, random) = split_cookie(value)?;
        let shown = Hash::of(random);
        let Some(session) = self.find(id) else {
            // The result does not matter, the time does.
            let _ = std::hint::black_box(self.nobody.matches(&shown));
            return None;
        };
        session.hash.matches(&shown).then_some(session)
    }

    /// Returns `true` if a request has a cookie of ours, whether or not it is of any use.
    pub(crate) fn has_cookie(&self, headers: &HeaderMap) -> bool {
        self.cookie_in(headers).is_some()
    }

    fn cookie_in<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let all = headers.get_all(COOKIE).into_iter();
        let mut pairs = all
            .filter_map(|it| it.to_str().ok())
            .flat_map(|it| it.split(';'));
        pairs.find_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == self.cookie).then_some(value)
        })
    }

    /// Returns the session with this id, if it lasts.
    pub(crate) fn find(&self, id: Uuid) -> Option<Arc<Session>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let session = all.get(&id)?;
        (Timestamp::now() < session.expires_at).then(|| Arc::clone(session))
    }

    /// Returns the cookie that takes the place of a session's, and is gone at once.
    pub(crate) fn no_cookie(&self, secure: bool) -> HeaderValue {
        self.cookie("", Duration::ZERO, secure)
    }

    fn cookie(&self, value: &str, lifetime: Duration, secure: bool) -> HeaderValue {
        let (name, seconds) = (&self.cookie, lifetime.as_secs());
        let secure = if secure { "; Secure" } else { "" };
        let text = format!("{name}={value}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
        HeaderValue::try_from(text).expect("letters, digits and signs")
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<Uuid, Arc<Session>>> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn of(id: Uuid, hash: Hash, token: Uuid, expires_at: Timestamp) -> Self {
        Self {
            id,
            token,
            expires_at,
            csrf: Hash::of(&format!("csrf {}", hash.text())).text(),
            hash,
        }
    }

    /// Returns `true` if a request has the header that goes with this session.
    pub(crate) fn has_header(&self, headers: &HeaderMap) -> bool {
        let given = headers
            .get(CSRF_HEADER)
            .and_then(|value| value.to_str().ok());
        given.is_some_and(|given| Hash::of(given).matches(&Hash::of(&self.csrf)))
    }
}

impl std::fmt::Debug for Hash {
    /// Writes nothing of the hash.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash(..)")
    }
}

/// Returns `true` if the browser that sent this reached us over TLS, whoever ended it: browsers name the origin of the page
/// with everything that is posted.
pub(crate) fn over_tls(headers: &HeaderMap) -> bool {
    let origin = headers.get(ORIGIN).map(HeaderValue::as_bytes);
    origin.is_some_and(|origin| origin.starts_with(b"https://"))
}

fn name_of(id: Uuid) -> String {
    format!("{PREFIX}{id}")
}

fn unavailable(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::new(ErrorCode::Unavailable, error.to_string())
}
