//! Jobs that a service thread gave up last, kept for a thread that may run user code.
//!
//! The last reference to a job drops what the user has in it: its error, its panic's payload, its locals. Such a destructor may
//! wait, and a thread that others' waits depend on, such as the one that keeps deadlines, must not: it could wait for itself. A
//! wake is not safe there either, since a waker holds a reference to its job, and the job may end between the wake and the drop
//! of the waker. So while such a thread wakes others, the jobs that would be freed are put aside, with their last reference.

use std::cell::RefCell;
use std::ptr::NonNull;

use crate::job::Job;
use crate::node::Node;

thread_local! {
    /// The jobs that were put aside; `None` if the thread frees them itself.
    static PUT_ASIDE: RefCell<Option<Vec<Job>>> = const { RefCell::new(None) };
}

/// Calls `code`, and returns the jobs that it would have freed and that have destructors of the user's in them: to be dropped where
/// user code may run. Not to be nested.
pub fn putting_jobs_aside(code: impl FnOnce()) -> Vec<Job> {
    /// Ends it on every way out.
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            PUT_ASIDE.take();
        }
    }
    PUT_ASIDE.set(Some(Vec::new()));
    let _guard = Guard;
    code();
    PUT_ASIDE.take().unwrap_or_default()
}

/// Puts a job aside, if the thread does so; `false` if it is to be freed here.
///
/// # Safety
/// The caller has given back the last reference to `node`, and does not touch it again if this returns `true`.
#[cold]
#[inline(never)]
pub(crate) unsafe fn put_aside(node: NonNull<Node>) -> bool {
    // Not if the thread's locals are gone.
    let is_put_aside = PUT_ASIDE.try_with(|jobs| {
        let mut jobs = jobs.borrow_mut();
        let Some(jobs) = jobs.as_mut() else {
            return false;
        };
        // SAFETY: alive, and no other thread can reach it, by contract. The handle gets the only reference.
        let job = unsafe {
            node.as_ref().word.renew_last_reference();
            Job::from_reference(node)
        };
        jobs.push(job);
        true
    });
    is_put_aside == Ok(true)
}
