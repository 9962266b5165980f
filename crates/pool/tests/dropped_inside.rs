//! The last handle of a pool goes while the pool's own workers run what has it.
#![cfg(not(miri))]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jobtree_pool::{
    CountLatch, OnceLatch, Pool, broadcast, current_worker_index, isolate, join, scope, spawn,
    yield_now,
};

use support::ends_well;

fn on_this_thread(workers: usize) -> Pool {
    let builder = Pool::builder().workers(workers).use_current_thread();
    builder.build().unwrap()
}

#[test]
fn a_pool_of_this_thread_in_its_own_join() {
    ends_well("a_pool_of_this_thread_in_its_own_join", || {
        for workers in [1, 2, 3] {
            for _ in 0..200 {
                let pool = on_this_thread(workers);
                join(move || drop(pool), || ());
                assert_eq!(current_worker_index(), None, "it ended with the call");
                let pool = on_this_thread(workers);
                join(|| (), move || drop(pool));
                assert_eq!(current_worker_index(), None);
            }
        }
    });
}

#[test]
fn a_pool_of_this_thread_in_the_middle_of_everything() {
    ends_well("a_pool_of_this_thread_in_the_middle_of_everything", || {
        for workers in [1, 3] {
            let work_goes_on = move || {
                assert_eq!(join(|| 1, || 2), (1, 2));
                let ran = AtomicUsize::new(0);
                scope(|s| {
                    for _ in 0..10 {
                        s.spawn(|_| {
                            ran.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
                assert_eq!(ran.into_inner(), 10);
                assert_eq!(broadcast(|c| c.index()).len(), workers);
                assert!(current_worker_index().is_some());
            };
            let pool = on_this_thread(workers);
            scope(move |s| {
                s.spawn(move |_| {
                    drop(pool);
                    work_goes_on();
                });
            });
            let pool = on_this_thread(workers);
            scope(move |_| {
                drop(pool);
                work_goes_on();
            });
            let pool = on_this_thread(workers);
            isolate(move || {
                drop(pool);
                work_goes_on();
            });
            let pool = Arc::new(on_this_thread(workers));
            let inside = pool.clone();
            pool.install(move || {
                drop(inside);
                work_goes_on();
            });
            drop(pool);
            let (pool, done) = (on_this_thread(workers), Arc::new(OnceLatch::new()));
            let set = done.clone();
            spawn(move || {
                drop(pool);
                work_goes_on();
                set.set();
            });
            while !done.is_set() {
                yield_now();
                std::thread::yield_now();
            }
            assert_eq!(current_worker_index(), None);
        }
    });
}

#[test]
fn a_pool_of_this_thread_on_another_thread() {
    ends_well("a_pool_of_this_thread_on_another_thread", || {
        for workers in [1, 2] {
            let pool = on_this_thread(workers);
            std::thread::spawn(move || drop(pool)).join().unwrap();
            assert_eq!(join(|| 1, || 2), (1, 2));
            assert_eq!(current_worker_index(), None, "it left with the last call");
            // The thread ends without another call, and runs what is left.
            let ran = Arc::new(AtomicUsize::new(0));
            let (counted, (given, taken)) = (ran.clone(), channel::<Pool>());
            let thread = std::thread::spawn(move || {
                let pool = on_this_thread(workers);
                spawn(move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                });
                given.send(pool).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            });
            drop(taken.recv().unwrap());
            thread.join().unwrap();
            while ran.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            // The other way round: the thread goes first.
            let pool = std::thread::spawn(move || on_this_thread(workers)).join();
            let pool = pool.unwrap();
            if workers == 2 {
                assert_eq!(pool.install(|| broadcast(|c| c.index())), [1, 1]);
            }
            pool.shutdown(Duration::from_secs(20)).unwrap();
        }
    });
}

#[test]
fn a_pool_in_its_own_tasks_and_handlers() {
    ends_well("a_pool_in_its_own_tasks_and_handlers", || {
        // In a task.
        let pool = Pool::builder().workers(2).build().unwrap();
        let (sender, receiver) = channel();
        let inside = OnceLock::new();
        let inside = Arc::new(inside);
        let given = inside.clone();
        pool.spawn(move || {
            let pool: Pool = loop {
                match Arc::clone(&given).get() {
                    Some(()) => break receive_pool(),
                    None => std::thread::yield_now(),
                }
            };
            drop(pool);
            assert_eq!(join(|| 1, || 2), (1, 2));
            assert_eq!(broadcast(|c| c.index()), [0, 1]);
            sender.send(()).unwrap();
        });
        give_pool(pool);
        inside.set(()).unwrap();
        receiver.recv().unwrap();
        // In the handlers, of which `on_exit` runs because of the drop.
        let handles = Arc::new(std::sync::Mutex::new(None::<Pool>));
        let (exited, in_start, in_exit, in_panic) = (
            Arc::new(CountLatch::new(2)),
            handles.clone(),
            handles.clone(),
            handles.clone(),
        );
        let count = exited.clone();
        let take = |place: &std::sync::Mutex<Option<Pool>>| drop(place.lock().unwrap().take());
        let pool = Pool::builder()
            .workers(2)
            .on_start(move |_| take(&in_start))
            .on_exit(move |_| {
                take(&in_exit);
                count.count_down();
            })
            .on_panic(move |_| take(&in_panic))
            .build()
            .unwrap();
        // Whichever handler comes first waits for the lock, and finds the pool.
        let mut place = handles.lock().unwrap();
        pool.spawn(|| panic!("so that the handler drops the pool"));
        *place = Some(pool);
        drop(place);
        exited.wait();
    });
}

static GIVEN: std::sync::Mutex<Option<Pool>> = std::sync::Mutex::new(None);

fn give_pool(pool: Pool) {
    *GIVEN.lock().unwrap() = Some(pool);
}

fn receive_pool() -> Pool {
    GIVEN.lock().unwrap().take().expect("it was given")
}
