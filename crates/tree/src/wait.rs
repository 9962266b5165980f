//! Waiting for a job's end or for its cancellation: as a future, or with a function to call.
//!
//! Threads wait with these, too, by a waker that lets them go on; so there is one way to wait.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use jobtree_base::user_code::{Place, call_user, drop_user};

use crate::error::JobId;
use crate::job::Job;
use crate::monitor::{Counter, EventKind, trace};
use crate::node::Guarded;
use crate::outermost::{
    Within, limits_of_caller, refuse_to_wait_for_own_end, waker_for_later, within,
};
use crate::step::{Step, left_out};
use crate::sync::model_has_failed;
use crate::waiters::{CancelFn, Entered, WaitList, WaitNode, Wake};
use crate::word::Word;

/// The event that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    End,
    Cancellation,
}

impl What {
    fn has_come(self, word: Word) -> bool {
        match self {
            What::End => word.is_terminal(),
            What::Cancellation => word.is_cancelling_or_was(),
        }
    }

    fn list(self, guarded: &mut Guarded) -> &mut WaitList {
        match self {
            What::End => &mut guarded.waiters,
            What::Cancellation => &mut guarded.cancel_waiters,
        }
    }
}

/// An entry in one of a job's lists, taken out when this is dropped.
struct Registration {
    job: Job,
    what: What,
    waiter: WaitNode,
    may_be_linked: bool,
}

impl Registration {
    fn new(job: Job, what: What) -> Registration {
        Registration {
            job,
            what,
            waiter: WaitNode::new(),
            may_be_linked: false,
        }
    }

    fn has_come(&self) -> bool {
        self.what.has_come(self.job.node().word.load())
    }

    /// Enters or renews the entry; `wake` comes back if there is nothing to wait for: it has come, or,
    /// for a cancellation, never will.
    fn enter(self: Pin<&mut Self>, wake: Wake) -> Result<(), Wake> {
        // SAFETY: nothing is moved out of the place.
        let this = unsafe { self.get_unchecked_mut() };
        let node = this.job.node();
        if this.what == What::End {
            refuse_to_wait_for_own_end(node);
        }
        let mut locked = node.lock();
        // Under the lock: the thread that makes it come takes the list under it afterwards.
        let word = if left_out(Step::WaiterInvolves) {
            Ok(node.word.load())
        } else {
            node.word.change(Word::involve).map(|changed| changed.after)
        };
        match word {
            Ok(word) if !this.what.has_come(word) => {}
            Ok(_) | Err(_) => return Err(wake),
        }
        this.may_be_linked = true;
        // SAFETY: the entry is pinned, in no other list, and taken out before it goes (`drop`).
        let entered = unsafe { this.what.list(&mut locked).enter(&this.waiter, wake) };
        if let Entered::Renewed(replaced) = entered {
            drop(locked);
            drop_user(Place::Waker, replaced);
            return Ok(());
        }
        if this.what == What::End {
            // SAFETY: the job cannot have told its parent of its end: that is not yet visible, and an
            // involved job takes its lock before it does. So the tree is alive.
            let monitor = unsafe { &(*node.tree).monitor };
            monitor.count(Counter::WaitersRegistered);
            monitor.record(JobId(node.id), EventKind::WaitRegister);
            drop(locked);
            trace(JobId(node.id), EventKind::WaitRegister);
        }
        Ok(())
    }

    fn poll(mut self: Pin<&mut Self>, context: &Context<'_>) -> Poll<()> {
        if self.has_come() {
            return Poll::Ready(());
        }
        match self
            .as_mut()
            .enter(Wake::Task(waker_for_later(context.waker())))
        {
            Ok(()) => Poll::Pending,
            Err(unused) => {
                drop_wake(unused);
                match self.has_come() {
                    true => Poll::Ready(()),
                    // A job that ended uncancelled will never be cancelled.
                    false => Poll::Pending,
                }
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.may_be_linked && !model_has_failed() {
            // SAFETY: the entry is in this list or in none.
            unsafe { leave(&self.job, self.what, &self.waiter) };
        }
    }
}

/// Takes an entry out of its list. A job that no other thread knows then ends as cheaply as if none ever had.
///
/// # Safety
/// `waiter` is in this list of `job` or in none.
unsafe fn leave(job: &Job, what: What, waiter: &WaitNode) {
    let node = job.node();
    let mut locked = node.lock();
    // SAFETY: by contract.
    let wake = unsafe { what.list(&mut locked).remove(waiter) };
    let is_known = locked.first_child.is_some()
        || !locked.waiters.is_empty()
        || !locked.cancel_waiters.is_empty();
    if !is_known {
        let _ = node.word.change(Word::forget_others);
    }
    drop(locked);
    // With the lock free and the entry out of the list: a callback's captures and a foreign waker have destructors.
    if let Some(wake) = wake {
        drop_wake(wake);
    }
}

fn drop_wake(wake: Wake) {
    match wake {
        Wake::Task(waker) => drop_user(Place::Waker, waker),
        Wake::Call(callback) => drop_user(Place::Captured, callback),
        Wake::Lent(_) => {}
        Wake::Own(waker) => drop(waker),
        Wake::OwnCall(callback) => drop(callback),
        Wake::Cancel(job) => drop(job),
    }
}

/// [`CancelRequested`] for a thread that blocks: the job and the waker are only lent.
pub struct CancelWatch<'j> {
    job: &'j Job,
    waiter: WaitNode,
    may_be_linked: bool,
}

impl<'j> CancelWatch<'j> {
    /// Makes a watch that has no waiter entered yet.
    pub fn new(job: &'j Job) -> CancelWatch<'j> {
        CancelWatch {
            job,
            waiter: WaitNode::new(),
            may_be_linked: false,
        }
    }

    /// Has `waker` woken when the job is asked to end; `false` if that has happened. Entering again costs a look.
    ///
    /// # Safety
    /// `waker` is the same each time, and stays where it is until this is dropped. It is the runner's own, no user's: it may
    /// be cloned while the job is locked, so that must neither use jobs nor panic.
    pub unsafe fn enter(self: Pin<&mut Self>, waker: &Waker) -> bool {
        let node = self.job.node();
        if What::Cancellation.has_come(node.word.load()) {
            return false;
        }
        if self.may_be_linked {
            return true;
        }
        // SAFETY: nothing is moved out of the place.
        let this = unsafe { self.get_unchecked_mut() };
        let mut locked = node.lock();
        // Under the lock: the thread that makes it come takes the list under it afterwards.
        match node.word.change(Word::involve).map(|changed| changed.after) {
            Ok(word) if !What::Cancellation.has_come(word) => {}
            Ok(_) | Err(_) => return false,
        }
        this.may_be_linked = true;
        let wake = Wake::Lent(NonNull::from(waker));
        // SAFETY: the entry is pinned, in no other list, and taken out before it goes (`drop`); the waker outlives that.
        let entered = unsafe { locked.cancel_waiters.enter(&this.waiter, wake) };
        debug_assert!(matches!(entered, Entered::New), "entered once");
        true
    }
}

impl Drop for CancelWatch<'_> {
    fn drop(&mut self) {
        if self.may_be_linked && !model_has_failed() {
            // SAFETY: the entry is in this list or in none.
            unsafe { leave(self.job, What::Cancellation, &self.waiter) };
        }
    }
}

impl fmt::Debug for CancelWatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelWatch").field(self.job).finish()
    }
}

/// A future that is ready when a job has ended; see [`Job::ended`].
pub struct Ended(Registration);

impl Ended {
    pub(crate) fn new(job: Job) -> Ended {
        Ended(Registration::new(job, What::End))
    }
}

impl Future for Ended {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: the field is pinned with the whole.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(context)
    }
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ended").field(&self.0.job).finish()
    }
}

/// A future that is ready when a job is asked to end; see [`Job::cancel_requested`]. Of a job that ends otherwise, it
/// is never ready.
pub struct CancelRequested {
    registration: Registration,
    /// The value through which the cancellation comes: dropped after the registration.
    _kept: Option<Kept>,
}

/// A value that lives as long as a registration.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

impl CancelRequested {
    pub(crate) fn new(job: Job, kept: Option<Kept>) -> CancelRequested {
        CancelRequested {
            registration: Registration::new(job, What::Cancellation),
            _kept: kept,
        }
    }
}

impl Future for CancelRequested {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: the field is pinned with the whole.
        unsafe { self.map_unchecked_mut(|this| &mut this.registration) }.poll(context)
    }
}

impl fmt::Debug for CancelRequested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let job = &self.registration.job;
        f.debug_tuple("CancelRequested").field(job).finish()
    }
}

/// A callback that waits for a job's cancellation, taken back when this is dropped; see [`Job::on_cancel`].
#[must_use = "dropping it takes the callback back"]
pub struct CancelCallback {
    _entered: Option<Pin<Box<Registration>>>,
    /// The value through which the cancellation comes: dropped after the registration.
    _kept: Option<Kept>,
}

impl CancelCallback {
    pub(crate) fn new(job: Job, callback: CancelFn) -> CancelCallback {
        let callback = match limits_of_caller() {
            None => callback,
            Some(limits) => limited(callback, limits),
        };
        CancelCallback::enter(job, Wake::Call(callback))
    }

    /// Calls `callback` when `job` is cancelled, before any user code: the callback is the runner's own and runs none, and its
    /// work may be what a user's callback waits for.
    pub(crate) fn of_runner(job: Job, callback: Box<dyn FnOnce() + Send>) -> CancelCallback {
        CancelCallback::enter(job, Wake::OwnCall(callback))
    }

    /// Cancels `follower` when `job` is cancelled, for the same reason.
    pub(crate) fn cancelling(job: Job, follower: Job) -> CancelCallback {
        CancelCallback::enter(job, Wake::Cancel(follower))
    }

    /// The same callback, which keeps `kept` for as long.
    pub(crate) fn keeping(self, kept: Kept) -> CancelCallback {
        CancelCallback {
            _kept: Some(kept),
            ..self
        }
    }

    fn enter(job: Job, wake: Wake) -> CancelCallback {
        let mut registration = Box::pin(Registration::new(job, What::Cancellation));
        let Err(wake) = registration.as_mut().enter(wake) else {
            return CancelCallback {
                _entered: Some(registration),
                _kept: None,
            };
        };
        // The cancellation has come, or never will.
        if registration.has_come() {
            let reason = registration.job.cancel_reason_or_none();
            match wake {
                Wake::Call(callback) => {
                    call_user(Place::CancelCallback, || callback(&reason));
                }
                Wake::OwnCall(callback) => callback(),
                Wake::Cancel(follower) => {
                    follower.cancel(reason);
                }
                Wake::Task(_) | Wake::Lent(_) | Wake::Own(_) => {
                    unreachable!("a callback is no waker")
                }
            }
        } else {
            drop_wake(wake);
        }
        CancelCallback {
            _entered: None,
            _kept: None,
        }
    }
}

/// Returns `callback` as one that runs, or is dropped, within `limits`.
fn limited(callback: CancelFn, limits: Box<dyn Within>) -> CancelFn {
    struct Limited {
        callback: Option<CancelFn>,
        limits: Box<dyn Within>,
    }
    impl Drop for Limited {
        fn drop(&mut self) {
            let callback = self.callback.take();
            if callback.is_some() {
                within(Some(&*self.limits), || drop(callback));
            }
        }
    }
    let mut limited = Limited {
        callback: Some(callback),
        limits,
    };
    Box::new(move |reason| {
        if let Some(callback) = limited.callback.take() {
            within(Some(&*limited.limits), || callback(reason));
        }
    })
}

impl fmt::Debug for CancelCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelCallback").finish_non_exhaustive()
    }
}
