//! A PostgreSQL server beside the program: a new cluster, with `fsync` on and otherwise as it comes.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::suites::Folder;

/// A PostgreSQL server of the benchmark's own.
pub struct Server {
    folder: Folder,
    child: Child,
}

/// Returns the path of one of PostgreSQL's programs: of the folder that `JOBTREE_POSTGRES_BIN` names, if it is there, else of
/// the newest version that Debian's packages installed. The tests' servers are chosen in the same way.
fn program(name: &str) -> PathBuf {
    let chosen = std::env::var_os("JOBTREE_POSTGRES_BIN").map(PathBuf::from);
    if let Some(folder) = chosen {
        assert!(
            folder.join("postgres").exists(),
            "JOBTREE_POSTGRES_BIN is {}, where there is no program 'postgres'",
            folder.display()
        );
        if folder.join(name).exists() {
            return folder.join(name);
        }
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let number = |bin: &PathBuf| {
        let version = bin.parent()?.file_name()?.to_str()?;
        version.parse::<u32>().ok()
    };
    let found = versions
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join(name).exists())
        .max_by_key(number);
    let found = found.expect("no PostgreSQL server found: install Debian's package 'postgresql'");
    found.join(name)
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")) == "0"
}

/// A program of the server, which refuses to run as root.
fn server_program(name: &str) -> Command {
    let program = program(name);
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    command.arg(program);
    command
}

impl Server {
    /// # Panics
    ///
    /// If no server is installed, or it does not start.
    pub fn start() -> Self {
        let folder = Folder::new("postgres");
        let (data, sockets) = (folder.file("data"), folder.file("."));
        if is_root() {
            output(Command::new("chown").arg("postgres:postgres").arg(&sockets));
        }
        output(
            server_program("initdb")
                .args([
                    "--auth=trust",
                    "--username=postgres",
                    "--encoding=UTF8",
                    "-D",
                ])
                .arg(&data)
                .current_dir(&sockets),
        );
        let child = server_program("postgres")
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&sockets)
            // Only by its socket in the folder: no port can be in use already.
            .args(["-c", "listen_addresses=", "-c", "fsync=on"])
            .current_dir(&sockets)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let server = Self { folder, child };
        let ready = || {
            let mut command = Command::new(program("pg_isready"));
            command.arg("-q").arg("-h").arg(server.folder.file("."));
            command.status().is_ok_and(|status| status.success())
        };
        while !ready() {
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// The address for programs that take `name=value` pairs.
    pub fn address(&self) -> String {
        let sockets = self.folder.file(".");
        format!("host={} user=postgres dbname=postgres", sockets.display())
    }

    /// The address as a URL, of a database that is made if it is new: each program of a comparison has its own.
    pub fn url(&self, database: &str) -> String {
        let exists = format!("SELECT 1 FROM pg_database WHERE datname = '{database}'");
        if self.psql(&exists).is_empty() {
            self.psql(&format!("CREATE DATABASE {database}"));
        }
        // A socket's folder stands in the query part, where its slashes need no escapes.
        let sockets = self.folder.file(".");
        format!(
            "postgresql://postgres@localhost/{database}?host={}",
            sockets.display()
        )
    }

    fn psql(&self, sql: &str) -> String {
        output(
            Command::new(program("psql"))
                .arg("-h")
                .arg(self.folder.file("."))
                .args(["-U", "postgres", "-q", "-t", "-A", "-c", sql]),
        )
    }

    /// How much the server has written to its log since it was made.
    pub fn wal_bytes(&self) -> f64 {
        let text = self.psql("SELECT pg_current_wal_insert_lsn() - '0/0'");
        text.parse().expect("a number of bytes")
    }

    /// How many transactions have written something since the server was made, this question included.
    pub fn transactions(&self) -> f64 {
        let text = self.psql("SELECT pg_current_xact_id()");
        text.parse().expect("a number of transactions")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGINT: a fast shutdown, so that no process is left when the folder goes.
        let _ = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        let _ = self.child.wait();
    }
}
