//! Commands as jobs, run on the daemon's own machine: what `jobtree run` submits.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jobtree_client::{Client, Worker};
use jobtree_process::cgroup::Cgroup;
use jobtree_process::{Feed, Program, Rlimits, Supervisor, TEMPORARY, safe_environment};
use jobtree_protocol::{CommandResult, CommandSpec, RUNNER_ADDON, RUNNER_TYPE};
use jobtree_runtime::BoxError;
use jobtree_scheduler::workers::{self, GiveBack, Permanent, Run};

use crate::context::Context;
use crate::error::CliError;
use crate::programs::{CUT_OFF, OnAdvice, Ran, Runner, YIELD_GRACE};
use crate::relay::Relay;
use crate::stdin::Stdin;

/// How nice a command is that does not say.
const NICE: u8 = 10;
/// Of the kernel's usual 100: a command yields to what people do.
const WEIGHT: u32 = 20;
/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(10);

/// Bytes of a kept log for the lines that are added to the output: how much is left out, and that another run begins. Without
/// them the daemon, which keeps no more than its limit, would cut off the end of the output.
const MARKER_ROOM: u64 = 256;

/// Starts it.
///
/// # Errors
/// If its worker does not start.
pub fn start(
    client: Client,
    slots: usize,
    log_bytes: usize,
    context: &Context,
) -> Result<workers::Worker, CliError> {
    let supervisor = Supervisor::this_executable().map_err(|error| {
        CliError::failed(format!("this executable is not to be found: {error}"))
    })?;
    let groups = match Cgroup::create(&group_name(0), WEIGHT) {
        Ok(group) => {
            let _ = std::fs::remove_dir(group.folder());
            true
        }
        Err(why) => {
            context.out.note(&format!("runner: {why}"));
            false
        }
    };
    let runner = Runner {
        supervisor: supervisor.log_bytes((log_bytes as u64).saturating_sub(MARKER_ROOM)),
        client: client.clone(),
    };
    Worker::new(client)
        .addon(RUNNER_ADDON)
        .concurrency(slots)
        .batch(1)
        .program(concat!("jobtree runner ", env!("CARGO_PKG_VERSION")))
        .handle_blocking(RUNNER_TYPE, move |spec: CommandSpec, run: &Run| {
            command(&runner, spec, run, groups)
        })
        .start()
        .map_err(|error| CliError::failed(error.to_string()))
}

fn group_name(number: u64) -> String {
    format!("jobtree-{}-{number}", std::process::id())
}

fn command(
    runner: &Runner,
    spec: CommandSpec,
    run: &Run,
    groups: bool,
) -> Result<CommandResult, BoxError> {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    if spec.argv.is_empty() {
        return Err(Permanent::new("argv is empty: name a program").into());
    }
    let (once, attached, reads) = (spec.once, spec.attached, spec.stdin);
    if once && run.attempt() > 1 {
        return Err(not_again());
    }
    let on_advice = on_advice(&spec);
    let mut program = program(spec)?;
    if groups {
        let name = group_name(COUNT.fetch_add(1, Ordering::Relaxed));
        match Cgroup::create(&name, WEIGHT) {
            Ok(group) => program.cgroup = Some(group.folder().to_owned()),
            Err(why) => run.log(format!("jobtree: {why}")),
        }
    }
    let stdin = match run.job().lease_id.filter(|_| reads) {
        Some(lease) => {
            let feed = Feed::create()?;
            program.stdin_from = Some(feed.path().to_owned());
            let stdin = Stdin::begin(&runner.client, run, lease, feed);
            Some(stdin.ok_or_else(|| Permanent::new(CUT_OFF))?)
        }
        None => None,
    };
    describe(&mut program, run);
    let relay = match attached {
        true => Relay::begin(&runner.client, run),
        false => None,
    };
    let Ran {
        ending,
        was_told_to_yield,
    } = match runner.run(run, &program, relay, stdin, on_advice) {
        // Else it would wait again, since its worker ends or lost its lease.
        Err(_) if once => return Err(not_again()),
        ran => ran?,
    };
    match ending.exit_code {
        Some(0) => Ok(CommandResult {
            exit_code: Some(0),
            signal: None,
        }),
        // A command that was not told to yield may mean anything by this code.
        Some(TEMPORARY) if was_told_to_yield && !once => {
            Err(GiveBack::because(ending.to_string()).into())
        }
        _ => Err(ending.to_string().into()),
    }
}

/// The end of a command that must not run twice, and whose first run did not come to its end.
fn not_again() -> BoxError {
    Permanent::new("interrupted: it was submitted with --once, and is not run again").into()
}

/// What is done with a command on advice. A command that does not obey advice is paused while the machine is short of
/// something.
fn on_advice(spec: &CommandSpec) -> OnAdvice {
    let grace = spec
        .yield_grace_sec
        .map_or(YIELD_GRACE, Duration::from_secs);
    OnAdvice {
        pauses: !spec.obeys_advice && spec.advice_signal.is_none(),
        // Input that was read cannot be passed to another run.
        yield_grace: (!spec.never_yields && !spec.once && !spec.stdin).then_some(grace),
    }
}

/// What the command is told of its job. Whoever names a trace for it means that one.
fn describe(program: &mut Program, run: &Run) {
    let env = &mut program.env;
    env.insert("JOBTREE_JOB_ID".into(), run.id().to_string());
    env.entry("TRACEPARENT".into())
        .or_insert_with(|| run.job().trace().to_string());
}

fn program(spec: CommandSpec) -> Result<Program, Permanent> {
    let signal = spec.advice_signal.map(|name| {
        let read = name.parse();
        read.map_err(|error| Permanent::new(format!("advice_signal {name:?} is unknown: {error}")))
    });
    let mut env = safe_environment();
    env.extend(spec.env);
    Ok(Program {
        argv: spec.argv,
        cwd: spec.cwd.map(PathBuf::from),
        env,
        stdin: String::new(),
        stdin_from: None,
        nice: Some(spec.nice.unwrap_or(NICE)),
        io_idle: spec.io_idle,
        rlimits: Rlimits {
            memory_bytes: spec.memory_bytes,
            open_files: spec.open_files,
            cpu_sec: spec.cpu_sec,
        },
        cgroup: None,
        grace: GRACE,
        advice_signal: signal.transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_paused_unless_it_obeys_advice() {
        let spec = CommandSpec::default();
        let plain = on_advice(&spec);
        assert_eq!((plain.pauses, plain.yield_grace), (true, Some(YIELD_GRACE)));
        let obeys = on_advice(&CommandSpec {
            obeys_advice: true,
            yield_grace_sec: Some(7),
            ..spec.clone()
        });
        let seven = Some(Duration::from_secs(7));
        assert_eq!((obeys.pauses, obeys.yield_grace), (false, seven));
        let signalled = on_advice(&CommandSpec {
            advice_signal: Some("USR1".into()),
            never_yields: true,
            ..spec
        });
        assert_eq!((signalled.pauses, signalled.yield_grace), (false, None));
    }

    #[test]
    fn a_signal_that_would_end_a_command_is_refused_for_good() {
        let with = |name: &str| {
            program(CommandSpec {
                advice_signal: Some(name.into()),
                ..CommandSpec::default()
            })
        };
        assert!(with("USR2").is_ok_and(|program| program.advice_signal.is_some()));
        let refused = with("KILL").expect_err("it cannot be handled");
        assert!(refused.to_string().contains("USR1"), "{refused}");
    }
}
