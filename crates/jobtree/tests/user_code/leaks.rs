//! Leaking: handles, guards and futures that are never dropped.

use std::future::Future;
use std::mem::forget;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use jobtree::{CancelToken, Job, Runtime, channel, future, sleep, sync};

/// A time that does not pass while a cell runs.
const FAR: Duration = Duration::from_secs(3600);

/// Leaks one of everything that can be leaked after it was entered somewhere.
pub fn leak_everything(runtime: &Runtime) {
    let ended = runtime.spawn(|| Ok(()));
    forget(ended.job().on_cancel(|_| ()));
    forget(ended);
    let waiting = runtime.spawn(|| Ok(sleep(Duration::from_millis(5))?));
    poll_and_leak(waiting.job().cancel_requested());
    poll_and_leak(waiting.job().ended());
    poll_and_leak(waiting);
    poll_and_leak(future::sleep(FAR));
    poll_and_leak(runtime.clock().sleep(FAR));
    let (sender, receiver) = channel::bounded::<u8>(1);
    poll_and_leak(async move { receiver.recv_async().await });
    forget(sender);
    let mutex = Box::leak(Box::new(sync::Mutex::new(0)));
    forget(mutex.try_lock());
    poll_and_leak(mutex.lock_async());
    let semaphore = Box::leak(Box::new(sync::Semaphore::new(0)));
    poll_and_leak(semaphore.acquire_async(1));
    let token = CancelToken::new();
    forget(token.on_cancel(|_| ()));
    poll_and_leak(token.cancelled());
    forget(token.child().drop_guard());
    if let Some(job) = Job::current() {
        forget(job.on_cancel(|_| ()));
        poll_and_leak(job.cancel_requested());
        forget(CancelToken::of_job(&job).child());
    }
    forget(runtime.clone());
}

fn poll_and_leak<F: Future>(future: F) {
    let mut future = Box::pin(future);
    let pinned: Pin<&mut F> = future.as_mut();
    let _ = pinned.poll(&mut Context::from_waker(Waker::noop()));
    forget(future);
}
