//! Waiting parks stacks, not threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jobtree_pool::{CountLatch, OnceLatch, Pool, Yield, join, scope, spawn, yield_now};

/// Under AddressSanitizer each parked stack takes an eighth of its size for the sanitizer's own notes.
const LINKS: usize = if cfg!(feature = "sanitizer") {
    2_000
} else {
    100_000
};

/// Tasks that each wait for the next one's latch, started so that each has to wait.
fn chain(workers: usize, links: usize) {
    let pool = Pool::builder().workers(workers).build().unwrap();
    let latches: Arc<Vec<OnceLatch>> = Arc::new((0..=links).map(|_| OnceLatch::new()).collect());
    let ended = Arc::new(CountLatch::new(links));
    for index in 0..links {
        let (latches, ended) = (latches.clone(), ended.clone());
        pool.spawn(move || {
            latches[index + 1].wait();
            latches[index].set();
            ended.count_down();
        });
    }
    latches[links].set();
    ended.wait();
    assert!(latches[0].is_set());
}

#[test]
#[cfg_attr(
    not(jobtree_stacks),
    ignore = "no stacks to park here: helping in place would need a deep one"
)]
fn a_hundred_thousand_tasks_wait_for_one_another_on_one_worker() {
    chain(1, LINKS);
}

#[test]
#[cfg_attr(
    not(jobtree_stacks),
    ignore = "no stacks to park here: helping in place would need a deep one"
)]
fn a_hundred_thousand_tasks_wait_for_one_another_on_three_workers() {
    chain(3, LINKS);
}

#[test]
fn a_task_that_waits_lets_the_task_it_waits_for_run_on_the_only_worker() {
    let pool = Pool::builder().workers(1).build().unwrap();
    let order = pool.install(|| {
        let order = std::sync::Mutex::new(Vec::new());
        let latch = OnceLatch::new();
        scope(|s| {
            s.spawn(|_| {
                order.lock().unwrap().push("sets");
                latch.set();
            });
            s.spawn(|_| {
                order.lock().unwrap().push("waits");
                latch.wait();
                order.lock().unwrap().push("goes on");
            });
        });
        order.into_inner().unwrap()
    });
    assert_eq!(order, ["waits", "sets", "goes on"]);
    assert_eq!(
        pool.stats().total().parks >= 1,
        cfg!(jobtree_stacks),
        "{:?}",
        pool.stats()
    );
}

#[test]
fn a_stack_that_parks_in_the_middle_of_joins_leaves_its_forks_to_others() {
    // The first closure waits for a latch that the second one sets. The second one was forked before,
    // so as long as it got a record of its own, parking must make it available.
    let pool = Pool::builder().workers(2).build().unwrap();
    for _ in 0..if cfg!(miri) { 3 } else { 500 } {
        let latch = OnceLatch::new();
        pool.install(|| join(|| latch.wait(), || latch.set()));
    }
}

#[test]
fn deeply_nested_scopes_do_not_need_deep_stacks() {
    fn nest(depth: usize) -> usize {
        if depth == 0 {
            return 0;
        }
        let mut below = 0;
        scope(|s| s.spawn(|_| below = nest(depth - 1)));
        below + 1
    }
    let pool = Pool::builder().workers(2).build().unwrap();
    let depth = match () {
        () if cfg!(miri) => 20,
        // Frames with red zones around each local are many times as large.
        () if cfg!(feature = "sanitizer") => 100,
        () => 500,
    };
    assert_eq!(pool.install(|| nest(depth)), depth);
}

#[test]
fn yielding_lets_other_tasks_run_and_comes_back() {
    let pool = Pool::builder().workers(1).build().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let outcome = pool.install(|| {
        for _ in 0..10 {
            let count = count.clone();
            spawn(move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        let mut yields = Vec::new();
        while count.load(Ordering::Relaxed) < 10 {
            yields.push(yield_now().unwrap());
        }
        (yields, yield_now().unwrap())
    });
    assert!(outcome.0.iter().all(|y| *y == Yield::Executed));
    assert_eq!(outcome.1, Yield::Idle);
}

#[test]
fn two_tasks_that_yield_to_each_other_both_make_progress_with_tasks_between_them() {
    let pool = Pool::builder().workers(1).build().unwrap();
    let third_ran = Arc::new(OnceLatch::new());
    let ended = Arc::new(CountLatch::new(2));
    for _ in 0..2 {
        let (third_ran, ended) = (third_ran.clone(), ended.clone());
        pool.spawn(move || {
            while !third_ran.is_set() {
                yield_now();
            }
            ended.count_down();
        });
    }
    let third = third_ran.clone();
    pool.spawn(move || third.set());
    ended.wait();
}

#[test]
fn latches_are_waited_for_by_many_threads_and_tasks_at_once() {
    let pool = Pool::builder().workers(3).build().unwrap();
    for _ in 0..if cfg!(miri) { 2 } else { 50 } {
        let latch = Arc::new(OnceLatch::new());
        let ended = Arc::new(CountLatch::new(20));
        for _ in 0..20 {
            let (latch, ended) = (latch.clone(), ended.clone());
            pool.spawn(move || {
                latch.wait();
                ended.count_down();
            });
        }
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| latch.wait());
            }
            latch.set();
        });
        ended.wait();
    }
}

#[test]
fn installing_across_pools_parks_the_caller_and_leaves_it_free_for_other_work() {
    let outer = Pool::builder().workers(1).build().unwrap();
    let inner = Pool::builder().workers(1).build().unwrap();
    let result = outer.install(|| {
        let other_ran = OnceLatch::new();
        let mut result = 0;
        scope(|s| {
            s.spawn(|_| other_ran.set());
            s.spawn(|_| {
                // `inner` waits for a task of `outer`, whose only worker waits for `inner`.
                result = inner.install(|| {
                    other_ran.wait();
                    42
                });
            });
        });
        result
    });
    assert_eq!(result, 42);
}

#[test]
fn pools_that_install_into_each_other_come_back() {
    let (a, b) = (
        Pool::builder().workers(1).build().unwrap(),
        Pool::builder().workers(1).build().unwrap(),
    );
    fn bounce(here: &Pool, there: &Pool, depth: usize) -> usize {
        if depth == 0 {
            0
        } else {
            1 + there.install(|| bounce(there, here, depth - 1))
        }
    }
    let depth = if cfg!(miri) { 8 } else { 100 };
    assert_eq!(a.install(|| bounce(&a, &b, depth)), depth);
}

#[test]
fn a_count_latch_that_cannot_count_further_refuses_and_stays_as_it_was() {
    let latch = CountLatch::new(usize::MAX - 1);
    latch.increment();
    for _ in 0..2 {
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| latch.increment()));
        assert!(refused.is_err());
        assert!(!latch.is_set(), "nothing was counted down");
    }
    latch.count_down();
    latch.increment();
    assert!(!latch.is_set());
}

/// Far more than anything here takes: what should have happened by then never will.
const FAR: Duration = Duration::from_secs(20);

/// Returns `true` when `is_over` says so, and `false` if that never happens.
fn soon(is_over: impl Fn() -> bool, mut meanwhile: impl FnMut()) -> bool {
    let began = Instant::now();
    while !is_over() {
        if began.elapsed() > FAR {
            return false;
        }
        meanwhile();
    }
    true
}

#[test]
#[cfg_attr(
    not(jobtree_stacks),
    ignore = "a wait on top of a frame has to end first"
)]
fn a_computation_gives_way_to_a_stack_that_is_woken_meanwhile() {
    fn forks(depth: usize) {
        if depth > 0 {
            join(|| forks(depth - 1), || forks(depth - 1));
        }
    }
    for woken_by_the_worker_itself in [false, true] {
        let pool = Pool::builder().workers(1).build().unwrap();
        let (gate, computes, went_on) =
            (OnceLatch::new(), OnceLatch::new(), AtomicBool::new(false));
        let in_time = AtomicBool::new(false);
        pool.in_place_scope(|s| {
            s.spawn(|_| {
                gate.wait();
                went_on.store(true, Ordering::Release);
            });
            s.spawn(|_| {
                // Not before the other one waits: they take turns on one worker.
                while yield_now() == Some(Yield::Executed) {}
                computes.set();
                if woken_by_the_worker_itself {
                    gate.set();
                }
                let is_over = || went_on.load(Ordering::Acquire);
                in_time.store(soon(is_over, || forks(10)), Ordering::Release);
            });
            computes.wait();
            if !woken_by_the_worker_itself {
                gate.set();
            }
        });
        assert!(
            in_time.into_inner(),
            "woken by the worker itself: {woken_by_the_worker_itself}"
        );
        assert!(pool.stats().total().gave_way > 0, "{:?}", pool.stats());
    }
}

#[test]
#[cfg_attr(not(jobtree_stacks), ignore = "nothing is ever parked")]
fn nothing_gives_way_inside_isolate_and_all_does_after_it() {
    let pool = Pool::builder().workers(1).build().unwrap();
    let (gate, went_on) = (OnceLatch::new(), AtomicBool::new(false));
    let seen = pool.install(|| {
        let mut seen = [true, false];
        scope(|s| {
            s.spawn(|_| {
                gate.wait();
                went_on.store(true, Ordering::Release);
            });
            s.spawn(|_| {
                while yield_now() == Some(Yield::Executed) {}
                let is_over = || went_on.load(Ordering::Acquire);
                jobtree_pool::isolate(|| {
                    gate.set();
                    for _ in 0..100 {
                        join(|| (), || ());
                    }
                    seen[0] = is_over();
                });
                seen[1] = soon(is_over, || {
                    join(|| (), || ());
                });
            });
        });
        seen
    });
    assert_eq!(seen, [false, true]);
}

#[test]
#[cfg_attr(not(jobtree_stacks), ignore = "nothing is ever parked")]
fn a_task_goes_to_the_idle_worker_on_which_no_stack_is_parked() {
    const FREE: usize = 3;
    let pool = Pool::builder().workers(FREE + 1).build().unwrap();
    let all_have_slept = |before: &[u64]| {
        let workers = pool.stats().workers;
        let slept = |(worker, before): (&jobtree_pool::WorkerStats, &u64)| worker.sleeps > *before;
        workers.iter().zip(before).all(slept)
    };
    let sleeps = || Vec::from_iter(pool.stats().workers.iter().map(|worker| worker.sleeps));
    for _ in 0..if cfg!(miri) { 2 } else { 20 } {
        let (gate, went_on) = (Arc::new(OnceLatch::new()), Arc::new(CountLatch::new(FREE)));
        let before = sleeps();
        let waiting = (gate.clone(), went_on.clone());
        pool.spawn_broadcast(move |context| {
            if context.index() != FREE {
                waiting.0.wait();
                waiting.1.count_down();
            }
        });
        assert!(soon(|| all_have_slept(&before), std::thread::yield_now));
        // It ends when all stacks that waited have gone on: never, if it runs on the worker of one of them.
        let (ran_on, in_time) = pool.install(|| {
            gate.set();
            let in_time = soon(|| went_on.is_set(), std::thread::yield_now);
            (jobtree_pool::current_worker_index(), in_time)
        });
        assert!(in_time, "it ran on worker {ran_on:?}: {:?}", pool.stats());
        assert_eq!(ran_on, Some(FREE));
    }
    let stats = pool.stats();
    assert!(stats.total().passed_on > 0, "{stats:?}");
    assert_eq!(stats.workers[FREE].passed_on, 0, "{stats:?}");
}

#[test]
fn each_task_of_a_stolen_batch_counts() {
    const TASKS: usize = 100;
    let pool = Pool::builder().workers(2).build().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let all_ran = pool.install(|| {
        for _ in 0..TASKS {
            let ran = ran.clone();
            spawn(move || {
                ran.fetch_add(1, Ordering::AcqRel);
            });
        }
        // This worker runs none of them, so the other one takes them all.
        let is_over = || ran.load(Ordering::Acquire) == TASKS;
        soon(is_over, std::thread::yield_now)
    });
    assert!(all_ran);
    assert_eq!(pool.stats().total().stolen, TASKS as u64);
}
