//! Wakers of the program: waking, and dropping the last one.
//!
//! What clones a waker made by `std::task::Wake` runs no code of the program, so that is no place of this matrix.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use jobtree::{CancelToken, JobHandle, channel, future, select_async, sync};

use crate::place::Place;
use crate::stage::{OnDrop, Stage, until};

/// Names the four places of a future: woken, dropped after it was woken, replaced by another waker, dropped with the future.
macro_rules! places {
    ($($name:literal: $awaited:ident $($rules:ident)?,)*) => {
        pub const PLACES: &[Place] = &[$(
            Place::new(concat!("waker/", $name, "-wake"), |stage| wake(stage, $awaited(stage)))
                $(.with($rules))?,
            Place::new(concat!("waker/", $name, "-drop-after-wake"), |stage| drop_after_wake(stage, $awaited(stage)))
                $(.with($rules))?,
            Place::new(concat!("waker/", $name, "-replace"), |stage| replace(stage, $awaited(stage))),
            Place::new(concat!("waker/", $name, "-drop-with-future"), |stage| drop_with_future(stage, $awaited(stage))),
        )*];
    };
}

places! {
    "handle": handle,
    "ended": ended,
    "ended-by-cancel": ended_by_cancel,
    "cancel-requested": cancel_requested,
    "cancelled-by-deadline": cancelled_by_deadline,
    "token": token,
    "child-token": child_token,
    "sleep": sleep,
    "clock": clock,
    "receive": receive,
    "receive-closed": receive_closed,
    "send": send,
    "lock": lock,
    "acquire": acquire,
    "select": select,
    "lane-handle": lane_handle,
}

/// Something to wait for.
struct Awaited {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Makes the future ready.
    happen: Box<dyn FnOnce() + Send>,
}

fn awaited(
    future: impl Future<Output = ()> + Send + 'static,
    happen: impl FnOnce() + Send + 'static,
) -> Awaited {
    Awaited {
        future: Box::pin(future),
        happen: Box::new(happen),
    }
}

/// A waker whose waking is user code.
struct Waking {
    stage: Arc<Stage>,
    was_woken: AtomicBool,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.was_woken.store(true, Ordering::SeqCst);
        self.stage.act();
    }
}

/// A waker whose destructor is user code.
struct Dropping {
    was_woken: Arc<AtomicBool>,
    _value: OnDrop,
}

impl Wake for Dropping {
    fn wake(self: Arc<Self>) {
        self.was_woken.store(true, Ordering::SeqCst);
    }
}

fn dropping(stage: &Arc<Stage>) -> (Waker, Arc<AtomicBool>) {
    let was_woken = Arc::new(AtomicBool::new(false));
    let waker = Waker::from(Arc::new(Dropping {
        was_woken: was_woken.clone(),
        _value: stage.on_drop(),
    }));
    (waker, was_woken)
}

fn poll(awaited: &mut Awaited, waker: &Waker) -> Poll<()> {
    awaited
        .future
        .as_mut()
        .poll(&mut Context::from_waker(waker))
}

/// Polls until it is ready, as a thread does that has no executor.
fn finish(stage: &Arc<Stage>, mut awaited: Awaited) {
    until(|| {
        let polled = stage.contain(|| poll(&mut awaited, Waker::noop()));
        polled.is_none_or(|polled| polled.is_ready())
    });
    stage.contain(|| drop(awaited));
}

fn wake(stage: &Arc<Stage>, mut awaited: Awaited) {
    let waking = Arc::new(Waking {
        stage: stage.clone(),
        was_woken: AtomicBool::new(false),
    });
    let waker = Waker::from(waking.clone());
    assert!(poll(&mut awaited, &waker).is_pending());
    stage.is_alone();
    let happen = std::mem::replace(&mut awaited.happen, Box::new(|| ()));
    // A waker's panic does not come out of what wakes: another part of the program calls that.
    happen();
    until(|| waking.was_woken.load(Ordering::SeqCst));
    finish(stage, awaited);
}

fn drop_after_wake(stage: &Arc<Stage>, mut awaited: Awaited) {
    let (waker, was_woken) = dropping(stage);
    assert!(poll(&mut awaited, &waker).is_pending());
    stage.contain(|| drop(waker));
    stage.is_alone();
    let happen = std::mem::replace(&mut awaited.happen, Box::new(|| ()));
    happen();
    until(|| was_woken.load(Ordering::SeqCst));
    finish(stage, awaited);
    stage.until_acted();
}

fn replace(stage: &Arc<Stage>, mut awaited: Awaited) {
    let (waker, _) = dropping(stage);
    assert!(poll(&mut awaited, &waker).is_pending());
    stage.contain(|| drop(waker));
    stage.is_alone();
    let polled = stage.contain(|| poll(&mut awaited, Waker::noop()));
    let happen = std::mem::replace(&mut awaited.happen, Box::new(|| ()));
    happen();
    match polled {
        Some(Poll::Pending) => finish(stage, awaited),
        // A future that is ready, or out of which a panic came, is not to be polled again.
        Some(Poll::Ready(())) | None => drop(stage.contain(|| drop(awaited))),
    }
    stage.until_acted();
}

fn drop_with_future(stage: &Arc<Stage>, mut awaited: Awaited) {
    let (waker, _) = dropping(stage);
    assert!(poll(&mut awaited, &waker).is_pending());
    stage.contain(|| drop(waker));
    stage.is_alone();
    let Awaited { future, happen } = awaited;
    stage.contain(|| drop(future));
    happen();
    stage.until_acted();
}

/// A job that runs until the latch is set, and its runtime's only handle is the stage's.
fn job(stage: &Arc<Stage>) -> (JobHandle<()>, impl FnOnce() + Send + 'static) {
    let (sender, receiver) = channel::bounded::<()>(1);
    let handle = stage.in_job(move || Ok(receiver.recv().unwrap_or(())));
    (handle, move || drop(sender.send(())))
}

fn handle(stage: &Arc<Stage>) -> Awaited {
    let (handle, end) = job(stage);
    awaited(async { drop(handle.await) }, end)
}

fn ended(stage: &Arc<Stage>) -> Awaited {
    let (handle, end) = job(stage);
    awaited(handle.job().ended(), end)
}

fn ended_by_cancel(stage: &Arc<Stage>) -> Awaited {
    let (handle, end) = job(stage);
    awaited(handle.job().ended(), move || {
        handle.cancel("the program");
        end();
    })
}

fn cancel_requested(stage: &Arc<Stage>) -> Awaited {
    let (handle, end) = job(stage);
    awaited(handle.job().cancel_requested(), move || {
        handle.cancel("the program");
        end();
    })
}

fn cancelled_by_deadline(stage: &Arc<Stage>) -> Awaited {
    let (send_job, receive_job) = std::sync::mpsc::channel();
    let handle = stage.in_job(move || {
        let limit = Duration::from_millis(60);
        let limited = jobtree::with_timeout(limit, || {
            send_job.send(jobtree::Job::current().unwrap())?;
            Ok(jobtree::sleep(Duration::MAX)?)
        });
        Ok(drop(limited))
    });
    let limited = receive_job.recv().unwrap();
    awaited(limited.cancel_requested(), move || drop(handle))
}

fn token(stage: &Arc<Stage>) -> Awaited {
    let token = CancelToken::new();
    let same = token.clone();
    stage.on_reenter(move || drop((same.child(), same.is_cancelled(), same.cancel("again"))));
    awaited(token.cancelled(), move || {
        token.cancel("the program");
    })
}

fn child_token(stage: &Arc<Stage>) -> Awaited {
    let token = CancelToken::new();
    let between = token.child();
    let child = between.child();
    let same = token.clone();
    stage.on_reenter(move || drop((same.child(), same.is_cancelled(), same.cancel("again"))));
    awaited(child.cancelled(), move || {
        token.cancel("the program");
        drop((between, child));
    })
}

fn sleep(_: &Arc<Stage>) -> Awaited {
    let time = Duration::from_millis(60);
    awaited(async move { drop(future::sleep(time).await) }, || ())
}

fn clock(stage: &Arc<Stage>) -> Awaited {
    let runtime = stage.runtime();
    awaited(runtime.clock().sleep(Duration::from_millis(60)), || ())
}

fn receive(stage: &Arc<Stage>) -> Awaited {
    let (sender, receiver) = channel::bounded(1);
    let (same, other) = (sender.clone(), receiver.clone());
    stage.on_reenter(move || {
        let _ = (
            same.try_send(2),
            same.stats(),
            other.try_recv(),
            other.len(),
        );
    });
    awaited(
        async move { drop(receiver.recv_async().await) },
        move || {
            sender.send(1).unwrap();
        },
    )
}

fn receive_closed(stage: &Arc<Stage>) -> Awaited {
    let (sender, receiver) = channel::unbounded::<u8>();
    let same = sender.clone();
    stage.on_reenter(move || drop((same.try_send(2), same.close())));
    awaited(
        async move { drop(receiver.recv_async().await) },
        move || {
            sender.close();
        },
    )
}

fn send(stage: &Arc<Stage>) -> Awaited {
    let (sender, receiver) = channel::bounded(1);
    sender.send(1).unwrap();
    let (same, other) = (sender.clone(), receiver.clone());
    stage.on_reenter(move || {
        let _ = (
            same.try_send(2),
            same.stats(),
            other.try_recv(),
            other.len(),
        );
    });
    awaited(async move { drop(sender.send_async(2).await) }, move || {
        // The user code may have taken the value.
        let _ = receiver.try_recv();
        std::mem::forget(receiver);
    })
}

fn lock(stage: &Arc<Stage>) -> Awaited {
    let mutex = Box::leak(Box::new(sync::Mutex::new(0)));
    let mutex: &'static sync::Mutex<i32> = mutex;
    let guard = mutex.try_lock().unwrap();
    stage.on_reenter(|| drop(mutex.try_lock()));
    awaited(async { drop(mutex.lock_async().await) }, move || {
        drop(guard)
    })
}

fn acquire(stage: &Arc<Stage>) -> Awaited {
    let semaphore: &'static sync::Semaphore = Box::leak(Box::new(sync::Semaphore::new(0)));
    stage.on_reenter(|| {
        let _ = (semaphore.try_acquire(1), semaphore.waiting());
        semaphore.add_permits(1);
    });
    awaited(async { drop(semaphore.acquire_async(1).await) }, || {
        semaphore.add_permits(1)
    })
}

fn select(stage: &Arc<Stage>) -> Awaited {
    let (sender, receiver) = channel::bounded::<u8>(1);
    let same = sender.clone();
    stage.on_reenter(move || drop((same.try_send(2), same.len())));
    let future = async move {
        let _ = select_async! {
            recv(receiver) -> _message => (),
            after(Duration::from_secs(60)) => (),
        };
    };
    awaited(future, move || drop(sender.send(1)))
}

fn lane_handle(stage: &Arc<Stage>) -> Awaited {
    use jobtree::lanes::LaneJob;
    let runtime = stage.runtime();
    let manager = jobtree::JobManager::builder()
        .runtime(&runtime)
        .build()
        .unwrap();
    stage.keep_manager(&manager);
    let (sender, receiver) = channel::bounded::<()>(1);
    let handle = manager.schedule(LaneJob::action(move || Ok(receiver.recv().unwrap_or(()))));
    stage.keep_job(handle.job());
    awaited(async { drop(handle.await) }, move || drop(sender.send(())))
}
