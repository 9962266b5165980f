//! Beside tokio: futures of tokio's in jobs, and jobs in tokio's tasks.
//!
//! Timers, sockets and `tokio::spawn` want to be polled on a thread that has *entered* a tokio runtime. What a thread has entered
//! belongs to the thread, while a job that waits parks its stack and lets another job have that thread. So a job must not hold
//! what [`Handle::enter`] returns across a wait: two jobs would leave in the wrong order, which panics, and what is left behind
//! is the wrong context. The functions here enter for each poll and leave after it:
//!
//! * [`block_on`] waits in a job for any future of tokio's.
//! * [`inside`] makes it a future that any executor can poll, such as [`Nursery::spawn_future`](crate::Nursery::spawn_future).
//! * [`compute`] is the other direction: in a task of tokio's, it replaces `tokio::task::spawn_blocking` for computations. They
//!   run on the workers, may fork and wait, and are cancelled when the task stops awaiting them.
//!
//! A `tokio::task::JoinHandle` needs no context: [`crate::block_on`] waits for one, too.
//!
//! # What they do not do
//!
//! * They do not drive the runtime. A multi-threaded one drives itself; timers and sockets of a `current_thread` one stand still
//!   unless some thread is in its `block_on`.
//! * A poll has the thread to itself, as everything inside [`isolate`](jobtree_pool::isolate()). So what is polled here awaits jobs and
//!   never blocks on one: `handle.await`, not `handle.join()`, which on a pool of one worker waits for a job that only this thread
//!   could run.
//!
//! ```
//! use jobtree_runtime::{nursery, tokio::block_on};
//! use std::time::Duration;
//!
//! let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! let handle = tokio.handle();
//! let sum = nursery(|n| {
//!     let jobs: Vec<_> = (1..=3_u32)
//!         .map(|number| {
//!             n.spawn(move || {
//!                 // Parks the job's stack; no thread waits.
//!                 Ok(block_on(handle, async move {
//!                     tokio::time::sleep(Duration::from_millis(1)).await;
//!                     tokio::spawn(async move { number * number }).await
//!                 })??)
//!             })
//!         })
//!         .collect();
//!     let mut sum = 0;
//!     for job in jobs {
//!         sum += job.join()?;
//!     }
//!     Ok(sum)
//! })?;
//! assert_eq!(sum, 14);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A handler of axum
//!
//! When the client leaves, axum drops the handler's future. With [`compute`] that cancels the job, and with it every loop, fork
//! and wait below it. The example `axum` of the crate `jobtree` is a whole server.
//!
//! ```ignore
//! async fn thumbnail(Path(id): Path<u64>) -> Result<Vec<u8>, StatusCode> {
//!     jobtree::tokio::compute(move || Ok(render_on_all_cores(id)?))
//!         .await
//!         .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
//! }
//! ```

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::tokio::runtime::Handle;
use jobtree_base::user_code::{Place, call_user};
use jobtree_tree::{BoxError, Cancelled};

use crate::{CancelOnDrop, Runtime};

/// Waits for `future`, polling it inside the tokio runtime of `handle`; the stack of a job is parked meanwhile.
///
/// # Errors
/// If the current job is cancelled first; the future is dropped then, inside the runtime, too.
pub fn block_on<F: Future>(handle: &Handle, future: F) -> Result<F::Output, Cancelled> {
    crate::block_on(inside(handle, future))
}

/// Makes a future that enters the tokio runtime of `handle` whenever `future` is polled, and when it is dropped.
///
/// ```
/// use jobtree_runtime::{nursery, tokio::inside};
/// use std::time::Duration;
///
/// let tokio = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
/// let woken = nursery(|n| {
///     let timer = inside(tokio.handle(), async {
///         tokio::time::sleep(Duration::from_millis(1)).await;
///         Ok("woken")
///     });
///     Ok(n.spawn_future(timer).join()?)
/// })?;
/// assert_eq!(woken, "woken");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn inside<F: Future>(handle: &Handle, future: F) -> Inside<F> {
    Inside {
        handle: handle.clone(),
        future: Some(future),
    }
}

/// Starts `body` as a job of the global runtime, and returns a future of its outcome. The job is cancelled if that is dropped
/// first.
///
/// Waiting for tokio's futures in `body` needs a handle, taken before: `let handle = Handle::current();`.
pub fn compute<F, T>(body: F) -> CancelOnDrop<T>
where
    F: FnOnce() -> Result<T, BoxError> + Send + 'static,
    T: Send + 'static,
{
    Runtime::global().spawn(body).cancel_on_drop()
}

/// The future of [`inside`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Inside<F> {
    handle: Handle,
    /// Pinned with the whole. There until the whole is dropped.
    future: Option<F>,
}

impl<F: Future> Future for Inside<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is never moved: it is pinned with the whole, and dropped in its place.
        let (handle, future) = unsafe {
            let this = self.get_unchecked_mut();
            (&this.handle, Pin::new_unchecked(&mut this.future))
        };
        let Some(future) = future.as_pin_mut() else {
            unreachable!("taken out by the destructor alone");
        };
        // What it forks may be waited for here, but no other stack has the thread before the runtime is left.
        jobtree_pool::isolate(|| {
            let _entered = handle.enter();
            future.poll(context)
        })
    }
}

impl<F> Drop for Inside<F> {
    fn drop(&mut self) {
        jobtree_pool::isolate(|| {
            // Entering panics on a thread whose locals are gone, where a future in a `thread_local!` may well be dropped.
            let _entered = call_user(Place::Captured, || self.handle.enter());
            // In its place, since it is pinned there.
            self.future = None;
        });
    }
}

impl<F> fmt::Debug for Inside<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside").finish_non_exhaustive()
    }
}
