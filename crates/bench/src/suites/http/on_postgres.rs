//! The rows of the suite on PostgreSQL: one daemon, two daemons on one database, and the peers, in turns on one server.
//!
//! Daemons, peers, callers and the server share the machine. Beside the time, bytes of write-ahead log and commits a job
//! say where it goes; a commit is a sync, which callers share.

use std::thread;

use jobtree_server::StoreChoice;

use super::daemon::Daemon;
use super::peers::{PEERS, Peer};
use super::{ROWS, Row, Work, jobs, provide, rounds, timed};
use crate::harness::{Fact, Report, quantile};
use crate::postgres::Server;
use crate::suites::Options;

/// In microseconds a job.
fn goal(work: Work) -> Option<f64> {
    match work {
        Work::Submit { callers: 64 } => Some(1e6 / 10_000.0),
        Work::Bulk => Some(1e6 / 120_000.0),
        Work::Process { .. } => Some(1e6 / 30_000.0),
        Work::Submit { .. } => None,
    }
}

/// Runs every row that was asked for.
pub fn run(options: &Options, report: &mut Report) {
    let wanted: Vec<&Row> = ROWS.iter().filter(|row| options.wants(row.name)).collect();
    if wanted.is_empty() {
        return;
    }
    let server = Server::start();
    let daemon =
        |database, node| Daemon::start_on(StoreChoice::Postgres(server.url(database)), node);
    let one = daemon("one", "local");
    let two = [daemon("two", "first"), daemon("two", "second")];
    let start = |(program, name)| {
        Peer::start(program, name, &server.url(program))
            .inspect_err(|error| eprintln!("  {name}: left out: {error}"))
            .ok()
    };
    let mut peers: Vec<Peer> = PEERS.into_iter().filter_map(start).collect();
    for row in wanted {
        eprintln!("  {}", row.name);
        let sides = (&one, &two, peers.as_mut_slice());
        measure(options, row, &server, sides, report);
    }
}

type Sides<'a> = (&'a Daemon, &'a [Daemon; 2], &'a mut [Peer]);

fn measure(options: &Options, row: &Row, server: &Server, sides: Sides<'_>, report: &mut Report) {
    let (one, two, peers) = sides;
    let count = jobs(options, row.work);
    let mut ours = Figures::default();
    let mut both = Figures::default();
    let mut others: Vec<Figures> = peers.iter().map(|_| Figures::default()).collect();
    for round in 0..=rounds(options) {
        // The first round warms up.
        let is_counted = round > 0;
        let work = row.work;
        provide(one, work, count);
        ours.take(is_counted, server, count, || timed(one, work, count));
        provide(&two[0], work, count);
        both.take(is_counted, server, count, || by_two(two, work, count));
        for (peer, figures) in peers.iter_mut().zip(&mut others) {
            peer.provide(work, count);
            figures.take(is_counted, server, count, || peer.timed(work, count));
        }
    }
    ours.report(row.name, "ours", goal(row.work), report);
    both.report(row.name, "ours, two daemons", None, report);
    for (peer, figures) in peers.iter().zip(&others) {
        figures.report(row.name, peer.name, None, report);
    }
    let times = |figures: &Figures, name| Fact {
        name: format!("{}: {name}", row.name),
        value: quantile(&ours.micros, 0.5) / quantile(&figures.micros, 0.5),
        unit: "times",
        at_most: Some(1.0),
    };
    if let Some(graphile) = others.first() {
        report.facts.push(times(graphile, "ours / graphile-worker"));
    }
}

/// Half of the work at each of two daemons, at the same time.
fn by_two(daemons: &[Daemon; 2], work: Work, count: usize) -> f64 {
    let half = match work {
        Work::Submit { callers } => Work::Submit {
            callers: callers.div_ceil(2),
        },
        Work::Process { callers } => Work::Process {
            callers: callers.div_ceil(2),
        },
        Work::Bulk => Work::Bulk,
    };
    let taken: Vec<f64> = thread::scope(|scope| {
        let start = |daemon| scope.spawn(move || timed(daemon, half, count / 2));
        let running = daemons.each_ref().map(start);
        running
            .into_iter()
            .map(|it| it.join().expect("it ends"))
            .collect()
    });
    // Each took so long for half of the jobs.
    taken.iter().copied().fold(0.0, f64::max) / 2.0
}

#[derive(Default)]
struct Figures {
    micros: Vec<f64>,
    wal_bytes: Vec<f64>,
    commits: Vec<f64>,
}

impl Figures {
    fn take(
        &mut self,
        is_counted: bool,
        server: &Server,
        count: usize,
        work: impl FnOnce() -> f64,
    ) {
        let (bytes, commits) = (server.wal_bytes(), server.transactions());
        let micros = work();
        if is_counted {
            let each = |after: f64, before: f64| (after - before) / count as f64;
            self.micros.push(micros);
            self.wal_bytes.push(each(server.wal_bytes(), bytes));
            self.commits.push(each(server.transactions(), commits));
        }
    }

    fn report(&self, row: &str, side: &str, at_most: Option<f64>, report: &mut Report) {
        for (what, figures, unit, at_most) in [
            ("", &self.micros, "µs a job", at_most),
            (", write-ahead log", &self.wal_bytes, "bytes a job", None),
            (", commits", &self.commits, "a job", None),
        ] {
            report.facts.push(Fact {
                name: format!("{row}: {side}{what}"),
                value: quantile(figures, 0.5),
                unit,
                at_most,
            });
        }
    }
}
