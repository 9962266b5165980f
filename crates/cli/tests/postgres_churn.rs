//! A daemon on PostgreSQL under half of the load that it can take, for an hour: jobs come, run and are forgotten. For a sixth of the
//! time, in the middle, another program holds a snapshot open, so that nothing that is dead can be cleared. Afterwards calls
//! take as long as before, tables and indexes no longer grow, and the dead rows are gone.
//!
//! The short form, without a daemon and its times, is `crates/store/tests/postgres_churn.rs`.

#[path = "two_daemons/pair.rs"]
mod pair;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jobtree_client::Client;
use jobtree_protocol::{
    ClaimRequest, CompleteManyRequest, CompleteOne, CompleteStatus, InstanceId, LeaseId,
    SubmitManyRequest, SubmitRequest,
};
use pair::{Server, client_of, database};
use support::{ALWAYS, Daemon, Folder};

const ADDON: &str = "churn";
const CALLERS: u32 = 4;
/// Jobs of one call.
const BULK: u32 = 20;
/// Jobs that are submitted in SQL with each sample.
const IN_SQL: u32 = 20;
/// Samples of the whole time.
const SAMPLES: u32 = 72;
/// The parts of the time, in samples: before the snapshot, with it, after it while the dead rows are cleared, and the end.
const BEFORE: Range<usize> = 18..30;
const HELD: Range<usize> = 30..42;
const CLEARING: Range<usize> = 42..54;
const AFTER: Range<usize> = 60..72;
/// The shortest time after which the parts are compared: each must hold a wave of pruning, which comes each minute. A shorter
/// run prints the figures only.
const SHORTEST: Duration = Duration::from_secs(600);
/// How many times as long calls may take after as before, and the times that are short enough anyway, in milliseconds. Another
/// program on the machine shows here, too.
const SLOWER: f64 = 2.0;
const SHORT: f64 = 20.0;
/// How many times as many dead rows and bytes there may be after as before. Both come in waves, with pruning and autovacuum.
const MORE: f64 = 1.5;
/// Dead rows of all tables below which a wave is no growth: those of jobs and leases are cleared when there are 5000 of each.
const FEW_DEAD: f64 = 50_000.0;
/// The growth of all files from the time behind the snapshot to the end, as a ratio.
const GROWN: f64 = 1.1;

/// What a sample measured.
#[derive(Clone, Debug, Default)]
struct Sample {
    jobs: u64,
    /// Of all calls, in milliseconds.
    p99: f64,
    /// By table, in bytes: the table, and its indexes.
    sizes: BTreeMap<String, (u64, u64)>,
    dead: BTreeMap<String, u64>,
}

impl Sample {
    fn bytes(&self) -> f64 {
        let all = self.sizes.values();
        all.map(|(table, indexes)| table + indexes).sum::<u64>() as f64
    }

    fn all_dead(&self) -> f64 {
        self.dead.values().sum::<u64>() as f64
    }
}

/// What callers share.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    done: AtomicU64,
    /// The time between two rounds of a caller, in microseconds; none at full speed.
    pause: AtomicU64,
    times: Mutex<Vec<Duration>>,
}

impl Load {
    fn measured<T>(&self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let answer = call();
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.push(begun.elapsed());
        answer
    }

    /// Submits jobs and runs as many, in rounds.
    fn call(&self, client: &Client, caller: u32) {
        let mut next = Instant::now();
        for round in 0_u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let pause = Duration::from_micros(self.pause.load(Ordering::Relaxed));
            next = (next + pause).max(Instant::now().checked_sub(pause).unwrap_or(next));
            thread::sleep(next.saturating_duration_since(Instant::now()));
            self.submit(client, caller, round);
            self.run(client);
        }
    }

    fn submit(&self, client: &Client, caller: u32, round: u64) {
        let job = |number| SubmitRequest {
            idempotency_key: (number % 4 == 0).then(|| format!("{caller} {round} {number}")),
            tags: (number % 10 == 0)
                .then(|| "tagged".to_owned())
                .into_iter()
                .collect(),
            ..SubmitRequest::new(ADDON, "plain", 1)
        };
        let jobs = (0..BULK).map(job).collect();
        let answer = self.measured(|| client.submit_many(SubmitManyRequest { jobs }));
        assert_eq!(answer.expect("they are taken").jobs.len(), BULK as usize);
    }

    fn run(&self, client: &Client) {
        let request = ClaimRequest {
            max_jobs: BULK,
            lease_id: Some(LeaseId::generate()),
            ..ClaimRequest::one_job(ADDON.parse().expect("a name"), InstanceId::generate())
        };
        let leases = self.measured(|| client.claim(&request));
        for lease in leases.expect("the daemon answers") {
            let done = |job: &jobtree_protocol::JobView| CompleteOne {
                job_id: job.job_id,
                status: CompleteStatus::Done,
                result: None,
                error: None,
                retry: true,
                began_ms_ago: None,
                ended_ms_ago: None,
                usage: None,
            };
            let request = CompleteManyRequest {
                lease_id: lease.lease_id,
                jobs: lease.jobs.iter().map(done).collect(),
                in_hand: None,
            };
            let answer = self.measured(|| client.complete_many(&request));
            let count = answer.expect("they are the lease's").jobs.len() as u64;
            self.done.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn sample(&self, server: &Server) -> Sample {
        let mut times =
            std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner));
        times.sort_unstable();
        let p99 = times
            .get(times.len() * 99 / 100)
            .copied()
            .unwrap_or_default();
        let mut sample = Sample {
            jobs: self.done.load(Ordering::Relaxed),
            p99: p99.as_secs_f64() * 1000.0,
            ..Sample::default()
        };
        let rows = server.sql(
            "SELECT replace(relname, 'scheduler_', ''), pg_table_size(relid), pg_indexes_size(relid), n_dead_tup \
             FROM pg_stat_user_tables ORDER BY relname",
        );
        for row in rows.lines() {
            let mut columns = row.split('|');
            let name = columns.next().expect("a name").to_owned();
            let numbers: Vec<u64> = columns.map(|it| it.parse().expect("a number")).collect();
            sample.sizes.insert(name.clone(), (numbers[0], numbers[1]));
            sample.dead.insert(name, numbers[2]);
        }
        sample
    }
}

fn policy(folder: &Folder, kept: Duration) -> String {
    let text = fs::read_to_string(ALWAYS).expect("a policy");
    let seconds = kept.as_secs().max(1);
    // The database is what is under load here: without the ramp it gets as many jobs as it can take.
    let mut text = text + "\n[ramp]\nunits_per_sample = 0\n[retention]\n";
    for kind in ["done", "failed", "canceled", "events", "keys", "leases"] {
        text += &format!("{kind} = \"{seconds}s\"\n");
    }
    folder.write("policy.toml", &text)
}

fn most(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(of).fold(0.0, f64::max)
}

fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let mut all: Vec<f64> = samples.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn print(number: usize, sample: &Sample) {
    let held = if HELD.contains(&number) { "held" } else { "" };
    print!(
        "{number:3} {held:4} {:8} jobs, p99 {:6.1} ms, {:6.1} MB, dead {:7}:",
        sample.jobs,
        sample.p99,
        sample.bytes() / 1e6,
        sample.all_dead()
    );
    for (table, (bytes, indexes)) in &sample.sizes {
        let dead = sample.dead[table];
        if bytes + indexes > 1_000_000 || dead > 1000 {
            print!(
                " {table} {:.1}+{:.1} MB/{dead}",
                *bytes as f64 / 1e6,
                *indexes as f64 / 1e6
            );
        }
    }
    println!();
}

#[test]
#[ignore = "an hour, or the seconds of JOBTREE_CHURN_SECONDS: the stage postgres-churn runs it"]
fn an_hour_of_churn_leaves_tables_and_times_as_they_were() {
    let given = std::env::var("JOBTREE_CHURN_SECONDS").ok();
    let whole = given.map_or(3600, |text| text.parse().expect("a number of seconds"));
    let whole = Duration::from_secs(whole);
    let each = whole / SAMPLES;
    let (server, url) = database();
    // In an hour, autovacuum comes each minute, as it does by default.
    let nap = (whole.as_secs() / 60).max(1);
    server.sql(&format!("ALTER SYSTEM SET autovacuum_naptime = {nap}"));
    server.sql("SELECT pg_reload_conf()");
    let folder = Folder::new();
    let policy = policy(&folder, whole / 12);
    let daemon = Daemon::with(&["--store", &url, "--policy", &policy]);
    let load = Load::default();
    let mut samples: Vec<Sample> = Vec::new();
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (load, client) = (&load, client_of(&daemon));
            scope.spawn(move || load.call(&client, caller));
        }
        // A panic here must not leave the callers calling.
        struct Ends<'a>(&'a Load);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.is_over.store(true, Ordering::Relaxed);
            }
        }
        let _ends = Ends(&load);
        // Half of what it can take, as measured at the beginning.
        let begun = Instant::now();
        thread::sleep(each * 2);
        let rate = load.done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
        let pause = f64::from(CALLERS * BULK) / (rate / 2.0);
        load.pause.store((pause * 1e6) as u64, Ordering::Relaxed);
        println!("{rate:.0} jobs a second at full speed; half of it from here on");
        load.sample(&server);
        let mut holder = None;
        let mut program = server.session();
        program.sql("SET search_path = place0");
        for number in 0..SAMPLES as usize {
            if number == HELD.start {
                let mut session = server.session();
                session.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM place0.scheduler_jobs");
                holder = Some(session);
            }
            if number == HELD.end {
                holder = None;
            }
            program.sql(&format!(
                "SELECT count(jobtree_submit('{{\"addon_id\": \"{ADDON}\", \"job_type\": \"in_sql\", \"cost_units\": 1}}')) \
                 FROM generate_series(1, {IN_SQL})"
            ));
            thread::sleep(each);
            let sample = load.sample(&server);
            print(number, &sample);
            samples.push(sample);
        }
        drop(holder);
    });
    let (before, held) = (&samples[BEFORE], &samples[HELD]);
    let (clearing, after) = (&samples[CLEARING], &samples[AFTER]);
    for (name, part) in [
        ("before", before),
        ("held", held),
        ("clearing", clearing),
        ("after", after),
    ] {
        println!(
            "{name:8} p99 {:6.1} ms, dead at most {:7.0}, at most {:6.1} MB",
            median(part, |it| it.p99),
            most(part, Sample::all_dead),
            most(part, Sample::bytes) / 1e6
        );
    }
    if whole < SHORTEST {
        println!(
            "NOT CHECKED: in less than {SHORTEST:?} these parts hold no whole wave of pruning"
        );
        return;
    }
    let jobs = |part: &[Sample]| (part[part.len() - 1].jobs - part[0].jobs) as f64;
    assert!(
        jobs(after) > 0.8 * jobs(before),
        "fewer jobs were run than before: {} and {}",
        jobs(after),
        jobs(before)
    );
    let (p99, p99_before) = (median(after, |it| it.p99), median(before, |it| it.p99));
    assert!(
        p99 < SHORT.max(SLOWER * p99_before),
        "calls take {p99:.1} ms, and took {p99_before:.1} ms before"
    );
    let dead = most(after, Sample::all_dead);
    let limit = FEW_DEAD.max(MORE * most(before, Sample::all_dead));
    assert!(dead < limit, "{dead} dead rows were not cleared");
    let bytes = most(after, Sample::bytes);
    for (part, limit) in [(before, MORE), (clearing, GROWN)] {
        let grown = bytes / most(part, Sample::bytes);
        assert!(
            grown < limit,
            "the tables grew to {grown:.2} of what they were"
        );
    }
}
