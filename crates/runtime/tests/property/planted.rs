//! Bugs that are planted one at a time: the test must find each, or it looks at nothing.
//!
//! A bug may hang the tree, trip an assertion on a worker or corrupt memory. So each search is a process of its
//! own, which runs the ordinary test with the bug in the code.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Names the bug to a search.
const VARIABLE: &str = "JOBTREE_PROPERTY_PLANTED";

/// The rules and steps that are left out, each in its turn.
const BUGS: &[&str] = &[
    "BornCancelled",
    "WaiterInvolves",
    "EndAwaitsBody",
    "EndAwaitsChildren",
    "Broadcast",
    "BroadcastGoesDeep",
    "ShieldHolds",
    "FirstCauseStays",
    "FailureBeatsCancellation",
    "TimeoutStays",
    "OwnCancellationIsNoFailure",
    "SupervisorShrugs",
    "ContainedFailsAlone",
    "EveryWaiterIsWoken",
];

/// Trees among which a bug must show.
const TREES: &str = "1000";

/// Longer than any search takes, found or not.
const LIMIT: Duration = Duration::from_secs(300);

/// Plants the bug that the environment names, if it names one.
pub fn plant_as_asked() {
    if let Ok(bug) = std::env::var(VARIABLE) {
        assert!(
            jobtree_tree::raw::plant_bug(&bug),
            "there is no step '{bug}' that could be left out"
        );
    }
}

#[test]
fn each_planted_bug_is_found() {
    let healthy = search(None);
    assert!(
        healthy.status.success(),
        "the test fails without a planted bug:\n{}",
        text(&healthy)
    );
    let missed: Vec<&str> = BUGS.iter().copied().filter(|bug| !is_found(bug)).collect();
    assert!(missed.is_empty(), "planted, but not found: {missed:?}");
}

fn is_found(bug: &str) -> bool {
    let output = search(Some(bug));
    let text = text(&output);
    assert!(!text.contains("there is no step"), "{text}");
    let first_line = |word: &str| text.lines().find(|line| line.contains(word));
    let sign = ["differs from the model", "nothing has moved", "panicked at"]
        .into_iter()
        .find_map(first_line)
        .unwrap_or("");
    println!("{bug}: {} {sign}", output.status);
    !output.status.success()
}

/// Runs the ordinary test in another process.
fn search(bug: Option<&str>) -> Output {
    let program = std::env::current_exe().expect("a test knows its own program");
    let mut command = Command::new(program);
    command
        .args(["--exact", "random_trees_match_the_model"])
        .env("JOBTREE_PROPERTY_TREES", TREES)
        .env("JOBTREE_PROPERTY_SEED", "1")
        .env("RUST_BACKTRACE", "0")
        .env_remove(VARIABLE)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(bug) = bug {
        // A bug that is found by what does not come need not be waited for long.
        command
            .env(VARIABLE, bug)
            .env("JOBTREE_PROPERTY_PATIENCE", "3");
    }
    let began = Instant::now();
    let mut child = command.spawn().expect("a test can be run again");
    let id = child.id();
    let guard = std::thread::spawn(move || child_output(&mut child, began));
    guard
        .join()
        .unwrap_or_else(|_| panic!("the search {id} for {bug:?} could not be watched"))
}

/// Waits for the search; one that neither ends nor is ended by its own watchdog is no proof of anything.
fn child_output(child: &mut std::process::Child, began: Instant) -> Output {
    use std::io::Read as _;
    let mut stdout = child.stdout.take().expect("piped");
    let mut stderr = child.stderr.take().expect("piped");
    let read_stdout = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.read_to_end(&mut bytes);
        bytes
    });
    let read_stderr = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stderr.read_to_end(&mut bytes);
        bytes
    });
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break status,
            None if began.elapsed() > LIMIT => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("a search took longer than {LIMIT:?}");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    Output {
        status,
        stdout: read_stdout.join().unwrap_or_default(),
        stderr: read_stderr.join().unwrap_or_default(),
    }
}

fn text(output: &Output) -> String {
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{stdout}{stderr}")
}
