//! A tree of jobs: its root, and what all of its jobs share.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::body::{Body, BodyResult};
use crate::clock;
use crate::error::{CancelReason, JobId};
use crate::job::Job;
use crate::locals::Locals;
use crate::monitor::{Counters, EventKind, Lacking, Monitor, Recorded, next_id};
use crate::node::{Kind, Node, Origin, drop_user_parts};
use crate::outermost::outermost;
use crate::side::Side;
use crate::sync::model_has_failed;
use crate::word::{Beginning, Cause};

/// The state that all jobs of a tree share. It lives until the root is freed, and may be used by any job that has not told its
/// parent of its end.
pub(crate) struct TreeShared {
    pub(crate) monitor: Monitor,
    hooks: Hooks,
    extension: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// The functions that the layer which runs the jobs wants called.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Called after jobs were cancelled: their bodies may be in the middle of forks and loops that look for it only
    /// when they are told to.
    pub cancelled: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Called for every event of a job, as it is recorded. Locks may be held: it must neither wait nor use jobs.
    pub event: Option<Watcher>,
}

/// A function that is called after a cancellation; see [`Hooks::cancelled`].
pub(crate) type CancelledHook = Arc<dyn Fn() + Send + Sync>;

/// A function that is called for every event; see [`Hooks::event`].
pub type Watcher = Arc<dyn Fn(JobId, EventKind) + Send + Sync>;

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

impl TreeShared {
    /// Returns the function to call after a cancellation, if there is one.
    pub(crate) fn cancelled_hook(&self) -> Option<CancelledHook> {
        self.hooks.cancelled.clone()
    }

    pub(crate) fn extension(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.extension.get().map(|extension| &**extension)
    }
}

/// Records events of a tree's root, as long as the tree is there; see [`Tree::reporter`].
#[derive(Clone)]
pub struct Reporter {
    shared: Weak<TreeShared>,
    root: JobId,
}

impl Reporter {
    /// Records that the runner of the tree lacks something.
    pub fn degraded(&self, lacking: Lacking) {
        if let Some(shared) = self.shared.upgrade() {
            let kind = EventKind::Degraded { lacking };
            shared.monitor.event(self.root, kind);
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter")
            .field("root", &self.root)
            .finish()
    }
}

/// A root, with what its tree shares.
#[repr(C)]
struct RootCell {
    node: Node,
    shared: Arc<TreeShared>,
}

const ROOT: Kind = Kind {
    free: free_root,
    discard_value: |_| {},
    cancelled: None,
    parent_returned: None,
};

unsafe fn free_root(node: NonNull<Node>) {
    // SAFETY: no other thread has a reference.
    outermost(|| unsafe { drop_user_parts(node) });
    // SAFETY: made by `Box::into_raw` of this type in `Tree::with_hooks`; no other thread has a reference.
    drop(unsafe { Box::from_raw(node.cast::<RootCell>().as_ptr()) });
}

/// A tree of jobs. Dropping it cancels what is left, and ends the root when that has ended.
///
/// ```
/// use jobtree_tree::{BodyResult, JobOptions, JobState, Tree};
///
/// let tree = Tree::new();
/// let (job, body) = tree.root().attach(JobOptions::new().label("index"))?;
/// assert!(body.start());
/// body.end(BodyResult::Value);
/// assert_eq!(job.state(), JobState::Completed);
/// # Ok::<(), jobtree_tree::ParentEnded>(())
/// ```
pub struct Tree {
    root: Job,
    /// Taken by the first thread that closes the tree.
    body: Mutex<Option<Body>>,
    shared: Arc<TreeShared>,
}

impl Tree {
    /// A tree that has only a root, which is a supervisor: what fails below it fails alone.
    pub fn new() -> Tree {
        Tree::with_hooks(Hooks::default())
    }

    /// A tree whose runner is told of what `hooks` name.
    pub fn with_hooks(hooks: Hooks) -> Tree {
        let shared = Arc::new(TreeShared {
            monitor: Monitor::watched_by(hooks.event.clone()),
            hooks,
            extension: OnceLock::new(),
        });
        let side = Side {
            label: Some(Cow::Borrowed("root")),
            ..Side::default()
        };
        let cell = Box::into_raw(Box::new(std::mem::MaybeUninit::<RootCell>::uninit()));
        // SAFETY: never null.
        let cell = unsafe { NonNull::new_unchecked(cell) }.cast::<RootCell>();
        let node = cell.cast::<Node>();
        let origin = Origin {
            beginning: Beginning::SUPERVISOR
                .and(Beginning::STARTED)
                .and(Beginning::UNWANTED),
            parent: None,
            tree: Arc::as_ptr(&shared),
            id: next_id(),
            created: clock::coarse_millis(),
            locals: Locals::default(),
            side: Some(Box::new(side)),
        };
        // SAFETY: there is room for a cell, whose first field is the node, and no other thread knows it. A new node has two
        // references, one for each handle made here.
        let (root, body) = unsafe {
            Node::write(node, origin, &ROOT);
            (&raw mut (*cell.as_ptr()).shared).write(Arc::clone(&shared));
            (Job::from_reference(node), Body::from_reference(node))
        };
        Tree {
            root,
            body: Mutex::new(Some(body)),
            shared,
        }
    }

    /// The job above all others.
    pub fn root(&self) -> &Job {
        &self.root
    }

    /// Returns the counts of what happened so far.
    pub fn counters(&self) -> Counters {
        self.shared.monitor.counters()
    }

    /// Keeps the newest `capacity` events from now on; 0 stops it.
    pub fn record_events(&self, capacity: usize) {
        self.shared.monitor.record_events(capacity);
    }

    /// The events kept since the last call.
    pub fn take_events(&self) -> Recorded {
        self.shared.monitor.take_events()
    }

    /// A way to record events of the root, for parts of the runner that must not keep the tree.
    pub fn reporter(&self) -> Reporter {
        Reporter {
            shared: Arc::downgrade(&self.shared),
            root: self.root.id(),
        }
    }

    /// Attaches something of the runner's to the tree, to be found from each of its jobs; once.
    ///
    /// # Errors
    /// If it was done before: the value comes back.
    pub fn set_extension<T: Any + Send + Sync>(&self, extension: T) -> Result<(), Box<dyn Any>> {
        self.shared
            .extension
            .set(Box::new(extension))
            .map_err(|extension| extension as Box<dyn Any>)
    }

    /// Cancels everything, and lets the root end as soon as everything else has. Closing again changes nothing.
    ///
    /// Callbacks and wakers that wait for a cancellation are called on the calling thread, and may use the tree.
    pub fn close(&self) {
        self.root.cancel(CancelReason::from(Cause::Shutdown));
        let body = self
            .body
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(body) = body {
            body.end(BodyResult::Cancelled);
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if model_has_failed() {
            return;
        }
        self.close();
    }
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}
