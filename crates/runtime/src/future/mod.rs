//! The awaiting forms: what blocks elsewhere, as futures.
//!
//! They work in any executor. In a job they see its cancellation, as the blocking forms do: every one of them that is
//! awaited in a cancelled job is ready at once, with the cancellation as its error.
//!
//! ```
//! use std::time::Duration;
//! use jobtree_runtime::{future, nursery};
//!
//! let answer = nursery(|n| {
//!     let handle = n.spawn_future(async {
//!         future::sleep(Duration::from_millis(1)).await?;
//!         Ok(42)
//!     });
//!     Ok(handle.join()?)
//! })?;
//! assert_eq!(answer, 42);
//! # Ok::<(), jobtree_runtime::JobError>(())
//! ```

pub(crate) mod body;
#[cfg(all(test, loom))]
mod models;
mod nursery;
pub(crate) mod scope;
mod state;
pub(crate) mod task;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use jobtree_tree::{BoxError, Cancelled, JobOptions, Outcome};

pub(crate) use self::nursery::JobPlace;
pub use self::nursery::{Nursery, nursery, race, supervisor};
use crate::deadline::{ShieldLimit, Sleep, TimeLimit};
use crate::runtime;
use crate::withdraw::OrCancelled;

/// Waits for `duration`.
///
/// # Errors
/// If the job that awaits it is cancelled first.
pub async fn sleep(duration: Duration) -> Result<(), Cancelled> {
    let timers = runtime::current().runtime.timers.clone();
    OrCancelled::new(Sleep::new(timers, duration)).await
}

/// Lets other tasks run first.
///
/// ```
/// # jobtree_runtime::block_on(async {
/// jobtree_runtime::future::yield_now().await;
/// # }).unwrap();
/// ```
pub fn yield_now() -> YieldNow {
    YieldNow { has_yielded: false }
}

/// See [`yield_now`].
#[derive(Debug)]
#[must_use = "it does nothing unless it is awaited"]
pub struct YieldNow {
    has_yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.has_yielded {
            return Poll::Ready(());
        }
        self.has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// [`with_timeout`](crate::with_timeout) for async code: `body` is cancelled when `limit` is over.
///
/// The future belongs to the job that polls it first, and is to be polled there until it is ready, or dropped. If other code keeps it
/// when the body of that job returns, the scope is cancelled as abandoned and its body counts as returned, so that the job can
/// end; a later poll is ready with the cancellation.
///
/// ```
/// use std::time::Duration;
/// use jobtree_runtime::{JobError, block_on, future};
///
/// let limited = future::with_timeout(Duration::from_millis(1), async {
///     future::sleep(Duration::from_secs(3600)).await?;
///     Ok(())
/// });
/// assert!(matches!(block_on(limited)?, Err(JobError::TimedOut(_))));
/// # Ok::<(), jobtree_runtime::Cancelled>(())
/// ```
///
/// # Errors
/// As [`with_timeout`](crate::with_timeout).
pub async fn with_timeout<T, F>(limit: Duration, body: F) -> Outcome<T>
where
    F: Future<Output = Result<T, BoxError>>,
{
    let place = runtime::current();
    let limit = TimeLimit::new(&place, limit);
    let options = limit.options();
    scope::run(place, options, |place, job| async move {
        let _timer = limit.start(&place, &job);
        let result = body.await;
        limit.check(&place, &job);
        result
    })
    .await
}

/// [`shield`](crate::shield) for async code: a cancellation from above does not reach `body`, but from the moment of that
/// cancellation on for no longer than `limit`.
///
/// The future belongs to the job that polls it first, and is to be polled there until it is ready, or dropped. If other code keeps it
/// when the body of that job returns, the shield is cancelled as abandoned and its body counts as returned, so that the job can
/// end; a later poll is ready with the cancellation.
///
/// # Errors
/// As [`shield`](crate::shield).
pub async fn shield<T, F>(limit: Duration, body: F) -> Outcome<T>
where
    F: Future<Output = Result<T, BoxError>>,
{
    let options = JobOptions::new().shielded().label("shield");
    scope::run(runtime::current(), options, |place, job| async move {
        let _limited = ShieldLimit::new(&place, &job, limit);
        body.await
    })
    .await
}
