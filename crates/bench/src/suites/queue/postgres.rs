//! The rows of the suite on PostgreSQL: a new cluster beside the program, with `fsync` on and otherwise as it comes.
//!
//! Beside the time, two figures say where the time goes: bytes of write-ahead log and commits a job. A commit is a sync, so
//! few commits a job mean that callers shared them.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use jobtree_store::{PostgresOptions, Store};

use super::files::Folder;
use super::ours::Ours;
use super::{ROWS, Row, Work, jobs, rounds};
use crate::harness::{Fact, Report, quantile};
use crate::suites::Options;

/// Runs every row that was asked for.
pub fn run(options: &Options, report: &mut Report) {
    let wanted: Vec<&Row> = ROWS.iter().filter(|row| options.wants(row.name)).collect();
    if wanted.is_empty() {
        return;
    }
    let server = Server::start();
    let store = Store::connect(&PostgresOptions::new(server.address())).expect("a new database");
    let mut ours = Ours::on(store);
    for row in wanted {
        measure(options, row, &server, &mut ours, report);
    }
}

/// In microseconds a job, as issue 19 asks for over HTTP.
fn goal(work: Work) -> Option<f64> {
    match work {
        Work::Submit { callers: 64 } => Some(1e6 / 10_000.0),
        Work::Bulk => Some(1e6 / 120_000.0),
        Work::ProcessBatches => Some(1e6 / 30_000.0),
        Work::Submit { .. } | Work::ProcessOneByOne { .. } => None,
    }
}

fn measure(options: &Options, row: &Row, server: &Server, ours: &mut Ours, report: &mut Report) {
    eprintln!("  {}", row.name);
    let count = jobs(options, row.work);
    let (mut times, mut bytes, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds(options) {
        ours.provide(row.work, count);
        let (wal_before, commits_before) = (server.wal_bytes(), ours.commits());
        let time = ours.micros_each(row.work, count);
        // The first round warms up.
        if round > 0 {
            times.push(time);
            bytes.push((server.wal_bytes() - wal_before) / count as f64);
            commits.push((ours.commits() - commits_before) as f64 / count as f64);
        }
    }
    for (what, figures, unit, at_most) in [
        ("ours", &times, "µs a job", goal(row.work)),
        ("write-ahead log", &bytes, "bytes a job", None),
        ("commits", &commits, "a job", None),
    ] {
        report.facts.push(Fact {
            name: format!("PostgreSQL, {}: {what}", row.name),
            value: quantile(figures, 0.5),
            unit,
            at_most,
        });
    }
}

/// A PostgreSQL server of the suite's own.
struct Server {
    folder: Folder,
    child: Child,
}

/// The folder with the programs of the newest server that Debian's packages installed.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let found = versions
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join("postgres").exists())
        .max();
    found.expect("no PostgreSQL server found: install Debian's package 'postgresql'")
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
    let program = programs().join(name);
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    command.arg(program);
    command
}

impl Server {
    fn start() -> Self {
        let folder = Folder::new("queue-postgres");
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
            let mut command = Command::new(programs().join("pg_isready"));
            command.arg("-q").arg("-h").arg(server.folder.file("."));
            command.status().is_ok_and(|status| status.success())
        };
        while !ready() {
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn address(&self) -> String {
        let sockets = self.folder.file(".");
        format!("host={} user=postgres dbname=postgres", sockets.display())
    }

    /// How much the server has written to its log since it was made.
    fn wal_bytes(&self) -> f64 {
        let lsn = "SELECT pg_current_wal_insert_lsn() - '0/0'";
        let text = output(
            Command::new(programs().join("psql"))
                .arg("-h")
                .arg(self.folder.file("."))
                .args(["-U", "postgres", "-q", "-t", "-A", "-c", lsn]),
        );
        text.parse().expect("a number of bytes")
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
