//! The side that answers, over sockets.
//!
//! A job of the runtime listens, on one blocking thread. Every connection is a job below it, with a thread that reads and one
//! that writes; every operation is a job below its connection. So whatever ends takes with it what belongs to it, and ending
//! the first ends all.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
#[cfg(unix)]
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jobtree_runtime::channel::{self, Sender};
use jobtree_runtime::{
    BoxError, Dispatcher, Job, Nursery, Runtime, block_on, checkpoint, future, sleep, supervisor,
};

use super::answering::converse;
use super::codec::encode;
use super::frame::write_frame;
use super::listener::Listener;
use super::message::Message;
use super::outbox::Outbox;
use super::service::Load;
#[cfg(unix)]
use super::socket_file::SocketFile;
use super::stream::Stream;
use super::threads::on_thread;
use super::waiting::first_of;
use super::{RemoteError, RemoteService, RemoteSettings};

/// How many connections there may be, if nothing else is said. Each takes two blocking threads, of which a runtime has 64.
const MAX_CONNECTIONS: usize = 16;

/// Describes a server.
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is bound"]
pub struct RemoteServerBuilder {
    service: RemoteService,
    settings: RemoteSettings,
    max_connections: usize,
    anywhere: bool,
}

impl RemoteServerBuilder {
    /// The numbers of its connections.
    pub fn settings(mut self, settings: RemoteSettings) -> Self {
        self.settings = settings;
        self
    }

    /// How many connections there may be at a time; 16 without it. Others are told that the server is
    /// [busy](RemoteError::Busy).
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Lets it listen on addresses that other machines can reach. **Nothing is encrypted or signed**: whoever reaches the
    /// address can ask for every operation.
    pub fn allow_non_loopback(mut self) -> Self {
        self.anywhere = true;
        self
    }

    /// Listens on a TCP address of the machine's own; port 0 is any free one.
    ///
    /// # Errors
    /// If the address cannot be used, or others can reach it and that was not [allowed](Self::allow_non_loopback); if the
    /// runtime has no blocking thread for it.
    pub fn bind_tcp(
        self,
        runtime: &Runtime,
        address: impl ToSocketAddrs,
    ) -> Result<RemoteServer, RemoteError> {
        let listener = Listener::tcp(address, self.anywhere)?;
        self.start(runtime, listener)
    }

    /// Listens on a Unix socket, which only its owner may use (mode 0600). A socket at `path` that nobody listens on is
    /// replaced.
    ///
    /// # Errors
    /// If something else is at `path`, or somebody listens there; if the runtime has no blocking thread for it.
    #[cfg(unix)]
    pub fn bind_unix(
        self,
        runtime: &Runtime,
        path: impl AsRef<Path>,
    ) -> Result<RemoteServer, RemoteError> {
        let file = SocketFile::bind(path.as_ref())?;
        self.start(runtime, Listener::Unix(file))
    }

    fn start(self, runtime: &Runtime, listener: Listener) -> Result<RemoteServer, RemoteError> {
        let server = Arc::new(Server {
            service: self.service,
            settings: self.settings,
            load: Arc::new(Load::new()),
            max_connections: self.max_connections,
            listener: Mutex::new(Some(Arc::new(listener))),
            is_ending: AtomicBool::new(false),
            connections: Mutex::default(),
            refused: AtomicU64::new(0),
        });
        let (begins, begun) = channel::bounded(1);
        let run = Arc::clone(&server);
        let address = server.listener().and_then(|it| it.tcp_address());
        let job = runtime.spawn(move || listen(&run, &begins)).job().clone();
        // Made now, so that it is ended if it did not begin.
        let handle = RemoteServer {
            server,
            job,
            address,
        };
        begun.recv().unwrap_or(Err(RemoteError::Cancelled))?;
        Ok(handle)
    }
}

/// A server for a [`RemoteService`]. Dropped, it ends at once: connections end, and operations are cancelled.
///
/// It holds one of the runtime's blocking threads, and two for every connection.
///
/// ```
/// use std::time::Duration;
/// use jobtree_lanes::remote::{RemoteServer, RemoteService};
/// use jobtree_runtime::Runtime;
///
/// let runtime = Runtime::builder().workers(1).build()?;
/// let service = RemoteService::new("assets");
/// service.handle("ping", |_| Ok(Vec::new()));
/// let server = RemoteServer::builder(&service).bind_tcp(&runtime, "127.0.0.1:0")?;
/// println!("on {}", server.tcp_address().unwrap());
/// server.shutdown(Duration::from_secs(5))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RemoteServer {
    server: Arc<Server>,
    job: Job,
    address: Option<SocketAddr>,
}

/// What the handle and the jobs share.
pub(super) struct Server {
    pub(super) service: RemoteService,
    pub(super) settings: RemoteSettings,
    pub(super) load: Arc<Load>,
    max_connections: usize,
    /// Until it is ended, so that the address is free again even if an operation does not end.
    listener: Mutex<Option<Arc<Listener>>>,
    is_ending: AtomicBool,
    /// By a number; the outbox as soon as there is one.
    connections: Mutex<Connections>,
    refused: AtomicU64,
}

#[derive(Default)]
struct Connections {
    next: u64,
    open: BTreeMap<u64, Option<Outbox>>,
}

impl RemoteServer {
    /// Starts to describe a server for `service`.
    pub fn builder(service: &RemoteService) -> RemoteServerBuilder {
        RemoteServerBuilder {
            service: service.clone(),
            settings: RemoteSettings::default(),
            max_connections: MAX_CONNECTIONS,
            anywhere: false,
        }
    }

    /// The TCP address on which it listens.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What it serves.
    pub fn service(&self) -> &RemoteService {
        &self.server.service
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.server.connections().open.len()
    }

    /// How many connections were refused, because there were too many or no thread was free.
    pub fn refused(&self) -> u64 {
        self.server.refused.load(Ordering::Relaxed)
    }

    /// Listens no more, answers new requests with [`Busy`](RemoteError::Busy), lets what runs come to its
    /// end, tells the peers, and ends. What still runs after `limit` is cancelled.
    ///
    /// # Errors
    /// If operations had to be cancelled.
    pub fn shutdown(self, limit: Duration) -> Result<(), StillRunning> {
        let load = &self.server.load;
        load.leave();
        self.server.end_listening();
        // If the calling job is cancelled, there is no more patience.
        let _ = block_on(first_of(load.idle(), future::sleep(limit)));
        let operations = load.running();
        self.server.say_goodbye();
        if operations > 0 {
            self.job.cancel("the server ends");
            return Err(StillRunning { operations });
        }
        // The goodbyes are written, and the peers go; whoever does not is cut off.
        let _ = block_on(first_of(self.job.ended(), future::sleep(PARTING)));
        Ok(())
    }
}

/// How long peers may take to go.
const PARTING: Duration = Duration::from_secs(1);

impl Drop for RemoteServer {
    fn drop(&mut self) {
        self.server.end_listening();
        self.job.cancel("the server ends");
    }
}

impl fmt::Debug for RemoteServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteServer")
            .field("service", self.service())
            .field("address", &self.address)
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

/// Operations were cancelled when a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillRunning {
    /// How many.
    pub operations: usize,
}

impl fmt::Display for StillRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations were still running after the time limit and were cancelled; give them more time",
            self.operations
        )
    }
}

impl Error for StillRunning {}

impl Server {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn listener(&self) -> Option<Arc<Listener>> {
        let listener = self.listener.lock();
        listener.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn end_listening(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        let listener = self.listener.lock();
        let listener = listener.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listener) = listener {
            listener.end();
        }
    }

    /// A connection has an outbox now.
    pub(super) fn opened(&self, number: u64, outbox: &Outbox) {
        if let Some(open) = self.connections().open.get_mut(&number) {
            *open = Some(outbox.clone());
        }
    }

    fn say_goodbye(&self) {
        let outboxes: Vec<Outbox> = self
            .connections()
            .open
            .values()
            .flatten()
            .cloned()
            .collect();
        for outbox in outboxes {
            outbox.put_now(&Message::Goodbye);
            outbox.close();
        }
    }
}

/// A connection that counts.
struct Counted {
    server: Arc<Server>,
    number: u64,
}

impl Counted {
    /// Unless there are too many.
    fn new(server: &Arc<Server>) -> Option<Counted> {
        let mut connections = server.connections();
        if connections.open.len() >= server.max_connections {
            return None;
        }
        let number = connections.next;
        connections.next += 1;
        connections.open.insert(number, None);
        Some(Counted {
            server: Arc::clone(server),
            number,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.server.connections().open.remove(&self.number);
    }
}

/// The job of the server.
fn listen(server: &Arc<Server>, begins: &Sender<Result<(), RemoteError>>) -> Result<(), BoxError> {
    let Some(listener) = server.listener() else {
        return Ok(());
    };
    let ends = Arc::clone(server);
    let job = Job::current();
    let _ended = job.map(|job| job.on_cancel(move |_| ends.end_listening()));
    let limit = server.settings.connect_timeout;
    supervisor(|n| {
        let accepting = on_thread(n, "remote listener", limit, move || {
            accept(server, &listener)
        });
        match accepting {
            Ok(accepting) => {
                let _ = begins.try_send(Ok(()));
                Ok(accepting.join()?)
            }
            Err(error) => {
                let _ = begins.try_send(Err(error));
                Ok(())
            }
        }
    })?;
    Ok(())
}

/// How long to wait if nobody can be accepted, because there are too many files for example.
const BREATH: Duration = Duration::from_millis(50);

fn accept(server: &Arc<Server>, listener: &Listener) -> Result<(), BoxError> {
    supervisor(|n| {
        while !server.is_ending.load(Ordering::SeqCst) {
            checkpoint()?;
            match listener.accept() {
                Ok(_) if server.is_ending.load(Ordering::SeqCst) => break,
                Ok(stream) => welcome(n, server, stream),
                Err(_) if server.is_ending.load(Ordering::SeqCst) => break,
                Err(_) => sleep(BREATH)?,
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Starts a connection; or refuses it, without a thread.
fn welcome<'scope>(n: &'scope Nursery<'scope, '_>, server: &Arc<Server>, stream: Stream) {
    let Some(counted) = Counted::new(server) else {
        return refuse(server, &stream, RemoteError::Busy);
    };
    let stream = Arc::new(stream);
    let has_begun = Arc::new(AtomicBool::new(false));
    let connection = {
        let (server, stream, has_begun) = (
            Arc::clone(server),
            Arc::clone(&stream),
            Arc::clone(&has_begun),
        );
        n.job_options()
            .label("remote connection")
            .on(&Dispatcher::io())
            .spawn(move || {
                if has_begun.swap(true, Ordering::SeqCst) {
                    return Ok(());
                }
                let counted = counted;
                converse(&server, counted.number, stream);
                Ok(())
            })
    };
    // The thread that accepts does not wait for the other.
    let server = Arc::clone(server);
    let job = connection.job().clone();
    drop(n.spawn_future(async move {
        let limit = server.settings.connect_timeout;
        let _ = first_of(job.ended(), future::sleep(limit)).await;
        if !has_begun.swap(true, Ordering::SeqCst) {
            job.cancel("no blocking thread was free in time");
            refuse(&server, &stream, RemoteError::NoThread);
        }
        Ok(())
    }));
}

/// A few bytes into a socket in which there is nothing yet: that does not block.
fn refuse(server: &Server, stream: &Stream, error: RemoteError) {
    server.refused.fetch_add(1, Ordering::Relaxed);
    if let Ok(frame) = encode(&Message::Refused(error), u32::MAX) {
        let _ = stream.set_limits(BREATH, BREATH);
        let _ = write_frame(stream, &frame, BREATH);
    }
    stream.end();
}
