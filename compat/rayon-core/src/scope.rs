//! Scopes: jobtree's, under rayon's names.

use std::fmt;

use crate::broadcast::BroadcastContext;
use crate::global;

/// Spawns tasks that may borrow from outside of the scope; see [`scope`].
#[repr(transparent)]
pub struct Scope<'scope> {
    inner: jobtree_pool::Scope<'scope>,
}

/// A [`Scope`] whose tasks start in the order in which one thread spawned them; see [`scope_fifo`].
#[repr(transparent)]
pub struct ScopeFifo<'scope> {
    inner: jobtree_pool::ScopeFifo<'scope>,
}

// As upstream, where both are `Send` and code may ask for it. SAFETY: a scope is never handed out by
// value or by `&mut`, so there is nothing to send but references, which `Sync` allows already.
unsafe impl Send for Scope<'_> {}
// SAFETY: as above.
unsafe impl Send for ScopeFifo<'_> {}

impl<'scope> Scope<'scope> {
    pub(crate) fn of<'a>(inner: &'a jobtree_pool::Scope<'scope>) -> &'a Scope<'scope> {
        // SAFETY: a transparent wrapper of the same type with the same lifetimes.
        unsafe { &*std::ptr::from_ref(inner).cast() }
    }

    /// Spawns a task that the scope waits for. It may spawn further ones.
    ///
    /// A panic of `body` is passed on by the scope after all tasks have ended.
    pub fn spawn<BODY>(&self, body: BODY)
    where
        BODY: FnOnce(&Scope<'scope>) + Send + 'scope,
    {
        self.inner.spawn(move |inner| body(Scope::of(inner)));
    }

    /// Spawns a task on every thread of the pool, all of which the scope waits for.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let ran = AtomicUsize::new(0);
    /// rayon_core::scope(|s| s.spawn_broadcast(|_, _| { ran.fetch_add(1, Ordering::Relaxed); }));
    /// assert_eq!(ran.into_inner(), rayon_core::current_num_threads());
    /// ```
    pub fn spawn_broadcast<BODY>(&self, body: BODY)
    where
        BODY: Fn(&Scope<'scope>, BroadcastContext<'_>) + Send + Sync + 'scope,
    {
        self.inner.spawn_broadcast(move |inner, context| {
            body(Scope::of(inner), BroadcastContext::new(&context));
        });
    }
}

impl<'scope> ScopeFifo<'scope> {
    pub(crate) fn of<'a>(inner: &'a jobtree_pool::ScopeFifo<'scope>) -> &'a ScopeFifo<'scope> {
        // SAFETY: a transparent wrapper of the same type with the same lifetimes.
        unsafe { &*std::ptr::from_ref(inner).cast() }
    }

    /// Spawns a task that the scope waits for, behind those that this thread has spawned in it.
    ///
    /// A panic of `body` is passed on by the scope after all tasks have ended.
    pub fn spawn_fifo<BODY>(&self, body: BODY)
    where
        BODY: FnOnce(&ScopeFifo<'scope>) + Send + 'scope,
    {
        self.inner
            .spawn_fifo(move |inner| body(ScopeFifo::of(inner)));
    }

    /// Spawns a task on every thread of the pool, all of which the scope waits for.
    pub fn spawn_broadcast<BODY>(&self, body: BODY)
    where
        BODY: Fn(&ScopeFifo<'scope>, BroadcastContext<'_>) + Send + Sync + 'scope,
    {
        self.inner.spawn_broadcast(move |inner, context| {
            body(ScopeFifo::of(inner), BroadcastContext::new(&context));
        });
    }
}

/// Runs `op` on a thread of the current pool, or the global one. It may spawn tasks that borrow from
/// outside; returns when all of them have ended. The newest task of a thread starts first.
///
/// ```
/// let mut left = vec![1, 2, 3];
/// let mut right = vec![4, 5, 6];
/// rayon_core::scope(|s| {
///     s.spawn(|_| left.reverse());
///     s.spawn(|_| right.reverse());
/// });
/// assert_eq!((left, right), (vec![3, 2, 1], vec![6, 5, 4]));
/// ```
///
/// What a task borrows has to live longer than the scope:
///
/// ```compile_fail,E0373
/// rayon_core::scope(|s| {
///     let inside = String::from("gone when the body returns");
///     s.spawn(|_| println!("{inside}"));
/// });
/// ```
///
/// # Panics
/// If `op` or a task panics, after all tasks have ended.
pub fn scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R + Send,
    R: Send,
{
    global::make_if_outside();
    jobtree_pool::scope(|inner| op(Scope::of(inner)))
}

/// [`scope`] whose tasks start first in, first out, as far as one thread spawned them.
///
/// ```
/// let pool = rayon_core::ThreadPoolBuilder::new().num_threads(1).build()?;
/// let order = std::sync::Mutex::new(Vec::new());
/// pool.scope_fifo(|s| {
///     for n in 0..3 {
///         let order = &order;
///         s.spawn_fifo(move |_| order.lock().unwrap().push(n));
///     }
/// });
/// assert_eq!(order.into_inner().unwrap(), [0, 1, 2]);
/// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
/// ```
///
/// # Panics
/// As [`scope`].
pub fn scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
    R: Send,
{
    global::make_if_outside();
    jobtree_pool::scope_fifo(|inner| op(ScopeFifo::of(inner)))
}

/// [`scope`] whose body runs on the calling thread, so that it need not be `Send`.
///
/// ```
/// let not_send = std::rc::Rc::new(21);
/// let mut doubled = 0;
/// let result = &mut doubled;
/// rayon_core::in_place_scope(|s| {
///     let value = *not_send;
///     s.spawn(move |_| *result = 2 * value);
/// });
/// assert_eq!(doubled, 42);
/// ```
///
/// # Panics
/// As [`scope`].
pub fn in_place_scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R,
{
    global::make_if_outside();
    jobtree_pool::in_place_scope(|inner| op(Scope::of(inner)))
}

/// [`in_place_scope`] whose tasks start first in, first out, as far as one thread spawned them.
///
/// # Panics
/// As [`scope`].
pub fn in_place_scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R,
{
    global::make_if_outside();
    jobtree_pool::in_place_scope_fifo(|inner| op(ScopeFifo::of(inner)))
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for ScopeFifo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
