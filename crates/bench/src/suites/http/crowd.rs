//! A thousand workers that wait and two hundred who follow the events, while jobs come and go: is memory flat?

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use std::{fs, thread};

use jobtree_protocol::{AddonId, ClaimRequest, paths};

use super::BULK;
use super::daemon::{Daemon, claim};
use crate::harness::{Fact, Report};
use crate::suites::Options;

const NAME: &str = "crowd";
const WORKERS: usize = 1000;
const READERS: usize = 200;
/// Few, so that it is the caches that grow and not the queue.
const FILLED_AT_ONCE: usize = 10_000;

pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    eprintln!("  {NAME}: {WORKERS} workers wait, {READERS} follow the events");
    if resident().is_none() {
        eprintln!("    there is no /proc here: not measured");
        return;
    }
    let resident = || resident().expect("it was there before");
    let daemon = Daemon::start();
    // What has a bound is filled first: the pages that the store keeps in memory while nobody watches, which is quick, and
    // then the jobs that the event hub remembers.
    let (filling, warming, rounds) = if options.quick {
        (20_000, 4, 4)
    } else {
        (400_000, 70, 40)
    };
    for _ in 0..filling / FILLED_AT_ONCE {
        daemon.submit_in_bulk(FILLED_AT_ONCE);
        daemon.process(FILLED_AT_ONCE, 2);
    }
    let alone = resident();
    let (waiting, mut following) = gather(&daemon);
    work(&daemon, &mut following);
    let together = resident();
    for _ in 0..warming {
        work(&daemon, &mut following);
    }
    let warm = resident();
    let mut heard = 0;
    for _ in 0..rounds {
        heard += work(&daemon, &mut following);
    }
    let after = resident();
    let each = (together.saturating_sub(alone)) as f64 / (WORKERS + READERS) as f64;
    let facts = [
        (
            "bytes held for each connection, server and client",
            each,
            "bytes",
            None,
        ),
        (
            "memory after more jobs",
            after as f64 / warm as f64,
            "times",
            Some(1.05),
        ),
        (
            "events heard by all readers together, a job",
            heard as f64 / (rounds * BULK) as f64,
            "events",
            None,
        ),
    ];
    for (what, value, unit, at_most) in facts {
        report.facts.push(Fact {
            name: format!("{NAME}: {what}"),
            value,
            unit,
            at_most,
        });
    }
    drop(waiting);
}

/// Those who wait, for jobs that never come, and those who read.
fn gather(daemon: &Daemon) -> (Vec<TcpStream>, Vec<TcpStream>) {
    let nothing = ClaimRequest {
        addon_id: AddonId::new("nobody").expect("a name"),
        ..claim(1, 600)
    };
    let body = serde_json::to_string(&nothing).expect("JSON");
    let waiting = (0..WORKERS).map(|_| {
        let mut caller = daemon.caller();
        let request = caller.request("POST", paths::CLAIM, &body);
        caller.send(&request);
        caller.into_stream()
    });
    let waiting = waiting.collect();
    let following = (0..READERS).map(|_| {
        let mut caller = daemon.caller();
        let request = caller.request("GET", paths::EVENTS, "");
        caller.send(&request);
        let stream = caller.into_stream();
        stream.set_nonblocking(true).expect("a socket");
        stream
    });
    (waiting, following.collect())
}

/// Some jobs come and go, and everybody who follows hears of it. How many events were heard.
fn work(daemon: &Daemon, following: &mut [TcpStream]) -> usize {
    let mut heard = 0;
    thread::scope(|scope| {
        let working = scope.spawn(|| {
            daemon.submit_in_bulk(BULK);
            daemon.process(BULK, 1);
        });
        let mut quiet_since = Instant::now();
        while !working.is_finished() || quiet_since.elapsed() < Duration::from_millis(100) {
            let count: usize = following.iter_mut().map(read).sum();
            heard += count;
            if count > 0 || !working.is_finished() {
                quiet_since = Instant::now();
            }
            if count == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    heard
}

/// How many events lie ready.
fn read(stream: &mut TcpStream) -> usize {
    let mut buffer = [0; 64 << 10];
    let mut count = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("an event stream ended"),
            Ok(length) => {
                let text = &buffer[..length];
                count += text.windows(5).filter(|part| *part == b"\ndata").count();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return count,
            Err(error) => panic!("an event stream broke: {error}"),
        }
    }
}

fn resident() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
