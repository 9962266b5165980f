//! User code that panics, waits, calls back in or never returns, where the library calls it: the library goes on.
//!
//! Each test is a program without unsafe code, in a process of its own, since it would crash or hang a library that is not
//! careful.

mod support;

use std::error::Error;
use std::fmt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use jobtree_runtime::budget::Decision;
use jobtree_runtime::{
    BoxError, CancelToken, Dispatcher, Job, JobLocal, Profile, Runtime, future, nursery, sleep,
    with_local, with_timeout,
};
use support::child::run_in_child;
use support::{FAR, end, for_ever, ops, runtime, runtime_of, ticks, time_on_processors, until};

/// Runs `body` in a process of its own, which must end with success.
#[track_caller]
fn goes_on(body: impl FnOnce()) {
    run_in_child(0, Duration::from_secs(60), body).assert_success();
}

/// Calls a function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Panics when it is dropped, and never twice at once: that would be the test's own fault.
fn panics_on_drop() -> OnDrop<impl FnMut() + Send + Sync + 'static> {
    OnDrop(|| panic!("a destructor of the test panics"))
}

fn panic_with<P: Send + 'static>(payload: P) -> Result<(), BoxError> {
    panic::panic_any(payload)
}

/// A waker of the program's own.
struct OnWake<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for OnWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(wake: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(OnWake(wake)))
}

/// Shows that workers, timers, cancellations and ends work.
fn still_works(runtime: &Runtime) {
    let slept = runtime.spawn(|| {
        sleep(Duration::from_millis(1))?;
        let late = with_timeout(Duration::from_millis(1), for_ever::<()>);
        assert!(late.is_err());
        Ok(nursery(|n| Ok(n.spawn(|| Ok(21)).join()? * 2))?)
    });
    assert_eq!(slept.join().unwrap(), 42);
}

// A value that no handle takes is dropped where the last child of its job ends, when the frames of the job may be gone.

fn drop_unwanted_values(use_library: fn()) {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    const JOBS: usize = 5000;
    let runtime = runtime(2);
    let outcome = runtime.nursery(|n| {
        for _ in 0..JOBS {
            let handle = n.job_options().on(&Dispatcher::io()).spawn(move || {
                let value = OnDrop(move || {
                    DROPPED.fetch_add(1, Ordering::Relaxed);
                    use_library();
                });
                nursery(|n| {
                    n.launch(|| Ok(()));
                    Ok(())
                })?;
                Ok(value)
            });
            // If the job has ended, the value is dropped here, and a panic of its destructor goes to this code.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
        }
        Ok(())
    });
    outcome.unwrap();
    assert_eq!(DROPPED.load(Ordering::Relaxed), JOBS);
    still_works(&runtime);
    end(&runtime);
}

#[test]
fn a_destructor_of_an_unwanted_value_may_ask_for_its_job() {
    goes_on(|| {
        drop_unwanted_values(|| {
            if let Some(job) = Job::current() {
                assert!(!job.path().is_empty());
            }
        });
    });
}

#[test]
fn a_destructor_of_an_unwanted_value_may_fork() {
    goes_on(|| drop_unwanted_values(|| assert_eq!(jobtree_pool::join(|| 1, || 2), (1, 2))));
}

#[test]
fn a_destructor_of_an_unwanted_value_may_sleep() {
    goes_on(|| drop_unwanted_values(|| sleep(Duration::from_micros(10)).unwrap()));
}

#[test]
fn a_destructor_of_an_unwanted_value_may_open_a_nursery() {
    goes_on(|| {
        drop_unwanted_values(|| nursery(|n| Ok(n.spawn(|| Ok(())).join()?)).unwrap());
    });
}

#[test]
fn a_destructor_of_an_unwanted_value_may_panic_after_it_used_its_job() {
    goes_on(|| {
        // Thousands of messages would hide that of a failure.
        panic::set_hook(Box::new(|_| {}));
        drop_unwanted_values(|| {
            let _ = Job::current().map(|job| job.path());
            panic!("a destructor of the test panics");
        });
    });
}

#[test]
fn a_waker_called_at_the_end_of_a_job_may_use_the_library() {
    goes_on(|| {
        let runtime = runtime(2);
        for _ in 0..3000 {
            let inner = || {
                nursery(|n| {
                    n.launch(|| Ok(()));
                    Ok(())
                })
            };
            let handle = runtime.spawn(move || Ok(Dispatcher::io().run(move || Ok(inner()?))?));
            let woken = Arc::new(AtomicBool::new(false));
            let waker = waker({
                let woken = Arc::clone(&woken);
                move || {
                    let _ = Job::current().map(|job| job.path());
                    nursery(|n| Ok(n.spawn(|| Ok(())).join()?)).unwrap();
                    woken.store(true, Ordering::Relaxed);
                }
            });
            let mut ended = pin!(handle.job().ended());
            let polled = ended.as_mut().poll(&mut Context::from_waker(&waker));
            // A job that has ended before wakes nobody. Otherwise the entry must stay until its waker was called.
            until(|| polled.is_ready() || woken.load(Ordering::Relaxed));
        }
        still_works(&runtime);
        end(&runtime);
    });
}

// A job that is just ending waits for the destructor of its value; the destructor cannot wait for the job.

#[test]
fn a_destructor_that_joins_its_own_job_is_refused() {
    goes_on(|| {
        let runtime = runtime(2);
        let refused = Arc::new(Mutex::new(None));
        let own: Arc<Mutex<Option<Job>>> = Arc::default();
        let handle = {
            let (own, refused) = (Arc::clone(&own), Arc::clone(&refused));
            let go = Arc::new(jobtree_pool::OnceLatch::new());
            let handle = runtime.spawn({
                let go = Arc::clone(&go);
                move || {
                    go.wait();
                    Ok(OnDrop(move || {
                        let job = own.lock().unwrap().take().unwrap();
                        let waited = catch_unwind(AssertUnwindSafe(|| {
                            jobtree_runtime::block_on(job.ended())
                        }));
                        let payload = waited.expect_err("refused");
                        let message = payload.downcast_ref::<String>().unwrap().clone();
                        *refused.lock().unwrap() = Some(message);
                    }))
                }
            });
            (handle, go)
        };
        let (handle, go) = handle;
        let job = handle.job().clone();
        *own.lock().unwrap() = Some(job.clone());
        drop(handle);
        go.set();
        until(|| job.is_ended());
        let message = refused.lock().unwrap().take().unwrap();
        assert!(message.contains("waits for its own end"), "{message}");
        still_works(&runtime);
        end(&runtime);
    });
}

// Callbacks of a cancellation.

#[test]
fn a_callback_that_is_taken_back_may_panic_when_it_is_dropped() {
    goes_on(|| {
        let runtime = runtime(2);
        let job = runtime.spawn(for_ever::<()>);
        for _ in 0..100 {
            let captured = panics_on_drop();
            let callback = job.job().on_cancel(move |_| drop(captured));
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(callback)));
            assert!(dropped.is_ok(), "a recorded panic goes no further");
        }
        job.cancel("enough");
        assert!(job.join().is_err());
        still_works(&runtime);
        end(&runtime);
    });
}

#[test]
fn a_callback_that_is_taken_back_may_own_a_child_token_of_its_job() {
    goes_on(|| {
        let runtime = runtime(2);
        let job = runtime.spawn(for_ever::<()>);
        let token = CancelToken::of_job(job.job());
        let child = token.child();
        let callback = job.job().on_cancel(move |_| drop(child));
        drop(callback);
        let own = token.clone();
        drop(token.on_cancel(move |_| drop(own)));
        job.cancel("enough");
        assert!(job.join().is_err());
        end(&runtime);
    });
}

#[test]
fn a_callback_that_panics_does_not_keep_the_others_from_being_called() {
    goes_on(|| {
        let runtime = runtime(2);
        let called = Arc::new(AtomicUsize::new(0));
        let job = runtime
            .spawn(|| nursery(|n| Ok(n.spawn(for_ever::<()>).join()?)).map_err(BoxError::from));
        until(|| !job.job().children().is_empty());
        let below = job.job().children().remove(0);
        let mut callbacks = Vec::new();
        for number in 0..40 {
            let called = Arc::clone(&called);
            let whose = if number % 2 == 0 { job.job() } else { &below };
            callbacks.push(whose.on_cancel(move |_| {
                called.fetch_add(1, Ordering::Relaxed);
                panic!("a callback of the test panics");
            }));
        }
        assert!(job.cancel("enough"));
        assert_eq!(called.load(Ordering::Relaxed), 40);
        assert!(job.join().is_err());
        still_works(&runtime);
        end(&runtime);
    });
}

#[test]
fn a_callback_that_panics_on_the_timer_thread_does_not_end_time() {
    goes_on(|| {
        let runtime = runtime(2);
        let limited = runtime.spawn(|| {
            Ok(with_timeout(Duration::from_millis(5), || {
                let job = Job::current().unwrap();
                let _callback = job.on_cancel(|_| panic!("a callback of the test panics"));
                for_ever::<()>()
            })?)
        });
        assert!(limited.join().is_err());
        still_works(&runtime);
        // A foreign waker that panics.
        let clock_thread = runtime.spawn_future(async {
            let mut sleep = pin!(future::sleep(Duration::from_millis(2)));
            let waker = waker(|| panic!("a waker of the test panics"));
            assert!(
                sleep
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        });
        clock_thread.join().unwrap();
        still_works(&runtime);
        end(&runtime);
    });
}

#[test]
fn a_waker_or_callback_on_the_timer_thread_may_wait_for_a_timer() {
    goes_on(|| {
        let runtime = runtime(2);
        let woken = Arc::new(AtomicUsize::new(0));
        let mut sleeps = Vec::new();
        for _ in 0..4 {
            let woken = Arc::clone(&woken);
            let waker = waker(move || {
                sleep(Duration::from_millis(2)).unwrap();
                woken.fetch_add(1, Ordering::Relaxed);
            });
            let mut sleep = Box::pin(runtime.clock().sleep(Duration::from_millis(5)));
            assert!(
                sleep
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            sleeps.push(sleep);
        }
        until(|| woken.load(Ordering::Relaxed) == 4);
        let limited = runtime.spawn(|| {
            Ok(with_timeout(Duration::from_millis(5), || {
                let job = Job::current().unwrap();
                let _callback = job.on_cancel(|_| sleep(Duration::from_millis(2)).unwrap());
                for_ever::<()>()
            })?)
        });
        assert!(limited.join().is_err());
        still_works(&runtime);
        end(&runtime);
    });
}

// Shutdown.

#[test]
fn callbacks_of_a_shutdown_may_use_the_runtime() {
    goes_on(|| {
        let runtime = runtime(2);
        let called = Arc::new(AtomicUsize::new(0));
        let handle = runtime.spawn(for_ever::<()>);
        let _callback = handle.job().on_cancel({
            let (runtime, called) = (runtime.clone(), Arc::clone(&called));
            move |_| {
                runtime.record_events(8);
                let _ = (
                    runtime.counters(),
                    runtime.take_events(),
                    runtime.dump_tree(),
                );
                let _ = runtime.shutdown(Duration::from_millis(1));
                called.fetch_add(1, Ordering::Relaxed);
            }
        });
        runtime.shutdown(FAR).unwrap();
        assert_eq!(called.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_callback_that_does_not_return_does_not_hold_up_a_shutdown() {
    goes_on(|| {
        let runtime = runtime(2);
        let handle = runtime.spawn(for_ever::<()>);
        let _callback = handle.job().on_cancel(|_| std::thread::sleep(FAR));
        let began = Instant::now();
        let error = runtime.shutdown(Duration::from_millis(50)).unwrap_err();
        assert!(began.elapsed() < FAR / 100);
        let named = error.stragglers().join(", ");
        assert!(named.contains("a cancel callback"), "{named}");
        // Threads of the test are still asleep.
        std::process::exit(0);
    });
}

// Panics.

#[test]
fn the_first_use_of_a_runtime_may_be_in_a_panicking_thread() {
    goes_on(|| {
        let caught = catch_unwind(|| {
            let _first_use = OnDrop(|| {
                let answer = nursery(|n| Ok(n.spawn(|| Ok(42)).join()?));
                assert_eq!(answer.unwrap(), 42);
            });
            panic!("the test panics");
        });
        assert!(caught.is_err());
        // The place of a panic is known as soon as another thread has set the hook.
        until(|| {
            let later = Runtime::global().spawn(|| -> Result<(), BoxError> { panic!("later") });
            let error = later.join().unwrap_err().to_string();
            error.contains("user_code.rs")
        });
        still_works(Runtime::global());
    });
}

/// An error whose methods and destructor do what they should not.
struct Hostile;

impl fmt::Debug for Hostile {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("Debug of the test panics");
    }
}

impl fmt::Display for Hostile {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("Display of the test panics");
    }
}

impl Error for Hostile {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        panic!("source of the test panics");
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        panic!("an error's destructor panics");
    }
}

/// An error that is its own source.
#[derive(Debug)]
struct Circular;

impl fmt::Display for Circular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("circular")
    }
}

impl Error for Circular {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self)
    }
}

#[test]
fn errors_may_panic_in_their_methods_and_destructors() {
    goes_on(|| {
        let runtime = runtime(2);
        for _ in 0..20 {
            // Kept as the job's error, and passed on from level to level.
            let outcome = runtime.nursery(|n| {
                for _ in 0..20 {
                    n.launch(|| Err(Hostile.into()));
                }
                Err::<(), BoxError>(Hostile.into())
            });
            drop(outcome.unwrap_err());
            // No failure, since the job is cancelled: dropped by the library.
            let cancelled = runtime.nursery(|n| {
                n.cancel("enough");
                Err::<(), BoxError>(Hostile.into())
            });
            drop(cancelled.unwrap_err());
            drop(runtime.spawn(|| Err::<(), BoxError>(Hostile.into())));
        }
        still_works(&runtime);
        end(&runtime);
    });
}

#[test]
fn an_error_may_be_its_own_source() {
    goes_on(|| {
        let outcome = nursery(|_| Err::<(), BoxError>(Circular.into()));
        let report = outcome.unwrap_err().report().to_string();
        assert!(report.starts_with("root/"), "{report}");
    });
}

#[test]
fn panic_payloads_may_panic_in_their_destructors() {
    goes_on(|| {
        let runtime = runtime(2);
        for _ in 0..20 {
            let outcome = runtime.nursery(|n| {
                for _ in 0..20 {
                    n.launch(|| panic::panic_any(panics_on_drop()));
                }
                let payload = panics_on_drop();
                drop(n.spawn_future(async { panic_with(payload) }));
                Ok(())
            });
            drop(outcome.unwrap_err());
        }
        still_works(&runtime);
        end(&runtime);
    });
}

#[test]
fn locals_and_captured_state_may_panic_in_their_destructors() {
    static LOCAL: JobLocal<Mutex<Option<BoxError>>> = JobLocal::new();
    goes_on(|| {
        let runtime = runtime(2);
        for _ in 0..20 {
            let outcome = runtime.nursery(|n| {
                with_local(&LOCAL, Mutex::new(Some(Hostile.into())), || {
                    nursery(|inner| {
                        for _ in 0..8 {
                            inner.launch(|| Ok(()));
                        }
                        Ok(())
                    })?;
                    Ok(())
                })?;
                n.cancel("enough");
                for _ in 0..8 {
                    // Never called: born cancelled.
                    let captured = panics_on_drop();
                    n.launch(move || {
                        drop(captured);
                        Ok(())
                    });
                    let captured = panics_on_drop();
                    drop(n.spawn_future(async move {
                        drop(captured);
                        Ok(())
                    }));
                }
                Ok(())
            });
            drop(outcome);
        }
        still_works(&runtime);
        end(&runtime);
    });
}

#[test]
fn a_panic_hook_may_wait_while_other_jobs_panic() {
    goes_on(|| {
        panic::set_hook(Box::new(|_| {
            let waited = nursery(|n| {
                n.spawn(|| Ok(sleep(Duration::from_millis(1))?)).join()?;
                Ok(())
            });
            // A hook in a job that is being cancelled sees that.
            let _ = waited;
        }));
        let runtime = runtime(2);
        for _ in 0..5 {
            let outcome = runtime.supervisor(|n| {
                for _ in 0..8 {
                    n.launch(|| panic!("a job of the test panics"));
                }
                Ok(())
            });
            outcome.unwrap();
        }
        still_works(&runtime);
        end(&runtime);
    });
}

// Budgets.

#[test]
fn a_budget_handler_may_open_a_nursery_and_may_panic() {
    goes_on(|| {
        let runtime = runtime_of(Profile::Cluster, 1);
        let spend = || {
            ticks(10_500);
            Ok(())
        };
        let outcome = runtime.nursery(|n| {
            n.supervise_budgets(|_| {
                nursery(|n| Ok(n.spawn(|| Ok(())).join()?)).unwrap();
                Decision::Recharge(ops(1000))
            });
            n.spawn(spend).join()?;
            Ok(())
        });
        outcome.unwrap();
        let outcome = runtime.supervisor(|n| {
            n.supervise_budgets(|_| panic!("a handler of the test panics"));
            let busy = n.spawn(spend);
            until(|| busy.job().is_cancelled());
            Ok(())
        });
        outcome.unwrap();
        end(&runtime);
    });
}

// Deep structures.

#[test]
fn a_token_is_cancelled_with_those_above_even_if_the_one_between_is_gone() {
    let root = CancelToken::new();
    let below = CancelToken::any_of([&root.child().child(), &CancelToken::new()]).child();
    // What waits keeps its token.
    let called = Arc::new(AtomicBool::new(false));
    let _callback = root.child().on_cancel({
        let called = Arc::clone(&called);
        move |_| called.store(true, Ordering::Relaxed)
    });
    let mut cancelled = pin!(root.child().cancelled());
    let mut context = Context::from_waker(Waker::noop());
    assert!(cancelled.as_mut().poll(&mut context).is_pending());
    assert!(root.cancel("enough"));
    assert_eq!(below.reason().unwrap().message(), Some("enough"));
    assert!(called.load(Ordering::Relaxed));
    assert!(cancelled.as_mut().poll(&mut context).is_ready());
}

#[test]
fn a_chain_of_a_million_tokens_is_cancelled_without_recursion() {
    goes_on(|| {
        let small = std::thread::Builder::new().stack_size(64 * 1024);
        let thread = small.spawn(|| {
            let mut chain = vec![CancelToken::new()];
            for length in 1..1_000_000 {
                let next = chain[length - 1].child();
                chain.push(next);
            }
            let called = Arc::new(AtomicBool::new(false));
            let _callback = chain[chain.len() - 1].on_cancel({
                let called = Arc::clone(&called);
                move |reason| {
                    assert_eq!(reason.message(), Some("enough"));
                    called.store(true, Ordering::Relaxed);
                }
            });
            assert!(chain[0].cancel("enough"));
            assert!(chain.iter().all(CancelToken::is_cancelled));
            assert!(called.load(Ordering::Relaxed));
            let last = chain[chain.len() - 1].reason().unwrap();
            assert_eq!(last.message(), Some("enough"));
        });
        thread.unwrap().join().unwrap();
    });
}

/// Returns the time to cancel this many async nurseries, each inside of the one before.
fn time_to_cancel_nested(depth: usize) -> Duration {
    type Nested = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;
    fn nest(depth: usize, deepest: Arc<jobtree_pool::OnceLatch>) -> Nested {
        Box::pin(async move {
            if depth == 0 {
                deepest.set();
                future::sleep(FAR).await?;
                return Ok(());
            }
            let opened = future::nursery(async move |n| {
                n.spawn_future(nest(depth - 1, deepest)).await?;
                Ok(())
            });
            Ok(opened.await?)
        })
    }
    let runtime = runtime(2);
    let deepest = Arc::new(jobtree_pool::OnceLatch::new());
    let handle = runtime.spawn_future(nest(depth, Arc::clone(&deepest)));
    deepest.wait();
    // By the processors' clock: others may want them, too.
    let began = time_on_processors();
    handle.cancel("enough");
    assert!(handle.join().is_err());
    let took = time_on_processors() - began;
    end(&runtime);
    took
}

/// Prints its figures: `cargo test -p jobtree-runtime --test user_code nested_async -- --nocapture`.
#[test]
fn cancelling_nested_async_nurseries_takes_linear_time() {
    let ended = run_in_child(0, Duration::from_secs(60), || {
        let best = |depth| (0..5).map(|_| time_to_cancel_nested(depth)).min().unwrap();
        let (short, long) = (best(2000), best(20_000));
        let ratio = long.as_secs_f64() / short.as_secs_f64();
        eprintln!("2 000 nurseries: {short:?}; 20 000: {long:?}; ratio {ratio:.1}");
        assert!(ratio <= 15.0);
    });
    ended.assert_success();
    let figure = ended.stderr.lines().find(|line| line.contains("ratio"));
    println!(
        "cancelling {}",
        figure.unwrap_or("nothing: another part of the test")
    );
    println!("(at most 15 times as long; `--nocapture` shows this line)");
}
