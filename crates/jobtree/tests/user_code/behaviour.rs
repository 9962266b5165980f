//! What user code does when the library calls it.

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use jobtree::{
    Dispatcher, Job, JobLocal, OnceLatch, Runtime, block_on, budget, channel, checkpoint,
    current_worker_index, future, isolate, join, nursery, par, scope, sleep,
};

use crate::leaks;
use crate::stage::{Guard, PanickingPayload, Stage};

/// A time that passes while a cell runs.
pub const SHORT: Duration = Duration::from_millis(1);

/// The time that a shutdown inside of user code may take.
const LIMIT_INSIDE: Duration = Duration::from_millis(50);

/// The time after which a call with a time limit counts as one that ignores it. Generous: the machine may be busy.
pub const MUCH_LATER: Duration = Duration::from_secs(4);

/// A job local that no cell sets.
static UNSET: JobLocal<u32> = JobLocal::new();

macro_rules! behaviours {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One column of the matrix.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Behaviour {
            $($(#[$doc])* $variant,)*
        }

        impl Behaviour {
            /// Every behaviour, in the order of the report.
            pub const ALL: &[Behaviour] = &[$(Behaviour::$variant),*];

            /// The name in a cell's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Behaviour::$variant => $name,)*
                }
            }
        }
    };
}

behaviours! {
    /// Does nothing: the program of the place is right.
    Nothing = "nothing",
    /// Panics.
    Panic = "panic",
    /// Panics with a payload whose destructor panics.
    PanicPayload = "panic-payload",
    /// Panics, and a destructor on the way waits for a parked job of the same runtime.
    PanicWait = "panic-wait",
    /// Panics, and a destructor on the way forks.
    PanicFork = "panic-fork",
    /// Sleeps by the library's clock.
    Sleep = "sleep",
    /// Joins a job of the global runtime.
    JoinOther = "join-other",
    /// Joins a job of the same runtime.
    JoinSame = "join-same",
    /// Waits for the end of the job that the code belongs to, and of the jobs above: one of them may be ending by this very
    /// call. If that takes long, the topmost one is cancelled.
    JoinEnding = "join-ending",
    /// Receives a message that another thread sends later.
    Receive = "receive",
    /// Waits for a latch that another thread sets later.
    Latch = "latch",
    /// Blocks on a future that sleeps.
    BlockOn = "block-on",
    /// Has a closure run by the global runtime's blocking threads.
    Dispatch = "dispatch",
    /// Forks with `join`.
    ForkJoin = "fork-join",
    /// Forks with `scope`.
    ForkScope = "fork-scope",
    /// Runs a parallel loop.
    ForkLoop = "fork-loop",
    /// Opens a nursery and joins its jobs.
    ForkNursery = "fork-nursery",
    /// Forks in isolation.
    Isolate = "isolate",
    /// Asks for the current job and everything about it.
    Ask = "ask",
    /// Calls the methods of the object that calls the code.
    Reenter = "reenter",
    /// Drops the last handle of the runtime, pool and manager.
    DropHandles = "drop-handles",
    /// Shuts the runtime, pool and manager down.
    Shutdown = "shutdown",
    /// Cancels the job that the code belongs to.
    CancelOwn = "cancel-own",
    /// Cancels the parent of that job.
    CancelParent = "cancel-parent",
    /// Cancels the root of the runtime.
    CancelRoot = "cancel-root",
    /// Leaks handles, guards and futures that were polled.
    Leak = "leak",
    /// Spawns jobs and tasks that outlive the call.
    Spawn = "spawn",
    /// Spawns a thousand jobs.
    SpawnMany = "spawn-many",
    /// Does not return until a shutdown with a time limit was over.
    Hold = "hold",
}

impl Behaviour {
    /// The behaviours with which user code ends by a panic.
    pub const PANICS: &[Behaviour] = &[
        Behaviour::Panic,
        Behaviour::PanicPayload,
        Behaviour::PanicWait,
        Behaviour::PanicFork,
    ];

    /// The behaviours that wait, for whatever it is.
    pub const WAITS: &[Behaviour] = &[
        Behaviour::PanicWait,
        Behaviour::PanicFork,
        Behaviour::Sleep,
        Behaviour::JoinOther,
        Behaviour::JoinSame,
        Behaviour::JoinEnding,
        Behaviour::Receive,
        Behaviour::Latch,
        Behaviour::BlockOn,
        Behaviour::Dispatch,
        Behaviour::ForkJoin,
        Behaviour::ForkScope,
        Behaviour::ForkLoop,
        Behaviour::ForkNursery,
        Behaviour::Isolate,
        Behaviour::Shutdown,
    ];

    /// Returns `true` if the user code ends by a panic.
    pub fn panics(self) -> bool {
        Behaviour::PANICS.contains(&self)
    }

    /// Returns `true` if jobs of the runtime may end cancelled because of it.
    pub fn cancels(self) -> bool {
        use Behaviour::*;
        matches!(
            self,
            DropHandles | Shutdown | CancelOwn | CancelParent | CancelRoot | Hold | JoinEnding
        )
    }
}

/// Does what the cell is about.
pub fn perform(stage: &Arc<Stage>) {
    match stage.behaviour {
        Behaviour::Nothing => (),
        Behaviour::Panic => panic!("planned panic"),
        Behaviour::PanicPayload => panic_any(PanickingPayload),
        Behaviour::PanicWait => panic_and_wait(stage),
        Behaviour::PanicFork => {
            let _forks = Guard::new(fork_everything);
            panic!("planned panic");
        }
        Behaviour::Sleep => drop(sleep(SHORT)),
        Behaviour::JoinOther => drop(Runtime::global().spawn(|| Ok(sleep(SHORT)?)).join()),
        Behaviour::JoinSame => drop(stage.some_runtime().spawn(|| Ok(sleep(SHORT)?)).join()),
        Behaviour::JoinEnding => join_ending(stage),
        Behaviour::Receive => receive(),
        Behaviour::Latch => wait_for_latch(),
        Behaviour::BlockOn => drop(block_on(future::sleep(SHORT))),
        Behaviour::Dispatch => drop(Dispatcher::io().run(|| Ok(1))),
        Behaviour::ForkJoin => fork_join(),
        Behaviour::ForkScope => fork_scope(),
        Behaviour::ForkLoop => fork_loop(),
        Behaviour::ForkNursery => fork_nursery(),
        Behaviour::Isolate => isolate(|| {
            fork_join();
            fork_nursery();
        }),
        Behaviour::Ask => ask(stage),
        Behaviour::Reenter => stage.reenter(),
        Behaviour::DropHandles => stage.drop_handles(),
        Behaviour::Shutdown => shut_down(stage),
        Behaviour::CancelOwn => cancel(stage.own_job()),
        Behaviour::CancelParent => cancel(stage.own_job().and_then(|job| job.parent())),
        Behaviour::CancelRoot => cancel(Some(stage.some_root())),
        Behaviour::Leak => leaks::leak_everything(&stage.some_runtime()),
        Behaviour::Spawn => spawn(stage, 1),
        Behaviour::SpawnMany => spawn(stage, 1000),
        Behaviour::Hold => stage.hold(),
    }
}

fn panic_and_wait(stage: &Arc<Stage>) {
    let runtime = stage.some_runtime();
    let (sender, receiver) = channel::bounded::<()>(1);
    let parked = runtime.spawn(move || Ok(receiver.recv().unwrap_or(())));
    drop(runtime);
    let _ = sleep(SHORT);
    let _waits = Guard::new(move || {
        let _ = sender.send(());
        let _ = parked.join();
        let _ = sleep(SHORT);
    });
    panic!("planned panic");
}

/// Part of the message with which the library refuses a wait for a job that the waiting code ends.
pub const WAITS_FOR_ITSELF: &str = "waits for its own end";

/// The time after which the job that waits for itself is cancelled. Picked so that most waits that end by themselves have.
const UNTIL_CANCELLED: Duration = Duration::from_millis(100);

fn join_ending(stage: &Arc<Stage>) {
    let jobs: Vec<Job> = iter::successors(stage.own_job(), Job::parent)
        .take_while(|job| job.parent().is_some())
        .collect();
    // The body of a job may wait for its own job: until it is cancelled, as in every other wait.
    let (done, is_done) = mpsc::channel::<()>();
    let topmost = jobs.last().cloned();
    let canceller = std::thread::spawn(move || {
        if is_done.recv_timeout(UNTIL_CANCELLED) == Err(RecvTimeoutError::Timeout) {
            cancel(topmost);
        }
    });
    for job in &jobs {
        let waited = catch_unwind(AssertUnwindSafe(|| block_on(job.ended())));
        if let Err(payload) = waited {
            let message = payload.downcast_ref::<String>();
            assert!(message.is_some_and(|message| message.contains(WAITS_FOR_ITSELF)));
        }
    }
    drop(done);
    canceller.join().unwrap();
}

fn receive() {
    let (sender, receiver) = channel::bounded(1);
    let other = std::thread::spawn(move || {
        std::thread::sleep(SHORT);
        let _ = sender.send(1);
    });
    let _ = receiver.recv();
    other.join().unwrap();
}

fn wait_for_latch() {
    let latch = Arc::new(OnceLatch::new());
    let setter = Arc::clone(&latch);
    let other = std::thread::spawn(move || {
        std::thread::sleep(SHORT);
        setter.set();
    });
    latch.wait();
    other.join().unwrap();
}

fn fork_join() {
    let (left, right) = join(|| 1, || join(|| 2, || 3));
    assert_eq!((left, right), (1, (2, 3)));
}

fn fork_scope() {
    let count = AtomicUsize::new(0);
    scope(|s| {
        for _ in 0..8 {
            s.spawn(|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(count.into_inner(), 8);
}

fn fork_loop() {
    let squares = par::map(0..2000_u64, |number| number * number);
    assert_eq!(squares.len(), 2000);
}

fn fork_nursery() {
    // The caller's job may be cancelled, and then so is this.
    let _ = nursery(|n| {
        let first = n.spawn(|| Ok(sleep(SHORT)?));
        let second = n.spawn_future(async {
            future::yield_now().await;
            Ok(2)
        });
        first.join()?;
        Ok(second.join()?)
    });
}

fn fork_everything() {
    // A job that was cancelled unwinds at its next fork, which would be a second panic here.
    if checkpoint().is_ok() {
        fork_join();
        fork_scope();
        fork_loop();
        fork_nursery();
    }
}

fn ask(stage: &Arc<Stage>) {
    let _ = (checkpoint(), current_worker_index(), budget::remaining());
    let jobs = Job::current().into_iter().chain(stage.own_job());
    for job in jobs {
        let _ = (job.path(), job.label(), job.state(), job.age());
        let _ = (job.children(), job.deadline(), job.parent(), job.error());
        let _ = (job.local(&UNSET), job.cancellation(), job.waiting_for());
        let _ = budget::of(&job);
        let _ = format!("{job:?}");
    }
    let _ = (UNSET.get(), jobtree::sim::elapsed());
}

fn shut_down(stage: &Arc<Stage>) {
    let began = Instant::now();
    stage.shut_down(LIMIT_INSIDE);
    assert!(
        began.elapsed() < MUCH_LATER,
        "a shutdown took much longer than its limit"
    );
}

fn cancel(job: Option<Job>) {
    if let Some(job) = job {
        job.cancel("planned");
    }
}

fn spawn(stage: &Arc<Stage>, count: usize) {
    let runtime = stage.some_runtime();
    for _ in 0..count {
        drop(runtime.spawn(|| Ok(())));
    }
    drop(runtime.spawn_future(async { Ok(future::sleep(SHORT).await?) }));
    drop(Runtime::global().spawn(|| Ok(sleep(SHORT)?)));
    jobtree::spawn(|| ());
}
