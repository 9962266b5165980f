//! Profiles cannot be left: every way to start something, called from code with limits, and what happens. The table is
//! that in the documentation of `jobtree_runtime::budget`; this test walks all of it.

mod support;

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use jobtree_pool::Pool;
use jobtree_runtime::actor::{ActorOptions, Mailbox, from_fn};
use jobtree_runtime::budget::{self, Budget, Capabilities};
use jobtree_runtime::supervision::{RestartPolicy, Strategy, Supervisor};
use jobtree_runtime::{
    BoxError, CancelToken, Dispatcher, JoinSet, Profile, Runtime, block_on, channel, future,
    nursery, sleep, supervisor, with_timeout,
};
use support::{FAR, end, runtime, until, watch};

/// What an operation came to: nothing to complain about, or the message of the refusal.
type Seen = Result<(), String>;

/// The other pools and runtimes of the program, without limits of their own.
struct Elsewhere {
    pool: Pool,
    runtime: Runtime,
    dispatcher: Dispatcher,
}

/// The messages of an error and of all its sources.
fn messages(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn seen<T, E: Error + 'static>(result: Result<T, E>) -> Seen {
    result.map(drop).map_err(|error| messages(&error))
}

/// Panics, and so fails the table, if the calling code has no limits.
fn assert_limited(is_limited: bool) {
    let has_limits = budget::remaining().spawns != u64::MAX;
    assert_eq!(has_limits, is_limited, "the limits of what was started");
}

/// [`assert_limited`], as the body of a job.
fn checked(is_limited: bool) -> Result<(), BoxError> {
    assert_limited(is_limited);
    Ok(())
}

/// Waits for the end of a task that nobody waits for, and passes its panic on.
fn detached(is_limited: bool, start: impl FnOnce(Box<dyn Fn() + Send + Sync>)) -> Seen {
    let (tell, told) = mpsc::channel();
    start(Box::new(move || {
        let checked = catch_unwind(|| assert_limited(is_limited));
        let _ = tell.send(checked.is_ok());
    }));
    // A worker that waits has to run other tasks meanwhile.
    let mut is_right = None;
    until(|| {
        is_right = told.try_recv().ok();
        is_right.is_some()
    });
    assert_eq!(is_right, Some(true), "a detached task left the limits");
    Ok(())
}

/// The ways to start something, by name. Each is told whether what it starts must find limits.
type Operation = (&'static str, fn(&Elsewhere, bool) -> Seen);

/// Computing inside of the job.
const FORKS: &[Operation] = &[
    ("join", |_, limited| {
        jobtree_pool::join(|| assert_limited(limited), || assert_limited(limited));
        Ok(())
    }),
    ("join_each", |_, limited| {
        jobtree_pool::join_each([|| assert_limited(limited); 3]);
        Ok(())
    }),
    ("Pool::install", |other, limited| {
        other.pool.install(|| assert_limited(limited));
        Ok(())
    }),
    ("Pool::join", |other, limited| {
        other
            .pool
            .join(|| assert_limited(limited), || assert_limited(limited));
        Ok(())
    }),
    ("a scope without tasks", |_, limited| {
        jobtree_pool::scope(|_| assert_limited(limited));
        nursery(|_| checked(limited)).map_err(|error| messages(&error))
    }),
    ("sleep", |_, _| seen(sleep(Duration::from_millis(1)))),
    ("with_timeout", |_, limited| {
        seen(with_timeout(Duration::from_secs(60), || checked(limited)))
    }),
    ("Runtime::nursery without jobs", |other, limited| {
        seen(other.runtime.nursery(|_| checked(limited)))
    }),
    ("Runtime::block_on", |other, limited| {
        seen(other.runtime.block_on(async { assert_limited(limited) }))
    }),
];

/// Tasks and jobs that somebody waits for.
const SPAWNS: &[Operation] = &[
    ("Scope::spawn", |_, limited| {
        jobtree_pool::scope(|s| s.spawn(|_| assert_limited(limited)));
        Ok(())
    }),
    ("ScopeFifo::spawn_fifo", |_, limited| {
        jobtree_pool::scope_fifo(|s| s.spawn_fifo(|_| assert_limited(limited)));
        Ok(())
    }),
    ("in_place_scope", |_, limited| {
        jobtree_pool::in_place_scope(|s| s.spawn(|_| assert_limited(limited)));
        Ok(())
    }),
    ("in_place_scope_fifo", |_, limited| {
        jobtree_pool::in_place_scope_fifo(|s| s.spawn_fifo(|_| assert_limited(limited)));
        Ok(())
    }),
    ("Scope::spawn_broadcast", |_, limited| {
        jobtree_pool::scope(|s| s.spawn_broadcast(move |_, _| assert_limited(limited)));
        Ok(())
    }),
    ("broadcast", |_, limited| {
        jobtree_pool::broadcast(|_| assert_limited(limited));
        Ok(())
    }),
    ("Pool::scope", |other, limited| {
        other.pool.scope(|s| s.spawn(|_| assert_limited(limited)));
        Ok(())
    }),
    ("Pool::in_place_scope", |other, limited| {
        let pool = &other.pool;
        pool.in_place_scope(|s| s.spawn(|_| assert_limited(limited)));
        Ok(())
    }),
    ("Pool::broadcast", |other, limited| {
        other.pool.broadcast(|_| assert_limited(limited));
        Ok(())
    }),
    ("Nursery::spawn", |_, limited| {
        seen(nursery(|n| Ok(n.spawn(move || checked(limited)).join()?)))
    }),
    ("Nursery::try_spawn", |_, limited| {
        seen(nursery(|n| {
            let job = n.try_spawn(move || checked(limited));
            Ok(job.map_err(|refused| refused.into_reason())?.join()?)
        }))
    }),
    ("supervisor", |_, limited| {
        seen(supervisor(|n| {
            Ok(n.spawn(move || checked(limited)).join()?)
        }))
    }),
    ("Runtime::global().spawn", |_, limited| {
        let job = Runtime::global().spawn(move || checked(limited));
        seen(job.join())
    }),
    ("JoinSet", |_, limited| {
        seen(nursery(|n| {
            let mut jobs = JoinSet::from_iter([n.spawn(move || checked(limited))]);
            let outcome = jobs.join_next();
            Ok(outcome.expect("there is one job")?)
        }))
    }),
    #[cfg(feature = "tokio")]
    ("tokio::compute", |_, limited| {
        let computed = block_on(jobtree_runtime::tokio::compute(move || checked(limited)));
        computed.map_err(|error| messages(&error)).and_then(seen)
    }),
    ("Runtime::spawn", |other, limited| {
        let job = other.runtime.spawn(move || checked(limited));
        seen(job.join())
    }),
    ("Runtime::nursery", |other, limited| {
        seen(
            other
                .runtime
                .nursery(|n| Ok(n.spawn(move || checked(limited)).join()?)),
        )
    }),
    ("Runtime::supervisor", |other, limited| {
        seen(
            other
                .runtime
                .supervisor(|n| Ok(n.spawn(move || checked(limited)).join()?)),
        )
    }),
    ("Runtime::block_on, then spawn", |other, limited| {
        let outcome = other.runtime.block_on(future::nursery(async move |n| {
            Ok(n.spawn(move || checked(limited)).await?)
        }));
        outcome.map_err(|error| messages(&error)).and_then(seen)
    }),
    ("Runtime::owned_nursery", |other, limited| {
        let scope = other
            .runtime
            .owned_nursery(false)
            .map_err(|error| messages(&error))?;
        let job = scope.nursery().spawn(move || checked(limited));
        seen(job.join())
    }),
    ("Nursery::actor", |_, limited| {
        seen(nursery(|n| {
            let mailbox = ActorOptions::new().mailbox(Mailbox::Bounded(1));
            let actor = n.actor(mailbox, from_fn(move |(), _| checked(limited)));
            let _ = actor.send(());
            Ok(())
        }))
    }),
    ("Nursery::produce", |_, limited| {
        seen(nursery(|n| {
            let (_receiver, job) = n.produce::<(), _>(1, move |_| checked(limited));
            Ok(job.join()?)
        }))
    }),
    ("Supervisor::run", |_, limited| {
        let mut supervisor = Supervisor::new(Strategy::OneForOne).max_restarts(0, FAR);
        supervisor.job("child", RestartPolicy::OnFailure, move || checked(limited));
        seen(supervisor.run())
    }),
];

/// Futures as jobs.
const FUTURES: &[Operation] = &[
    ("Nursery::spawn_future", |_, limited| {
        seen(nursery(|n| {
            let job = n.spawn_future(async move { checked(limited) });
            Ok(job.join()?)
        }))
    }),
    ("future::Nursery::spawn_future", |_, limited| {
        let scope = future::nursery(async move |n| {
            let job = n.spawn_future(async move { checked(limited) });
            Ok(job.await?)
        });
        let waited = block_on(scope).map_err(|error| messages(&error));
        waited.and_then(seen)
    }),
    ("Runtime::spawn_future", |other, limited| {
        let runtime = &other.runtime;
        seen(runtime.spawn_future(async move { checked(limited) }).join())
    }),
];

/// Tasks that nobody waits for.
const DETACHED: &[Operation] = &[
    ("spawn", |_, limited| detached(limited, jobtree_pool::spawn)),
    ("spawn_fifo", |_, limited| {
        detached(limited, jobtree_pool::spawn_fifo)
    }),
    ("spawn_broadcast", |_, limited| {
        detached(limited, |task| {
            jobtree_pool::spawn_broadcast(move |_| task())
        })
    }),
    ("Pool::spawn", |other, limited| {
        detached(limited, |task| other.pool.spawn(task))
    }),
    ("Pool::spawn_fifo", |other, limited| {
        detached(limited, |task| other.pool.spawn_fifo(task))
    }),
    ("Pool::spawn_broadcast", |other, limited| {
        detached(limited, |task| other.pool.spawn_broadcast(move |_| task()))
    }),
];

/// Jobs on threads that may block.
const BLOCKING: &[Operation] = &[
    ("Dispatcher::io().run", |_, limited| {
        seen(Dispatcher::io().run(|| checked(limited)))
    }),
    ("Spawner::on", |other, limited| {
        seen(nursery(|n| {
            let job = n.job_options().on(&other.dispatcher);
            Ok(job.spawn(move || checked(limited)).join()?)
        }))
    }),
];

/// Threads of one's own.
const THREADS: &[Operation] = &[
    ("Runtime::builder().build()", |_, _| {
        seen(Runtime::builder().workers(1).build())
    }),
    ("Pool::builder().build()", |_, _| {
        seen(Pool::builder().workers(1).build())
    }),
    ("Dispatcher::new", |_, _| seen(Dispatcher::new(1))),
];

const CHANNELS: &[Operation] = &[
    ("channel::try_new", |_, _| {
        seen(channel::try_new::<()>(channel::Kind::Bounded(1)))
    }),
    ("channel::broadcast", |_, _| {
        drop(channel::broadcast::<()>(1));
        Ok(())
    }),
    ("channel::watch", |_, _| {
        drop(channel::watch(()));
        Ok(())
    }),
    ("channel::oneshot", |_, _| {
        drop(channel::oneshot::<()>());
        Ok(())
    }),
];

/// Code with limits that calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    Open,
    Core,
    /// `Sovereign`, without anything given.
    Sovereign,
    /// `Sovereign`, with all capabilities and the budget of a service.
    Given,
    Service,
    /// A job in a scope of `Service`: with the usual budget, which has no spawns.
    ServiceChild,
    Cluster,
}

use Caller::*;

/// What the refusal must say; nothing if there must be none.
fn expected(operations: &[Operation], caller: Caller) -> Option<&'static str> {
    let is = |table: &[Operation]| std::ptr::eq(operations, table);
    match caller {
        Open => None,
        _ if is(FORKS) => None,
        Core | Sovereign if is(THREADS) => Some("threaded executor"),
        Core | Sovereign if is(CHANNELS) => Some("capability to make channels"),
        Service | ServiceChild | Cluster | Given if is(THREADS) || is(CHANNELS) => None,
        Core => Some("profile `core`"),
        Sovereign => Some("capability to spawn"),
        ServiceChild => Some("no spawns left"),
        Cluster | Given if is(DETACHED) => Some("spawn a job in a nursery instead"),
        Service | Cluster | Given => None,
    }
}

/// Runs `body` as code with these limits.
fn as_caller(caller: Caller, body: impl FnOnce() -> Seen + Send) -> Seen {
    let profile = match caller {
        Open => Profile::Open,
        Core => Profile::Core,
        Sovereign | Given => Profile::Sovereign,
        Service | ServiceChild => Profile::Service,
        Cluster => Profile::Cluster,
    };
    let mut builder = Runtime::builder().workers(1).profile(profile);
    if caller == Given {
        builder = builder
            .root_capabilities(Capabilities::ALL)
            .root_budget(Budget::SERVICE);
    }
    let runtime = builder.build().unwrap();
    let outcome = runtime.nursery(|n| {
        let seen = match caller {
            ServiceChild => n.spawn(|| Ok(body())).join()?,
            _ => body(),
        };
        Ok(seen)
    });
    end(&runtime);
    outcome.unwrap()
}

/// An operation, with its panic as a refusal.
fn attempt(operation: Operation, elsewhere: &Elsewhere, caller: Caller) -> Seen {
    let run = || operation.1(elsewhere, caller != Open);
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(seen) => seen,
        Err(payload) => Err(match payload.downcast_ref::<String>() {
            Some(message) => message.clone(),
            None => format!("panicked: {:?}", payload.downcast_ref::<&str>()),
        }),
    }
}

/// How code with limits has something done: by itself, or by code that it leaves to be called later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Itself,
    /// By a callback for a cancellation, called on a thread without limits.
    CancelCallback,
    /// By a waker for a cancellation, woken on such a thread.
    WakerOfToken,
    /// By a waker for a message, woken on such a thread.
    WakerOfChannel,
    /// By the destructor of a callback that is taken back on such a thread.
    CapturedByCallback,
}

use Manner::*;

/// Wakes by calling a function.
struct OnWake(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for OnWake {
    fn wake(self: Arc<Self>) {
        let call = self.0.lock().unwrap().take();
        if let Some(call) = call {
            call();
        }
    }
}

/// Calls a function when it is dropped.
struct OnDrop(Option<Box<dyn FnOnce() + Send>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

/// [`attempt`], in one of the manners.
fn attempt_by(
    manner: Manner,
    operation: Operation,
    elsewhere: &Arc<Elsewhere>,
    caller: Caller,
) -> Seen {
    let (tell, told) = mpsc::channel();
    let other = Arc::clone(elsewhere);
    let call = move || drop(tell.send(attempt(operation, &other, caller)));
    // Called on a thread without limits, while this one keeps what was registered.
    let by_thread = |act: Box<dyn FnOnce() + Send>| {
        let thread = thread::spawn(act);
        let mut seen = None;
        until(|| {
            seen = told.try_recv().ok();
            seen.is_some()
        });
        thread.join().unwrap();
        seen.unwrap()
    };
    match manner {
        Itself => attempt(operation, elsewhere, caller),
        CancelCallback => {
            let token = CancelToken::new();
            let _callback = token.on_cancel(move |_| call());
            by_thread(Box::new(move || assert!(token.cancel("now"))))
        }
        CapturedByCallback => {
            let token = CancelToken::new();
            let captured = OnDrop(Some(Box::new(call)));
            let callback = token.on_cancel(move |_| drop(captured));
            by_thread(Box::new(move || drop(callback)))
        }
        WakerOfToken => {
            let token = CancelToken::new();
            let waker = Waker::from(Arc::new(OnWake(Mutex::new(Some(Box::new(call))))));
            let mut requested = pin!(token.cancelled());
            let polled = requested.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            let canceller = token.clone();
            by_thread(Box::new(move || assert!(canceller.cancel("now"))))
        }
        WakerOfChannel => {
            // Made by a thread without limits: not all code with limits may make one.
            let made = thread::spawn(|| channel::bounded::<()>(1)).join();
            let (sender, receiver) = made.unwrap();
            let waker = Waker::from(Arc::new(OnWake(Mutex::new(Some(Box::new(call))))));
            let mut receiving = pin!(receiver.recv_async());
            let polled = receiving.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            by_thread(Box::new(move || drop(sender.send(()))))
        }
    }
}

#[test]
fn every_way_to_start_something_obeys_the_limits_of_its_caller() {
    let _watch = watch();
    let wrong = walk_table(&[Itself]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn callbacks_wakers_and_destructors_obey_the_limits_of_the_code_that_left_them() {
    let _watch = watch();
    let wrong = walk_table(&[
        CancelCallback,
        CapturedByCallback,
        WakerOfToken,
        WakerOfChannel,
    ]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tries every operation as every caller in these manners; returns the cells with a wrong outcome.
fn walk_table(manners: &[Manner]) -> Vec<String> {
    let elsewhere = Arc::new(Elsewhere {
        pool: Pool::builder().workers(2).build().unwrap(),
        runtime: runtime(1),
        dispatcher: Dispatcher::new(1).unwrap(),
    });
    let (elsewhere, mut wrong) = (&elsewhere, Vec::new());
    for caller in [Open, Core, Sovereign, Given, Service, ServiceChild, Cluster] {
        for operations in [
            FORKS, SPAWNS, FUTURES, DETACHED, BLOCKING, THREADS, CHANNELS,
        ] {
            let expected = expected(operations, caller);
            let every = |&operation| manners.iter().map(move |&manner| (operation, manner));
            for (operation, manner) in operations.iter().flat_map(every) {
                if std::env::var_os("JOBTREE_TRACE_CELLS").is_some() {
                    eprintln!("{caller:?} {} {manner:?}", operation.0);
                }
                let seen = as_caller(caller, move || {
                    attempt_by(manner, operation, elsewhere, caller)
                });
                let is_right = match (&seen, expected) {
                    (Ok(()), None) => true,
                    // An actor or a producer needs a channel first.
                    (Err(message), Some(part)) => {
                        message.contains(part) || message.contains("capability to make channels")
                    }
                    _ => false,
                };
                if !is_right {
                    let name = operation.0;
                    wrong.push(format!(
                        "{caller:?} {name} {manner:?}: {seen:?}, not {expected:?}"
                    ));
                }
            }
        }
    }
    end(&elsewhere.runtime);
    wrong
}

/// What is left when its job has ended can start nothing: the job's budget went back.
#[test]
fn destructors_of_what_no_code_takes_can_start_nothing() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .profile(Profile::Service)
        .build()
        .unwrap();
    let (tell, told) = mpsc::channel();
    let leaves = move |name: &'static str| {
        let tell = tell.clone();
        OnDrop(Some(Box::new(move || {
            // Not joined: the job that the code runs in may be cancelled.
            let spawned = Runtime::global().spawn(|| Ok(()));
            until(|| spawned.job().is_ended());
            let error = spawned.job().error();
            let refused = error.is_some_and(|error| messages(&error).contains("no spawns left"));
            tell.send((name, refused)).unwrap();
        })))
    };
    let go = Arc::new(jobtree_pool::OnceLatch::new());
    let outcome = runtime.nursery(|n| {
        let later = Arc::clone(&go);
        let value = leaves("value");
        drop(n.spawn(move || {
            later.wait();
            Ok(value)
        }));
        go.set();
        let captured = leaves("closure of a job that never began");
        let never = n.spawn(|| {
            let _captured = captured;
            Ok(())
        });
        never.cancel("before it begins");
        let captured = leaves("future of a cancelled job");
        let pending = n.spawn_future(async move {
            let _captured = captured;
            std::future::pending::<()>().await;
            Ok(())
        });
        until(|| pending.job().state() == jobtree_runtime::JobState::Active);
        pending.cancel("while it waits");
        let _ = (never.join(), pending.join());
        Ok(())
    });
    outcome.unwrap();
    for _ in 0..3 {
        let (name, refused) = told.recv_timeout(FAR).unwrap();
        assert!(refused, "the {name} left the limits of its job");
    }
    end(&runtime);
}
