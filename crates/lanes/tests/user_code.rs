//! Every place where a manager calls the program's code, and what that code may do there.
//!
//! Each cell runs in a process of its own with a time limit. The place decides when the code is called, the deed what it
//! does. Afterwards the manager, or a new one on the same runtime, still works, and the runtime can be shut down.

#[path = "../../runtime/tests/support/child.rs"]
#[allow(dead_code, reason = "each test program uses its own part of this")]
mod child;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use child::run_in_child;
use jobtree_base::user_code::discard_payload;
use jobtree_lanes::remote::{Answer, RemoteError, RemoteRequest, RemoteResponse, RemoteTransport};
use jobtree_lanes::{Callbacks, JobManager, Lane, LaneJob, Priority, PumpLimit, Step};
use jobtree_runtime::{BoxError, CancelToken, Job, Runtime};

/// Far longer than any cell needs, also on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(8);

/// What the program's code does when it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Panic,
    /// Panics with a payload whose destructor panics with another one, and so on.
    PanicNested,
    /// Does nothing when it is called, and panics when it is dropped.
    PanicInDrop,
    Schedule,
    /// Schedules on the lane that is pumped, and pumps it.
    Pump,
    /// Asks for everything that a manager can tell.
    Look,
    /// Waits for another job.
    Wait,
    /// Waits for the job that it belongs to, for a moment.
    WaitForItself,
    Cancel,
    Shutdown,
    DropManager,
    EndRuntime,
}

const DEEDS: [Deed; 12] = [
    Deed::Panic,
    Deed::PanicNested,
    Deed::PanicInDrop,
    Deed::Schedule,
    Deed::Pump,
    Deed::Look,
    Deed::Wait,
    Deed::WaitForItself,
    Deed::Cancel,
    Deed::Shutdown,
    Deed::DropManager,
    Deed::EndRuntime,
];

/// A payload, value or captured state whose destructor panics, `0` times more than it was dropped.
struct PanicsOnDrop(usize);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(PanicsOnDrop(self.0 - 1));
        }
    }
}

/// What a cell works with.
struct World {
    runtime: Runtime,
    manager: Mutex<Option<JobManager>>,
    deed: Deed,
    calls: AtomicUsize,
    token: CancelToken,
}

impl World {
    fn new(deed: Deed, describe: impl FnOnce(&Arc<World>) -> JobManager) -> Arc<World> {
        let runtime = Runtime::builder().workers(2).build().unwrap();
        let world = Arc::new(World {
            runtime,
            manager: Mutex::new(None),
            deed,
            calls: AtomicUsize::new(0),
            token: CancelToken::new(),
        });
        let manager = describe(&world);
        manager.bind_lane(&Lane::Main).unwrap();
        *world.manager.lock().unwrap() = Some(manager);
        world
    }

    fn plain(deed: Deed) -> Arc<World> {
        World::new(deed, |world| {
            let builder = JobManager::builder().runtime(&world.runtime);
            builder.build().unwrap()
        })
    }

    fn manager(&self) -> Option<JobManager> {
        self.manager.lock().unwrap().clone()
    }

    fn was_called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// The program's code.
    fn act(&self) {
        struct Done<'a>(&'a World);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.was_called();
            }
        }
        // When it is done, so that nothing is checked while it is at it.
        let _done = Done(self);
        match self.deed {
            Deed::Panic => panic!("the program's code"),
            Deed::PanicNested => panic_any(PanicsOnDrop(3)),
            Deed::PanicInDrop => {}
            Deed::Schedule => {
                if let Some(manager) = self.manager() {
                    drop(manager.schedule(LaneJob::action(|| Ok(()))));
                    drop(manager.schedule(LaneJob::action(|| Ok(())).lane(Lane::Main)));
                }
            }
            Deed::Pump => {
                if let Some(manager) = self.manager() {
                    drop(manager.schedule(LaneJob::action(|| Ok(())).lane(Lane::Main)));
                    // A thread that pumps already, or another one does: an error, and never a hang.
                    let _ = manager.pump(&Lane::Main, PumpLimit::unlimited());
                    manager.process();
                }
            }
            Deed::Look => {
                if let Some(manager) = self.manager() {
                    let _ = manager.stats();
                    let _ = manager.tracker().view();
                    let _ = (manager.slots(), manager.queued(&Lane::Main));
                    let _ = manager.average_wait(Priority::Normal);
                    let _ = self.runtime.dump_tree();
                    let _ = self.runtime.counters();
                }
            }
            Deed::Wait => {
                if let Some(manager) = self.manager() {
                    let other = manager.schedule(LaneJob::action(|| Ok(7)));
                    // Cancelled, if the calling job is.
                    let _ = other.join();
                }
            }
            Deed::WaitForItself => {
                if let (Some(manager), Some(job)) = (self.manager(), Job::current()) {
                    let clock = manager.runtime().clock();
                    clock.wait_regardless(Duration::from_millis(20), job.ended());
                }
            }
            Deed::Cancel => {
                self.token.cancel("by the program's code");
                if let Some(job) = Job::current() {
                    job.cancel("by the program's code");
                }
            }
            Deed::Shutdown => {
                if let Some(manager) = self.manager() {
                    let _ = manager.shutdown(Duration::from_millis(20));
                }
            }
            Deed::DropManager => drop(self.manager.lock().unwrap().take()),
            Deed::EndRuntime => {
                let _ = self.runtime.shutdown(Duration::from_millis(20));
            }
        }
    }

    /// Something that is captured and does its deed when it is dropped, too.
    fn captured(self: &Arc<World>) -> Captured {
        Captured {
            world: Arc::clone(self),
            acts: self.deed == Deed::PanicInDrop,
        }
    }

    /// Something that does its deed when it is dropped, and nowhere else.
    fn destructor(self: &Arc<World>) -> Captured {
        Captured {
            world: Arc::clone(self),
            acts: true,
        }
    }

    /// A function of the program's.
    fn code<A: 'static>(self: &Arc<World>) -> impl Fn(A) + Send + Sync + 'static {
        let captured = self.captured();
        move |_| captured.world.act()
    }

    /// Schedules a job, if there still is a manager; pumps its lane until it has ended.
    fn runs<T, B>(&self, job: LaneJob<T, B>)
    where
        B: jobtree_lanes::JobBody<T>,
        T: Send + 'static,
    {
        let Some(manager) = self.manager() else {
            return;
        };
        let handle = manager.schedule(job.token(self.token.clone()));
        let job = handle.job().clone();
        let began = Instant::now();
        drop(manager);
        // A value that is there already goes with the handle: what its destructor does is this thread's.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(handle))).map_err(discard_payload);
        while !job.is_ended() {
            if let Some(manager) = self.manager() {
                let _ = manager.pump(&Lane::Main, PumpLimit::unlimited());
            }
            assert!(began.elapsed() < LIMIT, "{job:?} does not end");
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// The code was called, and everything still works.
    fn ends(self: Arc<World>) {
        let began = Instant::now();
        while self.calls.load(Ordering::Relaxed) == 0 {
            if let Some(manager) = self.manager() {
                let _ = manager.pump(&Lane::Main, PumpLimit::unlimited());
            }
            assert!(began.elapsed() < LIMIT, "the code was never called");
            thread::sleep(Duration::from_micros(100));
        }
        if matches!(self.deed, Deed::EndRuntime) {
            // The code counts itself before it acts, and may be in the middle of it.
            self.runtime.shutdown(LIMIT).unwrap();
        }
        let is_usable = self
            .manager()
            .is_some_and(|manager| !manager.is_shut_down());
        let manager = match self.manager() {
            Some(manager) if is_usable => Some(manager),
            // With a runtime that has ended there is none.
            _ => JobManager::builder().runtime(&self.runtime).build().ok(),
        };
        if let Some(manager) = manager {
            assert_eq!(
                manager
                    .schedule(LaneJob::action(|| Ok(6 * 7)))
                    .join()
                    .unwrap(),
                42
            );
            let on_main = manager.schedule(LaneJob::action(|| Ok(())).lane(Lane::Main));
            while !on_main.is_finished() {
                manager.pump(&Lane::Main, PumpLimit::unlimited()).unwrap();
            }
            on_main.join().unwrap();
            // Those that the code has scheduled end, too, and give their slots back.
            while manager.slots().in_use > 0 {
                let _ = manager.pump(&Lane::Main, PumpLimit::unlimited());
                assert!(began.elapsed() < LIMIT, "{:?}", manager.slots());
                thread::sleep(Duration::from_micros(100));
            }
            manager.shutdown(LIMIT).unwrap();
        }
        drop(self.manager.lock().unwrap().take());
        self.runtime.shutdown(LIMIT).unwrap();
    }
}

/// See [`World::captured`].
struct Captured {
    world: Arc<World>,
    acts: bool,
}

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.acts {
            return;
        }
        match self.world.deed {
            Deed::PanicInDrop => {
                self.world.was_called();
                panic_any(PanicsOnDrop(2));
            }
            _ => self.world.act(),
        }
    }
}

/// Runs `cell` with every deed, each in a process of its own.
fn with_every_deed(cell: impl Fn(Deed)) {
    let mut failed = Vec::new();
    for (part, deed) in DEEDS.into_iter().enumerate() {
        let ended = run_in_child(part, LIMIT + LIMIT, || cell(deed));
        if let Err(failure) = std::panic::catch_unwind(|| ended.assert_success()) {
            let message = failure
                .downcast_ref::<String>()
                .cloned()
                .unwrap_or_default();
            failed.push(format!("{deed:?}: {message}"));
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {}:\n{}",
        failed.len(),
        DEEDS.len(),
        failed.join("\n")
    );
}

/// Where callbacks are called.
fn places() -> [Callbacks; 3] {
    [
        Callbacks::Inline,
        Callbacks::Lane(Lane::Main),
        Callbacks::Executor(Arc::new(|call| {
            thread::spawn(call);
        })),
    ]
}

fn lanes() -> [Lane; 2] {
    [Lane::Any, Lane::Main]
}

fn nothing() -> Result<(), BoxError> {
    Ok(())
}

#[test]
fn callbacks_of_completion() {
    with_every_deed(|deed| {
        for (place, lane) in places()
            .into_iter()
            .flat_map(|place| lanes().map(|lane| (place.clone(), lane)))
        {
            let world = World::plain(deed);
            let code = world.code::<()>();
            let job = LaneJob::action(nothing).lane(lane).callbacks_on(place);
            world.runs(job.on_completed(move || code(())));
            world.ends();
        }
    });
}

#[test]
fn callbacks_of_cancellation() {
    with_every_deed(|deed| {
        for (place, lane) in places()
            .into_iter()
            .flat_map(|place| lanes().map(|lane| (place.clone(), lane)))
        {
            let world = World::plain(deed);
            let code = world.code::<()>();
            let job = LaneJob::action(nothing).lane(lane).callbacks_on(place);
            world.token.cancel("before it began");
            world.runs(job.on_canceled(move || code(())));
            world.ends();
        }
    });
}

#[test]
fn callbacks_of_failure() {
    with_every_deed(|deed| {
        for (place, lane) in places()
            .into_iter()
            .flat_map(|place| lanes().map(|lane| (place.clone(), lane)))
        {
            let world = World::plain(deed);
            let code = world.code::<()>();
            let job = LaneJob::action(|| -> Result<(), BoxError> { Err("it fails".into()) });
            let job = job.lane(lane).callbacks_on(place);
            world.runs(job.on_faulted(move |_| code(())));
            world.ends();
        }
    });
}

#[test]
fn callbacks_of_progress() {
    with_every_deed(|deed| {
        for (place, lane) in places()
            .into_iter()
            .flat_map(|place| lanes().map(|lane| (place.clone(), lane)))
        {
            let world = World::plain(deed);
            let code = world.code::<()>();
            let job = LaneJob::steps([Step::progress(0.5), Step::NextDispatch]);
            let job = job.lane(lane).callbacks_on(place);
            world.runs(job.on_progress(move |_| code(())));
            world.ends();
        }
    });
}

#[test]
fn executors_of_callbacks() {
    with_every_deed(|deed| {
        let world = World::plain(deed);
        let code = world.code::<()>();
        let executor = Callbacks::Executor(Arc::new(move |call| {
            code(());
            call();
        }));
        world.runs(
            LaneJob::action(nothing)
                .callbacks_on(executor)
                .on_completed(|| ()),
        );
        world.ends();
    });
}

/// A job has three callbacks for its end, of which two are never called.
#[test]
fn destructors_of_callbacks_that_are_never_called() {
    with_every_deed(|deed| {
        for lane in lanes() {
            let world = World::plain(deed);
            let (first, second, third) =
                (world.destructor(), world.destructor(), world.destructor());
            let job = LaneJob::action(nothing).lane(lane);
            let job = job.on_canceled(move || drop(first));
            let job = job.on_faulted(move |_| drop(second));
            world.runs(job.on_progress(move |_| _ = &third));
            world.ends();
        }
    });
}

#[test]
fn destructors_of_bodies_that_never_run() {
    with_every_deed(|deed| {
        for lane in lanes() {
            let world = World::plain(deed);
            let captured = world.destructor();
            world.token.cancel("before it began");
            world.runs(
                LaneJob::action(move || {
                    drop(captured);
                    Ok(())
                })
                .lane(lane),
            );
            world.ends();
        }
    });
}

/// What waits on a pumped lane is dropped by the manager's end.
#[test]
fn destructors_of_bodies_that_the_end_drops() {
    with_every_deed(|deed| {
        let world = World::plain(deed);
        let manager = world.manager().unwrap();
        for _ in 0..3 {
            let captured = world.destructor();
            let job = LaneJob::action(move || {
                drop(captured);
                Ok(())
            })
            .lane(Lane::Main);
            drop(manager.schedule(job));
        }
        let _ = manager.shutdown(LIMIT);
        drop(manager);
        world.ends();
    });
}

#[test]
fn destructors_of_values_and_errors() {
    with_every_deed(|deed| {
        for lane in lanes() {
            let world = World::plain(deed);
            let value = world.destructor();
            world.runs(LaneJob::action(move || Ok(value)).lane(lane.clone()));
            struct Error(Captured);
            impl std::fmt::Debug for Error {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    let _ = &self.0;
                    f.write_str("Error")
                }
            }
            impl std::fmt::Display for Error {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an error")
                }
            }
            impl std::error::Error for Error {}
            let error = Error(world.destructor());
            let job = LaneJob::action(move || -> Result<(), BoxError> { Err(error.into()) });
            world.runs(job.lane(lane));
            world.ends();
        }
    });
}

/// Each replaces the one before; the last one goes with the job.
#[test]
fn destructors_of_payloads() {
    with_every_deed(|deed| {
        for lane in lanes() {
            let world = World::plain(deed);
            // From now on jobs are shown, with their payloads.
            let _ = world.manager().unwrap().tracker();
            let payloads: Vec<Step> = (0..3).map(|_| Step::payload(world.payload())).collect();
            world.runs(LaneJob::steps(payloads).lane(lane));
            world.ends();
        }
    });
}

impl World {
    fn payload(self: &Arc<World>) -> impl Any + Send + Sync {
        self.destructor()
    }
}

#[test]
fn bodies_and_steps() {
    with_every_deed(|deed| {
        for lane in lanes() {
            let world = World::plain(deed);
            let code = world.code::<()>();
            let code = Arc::new(code);
            let (first, second) = (Arc::clone(&code), code);
            let steps = vec![
                Step::action(move || {
                    first(());
                    Ok(())
                }),
                Step::start(move || {
                    second(());
                    Step::NextDispatch
                }),
                Step::wait(std::future::ready(Ok(()))),
            ];
            world.runs(LaneJob::steps(steps).lane(lane));
            world.ends();
        }
    });
}

#[test]
fn listeners_of_notices() {
    with_every_deed(|deed| {
        let world = World::new(deed, |world| {
            let acting = Arc::downgrade(world);
            let captured = Mutex::new(None::<Captured>);
            let builder = JobManager::builder()
                .runtime(&world.runtime)
                .queue_warning(1);
            let builder = builder.on_notice(move |_| {
                let _ = &captured;
                if let Some(world) = acting.upgrade()
                    && world.calls.load(Ordering::Relaxed) < 3
                {
                    world.act();
                }
            });
            builder.build().unwrap()
        });
        world.runs(LaneJob::action(nothing).lane(Lane::Main));
        world.ends();
    });
}

/// A transport that does its deed wherever it is called.
struct Transport {
    world: std::sync::Weak<World>,
    at: &'static str,
}

impl Transport {
    fn at(&self, place: &str) {
        if let Some(world) = self.world.upgrade()
            && place == self.at
        {
            world.act();
        }
    }
}

impl RemoteTransport for Transport {
    fn is_connected(&self) -> bool {
        self.at("is_connected");
        true
    }

    fn send(&self, _: RemoteRequest) -> Answer {
        self.at("send");
        let (world, at) = (self.world.clone(), self.at);
        Box::pin(async move {
            Transport { world, at }.at("answer");
            Err::<RemoteResponse, _>(RemoteError::NoTransport)
        })
    }

    fn close(&self) {
        self.at("close");
    }
}

#[test]
fn transports() {
    with_every_deed(|deed| {
        for at in ["send", "answer"] {
            let world = World::new(deed, |world| {
                let transport = Transport {
                    world: Arc::downgrade(world),
                    at,
                };
                let builder = JobManager::builder().runtime(&world.runtime);
                builder.remote(transport).build().unwrap()
            });
            world.runs(LaneJob::remote(RemoteRequest::new("operation")));
            if deed == Deed::PanicInDrop {
                world.was_called();
            }
            world.ends();
        }
    });
}
