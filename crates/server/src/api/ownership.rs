//! The owner of a thing. An addon's token sees nothing of other addons: their jobs, leases and schedules are answered
//! exactly like ones that do not exist.
//!
//! A thing's addon never changes, so there is no gap between checking it and acting. Nothing is read for an admin's calls.

use std::collections::{HashMap, HashSet};
use std::future::Future;

use jobtree_protocol::operations::PathId;
use jobtree_protocol::{
    ApiError, ErrorCode, JobId, JobView, LeaseId, LeaseView, ScheduleId, ScheduleView,
};
use jobtree_store::StoreError;
use uuid::Uuid;

use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};

/// An id in a path, of something that may be an addon's.
pub(crate) trait Owned: PathId {
    /// The thing.
    type View: Send + 'static;

    /// Reads the thing.
    fn read(self, daemon: &Daemon) -> impl Future<Output = Answered<Self::View>> + Send;

    /// Returns the addon whose thing it is; none if it is no addon's.
    fn addon(view: &Self::View) -> Option<&str>;

    /// Returns the answer for a thing that does not exist.
    fn missing(self) -> StoreError;
}

/// Refuses a thing of another addon. Returns the thing if it was read for that.
pub(crate) async fn check<T: Owned>(
    daemon: &Daemon,
    caller: &Caller,
    id: T,
) -> Answered<Option<T::View>> {
    let Some(own) = caller.addon() else {
        return Ok(None);
    };
    let view = id.read(daemon).await?;
    match T::addon(&view) {
        Some(addon) if own.as_str() != addon => Err(Refusal::not_found(id.missing().to_string())),
        _ => Ok(Some(view)),
    }
}

impl Owned for JobId {
    type View = JobView;

    async fn read(self, daemon: &Daemon) -> Answered<JobView> {
        Ok(daemon.scheduler.job(self).await?)
    }

    fn addon(view: &JobView) -> Option<&str> {
        Some(view.addon_id.as_str())
    }

    fn missing(self) -> StoreError {
        StoreError::NoJob(self)
    }
}

impl Owned for LeaseId {
    type View = LeaseView;

    async fn read(self, daemon: &Daemon) -> Answered<LeaseView> {
        Ok(daemon.scheduler.lease(self).await?)
    }

    fn addon(view: &LeaseView) -> Option<&str> {
        Some(view.addon_id.as_str())
    }

    fn missing(self) -> StoreError {
        StoreError::NoLease(self)
    }
}

impl Owned for ScheduleId {
    type View = ScheduleView;

    async fn read(self, daemon: &Daemon) -> Answered<ScheduleView> {
        Ok(daemon.scheduler.schedule(self).await?)
    }

    fn addon(view: &ScheduleView) -> Option<&str> {
        Some(&view.spec.job.addon_id)
    }

    fn missing(self) -> StoreError {
        StoreError::NoSchedule(self)
    }
}

/// Paths without an id, and ids of webhooks and tokens, which are the admin's.
macro_rules! unowned {
    ($($id:ty),*) => {$(
        impl Owned for $id {
            type View = ();

            async fn read(self, _: &Daemon) -> Answered<()> {
                Ok(())
            }

            fn addon((): &()) -> Option<&str> {
                None
            }

            fn missing(self) -> StoreError {
                unreachable!("it is no addon's, and so never another's")
            }
        }
    )*};
}

unowned!((), Uuid);

/// Returns those of the jobs that do not exist for the caller; none for an admin, whose calls find out by themselves.
pub(crate) async fn hidden_jobs(
    daemon: &Daemon,
    caller: &Caller,
    ids: Vec<JobId>,
) -> Answered<HashSet<JobId>> {
    let Some(own) = caller.addon().cloned() else {
        return Ok(HashSet::new());
    };
    let mut hidden: HashSet<JobId> = ids.iter().copied().collect();
    let found = daemon.store().read(move |tables| tables.jobs(&ids)).await;
    for job in found.map_err(unreadable)? {
        if job.intent.addon_id == own {
            hidden.remove(&job.id);
        }
    }
    Ok(hidden)
}

/// Returns the leases that exist for the caller, each with its jobs.
pub(crate) async fn leases(
    daemon: &Daemon,
    caller: &Caller,
    ids: Vec<LeaseId>,
) -> Answered<HashMap<LeaseId, Vec<JobId>>> {
    let caller = caller.clone();
    let found = daemon.store().read(move |tables| {
        let mut found = HashMap::with_capacity(ids.len());
        for id in ids {
            let lease = tables.lease(id)?.map(|lease| lease.view());
            if let Some(lease) = lease.filter(|lease| caller.sees(&lease.addon_id)) {
                found.insert(id, lease.jobs);
            }
        }
        Ok(found)
    });
    found.await.map_err(unreadable)
}

pub(crate) fn no_job(id: JobId) -> ApiError {
    ApiError::new(ErrorCode::NotFound, StoreError::NoJob(id).to_string())
}

pub(crate) fn no_lease(id: LeaseId) -> ApiError {
    ApiError::new(ErrorCode::NotFound, StoreError::NoLease(id).to_string())
}

pub(super) fn unreadable(error: StoreError) -> Refusal {
    Refusal::new(ErrorCode::Unavailable, error.to_string())
}
