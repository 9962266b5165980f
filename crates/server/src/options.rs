//! How a server is set up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where it listens. Port 0 takes a free one. An address that other machines reach needs tokens and TLS.
    pub listen: SocketAddr,
    /// Where it keeps its files: `admin.token`, and with [`StoreChoice::File`] `jobs.db`. It is made if it is missing.
    pub data_dir: PathBuf,
    /// Where jobs are kept.
    pub store: StoreChoice,
    /// Who may ask.
    pub auth: Auth,
    /// With this it speaks HTTPS.
    pub tls: Option<TlsFiles>,
    /// Names that it is called by, beside `localhost` and its addresses: a request for another is refused.
    pub allowed_hosts: Vec<String>,
    /// How much of everything.
    pub limits: HttpLimits,
    /// The policy as TOML. It is read again when it changes; a file that is wrong leaves the old policy in force.
    pub policy_file: Option<PathBuf>,
    /// The scheduler's part; its policy holds unless there is a policy file.
    pub scheduler: jobtree_scheduler::Options,
    /// How often this machine is measured; never with `None`, and then whoever starts the server has to tell the load.
    pub sample_every: Option<Duration>,
    /// Threads that serve; as many as there are processors if absent.
    pub threads: Option<usize>,
}

impl ServerOptions {
    /// Defaults: loopback, port 7717, a SQLite file in this folder, tokens.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7717)),
            data_dir: data_dir.into(),
            store: StoreChoice::File,
            auth: Auth::Tokens,
            tls: None,
            allowed_hosts: Vec::new(),
            limits: HttpLimits::default(),
            policy_file: None,
            scheduler: jobtree_scheduler::Options::default(),
            sample_every: Some(Duration::from_secs(1)),
            threads: None,
        }
    }
}

/// Where jobs are kept.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreChoice {
    /// In `jobs.db` in the data directory.
    File,
    /// In memory: they are gone with the process.
    Memory,
    /// In a PostgreSQL database, by its URL, which may hold a password.
    Postgres(String),
}

impl std::fmt::Debug for StoreChoice {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File => "File",
            Self::Memory => "Memory",
            Self::Postgres(_) => "Postgres(..)",
        })
    }
}

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Whoever shows a token.
    Tokens,
    /// Everybody on this machine. Only on a loopback address.
    Open,
}

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those that it was signed by.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// How much of everything. What goes beyond is refused with a sentence that names the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpLimits {
    /// Connections at a time; more are told to come back later.
    pub connections: usize,
    /// Event streams at a time.
    pub streams: usize,
    /// How long the head of a request may take; also how long a connection may be idle.
    pub head_timeout: Duration,
    /// How long a body may take.
    pub body_timeout: Duration,
    /// How long an answer may take, except where the request asks to wait.
    pub answer_timeout: Duration,
    /// How long a client may take none of what is sent to it.
    pub write_timeout: Duration,
    /// How long requests under way may take when the server stops.
    pub stop_timeout: Duration,
    /// Header lines of a request.
    pub headers: usize,
    /// Bytes of a request's head: at least 8192.
    pub head_bytes: usize,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Requests of one token; no limit with `None`.
    pub rate: Option<Rate>,
    /// The time within which a link that signs in a browser must be used.
    pub sign_in_link: Duration,
    /// The time after which a browser must sign in again.
    pub session: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            streams: 1024,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(5),
            headers: 64,
            head_bytes: 32 << 10,
            body_bytes: 8 << 20,
            rate: Some(Rate {
                per_second: 50_000,
                burst: 50_000,
            }),
            sign_in_link: Duration::from_secs(60),
            session: Duration::from_secs(12 * 3600),
        }
    }
}

/// So many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// A second, in the long run.
    pub per_second: u32,
    /// At once, after a pause.
    pub burst: u32,
}
