//! Between a manager and its transport: where remote jobs wait until they may be sent, best first.
//!
//! A remote job is a job of the remote lane. Its dispatch costs a worker next to nothing: it enters here, and waits. The
//! [loop](super::lane) admits as many at a time as may be under way, by the same order as every lane has, age and priority;
//! a job that is admitted hands its request to the transport, and leaves with the answer, or when it is cancelled.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jobtree_base::user_code::Place;
use jobtree_base::user_owned::UserOwned;
use jobtree_runtime::future::Nursery;
use jobtree_runtime::{BoxError, Clock};

use super::lane::IDLE;
use super::transport::within;
use super::waiting::Watched;
use super::{
    RemoteError, RemoteLane, RemoteQueue, RemoteRequest, RemoteResponse, RemoteTransport,
    RemoteWork,
};
use crate::bodies::JobBody;
use crate::context::Context;
use crate::dependencies::cancel_self;
use crate::handle::LaneHandle;
use crate::job::LaneJob;
use crate::lane::Lane;
use crate::lock::lock;
use crate::manager::JobManager;
use crate::moment::Moment;
use crate::priority::Priority;
use crate::queue::LaneQueue;

/// A transport of the program's, whose destructor may do anything.
type Transport = UserOwned<Arc<dyn RemoteTransport>>;

fn owned(transport: Arc<dyn RemoteTransport>) -> Transport {
    UserOwned::new(Place::Captured, transport)
}

/// See the module's head.
pub(crate) struct RemoteGate {
    /// What carries the requests that are sent from now on.
    transport: Mutex<Option<Transport>>,
    lane: RemoteLane<Entrance>,
}

impl RemoteGate {
    /// The loop is a job in `nursery`; time is counted by `clock` from `beginning` on.
    pub(crate) fn new(
        transport: Option<Arc<dyn RemoteTransport>>,
        max_under_way: usize,
        nursery: Nursery,
        clock: Clock,
        beginning: Instant,
        aging: Duration,
    ) -> RemoteGate {
        let entrance = Entrance {
            queue: Mutex::new(LaneQueue::new(aging)),
            waiting: Default::default(),
            gone: AtomicUsize::new(0),
            clock,
            beginning,
        };
        RemoteGate {
            transport: Mutex::new(transport.map(owned)),
            lane: RemoteLane::in_nursery(nursery, entrance, max_under_way, IDLE),
        }
    }

    /// Has `transport` carry the requests that are sent from now on.
    fn set_transport(&self, transport: Arc<dyn RemoteTransport>) {
        let before = lock(&self.transport).replace(owned(transport));
        // Not under the lock: it may be the last that refers to the transport.
        drop(before);
    }

    fn transport(&self) -> Option<Transport> {
        let transport = lock(&self.transport);
        transport
            .as_ref()
            .map(|transport| owned(Arc::clone(transport)))
    }

    /// Returns `true` if requests can be sent.
    pub(crate) fn has_transport(&self) -> bool {
        lock(&self.transport).is_some()
    }

    /// How many wait here.
    pub(crate) fn queued(&self) -> usize {
        let waiting = self.lane.queue().waiting.iter();
        waiting.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// How many of this priority wait here.
    pub(crate) fn queued_at(&self, priority: Priority) -> usize {
        self.lane.queue().waiting[priority.index()].load(Ordering::Relaxed)
    }

    /// Whether the loop is there.
    pub(crate) fn is_running(&self) -> bool {
        self.lane.is_running()
    }

    /// Sends a request when it is its turn, and tells how long that took. Its time counts from `first` on, when its job was
    /// scheduled.
    async fn carry(
        &self,
        first: Option<Moment>,
        priority: Priority,
        mut request: RemoteRequest,
        sent_after: impl FnOnce(Duration),
    ) -> Result<RemoteResponse, RemoteError> {
        let entrance = self.lane.queue();
        let first = first.unwrap_or_else(|| entrance.now());
        let left = |limit: Duration| limit.saturating_sub(entrance.now().since(first));
        let entered = entrance.now();
        let visit = entrance.enter(priority, first);
        self.lane.wake();
        let not_sent = || RemoteError::NotConnected("other requests were before it".to_owned());
        within(request.timeout.map(left), not_sent, visit.admitted()).await?;
        sent_after(entrance.now().since(entered));
        request.timeout = request.timeout.map(left);
        // One that is set meanwhile carries the requests after this one.
        let transport = self.transport().ok_or(RemoteError::NoTransport)?;
        let answer = transport.send(request).await;
        drop(visit);
        answer
    }
}

/// Those who wait.
struct Entrance {
    queue: Mutex<LaneQueue<Arc<Visitor>>>,
    /// How many of each priority.
    waiting: [AtomicUsize; Priority::COUNT],
    /// How many are in the queue that have gone.
    gone: AtomicUsize,
    clock: Clock,
    beginning: Instant,
}

struct Visitor {
    priority: Priority,
    first: Moment,
    stage: Watched<Stage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waits,
    Admitted,
    Gone,
}

/// A visitor, until this is dropped.
struct Visit<'a> {
    entrance: &'a Entrance,
    visitor: Arc<Visitor>,
}

/// From so many on it is worth while to look for those that have gone.
const MANY_GONE: usize = 64;

impl Entrance {
    fn now(&self) -> Moment {
        Moment::between(self.beginning, self.clock.now())
    }

    fn enter(&self, priority: Priority, first: Moment) -> Visit<'_> {
        let visitor = Arc::new(Visitor {
            priority,
            first,
            stage: Watched::new(Stage::Waits),
        });
        self.waiting[priority.index()].fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        lock(&self.queue).push_again(Arc::clone(&visitor), priority, first, now);
        Visit {
            entrance: self,
            visitor,
        }
    }

    /// One has gone before it was admitted. It is found out when it is its turn; unless so many have gone that the queue
    /// would be full of them.
    fn note_gone(&self) {
        let gone = self.gone.fetch_add(1, Ordering::Relaxed) + 1;
        if gone < MANY_GONE {
            return;
        }
        let now = self.now();
        let mut queue = lock(&self.queue);
        if gone * 2 < queue.len() {
            return;
        }
        self.gone.store(0, Ordering::Relaxed);
        let mut dropped = Vec::new();
        for visitor in queue.drain() {
            match visitor.stage.look(|stage| *stage) {
                Stage::Waits => {
                    let (priority, first) = (visitor.priority, visitor.first);
                    queue.push_again(visitor, priority, first, now);
                }
                Stage::Admitted | Stage::Gone => dropped.push(visitor),
            }
        }
        drop(queue);
        // Not under the lock.
        drop(dropped);
    }
}

impl RemoteQueue for Entrance {
    fn take(&self) -> Option<RemoteWork> {
        loop {
            let now = self.now();
            let visitor = lock(&self.queue).pop(now)?.job;
            let is_admitted = visitor.stage.change(|stage| {
                let waits = *stage == Stage::Waits;
                if waits {
                    *stage = Stage::Admitted;
                }
                waits
            });
            if is_admitted {
                self.waiting[visitor.priority.index()].fetch_sub(1, Ordering::Relaxed);
                return Some(Box::pin(async move {
                    let gone = |stage: &mut Stage| (*stage == Stage::Gone).then_some(());
                    visitor.stage.until(gone).await;
                }));
            }
            // It has gone, and was counted so a moment ago, or will be in a moment.
            let less = |gone: usize| gone.checked_sub(1);
            let _ = self
                .gone
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

impl Visit<'_> {
    async fn admitted(&self) -> Result<(), RemoteError> {
        let admitted = |stage: &mut Stage| (*stage == Stage::Admitted).then_some(());
        self.visitor.stage.until(admitted).await;
        Ok(())
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let visitor = &self.visitor;
        let before = visitor
            .stage
            .change(|stage| std::mem::replace(stage, Stage::Gone));
        if before == Stage::Waits {
            self.entrance.waiting[visitor.priority.index()].fetch_sub(1, Ordering::Relaxed);
            self.entrance.note_gone();
        }
    }
}

impl LaneJob<RemoteResponse> {
    /// A job that is done by the peer of the manager's transport. It has the request's priority; its time counts from
    /// scheduling on. Cancelled, it cancels what the peer does.
    ///
    /// It completes with whatever the peer answers, be it of a failure. It fails with the [`RemoteError`] that kept the
    /// answer away, and is cancelled if the transport is closed.
    ///
    /// ```
    /// use jobtree_lanes::remote::{MemoryTransport, RemoteRequest, RemoteService};
    /// use jobtree_lanes::{JobManager, LaneJob, Priority};
    /// use jobtree_runtime::{CancelToken, Runtime};
    ///
    /// let service = RemoteService::new("shouter");
    /// service.handle("shout", |request| Ok(request.payload.to_ascii_uppercase()));
    /// let runtime = Runtime::global();
    /// let transport = MemoryTransport::new(runtime, "me", &service);
    /// let manager = JobManager::builder().runtime(runtime).remote(transport).build()?;
    ///
    /// let token = CancelToken::new();
    /// let request = RemoteRequest::new("shout").payload("hello").priority(Priority::High);
    /// let handle = manager.schedule(LaneJob::remote(request).token(token));
    /// assert_eq!(handle.join()?.into_payload()?, b"HELLO");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remote(request: RemoteRequest) -> LaneJob<RemoteResponse, impl JobBody<RemoteResponse>> {
        let priority = request.priority;
        let label = format!("remote {}", request.operation);
        LaneJob::future(move |context| carried(context, request))
            .priority(priority)
            .lane(Lane::Remote)
            .label(label)
            .kind("remote")
    }
}

/// What a remote job does.
async fn carried(context: Context, request: RemoteRequest) -> Result<RemoteResponse, BoxError> {
    let header = context.header();
    let shared = &header.shared;
    if !shared.gate.has_transport() {
        return Err(RemoteError::NoTransport.into());
    }
    let sent_after = |waited| shared.note_sent(header, waited);
    let answer = shared.gate.carry(
        header.first_enqueued(),
        header.priority,
        request,
        sent_after,
    );
    match answer.await {
        Ok(response) => Ok(response),
        Err(RemoteError::Cancelled) => Err(cancel_self("the remote transport is closed")),
        Err(error) => Err(error.into()),
    }
}

impl JobManager {
    /// Schedules a [remote job](LaneJob::remote). As [`schedule`](JobManager::schedule) does, it waits for a slot.
    ///
    /// Without a transport ([`JobManagerBuilder::remote`](crate::JobManagerBuilder::remote), [`set_remote`](JobManager::set_remote)) the job
    /// has failed at once.
    pub fn schedule_remote(&self, request: RemoteRequest) -> LaneHandle<RemoteResponse> {
        self.schedule(LaneJob::remote(request))
    }

    /// Whether the loop of the remote lane is there: from the first remote job on, until there was none for 30 s.
    pub fn is_remote_lane_running(&self) -> bool {
        self.shared().gate.is_running()
    }

    /// Has `transport` carry the remote jobs from now on, in place of the one that did so before. Requests that were sent stay with the
    /// transport that carries them. The manager closes neither.
    ///
    /// ```
    /// use jobtree_lanes::JobManager;
    /// use jobtree_lanes::remote::{MemoryTransport, RemoteRequest, RemoteService};
    /// use jobtree_runtime::Runtime;
    ///
    /// let manager = JobManager::builder().build()?;
    /// let early = manager.schedule_remote(RemoteRequest::new("shout"));
    /// assert!(early.join().is_err(), "there is no transport yet");
    ///
    /// let service = RemoteService::new("shouter");
    /// service.handle("shout", |request| Ok(request.payload.to_ascii_uppercase()));
    /// manager.set_remote(MemoryTransport::new(Runtime::global(), "me", &service));
    /// let answer = manager.schedule_remote(RemoteRequest::new("shout").payload("hello"));
    /// assert_eq!(answer.join()?.into_payload()?, b"HELLO");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_remote(&self, transport: impl RemoteTransport + 'static) {
        self.shared().gate.set_transport(Arc::new(transport));
    }
}
