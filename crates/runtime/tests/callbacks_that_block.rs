//! Wakers and callbacks that block the thread by which a deadline calls them: other deadlines come all the same.
#![cfg(not(miri))]

mod support;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::{
    BoxError, EventKind, JobError, Lacking, Runtime, future, nursery, sleep, supervisor,
    with_timeout,
};
use support::{end, for_ever, runtime, watch};

const SHORT: Duration = Duration::from_millis(1);

/// Code that says when it is entered, and blocks its thread until the sender is dropped.
struct Block {
    entered: OnceLatch,
    gate: Mutex<Receiver<()>>,
}

impl Block {
    fn new() -> (Arc<Block>, Sender<()>) {
        let (open, gate) = channel();
        let block = Block {
            entered: OnceLatch::new(),
            gate: Mutex::new(gate),
        };
        (Arc::new(block), open)
    }

    fn enter(&self) {
        self.entered.set();
        let _ = self.gate.lock().unwrap().recv();
    }
}

impl Wake for Block {
    fn wake(self: Arc<Self>) {
        self.enter();
    }
}

/// A waker that only says that it was called.
struct Called(OnceLatch);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.set();
    }
}

/// Has a deadline call `waker`; the timer lives as long as what is returned.
fn call_soon(waker: &Waker) -> Pin<Box<impl Future + use<>>> {
    let mut time = Box::pin(future::sleep(SHORT));
    let polled = time.as_mut().poll(&mut Context::from_waker(waker));
    assert!(polled.is_pending());
    time
}

/// Waits in each way that the library has for a time.
fn waits_of_the_library_end() {
    sleep(SHORT).unwrap();
    nursery(|n| {
        n.launch(|| Ok(sleep(SHORT)?));
        n.spawn_future(async { Ok(future::sleep(SHORT).await?) })
            .join()?;
        Ok(())
    })
    .unwrap();
}

fn said_to_be_blocked(runtime: &Runtime) -> usize {
    let lacking = Lacking::CallbackThread;
    let events = runtime.take_events().events;
    let is_it = |kind| kind == EventKind::Degraded { lacking };
    events.iter().filter(|event| is_it(event.kind)).count()
}

#[test]
fn a_waker_that_blocks_delays_no_wait_of_the_library_and_other_wakers_only_for_a_while() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime.record_events(10_000);
    let in_job = |body: &mut (dyn FnMut() + Send)| {
        runtime
            .nursery(|_| {
                body();
                Ok(())
            })
            .unwrap();
    };
    let (first, open_first) = Block::new();
    let (second, open_second) = Block::new();
    in_job(&mut || {
        let _blocked = call_soon(&Waker::from(Arc::clone(&first)));
        first.entered.wait();
        waits_of_the_library_end();
        assert_eq!(runtime.statistics().blocked_callbacks, 0);
        // Behind the first: a limit, whose callbacks are the program's; and another waker that blocks.
        let late = with_timeout(SHORT, for_ever::<()>);
        assert!(matches!(late, Err(JobError::TimedOut(_))));
        assert_eq!(runtime.statistics().blocked_callbacks, 1);
        let _blocked = call_soon(&Waker::from(Arc::clone(&second)));
        second.entered.wait();
        waits_of_the_library_end();
        let called = Arc::new(Called(OnceLatch::new()));
        let _called = call_soon(&Waker::from(Arc::clone(&called)));
        called.0.wait();
    });
    assert_eq!(runtime.statistics().blocked_callbacks, 2);
    assert_eq!(said_to_be_blocked(&runtime), 2);
    let dump = runtime.dump_tree().to_string();
    assert!(dump.contains("blocked their thread 2 times"), "{dump}");
    drop((open_first, open_second));
    in_job(&mut waits_of_the_library_end);
    end(&runtime);
}

#[test]
fn a_callback_that_blocks_when_its_jobs_time_is_over_delays_no_other_limit() {
    let _watch = watch();
    let runtime = runtime(2);
    let (block, open) = Block::new();
    let outcome = runtime.nursery(|_| {
        Ok(supervisor(|n| {
            let (limited, callback) = loop {
                let limited = n.job_options().timeout(SHORT).spawn(for_ever::<()>);
                let (blocking, here) = (Arc::clone(&block), thread::current().id());
                let called_here = Arc::new(AtomicBool::new(false));
                let says_so = Arc::clone(&called_here);
                let callback = limited.job().on_cancel(move |_| {
                    // Its time was over before the callback was there.
                    if thread::current().id() == here {
                        return says_so.store(true, Ordering::Relaxed);
                    }
                    blocking.enter();
                });
                if !called_here.load(Ordering::Relaxed) {
                    break (limited, callback);
                }
            };
            block.entered.wait();
            waits_of_the_library_end();
            for _ in 0..3 {
                let late = with_timeout(SHORT, for_ever::<()>);
                assert!(matches!(late, Err(JobError::TimedOut(_))));
            }
            assert_eq!(runtime.statistics().blocked_callbacks, 1);
            drop(open);
            drop(callback);
            assert!(matches!(limited.join(), Err(JobError::TimedOut(_))));
            Ok(())
        })?)
    });
    outcome.unwrap();
    end(&runtime);
}

/// An error whose destructor waits for a deadline of the same runtime.
#[derive(Debug)]
struct WaitsInDrop(Runtime, Sender<()>);

impl std::fmt::Display for WaitsInDrop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("waits in its destructor")
    }
}

impl std::error::Error for WaitsInDrop {}

impl Drop for WaitsInDrop {
    fn drop(&mut self) {
        let slept = self.0.spawn(|| Ok(sleep(Duration::from_millis(1))?)).join();
        slept.expect("the deadline comes");
        let _ = self.1.send(());
    }
}

/// The timer has the last waker of the future, and so the last reference to its job: when its time comes, the destructor of the
/// job's error must not run on the thread that keeps the deadlines. A future that is woken and ends before its waker is
/// dropped is the same, and a race; here the future leaves its timer behind.
#[test]
fn a_destructor_in_a_job_whose_last_waker_a_timer_has_may_wait_for_a_deadline() {
    let _watch = watch();
    let runtime = runtime(1);
    let (tell, told) = channel();
    let error = WaitsInDrop(runtime.clone(), tell);
    let handle = runtime.spawn_future(async move {
        let mut left_behind = Box::pin(future::sleep(Duration::from_millis(50)));
        poll_fn(|context| {
            assert!(left_behind.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        std::mem::forget(left_behind);
        Err::<(), BoxError>(error.into())
    });
    drop(handle);
    told.recv_timeout(Duration::from_secs(60))
        .expect("the thread that keeps deadlines does not wait for itself");
    end(&runtime);
}
