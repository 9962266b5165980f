//! An hour of mixed load: a daemon's memory must not grow with the number of jobs that it has run.
//!
//! The daemon has the policy that a new user gets, and a queue in a file. Its machine is reported as idle, because the load
//! itself would make it busy. The allocator below the counter is that of the `jobtree` executable. Callers, workers and
//! daemon share this process, so the counted heap is an upper bound of the daemon's.

#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cap::Cap;
use jobtree_client::events::Filter;
use jobtree_client::protocol::{JobQuery, JobState, Json, SubmitManyRequest, SubmitRequest};
use jobtree_client::{Client, Worker};
use jobtree_queue::signals::Sample;
use jobtree_runtime::{BoxError, Runtime};
use jobtree_server::{Server, ServerOptions, StoreChoice};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Cap<MiMalloc> = Cap::new(MiMalloc, usize::MAX);

const MINUTE: Duration = Duration::from_secs(60);
/// Jobs of each minute behind the warm-up, at least.
const RATE: u64 = 100_000;
/// Jobs that are submitted and have not ended, at most: callers wait beyond it.
const OUTSTANDING: u64 = 20_000;
/// Jobs of one `submit_many`.
const BULK: u64 = 500;
/// The time between two of them: 120 000 jobs a minute. The load keeps a pace, because the heap follows it, by the jobs in
/// flight: a load that is as fast as the machine would show how busy the machine was from minute to minute.
const BETWEEN_BULKS: Duration = Duration::from_millis(250);
/// The time between two single jobs of one caller.
const BETWEEN_JOBS: Duration = Duration::from_millis(10);
/// The share by which the live heap may grow from the end of the warm-up to the end, by a line through all minutes: the
/// heap of one minute differs from the next by some percent, with the jobs in flight and the records that are cached.
const HEAP_GROWTH: f64 = 0.01;
/// The bytes by which resident memory may grow in the same time, by a line as well: the allocator gives memory back and takes
/// it again, so that one minute differs from the next by some megabytes.
const RESIDENT_GROWTH: f64 = (5 << 20) as f64;

/// What callers and workers of the load share.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    submitted: AtomicU64,
    ended: AtomicU64,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        let ended = self.ended.load(Ordering::Relaxed);
        self.submitted.load(Ordering::Relaxed).saturating_sub(ended) >= OUTSTANDING
    }

    fn count_ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Beats of one length. A caller that is late goes on at once, until it is on time again.
struct Pace {
    next: Instant,
    every: Duration,
}

impl Pace {
    fn new(every: Duration) -> Self {
        let next = Instant::now();
        Self { next, every }
    }

    fn wait(&mut self) {
        thread::sleep(self.next.saturating_duration_since(Instant::now()));
        self.next += self.every;
    }
}

/// A folder for the queue, deleted when it is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be deleted is left to the system.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn job(job_type: &str, number: u64) -> SubmitRequest {
    SubmitRequest {
        payload: Some(Json::of(&number).expect("a number is JSON")),
        ..SubmitRequest::new("soak", job_type, 1)
    }
}

/// The jobs of one bulk submission: most succeed at once, some report, some fail once, some fail for good.
fn bulk(first: u64) -> SubmitManyRequest {
    let jobs = (first..first + BULK).map(|number| match number % 50 {
        0 => job("reports", number),
        1 => SubmitRequest {
            max_attempts: Some(1),
            ..job("fails", number)
        },
        2 => SubmitRequest {
            max_attempts: Some(2),
            ..job("fails_once", number)
        },
        3 => SubmitRequest {
            tags: vec!["tagged".to_owned(), format!("group-{}", number % 7)],
            ..job("plain", number)
        },
        4 => SubmitRequest {
            idempotency_key: Some(format!("key-{number}")),
            ..job("plain", number)
        },
        _ => job("plain", number),
    });
    SubmitManyRequest {
        jobs: jobs.collect(),
    }
}

fn submit_in_bulk(client: &Client, load: &Load) {
    let mut first = 0;
    let mut pace = Pace::new(BETWEEN_BULKS);
    while load.goes_on() {
        if load.is_full() {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        pace.wait();
        let answer = client.submit_many(bulk(first)).expect("a bulk submission");
        assert_eq!(answer.jobs.len() as u64, BULK);
        load.submitted.fetch_add(BULK, Ordering::Relaxed);
        first += BULK;
    }
}

/// Submits single jobs, cancels some before they begin, waits for others, and asks what a user asks.
fn submit_and_ask(client: &Client, load: &Load) {
    let mut number = 0;
    let mut pace = Pace::new(BETWEEN_JOBS);
    while load.goes_on() {
        pace.wait();
        number += 1;
        let answer = client.submit(job("plain", number)).expect("a submission");
        load.submitted.fetch_add(1, Ordering::Relaxed);
        let id = answer.job_id;
        match number % 8 {
            // A job that a worker has begun meanwhile counts its own end.
            0 if client
                .cancel(id, Some("no longer needed"))
                .is_ok_and(|state| state == JobState::Canceled) =>
            {
                load.count_ended();
            }
            1 => drop(
                client
                    .wait_for(id, Duration::from_secs(5))
                    .expect("the job"),
            ),
            2 => drop(client.explain(id).expect("an explanation")),
            3 => drop(client.job_events(id, None).expect("its events")),
            4 => {
                let query = JobQuery {
                    limit: Some(20),
                    ..JobQuery::default()
                };
                let page: Result<Vec<_>, _> = client.all_jobs(query).take(20).collect();
                assert_eq!(page.expect("a list of jobs").len(), 20);
            }
            _ => (),
        }
    }
}

/// Follows the events of failures, so that the event log is read while it is written.
fn follow(client: &Client, load: &Load) {
    let filter = Filter {
        kinds: vec![jobtree_client::protocol::EventKind::Failed],
        ..Filter::default()
    };
    for event in client.events(filter, None) {
        drop(event);
        if !load.goes_on() {
            return;
        }
    }
}

fn worker(client: Client, runtime: &Runtime, load: &Arc<Load>) -> Worker {
    let count = |load: &Arc<Load>| {
        let load = Arc::clone(load);
        move || load.count_ended()
    };
    let (plain, reports, fails, fails_once) = (count(load), count(load), count(load), count(load));
    Worker::new(client)
        .addon("soak")
        .on(runtime)
        .batch(500)
        .concurrency(2)
        .handle("plain", move |number: u64, _| {
            plain();
            Ok(number)
        })
        .handle("reports", move |number: u64, run| {
            run.progress(0.5, "half of it");
            run.log(format!("number {number}"));
            reports();
            Ok(number)
        })
        .handle("fails", move |_: u64, _| {
            fails();
            Err::<u64, BoxError>("this one always fails".into())
        })
        .handle("fails_once", move |number: u64, run| {
            if run.attempt() <= 1 {
                return Err("the first attempt fails".into());
            }
            fails_once();
            Ok(number)
        })
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    let kilobytes: u64 = kilobytes.expect("a line VmRSS").parse().expect("a number");
    kilobytes * 1024
}

/// The memory of one minute, in bytes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    /// The mean of many readings of the live heap.
    heap: f64,
    /// The smallest reading of resident memory.
    resident: u64,
}

fn watch_for_a_minute(server: &Server) -> Memory {
    let until = Instant::now() + MINUTE;
    let (mut heaps, mut readings, mut least_resident) = (0.0, 0.0, u64::MAX);
    while Instant::now() < until {
        // As the sampler would: the default policy takes no sample for longer than some seconds.
        server.scheduler().sample(Sample::idle());
        for _ in 0..20 {
            heaps += ALLOCATOR.allocated() as f64;
            readings += 1.0;
            thread::sleep(Duration::from_millis(50));
        }
        least_resident = least_resident.min(resident());
    }
    Memory {
        heap: heaps / readings,
        resident: least_resident,
    }
}

/// A line through values, by least squares.
#[derive(Clone, Copy, Debug)]
struct Line {
    begin: f64,
    /// By how much it grows from the first value to the last.
    growth: f64,
}

fn line_through(values: &[f64]) -> Line {
    let count = values.len() as f64;
    let middle = (count - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / count;
    let (mut above, mut below) = (0.0, 0.0);
    for (place, value) in values.iter().enumerate() {
        let from_middle = place as f64 - middle;
        above += from_middle * (value - mean);
        below += from_middle * from_middle;
    }
    let slope = above / below;
    Line {
        begin: mean - slope * middle,
        growth: slope * (count - 1.0),
    }
}

#[test]
fn growth_is_seen_through_noise() {
    let noisy = |growth: f64| -> Vec<f64> {
        let noise = [1.0, -2.0, 1.5, -0.5].into_iter().cycle();
        let minutes = (0..51).map(|minute| 100.0 * (1.0 + growth * f64::from(minute) / 50.0));
        minutes.zip(noise).map(|(heap, off)| heap + off).collect()
    };
    for growth in [0.0, 0.02] {
        let line = line_through(&noisy(growth));
        assert!(
            (line.growth / line.begin - growth).abs() < 0.002,
            "{line:?}"
        );
    }
}

#[test]
#[ignore = "takes an hour: the stage `soak` of `scripts/test --long` runs it"]
fn an_hour_of_mixed_load_does_not_grow() {
    let minutes: u32 = std::env::var("JOBTREE_SOAK_MINUTES").map_or(60, |text| {
        text.parse()
            .expect("JOBTREE_SOAK_MINUTES is a number of minutes")
    });
    let warm_up = minutes.div_ceil(6);
    assert!(
        warm_up < minutes,
        "an hour has ten minutes of warm-up, {minutes} minutes leave none to measure"
    );
    let folder = std::env::temp_dir().join(format!("jobtree-soak-{}", std::process::id()));
    let folder = Folder(folder);
    let options = ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        store: StoreChoice::File,
        // The load itself is on this machine; see the head of this file.
        sample_every: None,
        ..ServerOptions::new(&folder.0)
    };
    let server = Server::start(options).unwrap();
    server.scheduler().sample(Sample::idle());
    let token = std::fs::read_to_string(folder.0.join("admin.token")).unwrap();
    let client = || {
        let builder = Client::builder(server.url()).token(token.trim());
        builder.build().unwrap()
    };
    let load = Arc::new(Load::default());
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let workers: Vec<_> = (0..2)
        .map(|_| worker(client(), &runtime, &load).start().unwrap())
        .collect();
    let steady: Vec<Memory> = thread::scope(|scope| {
        scope.spawn(|| submit_in_bulk(&client(), &load));
        for _ in 0..2 {
            scope.spawn(|| submit_and_ask(&client(), &load));
        }
        let follower = client();
        let followed = Arc::clone(&load);
        // Not waited for: it ends with the stream.
        thread::spawn(move || follow(&follower, &followed));
        let mut measured = Vec::new();
        let mut ended_before = 0;
        for minute in 1..=minutes {
            let memory = watch_for_a_minute(&server);
            let ended = load.ended.load(Ordering::Relaxed);
            let in_minute = ended - ended_before;
            ended_before = ended;
            println!(
                "minute {minute}: {in_minute} jobs ended, heap {} KiB, resident {} KiB",
                memory.heap as u64 >> 10,
                memory.resident >> 10
            );
            measured.push((in_minute, memory));
        }
        load.stop.store(true, Ordering::Relaxed);
        let steady = &measured[warm_up as usize - 1..];
        let rate = steady.iter().map(|(jobs, _)| jobs).sum::<u64>() / steady.len() as u64;
        assert!(rate >= RATE, "{rate} jobs a minute");
        steady.iter().map(|(_, memory)| *memory).collect()
    });
    for worker in workers {
        worker
            .drain(Duration::from_secs(30))
            .expect("the worker ends");
    }
    let line = |of: fn(&Memory) -> f64| line_through(&steady.iter().map(of).collect::<Vec<_>>());
    let (heap, resident) = (line(|it| it.heap), line(|it| it.resident as f64));
    let grown = heap.growth / heap.begin;
    println!(
        "from minute {warm_up} to {minutes}: the live heap grew by {:.2} %, resident memory by {:.0} KiB",
        grown * 100.0,
        resident.growth / 1024.0
    );
    assert!(grown <= HEAP_GROWTH, "the live heap grew");
    assert!(resident.growth <= RESIDENT_GROWTH, "resident memory grew");
}
