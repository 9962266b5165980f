//! A process that submits, claims and completes is killed at random, again and again. It tells each acknowledgement to
//! its parent, who keeps the ledger; after each death the file must be whole, and hold all that stands in there.
//!
//! `JOBTREE_CRASHES` says how often; 30 if it is not set.

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use jobtree_store::{SqliteOptions, Store};
use support::Folder;
use support::ledger::{self, Entry};
use watchdog::Watchdog;

/// Crashes of one file.
const LOT: u64 = 200;

const CHILD: &str = "JOBTREE_CRASH_FILE";

/// The child's part; nothing without the variable that names its file.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    let store =
        Store::open(&SqliteOptions::new(path).checkpoint_pages(100)).expect("the file is free");
    ledger::recover(&store);
    let tell = |entry: Entry| {
        // One write a line, straight to the pipe: what was told is out of this process.
        let line = format!("\n{}\n", entry.line());
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
        let _ = std::io::stdout().flush();
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| ledger::submit_on(&store, usize::MAX, &tell));
        }
        for _ in 0..2 {
            scope.spawn(|| ledger::work_on(&store, usize::MAX, &tell));
        }
    });
}

/// Runs a child until it has told something and so long after that, kills it, and gives what it told.
fn life(path: &std::path::Path, after: Duration) -> Vec<Entry> {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("this program starts again");
    let out = child.stdout.take().expect("it is piped");
    let (told, first) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        let mut entries = Vec::new();
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Some(entry) = Entry::parse(&line) {
                entries.push(entry);
                if entries.len() == 1 {
                    let _ = told.send(());
                }
            }
        }
        entries
    });
    first
        .recv()
        .expect("the child gets as far as its first acknowledgement");
    // Not to wait for something, but to strike at a random moment.
    std::thread::sleep(after);
    child.kill().expect("it runs until it is killed");
    child.wait().expect("it is dead");
    reading.join().expect("the reader does not panic")
}

#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    let crashes: u64 =
        std::env::var("JOBTREE_CRASHES").map_or(30, |count| count.parse().expect("a number"));
    // One file for each lot: checking it takes longer the more it holds.
    for first in (0..crashes).step_by(LOT as usize) {
        let _watchdog = Watchdog::watching("crashes");
        lot(first..(first + LOT).min(crashes));
    }
}

fn lot(crashes: std::ops::Range<u64>) {
    let folder = Folder::new("crash");
    let path = folder.file("jobs.db");
    let mut ledger = Vec::new();
    for crash in crashes {
        let micros = crash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49;
        let new = life(&path, Duration::from_micros(micros));
        let db = rusqlite::Connection::open(&path).expect("the file");
        let integrity: String = db
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .expect("it can be checked");
        assert_eq!(integrity, "ok", "after crash {crash}");
        drop(db);
        let store =
            Store::open(&SqliteOptions::new(&path)).expect("the lock died with the process");
        // All of it is compared at the end.
        assert_eq!(ledger::compare(&store, &new), Ok(()), "after crash {crash}");
        ledger.extend(new);
    }
    let store = Store::open(&SqliteOptions::new(&path)).expect("nobody has it");
    assert_eq!(ledger::compare(&store, &ledger), Ok(()));
    assert!(
        ledger.iter().any(|entry| matches!(entry, Entry::Done(..))),
        "nothing was completed"
    );
}
