//! Beside tokio: jobs wait for its futures without holding what belongs to the thread, and its tasks await jobs that end when
//! they are no longer awaited.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::io::Write;
use std::net::TcpStream;
use std::pin::pin;
use std::sync::mpsc::{self, Sender};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jobtree::tokio::{block_on, compute, inside};
use jobtree::{Job, Runtime};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Far more than anything here takes.
const FAR: Duration = Duration::from_secs(30);

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Two jobs on one worker wait for each other inside the runtime: had each entered it for as long as it waits, they would leave
/// it in the wrong order.
#[test]
fn jobs_that_take_turns_on_a_thread_leave_no_context_behind() {
    let tokio = tokio_runtime();
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let handle = tokio.handle();
    // Whichever begins first, in one of the two orders it ends first, too.
    for is_swapped in [false, true] {
        let (first, second) = (Semaphore::new(0), Semaphore::new(0));
        runtime
            .nursery(|n| {
                let leads = || {
                    Ok(block_on(handle, async {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        first.add_permits(1);
                        let _permit = second.acquire().await;
                        assert_eq!(Handle::current().id(), handle.id());
                    })?)
                };
                let follows = || {
                    Ok(block_on(handle, async {
                        let _permit = first.acquire().await;
                        let joined = tokio::spawn(async { 42 }).await;
                        second.add_permits(1);
                        assert_eq!(joined.unwrap(), 42);
                    })?)
                };
                match is_swapped {
                    false => (n.launch(leads), n.launch(follows)),
                    true => (n.launch(follows), n.launch(leads)),
                };
                Ok(())
            })
            .unwrap();
    }
    let has_left = runtime.spawn(|| Ok(Handle::try_current().is_err()));
    assert!(has_left.join().unwrap());
    runtime.shutdown(FAR).unwrap();
}

#[test]
fn a_future_is_polled_and_dropped_inside_the_runtime_and_nowhere_else() {
    struct SeesDrop(Sender<bool>);
    impl Drop for SeesDrop {
        fn drop(&mut self) {
            let _ = self.0.send(Handle::try_current().is_ok());
        }
    }
    let tokio = tokio_runtime();
    let (drops, dropped) = mpsc::channel();
    let sees_drop = SeesDrop(drops);
    {
        let mut future = pin!(inside(tokio.handle(), async move {
            let _sees_drop = sees_drop;
            assert!(Handle::try_current().is_ok());
            pending::<()>().await;
        }));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        assert!(Handle::try_current().is_err());
    }
    assert!(dropped.recv().unwrap());
    assert!(Handle::try_current().is_err());
}

/// What a poll forks may be taken by another worker, and waited for: nothing else gets the thread meanwhile.
#[test]
fn a_poll_that_forks_keeps_the_thread() {
    thread_local!(static ENTERED: Cell<u32> = const { Cell::new(0) });
    fn forks(depth: u32) {
        if depth > 0 {
            jobtree::join(|| forks(depth - 1), || forks(depth - 1));
        }
    }
    let tokio = tokio_runtime();
    let runtime = Runtime::builder().workers(2).build().unwrap();
    runtime
        .nursery(|n| {
            let poll = || {
                poll_fn(|_| {
                    assert_eq!(ENTERED.replace(1), 0, "another poll is under way");
                    forks(10);
                    ENTERED.set(0);
                    Poll::Ready(Ok(()))
                })
            };
            let jobs = (0..20).map(|_| n.spawn_future(inside(tokio.handle(), poll())));
            for job in Vec::from_iter(jobs) {
                job.join()?;
            }
            Ok(())
        })
        .unwrap();
    runtime.shutdown(FAR).unwrap();
}

/// Tells what has become of its job when that unwinds or returns.
struct TellsEnd(Sender<bool>);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        let is_cancelled = Job::current().is_some_and(|job| job.is_cancelled());
        let _ = self.0.send(is_cancelled);
    }
}

/// Computes on all cores until it is cancelled.
fn endless(begun: &Sender<()>, ended: Sender<bool>) {
    let _tells_end = TellsEnd(ended);
    begun.send(()).unwrap();
    loop {
        jobtree::par::over(0..1000_u64).for_each(|number| {
            std::hint::black_box(number);
        });
    }
}

#[test]
fn a_computation_ends_when_its_client_leaves() {
    let tokio = tokio_runtime();
    let (begun, has_begun) = mpsc::channel();
    let (ended, has_ended) = mpsc::channel();
    let handler = move || {
        let (begun, ended) = (begun.clone(), ended.clone());
        async move {
            let outcome = compute(move || {
                endless(&begun, ended);
                Ok(())
            });
            format!("{:?}", outcome.await)
        }
    };
    let router = axum::Router::new().route("/", axum::routing::get(handler));
    let listener = tokio
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let address = listener.local_addr().unwrap();
    tokio.spawn(async move { axum::serve(listener, router).await });

    let mut client = TcpStream::connect(address).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        .unwrap();
    has_begun.recv_timeout(FAR).expect("the handler is called");
    assert!(has_ended.try_recv().is_err(), "the client waits");
    drop(client);
    let was_cancelled = has_ended.recv_timeout(FAR).expect("the computation ends");
    assert!(was_cancelled);
    tokio.shutdown_timeout(FAR);
}

#[test]
fn the_outcome_of_a_computation_is_awaited_by_a_task() {
    let tokio = tokio_runtime();
    let handle = tokio.handle().clone();
    let outcome = tokio.block_on(compute(move || {
        // And a job awaits a task of tokio's.
        let task = handle.spawn(async { 40 });
        Ok(block_on(&handle, task)?? + 2)
    }));
    assert_eq!(outcome.unwrap(), 42);
    let failed = tokio.block_on(compute(|| -> Result<(), _> { Err("broke".into()) }));
    assert!(failed.unwrap_err().to_string().contains("broke"));
}
