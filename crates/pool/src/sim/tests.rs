//! A simulated pool without the job tree: forks, scopes, tasks and latches, each over many seeds.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::simulated::NoTime;
use super::*;
use crate::raw::PoolRef;
use crate::{CountLatch, OnceLatch, join, scope, spawn, yield_now};

const SEEDS: u64 = 100;

/// A world in which no time passes, until `done`.
struct Still<'a> {
    done: &'a AtomicBool,
}

impl World for Still<'_> {
    fn is_over(&mut self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    fn is_due(&mut self, _: u64) -> bool {
        false
    }

    fn happen(&mut self) {}

    fn advance(&mut self) -> bool {
        false
    }
}

/// Ends a pool whose tasks end by themselves.
#[track_caller]
fn end(pool: SimulatedPool) {
    assert_eq!(pool.end(&mut NoTime, 100_000), Ending::Complete);
}

/// Runs `body` as a task of a simulated pool of three.
fn simulate(seed: u64, body: impl FnOnce() + Send + 'static) -> (Pause, u64, String) {
    let mut options = SimulationOptions::new(seed);
    options.workers = 3;
    options.keeps_trace = true;
    let mut pool = SimulatedPool::new(options).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let set_done = done.clone();
    spawn_on(&pool.pool_ref(), move || {
        body();
        set_done.store(true, Ordering::Relaxed);
    });
    let pause = pool.run(&mut Still { done: &done }, 1_000_000);
    let result = (pause, pool.hash(), pool.take_trace().unwrap());
    let ending = pool.end(&mut NoTime, 100_000);
    let by_itself = ending == Ending::Complete;
    assert_eq!(
        by_itself,
        pause == Pause::Over,
        "{ending:?} after {pause:?}"
    );
    result
}

fn spawn_on(pool: &PoolRef, body: impl FnOnce() + Send + 'static) {
    crate::spawn::spawn_on(pool.shared_for_tests(), body);
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[test]
fn a_seed_gives_one_trace_and_seeds_give_many() {
    let mut hashes = std::collections::HashSet::new();
    for seed in 0..SEEDS {
        let run = || simulate(seed, || assert_eq!(fib(8), 21));
        let (first, second) = (run(), run());
        assert_eq!(first.0, Pause::Over);
        assert_eq!(first, second, "seed {seed}");
        hashes.insert(first.1);
    }
    assert!(hashes.len() > 90, "{} different runs", hashes.len());
}

#[test]
fn forks_scopes_and_latches_come_to_their_ends_under_every_seed() {
    for seed in 0..SEEDS {
        let (pause, _, trace) = simulate(seed, || {
            let latch = Arc::new(OnceLatch::new());
            let count = AtomicUsize::new(0);
            scope(|s| {
                let set = latch.clone();
                s.spawn(|_| {
                    latch.wait();
                    count.fetch_add(fib(4) as usize, Ordering::Relaxed);
                });
                for _ in 0..3 {
                    s.spawn(|_| {
                        yield_now();
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                }
                s.spawn(move |_| set.set());
            });
            assert_eq!(count.into_inner(), 6);
        });
        assert_eq!(pause, Pause::Over, "seed {seed}:\n{trace}");
    }
}

#[test]
fn waits_inside_isolate_and_broadcasts_end_under_every_seed() {
    for seed in 0..SEEDS {
        let (pause, _, trace) = simulate(seed, || {
            scope(|s| {
                for _ in 0..4 {
                    s.spawn(|_| assert_eq!(crate::isolate(|| fib(5)), 5));
                }
                s.spawn(|_| {
                    let indices = crate::broadcast(|context| context.index());
                    assert_eq!(indices, [0, 1, 2]);
                });
            });
        });
        assert_eq!(pause, Pause::Over, "seed {seed}:\n{trace}");
    }
}

#[test]
fn who_waits_for_another_thread_is_told_of_it_when_that_comes_in_time() {
    let mut pool = SimulatedPool::new(SimulationOptions::new(5)).unwrap();
    let pool_ref = pool.pool_ref();
    // As if it had been posted by another thread while all workers were idle.
    let never = AtomicBool::new(false);
    assert_eq!(pool.run(&mut Still { done: &never }, 1000), Pause::Stuck);
    let ran = Arc::new(AtomicBool::new(false));
    let set = ran.clone();
    std::thread::spawn(move || spawn_on(&pool_ref, move || set.store(true, Ordering::Relaxed)))
        .join()
        .unwrap();
    assert_eq!(pool.run(&mut Still { done: &ran }, 1000), Pause::Over);
    end(pool);
}

#[test]
fn forks_move_between_workers_under_some_seeds_and_stay_under_others() {
    let moved = Arc::new(AtomicUsize::new(0));
    for seed in 0..SEEDS {
        let moved = moved.clone();
        simulate(seed, move || {
            crate::with_worker(|worker| {
                let (_, other) = worker.join_context(|_, _| (), |_, moved| moved);
                moved.fetch_add(usize::from(other), Ordering::Relaxed);
            });
        });
    }
    let moved = moved.load(Ordering::Relaxed);
    assert!((10..90).contains(&moved), "{moved} of {SEEDS} forks moved");
}

#[test]
fn loops_are_asked_for_work_now_and_then() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    simulate(1, move || {
        crate::with_worker(|worker| {
            for _ in 0..1000 {
                count.fetch_add(usize::from(worker.wants_work()), Ordering::Relaxed);
            }
        });
    });
    let asked = asked.load(Ordering::Relaxed);
    assert!((100..500).contains(&asked), "asked {asked} times of 1000");
}

#[test]
fn a_latch_that_nobody_sets_is_seen_as_stuck() {
    let (pause, ..) = simulate(3, || OnceLatch::new().wait());
    assert_eq!(pause, Pause::Stuck);
    // It is unwound, and another simulation is not disturbed.
    assert_eq!(simulate(3, || ()).0, Pause::Over);
}

#[test]
fn a_loop_that_only_yields_reaches_the_limit() {
    let mut pool = SimulatedPool::new(SimulationOptions::new(5)).unwrap();
    spawn_on(&pool.pool_ref(), || {
        loop {
            yield_now();
        }
    });
    let never = AtomicBool::new(false);
    let pause = pool.run(&mut Still { done: &never }, 10_000);
    assert_eq!(pause, Pause::Limit);
    assert!((10_000..10_010).contains(&pool.steps()), "{}", pool.steps());
    assert_eq!(pool.end(&mut NoTime, 1000), Ending::Unwound { tasks: 1 });
}

/// Counts how often it is dropped.
struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn whatever_waits_for_latches_is_unwound_under_every_seed() {
    for seed in 0..SEEDS {
        let dropped = Arc::new(AtomicUsize::new(0));
        let counts = || Counts(dropped.clone());
        let (first, second, third) = (counts(), counts(), counts());
        let (pause, ..) = simulate(seed, move || {
            scope(|s| {
                s.spawn(move |_| {
                    let _first = first;
                    join(|| OnceLatch::new().wait(), || CountLatch::new(1).wait());
                });
                s.spawn(move |_| {
                    let _second = second;
                    crate::isolate(|| OnceLatch::new().wait());
                });
                let _third = third;
                OnceLatch::new().wait();
            });
        });
        assert_eq!(pause, Pause::Stuck);
        assert_eq!(dropped.load(Ordering::Relaxed), 3, "seed {seed}");
    }
}

#[test]
fn a_latch_that_is_set_after_its_waiter_was_unwound_knows_none() {
    let latch = Arc::new(OnceLatch::new());
    let waits = latch.clone();
    let (pause, ..) = simulate(1, move || waits.wait());
    assert_eq!(pause, Pause::Stuck);
    latch.set();
}

#[test]
fn what_refuses_to_end_is_told_of() {
    let mut pool = SimulatedPool::new(SimulationOptions::new(5)).unwrap();
    spawn_on(&pool.pool_ref(), || {
        loop {
            let _ = std::panic::catch_unwind(|| OnceLatch::new().wait());
        }
    });
    let never = AtomicBool::new(false);
    assert_eq!(pool.run(&mut Still { done: &never }, 10_000), Pause::Stuck);
    let ending = pool.end(&mut NoTime, 100_000);
    assert_eq!(ending, Ending::Refused { tasks: 1 });
    assert_eq!(simulate(3, || ()).0, Pause::Over);
}

#[test]
fn another_thread_may_end_the_last_wait() {
    struct WaitsInDrop(Arc<OnceLatch>);
    impl Drop for WaitsInDrop {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    let mut pool = SimulatedPool::new(SimulationOptions::new(5)).unwrap();
    let latch = Arc::new(OnceLatch::new());
    let waits = WaitsInDrop(latch.clone());
    spawn_on(&pool.pool_ref(), move || {
        let _waits = waits;
        OnceLatch::new().wait();
    });
    let never = AtomicBool::new(false);
    assert_eq!(pool.run(&mut Still { done: &never }, 10_000), Pause::Stuck);
    let sets = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        latch.set();
    });
    let ending = pool.end(&mut NoTime, 100_000);
    assert_eq!(ending, Ending::Unwound { tasks: 1 });
    sets.join().unwrap();
}

#[test]
fn a_panic_of_the_world_is_kept_and_the_pool_goes_on() {
    struct Panics {
        left: usize,
    }
    impl World for Panics {
        fn is_over(&mut self) -> bool {
            false
        }
        fn is_due(&mut self, _: u64) -> bool {
            false
        }
        fn happen(&mut self) {}
        fn advance(&mut self) -> bool {
            let Some(left) = self.left.checked_sub(1) else {
                return false;
            };
            self.left = left;
            std::panic::resume_unwind(Box::new(left));
        }
    }
    let mut pool = SimulatedPool::new(SimulationOptions::new(5)).unwrap();
    let pause = pool.run(&mut Panics { left: 2 }, 1000);
    assert_eq!(pause, Pause::Stuck);
    assert_eq!(pool.take_callback_panics().len(), 2);
    end(pool);
}

#[test]
fn a_panic_of_a_task_that_nobody_waits_for_is_kept() {
    let mut pool = SimulatedPool::new(SimulationOptions::new(5)).unwrap();
    let finished = Arc::new(CountLatch::new(1));
    let waiter = finished.clone();
    spawn_on(&pool.pool_ref(), || std::panic::resume_unwind(Box::new(7)));
    spawn_on(&pool.pool_ref(), move || {
        spawn(move || finished.count_down());
        waiter.wait();
    });
    let never = AtomicBool::new(false);
    assert_eq!(pool.run(&mut Still { done: &never }, 10_000), Pause::Stuck);
    let panics = pool.take_panics();
    assert_eq!(panics.len(), 1);
    assert_eq!(panics[0].downcast_ref(), Some(&7));
    end(pool);
}

#[test]
fn a_destructor_that_waits_during_a_panic_lets_the_others_go_on() {
    struct Waits(Arc<OnceLatch>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    for seed in 0..SEEDS {
        let (pause, _, trace) = simulate(seed, move || {
            let latch = Arc::new(OnceLatch::new());
            let (waits, sets) = (Waits(latch.clone()), latch);
            spawn(move || {
                yield_now();
                assert_eq!(fib(3), 2);
                sets.set();
            });
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _waits = waits;
                std::panic::resume_unwind(Box::new("the first"))
            }));
            let payload: Box<dyn Any + Send> = caught.unwrap_err();
            assert_eq!(payload.downcast_ref(), Some(&"the first"));
            assert!(!std::thread::panicking());
        });
        assert_eq!(pause, Pause::Over, "seed {seed}:\n{trace}");
        assert!(!std::thread::panicking());
    }
}

#[test]
fn outside_of_a_simulation_points_do_nothing() {
    assert!(!is_simulated());
    point();
    assert_eq!((choose(3), steps()), (None, None));
    let cell = Cell::new(0);
    undisturbed(|| cell.set(1));
    assert_eq!(cell.get(), 1);
}

#[test]
fn a_simulation_in_a_simulation_and_one_on_a_worker_are_refused() {
    let new = || SimulatedPool::new(SimulationOptions::new(1)).map(drop);
    simulate(1, move || {
        assert!(matches!(new(), Err(SimulationError::Nested)));
    });
    let pool = crate::Pool::builder().workers(1).build().unwrap();
    pool.install(move || assert!(matches!(new(), Err(SimulationError::OnWorker))));
}

/// A world whose one event is a callback.
struct Calls<F> {
    callback: Option<F>,
}

impl<F: FnOnce()> World for Calls<F> {
    fn is_over(&mut self) -> bool {
        self.callback.is_none()
    }

    fn is_due(&mut self, _: u64) -> bool {
        self.callback.is_some()
    }

    fn happen(&mut self) {
        if let Some(callback) = self.callback.take() {
            callback();
        }
    }

    fn advance(&mut self) -> bool {
        self.callback.is_some()
    }
}

/// Has the clock of a simulation call `callback`, on the simulation's own thread.
fn call_from_the_clock(callback: impl FnOnce()) {
    let mut pool = SimulatedPool::new(SimulationOptions::new(1)).unwrap();
    let mut world = Calls {
        callback: Some(callback),
    };
    assert_eq!(pool.run(&mut world, 1_000), Pause::Over);
    assert_eq!(pool.end(&mut NoTime, 100_000), Ending::Complete);
}

#[test]
fn a_callback_that_would_sleep_is_refused_before_anybody_knows_its_frame() {
    let other = crate::Pool::builder().workers(1).build().unwrap();
    let ran = AtomicUsize::new(0);
    let latch = OnceLatch::new();
    call_from_the_clock(|| {
        let is_refused = |wait: &dyn Fn()| {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait));
            let payload = result.expect_err("it would sleep");
            let message = jobtree_base::user_code::message_of(payload.as_ref());
            message.is_some_and(|message| message.contains("would have to sleep"))
        };
        assert!(is_refused(&|| other.install(|| {
            ran.fetch_add(1, Ordering::Relaxed);
        })));
        assert!(is_refused(&|| other.in_place_scope(|s| {
            s.spawn(|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        })));
        assert!(is_refused(&|| latch.wait()));
        assert!(is_refused(&|| {
            other.broadcast(|_| ran.fetch_add(1, Ordering::Relaxed));
        }));
    });
    // No code was told of frames that are gone.
    latch.set();
    other.shutdown(std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(ran.into_inner(), 0);
}
