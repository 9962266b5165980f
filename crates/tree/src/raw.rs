//! The interface for runners beside the public one: memory next to a job, and the word that forks look at.
//!
//! This is no public interface; it changes with what `jobtree-runtime` needs.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use crate::body::Body;
pub use crate::cell::{Attached, Beside, attach_beside, attach_beside_with};
pub use crate::deferred::putting_jobs_aside;
use crate::job::Job;
pub use crate::outermost::{
    Surroundings, Within, as_part_of_end, is_part_of_end, set_surroundings,
};
pub use crate::path::printable;
pub use crate::stack::{StackName, is_woken_on, name_stack, set_waker_of_stack, start_on};
#[cfg(all(feature = "planted-bugs", not(all(loom, test))))]
pub use crate::step::plant_bug;
use crate::sync::AtomicU64;
pub use crate::sync::SpinLock;
use crate::wait::CancelCallback;
pub use crate::wait::CancelWatch;
pub use crate::word::STOP;

/// The word in which [`STOP`] is set when the job is asked to end.
pub fn stop_word(job: &Job) -> &AtomicU64 {
    job.node().word.as_atomic()
}

/// A handle made of a reference that a caller holds without one: the counterpart of forgetting a handle.
///
/// # Safety
/// `address` is a job's ([`Job::as_ptr`]), and the caller gives away one reference to it.
pub unsafe fn adopt_job(address: *const ()) -> Job {
    let node =
        std::ptr::NonNull::new(address.cast_mut().cast()).expect("a job's address is not null");
    // SAFETY: by contract.
    unsafe { Job::from_reference(node) }
}

/// Calls `callback` when `job` is cancelled, before the callbacks of users. It must not run user code.
pub fn on_cancel_first(job: &Job, callback: impl FnOnce() + Send + 'static) -> CancelCallback {
    CancelCallback::of_runner(job.clone(), Box::new(callback))
}

/// Returns `true` if the code of `job`'s body is inside a shield that has not ended.
pub fn is_sheltered(job: &Job) -> bool {
    let mut inside = vec![job.clone()];
    while let Some(job) = inside.pop() {
        for child in job.children() {
            let word = child.node().word.load();
            if word.is_contained() && word.is_shielded() {
                return true;
            }
            if word.is_contained() {
                inside.push(child);
            }
        }
    }
    false
}

/// Returns `true` if `job` has or inherits locals.
#[inline]
pub fn has_locals(job: &Job) -> bool {
    !job.node().locals.is_empty()
}

/// Returns `true` if there are jobs below `job` that have not ended.
#[inline]
pub fn has_children(job: &Job) -> bool {
    let node = job.node();
    // A job that no other thread knows has none, and needs no lock.
    node.word.load().is_involved() && node.lock().first_child.is_some()
}

/// Returns `true` if the body of the job above has returned. `false` under a root, whose body returns when its tree is closed.
#[inline]
pub fn has_parent_returned(execution: &Body) -> bool {
    execution.job().node().parent.is_some_and(|parent| {
        // SAFETY: a job whose body has not returned has not ended, so the one above is alive.
        let parent = unsafe { parent.as_ref() };
        parent.parent.is_some() && parent.word.load().body_returned()
    })
}

/// Says that no handle will take the value of `job`. Returns `true` if the caller has to drop the value, because the job has
/// ended with one; otherwise the value is dropped when the job ends.
#[must_use]
pub fn lose_interest(job: &Job) -> bool {
    let changed = job.node().word.change_always(|word| word.lose_interest());
    changed.before.is_terminal() && !changed.before.drops_value()
}

/// Calls `use_it` with what the runner attached to the tree of `job`; `None` if there is nothing, or the job has
/// ended.
pub fn with_extension<T: Any, R>(job: &Job, use_it: impl FnOnce(&T) -> R) -> Option<R> {
    let node = job.node();
    // Under the lock an involved job cannot end, so its tree is alive.
    let _locked = node.lock();
    let word = node.word.change(crate::word::Word::involve).ok()?.after;
    if word.is_ending() {
        return None;
    }
    // SAFETY: alive, see above.
    let extension = unsafe { (*node.tree).extension() }?;
    extension.downcast_ref().map(use_it)
}

static CURRENT: OnceLock<fn() -> *const ()> = OnceLock::new();

/// Tells [`Job::current`] how to find the address of the job that the calling code runs in; null is none. The first
/// one stays.
///
/// # Safety
/// What it returns is null or a job ([`Job::as_ptr`]) that stays alive while the calling code runs.
pub unsafe fn set_current_source(source: fn() -> *const ()) {
    let _ = CURRENT.set(source);
}

/// Lends the job that the calling code runs in: [`Job::current`] without a reference of one's own.
#[inline]
pub fn with_current<R>(use_it: impl FnOnce(Option<&Job>) -> R) -> R {
    let address = CURRENT.get().map_or(std::ptr::null(), |source| source());
    // SAFETY: by the contract of `set_current_source` it is a job that stays alive while the calling code runs; the handle
    // is lent, and gives back no reference.
    let job = (!address.is_null()).then(|| ManuallyDrop::new(unsafe { adopt_job(address) }));
    use_it(job.as_deref())
}

impl Job {
    /// The job that the calling code runs in; `None` outside of any.
    ///
    /// It is known to forks, loops and the tasks of scopes that belong to the job, on whatever thread they run.
    pub fn current() -> Option<Job> {
        let source = CURRENT.get()?;
        // SAFETY: by the contract of `set_current_source`.
        unsafe { Job::from_ptr(source()) }
    }
}
