//! `jobtree work`: a worker whose handler is a program, in any language.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use jobtree_client::{Client, Worker};
use jobtree_process::{Program, Supervisor, Verdict};
use jobtree_protocol::{Advice, JobView, Json};
use jobtree_runtime::BoxError;
use jobtree_scheduler::workers::{GiveBack, Permanent, Run};

use crate::args::{self, YieldGrace, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::programs::{OnAdvice, Runner, YIELD_GRACE};
use crate::signals::Asked;

/// The largest payload that is also put into the environment; the kernel takes no more than 128 KiB a variable.
const PAYLOAD_IN_ENVIRONMENT: usize = 64 << 10;
/// How long a job that its program gave back is kept first, so that the two do not play ball.
const NOT_NOW: Duration = Duration::from_secs(2);

pub fn define(command: Command) -> Command {
    command
        .about("Run jobs with a program of any language")
        .after_help(
            "For each job the program is started, and\n  \
             reads the payload as JSON from its standard input;\n  \
             finds JOBTREE_JOB_ID, JOBTREE_ATTEMPT, JOBTREE_ADDON, JOBTREE_JOB_TYPE, JOBTREE_URL, TRACEPARENT,\n  \
             and JOBTREE_PAYLOAD if it has at most 64 KiB, in its environment;\n  \
             tells how far it is by a line `::progress 0.4 some words` on its standard output;\n  \
             gives a result by a line `::result {\"some\": \"JSON\"}`, of which the last counts.\n\
             All else that it prints becomes the job's log. It exits with\n  \
             0    the job is DONE\n  \
             75   not now: the job waits again, and nothing is counted\n  \
             65   FAILED for good: its input is wrong\n  \
             else a failed attempt, with the end of its standard error as the reason\n\
             While it runs it is advised: when the advice changes, a line comes on the descriptor whose number is in\n\
             JOBTREE_ADVICE_FD, and with it --advice-signal once the program handles that signal. The program need not\n\
             read. The lines are\n  \
             slow        use less: the machine is busy\n  \
             checkpoint  save what you have\n  \
             yield       save, and exit with 75 within --yield-grace; else it is stopped as if the job was cancelled,\n  \
             \x20           and the job waits again, with nothing counted\n  \
             drain       finish: the daemon starts nothing new\n  \
             continue    as before\n\
             When the job is cancelled the program gets TERM, and after --grace KILL, with everything that it started. When\n\
             it takes too long or its lease is lost, half a second has to do: somebody else may have the job soon.\n\
             Nothing of it outlives this worker, whatever happens to it.\n\n\
             TERM or Ctrl-C: no new jobs; those that run may end within --drain.\n\n\
             For example: jobtree work --addon photos --type thumbnail -- ./thumbnail.py",
        )
        .arg(value("addon", "ADDON", "Whose jobs [JOBTREE_ADDON]"))
        .arg(
            value("type", "TYPE", "Which jobs; may be repeated")
                .action(ArgAction::Append)
                .required(true),
        )
        .arg(value("slots", "N", "How many side by side [1]"))
        .arg(value(
            "batch",
            "N",
            "Claim up to N short jobs at a time, for one slot to run one after the other [1]",
        ))
        .arg(value("grace", "DURATION", "Between TERM and KILL [10s]"))
        .args(args::of_advice())
        .arg(value("drain", "DURATION", "How long jobs may go on when this worker ends [30s]"))
        .arg(value("log-bytes", "N", "Bytes of output that are kept of each run [1048576]"))
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .num_args(1..)
                .required(true)
                .last(true)
                .help("The program and its arguments; no shell reads them"),
        )
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let asked = Asked::listen()?;
    let Some(addon) = context.settings.get("addon") else {
        return Err(CliError::usage("--addon is missing").hint("or set JOBTREE_ADDON"));
    };
    // A daemon that goes away later is waited for; one that was never there is a mistake.
    let client = context.patient_client()?;
    let mut supervisor = Supervisor::this_executable().map_err(|error| {
        CliError::failed(format!("this executable is not to be found: {error}"))
    })?;
    if let Some(most) = args::read(arguments, "log-bytes")? {
        supervisor = supervisor.log_bytes(most);
    }
    let mut program = Program::new(args::all(arguments, "program"));
    if let Some(grace) = args::duration(arguments, "grace")? {
        program.grace = grace;
    }
    program.advice_signal = args::advice_signal(arguments)?;
    program
        .env
        .insert("JOBTREE_URL".into(), client.url().into());
    let yield_grace = match args::yield_grace(arguments)? {
        Some(YieldGrace::Never) => None,
        Some(YieldGrace::After(grace)) => Some(grace),
        None => Some(YIELD_GRACE),
    };
    let handler = Handler {
        runner: Runner {
            supervisor,
            client: client.clone(),
        },
        program,
        on_advice: OnAdvice {
            pauses: false,
            yield_grace,
        },
    };
    let drain = args::duration(arguments, "drain")?.unwrap_or(Duration::from_secs(30));
    let slots = args::read(arguments, "slots")?.unwrap_or(1);
    // A process costs more to start than a claim: jobs that wait here could run elsewhere.
    let batch = args::read(arguments, "batch")?.unwrap_or(1);
    let types = args::all(arguments, "type");
    let worker = worker(client, addon, &types, (slots, batch), &handler);
    let worker = worker
        .start()
        .map_err(|error| CliError::failed(error.to_string()))?;
    context
        .out
        .note(&format!("working for {addon}: {}", types.join(", ")));

    let signal = asked.wait();
    context.out.note(&format!(
        "{signal}: no new jobs; those that run may take {}",
        crate::when::length(drain)
    ));
    match worker.drain(drain) {
        Ok(()) => Ok(Exit::OK),
        Err(stragglers) => Err(CliError::failed(stragglers.to_string())),
    }
}

fn worker(
    client: Client,
    addon: &str,
    types: &[String],
    (slots, batch): (usize, u32),
    handler: &Handler,
) -> Worker {
    let worker = Worker::new(client)
        .addon(addon)
        .concurrency(slots)
        .batch(batch)
        .program(concat!("jobtree work ", env!("CARGO_PKG_VERSION")));
    types.iter().fold(worker, |worker, job_type| {
        let handler = handler.clone();
        worker.handle_blocking(job_type, move |payload: Json, run: &Run| {
            handler.run(&payload, run)
        })
    })
}

/// The program as the handler of jobs.
#[derive(Clone)]
struct Handler {
    runner: Runner,
    program: Program,
    on_advice: OnAdvice,
}

impl Handler {
    /// Runs the program for a job.
    fn run(&self, payload: &Json, run: &Run) -> Result<Option<Json>, BoxError> {
        let mut program = self.program.clone();
        describe(&mut program, payload, run.job(), run.attempt());
        let ran = self.runner.run(run, &program, self.on_advice)?;
        match ran.ending.verdict() {
            Verdict::Done(None) => Ok(None),
            Verdict::Done(Some(result)) => Ok(Some(Json::from_text(result)?)),
            Verdict::GiveBack(reason) => {
                // While the node is overloaded, the daemon starts nothing again; its capacity is wanted now.
                if run.advice() != Advice::Yield {
                    jobtree_runtime::sleep(NOT_NOW)?;
                }
                Err(GiveBack::because(reason).into())
            }
            Verdict::Failed(reason) => Err(reason.into()),
            Verdict::Permanent(reason) => Err(Permanent::new(reason).into()),
        }
    }
}

/// What the program is told of its job.
fn describe(program: &mut Program, payload: &Json, job: &JobView, attempt: u32) {
    let mut set = |name: &str, value: String| program.env.insert(name.into(), value);
    set("JOBTREE_JOB_ID", job.job_id.to_string());
    set("JOBTREE_ADDON", job.addon_id.to_string());
    set("JOBTREE_JOB_TYPE", job.job_type.to_string());
    set("JOBTREE_ATTEMPT", attempt.to_string());
    set("TRACEPARENT", job.trace().to_string());
    if let Some(deadline) = job.deadline_at {
        set("JOBTREE_DEADLINE", deadline.to_string());
    }
    if payload.text().len() <= PAYLOAD_IN_ENVIRONMENT && !payload.text().contains('\0') {
        set("JOBTREE_PAYLOAD", payload.text().into());
    }
    program.stdin = payload.text().into();
}
