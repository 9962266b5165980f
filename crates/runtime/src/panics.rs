//! Where a job's body panicked: only the panic hook knows, so it notes it for the one who catches.
//!
//! The body may have panicked in a fork on another thread; but there, too, the job is the current one.

use std::collections::VecDeque;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use jobtree_pool::isolate;
use jobtree_pool::raw::start_service_thread;
use jobtree_tree::{Job, JobId};

/// Notes kept at most: those of panics that somebody else caught are never asked for.
const MOST_NOTES: usize = 64;

static NOTES: Mutex<VecDeque<(JobId, String)>> = Mutex::new(VecDeque::new());

/// Whether the hook is set.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Returns `true` if the places of panics are noted.
pub(crate) fn is_installed() -> bool {
    IS_INSTALLED.load(Ordering::Acquire)
}

/// Notes the place of every panic in a job from now on, before the hook that was there is called. Does nothing if that has
/// been done.
///
/// A thread that is panicking cannot change the hook, and a destructor may be the first to use a runtime: then another
/// thread does it. Returns `false` if none could be started: places stay unknown until a later call.
pub(crate) fn install() -> bool {
    if is_installed() {
        return true;
    }
    if !std::thread::panicking() {
        install_here();
        return true;
    }
    install_elsewhere()
}

/// Has another thread set the hook. Not waited for: a hook that is running keeps that thread waiting until it has returned.
#[cold]
fn install_elsewhere() -> bool {
    start_service_thread("jobtree-hook".to_owned(), install_here).is_ok()
}

fn install_here() {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_installed() {
        set_hook();
        IS_INSTALLED.store(true, Ordering::Release);
    }
}

fn set_hook() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if let (Some(job), Some(location)) = (Job::current(), info.location()) {
            let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
            if notes.len() == MOST_NOTES {
                notes.pop_front();
            }
            notes.push_back((job.id(), location.to_string()));
        }
        // The hook that was there may wait. The worker must not run another job meanwhile: should that panic, too, the
        // process would abort. A single worker has to, or what the hook waits for might never run.
        let is_worker = jobtree_pool::current_worker_index().is_some();
        if is_worker && jobtree_pool::current_workers() > 1 {
            isolate(|| hook(info));
        } else {
            hook(info);
        }
    }));
}

/// The place of the newest panic in the job.
pub(crate) fn take_location(job: JobId) -> Option<String> {
    if !is_installed() {
        // A worker must not wait for a hook that is running: that may wait for the worker.
        install_elsewhere();
    }
    let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    let newest = notes.iter().rposition(|(noted, _)| *noted == job)?;
    let location = notes.remove(newest).map(|(_, location)| location);
    notes.retain(|(noted, _)| *noted != job);
    location
}
