//! The mutex, the lock for readers and writers, and the semaphore: every rule by name.

mod support;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use jobtree_runtime::channel::unbounded;
use jobtree_runtime::sync::{AcquireError, Mutex, RwLock, Semaphore, TryAcquireError};
use jobtree_runtime::{JobError, WaitingFor, nursery, sleep};
use support::{Bell, end, rounds, runtime, until, until_it_waits, watch};

#[test]
fn one_at_a_time_even_if_it_waits_while_it_holds_the_lock() {
    let _watch = watch();
    const JOBS: usize = 50;
    let runtime = runtime(3);
    let counts = Mutex::new((0, 0));
    runtime
        .nursery(|n| {
            for _ in 0..JOBS {
                n.launch(|| {
                    for _ in 0..20 {
                        let mut guard = counts.lock()?;
                        guard.0 += 1;
                        sleep(std::time::Duration::ZERO)?;
                        jobtree_pool::yield_now();
                        guard.1 += 1;
                        assert_eq!(guard.0, guard.1);
                    }
                    Ok(())
                });
            }
            Ok(())
        })
        .unwrap();
    assert!(!counts.is_locked());
    assert_eq!(counts.into_inner(), (JOBS * 20, JOBS * 20));
    end(&runtime);
}

#[test]
fn those_who_wait_get_the_lock_in_order_and_nobody_gets_in_between() {
    let _watch = watch();
    let mutex = Mutex::new(());
    let bells: [Arc<Bell>; 3] = Default::default();
    let held = mutex.try_lock().unwrap();
    let mut first = Box::pin(mutex.lock_async());
    let mut second = Box::pin(mutex.lock_async());
    let mut third = pin!(mutex.lock_async());
    let wakers = bells.each_ref().map(Bell::waker);
    let mut contexts = wakers.each_ref().map(Context::from_waker);
    assert!(first.as_mut().poll(&mut contexts[0]).is_pending());
    assert!(second.as_mut().poll(&mut contexts[1]).is_pending());
    assert!(third.as_mut().poll(&mut contexts[2]).is_pending());
    let rings = || bells.each_ref().map(|bell| bell.rings());
    drop(held);
    assert_eq!(rings(), [1, 0, 0], "one is woken");
    assert!(mutex.try_lock().is_none(), "it has been handed over");
    let Poll::Ready(Ok(guard)) = first.as_mut().poll(&mut contexts[0]) else {
        panic!("the first has the lock");
    };
    drop(guard);
    assert_eq!(rings(), [1, 1, 0]);
    // Told, and gone before it took the lock: that goes on to the next.
    drop(second);
    assert_eq!(rings(), [1, 1, 1]);
    assert!(third.as_mut().poll(&mut contexts[2]).is_ready());
    assert!(mutex.try_lock().is_some());
}

#[test]
fn a_cancelled_job_does_not_get_the_lock() {
    let _watch = watch();
    let runtime = runtime(1);
    let mutex = Arc::new(Mutex::new(0));
    let held = mutex.try_lock().unwrap();
    let waiting = runtime.spawn({
        let mutex = Arc::clone(&mutex);
        move || {
            *mutex.lock()? += 1;
            Ok(())
        }
    });
    until_it_waits(waiting.job());
    assert_eq!(waiting.job().waiting_for(), Some(WaitingFor::Lock));
    waiting.cancel("enough");
    assert!(waiting.join().unwrap_err().is_cancelled());
    drop(held);
    let outcome = nursery(|n| {
        n.cancel("enough");
        assert!(mutex.lock().is_err(), "even if it is free");
        *mutex.try_lock().unwrap() += 1;
        drop(mutex.lock()?);
        Ok(())
    });
    assert!(matches!(outcome, Err(JobError::Cancelled(_))));
    assert_eq!(*mutex.lock().unwrap(), 1);
    end(&runtime);
}

#[test]
fn a_panic_releases_the_lock() {
    let _watch = watch();
    let runtime = runtime(1);
    let mutex = Arc::new(Mutex::new(1));
    let panicking = runtime.spawn({
        let mutex = Arc::clone(&mutex);
        move || {
            let _guard = mutex.lock()?;
            std::panic::resume_unwind(Box::new("on purpose"));
            #[expect(unreachable_code, reason = "says what the body's value is")]
            Ok(())
        }
    });
    assert!(matches!(panicking.join(), Err(JobError::Panicked(_))));
    assert_eq!(*mutex.lock().unwrap(), 1);
    end(&runtime);
}

#[test]
fn never_more_than_there_are_permits() {
    let _watch = watch();
    let runtime = runtime(3);
    let semaphore = Semaphore::new(4);
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    runtime
        .nursery(|n| {
            for job in 0..40 {
                let (semaphore, inside, most) = (&semaphore, &inside, &most);
                n.launch(move || {
                    let count = job % 4 + 1;
                    for _ in 0..rounds(10) {
                        let permit = semaphore.acquire(count)?;
                        assert_eq!(permit.count(), count);
                        let now = inside.fetch_add(count, Ordering::SeqCst) + count;
                        most.fetch_max(now, Ordering::SeqCst);
                        jobtree_pool::yield_now();
                        inside.fetch_sub(count, Ordering::SeqCst);
                    }
                    Ok(())
                });
            }
            Ok(())
        })
        .unwrap();
    assert!(most.load(Ordering::SeqCst) <= 4);
    assert_eq!((semaphore.available(), semaphore.waiting()), (4, 0));
    end(&runtime);
}

#[test]
fn who_wants_many_is_not_passed_by_who_wants_few() {
    let _watch = watch();
    let semaphore = Semaphore::new(2);
    let one = semaphore.try_acquire(1).unwrap();
    let bells: [Arc<Bell>; 2] = Default::default();
    let wakers = bells.each_ref().map(Bell::waker);
    let mut contexts = wakers.each_ref().map(Context::from_waker);
    let mut many = Box::pin(semaphore.acquire_async(2));
    let mut few = pin!(semaphore.acquire_async(1));
    assert!(many.as_mut().poll(&mut contexts[0]).is_pending());
    assert!(few.as_mut().poll(&mut contexts[1]).is_pending());
    let refused = semaphore.try_acquire(1).unwrap_err();
    assert_eq!(refused, TryAcquireError::NoPermits);
    // If the one in front gives up, there is enough for the next.
    drop(many);
    assert_eq!(bells[1].rings(), 1);
    let Poll::Ready(Ok(permit)) = few.as_mut().poll(&mut contexts[1]) else {
        panic!("it has its permit");
    };
    drop((one, permit));
    assert_eq!(semaphore.available(), 2);
}

#[test]
fn permits_can_be_added_and_forgotten() {
    let _watch = watch();
    let semaphore = Semaphore::new(0);
    std::thread::scope(|s| {
        let waiting = s.spawn(|| semaphore.acquire(3).unwrap().forget());
        until(|| semaphore.waiting() == 1);
        semaphore.add_permits(2);
        assert_eq!(semaphore.waiting(), 1);
        semaphore.add_permits(2);
        waiting.join().unwrap();
    });
    assert_eq!(semaphore.available(), 1);
    let too_many = std::panic::catch_unwind(|| semaphore.add_permits(usize::MAX));
    assert!(too_many.is_err());
    assert_eq!(semaphore.available(), 1, "still usable");
}

#[test]
fn close_tells_those_who_wait() {
    let _watch = watch();
    let semaphore = Semaphore::new(1);
    let permit = semaphore.acquire(1).unwrap();
    std::thread::scope(|s| {
        for _ in 0..20 {
            s.spawn(|| assert!(matches!(semaphore.acquire(1), Err(AcquireError::Closed))));
        }
        until(|| semaphore.waiting() == 20);
        assert!(semaphore.close() && !semaphore.close());
    });
    drop(permit);
    let refused = semaphore.try_acquire(1).unwrap_err();
    assert_eq!(refused, TryAcquireError::Closed);
    assert!(semaphore.is_closed());
}

#[test]
fn a_cancelled_job_gets_no_permits_and_ends_as_cancelled() {
    let _watch = watch();
    let runtime = runtime(2);
    let semaphore = Semaphore::new(1);
    let outcome = runtime.nursery(|n| {
        let permit = semaphore.acquire(1)?;
        for _ in 0..500 {
            n.launch(|| {
                drop(semaphore.acquire(1)?);
                Ok(())
            });
        }
        until(|| semaphore.waiting() == 500);
        n.cancel("enough");
        until(|| semaphore.waiting() == 0);
        drop(permit);
        Ok(())
    });
    assert!(outcome.unwrap_err().is_cancelled());
    assert_eq!(semaphore.available(), 1);
    end(&runtime);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_work_on_tokio_beside_jobs() {
    let _watch = watch();
    let runtime = Arc::new(runtime(2));
    let (mutex, semaphore) = (Arc::new(Mutex::new(0)), Arc::new(Semaphore::new(2)));
    let (done, is_done) = unbounded();
    for _ in 0..20 {
        let (mutex, semaphore, done) = (mutex.clone(), semaphore.clone(), done.clone());
        tokio::spawn(async move {
            for _ in 0..20 {
                let _permit = semaphore.acquire_async(1).await.unwrap();
                let mut guard = mutex.lock_async().await.unwrap();
                tokio::task::yield_now().await;
                *guard += 1;
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..20 {
        let (mutex, semaphore, done) = (mutex.clone(), semaphore.clone(), done.clone());
        drop(runtime.spawn(move || {
            for _ in 0..20 {
                let _permit = semaphore.acquire(1)?;
                *mutex.lock()? += 1;
            }
            Ok(done.send(())?)
        }));
    }
    drop(done);
    let mut ended = 0;
    while is_done.recv_async().await.is_ok() {
        ended += 1;
    }
    assert_eq!(ended, 40);
    assert_eq!(*mutex.lock_async().await.unwrap(), 800);
    tokio::task::spawn_blocking(move || end(&runtime))
        .await
        .unwrap();
}

#[test]
fn permits_that_are_out_count_for_the_limit_so_that_they_can_come_back() {
    let semaphore = Semaphore::new(2);
    let held = semaphore.acquire(2).unwrap();
    let add = |count| {
        let add = std::panic::AssertUnwindSafe(|| semaphore.add_permits(count));
        std::panic::catch_unwind(add).is_ok()
    };
    assert!(
        !add(usize::MAX),
        "with those that are held there would be too many"
    );
    assert_eq!(semaphore.available(), 0, "a refusal changes nothing");
    assert!(add(usize::MAX - 2));
    drop(held);
    assert_eq!(semaphore.available(), usize::MAX);
    assert!(!add(1));
    // Those that are forgotten make room for others.
    semaphore.acquire(3).unwrap().forget();
    assert!(add(3) && !add(1));
    assert_eq!(semaphore.available(), usize::MAX);
}

#[test]
fn readers_share_the_lock_and_a_writer_has_it_alone() {
    let _watch = watch();
    let runtime = runtime(3);
    let pair = RwLock::new((0, 0));
    runtime
        .nursery(|n| {
            for job in 0..12 {
                let pair = &pair;
                n.launch(move || {
                    for _ in 0..rounds(20) {
                        if job % 3 == 0 {
                            let mut pair = pair.write()?;
                            pair.0 += 1;
                            jobtree_pool::yield_now();
                            pair.1 += 1;
                        } else {
                            let pair = pair.read()?;
                            let before = pair.0;
                            jobtree_pool::yield_now();
                            assert_eq!((pair.0, pair.1), (before, before));
                        }
                    }
                    Ok(())
                });
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(pair.into_inner(), (4 * rounds(20), 4 * rounds(20)));
    end(&runtime);
}

#[test]
fn readers_that_come_after_a_writer_wait_for_it() {
    let _watch = watch();
    let lock = RwLock::new(0);
    let bells: [Arc<Bell>; 3] = Default::default();
    let wakers = bells.each_ref().map(Bell::waker);
    let mut contexts = wakers.each_ref().map(Context::from_waker);
    let rings = || bells.each_ref().map(|bell| bell.rings());
    let one = lock.try_read().unwrap();
    let other = lock.try_read().expect("readers share it");
    let mut writer = Box::pin(lock.write_async());
    let mut third = pin!(lock.read_async());
    let mut fourth = pin!(lock.read_async());
    assert!(writer.as_mut().poll(&mut contexts[0]).is_pending());
    assert!(third.as_mut().poll(&mut contexts[1]).is_pending());
    assert!(fourth.as_mut().poll(&mut contexts[2]).is_pending());
    assert!(lock.try_read().is_none(), "a writer waits");
    drop(one);
    assert_eq!(rings(), [0, 0, 0]);
    drop(other);
    assert_eq!(rings(), [1, 0, 0]);
    // The writer was handed the lock and gives up: both readers have it.
    drop(writer);
    assert_eq!(rings(), [1, 1, 1]);
    let Poll::Ready(Ok(third)) = third.as_mut().poll(&mut contexts[1]) else {
        panic!("it reads");
    };
    assert!(fourth.as_mut().poll(&mut contexts[2]).is_ready());
    assert!(lock.try_write().is_none());
    drop(third);
    *lock.try_write().unwrap() += 1;
    assert_eq!(*lock.try_read().unwrap(), 1);
}

#[test]
fn a_cancelled_job_neither_reads_nor_writes() {
    let _watch = watch();
    let runtime = runtime(1);
    let lock = Arc::new(RwLock::new(0));
    let held = lock.try_write().unwrap();
    let reader = runtime.spawn({
        let lock = Arc::clone(&lock);
        move || Ok(*lock.read()?)
    });
    let writer = runtime.spawn({
        let lock = Arc::clone(&lock);
        move || {
            *lock.write()? += 1;
            Ok(0)
        }
    });
    for job in [reader, writer] {
        until_it_waits(job.job());
        assert_eq!(job.job().waiting_for(), Some(WaitingFor::Lock));
        job.cancel("enough");
        assert!(job.join().unwrap_err().is_cancelled());
    }
    drop(held);
    assert_eq!(*lock.try_write().unwrap(), 0);
    end(&runtime);
}

#[test]
fn owned_permits_and_guards_keep_what_they_belong_to() {
    let semaphore = Arc::new(Semaphore::new(2));
    let permit = semaphore.acquire_owned(2).unwrap();
    assert_eq!((permit.count(), semaphore.available()), (2, 0));
    assert!(semaphore.try_acquire_owned(1).is_err());
    let weak = Arc::downgrade(&semaphore);
    drop(semaphore);
    assert_eq!(weak.upgrade().unwrap().available(), 0);
    drop(permit);
    assert!(weak.upgrade().is_none());

    let mutex = Arc::new(Mutex::new(1));
    let mut guard = mutex.lock_owned().unwrap();
    assert!(mutex.try_lock_owned().is_none());
    *guard += 1;
    let guard = std::thread::spawn(move || guard).join().unwrap();
    drop(guard);
    assert_eq!(*mutex.try_lock_owned().unwrap(), 2);

    let lock = Arc::new(RwLock::new(1));
    let readers = [lock.read_owned().unwrap(), lock.read_owned().unwrap()];
    assert!(lock.try_write().is_none());
    assert_eq!(*readers[0] + *readers[1], 2);
    drop(readers);
    *lock.write_owned().unwrap() += 1;
    assert_eq!(*lock.try_read().unwrap(), 2);
}

#[test]
fn owned_permits_and_guards_are_awaited_and_gone_permits_stay_gone() {
    let semaphore = Arc::new(Semaphore::new(1));
    let (mutex, lock) = (Arc::new(Mutex::new(1)), Arc::new(RwLock::new(1)));
    jobtree_runtime::block_on(async {
        semaphore
            .clone()
            .acquire_owned_async(1)
            .await
            .unwrap()
            .forget();
        *mutex.clone().lock_owned_async().await.unwrap() += 1;
        *lock.clone().write_owned_async().await.unwrap() += 1;
        assert_eq!(*lock.clone().read_owned_async().await.unwrap(), 2);
    })
    .unwrap();
    assert_eq!(semaphore.available(), 0);
    assert_eq!(*mutex.lock().unwrap(), 2);
}
