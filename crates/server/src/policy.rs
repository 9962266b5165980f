//! Where the policy is kept: in its file if one was named, else in a note of the store.
//!
//! What is set over HTTP is written there first, and holds when it is; a file that somebody edits is read again when it
//! changes. A policy that is wrong never replaces one that holds.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use jobtree_protocol::{ApiError, ErrorCode, FieldError, Json};
use jobtree_queue::policy::{Policy, PolicyError};
use jobtree_scheduler::Scheduler;
use jobtree_store::{Stamp, Store, StoreError};

use crate::error::ServeError;

const NOTE: &str = "server/policy";
/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What a file looked like when it was read last: another look means another text.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// Where the policy is kept.
pub(crate) struct PolicyKeeper {
    file: Option<PathBuf>,
    seen: Mutex<Option<Look>>,
}

impl PolicyKeeper {
    /// Finds the policy to begin with.
    pub(crate) fn open(
        file: Option<PathBuf>,
        store: &Store,
        default: Policy,
    ) -> Result<(Self, Policy), ServeError> {
        let policy = match &file {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(ServeError::file(path))?;
                let failed = |error| ServeError::Policy {
                    path: path.clone(),
                    error,
                };
                Policy::from_toml(&text).map_err(failed)?
            }
            None => noted(store).map_err(ServeError::Store)?.unwrap_or(default),
        };
        warn(&policy);
        let keeper = Self {
            seen: Mutex::new(file.as_deref().and_then(look)),
            file,
        };
        Ok((keeper, policy))
    }

    /// Sets another policy, for good.
    pub(crate) async fn set(
        &self,
        scheduler: &Scheduler,
        stamp: Stamp,
        text: &str,
    ) -> Result<(), ApiError> {
        let policy = read(text)?;
        match &self.file {
            Some(path) => {
                replace(path, text).map_err(|error| {
                    let message = format!("the policy's file cannot be written: {error}");
                    ApiError::new(ErrorCode::Unavailable, message)
                })?;
                *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = look(path);
            }
            None => {
                let unavailable = |why: &dyn std::fmt::Display| {
                    ApiError::new(ErrorCode::Unavailable, why.to_string())
                };
                let note = Json::of(text).map_err(|error| unavailable(&error))?;
                let kept = scheduler
                    .store()
                    .put_note(stamp, NOTE.to_owned(), Some(note));
                kept.await.map_err(|error| unavailable(&error))?;
            }
        }
        warn(&policy);
        scheduler.set_policy(policy).map_err(|error| told(&error))
    }

    /// Looks at the file from time to time, for ever.
    pub(crate) async fn follow(&self, scheduler: &Scheduler) {
        let Some(path) = &self.file else { return };
        loop {
            tokio::time::sleep(LOOK).await;
            self.look_again(path, scheduler);
        }
    }

    fn look_again(&self, path: &Path, scheduler: &Scheduler) {
        let now = look(path);
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if now.is_none() || *seen == now {
                return;
            }
            *seen = now;
        }
        let text = std::fs::read_to_string(path);
        let path = path.display();
        match text {
            Err(error) => {
                tracing::warn!(%path, %error, "the policy cannot be read; the old one holds")
            }
            Ok(text) => {
                let loaded = Policy::from_toml(&text).and_then(|policy| {
                    warn(&policy);
                    scheduler.set_policy(policy)
                });
                match loaded {
                    Ok(()) => tracing::info!(%path, "the policy was read again"),
                    Err(error) => {
                        tracing::warn!(%path, %error, "the policy is wrong; the old one holds")
                    }
                }
            }
        }
    }
}

/// Says once, when a policy is loaded, what in it has no effect.
fn warn(policy: &Policy) {
    for warning in policy.warnings() {
        tracing::warn!("{warning}");
    }
}

/// Reads a policy, or says of each field what is wrong.
pub(crate) fn read(text: &str) -> Result<Policy, ApiError> {
    Policy::from_toml(text).map_err(|error| told(&error))
}

fn told(error: &PolicyError) -> ApiError {
    match error {
        PolicyError::Text(message) => ApiError::new(ErrorCode::Invalid, message.clone()),
        PolicyError::Values(wrong) => {
            let each = wrong.iter().map(|violation| {
                FieldError::new(
                    violation.field.clone(),
                    format!("is {}: {}", violation.value, violation.allowed),
                )
            });
            ApiError::invalid(each.collect())
        }
    }
}

fn noted(store: &Store) -> Result<Option<Policy>, StoreError> {
    let notes = store.notes(NOTE.to_owned()).wait()?;
    let note = notes.into_iter().find(|(name, _)| name == NOTE);
    let text = note.and_then(|(_, value)| value.read::<String>().ok());
    Ok(text.and_then(|text| match Policy::from_toml(&text) {
        Ok(policy) => Some(policy),
        // Written by a newer version, say: a queue that runs by its defaults is better than none.
        Err(error) => {
            tracing::warn!(%error, "the policy in the store cannot be used; defaults hold");
            None
        }
    }))
}

fn look(path: &Path) -> Option<Look> {
    let known = std::fs::metadata(path).ok()?;
    Some(Look {
        modified: known.modified().ok(),
        bytes: known.len(),
    })
}

/// Replaces a file's text at once: nobody reads half of it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    std::fs::write(&temporary, text)?;
    std::fs::File::open(&temporary)?.sync_all()?;
    std::fs::rename(&temporary, path)
}

/// Follows the file until the daemon stops.
pub(crate) async fn following(daemon: Arc<crate::daemon::Daemon>) {
    tokio::select! {
        () = daemon.policy.follow(&daemon.scheduler) => {}
        () = daemon.stopped() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_wrong_leaves_the_old_policy_in_force() {
        let name = format!("jobtree-policy-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        let scheduler = Scheduler::start(Store::in_memory(), jobtree_scheduler::Options::default());
        std::fs::write(&path, "[caps]\nleases = 5\n").unwrap();
        let opened = PolicyKeeper::open(Some(path.clone()), scheduler.store(), Policy::default());
        let (keeper, policy) = opened.unwrap();
        scheduler.set_policy(policy).unwrap();
        let seen = |text: &str| {
            std::fs::write(&path, text).unwrap();
            keeper.look_again(&path, &scheduler);
            scheduler.policy().caps.leases
        };
        assert_eq!(seen("[caps]\nleases = \"many\"\n"), 5);
        assert_eq!(seen("[caps]\nleases = 60\n"), 60);
        std::fs::remove_file(&path).unwrap();
        keeper.look_again(&path, &scheduler);
        assert_eq!(scheduler.policy().caps.leases, 60);
    }
}
