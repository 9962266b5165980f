//! Runs the body of a test in a process of its own, so that a crash or a hang is one red test.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Names the test whose body the process is to run.
const CHILD: &str = "JOBTREE_TEST_CHILD";

/// How long a child may take. Each needs milliseconds; the rest is for a loaded machine.
const LIMIT: Duration = Duration::from_secs(30);

/// What became of a child process.
#[derive(Debug)]
#[allow(dead_code, reason = "not every test looks at both")]
pub struct Ended {
    /// `None` if the limit was over first.
    pub status: Option<ExitStatus>,
    /// What it wrote to stderr.
    pub stderr: String,
}

/// Runs `body` in a child process and returns what became of it. `test` is the name of the calling test.
pub fn in_child(test: &str, body: impl FnOnce()) -> Ended {
    if std::env::var_os(CHILD).is_some_and(|name| name == test) {
        body();
        std::process::exit(0);
    }
    let child = Command::new(std::env::current_exe().expect("a test has a path"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, test)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a test can start itself");
    wait_for(child)
}

/// Runs `body` in a child process, and fails unless that ends well within the limit.
#[track_caller]
#[allow(dead_code, reason = "not every test uses it")]
pub fn ends_well(test: &str, body: impl FnOnce()) {
    let ended = in_child(test, body);
    match ended.status {
        Some(status) if status.success() => {}
        Some(status) => panic!("{test}: {status}\n{}", ended.stderr),
        None => panic!("{test}: did not end in {LIMIT:?}\n{}", ended.stderr),
    }
}

fn wait_for(mut child: Child) -> Ended {
    let mut pipe = child.stderr.take().expect("it was piped");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let until = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().expect("the child is ours") {
            Some(status) => break Some(status),
            None if Instant::now() > until => {
                child.kill().expect("the child is ours");
                child.wait().expect("the child is ours");
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    Ended {
        status,
        stderr: reader.join().expect("the reader does not panic"),
    }
}
