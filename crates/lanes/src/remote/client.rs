//! The side that asks, over a socket.
//!
//! # Protocol
//!
//! A job of the runtime, the keeper, makes one connection after the other. Each has a number. While one is there, the link
//! is up, and requests are put into its outbox; when it ends, its outbox is closed first, and then everything that was sent
//! on it fails. So a request either got into the outbox in time, and fails with the connection, or finds the outbox closed,
//! was not sent, and waits for the next connection. After a pause that grows with every attempt that fails the keeper tries
//! again, until the transport is closed.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jobtree_runtime::{BoxError, Job, JobError, Runtime, block_on, sleep, supervisor};

use super::codec::encode;
use super::conversation::converse;
use super::dial::Dial;
use super::message::{Greeting, Message};
use super::outbox::{HasEnded, NoRoom, Outbox};
use super::pending::{Pending, PendingTable};
use super::threads::on_thread;
use super::transport::{Answer, within};
use super::waiting::Watched;
use super::{RemoteError, RemoteRequest, RemoteResponse, RemoteSettings, RemoteTransport};

/// A transport over a TCP or Unix socket. Clones are the same one; with the last, it is closed.
///
/// It connects in the background, and again whenever the connection is lost, until it is closed. Requests that find no
/// connection wait for one until their time is over; requests that were under way when it was lost fail with
/// [`ConnectionLost`](RemoteError::ConnectionLost) and are never sent again. While it is connected it holds two of the
/// runtime's blocking threads.
///
/// What goes over the socket is neither encrypted nor signed.
///
/// ```
/// use jobtree_lanes::remote::{RemoteClient, RemoteRequest, RemoteServer, RemoteService, RemoteSettings, RemoteTransport};
/// use jobtree_runtime::Runtime;
///
/// let runtime = Runtime::builder().workers(2).build()?;
/// let service = RemoteService::new("shouter");
/// service.handle("shout", |request| Ok(request.payload.to_ascii_uppercase()));
/// let server = RemoteServer::builder(&service).bind_tcp(&runtime, "127.0.0.1:0")?;
///
/// let address = server.tcp_address().unwrap();
/// let client = RemoteClient::tcp(&runtime, "me", address, RemoteSettings::default());
/// let answer = client.send(RemoteRequest::new("shout").payload("hello"));
/// assert_eq!(runtime.block_on(answer)??.into_payload()?, b"HELLO");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RemoteClient {
    handle: Arc<Handle>,
}

struct Handle {
    client: Arc<Client>,
    keeper: Job,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the handles and the keeper share.
pub(super) struct Client {
    pub(super) id: String,
    pub(super) settings: RemoteSettings,
    pub(super) pending: Arc<PendingTable>,
    dial: Dial,
    line: Watched<Line>,
    connections: AtomicU64,
}

struct Line {
    link: Link,
    /// How often an attempt failed in a way that waiting does not help against, and how the last one did.
    refusals: u64,
    refusal: Option<RemoteError>,
}

enum Link {
    Down(String),
    Up(Arc<Connection>),
    Closed,
}

/// A connection that is there.
pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) outbox: Outbox,
    pub(super) peer: Greeting,
}

impl RemoteClient {
    /// A transport to a TCP address, under an id of one's own.
    pub fn tcp(
        runtime: &Runtime,
        id: impl Into<String>,
        address: SocketAddr,
        settings: RemoteSettings,
    ) -> RemoteClient {
        RemoteClient::start(runtime, id.into(), Dial::Tcp(address), settings)
    }

    /// A transport to a Unix socket, under an id of one's own.
    ///
    /// To a server that accepts nobody and has its backlog full, the system connects without a time limit: then a blocking
    /// thread is stuck until that server ends.
    #[cfg(unix)]
    pub fn unix(
        runtime: &Runtime,
        id: impl Into<String>,
        path: impl Into<PathBuf>,
        settings: RemoteSettings,
    ) -> RemoteClient {
        RemoteClient::start(runtime, id.into(), Dial::Unix(path.into()), settings)
    }

    fn start(runtime: &Runtime, id: String, dial: Dial, settings: RemoteSettings) -> RemoteClient {
        let client = Arc::new(Client {
            id,
            settings,
            pending: Arc::default(),
            dial,
            line: Watched::new(Line {
                link: Link::Down("not yet".to_owned()),
                refusals: 0,
                refusal: None,
            }),
            connections: AtomicU64::new(0),
        });
        let kept = Arc::clone(&client);
        let keeper = runtime.spawn(move || keep(&kept));
        RemoteClient {
            handle: Arc::new(Handle {
                client,
                keeper: keeper.job().clone(),
            }),
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.handle.client.id
    }

    /// The id of the peer, while connected.
    pub fn peer(&self) -> Option<String> {
        self.handle.client.line.look(|line| match &line.link {
            Link::Up(connection) => Some(connection.peer.id.clone()),
            _ => None,
        })
    }

    /// Waits until there is a connection.
    ///
    /// # Errors
    /// If there is none within `limit`, the transport is closed, or the current job cancelled.
    pub fn wait_until_connected(&self, limit: Duration) -> Result<(), RemoteError> {
        let client = &self.handle.client;
        let connected = async {
            client.connection(client.refusals()).await?;
            Ok(())
        };
        let too_late = || RemoteError::NotConnected(client.why_not());
        block_on(within(Some(limit), too_late, connected)).unwrap_or(Err(RemoteError::Cancelled))
    }

    /// How many requests wait for their answers.
    pub fn pending(&self) -> usize {
        self.handle.client.pending.len()
    }

    /// How many answers were ignored, because nobody waited for them or they were for somebody else.
    pub fn ignored(&self) -> u64 {
        self.handle.client.pending.ignored()
    }

    /// How many connections there were.
    pub fn connections(&self) -> u64 {
        self.handle.client.connections.load(Ordering::Relaxed)
    }
}

impl RemoteTransport for RemoteClient {
    fn is_connected(&self) -> bool {
        self.peer().is_some()
    }

    fn send(&self, request: RemoteRequest) -> Answer {
        self.handle.client.send(request)
    }

    fn close(&self) {
        self.handle.close();
    }
}

impl std::fmt::Debug for RemoteClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteClient")
            .field("id", &self.id())
            .field("peer", &self.peer())
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}

impl Handle {
    fn close(&self) {
        self.client.close();
        // Which ends the socket, and with it the threads.
        self.keeper.cancel("the transport is closed");
    }
}

impl Client {
    fn close(&self) {
        self.line.change(|line| line.link = Link::Closed);
        self.pending.close();
    }

    fn send(self: &Arc<Self>, mut request: RemoteRequest) -> Answer {
        let sender = request.sender.get_or_insert_with(|| self.id.clone());
        let entered = self.pending.enter(request.id, sender);
        let client = Arc::clone(self);
        Box::pin(async move {
            let pending = entered?;
            let is_sent = AtomicBool::new(false);
            let limit = request.timeout.or(client.settings.request_timeout);
            let too_late = || match is_sent.load(Ordering::Relaxed) {
                true => RemoteError::TimedOut,
                false => RemoteError::NotConnected(client.why_not()),
            };
            within(
                limit,
                too_late,
                client.exchange(&pending, request, &is_sent),
            )
            .await
        })
    }

    /// Sends a request as soon as there is a connection, and waits for the answer.
    async fn exchange(
        &self,
        pending: &Pending,
        request: RemoteRequest,
        is_sent: &AtomicBool,
    ) -> Result<RemoteResponse, RemoteError> {
        let call = pending.call();
        // Of this side's limit; what the peer takes is known when there is one.
        let mut frame = encode(&Message::Request(call, request), self.settings.max_frame)?;
        let refusals = self.refusals();
        loop {
            let connection = self.connection(refusals).await?;
            if frame.len() as u64 > u64::from(connection.peer.max_frame) {
                return Err(RemoteError::TooLarge {
                    size: frame.len() as u64,
                    limit: connection.peer.max_frame.into(),
                });
            }
            let room = match connection.outbox.room(frame.len()).await {
                Ok(room) => room,
                Err(NoRoom::Cancelled) => return Err(RemoteError::Cancelled),
                // It ends just now.
                Err(NoRoom::Ended) => {
                    self.after(connection.number).await;
                    continue;
                }
            };
            pending.mark_sent(connection.number);
            if let Err(HasEnded(unsent)) = room.put(frame) {
                frame = unsent;
                if !pending.unmark() {
                    return Err(RemoteError::Cancelled);
                }
                self.after(connection.number).await;
                continue;
            }
            is_sent.store(true, Ordering::Relaxed);
            let mut on_its_way = OnItsWay {
                outbox: &connection.outbox,
                call: Some(call),
            };
            let answer = pending.answer().await;
            on_its_way.call = None;
            return answer;
        }
    }

    /// Waits for a connection.
    async fn connection(&self, refusals: u64) -> Result<Arc<Connection>, RemoteError> {
        self.line
            .until(|line| match (&line.link, &line.refusal) {
                (Link::Up(connection), _) => Some(Ok(Arc::clone(connection))),
                (Link::Closed, _) => Some(Err(RemoteError::Cancelled)),
                (Link::Down(_), Some(refusal)) if line.refusals > refusals => {
                    Some(Err(refusal.clone()))
                }
                (Link::Down(_), _) => None,
            })
            .await
    }

    /// Waits until the link is not up by this connection any more, whose outbox is closed.
    async fn after(&self, number: u64) {
        self.line
            .until(|line| match &line.link {
                Link::Up(connection) if connection.number == number => None,
                _ => Some(()),
            })
            .await;
    }

    fn refusals(&self) -> u64 {
        self.line.look(|line| line.refusals)
    }

    fn why_not(&self) -> String {
        self.line.look(|line| match &line.link {
            Link::Down(why) => why.clone(),
            Link::Up(_) => "the connection takes nothing more at the moment".to_owned(),
            Link::Closed => "the transport is closed".to_owned(),
        })
    }

    /// A connection is there.
    pub(super) fn link_up(&self, outbox: Outbox, peer: Greeting) -> u64 {
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = Arc::new(Connection {
            number,
            outbox,
            peer,
        });
        self.line.change(|line| {
            if !matches!(line.link, Link::Closed) {
                line.link = Link::Up(connection);
            }
        });
        number
    }

    /// An attempt has failed, or a connection has ended; its outbox is closed.
    fn link_down(&self, error: &RemoteError) {
        // What those who have no connection yet would wait for in vain.
        let is_refusal = matches!(
            error,
            RemoteError::NoThread | RemoteError::Protocol(_) | RemoteError::TooLarge { .. }
        );
        self.line.change(|line| {
            if matches!(line.link, Link::Closed) {
                return;
            }
            line.link = Link::Down(error.to_string());
            if is_refusal {
                line.refusals += 1;
                line.refusal = Some(error.clone());
            }
        });
    }
}

/// A request that the peer has, or will have: if nobody waits for the answer any more, the peer is told so.
struct OnItsWay<'a> {
    outbox: &'a Outbox,
    call: Option<u64>,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            self.outbox.put_now(&Message::Cancel(call));
        }
    }
}

/// The keeper; see the module's head.
fn keep(client: &Arc<Client>) -> Result<(), BoxError> {
    // By a cancellation from whoever: the runtime may be shut down.
    let _closed = CloseAtTheEnd(client);
    let mut failed = 0;
    loop {
        let before = client.connections.load(Ordering::Relaxed);
        let error = attempt(client);
        let had_connection = client.connections.load(Ordering::Relaxed) > before;
        failed = if had_connection { 1 } else { failed + 1 };
        client.link_down(&error);
        sleep(client.settings.pause(failed, chance()))?;
    }
}

struct CloseAtTheEnd<'a>(&'a Client);

impl Drop for CloseAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Makes a connection, and returns when it has ended; with the reason.
fn attempt(client: &Arc<Client>) -> RemoteError {
    let limit = client.settings.connect_timeout;
    let ended = supervisor(|n| {
        let reader = on_thread(n, "remote reader", limit, || {
            Ok(converse(client, &client.dial))
        });
        match reader {
            Ok(reader) => Ok(reader.join()?),
            Err(error) => Ok(error),
        }
    });
    match ended {
        Ok(error) => error,
        Err(JobError::Cancelled(_)) => RemoteError::Cancelled,
        Err(error) => RemoteError::ConnectionLost(error.to_string()),
    }
}

/// Any number, another one each time.
fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}
