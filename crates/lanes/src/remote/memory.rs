//! A transport within one process: for tests, for simulations, and for programs that have not been cut in two yet.
//!
//! It keeps the same promises as one over a socket, by the same table of what is pending and the same way of doing
//! operations. Nothing is lost or late unless a function says so for a message ([`MemoryTransport::with_faults`]); it is asked
//! once for each, in the order in which they are sent.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jobtree_runtime::channel::{self, Receiver, Sender};
use jobtree_runtime::{BoxError, Job, Runtime, future, supervisor};

use super::pending::PendingTable;
use super::service::{Load, Replies, Session};
use super::transport::{Answer, within};
use super::{RemoteError, RemoteRequest, RemoteResponse, RemoteService, RemoteTransport};

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// To the service: a request or a cancellation.
    There,
    /// From the service: an answer.
    Back,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// It arrives at once.
    #[default]
    Arrives,
    /// It arrives so much later; others may overtake it.
    Late(Duration),
    /// It never arrives.
    Lost,
    /// An answer arrives as one for somebody else; a request arrives.
    Misdirected,
}

type Faults = dyn Fn(Way, u64) -> Fate + Send + Sync;

/// A transport to a service in the same process. Clones are the same one; with the last, it is closed.
///
/// ```
/// use jobtree_lanes::remote::{MemoryTransport, RemoteRequest, RemoteService, RemoteTransport};
/// use jobtree_runtime::Runtime;
///
/// let service = RemoteService::new("shouter");
/// service.handle("shout", |request| Ok(request.payload.to_ascii_uppercase()));
/// let runtime = Runtime::builder().workers(1).build()?;
/// let transport = MemoryTransport::new(&runtime, "me", &service);
/// let answer = transport.send(RemoteRequest::new("shout").payload("hello"));
/// assert_eq!(runtime.block_on(answer)??.into_payload()?, b"HELLO");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryTransport {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    job: Job,
}

struct Shared {
    id: String,
    pending: Arc<PendingTable>,
    there: Sender<There>,
    is_closed: AtomicBool,
}

enum There {
    Request(u64, RemoteRequest),
    Cancel(u64),
}

/// There is only one connection.
const ONLY: u64 = 1;

impl MemoryTransport {
    /// A transport to `service`, whose operations run in `runtime`, under an id of one's own.
    pub fn new(
        runtime: &Runtime,
        id: impl Into<String>,
        service: &RemoteService,
    ) -> MemoryTransport {
        MemoryTransport::with_faults(runtime, id, service, |_, _| Fate::Arrives)
    }

    /// [`new`](MemoryTransport::new), with messages that are late or lost: `faults` is asked about each, with the way it
    /// goes and its number on that way, from 0 on.
    pub fn with_faults(
        runtime: &Runtime,
        id: impl Into<String>,
        service: &RemoteService,
        faults: impl Fn(Way, u64) -> Fate + Send + Sync + 'static,
    ) -> MemoryTransport {
        let (there, sent) = channel::unbounded();
        let shared = Arc::new(Shared {
            id: id.into(),
            pending: Arc::default(),
            there,
            is_closed: AtomicBool::new(false),
        });
        let (service, pending) = (service.clone(), Arc::clone(&shared.pending));
        let faults: Arc<Faults> = Arc::new(faults);
        let served = runtime.spawn(move || serve(&service, &sent, pending, faults));
        MemoryTransport {
            handle: Arc::new(Handle {
                shared,
                job: served.job().clone(),
            }),
        }
    }

    /// How many requests wait for their answers.
    pub fn pending(&self) -> usize {
        self.handle.shared.pending.len()
    }

    /// How many answers were ignored, because nobody waited for them or they were for somebody else.
    pub fn ignored(&self) -> u64 {
        self.handle.shared.pending.ignored()
    }

    /// Ends as if the connection had been lost: what is pending fails with
    /// [`ConnectionLost`](RemoteError::ConnectionLost), and what runs is cancelled.
    pub fn cut(&self) {
        let lost = RemoteError::ConnectionLost("it was cut".to_owned());
        let shared = &self.handle.shared;
        shared.is_closed.store(true, Ordering::SeqCst);
        shared.pending.fail_sent_on(ONLY, &lost);
        self.handle.job.cancel("the connection was cut");
    }
}

impl RemoteTransport for MemoryTransport {
    fn is_connected(&self) -> bool {
        !self.handle.shared.is_closed.load(Ordering::SeqCst)
    }

    fn send(&self, mut request: RemoteRequest) -> Answer {
        let shared = Arc::clone(&self.handle.shared);
        let sender = request.sender.get_or_insert_with(|| shared.id.clone());
        let entered = shared.pending.enter(request.id, sender);
        Box::pin(async move {
            let pending = entered?;
            let (call, limit) = (pending.call(), request.timeout);
            pending.mark_sent(ONLY);
            if shared.is_closed.load(Ordering::SeqCst)
                || shared
                    .there
                    .try_send(There::Request(call, request))
                    .is_err()
            {
                return Err(RemoteError::NotConnected("it was cut".to_owned()));
            }
            let mut on_its_way = OnItsWay {
                there: &shared.there,
                call: Some(call),
            };
            let answer = within(limit, || RemoteError::TimedOut, async {
                let answer = pending.answer().await;
                on_its_way.call = None;
                answer
            });
            answer.await
        })
    }

    fn close(&self) {
        self.handle.close();
    }
}

impl Handle {
    fn close(&self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.shared.pending.close();
        self.job.cancel("the transport is closed");
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for MemoryTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransport")
            .field("id", &self.handle.shared.id)
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}

/// If nobody waits for the answer any more, the other side is told so.
struct OnItsWay<'a> {
    there: &'a Sender<There>,
    call: Option<u64>,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            let _ = self.there.try_send(There::Cancel(call));
        }
    }
}

/// The other side.
fn serve(
    service: &RemoteService,
    sent: &Receiver<There>,
    pending: Arc<PendingTable>,
    faults: Arc<Faults>,
) -> Result<(), BoxError> {
    supervisor(|n| {
        let (arrives, arrived) = channel::unbounded();
        let (back, answers) = channel::unbounded();
        let replies = Arc::new(ByChannel(back));
        let session = Session::new(service, &Arc::new(Load::new()), replies);
        let (there_faults, back_faults) = (Arc::clone(&faults), faults);
        n.launch(move || {
            let fate = |number| there_faults(Way::There, number);
            carry(sent, &fate, move |message, _| {
                let _ = arrives.try_send(message);
            })
        });
        n.launch(move || {
            let fate = |number| back_faults(Way::Back, number);
            carry(
                &answers,
                &fate,
                move |(call, mut response): (u64, RemoteResponse), fate| {
                    if fate == Fate::Misdirected {
                        response.target.push_str(" and not you");
                    }
                    pending.answer(call, response);
                },
            )
        });
        loop {
            match arrived.recv()? {
                There::Request(call, request) => session.request(n, call, request),
                There::Cancel(call) => session.cancel(call),
            }
        }
    })
    .map_err(BoxError::from)
}

/// Carries messages in one direction, each as its fate wants it.
fn carry<M: Send + 'static>(
    from: &Receiver<M>,
    fate: &dyn Fn(u64) -> Fate,
    deliver: impl Fn(M, Fate) + Send + Sync + 'static,
) -> Result<(), BoxError> {
    let (number, deliver) = (AtomicU64::new(0), Arc::new(deliver));
    supervisor(|n| {
        loop {
            let message = from.recv()?;
            match fate(number.fetch_add(1, Ordering::Relaxed)) {
                Fate::Lost => {}
                Fate::Late(delay) => {
                    let deliver = Arc::clone(&deliver);
                    drop(n.spawn_future(async move {
                        future::sleep(delay).await?;
                        deliver(message, Fate::Arrives);
                        Ok(())
                    }));
                }
                fate => deliver(message, fate),
            }
        }
    })
    .map_err(BoxError::from)
}

struct ByChannel(Sender<(u64, RemoteResponse)>);

impl Replies for ByChannel {
    fn reply(&self, call: u64, response: RemoteResponse, has_room: &mut dyn FnMut()) {
        has_room();
        self.reply_now(call, response);
    }

    fn reply_now(&self, call: u64, response: RemoteResponse) {
        let _ = self.0.try_send((call, response));
    }
}
