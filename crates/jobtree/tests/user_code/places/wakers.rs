//! Wakers of the program: cloning, waking, and dropping the last one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use jobtree::{CancelToken, JobHandle, JoinSet, channel, future, select_async, sync};

use crate::cloning_waker::cloning_waker;
use crate::place::Place;
use crate::stage::{OnDrop, Stage, until};

/// Names the five places of a future: cloned, woken, dropped after it was woken, replaced by another waker, dropped with the
/// future.
macro_rules! places {
    ($($name:literal: $awaited:ident $($rules:ident)?,)*) => {
        pub const PLACES: &[Place] = &[$(
            Place::new(concat!("waker/", $name, "-clone"), |stage| clone(stage, $awaited(stage))),
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
    "join-set": join_set,
    "notified": notified,
    "notified-with-all": notified_with_all,
    "barrier": barrier,
    "read": read,
    "write": write,
    "acquire-owned": acquire_owned,
    "lock-owned": lock_owned,
    "read-owned": read_owned,
    "write-owned": write_owned,
    "broadcast": broadcast,
    "broadcast-closed": broadcast_closed,
    "watch": watch,
    "watch-closed": watch_closed,
    "oneshot": oneshot,
    "oneshot-dropped": oneshot_dropped,
    "receive-any": receive_any,
    "interval": interval,
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

fn clone(stage: &Arc<Stage>, mut awaited: Awaited) {
    let waker = cloning_waker(stage);
    stage.is_alone();
    // A clone's panic is that of the poll that was given the waker.
    let polled = stage.contain(|| poll(&mut awaited, &waker));
    drop(waker);
    stage.until_acted();
    let happen = std::mem::replace(&mut awaited.happen, Box::new(|| ()));
    happen();
    match polled {
        Some(Poll::Pending) => finish(stage, awaited),
        // Ready because of what the user code did, or out of it came a panic: it is not to be polled again.
        Some(Poll::Ready(())) | None => drop(stage.contain(|| drop(awaited))),
    }
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

fn join_set(stage: &Arc<Stage>) -> Awaited {
    let (handle, end) = job(stage);
    let mut set = JoinSet::from_iter([handle]);
    awaited(async move { drop(set.join_next_async().await) }, end)
}

fn notify(stage: &Arc<Stage>) -> &'static sync::Notify {
    let notify: &'static sync::Notify = Box::leak(Box::new(sync::Notify::new()));
    stage.on_reenter(move || {
        let _ = format!("{notify:?}");
        let mut wait = Box::pin(notify.notified());
        let _ = poll_once(wait.as_mut());
        notify.notify_one();
        notify.notify_all();
        drop(wait);
    });
    notify
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn notified(stage: &Arc<Stage>) -> Awaited {
    let notify = notify(stage);
    awaited(async { drop(notify.notified().await) }, || {
        notify.notify_one()
    })
}

fn notified_with_all(stage: &Arc<Stage>) -> Awaited {
    let notify = notify(stage);
    // Made before, so that what is not kept is not lost.
    let wait = notify.notified();
    awaited(async { drop(wait.await) }, || notify.notify_all())
}

fn barrier(stage: &Arc<Stage>) -> Awaited {
    let barrier: &'static sync::Barrier = Box::leak(Box::new(sync::Barrier::new(2)));
    let arrive = || {
        // Without a wait: the other one may be gone.
        let mut arrival = Box::pin(barrier.wait_async());
        let _ = poll_once(arrival.as_mut());
    };
    stage.on_reenter(move || {
        let _ = (barrier.parties(), format!("{barrier:?}"));
        arrive();
    });
    // A wait that was woken stays over, even if the user code arrives and goes meanwhile.
    awaited(async { drop(barrier.wait_async().await) }, arrive)
}

fn rwlock(stage: &Arc<Stage>) -> &'static sync::RwLock<i32> {
    let lock: &'static sync::RwLock<i32> = Box::leak(Box::new(sync::RwLock::new(0)));
    stage.on_reenter(move || {
        let _ = (format!("{lock:?}"), lock.try_write().is_some());
        drop(lock.try_read());
    });
    lock
}

fn read(stage: &Arc<Stage>) -> Awaited {
    let lock = rwlock(stage);
    let guard = lock.try_write().unwrap();
    awaited(async { drop(lock.read_async().await) }, || drop(guard))
}

fn write(stage: &Arc<Stage>) -> Awaited {
    let lock = rwlock(stage);
    let guards = [lock.try_read().unwrap(), lock.try_read().unwrap()];
    awaited(async { drop(lock.write_async().await) }, || drop(guards))
}

fn acquire_owned(stage: &Arc<Stage>) -> Awaited {
    let semaphore = Arc::new(sync::Semaphore::new(1));
    let permit = semaphore.try_acquire_owned(1).unwrap();
    let same = semaphore.clone();
    stage.on_reenter(move || drop((same.try_acquire(1), same.waiting())));
    awaited(
        async { drop(semaphore.acquire_owned_async(1).await) },
        || drop(permit),
    )
}

fn lock_owned(stage: &Arc<Stage>) -> Awaited {
    let mutex = Arc::new(sync::Mutex::new(0));
    let guard = mutex.try_lock_owned().unwrap();
    let same = mutex.clone();
    stage.on_reenter(move || drop(same.try_lock()));
    awaited(async { drop(mutex.lock_owned_async().await) }, || {
        drop(guard)
    })
}

fn read_owned(stage: &Arc<Stage>) -> Awaited {
    let lock = Arc::new(sync::RwLock::new(0));
    let guard = lock.write_owned().unwrap();
    let same = lock.clone();
    stage.on_reenter(move || drop(same.try_read()));
    awaited(async { drop(lock.read_owned_async().await) }, || {
        drop(guard)
    })
}

fn write_owned(stage: &Arc<Stage>) -> Awaited {
    let lock = Arc::new(sync::RwLock::new(0));
    let guard = lock.read_owned().unwrap();
    let same = lock.clone();
    stage.on_reenter(move || drop(same.try_write()));
    awaited(async { drop(lock.write_owned_async().await) }, || {
        drop(guard)
    })
}

fn broadcast(stage: &Arc<Stage>) -> Awaited {
    let (sender, mut receiver) = channel::broadcast(2);
    let sender = Arc::new(sender);
    let same = sender.clone();
    stage.on_reenter(move || {
        let mut other = same.subscribe();
        same.send(2);
        let _ = other.try_recv();
    });
    awaited(
        async move { drop(receiver.recv_async().await) },
        move || {
            sender.send(1);
        },
    )
}

fn broadcast_closed(_: &Arc<Stage>) -> Awaited {
    let (sender, mut receiver) = channel::broadcast::<u8>(2);
    awaited(
        async move { drop(receiver.recv_async().await) },
        move || drop(sender),
    )
}

fn watch(stage: &Arc<Stage>) -> Awaited {
    let (sender, mut receiver) = channel::watch(0);
    let sender = Arc::new(sender);
    let (same, other) = (sender.clone(), receiver.clone());
    stage.on_reenter(move || {
        let mut other = other.clone();
        let _ = (same.get(), other.get(), other.has_changed());
        same.send(2);
    });
    awaited(
        async move { drop(receiver.changed_async().await) },
        move || sender.send(1),
    )
}

fn watch_closed(stage: &Arc<Stage>) -> Awaited {
    let (sender, mut receiver) = channel::watch(0);
    let other = receiver.clone();
    stage.on_reenter(move || drop(other.clone().get()));
    awaited(
        async move { drop(receiver.changed_async().await) },
        move || drop(sender),
    )
}

fn oneshot(_: &Arc<Stage>) -> Awaited {
    let (sender, receiver) = channel::oneshot();
    awaited(
        async move { drop(receiver.recv_async().await) },
        move || drop(sender.send(1)),
    )
}

fn oneshot_dropped(_: &Arc<Stage>) -> Awaited {
    let (sender, receiver) = channel::oneshot::<u8>();
    awaited(
        async move { drop(receiver.recv_async().await) },
        move || drop(sender),
    )
}

fn receive_any(stage: &Arc<Stage>) -> Awaited {
    let (sender, receiver) = channel::bounded(1);
    let (never, other) = channel::unbounded();
    let (same, others) = (sender.clone(), [receiver.clone(), other.clone()]);
    stage.on_reenter(move || {
        let _ = (same.try_send(2), others[0].try_recv(), others[1].len());
        let _ = poll_once(Box::pin(channel::recv_any_async(&others)).as_mut());
    });
    awaited(
        async move {
            let receivers = [other, receiver];
            drop(channel::recv_any_async(&receivers).await);
        },
        move || {
            // The user code may have sent one, or taken it.
            let _ = sender.try_send(1);
            drop(never);
        },
    )
}

fn interval(_: &Arc<Stage>) -> Awaited {
    let mut ticks = jobtree::interval(Duration::from_millis(60));
    let two = async move {
        drop(ticks.wait_async().await);
        drop(ticks.wait_async().await);
    };
    awaited(two, || ())
}
