//! Building, naming, counting, ending.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_pool::{
    BuildError, CountLatch, OnceLatch, Pool, broadcast, current_worker_index, join, scope, spawn,
    spawn_fifo,
};

const LONG: Duration = Duration::from_secs(120);

#[test]
fn absurd_descriptions_are_refused_with_advice() {
    let refused = |builder: jobtree_pool::Builder| builder.build().unwrap_err().to_string();
    assert!(refused(Pool::builder().workers(0)).contains("at least one worker"));
    assert!(refused(Pool::builder().workers(usize::MAX)).contains("at most 4096"));
    for size in [0, 1, 4095, usize::MAX, usize::MAX / 2] {
        let error = Pool::builder().workers(1).stack_size(size).build();
        assert!(matches!(error, Err(BuildError::Stack(_))), "{size}");
    }
}

#[test]
fn workers_are_named_and_handlers_are_called_on_each() {
    let (started, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (on_start, on_exit) = (started.clone(), ended.clone());
    let pool = Pool::builder()
        .workers(3)
        .worker_name(|index| format!("named-{index}"))
        .on_start(move |index| {
            assert_eq!(current_worker_index(), Some(index));
            on_start.fetch_add(1 << (8 * index), Ordering::SeqCst);
        })
        .on_exit(move |index| {
            on_exit.fetch_add(1 << (8 * index), Ordering::SeqCst);
        })
        .build()
        .unwrap();
    let names = pool.broadcast(|_| std::thread::current().name().map(str::to_owned));
    let expected = ["named-0", "named-1", "named-2"].map(|name| Some(name.to_owned()));
    assert_eq!(names, expected);
    pool.shutdown(LONG).unwrap();
    assert_eq!(started.load(Ordering::SeqCst), 0x01_01_01);
    assert_eq!(ended.load(Ordering::SeqCst), 0x01_01_01);
}

#[test]
fn a_panic_that_nobody_waits_for_goes_to_the_handler() {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let pool = Pool::builder()
        .workers(2)
        .on_panic(move |payload| {
            let text = payload.downcast::<&str>().unwrap();
            sender.lock().unwrap().send(*text).unwrap();
        })
        .build()
        .unwrap();
    pool.spawn(|| std::panic::resume_unwind(Box::new("spawned")));
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), "spawned");
    pool.spawn_broadcast(|_| std::panic::resume_unwind(Box::new("broadcast")));
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), "broadcast");
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), "broadcast");
    pool.spawn_fifo(|| std::panic::resume_unwind(Box::new("fifo")));
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), "fifo");
}

#[test]
fn a_dropped_pool_finishes_what_was_spawned() {
    for workers in [1, 4] {
        let done = Arc::new(CountLatch::new(if cfg!(miri) { 30 } else { 1000 }));
        let pool = Pool::builder().workers(workers).build().unwrap();
        for _ in 0..if cfg!(miri) { 3 } else { 100 } {
            let done = done.clone();
            pool.spawn(move || {
                for _ in 0..9 {
                    let done = done.clone();
                    spawn(move || done.count_down());
                }
                done.count_down();
            });
        }
        drop(pool);
        done.wait();
    }
}

#[test]
fn shutdown_waits_for_the_end_and_says_what_is_left() {
    let pool = Pool::builder().workers(2).build().unwrap();
    let release = Arc::new(OnceLatch::new());
    let (waits, sets) = (release.clone(), release);
    pool.spawn(move || waits.wait());
    let error = pool.shutdown(Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.unfinished_tasks, 1);
    sets.set();
}

#[test]
fn shutdown_from_inside_does_not_wait_for_itself() {
    let pool = Arc::new(Mutex::new(None));
    let (sender, receiver) = channel();
    *pool.lock().unwrap() = Some(Pool::builder().workers(2).build().unwrap());
    let inside = pool.clone();
    let task = move || {
        let own = inside.lock().unwrap().take().unwrap();
        sender.send(own.shutdown(LONG)).unwrap();
    };
    pool.lock().unwrap().as_ref().unwrap().spawn(task);
    // The task that calls has not ended.
    let error = receiver.recv_timeout(LONG).unwrap().unwrap_err();
    assert!(error.to_string().contains('1'), "{error}");
}

#[test]
#[cfg_attr(miri, ignore = "300 threads are too slow there")]
fn two_hundred_and_fifty_six_workers_and_more() {
    let pool = Pool::builder()
        .workers(300)
        .stack_size(64 << 10)
        .build()
        .unwrap();
    let mut indices = pool.broadcast(|context| context.index());
    indices.sort_unstable();
    assert!(indices.into_iter().eq(0..300));
    fn sum(from: u64, to: u64) -> u64 {
        if to - from <= 4 {
            return (from..to).sum();
        }
        let middle = from + (to - from) / 2;
        let (a, b) = join(|| sum(from, middle), || sum(middle, to));
        a + b
    }
    assert_eq!(pool.install(|| sum(0, 100_000)), 4_999_950_000);
    pool.shutdown(LONG).unwrap();
}

#[test]
fn the_building_thread_can_be_worker_zero() {
    let thread = std::thread::spawn(|| {
        let pool = Pool::builder()
            .workers(2)
            .use_current_thread()
            .build()
            .unwrap();
        assert_eq!(pool.current_worker_index(), Some(0));
        assert!(matches!(
            Pool::builder().workers(1).use_current_thread().build(),
            Err(BuildError::CurrentThreadIsWorker)
        ));
        let (a, b) = join(|| 1, || 2);
        assert_eq!(a + b, 3);
        let mut hits = 0;
        scope(|s| s.spawn(|_| hits += 1));
        assert_eq!(hits, 1);
        let indices = broadcast(|context| context.index());
        assert_eq!(indices, [0, 1]);
        drop(pool);
        assert_eq!(current_worker_index(), None);
    });
    thread.join().unwrap();
}

#[test]
fn threads_can_be_started_in_the_users_own_way() {
    let started = Arc::new(AtomicUsize::new(0));
    let counted = started.clone();
    let pool = Pool::builder()
        .workers(2)
        .spawn_with(move |start| {
            counted.fetch_add(1, Ordering::SeqCst);
            assert!(start.name().starts_with("jobtree-"));
            assert!(start.stack_size() >= 64 << 10);
            std::thread::Builder::new().spawn(|| start.run()).map(drop)
        })
        .build()
        .unwrap();
    assert_eq!(pool.broadcast(|_| ()).len(), 2);
    assert_eq!(started.load(Ordering::SeqCst), 2);
}

#[test]
fn a_thread_that_cannot_be_started_ends_the_others() {
    let gone = Arc::new(CountLatch::new(1));
    let counted = gone.clone();
    let error = Pool::builder()
        .workers(2)
        .on_exit(move |_| counted.count_down())
        .spawn_with(|start| match start.index() {
            0 => std::thread::Builder::new().spawn(|| start.run()).map(drop),
            _ => Err(std::io::Error::other("no more threads")),
        })
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("no more threads"), "{error}");
    gone.wait();
}

#[test]
fn a_name_with_a_nul_is_an_error() {
    let builder = Pool::builder().workers(2);
    let built = builder
        .worker_name(|index| format!("worker\0{index}"))
        .build();
    let error = built.unwrap_err();
    assert!(
        matches!(error, BuildError::Name { worker: 0, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains(r#""worker\00""#), "{error}");
}

#[test]
fn a_worker_whose_start_is_dropped_is_an_error() {
    for dropped in [0, 1] {
        let error = Pool::builder()
            .workers(2)
            .spawn_with(move |start| match start.index() {
                index if index == dropped => Ok(()),
                _ => std::thread::Builder::new().spawn(|| start.run()).map(drop),
            })
            .build()
            .unwrap_err();
        assert!(
            matches!(error, BuildError::StartDropped { worker } if worker == dropped),
            "{error:?}"
        );
    }
}

/// Before anything waits: what waits already cannot be told.
#[test]
fn a_pool_that_has_lost_all_its_workers_refuses_what_would_wait_for_them() {
    let (keep, kept) = channel();
    let pool = Pool::builder()
        .workers(2)
        .spawn_with(move |start| keep.send(start).map_err(std::io::Error::other))
        .build()
        .unwrap();
    kept.iter().take(2).for_each(drop);
    let other = Pool::builder().workers(1).build().unwrap();
    let message_of = |code: &(dyn Fn() + Sync)| {
        let payload = catch_unwind(AssertUnwindSafe(code)).unwrap_err();
        *payload.downcast::<&str>().unwrap()
    };
    let uses: [&(dyn Fn() + Sync); 3] = [
        &|| pool.install(|| ()),
        &|| pool.in_place_scope(|s| s.spawn(|_| ())),
        &|| other.install(|| pool.install(|| ())),
    ];
    for each in uses {
        let message = message_of(each);
        assert!(message.contains("this pool has no worker"), "{message}");
    }
}

#[test]
fn fifo_spawns_of_one_worker_start_in_order() {
    let pool = Pool::builder().workers(1).build().unwrap();
    let (sender, receiver) = channel();
    pool.install(|| {
        for n in 0..100 {
            let sender = sender.clone();
            spawn_fifo(move || sender.send(n).unwrap());
        }
    });
    drop(sender);
    assert!(receiver.iter().eq(0..100));
}

#[test]
fn statistics_count_what_happened() {
    let pool = Pool::builder().workers(2).build().unwrap();
    pool.install(|| {
        scope(|s| {
            for _ in 0..50 {
                s.spawn(|_| ());
            }
        });
    });
    let stats = pool.stats();
    assert_eq!(stats.workers.len(), 2);
    assert_eq!(stats.total().executed, 51, "50 tasks and the installed one");
    assert_eq!(stats.total().injected, 1);
}

#[test]
fn panics_in_scopes_come_out_after_all_tasks_have_ended() {
    let pool = Pool::builder().workers(3).build().unwrap();
    for panicking in 0..4 {
        let ended = AtomicUsize::new(0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.scope(|s| {
                for index in 0..3 {
                    let ended = &ended;
                    s.spawn(move |_| {
                        ended.fetch_add(1, Ordering::SeqCst);
                        if index == panicking {
                            std::panic::resume_unwind(Box::new(index));
                        }
                    });
                }
                if panicking == 3 {
                    std::panic::resume_unwind(Box::new(3));
                }
            });
        }));
        assert_eq!(*result.unwrap_err().downcast::<i32>().unwrap(), panicking);
        assert_eq!(ended.load(Ordering::SeqCst), 3);
    }
}
