//! Starting and stopping.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jobtree_scheduler::Scheduler;
use jobtree_scheduler::sampler::Sampling;
use jobtree_store::{SqliteOptions, Store};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::auth::{Book, Revocations, Sessions, admin_file};
use crate::daemon::{Daemon, Parts};
use crate::error::ServeError;
use crate::guard::host::Hosts;
use crate::listen::{self, Door};
use crate::observing::Observing;
use crate::options::{Auth, ServerOptions, StoreChoice};
use crate::policy::{self, PolicyKeeper};

/// A running server. It stops by [`Server::stop`], or when it is dropped.
pub struct Server {
    addr: SocketAddr,
    with_tls: bool,
    daemon: Arc<Daemon>,
    running: Mutex<Option<Running>>,
}

struct Running {
    runtime: Runtime,
    serving: JoinHandle<()>,
    sampling: Option<Sampling>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the store, starts the scheduler and listens. Requests are answered when this returns.
    ///
    /// # Errors
    /// What is missing, in use or not safe; see [`ServeError`].
    pub fn start(options: ServerOptions) -> Result<Server, ServeError> {
        guard_exposure(&options)?;
        let tls = options.tls.as_ref().map(listen::tls).transpose()?;
        make_folder(&options.data_dir)?;
        let runtime = runtime(options.threads)?;
        // Before the store: a port that is taken should not cost a recovery.
        let listener = bind(&runtime, options.listen)?;
        let addr = listener.local_addr().map_err(|error| ServeError::Listen {
            listen: options.listen,
            error,
        })?;

        let store = open(&options)?;
        let (keeper, policy) = PolicyKeeper::open(
            options.policy_file,
            &store,
            options.scheduler.policy.clone(),
        )?;
        let revocations = Revocations::default();
        let tokens = Book::open(&store, revocations.clone()).map_err(ServeError::Store)?;
        let sessions = Sessions::open(
            &store,
            addr.port(),
            options.limits.session,
            revocations.clone(),
        );
        let sessions = sessions.map_err(ServeError::Store)?;
        if options.auth == Auth::Tokens {
            tokens.admit_admin(&admin_file::open(&options.data_dir)?);
        }
        let shared = options.scheduler.shared || matches!(options.store, StoreChoice::Postgres(_));
        let scheduler = Scheduler::start(
            store,
            jobtree_scheduler::Options {
                policy,
                shared,
                ..options.scheduler
            },
        );
        let sampling = options
            .sample_every
            .map(|every| Sampling::start(&scheduler, &options.data_dir, every))
            .transpose()
            .map_err(ServeError::file("the sampler's thread"))?;

        let on_disk = options.store != StoreChoice::Memory;
        let observing = runtime.block_on(Observing::begin(
            &scheduler,
            on_disk.then_some(options.data_dir.as_path()),
            options.sample_every,
            options.limits.streams,
        ))?;
        let daemon = Arc::new(Daemon::new(Parts {
            scheduler,
            tokens,
            sessions,
            revocations,
            auth: options.auth,
            speaks_tls: tls.is_some(),
            hosts: Hosts::new(addr, &options.allowed_hosts),
            policy: keeper,
            observing,
            limits: options.limits,
            data_dir: options.data_dir,
        }));
        let with_tls = tls.is_some();
        let door = Arc::new(Door::new(Arc::clone(&daemon), tls));
        let serving = runtime.spawn(door.serve(listener));
        runtime.spawn(policy::following(Arc::clone(&daemon)));
        runtime.spawn(logging_trouble(Arc::clone(&daemon)));
        if shared {
            runtime.spawn(following_tokens(Arc::clone(&daemon)));
        }
        Ok(Server {
            addr,
            with_tls,
            daemon,
            running: Mutex::new(Some(Running {
                runtime,
                serving,
                sampling,
            })),
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it is found: `http://127.0.0.1:7717`.
    pub fn url(&self) -> String {
        let scheme = if self.with_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.addr)
    }

    /// The scheduler behind it.
    pub fn scheduler(&self) -> &Scheduler {
        &self.daemon.scheduler
    }

    /// Stops: no new connections, long polls are told so, requests under way may finish for
    /// [`HttpLimits::stop_timeout`](crate::HttpLimits::stop_timeout); then the scheduler stops. What runs at workers goes
    /// on, under leases that hold when the server is back. Returns when nothing of it is left.
    pub fn stop(self) {
        drop(self);
    }

    fn halt(&self) {
        let running = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(running) = running else { return };
        self.daemon.stop();
        // A panic in there was told by its message.
        let _ = running.runtime.block_on(running.serving);
        drop(running.sampling);
        running
            .runtime
            .block_on(self.daemon.observing.webhooks.close());
        self.daemon.observing.end();
        self.daemon.scheduler.stop();
        running.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.halt();
    }
}

async fn logging_trouble(daemon: Arc<Daemon>) {
    daemon.log_trouble().await;
}

async fn following_tokens(daemon: Arc<Daemon>) {
    tokio::select! {
        () = daemon.tokens.follow(daemon.store()) => {}
        () = daemon.sessions.follow(daemon.store()) => {}
        () = daemon.stopped() => {}
    }
}

/// What other machines reach must be locked.
fn guard_exposure(options: &ServerOptions) -> Result<(), ServeError> {
    let (without_tokens, without_tls) = (options.auth == Auth::Open, options.tls.is_none());
    if options.listen.ip().is_loopback() || !(without_tokens || without_tls) {
        return Ok(());
    }
    Err(ServeError::Exposed {
        listen: options.listen,
        without_tokens,
        without_tls,
    })
}

pub(crate) fn make_folder(path: &Path) -> Result<(), ServeError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path).map_err(ServeError::file(path))
}

fn runtime(threads: Option<usize>) -> Result<Runtime, ServeError> {
    let mut builder = Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads.max(1));
    }
    builder
        .thread_name("jobtree-http")
        .enable_all()
        .build()
        .map_err(ServeError::file("the server's threads"))
}

fn bind(runtime: &Runtime, listen: SocketAddr) -> Result<TcpListener, ServeError> {
    runtime
        .block_on(TcpListener::bind(listen))
        .map_err(|error| ServeError::Listen { listen, error })
}

fn open(options: &ServerOptions) -> Result<Store, ServeError> {
    match &options.store {
        StoreChoice::Memory => Ok(Store::in_memory()),
        StoreChoice::File => {
            let path = options.data_dir.join("jobs.db");
            let opened = Store::open(&SqliteOptions::new(&path));
            opened.map_err(|error| ServeError::OpenFile { path, error })
        }
        #[cfg(feature = "postgres")]
        StoreChoice::Postgres(url) => {
            let node = options.scheduler.node.as_str();
            let options = jobtree_store::PostgresOptions::new(url).node(node);
            Store::connect(&options).map_err(ServeError::Open)
        }
        #[cfg(not(feature = "postgres"))]
        StoreChoice::Postgres(_) => Err(ServeError::NotBuilt { store: "postgres" }),
    }
}
