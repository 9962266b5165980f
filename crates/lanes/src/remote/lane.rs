//! The loop that has remote work done: it is there only while there is some.
//!
//! # Protocol
//!
//! Whoever queues something calls [`RemoteLane::wake`] afterwards. The first call starts the loop, as a job of the runtime;
//! it takes from the queue whenever it may have one more under way, and ends when nothing was queued or under way for a
//! while. "It has been woken" and "it runs" are changed under one lock: a wake either finds the loop running, which then
//! looks into the queue once more before it ends, or starts another.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jobtree_runtime::future::Nursery;
use jobtree_runtime::{BoxError, Runtime, future};

use super::waiting::{First, Watched, first_of};

/// Something to be done: over when the request has its answer, and whoever waits for it knows.
pub type RemoteWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where the loop finds its work.
pub trait RemoteQueue: Send + Sync + 'static {
    /// What is to be done next, best first.
    fn take(&self) -> Option<RemoteWork>;
}

/// How long the loop stays without work, if nothing else is said.
pub(crate) const IDLE: Duration = Duration::from_secs(30);

/// How many requests are under way at a time, if nothing else is said.
pub(crate) const MAX_UNDER_WAY: usize = 64;

/// Has the work of a [`RemoteQueue`] done, so many pieces at a time.
///
/// ```
/// use std::collections::VecDeque;
/// use std::sync::Mutex;
/// use jobtree_lanes::remote::{RemoteLane, RemoteQueue, RemoteWork};
/// use jobtree_runtime::{Runtime, channel};
///
/// struct Queue(Mutex<VecDeque<RemoteWork>>);
///
/// impl RemoteQueue for Queue {
///     fn take(&self) -> Option<RemoteWork> {
///         self.0.lock().unwrap().pop_front()
///     }
/// }
///
/// let runtime = Runtime::builder().workers(1).build()?;
/// let lane = RemoteLane::new(&runtime, Queue(Mutex::default()));
/// let (sender, receiver) = channel::bounded(1);
/// let work = Box::pin(async move { sender.try_send("done").unwrap() });
/// lane.queue().0.lock().unwrap().push_back(work);
/// lane.wake();
/// assert_eq!(receiver.recv()?, "done");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RemoteLane<Q> {
    home: Home,
    idle: Duration,
    shared: Arc<Shared<Q>>,
}

/// Where the loop is a job.
enum Home {
    Root(Runtime),
    Nursery(Nursery),
}

struct Shared<Q> {
    queue: Q,
    max_under_way: usize,
    state: Watched<State>,
}

#[derive(Default)]
struct State {
    is_running: bool,
    /// Something was queued, or has ended, since the loop last looked.
    is_woken: bool,
    under_way: usize,
    /// How many loops there were.
    loops: u64,
}

impl<Q: RemoteQueue> RemoteLane<Q> {
    /// A lane in which 64 pieces of work are under way at most, and whose loop ends after 30 s without any.
    pub fn new(runtime: &Runtime, queue: Q) -> RemoteLane<Q> {
        RemoteLane::with_limits(runtime, queue, MAX_UNDER_WAY, IDLE)
    }

    /// A lane in which so many pieces of work are under way at most (at least one), and whose loop ends after `idle`
    /// without any.
    pub fn with_limits(
        runtime: &Runtime,
        queue: Q,
        max_under_way: usize,
        idle: Duration,
    ) -> RemoteLane<Q> {
        RemoteLane::at(Home::Root(runtime.clone()), queue, max_under_way, idle)
    }

    /// [`with_limits`](RemoteLane::with_limits), but the loop is a job in `nursery`.
    pub(crate) fn in_nursery(
        nursery: Nursery,
        queue: Q,
        max_under_way: usize,
        idle: Duration,
    ) -> RemoteLane<Q> {
        RemoteLane::at(Home::Nursery(nursery), queue, max_under_way, idle)
    }

    fn at(home: Home, queue: Q, max_under_way: usize, idle: Duration) -> RemoteLane<Q> {
        RemoteLane {
            home,
            idle,
            shared: Arc::new(Shared {
                queue,
                max_under_way: max_under_way.max(1),
                state: Watched::new(State::default()),
            }),
        }
    }

    /// Where it finds its work.
    pub fn queue(&self) -> &Q {
        &self.shared.queue
    }

    /// Something was queued.
    pub fn wake(&self) {
        let starts = self.shared.state.change(|state| {
            state.is_woken = true;
            let starts = !state.is_running;
            state.is_running = true;
            state.loops += u64::from(starts);
            starts
        });
        if starts {
            let running = Running(Arc::clone(&self.shared));
            let drives = drive(running, self.idle);
            drop(match &self.home {
                Home::Root(runtime) => runtime.spawn_future(drives),
                Home::Nursery(nursery) => nursery.spawn_future(drives),
            });
        }
    }

    /// Whether the loop is there.
    pub fn is_running(&self) -> bool {
        self.shared.state.look(|state| state.is_running)
    }

    /// How much is under way.
    pub fn under_way(&self) -> usize {
        self.shared.state.look(|state| state.under_way)
    }

    /// How often a loop was started.
    pub fn loops(&self) -> u64 {
        self.shared.state.look(|state| state.loops)
    }
}

impl<Q> fmt::Debug for RemoteLane<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.state.look(|state| {
            f.debug_struct("RemoteLane")
                .field("is_running", &state.is_running)
                .field("under_way", &state.under_way)
                .finish_non_exhaustive()
        })
    }
}

/// The loop's mark, also of one that is cancelled before it began.
struct Running<Q: RemoteQueue>(Arc<Shared<Q>>);

impl<Q: RemoteQueue> Drop for Running<Q> {
    fn drop(&mut self) {
        self.0.state.change(|state| state.is_running = false);
    }
}

/// One that is under way.
struct UnderWay<Q: RemoteQueue>(Arc<Shared<Q>>);

impl<Q: RemoteQueue> UnderWay<Q> {
    fn new(shared: &Arc<Shared<Q>>) -> UnderWay<Q> {
        shared.state.change(|state| state.under_way += 1);
        UnderWay(Arc::clone(shared))
    }
}

impl<Q: RemoteQueue> Drop for UnderWay<Q> {
    fn drop(&mut self) {
        self.0.state.change(|state| {
            state.under_way -= 1;
            state.is_woken = true;
        });
    }
}

async fn drive<Q: RemoteQueue>(running: Running<Q>, idle: Duration) -> Result<(), BoxError> {
    let shared = Arc::clone(&running.0);
    future::supervisor(async |n| {
        loop {
            let looks = shared.state.change(|state| {
                state.is_woken = false;
                state.under_way
            });
            let mut under_way = looks;
            while under_way < shared.max_under_way
                && let Some(work) = shared.queue.take()
            {
                under_way += 1;
                let counted = UnderWay::new(&shared);
                drop(n.spawn_future(async move {
                    let _counted = counted;
                    work.await;
                    Ok(())
                }));
            }
            let woken = shared.state.until(|state| state.is_woken.then_some(()));
            let patience = match under_way {
                0 => idle,
                _ => Duration::MAX,
            };
            match first_of(woken, future::sleep(patience)).await {
                First::One(()) => {}
                First::Other(over) => {
                    over?;
                    let ends = shared.state.change(|state| {
                        state.is_running = state.is_woken || state.under_way > 0;
                        !state.is_running
                    });
                    if ends {
                        return Ok(());
                    }
                }
            }
        }
    })
    .await?;
    Ok(())
}
