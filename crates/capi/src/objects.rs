//! What handles stand for.

use std::sync::atomic::AtomicPtr;
use std::sync::{Arc, Mutex, PoisonError};

use std::ffi::c_void;

use jobtree_runtime::binding::OwnedNursery;
use jobtree_runtime::channel::{Receiver, Sender};
use jobtree_runtime::{Dispatcher, Job, JobId, future};

use crate::handles::{Kind, Table};
use crate::status::CallError;
use crate::status::jt_status::*;

/// A nursery: a scope that is open until it is awaited or destroyed.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_nursery_t = u64;
/// A scope, as long as the function runs that it was opened for. Everything that takes a scope takes a nursery or a job,
/// too.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_scope_t = u64;
/// A job.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_job_t = u64;
/// A job whose result can be awaited. Everything that takes a job takes a deferred, too.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_deferred_t = u64;
/// A channel: both of its ends.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_channel_t = u64;
/// Threads for jobs: JT_DISPATCHER_DEFAULT, JT_DISPATCHER_IO, or one of jt_dispatcher_create.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_dispatcher_t = u64;

pub(crate) static OBJECTS: Table<Object> = Table::new();

const NURSERY: Kind = Kind::new(1);
const SCOPE: Kind = Kind::new(2);
const JOB: Kind = Kind::new(3);
const DEFERRED: Kind = Kind::new(4);
const CHANNEL: Kind = Kind::new(5);
const DISPATCHER: Kind = Kind::new(6);

#[derive(Clone)]
pub(crate) enum Object {
    Nursery(Arc<NurseryObject>),
    Scope(Arc<ScopeObject>),
    Job(Job),
    Deferred(Arc<DeferredObject>),
    Channel(Arc<ChannelObject>),
    Dispatcher(Dispatcher),
}

pub(crate) struct NurseryObject {
    pub(crate) scope: OwnedNursery,
    /// The job that made it; none if that was a thread outside of jobs.
    pub(crate) owner: Option<JobId>,
    /// Whether it is directly under the job that made it, and so is cancelled with that one.
    pub(crate) is_below_owner: bool,
    pub(crate) started: Started,
}

pub(crate) struct ScopeObject {
    pub(crate) nursery: future::Nursery,
    pub(crate) started: Started,
}

pub(crate) struct DeferredObject {
    pub(crate) job: Job,
    /// Written before the job ends.
    pub(crate) result: Arc<AtomicPtr<c_void>>,
}

pub(crate) struct ChannelObject {
    pub(crate) sender: Sender<u64>,
    pub(crate) receiver: Receiver<u64>,
}

impl Object {
    fn kind(&self) -> Kind {
        match self {
            Object::Nursery(_) => NURSERY,
            Object::Scope(_) => SCOPE,
            Object::Job(_) => JOB,
            Object::Deferred(_) => DEFERRED,
            Object::Channel(_) => CHANNEL,
            Object::Dispatcher(_) => DISPATCHER,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Object::Nursery(_) => "a nursery",
            Object::Scope(_) => "a scope",
            Object::Job(_) => "a job",
            Object::Deferred(_) => "a deferred",
            Object::Channel(_) => "a channel",
            Object::Dispatcher(_) => "a dispatcher",
        }
    }

    /// What can be cancelled, as the job that it is.
    pub(crate) fn as_job(&self) -> Option<&Job> {
        match self {
            Object::Nursery(nursery) => Some(nursery.scope.job()),
            Object::Scope(scope) => Some(scope.nursery.job()),
            Object::Job(job) => Some(job),
            Object::Deferred(deferred) => Some(&deferred.job),
            Object::Channel(_) | Object::Dispatcher(_) => None,
        }
    }

    pub(crate) fn is_not(&self, wanted: &str) -> CallError {
        JT_EHANDLE.because(format!(
            "the handle stands for {}, not {wanted}",
            self.name()
        ))
    }
}

pub(crate) fn insert(object: Object) -> Result<u64, CallError> {
    OBJECTS
        .insert(object.kind(), object)
        .map_err(|_| JT_ENOMEM.because("there are too many handles; release some"))
}

pub(crate) fn stale(handle: u64) -> CallError {
    match handle {
        0 => JT_EHANDLE.because("the handle is 0"),
        _ => JT_EHANDLE.because("the handle was released or destroyed, or never was one"),
    }
}

pub(crate) fn get(handle: u64) -> Result<Object, CallError> {
    OBJECTS.get(handle).ok_or_else(|| stale(handle))
}

pub(crate) fn nursery(handle: jt_nursery_t) -> Result<Arc<NurseryObject>, CallError> {
    match get(handle)? {
        Object::Nursery(nursery) => Ok(nursery),
        other => Err(other.is_not("a nursery")),
    }
}

pub(crate) fn deferred(handle: jt_deferred_t) -> Result<Arc<DeferredObject>, CallError> {
    match get(handle)? {
        Object::Deferred(deferred) => Ok(deferred),
        other => Err(other.is_not("a deferred")),
    }
}

pub(crate) fn channel(handle: jt_channel_t) -> Result<Arc<ChannelObject>, CallError> {
    match get(handle)? {
        Object::Channel(channel) => Ok(channel),
        other => Err(other.is_not("a channel")),
    }
}

pub(crate) fn dispatcher(handle: jt_dispatcher_t) -> Result<Dispatcher, CallError> {
    match get(handle)? {
        Object::Dispatcher(dispatcher) => Ok(dispatcher),
        other => Err(other.is_not("a dispatcher")),
    }
}

/// The job of a job or a deferred.
pub(crate) fn job(handle: jt_job_t) -> Result<Job, CallError> {
    match get(handle)? {
        Object::Job(job) => Ok(job),
        Object::Deferred(deferred) => Ok(deferred.job.clone()),
        other => Err(other.is_not("a job")),
    }
}

/// The job that a job, a deferred, a nursery or a scope is.
pub(crate) fn any_job(handle: u64) -> Result<Job, CallError> {
    let object = get(handle)?;
    match object.as_job() {
        Some(job) => Ok(job.clone()),
        None => Err(object.is_not("a job, a nursery or a scope")),
    }
}

/// As [`any_job`]; with 0, the current job.
pub(crate) fn job_or_current(handle: u64) -> Result<Job, CallError> {
    match handle {
        0 => Job::current().ok_or_else(|| JT_EEMPTY.because("the caller is not in a job")),
        handle => any_job(handle),
    }
}

/// The handles to the jobs that were started in a scope, which go with it.
#[derive(Default)]
pub(crate) struct Started(Mutex<Handles>);

#[derive(Default)]
struct Handles {
    handles: Vec<u64>,
    /// How many there may be before those that were released are looked for.
    enough: usize,
    /// Whether the scope has gone.
    is_over: bool,
}

/// Fewer are not worth the search.
const FEW: usize = 64;

impl Started {
    pub(crate) fn add(&self, handle: u64) {
        let mut started = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if started.is_over {
            // Another thread was faster to destroy the scope.
            drop(started);
            OBJECTS.remove(handle);
            return;
        }
        if started.handles.len() >= started.enough.max(FEW) {
            started.handles.retain(|handle| OBJECTS.holds(*handle));
            started.enough = started.handles.len() * 2;
        }
        started.handles.push(handle);
    }

    /// The scope has gone, and its handles go with it.
    pub(crate) fn release(&self) {
        let mut started = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        started.is_over = true;
        let handles = std::mem::take(&mut started.handles);
        drop(started);
        for handle in handles {
            OBJECTS.remove(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use jobtree_runtime::channel;

    use super::*;

    fn some_handle() -> u64 {
        let (sender, receiver) = channel::unbounded();
        let channel = ChannelObject { sender, receiver };
        insert(Object::Channel(Arc::new(channel))).unwrap()
    }

    #[test]
    fn a_scope_remembers_no_more_than_twice_the_handles_that_are_held() {
        let started = Started::default();
        let kept: Vec<_> = (0..10).map(|_| some_handle()).collect();
        kept.iter().for_each(|handle| started.add(*handle));
        for _ in 0..1000 {
            let handle = some_handle();
            started.add(handle);
            OBJECTS.remove(handle).unwrap();
            assert!(started.0.lock().unwrap().handles.len() <= FEW);
        }
        assert!(kept.iter().all(|handle| OBJECTS.holds(*handle)));
        started.release();
        assert!(kept.iter().all(|handle| !OBJECTS.holds(*handle)));
        let late = some_handle();
        started.add(late);
        assert!(!OBJECTS.holds(late));
    }
}
