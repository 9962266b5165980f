//! The queues on PostgreSQL that Node programs use, each in a process of its own (`peers/peers.mjs`).

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{BATCH, BULK, Work};

/// A peer that waits for work.
pub struct Peer {
    pub name: &'static str,
    child: Child,
    commands: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

/// The peers, by what their program and we call them.
pub const PEERS: [(&str, &str); 2] = [("graphile", "graphile-worker"), ("pgboss", "pg-boss")];

impl Peer {
    /// Starts a peer on a database of its own, or says why that cannot be done here.
    pub fn start(program: &str, name: &'static str, url: &str) -> Result<Self, String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        if !folder.join("node_modules").exists() {
            let installed = Command::new("npm")
                .args(["ci", "--silent", "--no-audit", "--no-fund"])
                .current_dir(&folder)
                .status();
            match installed {
                Ok(status) if status.success() => {}
                Ok(status) => return Err(format!("npm ci ended with {status}")),
                Err(error) => return Err(format!("npm: {error}")),
            }
        }
        let mut child = Command::new("node")
            .arg("peers.mjs")
            .args([program, url])
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("node: {error}"))?;
        let commands = child.stdin.take();
        let output = child.stdout.take().expect("it is a pipe");
        let mut peer = Self {
            name,
            child,
            commands,
            answers: BufReader::new(output).lines(),
        };
        match peer.answer().as_str() {
            "ready" => Ok(peer),
            said => Err(format!("it did not start: {said}")),
        }
    }

    fn answer(&mut self) -> String {
        let line = self.answers.next().transpose().ok().flatten();
        line.unwrap_or_default()
    }

    /// Submits what is to be processed, before the time is taken.
    pub fn provide(&mut self, work: Work, count: usize) {
        if let Work::Process { .. } = work {
            self.timed(Work::Bulk, count);
        }
    }

    /// Does the work and returns the microseconds that a job took.
    ///
    /// # Panics
    ///
    /// If the peer has ended.
    pub fn timed(&mut self, work: Work, count: usize) -> f64 {
        let line = match work {
            Work::Submit { callers } => format!("submit {count} {callers}"),
            Work::Bulk => format!("bulk {count} {BULK}"),
            Work::Process { .. } => format!("process {count} {BATCH}"),
        };
        let commands = self.commands.as_mut().expect("it is open until the end");
        writeln!(commands, "{line}").expect("the peer reads");
        let seconds: f64 = self.answer().parse().expect("the peer answers");
        seconds * 1e6 / count as f64
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends with its input.
        self.commands = None;
        let _ = self.child.wait();
    }
}
