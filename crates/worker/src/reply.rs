//! Responses of the lease source: a thread or a job can wait for one, a future can await it, on any executor.
//!
//! A call begins when its method is called, not when its reply is awaited; dropping the reply does not take it back. The
//! exception is a call that waits for something (a long poll): once nobody listens, it ends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use jobtree_base::user_code::wake_user;
use jobtree_protocol::{ApiError, ErrorCode};

/// What every operation answers.
pub type Result<T> = std::result::Result<T, ApiError>;

/// The answer to one operation. Block for it with [`wait`](Reply::wait), or await it.
///
/// ```
/// use jobtree_worker::Reply;
///
/// let reply = Reply::ready(Ok(3));
/// assert_eq!(reply.wait().unwrap(), 3);
/// ```
#[must_use = "whether the call took effect is only known from its reply"]
pub struct Reply<T> {
    future: Pin<Box<dyn Future<Output = Result<T>> + Send>>,
}

impl<T: Send + 'static> Reply<T> {
    /// One that is already there.
    pub fn ready(value: Result<T>) -> Self {
        Self::new(std::future::ready(value))
    }

    /// One that a future gives.
    pub fn new(future: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self {
            future: Box::pin(future),
        }
    }

    /// Waits until the answer is there. In a job its stack is parked, and the worker does something else meanwhile; another thread
    /// is blocked.
    ///
    /// # Errors
    /// Those of the operation; [`ErrorCode::Unavailable`] if the calling job is cancelled first. Then the operation may have taken
    /// effect or may still do so.
    pub fn wait(self) -> Result<T> {
        jobtree_runtime::block_on(self.future).unwrap_or_else(|cancelled| {
            let message = format!("{cancelled}; the call may have taken effect all the same");
            Err(ApiError::new(ErrorCode::Unavailable, message))
        })
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

struct Slot<T> {
    value: Option<Result<T>>,
    waker: Option<Waker>,
    gone: bool,
}

struct Shared<T>(Mutex<Slot<T>>);

impl<T> Shared<T> {
    fn slot(&self) -> MutexGuard<'_, Slot<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end that answers. Dropped without an answer, it says that whoever
/// would have answered has stopped: nobody waits for ever.
pub struct Promise<T>(Option<Arc<Shared<T>>>);

/// The end that waits.
pub struct Promised<T>(Arc<Shared<T>>);

/// A place for one answer: the end that answers, and the end that waits.
///
/// ```
/// use jobtree_worker::reply::{Reply, promise};
///
/// let (promise, promised) = promise();
/// std::thread::spawn(move || promise.keep(Ok(7)));
/// assert_eq!(Reply::new(promised).wait()?, 7);
/// # Ok::<(), jobtree_protocol::ApiError>(())
/// ```
pub fn promise<T>() -> (Promise<T>, Promised<T>) {
    let shared = Arc::new(Shared(Mutex::new(Slot {
        value: None,
        waker: None,
        gone: false,
    })));
    (Promise(Some(Arc::clone(&shared))), Promised(shared))
}

impl<T> Promise<T> {
    /// Answers. Gives the answer back if nobody waits for it any more.
    ///
    /// # Errors
    /// The answer.
    pub fn keep(mut self, value: Result<T>) -> std::result::Result<(), Result<T>> {
        self.fill(value)
    }

    fn fill(&mut self, value: Result<T>) -> std::result::Result<(), Result<T>> {
        let Some(shared) = self.0.take() else {
            return Ok(());
        };
        let waker = {
            let mut slot = shared.slot();
            if slot.gone {
                return Err(value);
            }
            slot.value = Some(value);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            // A promise is also filled when it is dropped, where no caller receives a panic.
            wake_user(waker);
        }
        Ok(())
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        // Nobody waits: then nobody misses it.
        let _ = self.fill(Err(stopped()));
    }
}

impl<T> Promised<T> {
    /// Nobody waits any more; an answer that was not taken is given back.
    pub fn leave(&self) -> Option<Result<T>> {
        let mut slot = self.0.slot();
        slot.gone = true;
        slot.value.take()
    }
}

impl<T> Future for Promised<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloning a waker runs its owner's code, too.
        let waker = context.waker().clone();
        let mut slot = self.0.slot();
        if let Some(value) = slot.value.take() {
            drop(slot);
            return Poll::Ready(value);
        }
        let old = slot.waker.replace(waker);
        drop(slot);
        // Dropping a waker runs its owner's code.
        drop(old);
        Poll::Pending
    }
}

fn stopped() -> ApiError {
    ApiError::new(
        ErrorCode::Unavailable,
        "the scheduler has stopped; start it again and repeat the call",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_waits_for_a_promise() {
        let (promise, promised) = promise::<u32>();
        let waiting = std::thread::spawn(move || Reply::new(promised).wait());
        promise.keep(Ok(7)).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), 7);
    }

    /// What has not happened by then never will.
    const NEVER: std::time::Duration = std::time::Duration::from_secs(30);

    fn runtime_of_one() -> jobtree_runtime::Runtime {
        let builder = jobtree_runtime::Runtime::builder();
        builder.workers(1).build().unwrap()
    }

    #[test]
    fn a_job_that_waits_leaves_its_worker_to_the_job_that_answers() {
        let runtime = runtime_of_one();
        let (promise, promised) = promise::<u32>();
        let (begins, begun) = std::sync::mpsc::channel();
        let waits = runtime.spawn(move || {
            begins.send(())?;
            Ok(Reply::new(promised).wait()?)
        });
        begun.recv().unwrap();
        drop(runtime.spawn(move || {
            promise.keep(Ok(7)).unwrap();
            Ok(())
        }));
        let Ok(answer) = waits.join_timeout(NEVER) else {
            panic!("the worker is blocked");
        };
        assert_eq!(answer.unwrap(), 7);
    }

    #[test]
    fn a_job_that_waits_for_a_promise_hears_of_its_cancellation() {
        let runtime = runtime_of_one();
        let (promise, promised) = promise::<u32>();
        let (begins, begun) = std::sync::mpsc::channel();
        let waits = runtime.spawn(move || {
            begins.send(())?;
            Ok(Reply::new(promised).wait().map_err(|error| error.code))
        });
        begun.recv().unwrap();
        let job = waits.job().clone();
        job.cancel("enough");
        let Ok(outcome) = waits.join_timeout(NEVER) else {
            panic!("it waits on");
        };
        assert!(outcome.unwrap_err().is_cancelled());
        drop(promise);
    }

    #[test]
    fn a_broken_promise_is_an_error() {
        let (promise, promised) = promise::<u32>();
        drop(promise);
        let error = Reply::new(promised).wait().unwrap_err();
        assert_eq!(error.code, ErrorCode::Unavailable);
    }

    #[test]
    fn a_promise_may_be_broken_though_the_waker_panics() {
        struct Panics;
        impl std::task::Wake for Panics {
            fn wake(self: std::sync::Arc<Self>) {
                panic!("in a waker");
            }
        }
        let (promise, mut promised) = promise::<u32>();
        let waker = std::task::Waker::from(std::sync::Arc::new(Panics));
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut promised).poll(&mut context).is_pending());
        // In a destructor a panic would end the process if another one was on its way.
        let broken = std::thread::spawn(move || {
            let _promise = promise;
            panic!("on its way");
        });
        assert!(broken.join().is_err());
        assert!(Pin::new(&mut promised).poll(&mut context).is_ready());
    }

    #[test]
    fn an_answer_that_nobody_waits_for_comes_back() {
        let (promise, promised) = promise::<u32>();
        assert!(promised.leave().is_none());
        assert!(matches!(promise.keep(Ok(7)), Err(Ok(7))));
    }
}
