//! What can be asked for, and what is being done about it: the side that answers, whatever carries the requests.
//!
//! A request becomes a job in the scope of its connection, so that it is cancelled with it. Every request is answered exactly
//! once, by the [`Call`] that goes with its job: with what the operation returned, or, if the job ends without that (it was
//! cancelled before it began, it panicked), when the call is dropped.
//!
//! A request counts, and its id is taken, until its answer has room on its way back, and no longer: a peer that does not
//! take its answers cannot have more done, and one that has an answer can use the id, and the place, at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use jobtree_runtime::{BoxError, Job, Nursery};

use super::request::TransferMode;
use super::waiting::Watched;
use super::{RemoteError, RemoteRequest, RemoteResponse};

type Operation = dyn Fn(RemoteRequest) -> Result<Vec<u8>, BoxError> + Send + Sync;

/// The operations that peers may ask for, under an id. Clones are the same service; several servers and transports may
/// share it.
///
/// ```
/// use jobtree_lanes::remote::RemoteService;
///
/// let service = RemoteService::new("assets");
/// service
///     .handle("asset.load", |request| {
///         let name = std::str::from_utf8(&request.payload)?;
///         Ok(format!("the bytes of {name}").into_bytes())
///     })
///     .handle("ping", |_| Ok(Vec::new()));
/// ```
#[derive(Clone)]
pub struct RemoteService {
    inner: Arc<Inner>,
}

struct Inner {
    id: String,
    operations: RwLock<HashMap<String, Arc<Operation>>>,
    max_running: usize,
    running: AtomicUsize,
}

impl Inner {
    /// Takes a place, if there is one.
    fn has_room(&self) -> bool {
        let more = |running: usize| (running < self.max_running).then_some(running + 1);
        let order = Ordering::SeqCst;
        self.running.fetch_update(order, order, more).is_ok()
    }
}

/// A place that is free again when this is dropped.
struct Counted<'a>(&'a Inner);

impl<'a> Counted<'a> {
    fn enter(inner: &'a Inner) -> Option<Counted<'a>> {
        inner.has_room().then_some(Counted(inner))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How many operations run at once, if nothing else is said.
const MAX_RUNNING: usize = 256;

impl RemoteService {
    /// A service without operations.
    pub fn new(id: impl Into<String>) -> RemoteService {
        RemoteService::with_limit(id, MAX_RUNNING)
    }

    /// A service that does at most so many things at once; 256 without it. What comes beyond is answered with
    /// [`Busy`](RemoteError::Busy).
    pub fn with_limit(id: impl Into<String>, max_running: usize) -> RemoteService {
        RemoteService {
            inner: Arc::new(Inner {
                id: id.into(),
                operations: RwLock::default(),
                max_running,
                running: AtomicUsize::new(0),
            }),
        }
    }

    /// Has requests for `name` answered by `operation`; one that was there under that name is replaced.
    ///
    /// It runs as a job of the server's runtime. It may wait; its stack is parked then. If the peer cancels the request, or
    /// its connection ends, the job is cancelled.
    pub fn handle(
        &self,
        name: impl Into<String>,
        operation: impl Fn(RemoteRequest) -> Result<Vec<u8>, BoxError> + Send + Sync + 'static,
    ) -> &RemoteService {
        let (name, operation) = (name.into(), Arc::new(operation));
        let operations = self.inner.operations.write();
        let mut operations = operations.unwrap_or_else(PoisonError::into_inner);
        let before = operations.insert(name, operation);
        // Not under the lock: it is others' code.
        drop(operations);
        drop(before);
        self
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// How many operations run.
    pub fn running(&self) -> usize {
        self.inner.running.load(Ordering::SeqCst)
    }

    /// Does what is asked in the current job, and gives the answer: for what carries requests by ways of its own. The ids
    /// of requests are the caller's to keep apart.
    ///
    /// ```
    /// use jobtree_lanes::remote::{RemoteRequest, RemoteService};
    ///
    /// let service = RemoteService::new("shouter");
    /// service.handle("shout", |request| Ok(request.payload.to_ascii_uppercase()));
    /// let answer = service.answer(RemoteRequest::new("shout").payload("hello"));
    /// assert_eq!(answer.into_payload()?, b"HELLO");
    /// assert!(!service.answer(RemoteRequest::new("whisper")).is_success());
    /// # Ok::<(), jobtree_lanes::remote::RemoteError>(())
    /// ```
    pub fn answer(&self, request: RemoteRequest) -> RemoteResponse {
        let asked = RemoteRequest {
            payload: Vec::new(),
            metadata: BTreeMap::new(),
            ..request.clone()
        };
        match self.perform(request) {
            Ok(payload) => RemoteResponse::new(&asked, self.id(), payload),
            Err(error) => RemoteResponse::from_error(&asked, self.id(), error),
        }
    }

    fn perform(&self, request: RemoteRequest) -> Result<Vec<u8>, RemoteError> {
        let mode = request.mode;
        let operation = self.wanted(&request)?;
        let _counted = Counted::enter(&self.inner).ok_or(RemoteError::Busy)?;
        let payload = operation(request).map_err(|error| match is_cancelled() {
            true => RemoteError::Cancelled,
            false => RemoteError::Remote(error.to_string()),
        })?;
        Ok(match mode {
            TransferMode::RequestFromRemote => payload,
            TransferMode::PushDataToRemote => Vec::new(),
        })
    }

    /// The operation that is asked for, if it is asked for here.
    fn wanted(&self, request: &RemoteRequest) -> Result<Arc<Operation>, RemoteError> {
        if let Some(target) = request.target.as_ref().filter(|id| *id != self.id()) {
            return Err(RemoteError::WrongTarget(target.clone()));
        }
        self.operation(&request.operation)
            .ok_or_else(|| RemoteError::UnknownOperation(request.operation.clone()))
    }

    fn operation(&self, name: &str) -> Option<Arc<Operation>> {
        let operations = self.inner.operations.read();
        let operations = operations.unwrap_or_else(PoisonError::into_inner);
        operations.get(name).cloned()
    }
}

/// What one server, or one transport within a process, does for its service.
pub(super) struct Load {
    running: Watched<usize>,
    is_leaving: AtomicBool,
}

impl Load {
    pub(super) fn new() -> Load {
        Load {
            running: Watched::new(0),
            is_leaving: AtomicBool::new(false),
        }
    }

    /// From now on nothing new is begun.
    pub(super) fn leave(&self) {
        self.is_leaving.store(true, Ordering::SeqCst);
    }

    pub(super) fn running(&self) -> usize {
        self.running.look(|running| *running)
    }

    /// Waits until nothing runs.
    pub(super) async fn idle(&self) {
        let running = &self.running;
        running.until(|running| (*running == 0).then_some(())).await;
    }
}

impl fmt::Debug for RemoteService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteService")
            .field("id", &self.id())
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}

/// Where answers go.
pub(super) trait Replies: Send + Sync {
    /// Answers; may wait until there is room, and calls `has_room` then, just before the answer goes.
    fn reply(&self, call: u64, response: RemoteResponse, has_room: &mut dyn FnMut());

    /// Answers with something small, without waiting: in a destructor.
    fn reply_now(&self, call: u64, response: RemoteResponse);
}

/// What one peer has asked for.
pub(super) struct Session {
    service: RemoteService,
    load: Arc<Load>,
    replies: Arc<dyn Replies>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    /// By the number of the call; `None` until the job is known.
    calls: BTreeMap<u64, Option<Job>>,
    /// The ids of the requests.
    ids: BTreeSet<u64>,
}

impl Session {
    pub(super) fn new(
        service: &RemoteService,
        load: &Arc<Load>,
        replies: Arc<dyn Replies>,
    ) -> Arc<Session> {
        Arc::new(Session {
            service: service.clone(),
            load: Arc::clone(load),
            replies,
            running: Mutex::default(),
        })
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is asked as a job in `scope`, or answers at once why not. Called by one thread, which also calls
    /// [`cancel`](Session::cancel).
    pub(super) fn request<'scope>(
        self: &Arc<Self>,
        scope: &'scope Nursery<'scope, '_>,
        number: u64,
        request: RemoteRequest,
    ) {
        let (operation, call) = match self.admit(number, &request) {
            Ok(admitted) => admitted,
            Err(error) => {
                let response = RemoteResponse::from_error(&request, self.service.id(), error);
                return self.replies.reply(number, response, &mut || ());
            }
        };
        let label = format!("remote {}", request.operation);
        let handle = scope
            .job_options()
            .label(label)
            .spawn(move || call.run(&*operation, request));
        // Unless it has ended already.
        if let Some(known) = self.running().calls.get_mut(&number) {
            *known = Some(handle.job().clone());
        }
    }

    fn admit(
        self: &Arc<Self>,
        number: u64,
        request: &RemoteRequest,
    ) -> Result<(Arc<Operation>, Call), RemoteError> {
        let service = &self.service;
        let operation = service.wanted(request)?;
        let is_known = {
            let running = self.running();
            running.ids.contains(&request.id) || running.calls.contains_key(&number)
        };
        if is_known {
            return Err(RemoteError::DuplicateId(request.id));
        }
        let inner = &service.inner;
        let is_admitted = self.load.running.change(|running| {
            let is_leaving = self.load.is_leaving.load(Ordering::SeqCst);
            let has_room = !is_leaving && inner.has_room();
            *running += usize::from(has_room);
            has_room
        });
        if !is_admitted {
            return Err(RemoteError::Busy);
        }
        let mut running = self.running();
        running.calls.insert(number, None);
        running.ids.insert(request.id);
        drop(running);
        let empty = RemoteRequest {
            payload: Vec::new(),
            metadata: BTreeMap::new(),
            ..request.clone()
        };
        let call = Call {
            session: Arc::clone(self),
            number,
            request: empty,
            counts: true,
            is_answered: false,
        };
        Ok((operation, call))
    }

    /// The peer does not wait for this one any more.
    pub(super) fn cancel(&self, number: u64) {
        let job = self.running().calls.get(&number).cloned().flatten();
        if let Some(job) = job {
            job.cancel("the peer has cancelled the request");
        }
    }
}

/// See the module's head.
struct Call {
    session: Arc<Session>,
    number: u64,
    /// Without what is large.
    request: RemoteRequest,
    counts: bool,
    is_answered: bool,
}

impl Call {
    fn run(mut self, operation: &Operation, request: RemoteRequest) -> Result<(), BoxError> {
        let id = self.session.service.id().to_owned();
        let (response, result) = match operation(request) {
            Ok(payload) => {
                let payload = match self.request.mode {
                    TransferMode::RequestFromRemote => payload,
                    TransferMode::PushDataToRemote => Vec::new(),
                };
                (RemoteResponse::new(&self.request, id, payload), Ok(()))
            }
            Err(error) => {
                let told = match is_cancelled() {
                    true => RemoteError::Cancelled,
                    false => RemoteError::Remote(error.to_string()),
                };
                let response = RemoteResponse::from_error(&self.request, id, told);
                (response, Err(error))
            }
        };
        self.is_answered = true;
        let replies = Arc::clone(&self.session.replies);
        replies.reply(self.number, response, &mut || self.count_no_more());
        result
    }

    fn count_no_more(&mut self) {
        if std::mem::take(&mut self.counts) {
            let session = &self.session;
            let mut running = session.running();
            let job = running.calls.remove(&self.number);
            running.ids.remove(&self.request.id);
            drop(running);
            // Not under the lock: it may be the last handle.
            drop(job);
            session.service.inner.running.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn is_cancelled() -> bool {
    Job::current().is_some_and(|job| job.is_cancelled())
}

impl Drop for Call {
    fn drop(&mut self) {
        self.count_no_more();
        let session = &self.session;
        if !self.is_answered {
            let error = match std::thread::panicking() {
                true => RemoteError::Remote("the operation panicked".to_owned()),
                false => RemoteError::Cancelled,
            };
            let response = RemoteResponse::from_error(&self.request, session.service.id(), error);
            session.replies.reply_now(self.number, response);
        }
        // Last, so that a server that ends does so after the answer.
        session.load.running.change(|running| *running -= 1);
    }
}
