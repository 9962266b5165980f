//! Where a job's body panicked: only the panic hook knows, so it notes it for the one who catches.
//!
//! The body may have panicked in a fork on another thread; but there, too, the job is the current one.

use std::collections::VecDeque;
use std::panic;
use std::sync::{Mutex, PoisonError};

use jobtree_pool::isolate;
use jobtree_tree::{Job, JobId};

/// Notes kept at most: those of panics that somebody else caught are never asked for.
const MOST_NOTES: usize = 64;

static NOTES: Mutex<VecDeque<(JobId, String)>> = Mutex::new(VecDeque::new());

/// Notes the place of every panic in a job from now on, before the hook that was there is called.
///
/// A thread that is panicking cannot change the hook, and a destructor may be the first to use a runtime: then another
/// thread does it. Without a thread to be had, places stay unknown.
pub(crate) fn install() {
    if !std::thread::panicking() {
        return install_here();
    }
    // Not waited for: a hook that is running keeps the other thread waiting until it has returned.
    let installer = std::thread::Builder::new().name("jobtree-hook".to_owned());
    let _ = installer.spawn(install_here);
}

fn install_here() {
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
    let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    let newest = notes.iter().rposition(|(noted, _)| *noted == job)?;
    let location = notes.remove(newest).map(|(_, location)| location);
    notes.retain(|(noted, _)| *noted != job);
    location
}
