//! Commands as jobs, run on the daemon's own machine: what `jobtree run` submits.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jobtree_client::{Client, Worker};
use jobtree_process::cgroup::Cgroup;
use jobtree_process::{Program, Rlimits, Supervisor, safe_environment};
use jobtree_protocol::{CommandResult, CommandSpec, RUNNER_ADDON, RUNNER_TYPE};
use jobtree_runtime::BoxError;
use jobtree_scheduler::workers::{self, Permanent, Run};

use crate::context::Context;
use crate::error::CliError;
use crate::programs::Runner;

/// How nice a command is that does not say.
const NICE: u8 = 10;
/// Of the kernel's usual 100: a command yields to what people do.
const WEIGHT: u32 = 20;
/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(10);

/// Starts it.
///
/// # Errors
/// If its worker does not start.
pub fn start(client: Client, slots: usize, context: &Context) -> Result<workers::Worker, CliError> {
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
        supervisor,
        client: client.clone(),
        pauses: true,
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
    let mut program = program(spec);
    if groups {
        let name = group_name(COUNT.fetch_add(1, Ordering::Relaxed));
        match Cgroup::create(&name, WEIGHT) {
            Ok(group) => program.cgroup = Some(group.folder().to_owned()),
            Err(why) => run.log(format!("jobtree: {why}")),
        }
    }
    describe(&mut program, run);
    let ending = runner.run(run, &program)?;
    match ending.exit_code {
        Some(0) => Ok(CommandResult {
            exit_code: Some(0),
            signal: None,
        }),
        _ => Err(ending.to_string().into()),
    }
}

/// What the command is told of its job. Whoever names a trace for it means that one.
fn describe(program: &mut Program, run: &Run) {
    let env = &mut program.env;
    env.insert("JOBTREE_JOB_ID".into(), run.id().to_string());
    env.entry("TRACEPARENT".into())
        .or_insert_with(|| run.job().trace().to_string());
}

fn program(spec: CommandSpec) -> Program {
    let mut env = safe_environment();
    env.extend(spec.env);
    Program {
        argv: spec.argv,
        cwd: spec.cwd.map(PathBuf::from),
        env,
        stdin: String::new(),
        nice: Some(spec.nice.unwrap_or(NICE)),
        io_idle: spec.io_idle,
        rlimits: Rlimits {
            memory_bytes: spec.memory_bytes,
            open_files: spec.open_files,
            cpu_sec: spec.cpu_sec,
        },
        cgroup: None,
        grace: GRACE,
    }
}
