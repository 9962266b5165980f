//! One job system, from a nanosecond fork to an overnight batch.
//!
//! # Two things at once
//!
//! [`join`](join()) runs two closures, in parallel if a worker is free. It costs about as much as a call, so fork
//! wherever there is something to fork:
//!
//! ```
//! fn sum(numbers: &[u64]) -> u64 {
//!     if let [number] = numbers {
//!         return *number;
//!     }
//!     let (left, right) = numbers.split_at(numbers.len() / 2);
//!     let (left, right) = jobtree::join(|| sum(left), || sum(right));
//!     left + right
//! }
//! assert_eq!(sum(&[1, 2, 3, 4, 5]), 15);
//! ```
//!
//! # Loops
//!
//! [`par`] has loops over slices and ranges, searches, reductions and sorts:
//!
//! ```
//! use jobtree::par;
//!
//! let mut words = vec!["stealing", "tree", "job", "work"];
//! par::sort_by_key(&mut words, |word| word.len());
//! let lengths = par::map(&words, |word| word.len());
//! assert_eq!(lengths, [3, 4, 4, 8]);
//! ```
//!
//! # Tasks
//!
//! [`scope`](scope()) starts any number of tasks that may borrow, and ends when all of them have:
//!
//! ```
//! let mut halves = [0, 0];
//! let (first, second) = halves.split_at_mut(1);
//! jobtree::scope(|s| {
//!     s.spawn(|_| first[0] = 1);
//!     s.spawn(|_| second[0] = 2);
//! });
//! assert_eq!(halves, [1, 2]);
//! ```
//!
//! # Jobs
//!
//! [`nursery`](nursery()) is a scope whose tasks are jobs: they return values and errors, have labels and deadlines, and
//! can be cancelled, down to the last fork of a loop. The first one that fails cancels the others:
//!
//! ```
//! use jobtree::{JobError, nursery};
//! use std::time::Duration;
//!
//! let outcome = nursery(|n| {
//!     let page = n.spawn(|| Ok("a page"));
//!     n.job_options()
//!         .label("check")
//!         .timeout(Duration::from_secs(5))
//!         .launch(|| Err("the certificate has expired".into()));
//!     Ok(page.join()?)
//! });
//! let error = outcome.unwrap_err();
//! assert!(error.to_string().ends_with("check failed: the certificate has expired"));
//! ```
//!
//! [`nursery!`] is the same as a block: `spawn f(x);` starts a job, `let y = async g(z);` one whose value is wanted.
//! [`supervisor`](supervisor()) is a scope whose jobs fail alone. [`with_timeout`] limits the time of what it calls, and
//! [`shield`] keeps a cancellation from it while it puts things in order.
//!
//! # Futures
//!
//! A future can be a job, too ([`Nursery::spawn_future`]); a job can wait for a future ([`block_on`]), and a future for a
//! job (a [`JobHandle`] is one). [`future`] has the awaiting forms of what blocks elsewhere. No async runtime is
//! needed, and any may stand beside:
//!
//! ```
//! use jobtree::{future, nursery};
//! use std::time::Duration;
//!
//! let sum = nursery(|n| {
//!     let late = n.spawn_future(async {
//!         future::sleep(Duration::from_millis(1)).await?;
//!         Ok(40)
//!     });
//!     let early = n.spawn(|| Ok(2));
//!     Ok(n.spawn_future(async { Ok(late.await? + early.await?) }).join()?)
//! })?;
//! assert_eq!(sum, 42);
//! # Ok::<(), jobtree::JobError>(())
//! ```
//!
//! # Channels
//!
//! [`channel`] connects jobs, threads and futures; [`select!`] waits for the first of several things; [`sync`] has locks,
//! semaphores, notifications and barriers. A job that waits parks its stack, and stops waiting when it is cancelled:
//!
//! ```
//! use jobtree::{channel, nursery, select};
//! use std::time::Duration;
//!
//! let (sender, receiver) = channel::bounded(8);
//! let first = nursery(|n| {
//!     n.launch(move || Ok(sender.send("a page")?));
//!     let first = select! {
//!         recv(receiver) -> page => page?,
//!         after(Duration::from_secs(5)) => "nothing",
//!     }?;
//!     Ok(first)
//! })?;
//! assert_eq!(first, "a page");
//! # Ok::<(), jobtree::JobError>(())
//! ```
//!
//! [`Nursery::produce`] starts a job that feeds a channel: a [`Producer`].
//!
//! [`channel::oneshot`] carries one answer:
//!
//! ```
//! use jobtree::{channel, nursery};
//!
//! let (requests, received) = channel::bounded::<(u64, channel::OneshotSender<u64>)>(8);
//! let answer = nursery(|n| {
//!     n.launch(move || {
//!         for (number, answer) in received {
//!             answer.send(number * number).ok();
//!         }
//!         Ok(())
//!     });
//!     let (answer, answered) = channel::oneshot();
//!     requests.send((6, answer))?;
//!     drop(requests);
//!     Ok(answered.recv()?)
//! })?;
//! assert_eq!(answer, 36);
//! # Ok::<(), jobtree::JobError>(())
//! ```
//!
//! # Jobs that wait for each other
//!
//! [`sync::RwLock`] lets many read or one write, [`sync::Notify`] wakes jobs that wait for a change, and at a
//! [`sync::Barrier`] they wait for each other:
//!
//! ```
//! use jobtree::nursery;
//! use jobtree::sync::{Barrier, Notify, RwLock};
//!
//! let (prices, barrier, changed) = (RwLock::new(vec![1, 2]), Barrier::new(3), Notify::new());
//! nursery(|n| {
//!     for price in [3, 4] {
//!         let (prices, barrier) = (&prices, &barrier);
//!         n.launch(move || {
//!             prices.write()?.push(price);
//!             barrier.wait()?;
//!             // Both prices are there.
//!             assert_eq!(prices.read()?.iter().sum::<i32>(), 10);
//!             Ok(())
//!         });
//!     }
//!     n.launch(|| {
//!         barrier.wait()?;
//!         changed.notify_one();
//!         Ok(())
//!     });
//!     changed.wait()?;
//!     assert_eq!(prices.read()?.len(), 4);
//!     Ok(())
//! })?;
//! # Ok::<(), jobtree::JobError>(())
//! ```
//!
//! A [`JoinSet`] gives the outcomes of jobs in the order in which they end:
//!
//! ```
//! use jobtree::{JoinSet, sleep, supervisor};
//! use std::time::Duration;
//!
//! let fastest = supervisor(|n| {
//!     let mut answers: JoinSet<&str> = JoinSet::new();
//!     answers.insert(n.spawn(|| {
//!         sleep(Duration::from_secs(3600))?;
//!         Ok("slow")
//!     }));
//!     answers.insert(n.spawn(|| Ok("fast")));
//!     let fastest = answers.join_next().expect("there are two")?;
//!     answers.cancel_all("one answer is enough");
//!     Ok(fastest)
//! })?;
//! assert_eq!(fastest, "fast");
//! # Ok::<(), jobtree::JobError>(())
//! ```
//!
//! # Actors
//!
//! An [`actor`] is a job that owns a state and changes it message by message. A [`Supervisor`](supervision::Supervisor)
//! starts jobs and actors again when they fail, as it is told to:
//!
//! ```
//! use jobtree::actor::{ActorOptions, from_fn};
//! use jobtree::{channel, nursery};
//!
//! let (results, received) = channel::unbounded();
//! nursery(|n| {
//!     let mut total = 0;
//!     let adder = n.actor(ActorOptions::new().label("adder"), from_fn(move |number: u32, _| {
//!         total += number;
//!         Ok(results.send(total)?)
//!     }));
//!     for number in [1, 2, 3] {
//!         adder.send(number)?;
//!     }
//!     Ok(())
//! })?;
//! assert_eq!(received.iter().last(), Some(6));
//! # Ok::<(), jobtree::JobError>(())
//! ```
//!
//! # A job manager
//!
//! A [`JobManager`] schedules jobs by priority and age on a share of the workers, and on threads of the program that pump
//! a [lane](lanes::Lane): the main thread, or any thread at its point in the frame. Jobs go in steps, tell how far they are,
//! and hop from lane to lane:
//!
//! ```
//! use jobtree::JobManager;
//! use jobtree::lanes::{Lane, LaneJob, Priority, PumpLimit};
//!
//! let manager = JobManager::builder().build()?;
//! let job = LaneJob::future(async |context| {
//!     context.progress(0.5).await?;
//!     let shown_by = context.run_on(Lane::Main, || std::thread::current().id()).await?;
//!     Ok(shown_by)
//! });
//! let handle = manager.schedule(job.priority(Priority::High).label("load"));
//! while !handle.is_finished() {
//!     manager.pump(&Lane::Main, PumpLimit::default())?;
//! }
//! assert_eq!(handle.progress(), 1.0);
//! assert_eq!(handle.join()?, std::thread::current().id());
//! # Ok::<(), jobtree::BoxError>(())
//! ```
//!
//! # Work that blocks
//!
//! A worker that waits for the operating system does nothing else. Such work belongs on the threads of a
//! [`Dispatcher`], where it is a job like any other:
//!
//! ```
//! let text = jobtree::Dispatcher::io().run(|| Ok(std::fs::read_to_string("/dev/null")?))?;
//! assert_eq!(text, "");
//! # Ok::<(), jobtree::JobError>(())
//! ```
//!
//! # Budgets
//!
//! A job that computes for long gives way to others after a turn: [`tick`] ends one, and [`#[budgeted]`](macro@budgeted)
//! puts a tick into each loop of a function. In other [profiles](Profile) than the default one, jobs have limits: see
//! [`budget`], with a table of what each profile allows. Limits cannot be left: what a job with limits starts, here or in
//! another runtime or pool, has them, too.
//!
//! # Testing
//!
//! [`sim`] runs a program on one thread, in an order that a seed decides and by a clock that stands still. [`sim::check`]
//! tries many seeds, and names the one with which the program fails:
//!
//! ```
//! use jobtree::{sim, sleep};
//! use std::time::Duration;
//!
//! sim::check(0..20, |rt| {
//!     let early = rt.spawn(|| Ok(sleep(Duration::from_secs(3600))?));
//!     sleep(Duration::from_secs(7200))?;
//!     assert!(early.is_finished());
//!     Ok(())
//! });
//! ```
//!
//! # Pools
//!
//! All of this runs on the global pool, which is made on first use with a worker for each CPU that the process may use
//! (`JOBTREE_WORKERS` changes that). [`Pool::builder`] makes further ones; [`Pool::install`] runs something there.
//!
//! # Features
//!
//! On by default: `lanes`, the job manager; `macros`, `nursery!` and `#[budgeted]`. Who needs neither compiles sooner with
//! `default-features = false`. Off by default: `iter`: the iterators of `orx-parallel` on our pools, in `par::iter`. `tracing`: what happens to jobs,
//! and what a job manager notices, as events there. `durable`: a queue in a file whose jobs survive the
//! process, in `durable`. `tokio`: jobs beside tokio's tasks, in `tokio`.
//! `stream`: receivers as streams of the crate `futures`.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "lanes")]
#[doc(inline)]
pub use jobtree_lanes as lanes;
#[cfg(feature = "lanes")]
pub use jobtree_lanes::JobManager;
#[cfg(feature = "macros")]
pub use jobtree_macros::{budgeted, nursery};
#[doc(inline)]
pub use jobtree_par as par;
pub use jobtree_pool::{
    BroadcastContext, BuildError, Builder, CountLatch, OnceLatch, Pool, PoolStats, Scope,
    ScopeFifo, ShutdownError, StackError, Stopped, Worker, WorkerStart, WorkerStats, Yield,
    broadcast, current_worker_index, current_workers, in_place_scope, in_place_scope_fifo, isolate,
    join, join_each, scope, scope_fifo, spawn, spawn_broadcast, spawn_fifo, stuck_isolated_waits,
    with_worker, yield_local, yield_now,
};
#[cfg(feature = "tokio")]
#[doc(inline)]
pub use jobtree_runtime::tokio;
pub use jobtree_runtime::{
    BoxError, CancelCallback, CancelOnDrop, CancelReason, CancelToken, Cancelled, Cause, Counters,
    DispatchedSpawner, Dispatcher, DispatcherError, DrainError, DropGuard, Event, EventKind,
    Failure, Interval, Job, JobError, JobHandle, JobId, JobInfo, JobLocal, JobState, JoinSet,
    Lacking, Nursery, NurseryState, Outcome, Panic, Producer, Profile, Recorded, Runtime,
    RuntimeBuilder, ShutdownError as RuntimeShutdownError, Spawner, TimedOut, TreeDump, WaitingFor,
    block_on, checkpoint, interval, labelled_nursery, nursery, race, select, select_async, shield,
    sleep, supervisor, tick, tick_async, with_local, with_timeout,
};
#[doc(inline)]
pub use jobtree_runtime::{actor, budget, channel, future, sim, supervision, sync, user_code};
#[cfg(feature = "durable")]
#[doc(inline)]
pub use jobtree_scheduler::durable;

/// The programs in README.md, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The programs in docs/recipes.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/recipes.md")]
struct Recipes;
