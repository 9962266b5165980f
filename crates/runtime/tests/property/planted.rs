//! Bugs that are planted one at a time: the test must find each, or it looks at nothing.
//!
//! A bug may hang the tree, trip an assertion on a worker or corrupt memory. So each search is a process of its
//! own, which runs the ordinary test with the bug in the code.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Names the bug to a search.
const VARIABLE: &str = "JOBTREE_PROPERTY_PLANTED";

/// The first sign by which a search finds a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// A job's state, value, error or event differs from the model, or has not come within the test's own time; the
    /// report names the job and its state.
    Difference,
    /// Nothing moved until the test's watchdog ended the process, with a dump of the tree.
    Hang,
    /// An assertion of the library failed.
    Invariant,
    /// The process was ended by the signal of a wrong access to memory.
    Crash,
}

/// The rules and steps that are left out, each in its turn, and the signs by which they may show. Any other end of a
/// search (an assertion of the test's own code, its limit, an exit that says nothing) is an error of this test.
const BUGS: &[(&str, &[Sign])] = &[
    ("BornCancelled", &[Sign::Difference]),
    ("WaiterInvolves", &[Sign::Difference]),
    // Which comes first depends on the order of the threads.
    ("EndAwaitsBody", &[Sign::Invariant, Sign::Difference]),
    ("EndAwaitsChildren", &[Sign::Difference, Sign::Invariant]),
    ("Broadcast", &[Sign::Difference]),
    ("BroadcastGoesDeep", &[Sign::Difference]),
    ("ShieldHolds", &[Sign::Difference]),
    ("FirstCauseStays", &[Sign::Difference]),
    ("FailureBeatsCancellation", &[Sign::Difference]),
    ("TimeoutStays", &[Sign::Difference]),
    ("OwnCancellationIsNoFailure", &[Sign::Difference]),
    ("SupervisorShrugs", &[Sign::Difference]),
    ("ContainedFailsAlone", &[Sign::Difference]),
    ("EveryWaiterIsWoken", &[Sign::Difference]),
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
    let missed: Vec<String> = BUGS
        .iter()
        .filter_map(|(bug, signs)| find(bug, signs).err())
        .collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Searches for a bug; an error if it is not found, or not by one of `expected`.
fn find(bug: &str, expected: &[Sign]) -> Result<(), String> {
    let output = search(Some(bug));
    let text = text(&output);
    assert!(!text.contains("there is no step"), "{text}");
    if output.status.success() {
        return Err(format!("{bug} was planted, but not found"));
    }
    match sign_of(&output, &text) {
        Some((sign, line)) if expected.contains(&sign) => {
            println!("{bug}: {sign:?} ({}): {line}", output.status);
            Ok(())
        }
        Some((sign, line)) => Err(format!(
            "{bug} should show by {expected:?}, but did by {sign:?} ({}): {line}",
            output.status
        )),
        None => Err(format!(
            "{bug}: the search failed for no reason of the library's ({}):\n{text}",
            output.status
        )),
    }
}

/// The first sign in what a search has printed, and the line that says most about it.
fn sign_of(output: &Output, text: &str) -> Option<(Sign, String)> {
    use std::os::unix::process::ExitStatusExt as _;
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        if line.contains("workers differs from the model") {
            let says_how = |line: &&str| line.contains("after the last step:");
            let mut how = lines[number..].iter().skip_while(|line| !says_how(line));
            let both = [how.next(), how.next()].map(|line| line.map_or("", |line| line.trim()));
            return Some((Sign::Difference, both.join(" ")));
        }
        if line.contains("nothing has moved for") {
            return Some((Sign::Hang, (*line).to_owned()));
        }
        let is_ours = ["tree", "runtime", "pool"]
            .iter()
            .any(|name| line.contains(&format!("panicked at crates/{name}/src/")));
        if is_ours {
            let message = lines.get(number + 1).unwrap_or(&"");
            return Some((Sign::Invariant, format!("{line} {message}")));
        }
    }
    // SIGBUS and SIGSEGV, which have these numbers on every system that the test is built for.
    let signal = output.status.signal()?;
    [7, 10, 11]
        .contains(&signal)
        .then(|| (Sign::Crash, format!("signal {signal}")))
}

/// Runs the ordinary test in another process.
fn search(bug: Option<&str>) -> Output {
    let program = std::env::current_exe().expect("a test knows its own program");
    let mut command = Command::new(program);
    command
        // What a worker says before it aborts would else be kept, and lost.
        .args(["--exact", "random_trees_match_the_model", "--nocapture"])
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
