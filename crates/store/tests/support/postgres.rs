//! A PostgreSQL server of the test's own: a new cluster in a temporary folder, on a free port, gone with the test.
//!
//! The server does not run as root, so a test that does hands it over to the user `postgres`. Where there is no server
//! to start, the test fails and says what to install: a suite that skips itself tells nobody that it did.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Folder;

pub struct Server {
    folder: Folder,
    port: u16,
    child: Option<Child>,
    schemas: AtomicUsize,
}

/// Names the folder with the programs of the server to test on.
const BINARIES: &str = "JOBTREE_POSTGRES_BIN";

/// Returns the path of one of PostgreSQL's programs: of the folder that [`BINARIES`] names, if it is there, else of the newest
/// version that Debian's packages installed. Clients talk to servers of other versions, so the folder needs servers only.
fn program(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os(BINARIES) {
        let folder = PathBuf::from(folder);
        assert!(
            folder.join("postgres").exists(),
            "{BINARIES} is {}, where there is no program 'postgres'",
            folder.display()
        );
        if folder.join(name).exists() {
            return folder.join(name);
        }
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let number = |bin: &PathBuf| {
        let version = bin.parent()?.file_name()?.to_str()?;
        version.parse::<u32>().ok()
    };
    let found = versions
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join(name).exists())
        .max_by_key(number);
    let found = found.unwrap_or_else(|| {
        panic!("there is no PostgreSQL '{name}': install Debian's package 'postgresql'")
    });
    found.join(name)
}

fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")) == "0"
}

/// A server's program, run by somebody who may.
fn server_program(name: &str) -> Command {
    unprivileged(&program(name))
}

/// Returns a command that does not run as root: servers refuse to.
pub fn unprivileged(program: &std::path::Path) -> Command {
    if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    }
}

/// Makes a folder that the server may write to.
fn new_folder() -> Folder {
    let folder = Folder::new("postgres");
    if is_root() {
        let mut hand_over = Command::new("chown");
        output(hand_over.arg("postgres:postgres").arg(folder.path()));
    }
    folder
}

impl Server {
    pub fn start() -> Self {
        let folder = new_folder();
        output(
            server_program("initdb")
                .args([
                    "--auth=trust",
                    "--username=postgres",
                    "--no-sync",
                    "--encoding=UTF8",
                    "-D",
                ])
                .arg(folder.file("data"))
                .current_dir(folder.path()),
        );
        Self::running(folder)
    }

    fn running(folder: Folder) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("its address").port();
        drop(free);
        let mut server = Self {
            folder,
            port,
            child: None,
            schemas: AtomicUsize::new(0),
        };
        server.run();
        server
    }

    /// Starts a standby, to which this server replicates synchronously: what is committed here is there, too.
    pub fn standby(&self) -> Self {
        let folder = new_folder();
        output(
            server_program("pg_basebackup")
                .args(["-h", "127.0.0.1", "-U", "postgres", "--no-sync"])
                .args(["--checkpoint=fast", "--write-recovery-conf"])
                .args(["-p", &self.port.to_string(), "-D"])
                .arg(folder.file("data"))
                .current_dir(folder.path()),
        );
        // A server that comes back is found soon: until then, its commits wait for this one.
        let mut settings = std::fs::OpenOptions::new()
            .append(true)
            .open(folder.file("data/postgresql.auto.conf"))
            .expect("the settings of a backup");
        std::io::Write::write_all(&mut settings, b"wal_retrieve_retry_interval = '100ms'\n")
            .expect("a setting is added");
        let standby = Self::running(folder);
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("SELECT pg_reload_conf()");
        while self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != "1"
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        standby
    }

    /// Makes a standby the server that is written to.
    pub fn promote(&self) {
        output(
            server_program("pg_ctl")
                .args(["promote", "--wait", "-D"])
                .arg(self.folder.file("data"))
                .current_dir(self.folder.path()),
        );
    }

    /// Lets it speak TLS, with this certificate and key.
    pub fn speak_tls(&self, certificate: &str, key: &str) {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let file = self.folder.file("data").join(name);
            std::fs::write(&file, text).expect("a file of the server");
            output(Command::new("chmod").arg("600").arg(&file));
            if is_root() {
                output(Command::new("chown").arg("postgres:postgres").arg(&file));
            }
        }
        self.sql("ALTER SYSTEM SET ssl = on");
        self.sql("SELECT pg_reload_conf()");
        while self.sql("SHOW ssl") != "on" {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A folder that goes with the server, in which its user may write.
    pub fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts the server, again if it was stopped.
    pub fn run(&mut self) {
        let log = std::fs::File::create(self.folder.file("log")).expect("a log");
        let child = server_program("postgres")
            .arg("-D")
            .arg(self.folder.file("data"))
            .arg("-k")
            .arg(self.folder.path())
            .args(["-p", &self.port.to_string()])
            // What a disk does with it is PostgreSQL's own to show; here it would only take time.
            .args(["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1"])
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the server starts");
        self.child = Some(child);
        let ready = || {
            let mut command = Command::new(program("pg_isready"));
            command.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            command.status().is_ok_and(|status| status.success())
        };
        while !ready() {
            let child = self.child.as_mut().expect("it was just started");
            if let Some(status) = child.try_wait().expect("it can be asked") {
                let log = std::fs::read_to_string(self.folder.file("log")).unwrap_or_default();
                panic!("the server ended with {status}: {log}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it as a crash does: no connection is told anything.
    pub fn crash(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // SIGQUIT: the server's processes end at once, and the next start recovers.
        let _ = Command::new("kill")
            .args(["-QUIT", &child.id().to_string()])
            .status();
        let _ = child.wait();
    }

    fn psql(&self) -> Command {
        let mut command = Command::new(program("psql"));
        command
            .args(["-X", "-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-U", "postgres", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1"]);
        command
    }

    pub fn sql(&self, sql: &str) -> String {
        output(self.psql().args(["-c", sql]))
    }

    /// Connects as another program, whose transactions may stay open.
    pub fn session(&self) -> Session {
        let mut child = self
            .psql()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql starts");
        let input = child.stdin.take().expect("it is piped");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Session {
            child,
            input: Some(input),
            answers,
        }
    }

    /// Runs the commands of a file.
    pub fn restore(&self, file: &std::path::Path) {
        output(
            Command::new(program("psql"))
                .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
                .args(["-U", "postgres", "-q", "-t", "-A", "--single-transaction"])
                .args(["-v", "ON_ERROR_STOP=1", "-f"])
                .arg(file),
        );
    }

    /// A connection string to a new, empty place in it.
    pub fn new_place(&self) -> String {
        let name = format!("place{}", self.schemas.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("CREATE SCHEMA {name}"));
        self.place(&name)
    }

    pub fn place(&self, name: &str) -> String {
        format!(
            "host=127.0.0.1 port={} user=postgres dbname=postgres options='-c search_path={name}'",
            self.port
        )
    }
}

/// A connection of another program, of which the database ends what is open when this is dropped.
pub struct Session {
    child: Child,
    input: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Session {
    /// Sends statements, and waits for no answer.
    pub fn send(&mut self, sql: &str) {
        let input = self.input.as_mut().expect("only taken by drop");
        writeln!(input, "{sql};\n\\echo answered").expect("psql runs");
    }

    /// Returns what was answered to the statements that were sent first.
    pub fn answer(&mut self) -> String {
        let mut answer = Vec::new();
        for line in self.answers.by_ref().lines() {
            match line.expect("psql prints text") {
                line if line == "answered" => return answer.join("\n"),
                line => answer.push(line),
            }
        }
        panic!("psql ended: a statement failed")
    }

    /// Runs statements, which may leave a transaction open, and returns what was answered.
    pub fn sql(&mut self, sql: &str) -> String {
        self.send(sql);
        self.answer()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.input.take());
        // Not waited for without this: a statement may be waiting for a lock.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.crash();
    }
}
