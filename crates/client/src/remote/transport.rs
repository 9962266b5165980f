//! The side that asks.
//!
//! Each request that waits holds a thread, which asks the daemon for the end of its job; there are so many at most, and
//! what is more waits for one of them to be free, while its time runs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jiff::Timestamp;
use jobtree_lanes::remote::{Answer, RemoteError, RemoteRequest, RemoteResponse, RemoteTransport};
use jobtree_protocol::{
    ApiError, ErrorCode, InstanceId, JobId, Json, Late, Priority, SubmitRequest,
};
use jobtree_runtime::future;
use jobtree_worker::reply::{Reply, Result as Told};

use super::carried::{CarriedRequest, answer};
use crate::client::Client;
use crate::error::ClientError;
use crate::worker::Errands;

/// How long the daemon is asked to wait for the end of a job at a time.
const AT_A_TIME: Duration = Duration::from_secs(20);

/// Requests of the remote lane as durable jobs; see the [module](super). Clones are the same one.
///
/// ```no_run
/// use jobtree_client::{Client, remote::DaemonTransport};
/// use jobtree_lanes::remote::{RemoteRequest, RemoteTransport};
/// use jobtree_runtime::Runtime;
///
/// let client = Client::new("http://127.0.0.1:7717")?;
/// let transport = DaemonTransport::builder(client, "game", "asset").build();
/// let answer = transport.send(RemoteRequest::new("load").payload("rock.png"));
/// let bytes = Runtime::global().block_on(answer)??.into_payload()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct DaemonTransport(Arc<Shared>);

/// What is said about a transport before it is there.
#[derive(Debug)]
#[must_use = "there is no transport before `build`"]
pub struct DaemonTransportBuilder {
    client: Client,
    addon: String,
    job_type: String,
    id: Option<String>,
    cost_units: u32,
    timeout: Option<Duration>,
    most_waiting: usize,
}

struct Shared {
    said: DaemonTransportBuilder,
    id: String,
    /// Part of each request's key, so that a repeated submission is one job, and another process's is another.
    instance: InstanceId,
    number: AtomicU64,
    /// The ids that wait for their answers.
    pending: Mutex<HashMap<u64, Arc<Gone>>>,
    is_closed: AtomicBool,
    /// Threads that submit and wait.
    waiting: Errands,
    /// Threads that cancel.
    cancels: Errands,
}

impl DaemonTransport {
    /// A transport whose requests are jobs of this addon and type.
    pub fn builder(
        client: Client,
        addon: impl Into<String>,
        job_type: impl Into<String>,
    ) -> DaemonTransportBuilder {
        DaemonTransportBuilder {
            client,
            addon: addon.into(),
            job_type: job_type.into(),
            id: None,
            cost_units: 1,
            timeout: None,
            most_waiting: 64,
        }
    }

    /// Who it says that it is.
    pub fn id(&self) -> &str {
        &self.0.id
    }
}

impl DaemonTransportBuilder {
    /// Under which name it asks; one that nobody else has, if nothing is said.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// What a request costs of the machine's capacity, 1 to 100; 1 if nothing is said.
    pub fn cost_units(mut self, cost: u32) -> Self {
        self.cost_units = cost;
        self
    }

    /// How long requests may take that do not say it themselves, the wait in the queue included; for ever if nothing is
    /// said.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many requests may wait for their answers at a time; 64 if nothing is said.
    pub fn most_waiting(mut self, most: usize) -> Self {
        self.most_waiting = most.max(1);
        self
    }

    /// The transport. It connects with its first request.
    pub fn build(self) -> DaemonTransport {
        let instance = InstanceId::generate();
        DaemonTransport(Arc::new(Shared {
            id: self.id.clone().unwrap_or_else(|| instance.to_string()),
            instance,
            number: AtomicU64::new(1),
            pending: Mutex::default(),
            is_closed: AtomicBool::new(false),
            waiting: Errands::new("jobtree-remote", self.most_waiting),
            cancels: Errands::new("jobtree-remote", 2),
            said: self,
        }))
    }
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, HashMap<u64, Arc<Gone>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// The name under which `request` is made, and answered.
    fn asker<'a>(&'a self, request: &'a RemoteRequest) -> &'a str {
        request.sender.as_deref().unwrap_or(&self.id)
    }

    /// The request as a job. One that may take only so long is not begun afterwards.
    fn job(
        &self,
        request: &RemoteRequest,
        id: JobId,
        limit: Option<Duration>,
    ) -> Result<SubmitRequest, RemoteError> {
        let payload = Json::of(&CarriedRequest::of(request, self.asker(request)));
        let payload = payload.map_err(|error| RemoteError::Protocol(error.to_string()))?;
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        Ok(SubmitRequest {
            job_id: Some(id),
            payload: Some(payload),
            idempotency_key: Some(format!("remote/{}/{number}", self.instance)),
            priority: priority_of(request),
            // Whoever waits does not want to wait for the night.
            time_sensitive: limit.is_none(),
            deadline_at: limit.and_then(|limit| Timestamp::now().checked_add(limit).ok()),
            late: limit.map_or(Late::Run, |_| Late::Fail),
            ..SubmitRequest::new(
                &*self.said.addon,
                &*self.said.job_type,
                self.said.cost_units,
            )
        })
    }

    /// Submits the job and waits for its end. Blocks.
    fn fetch(&self, request: &RemoteRequest, job: SubmitRequest, gone: &Gone) -> Told<Ended> {
        let client = &self.said.client;
        if gone.is_set() {
            return Ok(Err(RemoteError::Cancelled));
        }
        let id = match client.submit(job) {
            Ok(answer) => answer.job_id,
            Err(error) => return Ok(Err(before(error))),
        };
        if gone.is_set() {
            // Whoever cancelled it may have come before it was there.
            self.cancel(id);
        }
        loop {
            match client.wait_for(id, AT_A_TIME) {
                _ if gone.is_set() => return Ok(Err(RemoteError::Cancelled)),
                Ok(view) if view.state.is_ended() => {
                    return Ok(answer(request, self.asker(request), view));
                }
                Ok(_) => {}
                // The job is on the daemon's disk: it is still there when the daemon is.
                Err(error) if error.is_passing() => std::thread::sleep(Duration::from_millis(200)),
                Err(error) => return Ok(Err(RemoteError::ConnectionLost(error.to_string()))),
            }
        }
    }

    /// Nobody waits for this job any more. It may not be there yet: whoever submits it sees that, too.
    fn cancel(&self, id: JobId) {
        let client = self.said.client.clone();
        let cancel =
            move || match client.cancel(id, Some("its caller no longer waits for the answer")) {
                // It has ended, or never began.
                Err(error) if error.is_passing() => Err(ApiError::from(error)),
                _ => Ok(()),
            };
        drop(self.cancels.ask(cancel));
    }
}

type Ended = Result<RemoteResponse, RemoteError>;

/// Why a request was not sent.
fn before(error: ClientError) -> RemoteError {
    match error {
        ClientError::Refused { error, .. } if error.code == ErrorCode::TooLarge => {
            RemoteError::Remote(error.message)
        }
        ClientError::Refused { error, .. } => {
            RemoteError::NotConnected(format!("the daemon refuses: {error}"))
        }
        // It may have been taken, and then be done.
        ClientError::TimedOut { .. } => RemoteError::TimedOut,
        other => RemoteError::ConnectionLost(other.to_string()),
    }
}

fn priority_of(request: &RemoteRequest) -> Priority {
    use jobtree_lanes::Priority as Lane;

    match request.priority {
        Lane::Lowest | Lane::Low => Priority::Low,
        Lane::Normal => Priority::Normal,
        Lane::High | Lane::Highest => Priority::High,
    }
}

/// Whether nobody waits for an answer any more, and who is to be told of it.
#[derive(Default)]
struct Gone {
    is_set: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Gone {
    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is set; else the waker is called when it is.
    fn poll(&self, context: &Context<'_>) -> bool {
        let before = self.waker().replace(context.waker().clone());
        drop(before);
        self.is_set()
    }

    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        let waker = self.waker().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A request that waits. Dropped before its answer is there, it takes the job with it.
struct Pending {
    shared: Arc<Shared>,
    id: u64,
    job: JobId,
    gone: Arc<Gone>,
    is_answered: bool,
}

impl Pending {
    /// Its answer, or why there is none.
    async fn answer(mut self, reply: Reply<Ended>, limit: Option<Duration>) -> Ended {
        let mut reply = pin!(reply);
        let mut time = pin!(future::sleep(limit.unwrap_or(Duration::MAX)));
        let gone = Arc::clone(&self.gone);
        let ended = poll_fn(|context| {
            if let Poll::Ready(ended) = reply.as_mut().poll(context) {
                let lost = |error: ApiError| Err(RemoteError::ConnectionLost(error.message));
                return Poll::Ready(ended.unwrap_or_else(lost));
            }
            if gone.poll(context) {
                return Poll::Ready(Err(RemoteError::Cancelled));
            }
            let time = time.as_mut().poll(context);
            time.map(|slept| match slept {
                Ok(()) => Err(RemoteError::TimedOut),
                Err(_) => Err(RemoteError::Cancelled),
            })
        });
        let ended = ended.await;
        self.is_answered = ended.is_ok();
        ended
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.shared.pending().remove(&self.id);
        if !self.is_answered {
            self.gone.set();
            self.shared.cancel(self.job);
        }
    }
}

impl RemoteTransport for DaemonTransport {
    /// There is no connection to speak of: whether the daemon is there is seen with the next request.
    fn is_connected(&self) -> bool {
        !self.0.is_closed()
    }

    fn send(&self, request: RemoteRequest) -> Answer {
        let shared = Arc::clone(&self.0);
        let refused = |error| -> Answer { Box::pin(std::future::ready(Err(error))) };
        if shared.is_closed() {
            return refused(RemoteError::Cancelled);
        }
        let job_id = JobId::generate();
        let limit = request.timeout.or(shared.said.timeout);
        let job = match shared.job(&request, job_id, limit) {
            Ok(job) => job,
            Err(error) => return refused(error),
        };
        let gone = Arc::<Gone>::default();
        match shared.pending().entry(request.id) {
            Entry::Occupied(_) => return refused(RemoteError::DuplicateId(request.id)),
            Entry::Vacant(place) => place.insert(Arc::clone(&gone)),
        };
        let pending = Pending {
            shared: Arc::clone(&shared),
            id: request.id,
            job: job_id,
            gone: Arc::clone(&gone),
            is_answered: false,
        };
        let fetching = Arc::clone(&shared);
        let fetch = move || fetching.fetch(&request, job, &gone);
        let reply = shared.waiting.ask(fetch);
        Box::pin(pending.answer(reply, limit))
    }

    fn close(&self) {
        self.0.is_closed.store(true, Ordering::Release);
        let all: Vec<_> = self.0.pending().values().cloned().collect();
        for gone in all {
            gone.set();
        }
    }
}

impl fmt::Debug for DaemonTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DaemonTransport")
            .field("id", &self.0.id)
            .field("addon", &self.0.said.addon)
            .field("job_type", &self.0.said.job_type)
            .field("pending", &self.0.pending().len())
            .finish_non_exhaustive()
    }
}
