//! Runs the body of a test in a child process with a time limit, so that a crash or a hang is one failed test.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Names the test, and the part of it, whose body the process is to run.
const CHILD: &str = "JOBTREE_TEST_CHILD";

/// The end of a child process.
#[derive(Debug)]
pub struct Ended {
    /// `None` if the child was killed because its time limit was over.
    pub status: Option<ExitStatus>,
    /// What the child wrote to standard error.
    pub stderr: String,
    /// The calling process is a child itself, whose part is another one.
    is_another_part: bool,
}

impl Ended {
    fn another_part() -> Ended {
        Ended {
            status: None,
            stderr: String::new(),
            is_another_part: true,
        }
    }

    /// Panics unless the child's body returned.
    #[track_caller]
    pub fn assert_success(&self) {
        let succeeded = self.status.is_some_and(|status| status.success()) || self.is_another_part;
        assert!(succeeded, "{:?}\n{}", self.status, self.stderr);
    }

    /// Panics unless the child aborted, and wrote each of `parts` to standard error.
    #[cfg(unix)]
    #[track_caller]
    pub fn assert_aborted_with(&self, parts: &[&str]) {
        use std::os::unix::process::ExitStatusExt;
        const SIGABRT: i32 = 6;
        if self.is_another_part {
            return;
        }
        let signal = self.status.and_then(|status| status.signal());
        assert_eq!(signal, Some(SIGABRT), "{:?}\n{}", self.status, self.stderr);
        for part in parts {
            let has_part = self.stderr.contains(part);
            assert!(has_part, "`{part}` is missing in:\n{}", self.stderr);
        }
    }
}

/// Runs `body` in a child process, which is this test program with only the calling test, for at most `limit`.
///
/// A test that has several bodies gives each a `part` of its own. Nothing else may run before them in the test.
pub fn run_in_child(part: usize, limit: Duration, body: impl FnOnce()) -> Ended {
    let thread = std::thread::current();
    let name = thread
        .name()
        .expect("the thread of a test is named after it");
    let named_part = format!("{name}#{part}");
    let child = std::env::var(CHILD);
    if child.as_ref() == Ok(&named_part) {
        body();
        std::process::exit(0);
    }
    if child.is_ok() {
        return Ended::another_part();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, named_part)
        .env_remove("RUST_BACKTRACE")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stderr.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let status = wait_for(&mut child, limit);
    Ended {
        status,
        stderr: reader.join().unwrap(),
        is_another_part: false,
    }
}

fn wait_for(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < limit {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}
