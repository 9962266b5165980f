//! scratch
use jobtree_protocol::{CompleteRequest, JobId, Json, LeaseId, Limits, NodeId, SubmitRequest};
use jobtree_queue::Now;
use jobtree_queue::transitions::Claim;
use jobtree_store::{SqliteOptions, Stamp, Store, Submission};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn stamp() -> Stamp {
    Stamp {
        now: Now {
            wall: jiff::Timestamp::now(),
            mono: Duration::ZERO,
        },
        roll: 1,
        rules: Arc::default(),
    }
}
fn submission() -> Submission {
    let request = SubmitRequest {
        payload: Some(Json::of(&"/some/folder/with/a/file.jpg").expect("JSON")),
        ..SubmitRequest::new("visuals", "indexing", 3)
    };
    Submission::new(request.validate(&Limits::default()).expect("valid"))
}
fn claim(lease_id: LeaseId) -> Claim {
    Claim {
        lease_id,
        node_id: NodeId::new("here").expect("a name"),
        instance_id: None,
        pids: Vec::new(),
        reason: "room".into(),
    }
}
fn io() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    io.lines()
        .find_map(|l| l.strip_prefix("wchar: "))
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}
fn cpu() -> (u64, u64) {
    let s = std::fs::read_to_string("/proc/self/stat").unwrap();
    let f: Vec<&str> = s.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (f[11].parse().unwrap(), f[12].parse().unwrap())
}
fn bulk(store: &Store, count: usize, waiting: &mut VecDeque<JobId>) {
    let mut pending = VecDeque::new();
    let mut take =
        |a: Option<jobtree_store::Answer<Vec<Result<jobtree_protocol::SubmitAnswer, _>>>>| {
            if let Some(a) = a {
                waiting.extend(a.wait().unwrap().into_iter().map(
                    |a: Result<
                        jobtree_protocol::SubmitAnswer,
                        jobtree_queue::transitions::TransitionError,
                    >| a.unwrap().job_id,
                ));
            }
        };
    for begin in (0..count).step_by(1000) {
        let batch = (begin..count.min(begin + 1000)).map(|_| submission());
        pending.push_back(store.submit_many(stamp(), batch.collect()));
        if pending.len() > 1 {
            take(pending.pop_front());
        }
    }
    take(pending.pop_front());
}
fn process(store: &Store, count: usize, waiting: &mut VecDeque<JobId>) {
    let jobs: Vec<JobId> = waiting.drain(..count).collect();
    let mut pending = VecDeque::new();
    for batch in jobs.chunks(500) {
        let lease = LeaseId::generate();
        let claimed = store
            .claim(stamp(), batch.to_vec(), claim(lease))
            .wait()
            .unwrap();
        assert_eq!(claimed.jobs.len(), batch.len());
        let r = claimed
            .jobs
            .iter()
            .map(|job| (job.id, CompleteRequest::done(lease, None)));
        pending.push_back(store.complete_many(stamp(), r.collect()));
        if pending.len() > 2 {
            assert!(
                pending
                    .pop_front()
                    .unwrap()
                    .wait()
                    .unwrap()
                    .iter()
                    .all(Result::is_ok)
            );
        }
    }
    for a in pending {
        assert!(a.wait().unwrap().iter().all(Result::is_ok));
    }
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let n: usize = args[2].parse().unwrap();
    let dir =
        std::path::PathBuf::from(format!("/tmp/target-q-perf/scratch-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let store = Store::open(&SqliteOptions::new(dir.join("a.db"))).unwrap();
    let mut waiting = VecDeque::new();
    match args[1].as_str() {
        "submit" => {
            let callers: usize = args[3].parse().unwrap();
            for _ in 0..args.get(4).map_or(1, |a| a.parse().unwrap()) {
                let t = Instant::now();
                std::thread::scope(|s| {
                    for _ in 0..callers {
                        s.spawn(|| {
                            for _ in 0..n / callers {
                                store.submit(stamp(), submission()).wait().unwrap();
                            }
                        });
                    }
                });
                println!(
                    "submit {callers}: {:.2} us a job",
                    t.elapsed().as_secs_f64() * 1e6 / n as f64
                );
            }
        }
        "submitx" => {
            for _ in 0..n / 64 {
                let answers: Vec<_> = (0..64)
                    .map(|_| store.submit(stamp(), submission()))
                    .collect();
                for a in answers {
                    a.wait().unwrap();
                }
            }
        }
        "bulk" => bulk(&store, n, &mut waiting),
        "process" => {
            bulk(&store, n, &mut waiting);
            process(&store, n, &mut waiting);
        }
        "growth" => {
            let fill: usize = args[3].parse().unwrap();
            let t = Instant::now();
            bulk(&store, fill, &mut waiting);
            println!("fill {:?}", t.elapsed());
            if args.get(4).map(String::as_str) == Some("history") {
                process(&store, fill, &mut waiting);
                println!("history {:?}", t.elapsed());
            }
            for _ in 0..6 {
                let (t, b) = (Instant::now(), io());
                bulk(&store, n, &mut waiting);
                let (t2, b2) = (Instant::now(), io());
                let c = cpu();
                process(&store, n, &mut waiting);
                let d = cpu();
                println!("cpu of process: user {} ms sys {} ms", (d.0 - c.0) * 10, (d.1 - c.1) * 10);
                println!(
                    "submit {:.2} us {} B; process {:.2} us {} B",
                    (t2 - t).as_secs_f64() * 1e6 / n as f64,
                    (b2 - b) / n as u64,
                    t2.elapsed().as_secs_f64() * 1e6 / n as f64,
                    (io() - b2) / n as u64
                );
            }
        }
        _ => panic!(),
    }
    drop(store);
    let _ = std::fs::remove_dir_all(&dir);
}
