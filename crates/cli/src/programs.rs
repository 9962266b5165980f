//! One run of a durable job as a program: what it prints becomes the job's log and progress, and a wish that the job stop
//! becomes TERM, and KILL when its grace is over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jobtree_client::Client;
use jobtree_process::output::Said;
use jobtree_process::{Child, Ending, Program, Supervisor};
use jobtree_protocol::{Advice, LeaseId};
use jobtree_runtime::{BoxError, channel};
use jobtree_scheduler::workers::Run;

/// How often the scheduler's advice is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often the lease is looked at while a program stops.
const STOPPING: Duration = Duration::from_millis(50);
/// What is left between TERM and KILL when the lease is lost. The worker learns of that a sixth of the lease's time
/// before anybody else can have the job.
const LAST_GRACE: Duration = Duration::from_millis(500);
/// What is passed on of a line that does not end.
const LONGEST_LINE: usize = 16 << 10;

/// Runs programs for a worker.
#[derive(Clone, Debug)]
pub struct Runner {
    pub supervisor: Supervisor,
    /// Who is told which processes work under a lease, so that their load is known as our own.
    pub client: Client,
    /// It stands still while the machine is short of something, if its worker wants that.
    pub pauses: bool,
}

impl Runner {
    /// Runs it to its end. When this returns, nothing of it is left, however it ended.
    ///
    /// # Errors
    /// If it could not be started, or the job was asked to stop.
    pub fn run(&self, run: &Run, program: &Program) -> Result<Ending, BoxError> {
        let log = Arc::new(Mutex::new(Lines::default()));
        let (said, talks) = (Arc::clone(&log), run.clone());
        let listen = move |what| match what {
            Said::Text(text) => {
                let mut lines = said.lock().unwrap_or_else(PoisonError::into_inner);
                lines.add(&text, |line| talks.log(line));
            }
            Said::Progress { fraction, message } => talks.progress(fraction, message),
            Said::Result(_) => {}
        };
        let (ended, end) = channel::unbounded::<()>();
        let child = Child::start(&self.supervisor, program, listen, move |_| {
            ended.close();
        })?;
        if let Some(lease) = run.job().lease_id {
            self.register(lease, child.pid());
        }
        let mut still = false;
        loop {
            match end.recv_timeout(Some(LOOK)) {
                Err(error) if error.is_timed_out() => {
                    let shall = self.pauses && is_short(run.advice());
                    if shall != still {
                        still = shall;
                        match still {
                            true => child.pause(),
                            false => child.resume(),
                        }
                    }
                }
                Err(error) if error.is_cancelled() => {
                    stop(&child, run);
                    return Err(error.into());
                }
                _ => break,
            }
        }
        let ending = child.wait();
        let mut lines = log.lock().unwrap_or_else(PoisonError::into_inner);
        lines.finish(|line| run.log(line));
        if ending.left_out > 0 {
            run.log(format!(
                "… {} bytes of output were left out",
                ending.left_out
            ));
        }
        Ok(ending)
    }

    /// If this does not arrive, the program's load counts as somebody else's: worse for it, and nothing more.
    fn register(&self, lease: LeaseId, pid: u32) {
        let client = self.client.clone();
        std::thread::spawn(move || client.pid(lease, vec![pid]));
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

fn is_short(advice: Advice) -> bool {
    matches!(advice, Advice::Checkpoint | Advice::Yield)
}

/// Text as it comes, cut into lines: a log is written line by line.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, text: &str, mut tell: impl FnMut(&str)) {
        self.0.push_str(text);
        if let Some(end) = self.0.rfind('\n') {
            tell(&self.0[..=end]);
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
    fn a_log_gets_whole_lines() {
        let (mut lines, mut told) = (Lines::default(), Vec::new());
        for text in ["a", "b\nc\nd", "e", "\n", "f"] {
            lines.add(text, |line| told.push(line.to_owned()));
        }
        lines.finish(|line| told.push(line.to_owned()));
        assert_eq!(told, ["ab\nc\n", "de\n", "f"]);
    }
}
