//! One run of a durable job as a program: what it prints becomes the job's log and progress, and a wish that the job stop
//! becomes TERM, and KILL when its grace is over. The scheduler's advice is passed on to it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jobtree_client::Client;
use jobtree_process::output::Said;
use jobtree_process::{Child, Ending, Program, Stream, Supervisor, Tap, Used};
use jobtree_protocol::{Advice, LeaseId, OutputStream, Usage};
use jobtree_runtime::{BoxError, channel};
use jobtree_scheduler::workers::{Permanent, Run};

use crate::out::counted;
use crate::relay::Relay;
use crate::stdin::Stdin;

/// How often the scheduler's advice is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often the lease is looked at while a program stops.
const STOPPING: Duration = Duration::from_millis(50);
/// What is left between TERM and KILL when the lease is lost. The worker learns of that a sixth of the lease's time
/// before anybody else can have the job.
const LAST_GRACE: Duration = Duration::from_millis(500);
/// What is passed on of a line that does not end.
const LONGEST_LINE: usize = 16 << 10;

/// How long a program may go on after it was told to yield, if nothing else is said.
pub const YIELD_GRACE: Duration = Duration::from_secs(30);

/// The time that a program waits for a daemon that takes nothing of its log, before parts of the log are left out.
const UNKEPT: Duration = Duration::from_secs(2);
/// The interval at which a program that waits for room in the log looks again.
const ROOM: Duration = Duration::from_millis(2);

/// Why a command failed whose standard input did not come to its end.
pub const CUT_OFF: &str =
    "interrupted: its standard input was cut off, or an earlier run has read a part of it";
/// How a marker line begins.
const MARKER: &str = "--- jobtree: run ";

/// What is done with a program, beside telling it, when the scheduler advises.
#[derive(Clone, Copy, Debug)]
pub struct OnAdvice {
    /// The program is paused while the advice is to save or to yield, and not only when a user pauses it.
    pub pauses: bool,
    /// The time after which the program is stopped if it was told to yield; never if `None`.
    pub yield_grace: Option<Duration>,
}

/// The end of a program that was not stopped.
#[derive(Debug)]
pub struct Ran {
    pub ending: Ending,
    /// The program was told to yield, at any time.
    pub was_told_to_yield: bool,
}

/// Runs programs for a worker.
#[derive(Clone, Debug)]
pub struct Runner {
    pub supervisor: Supervisor,
    /// Who is told which processes work under a lease, so that their load is known as our own.
    pub client: Client,
}

impl Runner {
    /// Runs it to its end. Its output also goes to the reader of `relay`, whole; it is stopped if its `stdin` is lost. When this returns, nothing of it is left,
    /// however it ended.
    ///
    /// # Errors
    /// If it could not be started, the job was asked to stop, or the program did not end within its grace after it was told
    /// to yield.
    pub fn run(
        &self,
        run: &Run,
        program: &Program,
        relay: Option<Relay>,
        stdin: Option<Stdin>,
        on_advice: OnAdvice,
    ) -> Result<Ran, BoxError> {
        if run.attempt() > 1 {
            run.log(marker(run.attempt()));
        }
        let log = Arc::new(Mutex::new(Logged::default()));
        let (said, talks) = (Arc::clone(&log), run.clone());
        let listen = move |what| match what {
            Said::Text(text) => {
                let mut lines = said.lock().unwrap_or_else(PoisonError::into_inner);
                let Logged { lines, pace } = &mut *lines;
                lines.add(&text, |line| pace.log(&talks, line));
            }
            Said::Progress { fraction, message } => talks.progress(fraction, message),
            Said::Result(_) | Said::Snooze(_) => {}
        };
        let (ended, end) = channel::unbounded::<()>();
        let tap = relay.as_ref().map(|relay| -> Tap {
            let shared = relay.shared();
            Arc::new(move |stream, bytes: &[u8]| {
                let stream = match stream {
                    Stream::Stdout => OutputStream::Stdout,
                    Stream::Stderr => OutputStream::Stderr,
                };
                shared.write(stream, bytes);
            })
        });
        let child = Child::start_tapped(&self.supervisor, program, tap, listen, move |_| {
            ended.close();
        })?;
        if let Some(stdin) = &stdin {
            stdin.started();
        }
        if let Some(lease) = run.job().lease_id {
            self.register(lease, child.pid());
        }
        if let Some(grace) = on_advice.yield_grace {
            run.can_yield(grace);
        }
        let mut advised = Advised::default();
        let mut cut_off = false;
        let stopped = loop {
            if !cut_off && stdin.as_ref().is_some_and(Stdin::is_lost) {
                cut_off = true;
                child.stop();
            }
            advised.pass_on(&child, run, on_advice.pauses);
            match end.recv_timeout(Some(LOOK)) {
                Err(error) if error.is_timed_out() => {}
                // A program that has ended by itself meanwhile was not stopped.
                Err(error) if error.is_cancelled() && child.wait_for(Duration::ZERO).is_none() => {
                    stop(&child, run);
                    break Some(error);
                }
                _ => break None,
            }
        };
        let ending = child.wait();
        drop(stdin);
        // All of its output is with its reader before the job counts as ended.
        drop(relay);
        run.report_usage(usage(&ending.used));
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        let Logged { lines, pace } = &mut *log;
        lines.finish(|line| pace.log(run, line));
        if ending.left_out > 0 {
            let bytes = counted(ending.left_out, "byte");
            pace.log(run, &format!("--- jobtree: {bytes} left out ---"));
        }
        lines.add(&ending.tail, |line| pace.log(run, line));
        lines.finish(|line| pace.log(run, line));
        if cut_off {
            return Err(Permanent::new(CUT_OFF).into());
        }
        match stopped {
            Some(error) => Err(error.into()),
            None => Ok(Ran {
                ending,
                was_told_to_yield: advised.to_yield,
            }),
        }
    }

    /// If this does not arrive, the program's load counts as somebody else's: worse for it, and nothing more.
    fn register(&self, lease: LeaseId, pid: u32) {
        let client = self.client.clone();
        std::thread::spawn(move || client.pid(lease, vec![pid]));
    }
}

/// The line between the output of two runs, in a job's log.
pub fn marker(run: u32) -> String {
    format!("{MARKER}{run} ---")
}

/// The number of the run that begins behind this line, if it is a marker.
pub fn marked(line: &str) -> Option<u32> {
    line.strip_prefix(MARKER)?
        .strip_suffix(" ---")?
        .parse()
        .ok()
}

/// Returns what a program used as it is told, with the size of this machine.
fn usage(used: &Used) -> Usage {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let processors = std::thread::available_parallelism().ok();
    Usage {
        cpu_ms: used.cpu.map(millis),
        processors: processors.and_then(|count| count.get().try_into().ok()),
        peak_memory_bytes: used.peak_memory_bytes,
        io_bytes: used.io_bytes,
    }
}

/// Ends it within its grace; or at once when the lease is lost, before it can be somebody else's. Returns when nothing is
/// left of it.
fn stop(child: &Child, run: &Run) {
    child.stop();
    let mut lost: Option<Instant> = None;
    while child.wait_for(STOPPING).is_none() {
        if run.lease_is_lost() && lost.get_or_insert_with(Instant::now).elapsed() >= LAST_GRACE {
            child.kill();
        }
    }
}

/// The advice that was passed on to a program.
#[derive(Default)]
struct Advised {
    advice: Advice,
    /// The advice was to yield, at any time.
    to_yield: bool,
    is_paused: bool,
}

impl Advised {
    /// Passes advice on, if it is new. That jobs of the lease shall stop is for the worker: the program gets TERM. A program that
    /// a user has paused stands still whatever it does on advice.
    fn pass_on(&mut self, child: &Child, run: &Run, pauses: bool) {
        let (advice, asked) = (run.advice(), run.is_paused());
        if advice != self.advice && advice != Advice::Cancel {
            self.advice = advice;
            self.to_yield |= advice == Advice::Yield;
            child.advise(advice.as_str());
        }
        let paused = asked || (pauses && matches!(self.advice, Advice::Checkpoint | Advice::Yield));
        match (self.is_paused, paused) {
            (false, true) => child.pause(),
            (true, false) => child.resume(),
            _ => {}
        }
        self.is_paused = paused;
        run.stands_still(paused);
    }
}

/// The log of a run: lines, and how fast they come.
#[derive(Default)]
struct Logged {
    lines: Lines,
    pace: Pace,
}

/// Slows a program down to what the daemon keeps of its log, and does not stop it when the daemon is away.
#[derive(Default)]
struct Pace {
    /// The bytes that the daemon had taken when it had taken nothing more for [`UNKEPT`].
    stuck_at: Option<u64>,
}

impl Pace {
    /// Logs a text when there is room for it.
    fn log(&mut self, run: &Run, text: &str) {
        let (mut taken, mut since) = (run.logged_bytes(), Instant::now());
        if self.stuck_at.is_some_and(|stuck| stuck != taken) {
            self.stuck_at = None;
        }
        while self.stuck_at.is_none() && !run.log_has_room(text.len()) {
            std::thread::sleep(ROOM);
            let now = run.logged_bytes();
            if now != taken {
                (taken, since) = (now, Instant::now());
            } else if since.elapsed() >= UNKEPT {
                self.stuck_at = Some(now);
            }
        }
        run.log(text);
    }
}

/// Text as it comes, cut into lines: a log is written line by line.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, text: &str, mut tell: impl FnMut(&str)) {
        self.0.push_str(text);
        if let Some(end) = self.0.rfind('\n') {
            // A long text goes in parts, for which there is room sooner.
            let mut rest = &self.0[..=end];
            while !rest.is_empty() {
                let part = &rest[..rest.floor_char_boundary(LONGEST_LINE)];
                let cut = part.rfind('\n').or_else(|| rest.find('\n'));
                let cut = cut.map_or(rest.len(), |at| at + 1);
                tell(&rest[..cut]);
                rest = &rest[cut..];
            }
            self.0.drain(..=end);
        } else if self.0.len() > LONGEST_LINE {
            self.finish(tell);
        }
    }

    fn finish(&mut self, mut tell: impl FnMut(&str)) {
        if !self.0.is_empty() {
            tell(&self.0);
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_known_again() {
        assert_eq!(marked(&marker(2)), Some(2));
        assert_eq!(marked("--- jobtree: run ---"), None);
    }

    #[test]
    fn a_log_gets_whole_lines() {
        let (mut lines, mut told) = (Lines::default(), Vec::new());
        for text in ["a", "b\nc\nd", "e", "\n", "f"] {
            lines.add(text, |line| told.push(line.to_owned()));
        }
        lines.finish(|line| told.push(line.to_owned()));
        assert_eq!(told, ["ab\nc\n", "de\n", "f"]);
    }
}
