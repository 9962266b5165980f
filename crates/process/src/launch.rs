//! The last step before a program runs: this process takes its limits upon itself, and becomes the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::program::{Program, Rlimits};

/// The hidden subcommand that calls [`launch`].
pub const LAUNCH: &str = "__launch";

/// What shells exit with when a program is not there, and when it cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

/// What a process can do to itself, as its only argument before the program's.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Conditions {
    supervisor: u32,
    nice: Option<u8>,
    io_idle: bool,
    rlimits: Rlimits,
}

impl Conditions {
    pub(crate) fn of(program: &Program) -> Self {
        Conditions {
            supervisor: std::process::id(),
            nice: program.nice,
            io_idle: program.io_idle,
            rlimits: program.rlimits,
        }
    }
}

/// Becomes the program: `arguments` are the conditions as JSON, and its argv. Returns only if that failed.
pub fn launch(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let conditions = arguments
        .next()
        .and_then(|json| serde_json::from_str::<Conditions>(json.to_str()?).ok());
    let (Some(conditions), Some(program)) = (conditions, arguments.next()) else {
        eprintln!("jobtree: only a supervisor calls this subcommand");
        return ExitCode::from(2);
    };
    if let Err(message) = conditions.take_on() {
        eprintln!("jobtree: {message}");
        return ExitCode::from(NOT_RUNNABLE);
    }
    let error = Command::new(&program).args(arguments).exec();
    let program = program.display();
    eprintln!("jobtree: {program} cannot be started: {error}");
    ExitCode::from(match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUNNABLE,
    })
}

impl Conditions {
    fn take_on(&self) -> Result<(), String> {
        self.die_with_the_supervisor()?;
        if let Some(nice) = self.nice {
            rustix::process::nice(i32::from(nice.min(19)))
                .map_err(|error| format!("it cannot be made nicer by {nice}: {error}"))?;
        }
        if self.io_idle {
            be_idle_on_disks();
        }
        let Rlimits {
            memory_bytes,
            open_files,
            cpu_sec,
        } = self.rlimits;
        limit(Resource::As, "memory_bytes", memory_bytes)?;
        limit(Resource::Nofile, "open_files", open_files)?;
        limit(Resource::Cpu, "cpu_sec", cpu_sec)
    }

    /// The kernel kills this process when the thread that started it ends, which is the supervisor's main thread.
    /// It may have ended before this was said, so look.
    #[cfg(target_os = "linux")]
    fn die_with_the_supervisor(&self) -> Result<(), String> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| format!("it cannot be tied to its supervisor: {error}"))?;
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        if parent == self.supervisor.cast_signed() {
            Ok(())
        } else {
            Err("its supervisor is gone".into())
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn die_with_the_supervisor(&self) -> Result<(), String> {
        Ok(())
    }
}

/// There is no safe call for this, but a program that most systems have.
fn be_idle_on_disks() {
    let done = Command::new("ionice")
        .args(["-c", "3", "-p", &std::process::id().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("jobtree: io_idle has no effect: the program ionice is not here, or failed");
    }
}

/// Lowers a limit. One that is lower already stays: what somebody forbade the worker is forbidden to its jobs.
fn limit(resource: Resource, name: &str, wanted: Option<u64>) -> Result<(), String> {
    let Some(wanted) = wanted else { return Ok(()) };
    let lowest = getrlimit(resource)
        .maximum
        .map_or(wanted, |most| most.min(wanted));
    let both = Rlimit {
        current: Some(lowest),
        maximum: Some(lowest),
    };
    setrlimit(resource, both).map_err(|error| format!("{name} cannot be set to {lowest}: {error}"))
}
