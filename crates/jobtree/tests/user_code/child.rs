//! Running a cell in a process of its own, and judging how it ended.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::cell::{Cell, MARKER};
use crate::place::Outcome;

/// The variable that makes this program run a cell.
pub const CELL_OF_CHILD: &str = "JOBTREE_MATRIX_CHILD";

/// The time between two looks at whether a process has ended.
const POLL_PAUSE: Duration = Duration::from_millis(1);

/// How a cell was judged.
pub struct Verdict {
    pub cell: Cell,
    pub kind: VerdictKind,
    pub took: Duration,
    /// What the program printed, if the cell failed.
    pub output: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictKind {
    Ended,
    Refused,
    NotApplicable,
    Failed(String),
}

/// Runs a cell, and kills it after `limit`.
pub fn run(cell: Cell, limit: Duration) -> Verdict {
    let outcome = cell.place.outcome(cell.behaviour);
    let began = Instant::now();
    let (kind, output) = match outcome {
        Outcome::NotApplicable(_) => (VerdictKind::NotApplicable, String::new()),
        _ => {
            let ended = run_process(&cell.name(), limit);
            let kind = judge(outcome, &ended);
            (kind, ended.stderr + &ended.stdout)
        }
    };
    Verdict {
        cell,
        kind,
        took: began.elapsed(),
        output,
    }
}

/// How a process ended.
struct Ended {
    /// `None` if it was killed because its time was over.
    status: Option<ExitStatus>,
    stdout: String,
    stderr: String,
}

fn run_process(cell: &str, limit: Duration) -> Ended {
    let program = std::env::current_exe().expect("the path of this program");
    let mut child = Command::new(program)
        .env(CELL_OF_CHILD, cell)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program can be started again");
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    thread::scope(|scope| {
        let stdout = scope.spawn(|| read_all(stdout));
        let stderr = scope.spawn(|| read_all(stderr));
        let status = wait(&mut child, limit);
        Ended {
            status,
            stdout: stdout.join().expect("reading does not panic"),
            stderr: stderr.join().expect("reading does not panic"),
        }
    })
}

fn read_all(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is worth showing, too.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("the process can be waited for") {
            return Some(status);
        }
        if began.elapsed() > limit {
            // A cell starts no process of its own, so this ends all of it.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(POLL_PAUSE);
    }
}

fn judge(outcome: Outcome, ended: &Ended) -> VerdictKind {
    let Some(status) = ended.status else {
        return VerdictKind::Failed("hangs".to_owned());
    };
    match outcome {
        Outcome::Ends => judge_end(status, ended, None),
        Outcome::AbortedByStd(message) => judge_abort(status, ended, message),
        Outcome::EndsOrRefused(message) if status.success() => {
            judge_end(status, ended, Some(message))
        }
        Outcome::EndsOrRefused(message) => judge_refusal(status, ended, message),
        Outcome::NotApplicable(_) => VerdictKind::NotApplicable,
    }
}

/// Judges a program that is to end well. A refusal with the message `refusal` may have been caught on the way.
fn judge_end(status: ExitStatus, ended: &Ended, refusal: Option<&str>) -> VerdictKind {
    if !status.success() {
        return VerdictKind::Failed(name_of(status));
    }
    // The library's own files: an assertion of the library is a failure, even if something caught it.
    let is_of_library =
        |line: &&str| line.contains("panicked at crates/") && !line.contains("/tests/");
    let is_refusal = refusal.is_some_and(|message| says(ended, message));
    if let Some(line) = ended.stderr.lines().find(is_of_library)
        && !is_refusal
    {
        return VerdictKind::Failed(format!("the library itself panicked: {line}"));
    }
    let last = ended.stdout.lines().last().unwrap_or_default();
    match last.strip_prefix(MARKER).map(str::parse::<usize>) {
        Some(Ok(runs)) if runs > 0 => VerdictKind::Ended,
        Some(_) => VerdictKind::Failed("the user code never ran".to_owned()),
        None => VerdictKind::Failed("ended without the last line of its program".to_owned()),
    }
}

fn judge_refusal(status: ExitStatus, ended: &Ended, message: &str) -> VerdictKind {
    const PANICKED: i32 = 101;
    if status.code() != Some(PANICKED) {
        return VerdictKind::Failed(format!("not refused, but: {}", name_of(status)));
    }
    if !says(ended, message) {
        return VerdictKind::Failed(format!("{}, without {message:?}", name_of(status)));
    }
    VerdictKind::Refused
}

/// Returns `true` if the program was told `message`: not in the first line of a panic, which has the thread's name, and not
/// as the text of a planned panic.
fn says(ended: &Ended, message: &str) -> bool {
    let is_told = |line: &str| {
        line.contains(message) && !line.contains("panicked at") && !line.contains("planned panic")
    };
    ended.stderr.lines().any(is_told)
}

/// Judges a program that the standard library ends, with its own message.
fn judge_abort(status: ExitStatus, ended: &Ended, message: &str) -> VerdictKind {
    #[cfg(unix)]
    let is_abort = {
        use std::os::unix::process::ExitStatusExt;
        const SIGABRT: i32 = 6;
        status.signal() == Some(SIGABRT)
    };
    #[cfg(not(unix))]
    let is_abort = !status.success();
    if !is_abort {
        return VerdictKind::Failed(format!("not aborted, but: {}", name_of(status)));
    }
    if !says(ended, message) {
        return VerdictKind::Failed(format!("{}, without {message:?}", name_of(status)));
    }
    VerdictKind::Refused
}

fn name_of(status: ExitStatus) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        if let Some(signal) = status.signal() {
            let name = match signal {
                4 => "SIGILL",
                6 => "SIGABRT",
                7 => "SIGBUS",
                11 => "SIGSEGV",
                _ => "a signal",
            };
            return format!("ended by {name} ({signal})");
        }
    }
    status.to_string()
}
