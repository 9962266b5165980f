//! Wakers and callbacks that block the thread by which a deadline calls them: other deadlines come all the same.
#![cfg(not(miri))]

mod support;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::{
    EventKind, JobError, Lacking, Runtime, future, nursery, sleep, supervisor, with_timeout,
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
