//! What a piece of work inherits from the place that forked or spawned it.
//!
//! A strand knows its current context; every entry in a queue carries the one it was made in, and
//! whoever runs the entry installs it for as long as it runs. A higher layer hangs its own state on
//! `user` (the job tree: the current job); `isolation` is the pool's own use of it.

use crate::worker::Worker;

/// An inherited surrounding. Lives in the frame of the function that installed it, which ends only
/// after everything that carries it.
#[derive(Debug)]
pub(crate) struct Context {
    /// The innermost `isolate` this runs in (its context, possibly this one), or null.
    pub(crate) isolation: *const Context,
    /// For the context of an `isolate`: the `isolate` around it, or null.
    pub(crate) outer_isolation: *const Context,
    /// A pointer of the layer above.
    pub(crate) user: *const (),
}

/// The context of work that is in no other: no isolation, no user pointer.
pub(crate) const OUTERMOST: *const Context = std::ptr::null();

/// The innermost isolation of `context`, or null.
///
/// # Safety
/// `context` must be null or alive: the caller runs in it or holds an entry that carries it.
pub(crate) unsafe fn isolation_of(context: *const Context) -> *const Context {
    if context.is_null() {
        std::ptr::null()
    } else {
        // SAFETY: alive by contract.
        unsafe { (*context).isolation }
    }
}

/// Whether work that carries `context` was made inside `isolation`.
///
/// # Safety
/// `context` must be null or alive, and so its isolations, which are frames below it.
pub(crate) unsafe fn is_within(context: *const Context, isolation: *const Context) -> bool {
    // SAFETY: by contract.
    let mut innermost = unsafe { isolation_of(context) };
    while !innermost.is_null() {
        if innermost == isolation {
            return true;
        }
        // SAFETY: an isolation's frame encloses everything made inside it, so it is alive.
        innermost = unsafe { (*innermost).outer_isolation };
    }
    false
}

/// The pointer that the innermost [`with_user_context`] around this code installed, or null.
///
/// Forks and spawned tasks inherit it, whichever thread runs them.
pub fn user_context() -> *const () {
    Worker::with_current(|worker| match worker {
        // SAFETY: a strand's current context is alive while code runs in it.
        Some(worker) => match unsafe { worker.strand().context.get().as_ref() } {
            Some(context) => context.user,
            None => std::ptr::null(),
        },
        None => std::ptr::null(),
    })
}

/// Runs `body` with `user` as the context pointer of everything it forks or spawns.
///
/// For layers that keep per-job state. Outside of a worker the pointer is not installed: nothing can
/// be forked there without entering a pool first.
///
/// # Safety
/// Whatever `user` points to must outlive every task spawned by `body`; forks end before `body` does.
pub unsafe fn with_user_context<R>(user: *const (), body: impl FnOnce() -> R) -> R {
    Worker::with_current(|worker| match worker {
        Some(worker) => {
            let outer = worker.strand().context.get();
            let context = Context {
                // SAFETY: the current context is alive.
                isolation: unsafe { isolation_of(outer) },
                outer_isolation: std::ptr::null(),
                user,
            };
            let _restore = Installed::new(worker, &context);
            body()
        }
        None => body(),
    })
}

/// A context installed on a strand for as long as this value lives.
pub(crate) struct Installed<'w> {
    worker: &'w Worker,
    outer: *const Context,
}

impl<'w> Installed<'w> {
    pub(crate) fn new(worker: &'w Worker, context: *const Context) -> Installed<'w> {
        let outer = worker.strand().context.replace(context);
        Installed { worker, outer }
    }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        self.worker.strand().context.set(self.outer);
    }
}
