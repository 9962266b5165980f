//! `jobtree serve`: the daemon.

mod demo;
mod runner;

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ArgMatches, Command};
use jobtree_client::Client;
use jobtree_process::raise_open_files;
use jobtree_queue::policy::Policy;
use jobtree_server::{Auth, ServeError, Server, ServerOptions, StoreChoice, TlsFiles};
use jobtree_store::OpenError;
use serde::Serialize;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{self, flag, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::settings::Settings;
use crate::signals::Asked;

pub fn define(command: Command) -> Command {
    command
        .about("Run the daemon; prints its address when it is ready")
        .after_help(
            "The first start writes an admin token to DIR/admin.token, which other commands on this machine read.\n\
             Ctrl-C or TERM: requests under way are answered, and what its own workers run may end. What runs elsewhere goes on.\n\
             JOBTREE_LOG=debug tells more on standard error.\n\n\
             To see it live: jobtree serve --demo, and open the address that it prints in a browser, or run in another terminal: jobtree top",
        )
        .arg(value("data-dir", "DIR", "Where its files are [$XDG_DATA_HOME/jobtree]"))
        .arg(value("listen", "ADDR:PORT", "Where it listens, also localhost:PORT; port 0 takes a free one [127.0.0.1:7717]"))
        .arg(value("store", "WHERE", "file, memory, or postgres://… [file: DIR/jobs.db]"))
        .arg(value("policy", "FILE", "The policy as TOML; it is read again when it changes"))
        .arg(flag("no-auth", "Ask for no token; on a loopback address only"))
        .arg(value("tls-cert", "FILE", "Its certificate (PEM)").requires("tls-key"))
        .arg(value("tls-key", "FILE", "The certificate's key (PEM)").requires("tls-cert"))
        .arg(value("allow-host", "NAME", "Another name it is called by; may be repeated").action(ArgAction::Append))
        .arg(value("node", "NAME", "This machine's name [local]"))
        .arg(value("label", "LABEL", "A label of this machine; may be repeated").action(ArgAction::Append))
        .arg(flag("runner", "Run the commands of `jobtree run` on this machine"))
        .arg(value("runner-slots", "N", "How many commands side by side [2]").requires("runner"))
        .arg(value(
            "log-bytes",
            "BYTES",
            "Bytes of output that are kept of each run, from its beginning and its end; K, M and G are understood [1M]",
        ))
        .arg(flag("demo", "Two addons that submit and run jobs of all kinds, in a temporary directory"))
}

#[derive(Serialize)]
struct Ready {
    url: String,
    data_dir: PathBuf,
    pid: u32,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let _telling = tell()?;
    let asked = Asked::listen()?;
    let demo = arguments.get_flag("demo");
    let mut options = options(arguments, &context.settings)?;
    if demo && options.policy_file.is_none() {
        options.scheduler.policy = demo::policy();
    }
    let mut demo_folder = None;
    if demo && args::get(arguments, "data-dir").is_none() {
        // A demo leaves the jobs and the token of this user alone, and nothing behind.
        let folder = DemoFolder::make()?;
        options.data_dir = folder.0.clone();
        demo_folder = Some(folder);
        if !arguments.get_flag("runner") {
            // Other commands do not look for a token there, and the demo runs nothing but its own jobs.
            options.auth = Auth::Open;
        }
    } else if options.auth == Auth::Open {
        context.out.note(
            "warning: without tokens, every program on this machine may submit and stop jobs",
        );
    }
    let log_bytes = options.scheduler.limits.log_bytes;
    let (data_dir, tls) = (options.data_dir.clone(), options.tls.clone());
    let open = options.auth == Auth::Open;
    let open_files = raise_open_files();
    if open_files < options.limits.connections as u64 {
        context.out.note(&format!(
            "warning: this user may have {open_files} files open, and each connection is one: raise it with `ulimit -n`"
        ));
    }
    let server = Server::start(options).map_err(|error| not_started(&error))?;
    let url = server.url();

    // Its own workers come over HTTP as all others do, so that they are seen as all others are.
    let mut workers = Vec::new();
    if arguments.get_flag("runner") || demo {
        let client = own_client(&server, &data_dir, tls.as_ref(), context)?;
        if arguments.get_flag("runner") {
            let slots = args::read(arguments, "runner-slots")?.unwrap_or(2);
            workers.push(runner::start(client.clone(), slots, log_bytes, context)?);
        }
        if demo {
            workers.extend(demo::start(client)?);
        }
    }
    let gone = demo_folder.as_ref().map_or("", |_| ", until the demo ends");
    context
        .out
        .note(&format!("data in {}{gone}", data_dir.display()));
    context.out.note(match (demo, open) {
        (true, true) => "the demo runs: open the address below in a browser, or see `jobtree top` and `jobtree ls`",
        (true, false) => "the demo runs: `jobtree dashboard` prints a link to it; see also `jobtree top` and `jobtree ls`",
        (false, true) => "dashboard: open the address below in a browser",
        (false, false) => "dashboard: `jobtree dashboard` prints a link that signs a browser in",
    });
    if demo_folder.is_some() && arguments.get_flag("runner") {
        let token = data_dir.join("admin.token");
        context.out.note(&format!(
            "other commands need its token: export JOBTREE_TOKEN_FILE={}",
            token.display()
        ));
    }
    match context.out.json {
        true => context.out.line(&Ready {
            url,
            data_dir,
            pid: std::process::id(),
        })?,
        false => context.out.print(&url)?,
    }

    let signal = asked.wait();
    context.out.note(&format!("{signal}: stopping"));
    for worker in &workers {
        worker.stop();
    }
    for worker in workers {
        // Who does not stop in time is left to its lease.
        let _ = worker.drain(Duration::from_secs(3));
    }
    server.stop();
    drop(demo_folder);
    context.out.note("stopped");
    Ok(Exit::OK)
}

/// The times of the log: local, with offset, as in all other output.
struct LocalTime;

impl FormatTime for LocalTime {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        let now = jiff::Zoned::now();
        write!(out, "{}", now.strftime("%Y-%m-%d %H:%M:%S%.3f%:z"))
    }
}

/// What the library notes goes to standard error, as much as `JOBTREE_LOG` asks for; and traces, with the feature `otel`,
/// to where `OTEL_*` say, as long as what is returned is there.
fn tell() -> Result<Telling, CliError> {
    let filter = EnvFilter::try_from_env("JOBTREE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_timer(LocalTime)
        .with_filter(filter);
    let subscriber = tracing_subscriber::registry().with(lines);
    // Of the results below, only that of a second one in the same process is an error.
    #[cfg(feature = "otel")]
    {
        let exported = jobtree_server::otel::layer();
        let exported = exported.map_err(|error| CliError::usage(error.to_string()))?;
        let (layer, exporting) = exported.unzip();
        drop(subscriber.with(layer).try_init());
        Ok(exporting)
    }
    #[cfg(not(feature = "otel"))]
    {
        drop(subscriber.try_init());
        Ok(None)
    }
}

#[cfg(feature = "otel")]
type Telling = Option<jobtree_server::otel::Exporting>;
/// Nothing is exported.
#[cfg(not(feature = "otel"))]
type Telling = Option<()>;

/// Tells why the daemon does not start, and what to do.
pub(super) fn not_started(error: &ServeError) -> CliError {
    let failed = CliError::failed(error.to_string());
    match error {
        ServeError::Listen { error, .. } if error.kind() == ErrorKind::AddrInUse => failed.hint(
            "a daemon may be running there already: see `jobtree status`; --listen names another address",
        ),
        ServeError::File { error, .. } if error.kind() == ErrorKind::PermissionDenied => {
            failed.hint(NOT_ALLOWED)
        }
        ServeError::OpenFile { error, .. } if is_forbidden(error) => failed.hint(NOT_ALLOWED),
        ServeError::OpenFile { error, .. } if is_unreadable(error) => failed.hint(
            "if the file was damaged, put a copy that `jobtree backup` made in its place; --data-dir names another directory",
        ),
        ServeError::Store(_) => failed.hint(
            "if the file of the store was damaged, put a copy that `jobtree backup` made in its place",
        ),
        ServeError::Open(error) if is_unreadable(error) => {
            failed.hint("check that the database runs and that its address is right, as by `psql`")
        }
        _ => failed,
    }
}

/// The advice on a file that another account owns.
const NOT_ALLOWED: &str = "use the account that owns it, or name another directory with --data-dir";

/// Returns `true` if a store could not be opened because this account may not read or write it.
fn is_forbidden(error: &OpenError) -> bool {
    match error {
        OpenError::Io(error) => matches!(
            error.kind(),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
        ),
        // SQLite's words for a file that may only be read.
        OpenError::Database(error) => error.contains("readonly database"),
        _ => false,
    }
}

/// Returns `true` if a store could not be opened for a reason that the error itself has no advice on.
fn is_unreadable(error: &OpenError) -> bool {
    matches!(error, OpenError::Io(_) | OpenError::Database(_))
}

/// Reads where to listen: an address, or a name of this machine such as `localhost`, of which IPv4 counts first.
fn address(text: &str) -> Result<SocketAddr, CliError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = text.to_socket_addrs().map(|found| {
        let mut found: Vec<SocketAddr> = found.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        found
    });
    match found {
        Ok(found) if !found.is_empty() => Ok(found[0]),
        _ => Err(
            CliError::usage(format!("--listen: {text:?} is not an address"))
                .hint("write it like 127.0.0.1:7717 or localhost:7717"),
        ),
    }
}

/// The directory of a demo, which goes with it.
struct DemoFolder(PathBuf);

impl DemoFolder {
    fn make() -> Result<Self, CliError> {
        let name = format!("jobtree-demo-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // What a process of the same number left behind would be another demo's.
        let _ = std::fs::remove_dir_all(&folder);
        match std::fs::create_dir(&folder) {
            Ok(()) => Ok(Self(folder)),
            Err(error) => Err(CliError::failed(format!(
                "cannot make {}: {error}",
                folder.display()
            ))
            .hint("name a directory with --data-dir, or another place with TMPDIR")),
        }
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options(arguments: &ArgMatches, settings: &Settings) -> Result<ServerOptions, CliError> {
    let listen = settings.value("listen");
    let listen = address(listen)?;
    let store = match settings.get("store") {
        None | Some("file") => StoreChoice::File,
        Some("memory") => StoreChoice::Memory,
        Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            StoreChoice::Postgres(url.into())
        }
        Some(_) => {
            return Err(CliError::usage("--store names no store")
                .hint("write file, memory or postgres://…"));
        }
    };
    let tls = match (
        args::get(arguments, "tls-cert"),
        args::get(arguments, "tls-key"),
    ) {
        (Some(certificate), Some(key)) => Some(TlsFiles {
            certificate: certificate.into(),
            key: key.into(),
        }),
        _ => None,
    };
    let mut options = ServerOptions {
        listen,
        store,
        tls,
        auth: match arguments.get_flag("no-auth") {
            true => Auth::Open,
            false => Auth::Tokens,
        },
        allowed_hosts: args::all(arguments, "allow-host"),
        policy_file: settings.get("policy").map(PathBuf::from),
        ..ServerOptions::new(settings.data_dir())
    };
    if let Some(text) = args::get(arguments, "log-bytes") {
        let most = args::bytes("log-bytes", text)?;
        options.scheduler.limits.log_bytes = usize::try_from(most).unwrap_or(usize::MAX);
    }
    if let Some(node) = args::read(arguments, "node")? {
        options.scheduler.node = node;
    }
    options.scheduler.labels = args::all(arguments, "label");
    if let Some(path) = &options.policy_file {
        // Before anything is started, and with the line that is wrong.
        let text = std::fs::read_to_string(path).map_err(|error| {
            CliError::usage(format!("{} cannot be read: {error}", path.display()))
        })?;
        Policy::from_toml(&text).map_err(|error| CliError::usage(error.to_string()))?;
    }
    Ok(options)
}

/// A client of this very server. With TLS it is known by a name that stands in its certificate: the one that `--url` gives,
/// or `localhost`. An address without TLS is not this server's, but where other commands go.
fn own_client(
    server: &Server,
    data_dir: &std::path::Path,
    tls: Option<&TlsFiles>,
    context: &Context,
) -> Result<Client, CliError> {
    let url = match tls {
        None => server.url(),
        Some(_) if context.settings.value("url").starts_with("https://") => {
            context.settings.value("url").into()
        }
        Some(_) => format!("https://localhost:{}", server.addr().port()),
    };
    let mut builder = Client::builder(&url);
    if let Ok(token) = std::fs::read_to_string(data_dir.join("admin.token")) {
        builder = builder.token(token.trim());
    }
    if let Some(tls) = tls {
        builder = builder.ca_file(&tls.certificate);
    }
    let client = builder.build()?;
    client.health().map_err(|error| {
        CliError::failed(format!("its own workers do not reach it at {url}: {error}"))
            .hint("with TLS, give --url with https:// and a name that stands in the certificate")
    })?;
    Ok(client)
}
