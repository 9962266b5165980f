//! The process between worker and program. See the crate's front page for why it is there.
//!
//! The socket to the worker is its standard input, and carries both directions. Standard output and error are the
//! program's own: nothing is printed here. The main thread starts the program and lives until the end, since the
//! program dies with the thread that started it. It takes news from two others: one hears the worker, one reaps.
//! The program's end of the pipe for advice is the only descriptor that the launcher inherits beside the standard ones.

use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};

use crate::advice::{ADVICE_FD, AdvicePipe, Advisor};
use crate::cgroup::Cgroup;
use crate::family::{descendants, signal_all};
use crate::feed;
use crate::launch::{Conditions, LAUNCH};
use crate::program::Program;
use crate::talk::{News, Order, hear, say};
use crate::used::{Meter, Sums, Used};

/// The hidden subcommand that calls [`supervise`].
pub const SUPERVISE: &str = "__supervise";

/// How long the dead may take to be gone. Only a process that hangs in the kernel needs it.
const BURIAL: Duration = Duration::from_secs(5);

/// What the main thread waits for.
enum Happening {
    Said(Order),
    /// The worker is gone.
    Alone,
    Exited(WaitStatus),
}

/// Runs one program for the worker at the other end of standard input, to its end.
pub fn supervise() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // There is nobody left to tell.
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> io::Result<()> {
    // First, for its number.
    let advice = AdvicePipe::open()?;
    outlive_signals()?;
    let mut worker = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut heard = BufReader::new(worker.try_clone()?);
    let Some(Order::Start(program)) = hear(&mut heard)? else {
        return Ok(());
    };
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let before = Sums::read();
    let leader = match start(&program, &advice) {
        Ok(leader) => leader,
        Err(error) => return say(&mut worker, &News::Refused(error.to_string())),
    };
    say(
        &mut worker,
        &News::Started(leader.as_raw_nonzero().get().cast_unsigned()),
    )?;

    let (tell, happenings) = mpsc::channel();
    let reaped = tell.clone();
    thread::spawn(move || hear_the_worker(heard, &tell));
    thread::spawn(move || reap_until(leader, &reaped));
    let group = Group {
        leader,
        cgroup: program.cgroup.clone().map(Cgroup::at),
    };
    let mut advisor = advice.advise(leader, program.advice_signal);
    let mut meter = Meter::new(before, leader.as_raw_nonzero().get().cast_unsigned());
    let status = group.follow(&happenings, program.grace, &mut advisor, &mut meter);
    let used = group.bury(&meter);
    let ended = News::Ended {
        exit_code: status.and_then(WaitStatus::exit_status),
        signal: status.and_then(WaitStatus::terminating_signal),
        used,
    };
    // The worker may be gone.
    let _ = say(&mut worker, &ended);
    Ok(())
}

/// A terminal's Ctrl-C and a service manager's TERM go to everybody. The worker decides what they mean; this process
/// ends by what the worker says, or with it. A handler is set instead of ignoring them, since the program would inherit
/// that.
fn outlive_signals() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Default::default())?;
    }
    Ok(())
}

fn start(program: &Program, advice: &AdvicePipe) -> io::Result<Pid> {
    let conditions = serde_json::to_string(&Conditions::of(program))?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg(LAUNCH)
        .arg(conditions)
        .args(&program.argv)
        .env_clear()
        .envs(&program.env)
        .env(ADVICE_FD, advice.number().to_string())
        .process_group(0)
        .stdin(match &program.stdin_from {
            None => Stdio::piped(),
            Some(pipe) => Stdio::from(feed::open_to_read(pipe)?),
        });
    if let Some(cwd) = &program.cwd {
        // Told apart here, since a missing program gives the same error.
        std::fs::metadata(cwd)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", cwd.display())))?;
        command.current_dir(cwd);
    }
    advice.inherit()?;
    let mut child = command.spawn()?;
    let leader = Pid::from_child(&child);
    if let Some(cgroup) = program.cgroup.clone().map(Cgroup::at) {
        cgroup.add(leader)?;
    }
    if let Some(mut stdin) = child.stdin.take() {
        let payload = program.stdin.clone();
        // A program that does not read must not hold up the rest; one that ends first breaks the pipe, and that is fine.
        thread::spawn(move || stdin.write_all(payload.as_bytes()));
    }
    Ok(leader)
}

fn hear_the_worker(mut from: BufReader<UnixStream>, tell: &Sender<Happening>) {
    while let Ok(Some(order)) = hear(&mut from) {
        if tell.send(Happening::Said(order)).is_err() {
            return;
        }
    }
    let _ = tell.send(Happening::Alone);
}

/// Reaps whatever ends, up to the leader; what is left then is reaped at the burial.
fn reap_until(leader: Pid, tell: &Sender<Happening>) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == leader => {
                let _ = tell.send(Happening::Exited(status));
                return;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// The program and everything below it.
struct Group {
    leader: Pid,
    cgroup: Option<Cgroup>,
}

impl Group {
    /// Until the program has ended. None if it did not, not even killed.
    fn follow(
        &self,
        happenings: &Receiver<Happening>,
        grace: Duration,
        advisor: &mut Advisor,
        meter: &mut Meter,
    ) -> Option<WaitStatus> {
        // None also while a grace is too long for a clock to tell its end.
        let mut until: Option<Instant> = None;
        let (mut terminated, mut killed) = (false, false);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let due = [left, advisor.retry_in()].into_iter().flatten();
            let patience = due.fold(meter.wait(), Duration::min);
            match happenings.recv_timeout(patience) {
                Ok(Happening::Exited(status)) => return Some(status),
                Ok(Happening::Said(Order::Pause)) => self.pause(),
                Ok(Happening::Said(Order::Resume)) => self.resume(),
                Ok(Happening::Said(Order::Advise(word))) => advisor.advise(word),
                Ok(Happening::Said(Order::Start(_))) => {}
                Ok(Happening::Said(Order::Stop)) => {
                    if !terminated && !killed {
                        self.terminate();
                        terminated = true;
                        until = Instant::now().checked_add(grace);
                    }
                }
                Err(RecvTimeoutError::Timeout)
                    if until.is_none_or(|until| Instant::now() < until) =>
                {
                    advisor.pass_on();
                    meter.look();
                }
                Err(RecvTimeoutError::Timeout) if killed => return None,
                // Whoever is alone has nobody who renews the lease: no grace.
                Ok(Happening::Said(Order::Kill) | Happening::Alone)
                | Err(RecvTimeoutError::Timeout) => {
                    self.kill();
                    killed = true;
                    until = Some(Instant::now() + BURIAL);
                }
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn terminate(&self) {
        let _ = kill_process_group(self.leader, Signal::TERM);
        // One that stands still hears it when it goes on.
        self.resume();
    }

    fn kill(&self) {
        let _ = kill_process_group(self.leader, Signal::KILL);
        signal_all(Signal::KILL);
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
    }

    fn pause(&self) {
        match &self.cgroup {
            Some(cgroup) if cgroup.freeze(true) => {}
            _ => drop(kill_process_group(self.leader, Signal::STOP)),
        }
    }

    fn resume(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.freeze(false);
        }
        let _ = kill_process_group(self.leader, Signal::CONT);
    }

    /// Kills what the program left behind, again and again: somebody may fork while the list is read. Each round that
    /// finds anybody ends with less than it began with, since whoever forks is on the list as well.
    /// Returns what was used, now that everything has been waited for.
    fn bury(&self, meter: &Meter) -> Used {
        let until = Instant::now() + BURIAL;
        loop {
            self.kill();
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            if descendants().is_empty() {
                break;
            }
            if Instant::now() > until {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let used = meter.used(self.cgroup.as_ref().map(Cgroup::folder));
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
        used
    }
}
