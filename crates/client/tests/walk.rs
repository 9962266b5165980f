//! The walk through the house: one job, from a shell's `curl` down to the pieces of a parallel loop and back, with one
//! trace that names each step.
//!
//! A program of its own: the trace is collected for the whole process.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod steps;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use jobtree_client::events::{Filter, What};
use jobtree_client::protocol::{
    ErrorCode, EventKind, JobId, JobState, QuietState, SubmitAnswer, paths,
};
use jobtree_client::{Client, Run, Worker};
use jobtree_lanes::{JobManager, LaneJob};
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;
use jobtree_runtime::{BoxError, Runtime, labelled_nursery};
use jobtree_server::{Server, ServerOptions, StoreChoice};
use steps::Steps;
use watchdog::Watchdog;

const FAR: Duration = Duration::from_secs(3600);
/// How often something is asked for that will come.
const LOOK: Duration = Duration::from_millis(20);
/// What every level below a cancelled job has to end in.
const PROMPT: Duration = Duration::from_secs(1);

#[test]
fn a_job_walks_through_the_house() {
    let _watch = Watchdog::watching("the walk through the house");
    let steps = Steps::collect();
    // A machine that is busy with other things may be late by itself, but not again and again.
    let mut took = Vec::new();
    for walk in 1..=3 {
        took.push(House::open(walk).walk(&steps));
        if took.last() <= Some(&PROMPT) {
            return;
        }
    }
    panic!("from the cancel to the last end: {took:?}");
}

/// A daemon on a socket, in a folder that goes with it, and a worker beside it.
struct House {
    server: Server,
    folder: PathBuf,
    token: String,
    traceparent: String,
    runtime: Runtime,
    manager: JobManager,
}

impl House {
    fn open(walk: u32) -> House {
        let folder = format!("jobtree-walk-{}-{walk}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let mut options = ServerOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            store: StoreChoice::File,
            sample_every: None,
            threads: Some(2),
            ..ServerOptions::new(&folder)
        };
        options.scheduler.policy = policy();
        let server = Server::start(options).unwrap();
        let token = std::fs::read_to_string(folder.join("admin.token")).unwrap();
        let runtime = Runtime::builder().workers(2).build().unwrap();
        House {
            manager: JobManager::builder().runtime(&runtime).build().unwrap(),
            runtime,
            server,
            token: token.trim().to_owned(),
            traceparent: format!("00-4bf92f3577b34da6a3ce929d0e0e473{walk}-00f067aa0ba902b7-01"),
            folder,
        }
    }

    fn client(&self) -> Client {
        let builder = Client::builder(self.server.url()).token(&self.token);
        builder.build().unwrap()
    }

    /// All of it. Returns how long after the cancel the last level below had ended.
    fn walk(self, steps: &Steps) -> Duration {
        let client = self.client();
        let (ends, ended) = mpsc::channel();
        let pieces = Arc::new(AtomicU64::new(0));
        let worker = self.worker(&client, ends, &pieces);
        let mut events = client.events(Filter::default(), None);
        events.connect().unwrap();

        // The machine has much to do: what is submitted waits, and says why.
        self.server.scheduler().sample(busy());
        let id = self.submit_by_curl();
        let view = client.job(id).unwrap();
        assert_eq!(view.state, JobState::Queued);
        assert_eq!(view.traceparent.unwrap().to_string(), self.traceparent);
        let reasons = client.explain(id).unwrap().reasons;
        let load = reasons.iter().find(|reason| reason.code == "not_quiet");
        let load = load.unwrap_or_else(|| panic!("{reasons:?}"));
        assert!(load.measured > load.threshold, "{load:?}");
        until(|| {
            let events = client.job_events(id, None).unwrap().events;
            let mut kinds = events.iter().map(|entry| entry.event.kind);
            kinds.any(|kind| kind == EventKind::Denied).then_some(())
        });
        assert_eq!(client.job(id).unwrap().state, JobState::Queued);

        // The load falls, and after a while the machine counts as quiet: it is leased and run.
        let quiet = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !quiet.load(Ordering::Acquire) {
                    self.server.scheduler().sample(Sample::idle());
                    thread::sleep(LOOK);
                }
            });
            until(|| (client.job(id).unwrap().state == JobState::Running).then_some(()));
            quiet.store(true, Ordering::Release);
        });
        assert_eq!(client.status().unwrap().nodes[0].state, QuietState::Quiet);

        // It tells how far it is, and what it is doing.
        let progress = events.find_map(|happened| match happened.unwrap().what {
            What::Event(event) if event.kind == EventKind::Progress => Some(event),
            _ => None,
        });
        assert_eq!(progress.unwrap().job_id, Some(id));
        let levels = [format!("index {id}").as_str(), "lane", "nursery", "loop"].map(str::to_owned);
        let tree = until(|| match client.tree(id) {
            Ok(view) => (view.tree.nodes.len() >= levels.len()).then_some(view.tree),
            Err(error) => {
                assert_eq!(error.code(), Some(ErrorCode::NotFound), "{error}");
                None
            }
        });
        for (depth, (node, level)) in (0..).zip(tree.nodes.iter().zip(&levels)) {
            assert_eq!((node.depth, &node.label), (depth, level), "{tree:?}");
        }
        let before = pieces.load(Ordering::Relaxed);
        until(|| (pieces.load(Ordering::Relaxed) > before).then_some(()));

        // Somebody has enough of it: every level ends.
        let asked = Instant::now();
        client.cancel(id, Some("enough")).unwrap();
        let mut last = asked;
        let mut names: Vec<&str> = (0..levels.len())
            .map(|_| {
                let (name, at): (&str, Instant) = ended.recv().unwrap();
                last = last.max(at);
                name
            })
            .collect();
        let done = pieces.load(Ordering::Relaxed);
        names.sort_unstable();
        assert_eq!(names, ["lane", "loop", "nursery", "run"]);
        let end = client.wait_for(id, FAR).unwrap();
        assert_eq!(end.state, JobState::Canceled);
        worker.drain(FAR).unwrap();
        assert_eq!(pieces.load(Ordering::Relaxed), done, "the loop has ended");
        assert_eq!(self.manager.slots().in_use, 0);

        steps.assert_in_order(
            &self.traceparent,
            &[
                "SUBMITTED",
                "DENIED",
                "LEASE_GRANTED",
                "ADMITTED",
                "RUNNING",
                "job",
                "lane",
                "nursery",
                "loop",
                "PROGRESS",
                "CANCEL_REQUESTED",
                "CANCELED",
            ],
        );
        let denial = steps.reason_of(&self.traceparent, "DENIED");
        assert!(denial.contains("BUSY"), "{denial}");
        let admission = steps.reason_of(&self.traceparent, "ADMITTED");
        assert!(admission.starts_with("Admitted in QUIET"), "{admission}");
        last - asked
    }

    /// Runs jobs of the type `index`: on a lane, in a nursery, in a parallel loop without end. Each level tells when it
    /// has ended.
    fn worker(
        &self,
        client: &Client,
        ends: mpsc::Sender<(&'static str, Instant)>,
        pieces: &Arc<AtomicU64>,
    ) -> jobtree_worker::Worker {
        let manager = self.manager.clone();
        let pieces = Arc::clone(pieces);
        let level = move |name| Level {
            name,
            ends: ends.clone(),
        };
        let index = move |(), run: &Run| -> Result<(), BoxError> {
            let _level = level("run");
            let (run, level) = (run.clone(), level.clone());
            let pieces = Arc::clone(&pieces);
            let on_lane = LaneJob::action(move || {
                let _level = level("lane");
                Ok(labelled_nursery("nursery", |n| {
                    let _level = level("nursery");
                    let (run, level, pieces) = (&run, &level, &pieces);
                    n.job_options().label("loop").launch(move || {
                        let _level = level("loop");
                        run.progress(0.5, "the loop has begun");
                        jobtree_par::for_each(0..u64::MAX / 2, |_| {
                            pieces.fetch_add(1, Ordering::Relaxed);
                            // A worker that is busy, on a machine that others need, too.
                            thread::sleep(Duration::from_micros(200));
                        });
                        Ok(())
                    });
                    Ok(())
                })?)
            });
            Ok(manager.schedule_child(on_lane.label("lane")).join()?)
        };
        let worker = Worker::new(client.clone())
            .addon("photos")
            .on(&self.runtime)
            .program("the walk")
            .handle("index", index);
        worker.start().unwrap()
    }

    fn submit_by_curl(&self) -> JobId {
        let mut curl = Command::new("curl")
            .args(["--silent", "--show-error", "--fail-with-body"])
            .args(["--max-time", "60", "--config", "-"])
            .arg("--json")
            .arg(r#"{"addon_id": "photos", "job_type": "index", "cost_units": 10}"#)
            .arg(format!("{}{}", self.server.url(), paths::SUBMIT))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("curl is installed");
        // Not as an argument, which other users of the machine could read.
        let headers = format!(
            "header = \"Authorization: Bearer {}\"\nheader = \"traceparent: {}\"\n",
            self.token, self.traceparent
        );
        let mut config = curl.stdin.take().unwrap();
        config.write_all(headers.as_bytes()).unwrap();
        drop(config);
        let output = curl.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let answer: SubmitAnswer = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer.state, JobState::Queued);
        answer.job_id
    }
}

impl Drop for House {
    fn drop(&mut self) {
        // What cannot be deleted is the system's to clean up.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Tells when it is dropped, however that comes.
struct Level {
    name: &'static str,
    ends: mpsc::Sender<(&'static str, Instant)>,
}

impl Drop for Level {
    fn drop(&mut self) {
        // Nobody listens to a walk that has failed.
        let _ = self.ends.send((self.name, Instant::now()));
    }
}

/// The policy that a new user gets, but for its waiting times.
fn policy() -> Policy {
    let mut policy = Policy::default();
    // The machine is measured at the steps of the walk, and not while it is at one of them.
    policy.busy.stale_after = FAR;
    // Quiet comes soon after the load has gone: a test cannot wait for a minute.
    policy.quiet.calm_after = Duration::ZERO;
    policy.quiet.enter_after = Duration::from_millis(100);
    policy
}

/// BUSY, and no PANIC.
fn busy() -> Sample {
    Sample {
        cpu_idle: 0.4,
        ..Sample::idle()
    }
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(LOOK);
    }
}
