//! What the tests of the command share: a daemon of a test's own, the command as somebody types it, and snapshots.

#![allow(dead_code, reason = "each test program uses its own part of this")]

#[path = "../../../pool/tests/watchdog/mod.rs"]
mod watchdog;

pub mod schema;
pub mod screen;
pub mod snapshot;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use jobtree_client::Client;
use jobtree_protocol::SignalsRequest;
use serde_json::Value;
pub use watchdog::Watchdog;

/// Watches the calling test, which the thread is named after.
pub fn watch() -> Watchdog {
    Watchdog::watching(thread::current().name().unwrap_or("main"))
}

/// The policy that a new user gets, but for what goes by the load of the machine: the file says why.
pub const ALWAYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/always.toml");

/// The policy that a new user gets, with leases that end sooner: the file says why.
pub const SHORT_LEASES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/support/short_leases.toml"
);

/// The text of [`ALWAYS`], with another time that PANIC lasts before running jobs are told to yield.
pub fn always(panic_cooldown: &str) -> String {
    let policy = fs::read_to_string(ALWAYS).expect("a policy");
    let other = format!("panic_cooldown = {panic_cooldown:?}");
    policy.replace("panic_cooldown = \"0\"", &other)
}

/// What the host pushes of itself, and what the daemon makes of it by [`ALWAYS`] with its next sample. Nothing else counts as
/// load there, so a test decides over it.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    Quiet,
    Busy,
    Panic,
}

impl Load {
    fn signals(self) -> SignalsRequest {
        let all = |latency: f64, others: f64| SignalsRequest {
            node_id: None,
            p95_latency_ms: Some(latency),
            in_flight: Some(others),
            requests_per_sec: Some(others),
            error_rate: Some(others.min(1.0)),
        };
        match self {
            // Of 0 to 10 it is 9, and the mean with those of this machine, one or two, between 5 and 7.
            Load::Busy => SignalsRequest {
                p95_latency_ms: Some(725.0),
                ..SignalsRequest::default()
            },
            Load::Quiet => all(0.0, 0.0),
            Load::Panic => all(10_000.0, 1000.0),
        }
    }
}

/// A folder of one test's own, gone with it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // As long as all others: no name is the beginning of another, so names can be replaced in texts.
        let name = format!("jobtree-cli-{}-{number:04}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.join(name), text).expect("a file");
        self.join(name).to_str().expect("a plain path").to_owned()
    }

    /// The command, with this folder for all that it reads and writes by itself.
    pub fn command(&self) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_jobtree"))
    }

    /// Another program, in the same environment.
    pub fn command_of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").expect("a path"))
            .env("HOME", &self.0)
            .env("TZ", "UTC")
            .env("JOBTREE_DATA_DIR", self.join("data"))
            // Nobody listens there.
            .env("JOBTREE_URL", "http://127.0.0.1:1")
            .current_dir(&self.0)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What came of a command.
#[derive(Debug)]
pub struct Ran {
    pub line: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(command: &mut Command, arguments: &[&str]) -> Self {
        let output = command
            .args(arguments)
            .output()
            .expect("the program starts");
        let text = |bytes| String::from_utf8(bytes).expect("the program prints UTF-8");
        Ran {
            line: arguments.join(" "),
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// What it printed, without the newline.
    #[track_caller]
    pub fn text(self) -> String {
        self.exits(0).stdout.trim_end().to_owned()
    }

    /// The JSON document that it printed.
    #[track_caller]
    pub fn json(self) -> Value {
        let ran = self;
        let read: Value = serde_json::from_str(&ran.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {ran:#?}"));
        assert_eq!(read["version"], 1, "{ran:#?}");
        read
    }
}

/// A daemon, ended with the test.
pub struct Daemon {
    pub folder: Folder,
    pub url: String,
    /// By which certificate it is known, if it speaks TLS.
    ca_file: Option<String>,
    arguments: Vec<String>,
    process: Child,
}

impl Daemon {
    /// One that keeps jobs in memory, with the default policy: for tests that wait for no job to start.
    pub fn start() -> Self {
        Self::with(&["--store", "memory"])
    }

    /// One that keeps jobs in memory and starts them however busy this machine is: see [`ALWAYS`].
    pub fn always() -> Self {
        Self::with(&["--store", "memory", "--policy", ALWAYS])
    }

    pub fn with(arguments: &[&str]) -> Self {
        Self::known_by(None, arguments)
    }

    /// One that speaks TLS, and whom commands know by this certificate.
    pub fn trusted(ca_file: &str, arguments: &[&str]) -> Self {
        Self::known_by(Some(ca_file.to_owned()), arguments)
    }

    /// One with this folder.
    pub fn within(folder: Folder, arguments: &[&str]) -> Self {
        Self::known_within(folder, None, arguments)
    }

    fn known_by(ca_file: Option<String>, arguments: &[&str]) -> Self {
        Self::known_within(Folder::new(), ca_file, arguments)
    }

    fn known_within(folder: Folder, ca_file: Option<String>, arguments: &[&str]) -> Self {
        let (process, url) = serve(&folder, "127.0.0.1:0", arguments);
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        let daemon = Daemon {
            folder,
            url,
            ca_file,
            arguments: arguments.collect(),
            process,
        };
        // Before its first measurement it admits nothing.
        until(|| {
            let status = daemon.run(&["top", "--json"]).exits(0).json();
            status["nodes"][0]["stale"] == false
        });
        daemon
    }

    /// Ends it by a signal. Returns the exit code.
    pub fn ends(&mut self, by: &str) -> Option<i32> {
        signal(by, self.process.id());
        self.process.wait().expect("it ends").code()
    }

    /// Ends it by a signal, and starts it again at the same address with the same data. With the exit code.
    pub fn ends_and_returns(&mut self, by: &str) -> Option<i32> {
        let code = self.ends(by);
        let address = self.url.strip_prefix("http://").expect("an address");
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let (process, url) = serve(&self.folder, address, &arguments);
        assert_eq!(url, self.url);
        self.process = process;
        code
    }

    /// The command, told where this daemon is.
    pub fn command(&self) -> Command {
        let mut command = self.folder.command();
        command.env("JOBTREE_URL", &self.url);
        if let Some(file) = &self.ca_file {
            command.env("JOBTREE_CA_FILE", file);
        }
        command
    }

    /// Runs the command.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&mut self.command(), arguments)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A job, as it is now.
    pub fn job(&self, id: &str) -> Value {
        self.run(&["show", id, "--events", "--json"])
            .exits(0)
            .json()
    }

    /// Pushes load, and waits until the daemon goes by an overload.
    pub fn push(&self, load: Load) {
        let client = Client::builder(&self.url).token(self.token());
        let client = client.build().expect("a client");
        client.signals(&load.signals()).expect("it is taken");
        // The signals count from the next sample on: a job that is submitted before may begin.
        if matches!(load, Load::Panic) {
            until(|| self.run(&["status"]).exits(0).stdout.contains("PANIC"));
        }
    }

    pub fn token(&self) -> String {
        let file = self.folder.join("data/admin.token");
        fs::read_to_string(file).expect("a token").trim().to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(folder: &Folder, listen: &str, arguments: &[&str]) -> (Child, String) {
    let mut process = folder
        .command()
        .args(["serve", "--listen", listen])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::from(
            fs::File::create(folder.join("serve.err")).expect("a file"),
        ))
        .spawn()
        .expect("the daemon starts");
    let mut url = String::new();
    let stdout = process.stdout.take().expect("it is piped");
    BufReader::new(stdout)
        .read_line(&mut url)
        .expect("it tells");
    if url.is_empty() {
        let told = fs::read_to_string(folder.join("serve.err")).unwrap_or_default();
        panic!("the daemon did not start: {told}");
    }
    (process, url.trim().to_owned())
}

/// Something that runs beside the test, killed with it.
pub struct Beside(pub Child);

impl Beside {
    pub fn start(command: &mut Command) -> Self {
        Beside(command.spawn().expect("it starts"))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Option<i32> {
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a request as it is, and returns the answer.
pub fn raw(url: &str, request: &str) -> String {
    let address = url.strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Returns what a daemon answers to the question whether it is ready.
pub fn ready(url: &str) -> String {
    let host = url.strip_prefix("http://").expect("an address");
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    raw(url, &request)
}

pub fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status()
        .expect("kill is everywhere");
    assert!(sent.success(), "{name} could not be sent to {pid}");
}

/// Says that a part of a test is left out. Not by `eprintln!`, whose text is kept from those who run tests that pass.
pub fn skipped(what: &str) {
    let name = thread::current().name().unwrap_or("main").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED in {name}: {what}");
}

/// The most memory that a process had, in bytes.
pub fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.expect("a line").trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().expect("a number") << 10
}

/// Returns when it holds; the watchdog knows when to give up.
pub fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        thread::sleep(Duration::from_millis(5));
    }
}

/// The process whose number stands in a file, once it does.
pub fn pid_in(file: &Path) -> u32 {
    let mut read = None;
    until(|| {
        let text = fs::read_to_string(file).unwrap_or_default();
        read = text.strip_suffix('\n').and_then(|pid| pid.parse().ok());
        read.is_some()
    });
    read.expect("a number")
}

/// Whether it runs. One that nobody has reaped yet does not.
pub fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let state = stat.rsplit_once(") ").expect("a state").1;
        !state.starts_with('Z')
    })
}

/// Returns the URL for the connection string of a place in the database.
pub fn url_of(place: &str) -> String {
    let part = |name: &str| {
        let mut words = place.split([' ', '\'']);
        let found = words.find_map(|word| word.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name} in {place}"))
    };
    let (port, schema) = (part("port="), part("search_path="));
    format!("postgres://postgres@127.0.0.1:{port}/postgres?options=-c%20search_path%3D{schema}")
}
